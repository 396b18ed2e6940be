/*
 * Reconnect bench: a daemon that is killed and started again on its socket, a connection to it, and
 * streams of pushes whose outputs are checked, and of which each comes back once.
 *
 * All waiting is done with one epoll descriptor of the bench's own, in which the connection's was
 * put once, when it was opened.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "client/gpupipe.h"
#include "tests/harness.h"

#include <stdbool.h>
#include <stdint.h>

#define MIB ((uint64_t)1 << 20)

enum { N_WORKS = 6, MOST = 100000 };

struct work {
    float *x, *y, *out; /* the last has one more, to be left alone */
    uint64_t n;
    bool is_under_way;
};

struct stream {
    struct gpupipe_ring *ring; /* NULL: through the socket; two of these may be there at once */
    struct gpupipe_job *job;
    struct work works[N_WORKS];
};

extern struct harness *daemon_;
extern struct gpupipe *gpupipe;
extern uint64_t n_under_way, n_done, n_lost; /* pushes */
extern const struct gpupipe_value a;         /* of saxpy, which streams are */

/* A folder; start() has a daemon in it as well, and a connection. */
void prepare(void);
void start(void);
void launch(void);
void kill_daemon(void);
/* Ends the connection.  Before the test ends: the last daemon is looked at first then. */
void finish(void *arg);

void check_ok(int rc);
/* The last error of the connection. */
void check_error(int rc, int status, const char *text);

/* The connection's descriptor goes into the bench's. */
void watch(void);
bool is_signalled(void);
/* Nothing of the lost connection is left that could be ready. */
void check_is_quiet(void);
/* In vain first, then with a daemon that is another. */
void reconnect(void);

int open_job(struct stream *stream);
struct stream open_stream(bool is_in_ring);
void begin_all(struct stream *stream);
/* The one that keep_busy() leaves out, for when something stands still. */
void begin_last(struct stream *stream);
/* Until n more pushes are done; the window is kept full but for one. */
void keep_busy(struct stream *stream, uint64_t n);
/* Fails where one comes a second time. */
void take_back(const struct gpupipe_completion *completion);
/* Everything is back, once. */
void collect(bool by_wait);

/* Way 0: whatever is in flight; 1: with the worker, 2: with the daemon standing still before, so
 * that something is lost. */
void kill_in_the_middle(struct stream *stream, int way);
/* Of a lost connection, after another was made. */
void check_takes_no_more(struct stream *old);
/* Frees job and ring, in any order. */
void drop(const struct stream *old);
