/*
 * The connection's machinery: bytes in and out, and the calls that wait for an answer.
 *
 * Everything happens in connection_turn(): it sends what the writer holds and hands what the reader
 * finds to the call or the job that it belongs to.  Both directions move in every turn, so a daemon
 * that waits for us to read before it reads on never waits for ever.
 *
 * The library itself waits with ppoll() on the socket; epoll_fd is for programs, which poll it for
 * POLLIN alone: it holds the socket, waiting for room only while something wants to leave, and
 * wake_fd.  A call that blocks does not look at wake_fd, so a wake-up lasts until the program
 * waits.
 *
 * States: open, then lost; open again after connection_restart().  A loss ends every call and job
 * with its reason, once, outside of the reader's callbacks.  When only writing fails (the daemon
 * has closed its end), what it said before is still read, because that is where the reason stands.
 *
 * What a connection has with one socket ends with it: jobs and rings are marked as lost, and what
 * comes through the next socket, which counts its jobs and rings from one again, is not for them.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_connection.h"

#include "client/gpupipe_flight.h"
#include "client/gpupipe_job.h"
#include "client/gpupipe_ring.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

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

static void send_waiting(struct gpupipe *gpupipe)
{
    if (!gpupipe->is_peer_gone && !writer_is_empty(gpupipe->writer) &&
        writer_send(gpupipe->writer, gpupipe->fd, TURN_SIZE) < 0) {
        gpupipe->is_peer_gone = true;
    }
}

void connection_flush(struct gpupipe *gpupipe)
{
    send_waiting(gpupipe);
    arm(gpupipe);
}

int connection_post(struct gpupipe *gpupipe, struct request *request, struct call *call,
                    const struct gpupipe_span *spans, uint32_t n_spans,
                    void (*on_sent)(void *arg, bool is_sent), void *arg,
                    struct failure *ret_failure)
{
    struct writer_message *message;
    int rc = connection_check(gpupipe, ret_failure);

    if (rc < 0) {
        return rc;
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
        return fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "cannot build a request: %s",
                    strerror(-rc));
    }
    call->msgid = request->msgid;
    call->next = gpupipe->calls;
    gpupipe->calls = call;
    writer_queue(gpupipe->writer, message);
    return 0;
}

struct blocking_call {
    struct call call;
    int (*unpack)(const msgpack_object *result, void *ret, struct failure *ret_failure);
    void *ret;
    bool is_answered;
    bool is_sent;
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

static void on_blocking_sent(void *arg, bool is_sent)
{
    struct blocking_call *blocking = arg;

    /* Not sent means that the connection is being lost: the answer will say so. */
    (void)is_sent;
    blocking->is_sent = true;
}

int connection_call(struct gpupipe *gpupipe, struct request *request,
                    const struct gpupipe_span *span,
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
    int rc = connection_post(gpupipe, request, &blocking.call, span, span == NULL ? 0 : 1,
                             on_blocking_sent, &blocking, ret_failure);
    struct failure loss;

    if (rc < 0) {
        return rc;
    }
    while (!blocking.is_answered || !blocking.is_sent) {
        /* A loss answers the call as well. */
        (void)connection_turn(gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
    }
    connection_announce(gpupipe);
    return blocking.rc;
}

int connection_ask(
    struct gpupipe *gpupipe, struct request *request, const struct gpupipe_span *span,
    int (*unpack)(const msgpack_object *result, void *ret, struct failure *ret_failure), void *ret)
{
    struct failure failure;
    int rc = connection_call(gpupipe, request, span, unpack, ret, &failure);

    request_finish(request);
    return error_record(gpupipe, rc, &failure);
}

/* ---- what arrives -------------------------------------------------------------------------- */

/* The link that leads to the call, or to NULL. */
static struct call **find_call(struct gpupipe *gpupipe, uint32_t msgid)
{
    struct call **link = &gpupipe->calls;

    while (*link != NULL && (*link)->msgid != msgid) {
        link = &(*link)->next;
    }
    return link;
}

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
    } else if (message.type == RPC_RESPONSE) {
        struct call *call = *find_call(gpupipe, message.msgid);

        if (call != NULL && call->on_payload != NULL) {
            rc = call->on_payload(call, guard, ret_sink);
        }
    }
    rpc_finish(&message);
    return rc;
}

