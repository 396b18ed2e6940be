/*
 * Worker control: fits a worker with queues and memory, and hears what it says.
 *
 * STARTING: HELLO, then its MANIFESTs; they are answered with the queues, and it is FITTING.  Then
 * one segment after the other, each when the last was answered, and it is READY.  Later segments
 * come and go the same way, and bells as they are wanted.
 */
#include "daemon/log.h"
#include "daemon/worker_private.h"
#include "proto/channel.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void ask_for_segment(struct worker *worker);
static void drop_bells(struct worker *worker);
static void become_ready(struct worker *worker);
static const char *give_queues(struct worker *worker);

/* ---- fitting -------------------------------------------------------------------------------- */

/* To a worker that has ended, too: why it did is still to be read. */
static int send_control(struct worker *worker, const struct control_message *message,
                        const int *fds, uint32_t n_fds)
{
    int r = channel_send_packet(worker->control_fd, message, sizeof(*message), fds, n_fds);

    return r == -EPIPE ? 0 : r;
}

/* They are made and cannot be sent yet. */
static bool is_without_queues(const struct worker *worker)
{
    return worker->state == WORKER_STARTING && worker->far_doorbell_fd >= 0;
}

static void on_ask_timer(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    const char *problem = NULL;

    if (is_without_queues(worker)) {
        problem = give_queues(worker);
    } else {
        ask_for_segment(worker);
        drop_bells(worker);
    }
    if (problem != NULL) {
        worker_condemn(worker, problem);
    }
}

/* Clients leave too many descriptors on their way: it will pass. */
static void try_again_later(struct worker *worker)
{
    uv_timer_start(&worker->ask_timer, on_ask_timer, WORKER_AGAIN_MS, 0);
}

/* 0, or -errno when the worker cannot be spoken to. */
static int send_segment(struct worker *worker, enum segment_request request, uint32_t id)
{
    struct segments *segments = worker->link->config.segments;
    int fd = segments_fd(segments, id);
    struct control_message message = {
        .type = request == SEGMENT_ADD ? CONTROL_SEGMENT_ADD : CONTROL_SEGMENT_DROP,
        .abi = WORKER_ABI,
        .segment = {.id = id, .size = segments_size(segments, id)},
    };

    return send_control(worker, &message, &fd, request == SEGMENT_ADD ? 1 : 0);
}

/* One segment at a time: the next is asked for when the last was answered. */
static void ask_for_segment(struct worker *worker)
{
    struct worker_link *link = worker->link;
    struct segments *segments = link->config.segments;
    uint32_t id;

    if (worker->is_asked || worker->state == WORKER_STARTING || worker->state == WORKER_DYING) {
        return;
    }
    enum segment_request request = segments_next(segments, &worker->segments, &id);
    if (request == SEGMENT_NOTHING) {
        become_ready(worker);
        return;
    }
    worker->is_asked = true;
    int r = send_segment(worker, request, id);
    if (r == -EAGAIN) {
        worker->is_asked = false;
        segments_note_unasked(&worker->segments, id);
        try_again_later(worker);
    } else if (r < 0) {
        worker_condemn(worker, "it did not take a segment");
    }
}

static void on_segment_news(struct segment_mapper *mapper)
{
    ask_for_segment(CONTAINER_OF(mapper, struct worker, segments));
}

static int make_queues(struct worker *worker)
{
    int doorbell[2];
    int r = queue_create(worker->generation, &worker->queue);

    if (r < 0) {
        return r;
    }
    r = channel_pair(true, doorbell);
    if (r < 0) {
        return r;
    }
    worker->doorbell_fd = doorbell[0];
    worker->far_doorbell_fd = doorbell[1];
    return worker_watch(worker, &worker->doorbell_poll, worker->doorbell_fd, worker_on_doorbell);
}

static int send_queues(struct worker *worker)
{
    struct control_message message = {
        .type = CONTROL_QUEUES,
        .abi = WORKER_ABI,
        .queues = {.generation = worker->generation, .n_job_slots = LIMIT_JOB_SLOTS},
    };
    int fds[] = {queue_fd(worker->queue), job_slots_fd(worker->link->config.job_slots),
                 worker->far_doorbell_fd};

    return send_control(worker, &message, fds, ARRAY_SIZE(fds));
}

