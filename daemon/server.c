/*
 * Server: the start, the time limits and the end of the daemon, and what it tells others.  See
 * server.h for its states and server_turn.c for its work.
 */
#include "daemon/server.h"

#include "daemon/devices.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "proto/util.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define STATUS_SIZE 768 /* holds two reasons */

#define TICK_MS 100 /* resolution of the time limits, all of them seconds, and of deadlines */

/* ---- status --------------------------------------------------------------------------------- */

/* One line for the log and for `systemctl status`: which device, or why there is none. */
static void describe(const struct server *server, char *ret_text, size_t size)
{
    const struct worker_caps *caps = worker_link_caps(server->link);
    bool is_down = server->device_reason[0] != '\0';

    snprintf(ret_text, size, "backend %s, device %s: %s (%s)", server->backend,
             is_down ? server->device_state : caps->device,
             is_down ? server->device_reason : caps->name, server->reason);
}

static void set_device_state(struct server *server, const char *state, const char *reason)
{
    char status[STATUS_SIZE];

    server->device_state = state;
    snprintf(server->device_reason, sizeof(server->device_reason), "%s", reason);
    if (server->state == SERVER_SERVING) {
        describe(server, status, sizeof(status));
        notify_status(status);
    }
}

static void stop_loop(struct server *server, int exit_code)
{
    server->exit_code = exit_code;
    server->state = SERVER_STOPPED;
    uv_stop(&server->loop);
}

/* ---- the worker's news ---------------------------------------------------------------------- */

static void on_worker_ready(void *owner)
{
    struct server *server = owner;
    const struct worker_caps *caps = worker_link_caps(server->link);
    char status[STATUS_SIZE];

    snprintf(server->backend, sizeof(server->backend), "%.15s", caps->backend);
    scheduler_configure(&server->scheduler, caps);
    set_device_state(server, "ready", "");
    if (server->state != SERVER_STARTING) {
        return;
    }
    server->state = SERVER_SERVING;
    describe(server, status, sizeof(status));
    log_info("ready: %s", status);
    notify_ready(status);
    listener_start(server);
}

/* --backend auto without a usable GPU: the CPU it is, and everybody is told why. */
static void fall_back(struct server *server, const char *reason)
{
    server->may_fall_back = false;
    snprintf(server->reason, sizeof(server->reason), "--backend auto: %.230s", reason);
    snprintf(server->backend, sizeof(server->backend), "cpu");
}

static void on_worker_down(void *owner, const char *reason)
{
    struct server *server = owner;

    set_device_state(server, "restarting", reason);
    if (server->state == SERVER_STARTING && server->may_fall_back) {
        fall_back(server, reason);
        worker_link_set_backend(server->link, "cpu");
    } else if (server->state == SERVER_STARTING) {
        log_error("the worker did not start: %s", reason);
        stop_loop(server, 1);
    }
}

