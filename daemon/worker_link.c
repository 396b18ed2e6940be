/*
 * Worker link: starts workers, watches them, and passes chunks to and fro.
 *
 * A `struct worker` is one generation.  It is freed when its pidfd has reported and libuv has let
 * go of its three handles.
 */
#include "daemon/worker_link.h"

#include "daemon/child.h"
#include "daemon/log.h"
#include "daemon/worker_private.h"
#include "proto/channel.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MOST_MS  10000
#define STOP_PATIENCE_MS 1000
#define DONE_BATCH       64

static void restart(struct worker_link *link);

/* ---- lives ---------------------------------------------------------------------------------- */

static void worker_free(struct worker *worker)
{
    queue_destroy(worker->queue);
    close_fd(&worker->control_fd);
    close_fd(&worker->pid_fd);
    close_fd(&worker->doorbell_fd);
    close_fd(&worker->far_doorbell_fd);
    free(worker->ops);
    free(worker);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;

    worker->n_handles--;
    if (worker->n_handles == 0) {
        worker_free(worker);
    }
}

int worker_watch(struct worker *worker, uv_poll_t *poll, int fd, uv_poll_cb on_event)
{
    int r = uv_poll_init(worker->link->config.loop, poll, fd);

    if (r < 0) {
        return r;
    }
    poll->data = worker;
    worker->n_handles++;
    return uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, on_event);
}

static void worker_add_timer(struct worker *worker, uv_timer_t *timer)
{
    uv_timer_init(worker->link->config.loop, timer);
    timer->data = worker;
    worker->n_handles++;
}

/* It has exited, or never was: let go of everything. */
static void worker_bury(struct worker *worker)
{
    if (worker->is_attached) {
        segments_detach(worker->link->config.segments, &worker->segments);
    }
    if (worker->n_handles == 0) {
        worker_free(worker);
        return;
    }
    uv_handle_t *handles[] = {
        (uv_handle_t *)&worker->control_poll,  (uv_handle_t *)&worker->pid_poll,
        (uv_handle_t *)&worker->doorbell_poll, (uv_handle_t *)&worker->ask_timer,
        (uv_handle_t *)&worker->exit_timer,
    };
    for (unsigned i = 0; i < ARRAY_SIZE(handles); i++) {
        if (handles[i]->data == worker && !uv_is_closing(handles[i])) {
            uv_close(handles[i], on_handle_closed);
        }
    }
}

void worker_condemn(struct worker *worker, const char *reason)
{
    struct worker_link *link = worker->link;

    if (worker->state == WORKER_DYING) {
        return;
    }
    log_warning("worker of %s (pid %d) is down: %s", link->config.name, (int)worker->pid, reason);
    uv_poll_stop(&worker->control_poll);
    if (worker->doorbell_poll.data == worker) {
        uv_poll_stop(&worker->doorbell_poll);
    }
    child_kill(worker->pid_fd);
    worker->state = WORKER_DYING;
    snprintf(worker->reason, sizeof(worker->reason), "%s", reason);
    worker->next = link->dying;
    link->dying = worker;
    link->current = NULL;
    link->n_deaths++;
    segments_set_takes_work(link->config.segments, &worker->segments, false);
    link->config.on_down(link->config.owner, reason);
    restart(link);
}

void worker_condemn_silent(struct worker *worker, const char *reason)
{
    worker->is_silent |= worker->state != WORKER_DYING;
    worker_condemn(worker, reason);
}

static void deliver_done(struct worker *worker, const struct done_entry *done)
{
    for (uint32_t i = 0; i < done->count; i++) {
        uint32_t index = done->first + i;
        struct work_entry entry;
        struct work_result result;
        struct work_error error = {""};

        queue_work_read(worker->queue, done->queue, index, &entry, &result);
        if (result.status != STATUS_OK) {
            queue_error_read(worker->queue, done->queue, index, &error);
        }
        void **place = &worker->chunks[done->queue][index % WORK_ENTRIES];
        void *chunk = STEAL(*place);
        queue_work_release(worker->queue, done->queue, index);
        worker->link->config.on_done(worker->link->config.owner, chunk, &result, error.text);
    }
}

/* Returns false if the worker broke the rules of the queue. */
static bool deliver_all_done(struct worker *worker)
{
    struct done_entry done[DONE_BATCH];
    int n;

    if (worker->queue == NULL) {
        return true;
    }
    while ((n = queue_done_take(worker->queue, done, DONE_BATCH)) > 0) {
        worker->link->backoff_ms = 0;
        for (int i = 0; i < n; i++) {
            deliver_done(worker, &done[i]);
        }
    }
    return n == 0;
}

