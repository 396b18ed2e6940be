/*
 * What the parts of the library share: the connection, and the calls that wait for an answer on it.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"
#include "proto/reader.h"
#include "proto/rpc.h"
#include "proto/writer.h"

/*
 * A request under way.  on_answer is called exactly once: with the result, or with the failure that
 * the daemon or the connection's loss gave.  It may free the call.
 */
struct call {
    struct call *next;
    uint32_t msgid;
    void (*on_answer)(struct call *call, const msgpack_object *result,
                      const struct failure *failure);
};

struct gpupipe {
    int fd;
    int epoll_fd;
    bool wants_to_write; /* what epoll_fd waits for now */
    bool is_peer_gone;   /* writing failed; what the daemon said before is still read */
    bool is_lost;
    struct failure loss;  /* why, once is_lost */
    struct failure stray; /* an error that answers no call: the likely reason of a loss to come */
    struct reader *reader;
    struct writer *writer; /* NULL once lost */
    uint32_t next_msgid;
    struct call *calls;
    struct gpupipe_job *jobs;
    struct msg_hello_result hello;
};

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

/* Post, and wait for the answer: `unpack` (NULL: nothing of interest) turns the result into *ret.
 */
int connection_call(struct gpupipe *gpupipe, struct request *request,
                    int (*unpack)(const msgpack_object *result, void *ret,
                                  struct failure *ret_failure),
                    void *ret, struct failure *ret_failure);

/* Every call and job ends with this failure, and the writer gives its buffers up. */
void connection_lose(struct gpupipe *gpupipe, const struct failure *failure);

extern const struct reader_callbacks connection_callbacks;

/* ---- gpupipe_job.c, called by the connection ----------------------------------------------- */

/* A payload of a notification: 0 with its sink, or -1 to have it drained. */
int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink);
void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message);
/* Calls and writer are done with: every job is over. */
void job_on_loss(struct gpupipe *gpupipe);
/* Frees all jobs of a lost connection. */
void job_destroy_all(struct gpupipe *gpupipe);