static void on_response(struct gpupipe *gpupipe, const struct rpc_message *message)
{
    bool has_failure = message->error.type != MSGPACK_OBJECT_NIL;
    struct failure failure;
    struct call *call, **link;

    if (has_failure) {
        rpc_unpack_error(&message->error, &failure);
    }
    link = find_call(gpupipe, message->msgid);
    call = *link;
    if (call != NULL) {
        *link = call->next;
        call->on_answer(call, has_failure ? NULL : &message->result, has_failure ? &failure : NULL);
    } else if (has_failure) {
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

/* ---- turns --------------------------------------------------------------------------------- */

static int lose_because(struct gpupipe *gpupipe, const char *what, struct failure *ret_failure)
{
    const struct failure *stray = &gpupipe->stray;
    struct failure failure;

    if (stray->status != STATUS_OK) {
        fail(&failure, STATUS_LOST, stray->field, "%s: %s: %.130s", what,
             status_name(stray->status), stray->message);
    } else {
        fail(&failure, STATUS_LOST, NULL, "%s", what);
    }
    connection_lose(gpupipe, &failure);
    *ret_failure = failure;
    return -(int)failure.status;
}

struct readiness {
    bool has_socket;
    bool has_ring;
    bool is_woken;
};

/* Wait.  Wake-ups and doorbells are taken here, and told of. */
static struct readiness await(struct gpupipe *gpupipe, int64_t timeout_ns,
                              enum connection_heed heed)
{
    bool wants_to_write = !gpupipe->is_peer_gone && !writer_is_empty(gpupipe->writer);
    const struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct pollfd fds[2 + LIMIT_RINGS] = {
        {.fd = gpupipe->fd, .events = wants_to_write ? POLLIN | POLLOUT : POLLIN},
        {.fd = heed == CONNECTION_HEED_WAKES ? gpupipe->wake_fd : -1, .events = POLLIN},
    };
    uint32_t n_rings = rings_poll(gpupipe, fds + 2);
    struct readiness ready = {0};
    uint64_t n_wakes;

    if (ppoll(fds, 2 + n_rings, timeout_ns < 0 ? NULL : &timeout, NULL) <= 0) {
        return ready;
    }
    if (fds[1].revents != 0) {
        (void)!read(gpupipe->wake_fd, &n_wakes, sizeof(n_wakes));
        ready.is_woken = true;
    }
    ready.has_ring = rings_heed(gpupipe, fds + 2);
    ready.has_socket = fds[0].revents != 0;
    return ready;
}

/* Take in what the socket has. */
static int receive(struct gpupipe *gpupipe, struct failure *ret_failure)
{
    int outcome = reader_read(gpupipe->reader, gpupipe->fd, TURN_SIZE);

    if (outcome == READER_EOF || outcome == -ECONNRESET) {
        return lose_because(gpupipe, "the daemon closed the connection", ret_failure);
    }
    if (outcome == READER_STOPPED) {
        return lose_because(gpupipe, "the daemon's answer makes no sense", ret_failure);
    }
    if (outcome < 0) {
        return lose_because(gpupipe, strerror(-outcome), ret_failure);
    }
    return 0;
}

int connection_turn(struct gpupipe *gpupipe, int64_t timeout_ns, enum connection_heed heed,
                    struct failure *ret_failure)
{
    int outcome = connection_check(gpupipe, ret_failure);
    struct readiness ready;

    if (outcome < 0) {
        return outcome;
    }
    send_waiting(gpupipe);
    ready = await(gpupipe, timeout_ns, heed);
    if (ready.has_socket) {
        send_waiting(gpupipe);
        outcome = receive(gpupipe, ret_failure);
        if (outcome < 0) {
            return outcome;
        }
    }
    arm(gpupipe);
    return (ready.has_socket || ready.has_ring) && !ready.is_woken ? 1 : 0;
}

bool connection_has_news(const struct gpupipe *gpupipe)
{
    return gpupipe->landed.first != NULL || gpupipe->has_ended_job;
}

void connection_announce(struct gpupipe *gpupipe)
{
    if (connection_has_news(gpupipe)) {
        gpupipe_wake(gpupipe);
    }
}

/* ---- the connection's life ----------------------------------------------------------------- */

/* Without a system call, as getpid() would be one, of which pushes in rings need no other. */
bool connection_is_ours(const struct gpupipe *gpupipe)
{
    return *gpupipe->is_ours != 0;
}

/* NULL: no memory, or a kernel before 4.14. */
static const uint8_t *make_mark(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return NULL;
    }
    if (madvise(page, size, MADV_WIPEONFORK) < 0) {
        munmap(page, size);
        return NULL;
    }
    *page = 1;
    return page;
}

int connection_check(const struct gpupipe *gpupipe, struct failure *ret_failure)
{
    /* Two processes that write to one socket would garble both their messages. */
    if (!connection_is_ours(gpupipe)) {
        return fail(ret_failure, STATUS_MISUSE, NULL,
                    "the connection belongs to the process that opened it; open another");
    }
    if (gpupipe->is_lost) {
        *ret_failure = gpupipe->loss;
        return -(int)gpupipe->loss.status;
    }
    return 0;
}

void connection_destroy(struct gpupipe *gpupipe)
{
    munmap((void *)gpupipe->is_ours, (size_t)sysconf(_SC_PAGESIZE));
    free(gpupipe);
}

/* What lasts as long as the connection does, whatever socket it has: 0 or -errno. */
static int prepare(struct gpupipe *gpupipe)
{
    _cleanup_(close_fd) int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    _cleanup_(close_fd) int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};

    if (wake_fd < 0 || epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) < 0) {
        return -errno;
    }
    gpupipe->wake_fd = steal_fd(&wake_fd);
    gpupipe->epoll_fd = steal_fd(&epoll_fd);
    return 0;
}

