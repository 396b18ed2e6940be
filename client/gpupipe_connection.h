/*
 * The connection: what struct gpupipe is, its turns, and the calls that wait for an answer on it.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"
#include "client/gpupipe_error.h"
#include "client/search.h"
#include "proto/message.h"
#include "proto/reader.h"
#include "proto/rpc.h"
#include "proto/writer.h"

/*
 * A request under way.  on_answer is called exactly once: with the result, or with the failure that
 * the daemon or the connection's loss gave.  It may free the call.  on_payload (may be NULL) gives
 * a payload of the result its place: 0, or -1 to have it drained.
 */
struct call {
    struct call *next;
    uint32_t msgid;
    void (*on_answer)(struct call *call, const msgpack_object *result,
                      const struct failure *failure);
    int (*on_payload)(struct call *call, const struct guard *guard, struct reader_sink *ret_sink);
};

struct flight;

struct flight_list {
    struct flight *first;
    struct flight **last;
};

struct gpupipe {
    int fd;
    int wake_fd;
    int epoll_fd;           /* holds both and all doorbells, for the program's poll() */
    const uint8_t *is_ours; /* a page that is zero after fork() */
    bool wants_to_write;    /* what epoll_fd waits for now */
    bool is_peer_gone;      /* writing failed; what the daemon said before is still read */
    bool is_lost;
    bool has_ended_job;   /* since the last gpupipe_dispatch() or gpupipe_wait() */
    struct failure loss;  /* why, once is_lost */
    struct failure stray; /* an error that answers no call: the likely reason of a loss to come */
    struct error error;   /* gpupipe_last_error() */
    struct reader *reader;
    struct writer *writer; /* NULL once lost */
    uint32_t next_msgid;
    struct call *calls;
    struct gpupipe_job *jobs;
    struct gpupipe_ring *rings;
    struct gpupipe_ring *lost_rings; /* with an earlier socket, and not closed yet */
    struct gpupipe_ring *run_ring;   /* of them, for gpupipe_run(); NULL until it is wanted ... */
    bool has_no_run_ring;            /* ... and if the daemon has none for us */
    uint32_t n_looks;                /* into rings, by gpupipe_wait() */
    struct flight_list landed;       /* pushes to be reaped, of all jobs */
    struct flight_list reaped;       /* what the last gpupipe_reap() gave out points into them */
    struct search search;
    struct msg_hello greeting;     /* what we say ... */
    struct msg_hello_result hello; /* ... and the daemon's answer */
};

/*
 * Set up a connection over fd, which becomes its own, and say hello.  On failure it is lost.
 * connection_create() makes one without a socket; NULL: out of memory.
 */
struct gpupipe *connection_create(const char *program);
/* The last step of gpupipe_close(). */
void connection_destroy(struct gpupipe *gpupipe);
int connection_start(struct gpupipe *gpupipe, int fd, struct failure *ret_failure);
/* The same of one that is lost; on failure it is as it was. */
int connection_restart(struct gpupipe *gpupipe, int fd, struct failure *ret_failure);

/* Is this the process that opened it, and is it connected? */
bool connection_is_ours(const struct gpupipe *gpupipe);
int connection_check(const struct gpupipe *gpupipe, struct failure *ret_failure);

/*
 * A request's head in the making: pack into packer with msgid, append payloads to message, then
 * connection_post().
 */
struct request {
    uint32_t msgid;
    msgpack_sbuffer head;
    msgpack_packer packer;
};

void request_init(struct request *request, struct gpupipe *gpupipe);
void request_finish(struct request *request);

/*
 * Queue the request, followed by n_spans payloads by reference, and have its answer go to call,
 * which must live until then.  on_sent: see writer_begin().  On failure nothing was queued.
 */
int connection_post(struct gpupipe *gpupipe, struct request *request, struct call *call,
                    const struct gpupipe_span *spans, uint32_t n_spans,
                    void (*on_sent)(void *arg, bool is_sent), void *arg,
                    struct failure *ret_failure);
/* Send what the socket takes now: after the last post of several. */
void connection_flush(struct gpupipe *gpupipe);

/*
 * Post, and wait for the answer, and until span (NULL: none) has left: `unpack` (NULL: nothing of
 * interest) turns the result into *ret.
 */
int connection_call(struct gpupipe *gpupipe, struct request *request,
                    const struct gpupipe_span *span,
                    int (*unpack)(const msgpack_object *result, void *ret,
                                  struct failure *ret_failure),
                    void *ret, struct failure *ret_failure);
/* The same as the last step of a public function: the request is finished, and errors recorded. */
int connection_ask(
    struct gpupipe *gpupipe, struct request *request, const struct gpupipe_span *span,
    int (*unpack)(const msgpack_object *result, void *ret, struct failure *ret_failure), void *ret);

/*
 * One turn: wait at most timeout_ns (negative: for ever) for the socket, and, if the turn heeds
 * wakes, for gpupipe_wake(), or a ring; then send and receive.  Returns 1 if either was ready, 0 if
 * not or if there was a wake-up as well, or a negative status if the connection is lost.
 */
enum connection_heed { CONNECTION_IGNORE_WAKES, CONNECTION_HEED_WAKES };
int connection_turn(struct gpupipe *gpupipe, int64_t timeout_ns, enum connection_heed heed,
                    struct failure *ret_failure);
/* A call has blocked, and may have met what a program waits for in poll(): have that end. */
void connection_announce(struct gpupipe *gpupipe);
bool connection_has_news(const struct gpupipe *gpupipe);

/* Every call and job ends with this failure, and the writer gives its buffers up. */
void connection_lose(struct gpupipe *gpupipe, const struct failure *failure);
