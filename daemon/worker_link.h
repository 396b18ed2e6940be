/*
 * Worker link: the front end's side of one device's worker, over all of the worker's lives.
 *
 * Each life ("generation") is a process with a control socket, a pidfd and a queue memfd of its
 * own. Its states, in order:
 *
 *     STARTING   exec'd; HELLO and MANIFESTs are on their way
 *     FITTING    has its queues; segments are mapped one by one
 *     READY      takes work
 *     DYING      its socket ended or it broke the rules: SIGKILL was sent, the next one is starting
 *     (freed)    its pidfd reported the exit
 *
 * What a dead worker had in flight is reported lost only when its pidfd reports the exit: until
 * then it may still write to its chunks' memory.  The next generation takes new work meanwhile.
 *
 * Respawning is immediate, and backs off (100 ms doubling to 10 s) on deaths without an answered
 * chunk between them.
 *
 * Thread: the front end's loop; callbacks come from there.
 */
#pragma once

#include "daemon/job_slots.h"
#include "daemon/segments.h"
#include "daemon/spawner.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <uv.h>

#define WORKER_OPS_MAX 64

struct worker_link;

/* Shared by all links: the ops of the first worker that announced some.  Every other has the same.
 */
struct worker_ops {
    uint32_t n;
    struct manifest_op *all;
};

struct worker_link_config {
    uv_loop_t *loop;
    struct spawner *spawner;
    struct segments *segments;
    struct job_slots *job_slots;
    struct worker_ops *ops;
    const char *backend;             /* the program is gpupipe-worker-<backend>; a literal */
    char device[WORKER_DEVICE_SIZE]; /* of that backend, for the worker; "": the first it finds */
    char name[WORKER_DEVICE_SIZE];   /* the device's, for the log */

    void *owner; /* what the callbacks get */
    /* The first worker says what it is.  Returns NULL, or why it is not wanted: it is ended. */
    const char *(*on_hello)(void *owner, const struct worker_caps *caps);
    /* It takes work (again). */
    void (*on_ready)(void *owner);
    /* It does not any more; reason is for people. */
    void (*on_down)(void *owner, const char *reason);
    /* And there will be none: the process that starts workers is gone. */
    void (*on_hopeless)(void *owner);
    /* A chunk's answer; result is a copy.  error: why it is not OK, in the worker's words, or "".
     */
    void (*on_done)(void *owner, void *chunk, const struct work_result *result, const char *error);
    /* A chunk died with its worker, which has exited; reason is for people. */
    void (*on_lost)(void *owner, void *chunk, const char *reason);
};

/* Starts the first worker.  A missing worker program fails here; later ones are retried. */
int worker_link_create(const struct worker_link_config *config, struct worker_link **ret_link,
                       struct failure *ret_failure);
/*
 * Stop the worker: orderly, and after a second by force.  Blocks for that long at most; chunks in
 * flight are lost.  The loop must run once more before it is closed.
 */
void worker_link_destroy(struct worker_link *link);

bool worker_link_is_ready(const struct worker_link *link);
/* All zero until the first worker has said HELLO. */
const struct worker_caps *worker_link_caps(const struct worker_link *link);

/*
 * Hand over a chunk, with the rows of a table.  It becomes visible at worker_link_publish(). after:
 * a chunk that this worker has of this priority, which is to end before it begins; NULL: none.  0,
 * or -EAGAIN when the worker is not ready, has no such chunk, or its queue has no place.
 */
int worker_link_submit(struct worker_link *link, enum priority priority,
                       const struct work_entry *entry, const struct work_row *rows, void *chunk,
                       const void *after);
void worker_link_publish(struct worker_link *link);

/*
 * The worker, which has work of this ring now, is to hear its doorbell as well, unless it does:
 * true.  False: it cannot now, or hears so many.  is_quick: it is work that keeps us awake; others
 * get the first WORKER_BELLS_OTHER only.  doorbell_fd is the front end's end.
 */
bool worker_link_hear(struct worker_link *link, uint64_t ring, bool is_quick, int doorbell_fd);
/* And not any more; nothing if it does not. */
void worker_link_unhear(struct worker_link *link, uint64_t ring);

/* Deliver what is done: between reads, and whenever the loop wakes. */
void worker_link_poll(struct worker_link *link);
/* Before the loop blocks: false if something came meanwhile.  After it: worker_link_awake(). */
bool worker_link_sleep(struct worker_link *link);
void worker_link_awake(struct worker_link *link);

uint64_t worker_link_starts(const struct worker_link *link);
uint64_t worker_link_deaths(const struct worker_link *link);
