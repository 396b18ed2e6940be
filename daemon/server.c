/*
 * Server: the start, the time limits and the end of the daemon, and what it tells others.  See
 * server.h for its states and server_turn.c for its work.
 */
#include "daemon/server.h"

#include "daemon/linger.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/ring_link.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define STATUS_SIZE 1024 /* holds a few reasons */

#define TICK_MS 100 /* resolution of the time limits, all of them seconds, and of deadlines */

static void stop_loop(struct server *server, int exit_code)
{
    server->exit_code = exit_code;
    server->state = SERVER_STOPPED;
    uv_stop(&server->loop);
}

static void tell_subscribers(struct server *server, const struct msg_event *event)
{
    for (struct session *session = server->sessions; session != NULL;
         session = session_links(session)->next) {
        session_queue_event(session, event);
    }
}

/* ---- devices -------------------------------------------------------------------------------- */

/* One line for the log and for `systemctl status`: which devices, and why these. */
static void describe(const struct server *server, char *ret_text, size_t size)
{
    char text[STATUS_SIZE];

    devices_describe(&server->devices, text, sizeof(text));
    snprintf(ret_text, size, "backend %s, %.700s (%s)", server->devices.backend, text,
             server->reason);
}

static void serve(struct server *server)
{
    char status[STATUS_SIZE];

    server->state = SERVER_SERVING;
    describe(server, status, sizeof(status));
    log_info("ready: %s", status);
    notify_ready(status);
    listener_start(server);
}

/* --backend auto without a usable GPU: the CPU it is, and everybody is told why. */
static int fall_back(struct server *server, const char *reason, struct failure *ret_failure)
{
    server->may_fall_back = false;
    snprintf(server->reason, sizeof(server->reason), "--backend auto: %.230s", reason);
    return devices_replace(&server->devices, "cpu", ret_failure);
}

/* Each device has failed at least once. */
static void do_without_devices(struct server *server)
{
    const struct device *first = &server->devices.all[0];
    struct failure failure;

    if (server->may_fall_back) {
        if (fall_back(server, first->reason, &failure) < 0) {
            log_error("%s", failure.message);
            stop_loop(server, 1);
        }
        return;
    }
    for (uint32_t i = 0; i < server->devices.n; i++) {
        log_error("the worker of %s did not start: %s", server->devices.all[i].name,
                  server->devices.all[i].reason);
    }
    stop_loop(server, 1);
}

void server_note_devices(struct server *server)
{
    char status[STATUS_SIZE];

    if (!server->has_device_news) {
        return;
    }
    server->has_device_news = false;
    if (server->state == SERVER_SERVING) {
        describe(server, status, sizeof(status));
        notify_status(status);
    } else if (server->state == SERVER_STARTING) {
        if (devices_count(&server->devices, DEVICE_READY) > 0) {
            serve(server);
        } else if (devices_count(&server->devices, DEVICE_STARTING) == 0) {
            do_without_devices(server);
        }
    }
}

static void on_device_change(void *owner, const struct device *device)
{
    struct server *server = owner;
    struct msg_event event = {.kind = EVENT_DEVICE};

    server->has_device_news = true;
    server_drop_memos(server);
    snprintf(event.device, sizeof(event.device), "%s", device->name);
    snprintf(event.state, sizeof(event.state), "%s", device_state_names[device->state]);
    snprintf(event.reason, sizeof(event.reason), "%s", device->reason);
    tell_subscribers(server, &event);
}

/* Whoever started the daemon may start it again; to go on would leave clients waiting for ever. */
static void on_hopeless(void *owner)
{
    stop_loop(owner, 1);
}

static void on_chunk_done(void *owner, void *chunk, const struct work_result *result,
                          const char *error)
{
    (void)owner;
    job_chunk_done(chunk, result, error);
}

static void on_chunk_lost(void *owner, void *chunk, const char *reason)
{
    (void)owner;
    job_chunk_lost(chunk, reason);
}

/* ---- time ----------------------------------------------------------------------------------- */

static bool check_sessions(struct server *server, uint64_t now)
{
    bool is_timed = false;
    struct session *next;

    for (struct session *session = server->sessions; session != NULL; session = next) {
        next = session_links(session)->next;
        session_check_time(session, now);
        is_timed |= session_is_timed(session);
    }
    return is_timed;
}

static bool check_deadlines(struct server *server, uint64_t now)
{
    bool is_timed = false;
    struct job *next;

    for (struct job *job = server->jobs; job != NULL; job = next) {
        next = job->next;
        is_timed |= job_is_timed(job);
        if (job_note_late(job, now)) {
            job_settle(job);
        }
    }
    return is_timed;
}

