/*
 * Session, incoming: what becomes of a connection's messages: each goes to its method's handler, or
 * is refused, and answered either way.
 *
 * A message with payloads is read at its first payload's header; the handler says there where the
 * bytes go.  What was refused is drained, and answered when its end is here.
 */
#include "daemon/handlers.h"
#include "daemon/memo.h"
#include "daemon/server.h"
#include "daemon/session_private.h"
#include "proto/util.h"

#include <errno.h>
#include <string.h>

void session_drop_incoming(struct session *session)
{
    struct incoming *incoming = &session->incoming;
    struct job *job = incoming->job;

    constant_unref(incoming->constant);
    if (incoming->push != NULL && incoming->push->state == PUSH_FILLING) {
        push_lists_move(&job->lists, incoming->push, PUSH_FREE);
    }
    memset(incoming, 0, sizeof(*incoming));
    if (job != NULL && job->id == 0) {
        job_destroy(job); /* a run that was not accepted */
    }
}

static void refuse(struct session *session, const struct failure *failure)
{
    session_drop_incoming(session);
    session->incoming.is_refused = true;
    session->incoming.failure = *failure;
}

void session_forget_job(struct session *session, const struct job *job)
{
    struct failure failure;

    if (session->incoming.job != job) {
        return;
    }
    session->incoming.job = NULL;
    session->incoming.push = NULL;
    if (job->id != 0) {
        fail(&failure, STATUS_NOT_FOUND, "job", "the job ended while this push arrived");
    } else if (job->failure.status != STATUS_OK) {
        failure = job->failure;
    } else {
        fail(&failure, STATUS_CANCELLED, NULL, "the run was cancelled while it arrived");
    }
    refuse(session, &failure);
    reader_drain_payload(session->reader);
    if (session->links.is_waiting) { /* no room is needed any more */
        server_unmark_waiting(session->server, session);
        session->is_paused = true; /* if it may not be read now, then once its answers have left */
        server_mark_again(session->server, session);
    }
}

/* Other notifications, and responses, are ignored: Neovim answers our notifications. */
static bool is_call(const struct guard *guard)
{
    return guard->type == RPC_REQUEST ||
           (guard->type == RPC_NOTIFICATION && guard->method != METHOD_COUNT &&
            handler_for(guard->method)->on_refused != NULL);
}

static int check_state(const struct session *session, const struct handler *handler,
                       struct failure *ret_failure)
{
    if (handler->is_new_work && session->server->state >= SERVER_DRAINING) {
        return fail(ret_failure, STATUS_BUSY, NULL, "draining: the daemon is stopping");
    }
    return 0;
}

/* Read what there is of the message; as handler.begin. */
static int begin_reading(struct session *session, const struct handler *handler,
                         const uint8_t *prefix, size_t size, struct failure *ret_failure)
{
    struct rpc_message message;
    int r = rpc_parse(prefix, size, &message, ret_failure);

    if (r < 0) {
        return r;
    }
    r = handler->begin(session, &message, ret_failure);
    rpc_finish(&message);
    return r;
}

static void remember(struct session *session, const struct words *words)
{
    const struct job *job = session->incoming.job;

    if (job->deadline_at_ns == 0 && !job->is_after) {
        memo_keep(&session->memo, words, job->prepared, session->incoming.n_data);
    }
}