static void greet_as(struct gpupipe *gpupipe, const char *program)
{
    struct msg_hello *greeting = &gpupipe->greeting;

    *greeting = (struct msg_hello){.api = API_LEVEL, .wants_structured = true};
    snprintf(greeting->program, sizeof(greeting->program), "%s", program == NULL ? "" : program);
}

struct gpupipe *connection_create(const char *program)
{
    struct gpupipe *gpupipe = calloc(1, sizeof(*gpupipe));

    if (gpupipe != NULL) {
        gpupipe->is_ours = make_mark();
        if (gpupipe->is_ours == NULL) {
            free(gpupipe);
            return NULL;
        }
        greet_as(gpupipe, program);
        gpupipe->fd = gpupipe->epoll_fd = gpupipe->wake_fd = -1;
        gpupipe->next_msgid = 1;
        flight_list_init(&gpupipe->landed);
        flight_list_init(&gpupipe->reaped);
        /* Without descriptors connection_start() tries again, and says why. */
        (void)prepare(gpupipe);
    }
    return gpupipe;
}

/* 0 or -errno. */
static int set_up(struct gpupipe *gpupipe)
{
    static const struct reader_callbacks callbacks = {
        .on_payload = on_payload,
        .on_message = on_message,
        .on_broken = on_broken,
    };
    struct epoll_event event = {.events = EPOLLIN};
    int rc = gpupipe->epoll_fd < 0 ? prepare(gpupipe) : 0;

    if (rc == 0 && epoll_ctl(gpupipe->epoll_fd, EPOLL_CTL_ADD, gpupipe->fd, &event) < 0) {
        rc = -errno;
    }
    if (rc == 0) {
        rc = reader_create(&gpupipe->reader, GUARD_CLIENT, &callbacks, gpupipe);
    }
    return rc < 0 ? rc : writer_create(&gpupipe->writer);
}

static int take_hello(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_hello_result(result, ret, ret_failure);
}

static int say_hello(struct gpupipe *gpupipe, struct failure *ret_failure)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_hello(&request.packer, request.msgid, &gpupipe->greeting);
    rc = connection_call(gpupipe, &request, NULL, take_hello, &gpupipe->hello, ret_failure);
    request_finish(&request);
    if (rc == 0 && gpupipe->hello.api_compatible > API_LEVEL) {
        return fail(ret_failure, STATUS_VERSION, "api",
                    "the daemon (%s) serves level %u and later, this client speaks level %u",
                    gpupipe->hello.version, gpupipe->hello.api_compatible, API_LEVEL);
    }
    return rc;
}

int connection_start(struct gpupipe *gpupipe, int fd, struct failure *ret_failure)
{
    int rc;

    gpupipe->fd = fd;
    gpupipe->is_lost = gpupipe->is_peer_gone = gpupipe->wants_to_write = false;
    gpupipe->stray = (struct failure){0};
    gpupipe->hello = (struct msg_hello_result){0};
    rc = set_up(gpupipe);
    if (rc < 0) {
        rc = fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "cannot set up a connection: %s",
                  strerror(-rc));
    } else {
        rc = say_hello(gpupipe, ret_failure);
    }
    if (rc == 0) {
        rc = connection_check(gpupipe, ret_failure);
    }
    if (rc < 0 && gpupipe->is_lost && gpupipe->stray.status != STATUS_OK) {
        /* Refused with a reason, BUSY for one: better than that the connection is lost. */
        *ret_failure = gpupipe->stray;
        rc = -(int)ret_failure->status;
    }
    if (rc < 0 && !gpupipe->is_lost) {
        connection_lose(gpupipe, ret_failure);
    }
    return rc;
}

/* Let go of the socket, and of what has been read from it. */
static void detach(struct gpupipe *gpupipe)
{
    if (gpupipe->fd >= 0) {
        /* Closing it is not enough: a child may have it, too. */
        epoll_ctl(gpupipe->epoll_fd, EPOLL_CTL_DEL, gpupipe->fd, NULL);
        close_fd(&gpupipe->fd);
        gpupipe->fd = -1;
    }
    reader_destroy(STEAL(gpupipe->reader));
}

int connection_restart(struct gpupipe *gpupipe, int fd, struct failure *ret_failure)
{
    const struct msg_hello_result hello = gpupipe->hello;
    const struct failure loss = gpupipe->loss;
    int rc;

    detach(gpupipe);
    rc = connection_start(gpupipe, fd, ret_failure);
    if (rc < 0) {
        detach(gpupipe);
        gpupipe->hello = hello;
        gpupipe->loss = loss;
    }
    return rc;
}

void connection_lose(struct gpupipe *gpupipe, const struct failure *failure)
{
    gpupipe->is_lost = true;
    gpupipe->loss = *failure;
    writer_destroy(STEAL(gpupipe->writer));
    while (gpupipe->calls != NULL) {
        struct call *call = gpupipe->calls;

        gpupipe->calls = call->next;
        call->on_answer(call, NULL, failure);
    }
    if (connection_is_ours(gpupipe)) {
        rings_on_loss(gpupipe);
    }
    job_on_loss(gpupipe);
    /* What is polled is ready from now on. */
    gpupipe_wake(gpupipe);
}
