/*
 * Handlers: the methods, as a table of functions with their preconditions.
 *
 * `handle` reads a whole message without payloads and queues its answer.
 *
 * A method with payload has `begin`, called at its first payload's header with the message up to
 * there, `sink`, called for each payload, and `end`, called when all is here.  As the payload array
 * is the last parameter and `begin` said how many elements it has (incoming.n_data), such a message
 * is not read again.  Its `handle` gets those without payloads, and those in which not every
 * element was one.
 *
 * A method may have `begin_again`, called in place of `begin` for a message that but for msgid and
 * payloads is the one before, which began well.
 *
 * All return 0 or a negative status with *ret_failure, with which the request is then answered;
 * `begin` and `begin_again` may also return JOB_NO_ROOM: one of them is called again when the pool
 * has more.
 *
 * A method with `on_refused` may come as a notification, too: then it gets no answer, and a failure
 * goes there.  Other notifications are ignored.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/memo.h"
#include "daemon/session.h"

struct handler {
    bool is_new_work; /* refused with BUSY after SIGTERM */
    int (*begin)(struct session *session, const struct rpc_message *message,
                 struct failure *ret_failure);
    int (*begin_again)(struct session *session, const struct memo *memo,
                       struct failure *ret_failure);
    int (*sink)(struct session *session, uint32_t index, uint64_t size,
                struct reader_sink *ret_sink, struct failure *ret_failure);
    int (*end)(struct session *session, struct failure *ret_failure);
    int (*handle)(struct session *session, const struct rpc_message *message,
                  struct failure *ret_failure);
    void (*on_refused)(struct session *session, const struct rpc_message *message,
                       const struct failure *failure);
};

/* method < METHOD_COUNT */
const struct handler *handler_for(enum method method);

/* handlers_job.c */
int handle_run_begin(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure);
int handle_run_begin_again(struct session *session, const struct memo *memo,
                           struct failure *ret_failure);
int handle_run_end(struct session *session, struct failure *ret_failure);
int handle_run(struct session *session, const struct rpc_message *message,
               struct failure *ret_failure);
int handle_job_open(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure);
int handle_job_push_begin(struct session *session, const struct rpc_message *message,
                          struct failure *ret_failure);
int handle_job_push_end(struct session *session, struct failure *ret_failure);
int handle_job_push(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure);
void handle_job_push_refused(struct session *session, const struct rpc_message *message,
                             const struct failure *failure);
int handle_push_sink(struct session *session, uint32_t index, uint64_t size,
                     struct reader_sink *ret_sink, struct failure *ret_failure);
int handle_job_close(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure);
int handle_job_cancel(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure);
int handle_job_list(struct session *session, const struct rpc_message *message,
                    struct failure *ret_failure);

/* handlers_ring.c */
int handle_ring_open(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure);
int handle_ring_close(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure);

/* handlers_const.c */
int handle_const_put_begin(struct session *session, const struct rpc_message *message,
                           struct failure *ret_failure);
int handle_const_put_sink(struct session *session, uint32_t index, uint64_t size,
                          struct reader_sink *ret_sink, struct failure *ret_failure);
int handle_const_put_end(struct session *session, struct failure *ret_failure);
int handle_const_put(struct session *session, const struct rpc_message *message,
                     struct failure *ret_failure);
int handle_const_drop(struct session *session, const struct rpc_message *message,
                      struct failure *ret_failure);