static void on_tick(uv_timer_t *tick)
{
    struct server *server = tick->data;
    uint64_t now = now_ns();
    bool is_timed = check_sessions(server, now);

    is_timed |= check_deadlines(server, now);
    if (!is_timed) {
        uv_timer_stop(tick); /* an idle daemon does not wake up */
    }
}

void server_need_tick(struct server *server)
{
    if (!uv_is_active((uv_handle_t *)&server->tick)) {
        uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
    }
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify_watchdog();
}

/* ---- stopping ------------------------------------------------------------------------------- */

static bool has_work_in_flight(const struct server *server)
{
    for (const struct job *job = server->jobs; job != NULL; job = job->next) {
        /* A closed job waits at least for its FINISH. */
        if (job->state == JOB_CLOSED || job->n_pushed > job->n_done || job->n_messages > 0) {
            return true;
        }
    }
    return false;
}

static void cancel_all(struct server *server)
{
    struct job *next;

    for (struct job *job = server->jobs; job != NULL; job = next) {
        next = job->next;
        job_cancel(job);
        job_settle(job);
    }
    server_turn(server);
}

static void on_drain(uv_timer_t *timer)
{
    struct server *server = timer->data;
    bool is_late = now_ns() - server->drain_start_ns > LIMIT_DRAIN * UINT64_C(1000000);

    if (!is_late && has_work_in_flight(server)) {
        return;
    }
    if (is_late) {
        log_warning("stopping with work in flight: it is cancelled");
    }
    cancel_all(server);
    stop_loop(server, 0);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;

    if (server->state >= SERVER_DRAINING) {
        return;
    }
    log_info("%s: no new work; what is in flight may finish", strsignal(number));
    notify_stopping("draining");
    if (server->state == SERVER_STARTING) {
        stop_loop(server, 0);
        return;
    }
    server->state = SERVER_DRAINING;
    tell_subscribers(server, &(struct msg_event){.kind = EVENT_DRAIN});
    jobs_give_up_on_open(server);
    server->drain_start_ns = now_ns();
    uv_timer_start(&server->drain_timer, on_drain, 0, 10);
}

/* ---- starting ------------------------------------------------------------------------------- */

static void init_loop(struct server *server)
{
    static const int numbers[] = {SIGTERM, SIGINT};

    uv_loop_init(&server->loop);
    server_turn_init(server);
    uv_timer_init(&server->loop, &server->tick);
    uv_timer_init(&server->loop, &server->watchdog);
    uv_timer_init(&server->loop, &server->blank_timer);
    uv_timer_init(&server->loop, &server->drain_timer);
    server->tick.data = server;
    server->blank_timer.data = server;
    server->drain_timer.data = server;
    for (unsigned i = 0; i < ARRAY_SIZE(server->signals); i++) {
        uv_signal_init(&server->loop, &server->signals[i]);
        server->signals[i].data = server;
        uv_signal_start(&server->signals[i], on_signal, numbers[i]);
    }
    uint64_t watchdog_ms = notify_watchdog_ms();
    if (watchdog_ms > 0) {
        uv_timer_start(&server->watchdog, on_watchdog, watchdog_ms, watchdog_ms);
    }
}

/* Those that --devices names; the list stays empty where any will do. */
static int read_devices(struct server *server, const struct config *config,
                        struct failure *ret_failure)
{
    if (config->devices == NULL) {
        return 0;
    }
    if (strcmp(config->backend, "cpu") != 0) {
        return device_list_read(config->devices, &server->device_list, ret_failure);
    }
    if (strcmp(config->devices, "cpu0") != 0) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "devices",
                    "--devices: with --backend cpu there is only cpu0, not \"%s\"",
                    config->devices);
    }
    return 0;
}

/*
 * auto takes the GPUs where their worker is installed and the CPU where not; it never falls from
 * one to the other later.
 */
static int start_workers(struct server *server, const struct config *config,
                         struct spawner *spawner, struct failure *ret_failure)
{
    const struct devices_config devices = {
        .loop = &server->loop,
        .spawner = spawner,
        .segments = server->segments,
        .job_slots = server->job_slots,
        .scheduler = &server->scheduler,
        .list = &server->device_list,
        .owner = server,
        .on_change = on_device_change,
        .on_hopeless = on_hopeless,
        .on_done = on_chunk_done,
        .on_lost = on_chunk_lost,
    };
    int r = read_devices(server, config, ret_failure);

    if (r < 0) {
        return r;
    }
    server->may_fall_back = strcmp(config->backend, "auto") == 0;
    snprintf(server->reason, sizeof(server->reason), "%s",
             server->may_fall_back ? "chosen by --backend auto" : "asked for by --backend");
    r = devices_init(&server->devices, &devices,
                     strcmp(config->backend, "cpu") == 0 ? "cpu" : "cuda", ret_failure);
    if (r == -STATUS_NO_DEVICE && server->may_fall_back) {
        r = fall_back(server, "no GPU worker installed", ret_failure);
    }
    return r;
}