static void deliver_lost(struct worker *worker)
{
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
            if (worker->chunks[priority][i] != NULL) {
                worker->link->config.on_lost(worker->link->config.owner,
                                             STEAL(worker->chunks[priority][i]), worker->reason);
            }
        }
    }
}

static void worker_exited(struct worker *worker, const char *words)
{
    struct worker_link *link = worker->link;

    worker_read_control(worker);
    worker_condemn(worker, words);
    log_info("worker of %s (pid %d): %s", link->config.name, (int)worker->pid, words);
    if (worker->is_silent) {
        snprintf(worker->reason, sizeof(worker->reason), "%s", words);
    }
    for (struct worker **at = &link->dying; *at != NULL; at = &(*at)->next) {
        if (*at == worker) {
            *at = worker->next;
            break;
        }
    }
    /* What it announced before it died is done; only the rest is lost. */
    if (!worker->is_distrusted) {
        deliver_all_done(worker);
    }
    deliver_lost(worker);
    worker_bury(worker);
}

static void on_exit_timer(uv_timer_t *timer);

/*
 * Its pidfd says that it has exited.  While it is traced it cannot be reaped, and the pidfd would
 * say so in every turn of the loop.
 */
static void look_for_exit(struct worker *worker)
{
    char words[32];

    if (child_has_ended(worker->pid_fd, words, sizeof(words))) {
        worker_exited(worker, words);
    } else {
        uv_poll_stop(&worker->pid_poll);
        uv_timer_start(&worker->exit_timer, on_exit_timer, WORKER_AGAIN_MS, 0);
    }
}

static void on_exit_timer(uv_timer_t *timer)
{
    look_for_exit(timer->data);
}

static void on_exit_seen(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look_for_exit(poll->data);
}

/* ---- events ---------------------------------------------------------------------------------- */

void worker_on_doorbell(uv_poll_t *poll, int status, int events)
{
    struct worker *worker = poll->data;
    bool is_closed = false;

    (void)status;
    (void)events;
    channel_drain(worker->doorbell_fd, &is_closed);
    worker_link_poll(worker->link);
    if (is_closed) {
        worker_read_control(worker); /* why, if it said: that was first, but may be seen second */
        worker_condemn_silent(worker, "its doorbell ended");
    }
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    worker_read_control(poll->data);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int worker_start(struct worker_link *link, struct failure *ret_failure)
{
    int control[2] = {-1, -1};
    struct worker *worker = calloc(1, sizeof(*worker));

    if (worker == NULL || channel_pair(false, control) < 0) {
        free(worker);
        return fail(ret_failure, STATUS_INTERNAL, NULL, "no memory or descriptors for a worker");
    }
    worker->link = link;
    worker->generation = ++link->generation;
    worker->doorbell_fd = -1;
    worker->far_doorbell_fd = -1;
    worker->control_fd = control[0];
    worker->pid_fd = spawner_start(link->config.spawner, link->config.backend, link->config.device,
                                   control[1], &worker->pid, ret_failure);
    close(control[1]);
    if (worker->pid_fd < 0) {
        int r = worker->pid_fd;
        worker_free(worker);
        return r;
    }
    worker_add_timer(worker, &worker->ask_timer);
    worker_add_timer(worker, &worker->exit_timer);
    /* libuv makes the front end's end non-blocking; the worker's end blocks, as it likes. */
    if (worker_watch(worker, &worker->control_poll, worker->control_fd, on_control) < 0 ||
        worker_watch(worker, &worker->pid_poll, worker->pid_fd, on_exit_seen) < 0) {
        child_kill(worker->pid_fd);
        child_reap(worker->pid_fd);
        worker_bury(worker);
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot watch a worker");
    }
    link->current = worker;
    link->n_starts++;
    return 0;
}

static void on_restart_timer(uv_timer_t *timer)
{
    struct worker_link *link = timer->data;
    struct failure failure;

    if (link->is_closing) {
        return;
    }
    if (worker_start(link, &failure) < 0) {
        log_error("cannot restart the worker of %s: %s", link->config.name, failure.message);
        if (spawner_is_gone(link->config.spawner)) {
            link->config.on_hopeless(link->config.owner);
        } else {
            restart(link);
        }
    }
}

static void restart(struct worker_link *link)
{
    uint32_t wait_ms = link->backoff_ms;

    link->backoff_ms =
        wait_ms == 0 ? BACKOFF_FIRST_MS : MIN(2 * wait_ms, (uint32_t)BACKOFF_MOST_MS);
    if (!link->is_closing) {
        uv_timer_start(&link->restart_timer, on_restart_timer, wait_ms, 0);
    }
}

int worker_link_create(const struct worker_link_config *config, struct worker_link **ret_link,
                       struct failure *ret_failure)
{
    struct worker_link *link = calloc(1, sizeof(*link));

    if (link == NULL) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "no memory");
    }
    link->config = *config;
    uv_timer_init(config->loop, &link->restart_timer);
    link->restart_timer.data = link;
    int r = worker_start(link, ret_failure);
    if (r < 0) {
        worker_link_destroy(link);
        return r;
    }
    *ret_link = link;
    return 0;
}