/* And the first segment, if they can be sent now.  NULL, or why it is to be condemned. */
static const char *give_queues(struct worker *worker)
{
    int r = send_queues(worker);

    if (r == -EAGAIN) {
        try_again_later(worker);
        return NULL;
    }
    if (r < 0) {
        return "it did not take its queues";
    }
    close(steal_fd(&worker->far_doorbell_fd));
    worker->state = WORKER_FITTING;
    worker->segments.on_news = on_segment_news;
    worker->is_attached = true;
    segments_attach(worker->link->config.segments, &worker->segments);
    ask_for_segment(worker);
    return NULL;
}

/* Jobs refer to the ops of the first worker: every other must announce the same. */
static bool has_same_ops(struct worker *worker)
{
    struct worker_ops *ops = worker->link->config.ops;

    if (ops->all == NULL) {
        ops->n = worker->caps.n_ops;
        ops->all = STEAL(worker->ops);
        return true;
    }
    return worker->caps.n_ops == ops->n &&
           memcmp(worker->ops, ops->all, ops->n * sizeof(*ops->all)) == 0;
}

/* ---- bells ---------------------------------------------------------------------------------- */

static int send_bell(struct worker *worker, enum control_type type, uint32_t id, const int *fd)
{
    const struct control_message message = {
        .type = type,
        .abi = WORKER_ABI,
        .bell = {.id = id},
    };

    return send_control(worker, &message, fd, fd != NULL);
}

/* Of the first n; ring 0: one that is free. */
static struct worker_bell *find_bell(struct worker *worker, uint64_t ring, uint32_t n)
{
    for (uint32_t id = 0; id < n; id++) {
        if (worker->bells[id].ring == ring) {
            return &worker->bells[id];
        }
    }
    return NULL;
}

bool worker_link_hear(struct worker_link *link, uint64_t ring, bool is_quick, int doorbell_fd)
{
    struct worker *worker = link->current;
    struct worker_bell *bell;

    if (!worker_link_is_ready(link)) {
        return false;
    }
    if (find_bell(worker, ring, WORKER_BELLS) != NULL) {
        return true;
    }
    bell = find_bell(worker, 0, is_quick ? WORKER_BELLS : WORKER_BELLS_OTHER);
    if (bell == NULL ||
        send_bell(worker, CONTROL_BELL_ADD, (uint32_t)(bell - worker->bells), &doorbell_fd) < 0) {
        return false;
    }
    bell->ring = ring;
    return true;
}

/* Those that are of no more use; what cannot be said now is said later. */
static void drop_bells(struct worker *worker)
{
    for (uint32_t id = 0; id < WORKER_BELLS && worker->state == WORKER_READY; id++) {
        if (!worker->bells[id].is_dropping) {
            continue;
        }
        if (send_bell(worker, CONTROL_BELL_DROP, id, NULL) < 0) {
            try_again_later(worker);
            return;
        }
        worker->bells[id] = (struct worker_bell){0};
    }
}

void worker_link_unhear(struct worker_link *link, uint64_t ring)
{
    struct worker *worker = link->current;
    struct worker_bell *bell;

    if (worker == NULL) {
        return;
    }
    bell = find_bell(worker, ring, WORKER_BELLS);
    if (bell != NULL) {
        bell->is_dropping = true;
        drop_bells(worker);
    }
}

/* ---- ready ---------------------------------------------------------------------------------- */

/* It has all that there is. */
static void become_ready(struct worker *worker)
{
    struct worker_link *link = worker->link;

    if (worker->state != WORKER_FITTING) {
        return;
    }
    worker->state = WORKER_READY;
    segments_set_takes_work(link->config.segments, &worker->segments, true);
    log_info("worker of %s (pid %d) is ready: %s, %u ops", link->config.name, (int)worker->pid,
             worker->caps.name, worker->caps.n_ops);
    link->config.on_ready(link->config.owner);
}

/* ---- control messages ----------------------------------------------------------------------- */

static const char *on_hello(struct worker *worker, const struct control_message *message)
{
    struct worker_link *link = worker->link;
    const char *problem = NULL;

    if (worker->state != WORKER_STARTING || worker->ops != NULL || worker->n_manifests > 0 ||
        message->hello.n_ops > WORKER_OPS_MAX || message->hello.n_ops == 0) {
        return "it sent a bad HELLO";
    }
    worker->caps = message->hello;
    worker->caps.backend[sizeof(worker->caps.backend) - 1] = '\0';
    worker->caps.name[sizeof(worker->caps.name) - 1] = '\0';
    worker->caps.uuid[sizeof(worker->caps.uuid) - 1] = '\0';
    worker->ops = calloc(worker->caps.n_ops, sizeof(*worker->ops));
    if (worker->ops == NULL) {
        return "no memory for its ops";
    }
    if (link->caps.n_ops == 0) {
        problem = link->config.on_hello(link->config.owner, &worker->caps);
    } else if (strcmp(worker->caps.uuid, link->caps.uuid) != 0) {
        problem = "it found another device in the place of its own";
    }
    if (problem == NULL) {
        link->caps = worker->caps;
    }
    return problem;
}

