/*
 * The connection's machinery: bytes in and out, and the calls that wait for an answer.
 *
 * Everything happens in gpupipe_dispatch(): it sends what the writer holds and hands what the
 * reader finds to the call or the job that it belongs to.  Both directions move in every turn, so a
 * daemon that waits for us to read before it reads on never waits for ever.
 *
 * States: open, then lost.  A loss ends every call and job with its reason, once, outside of the
 * reader's callbacks.  When only writing fails (the daemon has closed its end), what it said before
 * is still read, because that is where the reason stands.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_private.h"

#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* Bytes of one direction before the other has its turn; not tuned. */
#define TURN_SIZE (1u << 20)

/* ---- calls --------------------------------------------------------------------------------- */

void request_init(struct request *request, struct gpupipe *gpupipe)
{
    request->msgid = gpupipe->next_msgid++;
    msgpack_sbuffer_init(&request->head);
    msgpack_packer_init(&request->packer, &request->head, msgpack_sbuffer_write);
}

void request_finish(struct request *request)
{
    msgpack_sbuffer_destroy(&request->head);
}

static int add_spans(struct writer_message *message, const struct gpupipe_span *spans,
                     uint32_t n_spans)
{
    int rc = 0;

    for (uint32_t i = 0; i < n_spans && rc == 0; i++) {
        uint8_t header[RPC_BIN_HEADER_MAX];
        uint32_t header_size = rpc_bin_header(spans[i].size, header);

        rc = writer_add_copy(message, header, header_size);
        if (rc == 0) {
            rc = writer_add_ref(message, spans[i].data, spans[i].size);
        }
    }
    return rc;
}

/* Have epoll_fd wait for room in the socket only while something wants to leave. */
static void arm(struct gpupipe *gpupipe)
{
    bool wants_to_write = !gpupipe->is_peer_gone && !writer_is_empty(gpupipe->writer);
    struct epoll_event event = {.events = wants_to_write ? EPOLLIN | EPOLLOUT : EPOLLIN};

    if (wants_to_write != gpupipe->wants_to_write) {
        epoll_ctl(gpupipe->epoll_fd, EPOLL_CTL_MOD, gpupipe->fd, &event);
        gpupipe->wants_to_write = wants_to_write;
    }
}

int connection_post(struct gpupipe *gpupipe, struct request *request, struct call *call,
                    const struct gpupipe_span *spans, uint32_t n_spans,
                    void (*on_sent)(void *arg, bool is_sent), void *arg,
                    struct failure *ret_failure)
{
    struct writer_message *message;
    int rc;

    if (gpupipe->is_lost) {
        *ret_failure = gpupipe->loss;
        return -(int)gpupipe->loss.status;
    }
    rc = writer_begin(&message, on_sent, arg);
    if (rc == 0) {
        rc = writer_add_copy(message, request->head.data, request->head.size);
        if (rc == 0) {
            rc = add_spans(message, spans, n_spans);
        }
        if (rc < 0) {
            writer_abandon(message);
        }
    }
    if (rc < 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot build a request: %s",
                    strerror(-rc));
    }
    call->msgid = request->msgid;
    call->next = gpupipe->calls;
    gpupipe->calls = call;
    writer_queue(gpupipe->writer, message);
    arm(gpupipe);
    return 0;
}

struct blocking_call {
    struct call call;
    int (*unpack)(const msgpack_object *result, void *ret, struct failure *ret_failure);
    void *ret;
    bool is_answered;
    int rc;
    struct failure *ret_failure;
};

static void on_blocking_answer(struct call *call, const msgpack_object *result,
                               const struct failure *failure)
{
    struct blocking_call *blocking = CONTAINER_OF(call, struct blocking_call, call);

    blocking->is_answered = true;
    if (failure != NULL) {
        *blocking->ret_failure = *failure;
        blocking->rc = -(int)failure->status;
    } else if (blocking->unpack != NULL) {
        blocking->rc = blocking->unpack(result, blocking->ret, blocking->ret_failure);
    }
}

int connection_call(struct gpupipe *gpupipe, struct request *request,
                    int (*unpack)(const msgpack_object *result, void *ret,
                                  struct failure *ret_failure),
                    void *ret, struct failure *ret_failure)
{
    struct blocking_call blocking = {
        .call.on_answer = on_blocking_answer,
        .unpack = unpack,
        .ret = ret,
        .ret_failure = ret_failure,
    };
    int rc = connection_post(gpupipe, request, &blocking.call, NULL, 0, NULL, NULL, ret_failure);
    struct failure loss;

    if (rc < 0) {
        return rc;
    }
    while (!blocking.is_answered) {
        /* A loss answers the call as well. */
        (void)gpupipe_dispatch(gpupipe, -1, &loss);
    }
    return blocking.rc;
}