/* End of file asks the worker to exit; it gets a second. */
static void worker_end(struct worker *worker)
{
    shutdown(worker->control_fd, SHUT_RDWR);
    if (!child_await_exit(worker->pid_fd, STOP_PATIENCE_MS)) {
        child_kill(worker->pid_fd);
    }
    child_reap(worker->pid_fd);
    if (worker->state != WORKER_DYING) {
        snprintf(worker->reason, sizeof(worker->reason), "gpupiped stops");
    }
    deliver_lost(worker);
    worker_bury(worker);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct worker_link *link = handle->data;

    free(link);
}

void worker_link_destroy(struct worker_link *link)
{
    if (link == NULL) {
        return;
    }
    link->is_closing = true;
    if (link->current != NULL) {
        worker_end(STEAL(link->current));
    }
    while (link->dying != NULL) {
        struct worker *worker = link->dying;
        link->dying = worker->next;
        worker_end(worker);
    }
    uv_close((uv_handle_t *)&link->restart_timer, on_timer_closed);
}

/* ---- use ------------------------------------------------------------------------------------ */

bool worker_link_is_ready(const struct worker_link *link)
{
    return link->current != NULL && link->current->state == WORKER_READY;
}

const struct worker_caps *worker_link_caps(const struct worker_link *link)
{
    return &link->caps;
}

/* The newest is the likeliest.  What a former worker has is not there. */
static int find_chunk(const struct worker *worker, enum priority priority, const void *chunk,
                      uint32_t *ret_index)
{
    uint32_t next = queue_work_next(worker->queue, priority);

    for (uint32_t back = 1; back <= WORK_ENTRIES; back++) {
        if (worker->chunks[priority][(next - back) % WORK_ENTRIES] == chunk) {
            *ret_index = next - back;
            return 0;
        }
    }
    return -EAGAIN;
}

int worker_link_submit(struct worker_link *link, enum priority priority,
                       const struct work_entry *entry, const struct work_row *rows, void *chunk,
                       const void *after)
{
    struct worker *worker = link->current;
    struct work_entry placed = *entry;
    uint32_t index;
    int r = 0;

    if (!worker_link_is_ready(link)) {
        return -EAGAIN;
    }
    if (after != NULL) {
        placed.flags |= WORK_AFTER;
        r = find_chunk(worker, priority, after, &placed.after);
    }
    if (r == 0) {
        r = queue_work_put(worker->queue, priority, &placed, &index);
    }
    if (r < 0) {
        return r;
    }
    if (entry->kind == WORK_TABLE) {
        queue_rows_put(worker->queue, priority, index, rows, entry->n_records);
    }
    worker->chunks[priority][index % WORK_ENTRIES] = chunk;
    worker->has_unpublished[priority] = true;
    return 0;
}

void worker_link_publish(struct worker_link *link)
{
    struct worker *worker = link->current;
    bool is_asleep = false;

    if (worker == NULL) {
        return;
    }
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        if (worker->has_unpublished[priority]) {
            worker->has_unpublished[priority] = false;
            is_asleep |= queue_work_publish(worker->queue, priority);
        }
    }
    if (is_asleep) {
        channel_ring(worker->doorbell_fd);
    }
}

void worker_link_poll(struct worker_link *link)
{
    if (worker_link_is_ready(link) && !deliver_all_done(link->current)) {
        link->current->is_distrusted = true;
        worker_condemn(link->current, "it broke the rules of its queue");
    }
}

bool worker_link_sleep(struct worker_link *link)
{
    return !worker_link_is_ready(link) || queue_done_sleep(link->current->queue);
}

void worker_link_awake(struct worker_link *link)
{
    if (worker_link_is_ready(link)) {
        queue_done_awake(link->current->queue);
    }
}

uint64_t worker_link_starts(const struct worker_link *link)
{
    return link->n_starts;
}

uint64_t worker_link_deaths(const struct worker_link *link)
{
    return link->n_deaths;
}
