/*
 * The control thread: everything slow.  It owns the device, the segments, the mapped queues and the
 * job block, and starts and stops the data thread that works with them.
 *
 * States: announced (HELLO and MANIFEST sent, no queues), ready (queues mapped, the pump runs),
 * ended.  A row of handlers[] says in which state a message may come, and with how many
 * descriptors; anything else is a defect of the front end, and the worker says so and ends.
 *
 * The data thread writes to the socket as well, once: FATAL, and then the process ends.  Packets
 * are whole, so this needs no lock.
 *
 * Threads: the control thread, but for on_fatal.
 */
#include "cuda/control.h"

#include "cuda/bells.h"
#include "cuda/pump.h"
#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <errno.h>
#include <string.h>

enum control_state { CONTROL_STATE_ANNOUNCED, CONTROL_STATE_READY, CONTROL_STATE_ENDED };

struct control {
    int socket_fd;
    enum control_state state;
    struct device *device;
    struct segments *segments;
    struct queue *queue;
    struct job_block *jobs;
    size_t jobs_size;
    int doorbell_fd;
    struct bells *bells;
    struct pump *pump;
};

static int send_message(struct control *control, struct control_message *message,
                        struct failure *ret_failure)
{
    int error;

    message->abi = WORKER_ABI;
    error = channel_send_packet(control->socket_fd, message, sizeof(*message), NULL, 0);
    if (error < 0) {
        return fail(ret_failure, STATUS_DEVICE_LOST, NULL, "cannot write to the control socket: %s",
                    strerror(-error));
    }
    return 0;
}

static void send_fatal(struct control *control, const struct failure *failure)
{
    struct control_message message = {.type = CONTROL_FATAL, .fatal = *failure};
    struct failure unheard;

    send_message(control, &message, &unheard);
}

/* Called on the data thread.  At once and without unwinding: the front end has the whole state. */
static void on_fatal(void *arg, const struct failure *failure)
{
    bool is_front_end = failure->status == STATUS_PROTO;

    send_fatal(arg, failure);
    _exit(is_front_end ? EXIT_FAILURE : WORKER_EXIT_DEVICE);
}

/* ---- announcing ---------------------------------------------------------------------------- */

static int announce(struct control *control, struct failure *ret_failure)
{
    struct control_message hello = {.type = CONTROL_HELLO};
    int error = device_backend.probe(&hello.hello, ret_failure);

    hello.hello.n_ops = n_op_codes;
    if (error == 0) {
        error = send_message(control, &hello, ret_failure);
    }
    for (uint32_t i = 0; i < n_op_codes && error == 0; i++) {
        struct control_message manifest = {.type = CONTROL_MANIFEST};

        manifest.manifest.index = i;
        manifest.manifest.op = *op_codes[i]->manifest;
        error = send_message(control, &manifest, ret_failure);
    }
    return error;
}

/* ---- handlers: message and descriptors (fds[i] = -1 once taken) ----------------------------- */

static int start_pump(struct control *control, uint32_t n_jobs, struct failure *ret_failure)
{
    struct pump_parts parts = {
        .queue = control->queue,
        .jobs = {.blocks = control->jobs, .n_blocks = n_jobs},
        .segments = control->segments,
        .device = control->device,
        .doorbell_fd = control->doorbell_fd,
        .on_fatal = on_fatal,
        .arg = control,
    };
    int error = bells_create(control->doorbell_fd, &control->bells);

    if (error == 0) {
        parts.bells = control->bells;
        error = pump_start(&parts, &control->pump);
    }
    if (error < 0) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "cannot start the data thread: %s",
                    strerror(-error));
    }
    return 0;
}

static int handle_queues(struct control *control, const struct control_message *message, int *fds,
                         struct failure *ret_failure)
{
    struct control_message ready = {.type = CONTROL_READY};
    uint32_t n_jobs = message->queues.n_job_slots;
    void *jobs;
    int error = queue_attach(fds[0], &control->queue);