static const char *on_manifest(struct worker *worker, const struct control_message *message)
{
    struct failure failure;

    if (worker->state != WORKER_STARTING || worker->n_manifests >= worker->caps.n_ops ||
        message->manifest.index != worker->n_manifests) {
        return "it sent a manifest out of order";
    }
    worker->ops[worker->n_manifests] = message->manifest.op;
    if (manifest_check(&worker->ops[worker->n_manifests], &failure) < 0) {
        log_error("manifest of op %u: %s", worker->n_manifests, failure.message);
        return "it sent a bad manifest";
    }
    worker->n_manifests++;
    if (worker->n_manifests < worker->caps.n_ops) {
        return NULL;
    }
    if (!has_same_ops(worker)) {
        return "its ops are not those gpupiped started with: restart gpupiped";
    }
    if (make_queues(worker) < 0) {
        return "no memory or descriptors for its queues";
    }
    const char *problem = give_queues(worker);
    if (problem == NULL && is_without_queues(worker)) {
        log_warning("worker of %s (pid %d) waits for its queues: this user has too many "
                    "descriptors on their way",
                    worker->link->config.name, (int)worker->pid);
    }
    return problem;
}

/* Its answer to SEGMENT_ADD or SEGMENT_DROP. */
static const char *on_segment(struct worker *worker, struct control_message *message, char *reason,
                              size_t reason_size)
{
    struct segments *segments = worker->link->config.segments;
    uint32_t id = message->segment.id;
    bool is_right;

    worker->is_asked = false;
    if (message->type == CONTROL_SEGMENT_OK) {
        is_right = segments_note_mapped(segments, &worker->segments, id);
    } else if (message->type == CONTROL_SEGMENT_GONE) {
        is_right = segments_note_gone(segments, &worker->segments, id);
    } else {
        char *words = message->segment_refused.failure.message;

        words[sizeof(message->segment_refused.failure.message) - 1] = '\0';
        snprintf(reason, reason_size, "%s", words);
        if (!segments_note_refused(segments, &worker->segments, id, reason)) {
            return reason;
        }
        is_right = true;
    }
    if (!is_right) {
        return "it spoke of a segment that it was not asked for";
    }
    ask_for_segment(worker);
    return NULL;
}

/* Returns NULL, or why the worker is to be condemned. */
static const char *handle_control(struct worker *worker, struct control_message *message,
                                  char *reason, size_t reason_size)
{
    if (message->abi != WORKER_ABI) {
        return "it was built for another version of gpupiped";
    }
    switch (message->type) {
    case CONTROL_HELLO:
        return on_hello(worker, message);
    case CONTROL_MANIFEST:
        return on_manifest(worker, message);
    case CONTROL_SEGMENT_OK:
    case CONTROL_SEGMENT_REFUSED:
    case CONTROL_SEGMENT_GONE:
        return on_segment(worker, message, reason, reason_size);
    case CONTROL_READY: /* its queues are mapped; segments are counted by themselves */
    case CONTROL_PONG:
        return NULL;
    case CONTROL_FATAL:
        message->fatal.message[sizeof(message->fatal.message) - 1] = '\0';
        snprintf(reason, reason_size, "%s", message->fatal.message);
        return reason;
    default:
        return "it sent an unknown control message";
    }
}

void worker_read_control(struct worker *worker)
{
    while (worker->state != WORKER_DYING) {
        struct control_message message = {0};
        char reason[sizeof(message.fatal.message)];
        uint32_t n_fds = 0;
        ssize_t size =
            channel_receive_packet(worker->control_fd, &message, sizeof(message), NULL, &n_fds);
        const char *problem = NULL;

        if (size == -EAGAIN || size == -EINTR) {
            return;
        }
        if (size == -ECONNRESET) {
            continue; /* it left something unread; what it said comes behind this error */
        }
        if (size == 0) {
            worker_condemn_silent(worker, "its socket ended");
        } else if (size != sizeof(message)) {
            problem = "it sent a malformed control message";
        } else {
            problem = handle_control(worker, &message, reason, sizeof(reason));
        }
        if (problem != NULL) {
            worker_condemn(worker, problem);
        }
    }
}