/* The first payload's header is here: is the message welcome?  As handler.begin. */
static int begin_payloads(struct session *session, const struct guard *guard, const uint8_t *prefix,
                          size_t size, struct failure *ret_failure)
{
    const struct handler *handler = handler_for(guard->method);
    const struct words words = {prefix + guard->msgid_end, guard->pos - guard->msgid_end};
    int r = check_state(session, handler, ret_failure);

    if (r < 0) {
        return r;
    }
    session->incoming.msgid = guard->msgid;
    session->incoming.is_request = guard->type == RPC_REQUEST;
    if (handler->begin_again != NULL && memo_has(&session->memo, &words)) {
        return handler->begin_again(session, &session->memo, ret_failure);
    }
    r = begin_reading(session, handler, prefix, size, ret_failure);
    if (r == 0 && handler->begin_again != NULL) {
        remember(session, &words);
    }
    return r;
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct session *session = owner;
    struct incoming *incoming = &session->incoming;
    struct failure failure;
    int r = 0;

    if (incoming->is_refused || !is_call(guard)) {
        return -EPROTO;
    }
    if (guard->payload_index == 0) {
        incoming->first_size = guard->payload_size;
    }
    if (!incoming->is_begun) {
        r = begin_payloads(session, guard, prefix, size, &failure);
        if (r == JOB_NO_ROOM) {
            server_mark_waiting(session->server, session);
            return -EAGAIN;
        }
    }
    if (r == 0) {
        incoming->is_begun = true;
        incoming->n_payloads++;
        r = handler_for(guard->method)
                ->sink(session, guard->payload_index, guard->payload_size, ret_sink, &failure);
    }
    if (r < 0) {
        refuse(session, &failure);
        return -EPROTO;
    }
    return 0;
}

static void on_stray(void *owner, const struct guard *guard)
{
    struct session *session = owner;
    struct failure failure;

    (void)guard;
    if (!session->incoming.is_refused) {
        fail(&failure, STATUS_INVALID_PARAM, NULL, "a bin where no payload belongs");
        refuse(session, &failure);
    }
}

static int read_call(struct session *session, const struct guard *guard, const uint8_t *head,
                     size_t size, struct failure *ret_failure)
{
    struct rpc_message message;
    int r = rpc_parse(head, size, &message, ret_failure);

    if (r < 0) {
        return r;
    }
    if (guard->method == METHOD_COUNT) {
        r = fail(ret_failure, STATUS_UNKNOWN_METHOD, NULL, "there is no method \"%.*s\"",
                 (int)MIN(message.name.via.str.size, 64u), message.name.via.str.ptr);
    } else {
        r = check_state(session, handler_for(guard->method), ret_failure);
    }
    if (r == 0) {
        r = handler_for(guard->method)->handle(session, &message, ret_failure);
    }
    rpc_finish(&message);
    return r;
}

static int handle_call(struct session *session, const struct guard *guard, const uint8_t *head,
                       size_t size, struct failure *ret_failure)
{
    const struct incoming *incoming = &session->incoming;

    if (incoming->is_refused) {
        *ret_failure = incoming->failure;
        return -(int)ret_failure->status;
    }
    if (!incoming->is_begun || incoming->n_payloads != incoming->n_data) {
        return read_call(session, guard, head, size, ret_failure);
    }
    int r = check_state(session, handler_for(guard->method), ret_failure);
    return r < 0 ? r : handler_for(guard->method)->end(session, ret_failure);
}

static void refuse_notification(struct session *session, const struct guard *guard,
                                const uint8_t *head, size_t size, const struct failure *failure)
{
    struct rpc_message message;
    struct failure ignored;

    if (rpc_parse(head, size, &message, &ignored) == 0) {
        handler_for(guard->method)->on_refused(session, &message, failure);
        rpc_finish(&message);
    }
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct session *session = owner;
    struct failure failure;
    int r = is_call(guard) ? handle_call(session, guard, head, size, &failure) : 0;

    session_drop_incoming(session);
    if (r < 0 && guard->type == RPC_REQUEST) {
        session_queue_error(session, guard->msgid, &failure);
    } else if (r < 0) {
        refuse_notification(session, guard, head, size, &failure);
    }
    session->has_ended_message = true;
    if (session->state != SESSION_OPEN) {
        return -ECANCELED;
    }
    return session_is_read(session) && !server_is_hurried(session->server) ? 0 : 1;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    struct session *session = owner;

    if (guard->has_msgid) {
        session_queue_error(session, guard->msgid, failure);
    }
    session_break(session, failure->message);
    session_orphan_jobs(session);
}

static ssize_t receive(void *owner, int fd, const struct iovec *iov, size_t n_iov,
                       bool *ret_had_fds)
{
    const struct session *session = owner;

    return server_receive(session->server, fd, iov, n_iov, ret_had_fds);
}

const struct reader_callbacks session_callbacks = {
    .on_payload = on_payload,
    .on_stray = on_stray,
    .on_message = on_message,
    .on_broken = on_broken,
    .receive = receive,
};