    if (error < 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot map the queues: %s",
                    strerror(-error));
    }
    error = shm_map(fds[1], n_jobs * sizeof(struct job_block), &jobs);
    if (error < 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot map the job block: %s",
                    strerror(-error));
    }
    control->jobs = jobs;
    control->jobs_size = n_jobs * sizeof(struct job_block);
    control->doorbell_fd = steal_fd(&fds[2]);
    error = start_pump(control, n_jobs, ret_failure);
    if (error < 0) {
        return error;
    }
    control->state = CONTROL_STATE_READY;
    return send_message(control, &ready, ret_failure);
}

static int answer_segment(struct control *control, enum control_type type, uint32_t id,
                          struct failure *ret_failure)
{
    struct control_message answer = {.type = type};

    answer.segment.id = id;
    return send_message(control, &answer, ret_failure);
}

/* The front end decides what it means: without this segment others may do. */
static int refuse_segment(struct control *control, uint32_t id, const struct failure *refusal,
                          struct failure *ret_failure)
{
    struct control_message answer = {.type = CONTROL_SEGMENT_REFUSED};

    answer.segment_refused.id = id;
    answer.segment_refused.failure = *refusal;
    return send_message(control, &answer, ret_failure);
}

static int handle_segment_add(struct control *control, const struct control_message *message,
                              int *fds, struct failure *ret_failure)
{
    uint32_t id = message->segment.id;
    size_t size = message->segment.size;
    void *base;
    struct failure refusal;
    int error = segments_add(control->segments, id, fds[0], size, &base);

    if (error < 0) {
        fail(&refusal, STATUS_NO_MEMORY, NULL, "cannot map segment %u of %zu bytes: %s", id, size,
             strerror(-error));
        return refuse_segment(control, id, &refusal, ret_failure);
    }
    error = device_backend.segment_add(control->device, id, base, size, &refusal);
    if (error < 0) {
        segments_drop(control->segments, id);
        return refuse_segment(control, id, &refusal, ret_failure);
    }
    return answer_segment(control, CONTROL_SEGMENT_OK, id, ret_failure);
}

static int handle_segment_drop(struct control *control, const struct control_message *message,
                               int *fds, struct failure *ret_failure)
{
    uint32_t id = message->segment.id;

    (void)fds;
    if (!segments_has(control->segments, id)) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "there is no segment %u to drop", id);
    }
    device_backend.segment_drop(control->device, id);
    segments_drop(control->segments, id);
    return answer_segment(control, CONTROL_SEGMENT_GONE, id, ret_failure);
}

static int handle_bell_add(struct control *control, const struct control_message *message, int *fds,
                           struct failure *ret_failure)
{
    uint32_t id = message->bell.id;

    if (bells_add(control->bells, id, fds[0]) < 0) {
        return fail(ret_failure, STATUS_PROTO, NULL, "bell %u is there already, or one too many",
                    id);
    }
    fds[0] = -1;
    return 0;
}

static int handle_bell_drop(struct control *control, const struct control_message *message,
                            int *fds, struct failure *ret_failure)
{
    (void)fds;
    if (bells_drop(control->bells, message->bell.id) < 0) {
        return fail(ret_failure, STATUS_PROTO, NULL, "there is no bell %u to drop",
                    message->bell.id);
    }
    return 0;
}

static int handle_ping(struct control *control, const struct control_message *message, int *fds,
                       struct failure *ret_failure)
{
    struct control_message pong = {.type = CONTROL_PONG};

    (void)message, (void)fds;
    return send_message(control, &pong, ret_failure);
}

static int handle_stop(struct control *control, const struct control_message *message, int *fds,
                       struct failure *ret_failure)
{
    (void)message, (void)fds, (void)ret_failure;
    control->state = CONTROL_STATE_ENDED;
    return 0;
}

#define IN(state) (1u << (state))
#define IN_ANY    (IN(CONTROL_STATE_ANNOUNCED) | IN(CONTROL_STATE_READY))