static bool has_urgent(void *owner)
{
    const struct server *server = owner;

    return server->scheduler.classes[PRIORITY_URGENT].n_flows > 0 ||
           scheduler_in_flight(&server->scheduler, PRIORITY_URGENT) > 0;
}

static int make_ring_pool(struct server *server, const struct config *config,
                          struct failure *ret_failure)
{
    const struct ring_pool_config rings = {
        .loop = &server->loop,
        .segments = server->segments,
        .size = config->ring_pool_size,
        .has_nodes = shm_has_nodes(),
        .stock_ms = RING_POOL_STOCK_MS,
        .owner = server,
        .has_urgent = has_urgent,
    };

    if (ring_pool_create(&rings, &server->ring_pool) < 0) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the ring pool");
    }
    return 0;
}

static int server_init(struct server *server, const struct config *config, struct spawner *spawner,
                       struct failure *ret_failure)
{
    memset(server, 0, sizeof(*server));
    server->start_ns = now_ns();
    scheduler_init(&server->scheduler);
    rates_init(&server->rates);
    awake_init(&server->awake, config->awake_cpus, config->awake_group);
    init_loop(server);
    if (getrandom(&server->epoch, sizeof(server->epoch), 0) != sizeof(server->epoch)) {
        server->epoch = server->start_ns;
    }
    server->epoch &= (UINT64_C(1) << 53) - 1; /* ids fit a double */
    int r = listener_open(server, config, ret_failure);
    if (r == 0 && segments_create(&server->segments) < 0) {
        r = fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the table of segments");
    }
    if (r == 0) {
        r = pool_create(config->pool_size, server->segments, &server->pool, ret_failure);
    }
    if (r == 0) {
        r = make_ring_pool(server, config, ret_failure);
    }
    if (r == 0 && config->ring_pool_size > 0) {
        ring_links_prepare(server);
    }
    if (r == 0 && job_slots_create(&server->job_slots) < 0) {
        r = fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the job block");
    }
    if (r == 0) {
        r = start_workers(server, config, spawner, ret_failure);
    }
    return r;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

static void server_finish(struct server *server)
{
    struct session *next;

    /* Before its rings end, or it would empty them. */
    ring_pool_close(server->ring_pool);
    for (struct session *session = server->sessions; session != NULL; session = next) {
        next = session_links(session)->next;
        session_flush(session);
        session_close(session);
    }
    ring_links_finish(server);
    listener_close(server);
    devices_finish(&server->devices);
    server_turn_end_aside(server);
    server_turn_stop(server);
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_loop_close(&server->loop);
    assert(server->jobs == NULL && server->users == NULL && server->constants == NULL);
    assert(server->rings == NULL && server->ring_leftovers == NULL);
    job_slots_destroy(server->job_slots);
    ring_pool_destroy(server->ring_pool);
    pool_destroy(server->pool);
    segments_destroy(server->segments);
    linger_stop();
}

int server_run(struct server *server, const struct config *config, struct spawner *spawner)
{
    struct failure failure;
    int exit_code = 0;

    if (server_init(server, config, spawner, &failure) < 0) {
        log_error("%s", failure.message);
        exit_code = failure.status == STATUS_INVALID_PARAM ? 2 : 1;
    } else {
        server_turn_start(server);
        uv_run(&server->loop, UV_RUN_DEFAULT);
        exit_code = server->exit_code;
    }
    server_finish(server);
    return exit_code;
}

/* ---- for jobs, sessions and handlers -------------------------------------------------------- */

void server_add_job(struct server *server, struct job *job)
{
    job->next = server->jobs;
    if (server->jobs != NULL) {
        server->jobs->previous = job;
    }
    server->jobs = job;
    if (job->deadline_at_ns != 0) {
        server_need_tick(server);
    }
}

_Static_assert((SERVER_JOB_BUCKETS & (SERVER_JOB_BUCKETS - 1)) == 0,
               "half an id leads to the same bucket as the whole");

static struct job **bucket_of(struct server *server, uint64_t id)
{
    return &server->jobs_by_id[id % SERVER_JOB_BUCKETS];
}

static void forget_name(struct server *server, struct job *job)
{
    for (struct job **at = bucket_of(server, job->id); *at != NULL; at = &(*at)->next_like) {
        if (*at == job) {
            *at = job->next_like;
            return;
        }
    }
}

void server_remove_job(struct server *server, struct job *job)
{
    if (job->previous != NULL) {
        job->previous->next = job->next;
    } else {
        server->jobs = job->next;
    }
    if (job->next != NULL) {
        job->next->previous = job->previous;
    }
    forget_name(server, job);
}

int server_name_job(struct server *server, struct job *job, struct failure *ret_failure)
{
    if (token_make(job->token) < 0) {
        fail(ret_failure, STATUS_BUSY, NULL, "no random bytes for a token; try again later");
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    job->id = ++server->last_job_id;
    struct job **bucket = bucket_of(server, job->id);

    job->next_like = *bucket;
    *bucket = job;
    return 0;
}

struct job *server_find_job(struct server *server, uint64_t id)
{
    struct job *job = *bucket_of(server, id);

    while (job != NULL && job->id != id) {
        job = job->next_like;
    }
    return job;
}

struct job *server_jobs_like(struct server *server, uint32_t id)
{
    return *bucket_of(server, id);
}

int server_find_op(struct server *server, const char *name, uint32_t *ret_index,
                   struct failure *ret_failure)
{
    for (uint32_t i = 0; i < server->devices.ops.n; i++) {
        if (strcmp(server->devices.ops.all[i].name, name) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return fail(ret_failure, STATUS_UNKNOWN_OP, "op", "no op \"%s\"; op.list names those there are",
                name);
}

int server_find_devices(const struct server *server, const struct msg_options *options,
                        uint32_t *ret_devices, struct failure *ret_failure)
{
    const struct devices *devices = &server->devices;
    const struct device *device = devices_find(devices, options->device);
    bool is_gpu = strcmp(devices->backend, "cpu") != 0;

    if ((options->require == REQUIRE_GPU && !is_gpu) ||
        (options->require == REQUIRE_CPU && is_gpu)) {
        return fail(ret_failure, STATUS_NO_DEVICE, "require",
                    "require is \"%s\"; this daemon's backend is %s (%s)",
                    require_names[options->require], devices->backend, server->reason);
    }
    if (options->device[0] == '\0') {
        *ret_devices = SCHEDULER_ANY_DEVICE;
        return 0;
    }
    if (device == NULL) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device",
                    "no device \"%s\"; device.list names those there are", options->device);
    }
    if (!device->was_ready) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device", "%s is not ready yet: %s",
                    device->name, device->reason[0] != '\0' ? device->reason : "it starts");
    }
    *ret_devices = SCHEDULER_DEVICE(device->index);
    return 0;
}