/* ---- what arrives -------------------------------------------------------------------------- */

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct gpupipe *gpupipe = owner;
    struct rpc_message message;
    struct failure failure;
    int rc = -1;

    if (rpc_parse(prefix, size, &message, &failure) < 0) {
        return -1;
    }
    if (message.type == RPC_NOTIFICATION) {
        rc = job_on_payload(gpupipe, &message, guard, ret_sink);
    }
    rpc_finish(&message);
    return rc;
}

static void on_response(struct gpupipe *gpupipe, const struct rpc_message *message)
{
    bool has_failure = message->error.type != MSGPACK_OBJECT_NIL;
    struct failure failure;

    if (has_failure) {
        rpc_unpack_error(&message->error, &failure);
    }
    for (struct call **link = &gpupipe->calls; *link != NULL; link = &(*link)->next) {
        struct call *call = *link;

        if (call->msgid == message->msgid) {
            *link = call->next;
            call->on_answer(call, has_failure ? NULL : &message->result,
                            has_failure ? &failure : NULL);
            return;
        }
    }
    if (has_failure) {
        gpupipe->stray = failure;
    }
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct gpupipe *gpupipe = owner;
    struct rpc_message message;

    (void)guard;
    if (rpc_parse(head, size, &message, &gpupipe->stray) < 0) {
        return -1;
    }
    if (message.type == RPC_RESPONSE) {
        on_response(gpupipe, &message);
    } else if (message.type == RPC_NOTIFICATION) {
        job_on_notification(gpupipe, &message);
    }
    rpc_finish(&message);
    return 0;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    struct gpupipe *gpupipe = owner;

    (void)guard;
    gpupipe->stray = *failure;
}

const struct reader_callbacks connection_callbacks = {
    .on_payload = on_payload,
    .on_message = on_message,
    .on_broken = on_broken,
};

/* ---- dispatch ------------------------------------------------------------------------------ */

void connection_lose(struct gpupipe *gpupipe, const struct failure *failure)
{
    gpupipe->is_lost = true;
    gpupipe->loss = *failure;
    epoll_ctl(gpupipe->epoll_fd, EPOLL_CTL_DEL, gpupipe->fd, NULL);
    writer_destroy(STEAL(gpupipe->writer));
    while (gpupipe->calls != NULL) {
        struct call *call = gpupipe->calls;

        gpupipe->calls = call->next;
        call->on_answer(call, NULL, failure);
    }
    job_on_loss(gpupipe);
}

static int lose_because(struct gpupipe *gpupipe, const char *what, struct failure *ret_failure)
{
    const struct failure *stray = &gpupipe->stray;
    struct failure failure;

    if (stray->status != STATUS_OK) {
        fail(&failure, stray->status, stray->field, "%s: %.150s", what, stray->message);
    } else {
        fail(&failure, STATUS_INTERNAL, NULL, "%s", what);
    }
    connection_lose(gpupipe, &failure);
    *ret_failure = failure;
    return -(int)failure.status;
}

static void send_waiting(struct gpupipe *gpupipe)
{
    if (!gpupipe->is_peer_gone && !writer_is_empty(gpupipe->writer) &&
        writer_send(gpupipe->writer, gpupipe->fd, TURN_SIZE) < 0) {
        gpupipe->is_peer_gone = true;
    }
}

int gpupipe_dispatch(struct gpupipe *gpupipe, int timeout_ms, struct failure *ret_failure)
{
    struct epoll_event event;
    int outcome;

    if (gpupipe->is_lost) {
        *ret_failure = gpupipe->loss;
        return -(int)gpupipe->loss.status;
    }
    send_waiting(gpupipe);
    arm(gpupipe);
    if (epoll_wait(gpupipe->epoll_fd, &event, 1, timeout_ms) != 1) {
        return 0;
    }
    send_waiting(gpupipe);
    outcome = reader_read(gpupipe->reader, gpupipe->fd, TURN_SIZE);
    if (outcome == READER_EOF || outcome == -ECONNRESET) {
        return lose_because(gpupipe, "the daemon closed the connection", ret_failure);
    }
    if (outcome == READER_STOPPED) {
        return lose_because(gpupipe, "the daemon's answer makes no sense", ret_failure);
    }
    if (outcome < 0) {
        return lose_because(gpupipe, strerror(-outcome), ret_failure);
    }
    arm(gpupipe);
    return 0;
}