/* Whoever started the daemon may start it again; to go on would leave clients waiting for ever. */
static void on_worker_hopeless(void *owner)
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
        if (job_is_late(job, now)) {
            job_expire(job);
            job_settle(job);
        } else {
            is_timed |= job->deadline_at_ns != 0 && job->state < JOB_DONE;
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
    uv_timer_init(&server->loop, &server->drain_timer);
    server->tick.data = server;
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

/* Which one the worker is to drive; left alone where any will do. */
static int choose_device(const struct config *config, char ret_device[WORKER_DEVICE_SIZE],
                         struct failure *ret_failure)
{
    int r = 0;

    if (config->devices == NULL) {
        return 0;
    }
    if (strcmp(config->backend, "cpu") != 0) {
        r = devices_first(config->devices, ret_device, WORKER_DEVICE_SIZE, ret_failure);
    } else if (strcmp(config->devices, "cpu0") != 0) {
        r = fail(ret_failure, STATUS_INVALID_PARAM, "devices",
                 "--devices: with --backend cpu there is only cpu0, not \"%s\"", config->devices);
    }
    if (r == 0 && strchr(config->devices, ',') != NULL) {
        log_warning("--devices: this version uses the first, %s", ret_device);
    }
    return r;
}

/*
 * auto takes the GPU where its worker is installed and the CPU where not; it never falls from one
 * to the other later.
 */
static int start_worker(struct server *server, const struct config *config, struct spawner *spawner,
                        struct failure *ret_failure)
{
    struct worker_link_config link = {
        .loop = &server->loop,
        .spawner = spawner,
        .pool = server->pool,
        .job_slots = server->job_slots,
        .backend = config->backend,
        .owner = server,
        .on_ready = on_worker_ready,
        .on_down = on_worker_down,
        .on_hopeless = on_worker_hopeless,
        .on_done = on_chunk_done,
        .on_lost = on_chunk_lost,
    };
    int r = choose_device(config, link.device, ret_failure);

    if (r < 0) {
        return r;
    }
    server->may_fall_back = strcmp(config->backend, "auto") == 0;
    if (server->may_fall_back) {
        link.backend = "cuda";
    }
    snprintf(server->reason, sizeof(server->reason), "%s",
             server->may_fall_back ? "chosen by --backend auto" : "asked for by --backend");
    snprintf(server->backend, sizeof(server->backend), "%s", link.backend);
    r = worker_link_create(&link, &server->link, ret_failure);
    if (r == -STATUS_NO_DEVICE && server->may_fall_back) {
        link.backend = "cpu";
        link.device[0] = '\0';
        fall_back(server, "no GPU worker installed");
        r = worker_link_create(&link, &server->link, ret_failure);
    }
    return r;
}

static int server_init(struct server *server, const struct config *config, struct spawner *spawner,
                       struct failure *ret_failure)
{
    memset(server, 0, sizeof(*server));
    server->start_ns = now_ns();
    server->device_state = "starting";
    scheduler_init(&server->scheduler);
    init_loop(server);
    if (getrandom(&server->epoch, sizeof(server->epoch), 0) != sizeof(server->epoch)) {
        server->epoch = server->start_ns;
    }
    server->epoch &= (UINT64_C(1) << 53) - 1; /* ids fit a double */
    int r = listener_open(server, config, ret_failure);
    if (r == 0) {
        r = pool_create(config->pool_size, &server->pool, ret_failure);
    }
    if (r == 0 && job_slots_create(&server->job_slots) < 0) {
        r = fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the job block");
    }
    if (r == 0) {
        r = start_worker(server, config, spawner, ret_failure);
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

    for (struct session *session = server->sessions; session != NULL; session = next) {
        next = session_links(session)->next;
        session_flush(session);
        session_close(session);
    }
    listener_close(server);
    worker_link_destroy(server->link);
    server_turn_stop(server);
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_loop_close(&server->loop);
    assert(server->jobs == NULL);
    job_slots_destroy(server->job_slots);
    pool_destroy(server->pool);
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
}

struct job *server_find_job(struct server *server, uint64_t id)
{
    for (struct job *job = server->jobs; job != NULL; job = job->next) {
        if (job->id == id && id != 0) {
            return job;
        }
    }
    return NULL;
}

int server_find_op(struct server *server, const char *name, uint32_t *ret_index,
                   struct failure *ret_failure)
{
    for (uint32_t i = 0; i < worker_link_n_ops(server->link); i++) {
        if (strcmp(worker_link_op(server->link, i)->name, name) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return fail(ret_failure, STATUS_UNKNOWN_OP, "op", "no op \"%s\"; op.list names those there are",
                name);
}

int server_check_device(const struct server *server, const struct msg_options *options,
                        struct failure *ret_failure)
{
    const struct worker_caps *caps = worker_link_caps(server->link);
    bool is_gpu = strcmp(server->backend, "cpu") != 0;

    if ((options->require == REQUIRE_GPU && !is_gpu) ||
        (options->require == REQUIRE_CPU && is_gpu)) {
        return fail(ret_failure, STATUS_NO_DEVICE, "require",
                    "require is \"%s\"; this daemon's backend is %s (%s)",
                    require_names[options->require], server->backend, server->reason);
    }
    if (options->device[0] != '\0' && strcmp(options->device, caps->device) != 0) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device", "no device \"%s\"; there is %s",
                    options->device, caps->device);
    }
    return 0;
}

uint64_t server_chunk_size(const struct server *server)
{
    return MAX(worker_link_caps(server->link)->chunk_size, UINT64_C(1));
}

void server_stats(const struct server *server, struct msg_stats *ret_stats)
{
    *ret_stats = server->stats;
    snprintf(ret_stats->version, sizeof(ret_stats->version), "%s", GPUPIPE_VERSION);
    snprintf(ret_stats->backend, sizeof(ret_stats->backend), "%s", server->backend);
    snprintf(ret_stats->reason, sizeof(ret_stats->reason), "%s", server->reason);
    ret_stats->uptime_ns = now_ns() - server->start_ns;
    ret_stats->sessions = server->n_sessions;
    for (const struct job *job = server->jobs; job != NULL; job = job->next) {
        ret_stats->jobs += job->id != 0 && job->state < JOB_DONE;
    }
    for (const struct session *session = server->waiting_first; session != NULL;
         session = session_links((struct session *)session)->next_waiting) {
        ret_stats->pool_waiting++;
    }
    ret_stats->chunks_waiting_urgent = server->scheduler.classes[PRIORITY_URGENT].n_flows;
    ret_stats->chunks_waiting_normal = server->scheduler.classes[PRIORITY_NORMAL].n_flows;
    ret_stats->chunks_waiting_bulk = server->scheduler.classes[PRIORITY_BULK].n_flows;
    ret_stats->worker_starts = worker_link_starts(server->link);
    ret_stats->worker_deaths = worker_link_deaths(server->link);
    ret_stats->pool_size = pool_size(server->pool);
    ret_stats->pool_used = pool_used(server->pool);
}