static const struct handler {
    const char *name;
    unsigned states;
    uint32_t n_fds;
    int (*handle)(struct control *control, const struct control_message *message, int *fds,
                  struct failure *ret_failure);
} handlers[] = {
    [CONTROL_QUEUES] = {"QUEUES", IN(CONTROL_STATE_ANNOUNCED), 3, handle_queues},
    [CONTROL_SEGMENT_ADD] = {"SEGMENT_ADD", IN_ANY, 1, handle_segment_add},
    [CONTROL_SEGMENT_DROP] = {"SEGMENT_DROP", IN_ANY, 0, handle_segment_drop},
    [CONTROL_BELL_ADD] = {"BELL_ADD", IN(CONTROL_STATE_READY), 1, handle_bell_add},
    [CONTROL_BELL_DROP] = {"BELL_DROP", IN(CONTROL_STATE_READY), 0, handle_bell_drop},
    [CONTROL_PING] = {"PING", IN_ANY, 0, handle_ping},
    [CONTROL_STOP] = {"STOP", IN_ANY, 0, handle_stop},
};

static int handle(struct control *control, const struct control_message *message, int *fds,
                  uint32_t n_fds, struct failure *ret_failure)
{
    const struct handler *handler;

    if (message->abi != WORKER_ABI) {
        return fail(ret_failure, STATUS_VERSION, NULL,
                    "the front end speaks worker ABI %u, this worker %u", message->abi, WORKER_ABI);
    }
    if (message->type >= ARRAY_SIZE(handlers) || handlers[message->type].handle == NULL) {
        return fail(ret_failure, STATUS_PROTO, NULL, "no control message has type %u",
                    message->type);
    }
    handler = &handlers[message->type];
    if ((handler->states & IN(control->state)) == 0) {
        return fail(ret_failure, STATUS_PROTO, NULL, "%s came twice, or too early", handler->name);
    }
    if (n_fds != handler->n_fds) {
        return fail(ret_failure, STATUS_PROTO, NULL, "%s came with %u descriptors, not %u",
                    handler->name, n_fds, handler->n_fds);
    }
    return handler->handle(control, message, fds, ret_failure);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* One message, or the end of the conversation. */
static int serve_one(struct control *control, struct failure *ret_failure)
{
    struct control_message message;
    int fds[CHANNEL_FDS_MAX];
    uint32_t n_fds = ARRAY_SIZE(fds);
    ssize_t size =
        channel_receive_packet(control->socket_fd, &message, sizeof(message), fds, &n_fds);
    int error;

    if (size == 0 || size == -ECONNRESET) {
        control->state = CONTROL_STATE_ENDED;
        return 0;
    }
    if (size < 0) {
        return fail(ret_failure, STATUS_PROTO, NULL, "cannot read from the control socket: %s",
                    strerror((int)-size));
    }
    if ((size_t)size == sizeof(message)) {
        error = handle(control, &message, fds, n_fds, ret_failure);
    } else {
        error = fail(ret_failure, STATUS_PROTO, NULL, "a control message of %zd bytes, not %zu",
                     size, sizeof(message));
    }
    for (uint32_t i = 0; i < n_fds; i++) {
        close_fd(&fds[i]);
    }
    return error;
}

static int serve(struct control *control, const char *device, struct failure *ret_failure)
{
    int error = device_backend.select(device, ret_failure);

    /* Opening takes long, or fails for this device only: what others there are is told before. */
    if (error == 0) {
        error = announce(control, ret_failure);
    }
    if (error == 0) {
        error = device_backend.open(&control->device, ret_failure);
    }
    if (error == 0 && segments_create(&control->segments) < 0) {
        error = fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the segment table");
    }
    while (error == 0 && control->state != CONTROL_STATE_ENDED) {
        error = serve_one(control, ret_failure);
    }
    return error;
}

static void finish(struct control *control)
{
    pump_stop(control->pump);
    bells_destroy(control->bells);
    device_backend.close(control->device);
    segments_destroy(control->segments);
    queue_destroy(control->queue);
    if (control->jobs != NULL) {
        shm_unmap(control->jobs, control->jobs_size);
    }
    close_fd(&control->doorbell_fd);
}

bool control_run(int socket_fd, const char *device)
{
    struct control control = {.socket_fd = socket_fd, .doorbell_fd = -1};
    struct failure failure;
    int error = serve(&control, device, &failure);

    if (error < 0) {
        send_fatal(&control, &failure);
    }
    finish(&control);
    return error == 0;
}