void server_drop_memos(struct server *server)
{
    for (struct session *session = server->sessions; session != NULL;
         session = session_links(session)->next) {
        session_drop_memo(session);
    }
}

void server_stats(const struct server *server, struct msg_stats *ret_stats)
{
    *ret_stats = server->stats;
    snprintf(ret_stats->version, sizeof(ret_stats->version), "%s", GPUPIPE_VERSION);
    snprintf(ret_stats->backend, sizeof(ret_stats->backend), "%s", server->devices.backend);
    snprintf(ret_stats->reason, sizeof(ret_stats->reason), "%s", server->reason);
    ret_stats->uptime_ns = now_ns() - server->start_ns;
    ret_stats->sessions = server->n_sessions;
    for (const struct job *job = server->jobs; job != NULL; job = job->next) {
        ret_stats->jobs += job->id != 0 && job->state < JOB_DONE;
        ret_stats->jobs_held += job_is_held(job);
    }
    for (const struct constant *constant = server->constants; constant != NULL;
         constant = constant->next) {
        ret_stats->consts++;
    }
    for (const struct session *session = server->waiting_first; session != NULL;
         session = session_links((struct session *)session)->next_waiting) {
        ret_stats->pool_waiting++;
    }
    ret_stats->chunks_waiting_urgent = server->scheduler.classes[PRIORITY_URGENT].n_flows;
    ret_stats->chunks_waiting_normal = server->scheduler.classes[PRIORITY_NORMAL].n_flows;
    ret_stats->chunks_waiting_bulk = server->scheduler.classes[PRIORITY_BULK].n_flows;
    for (uint32_t i = 0; i < server->devices.n; i++) {
        ret_stats->worker_starts += worker_link_starts(server->devices.all[i].link);
        ret_stats->worker_deaths += worker_link_deaths(server->devices.all[i].link);
    }
    for (const struct ring_link *link = server->rings; link != NULL; link = link->next) {
        ret_stats->rings++;
    }
    ret_stats->awake = awake_was(&server->awake);
    ret_stats->awake_cpus =
        awake_has_cpus(&server->awake, server->devices.n) ? server->awake.n_cpus : 0;
    ret_stats->ring_pool_size = ring_pool_size(server->ring_pool);
    ret_stats->ring_pool_used = ring_pool_used(server->ring_pool);
    ret_stats->ring_pool_huge = ring_pool_huge(server->ring_pool);
    ret_stats->ring_pool_far = ring_pool_far(server->ring_pool);
    ret_stats->pool_size = pool_size(server->pool);
    ret_stats->pool_used = pool_used(server->pool);
}
