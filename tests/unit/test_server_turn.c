/*
 * The order of a turn, in a server of stand-ins that write down what is called: while urgent work
 * is likely a look at workers and rings lies between any two steps that take long.  The clock is
 * played: it is wrapped at link time.
 */
#include "daemon/linger.h"
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/random.h"

#include <sched.h>
#include <time.h>

#define N_SESSIONS 8u
#define N_BELLS    3u
#define STEP_NS    1000u

/* What was called, one letter each. */
#define LOOK   'L'
#define READ   'r'
#define WRITE  'w'
#define RESUME 'm'
#define BELL   'b'

struct session {
    struct session_links links;
    uint32_t n_rests; /* reads after which it wants another */
};

static struct server server;
static struct session sessions[N_SESSIONS];
static char calls[4096];
static uint32_t n_calls;
static uint32_t flushed[N_SESSIONS], n_flushed;
static uint64_t clock_ns;
static uint32_t n_bells; /* that are due */
static bool is_bell_always_due;
static bool has_news; /* a worker, whenever somebody looks */
static uint32_t n_tries_to_sleep;
static uint32_t n_urgent;
static uint32_t n_looks_to_urgent; /* until the last session has an urgent answer; 0: never */
static uint32_t n_looks_left;      /* until the urgent chunk is done; 0: it never is */

static void note(char call)
{
    CHECK_LT(n_calls, sizeof(calls) - 1);
    calls[n_calls++] = call;
}

static uint32_t count(char call)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_calls; i++) {
        n += calls[i] == call;
    }
    return n;
}

static uint32_t n_threads_made, n_timers;
static bool has_no_threads;
static uint32_t n_looks_within;        /* that a system call waits for */
static const struct iovec no_bytes[1]; /* that it is about */

/* ---- stand-ins ------------------------------------------------------------------------------ */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    (void)clock;
    uint64_t now = __atomic_add_fetch(&clock_ns, STEP_NS, __ATOMIC_RELAXED);

    *ret_time = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
    return 0;
}

int __wrap_uv_thread_create(uv_thread_t *ret_thread, uv_thread_cb entry, void *arg);
int __real_uv_thread_create(uv_thread_t *ret_thread, uv_thread_cb entry, void *arg);

int __wrap_uv_thread_create(uv_thread_t *ret_thread, uv_thread_cb entry, void *arg)
{
    n_threads_made++;
    return has_no_threads ? UV_EAGAIN : __real_uv_thread_create(ret_thread, entry, arg);
}

int __wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *ret_timer);
int __wrap_timer_delete(timer_t timer);
int __real_timer_create(clockid_t clock, struct sigevent *event, timer_t *ret_timer);
int __real_timer_delete(timer_t timer);

int __wrap_timer_create(clockid_t clock, struct sigevent *event, timer_t *ret_timer)
{
    n_timers++;
    return __real_timer_create(clock, event, ret_timer);
}

int __wrap_timer_delete(timer_t timer)
{
    n_timers--;
    return __real_timer_delete(timer);
}

/* They take until others have gone on. */
static ssize_t wait_for_looks(const struct iovec *iov, size_t n_iov)
{
    if (iov != no_bytes || n_iov != 1) {
        return -EINVAL;
    }
    while (__atomic_load_n(&n_looks_within, __ATOMIC_ACQUIRE) > 0) {
        sched_yield();
    }
    return -EAGAIN;
}

ssize_t __wrap_channel_receive(int fd, const struct iovec *iov, size_t n_iov, bool *ret_had_fds);
ssize_t __wrap_channel_send(int fd, const struct iovec *iov, size_t n_iov);

ssize_t __wrap_channel_receive(int fd, const struct iovec *iov, size_t n_iov, bool *ret_had_fds)
{
    *ret_had_fds = fd == 7;
    return wait_for_looks(iov, n_iov);
}

ssize_t __wrap_channel_send(int fd, const struct iovec *iov, size_t n_iov)
{
    (void)fd;
    return wait_for_looks(iov, n_iov);
}

struct session_links *session_links(struct session *session)
{
    return &session->links;
}

void session_flush(struct session *session)
{
    note(WRITE);
    flushed[n_flushed++ % ARRAY_SIZE(flushed)] = (uint32_t)(session - sessions);
}

void session_read_again(struct session *session)
{
    note(READ);
    if (session->n_rests > 0) {
        session->n_rests--;
        server_mark_again(&server, session);
    }
}

/* It has an answer then. */
void session_resume(struct session *session)
{
    note(RESUME);
    server_unmark_waiting(&server, session);
    server_mark_dirty(&server, session, PRIORITY_NORMAL);
}

void devices_poll(struct devices *devices)
{
    (void)devices;
    if (n_looks_left > 0 && --n_looks_left == 0) {
        n_urgent = 0;
    }
}

void devices_publish(struct devices *devices)
{
    (void)devices;
}

bool devices_sleep(struct devices *devices)
{
    (void)devices;
    CHECK_LT(n_tries_to_sleep, 10);
    n_tries_to_sleep++;
    return !has_news;
}

void devices_awake(struct devices *devices)
{
    (void)devices;
}

/* The middle of a look. */
void ring_links_poll(struct server *of)
{
    (void)of;
    if (!server.is_aside) {
        note(LOOK);
    }
    if (n_looks_to_urgent > 0 && --n_looks_to_urgent == 0) {
        server_mark_dirty(&server, &sessions[N_SESSIONS - 1], PRIORITY_URGENT);
    }
    if (n_looks_within > 0) {
        __atomic_sub_fetch(&n_looks_within, 1, __ATOMIC_RELEASE);
    }
}

void ring_links_publish(struct server *of)
{
    (void)of;
}

bool ring_links_ring(struct server *of, uint32_t max)
{
    uint32_t n = is_bell_always_due ? 1 : MIN(n_bells, max);

    (void)of;
    for (uint32_t i = 0; i < n; i++) {
        note(BELL);
    }
    n_bells -= is_bell_always_due ? 0 : n;
    return n > 0;
}

bool ring_links_sleep(struct server *of)
{
    (void)of;
    return true;
}

/* One urgent chunk is handed out in the next look, if there is to be one. */
struct flow *scheduler_next(struct scheduler *scheduler, uint64_t now_ns,
                            struct scheduler_place *ret_place)
{
    static struct job job;

    (void)scheduler;
    (void)now_ns;
    if (n_looks_left == 0 || n_urgent > 0) {
        return NULL;
    }
    *ret_place = (struct scheduler_place){.priority = PRIORITY_URGENT};
    return &job.flow;
}

uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority)
{
    (void)scheduler;
    return priority == PRIORITY_URGENT ? n_urgent : 0;
}

bool job_note_late(struct job *job, uint64_t now)
{
    (void)job;
    (void)now;
    return false;
}

void job_settle(struct job *job)
{
    (void)job;
}

int job_issue(struct job *job, const struct scheduler_place *place)
{
    (void)job;
    (void)place;
    n_urgent = 1;
    return 0;
}

/* A job ends, whose memory a system call may work on. */
void jobs_settle_released(struct server *of)
{
    CHECK(!of->is_aside);
}

void server_note_devices(struct server *of)
{
    (void)of;
}

/* ---- the stories ---------------------------------------------------------------------------- */

/* libuv's first loop opens a pipe that stays: it is no test's. */
__attribute__((constructor)) static void open_what_stays(void)
{
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0) {
        uv_loop_close(&loop);
    }
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

static void close_all(void *arg)
{
    (void)arg;
    __atomic_store_n(&n_looks_within, 0, __ATOMIC_RELEASE);
    server_turn_end_aside(&server);
    uv_walk(&server.loop, close_handle, NULL);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    uv_loop_close(&server.loop);
}

static void open_server(bool is_awake)
{
    memset(&server, 0, sizeof(server));
    memset(sessions, 0, sizeof(sessions));
    n_calls = n_flushed = n_looks_to_urgent = n_bells = n_urgent = n_looks_left = n_looks_within =
        0;
    n_threads_made = n_timers = n_tries_to_sleep = 0;
    is_bell_always_due = has_no_threads = has_news = false;
    clock_ns = 1000000000;
    CHECK_EQ(uv_loop_init(&server.loop), 0);
    check_at_end(close_all, NULL);
    server.scheduler.n_users = 1;
    server_turn_init(&server);
    if (is_awake) {
        awake_want(&server.awake, WORK_AWAKE_NS);
        CHECK(awake_is(&server.awake));
        awake_note_sockets(&server.awake);
    }
}

/* Everybody has something to send, half of them wait for room, and rings' clients sleep. */
static void make_work(void)
{
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        server_mark_dirty(&server, &sessions[i], PRIORITY_NORMAL);
        if (i % 2 == 0) {
            server_mark_waiting(&server, &sessions[i]);
        }
    }
    server_room_came(&server);
    n_bells = N_BELLS;
}

static void check_looks_between_steps(void)
{
    for (uint32_t i = 1; i < n_calls; i++) {
        if (calls[i - 1] != LOOK && calls[i] != LOOK) {
            CHECK_FAIL("no look between two steps: %.*s", (int)n_calls, calls);
        }
    }
}

static void check_all_work_done(void)
{
    CHECK_EQ(count(RESUME), N_SESSIONS / 2);
    CHECK_EQ(count(BELL), N_BELLS);
    CHECK(server.dirty_first[PRIORITY_NORMAL] == NULL && server.waiting_first == NULL &&
          server.waiting_next == NULL);
}

/* A turn wrote to all sessions, and then to all again, before what rings had went to a worker. */
static void test_while_awake_nobody_urgent_waits_for_two_steps(void)
{
    open_server(true);
    make_work();
    server_turn(&server);
    check_all_work_done();
    CHECK_EQ(count(WRITE), N_SESSIONS);
    check_looks_between_steps();
    CHECK_EQ(calls[0], LOOK);
    CHECK_EQ(calls[n_calls - 1], LOOK); /* after the last step as well */
}

static void test_asleep_steps_share_looks(void)
{
    open_server(false);
    make_work();
    server_turn(&server);
    check_all_work_done();
    CHECK_GE(count(WRITE), N_SESSIONS);
    CHECK_LE(count(LOOK), 5);
}

/* Sessions that have more to read, each with an answer to send between. */
static void test_while_awake_a_look_lies_between_the_reads_of_two_sessions(void)
{
    open_server(true);
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        sessions[i].n_rests = i;
        server_mark_again(&server, &sessions[i]);
        server_mark_dirty(&server, &sessions[i], PRIORITY_NORMAL);
    }
    while (server.again != NULL) {
        uv_run(&server.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(count(READ), N_SESSIONS + N_SESSIONS * (N_SESSIONS - 1) / 2);
    CHECK_EQ(count(WRITE), N_SESSIONS);
    check_looks_between_steps();
}

/*
 * Sessions were flushed last first, whatever they had to send: up to 256 KiB of a bulk client's
 * answers went ahead of an urgent one.
 */
static void test_urgent_answers_leave_first_and_then_in_order_of_arrival(void)
{
    enum priority as[N_SESSIONS]; /* what a session has, and when it got there */
    uint32_t since[N_SESSIONS], n_wanted = 0, n_gone = random_below(3);

    open_server(random_below(2) == 0);
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        as[i] = PRIORITY_COUNT;
    }
    for (uint32_t when = 0; when < 3 * N_SESSIONS; when++) {
        uint32_t i = random_below(N_SESSIONS);
        enum priority priority = (enum priority)random_below(PRIORITY_COUNT);

        server_mark_dirty(&server, &sessions[i], priority);
        since[i] = priority < as[i] ? when : since[i];
        as[i] = MIN(as[i], priority);
    }
    for (uint32_t i = 0; i < n_gone; i++) {
        server_forget_session(&server, &sessions[i]);
        as[i] = PRIORITY_COUNT;
    }
    server_turn(&server);
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        for (uint32_t when = 0; when < 3 * N_SESSIONS; when++) {
            for (uint32_t i = 0; i < N_SESSIONS; i++) {
                if (as[i] == priority && since[i] == when) {
                    CHECK_EQ(flushed[n_wanted++], i);
                }
            }
        }
        CHECK(server.dirty_first[priority] == NULL && server.dirty_last[priority] == NULL);
    }
    CHECK_EQ(n_flushed, n_wanted);
}

static void test_while_awake_an_urgent_answer_waits_for_one_flush(void)
{
    open_server(true);
    for (uint32_t i = 0; i < N_SESSIONS - 1; i++) {
        server_mark_dirty(&server, &sessions[i], PRIORITY_BULK);
    }
    n_looks_to_urgent = 3;
    server_turn(&server);
    CHECK_EQ(n_flushed, N_SESSIONS);
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        CHECK_EQ(flushed[i], i < 2 ? i : i == 2 ? N_SESSIONS - 1 : i - 1);
    }
}

/* Of one client, that stores again and again that it sleeps: nobody's socket was looked at. */
static void check_turn_ends(bool is_awake)
{
    open_server(is_awake);
    make_work();
    is_bell_always_due = true;
    server_turn(&server);
    CHECK_GE(count(BELL), 1);
    CHECK_EQ(count(RESUME), N_SESSIONS / 2);
    CHECK(server.dirty_first[PRIORITY_NORMAL] == NULL && server.waiting_first == NULL);
}

static void test_while_awake_a_bell_that_is_always_due_ends_the_turn(void)
{
    check_turn_ends(true);
}

static void test_asleep_a_bell_that_is_always_due_ends_the_turn(void)
{
    check_turn_ends(false);
}

/* Small jobs of one client came so fast that nobody else's socket was looked at. */
static void test_asleep_sockets_do_not_wait_for_a_worker_to_fall_silent(void)
{
    open_server(false);
    server_turn_start(&server);
    has_news = true;
    for (uint32_t i = 1; i <= 5; i++) {
        uv_run(&server.loop, UV_RUN_NOWAIT);
        CHECK_EQ(n_tries_to_sleep, i);
    }
    server_turn_stop(&server);
}

static uint32_t n_looks_before_a_step(void)
{
    return (uint32_t)strspn(calls, (const char[]){LOOK, '\0'});
}

/* A small urgent chunk was done behind a step that had begun meanwhile. */
static void test_no_step_begins_while_a_small_urgent_chunk_is_at_a_device(void)
{
    open_server(true);
    make_work();
    n_looks_left = 6;
    server_turn(&server);
    CHECK_EQ(n_looks_before_a_step(), 6);
    check_all_work_done();
}

/* What takes long does not keep others from being served. */
static void test_a_long_urgent_chunk_holds_nobody_up(void)
{
    open_server(true);
    make_work();
    n_looks_left = sizeof(calls);
    server_turn(&server);
    CHECK_GT(n_looks_before_a_step(), 6);
    CHECK_EQ(n_urgent, 1);
    for (uint32_t i = 1; i < N_BELLS; i++) {
        server_turn(&server); /* it is time to look at sockets: one bell each */
    }
    check_all_work_done();
    check_looks_between_steps();
    CHECK_LT(count(LOOK), 200); /* held once, and not before each step */
}

/* Who was about to try, and is no more, is passed over. */
static void test_who_stops_waiting_does_not_try(void)
{
    open_server(true);
    make_work();
    server.has_room_come = false;
    server.waiting_next = server.waiting_first;
    server_unmark_waiting(&server, &sessions[0]);
    CHECK(server.waiting_next == &sessions[2]);
    server_turn(&server);
    CHECK_EQ(count(RESUME), N_SESSIONS / 2 - 1);
}

/* The front end, one device, and one more CPU. */
static void open_server_with_cpus(uint32_t n)
{
    open_server(true);
    server.devices.n = 1;
    server.awake.n_cpus = n;
}

/* Sixteen KiB and the client that was woken for them took 10 us, and at times 100. */
static void test_with_a_cpu_more_urgent_work_waits_for_no_system_call(void)
{
    bool had_fds = false;

    open_server_with_cpus(3);
    for (uint32_t i = 1; i <= 20; i++) {
        n_looks_within = i;
        CHECK_EQ(server_receive(&server, 7, no_bytes, 1, &had_fds), -EAGAIN);
        CHECK(had_fds);
        n_looks_within = i;
        CHECK_EQ(server_send(&server, 8, no_bytes, 1), -EAGAIN);
        CHECK_EQ(n_looks_within, 0);
        __atomic_add_fetch(&clock_ns, i % 2 * 1000 * ASIDE_SPIN_NS,
                           __ATOMIC_RELAXED); /* the thread sleeps meanwhile, or not */
        sched_yield();
    }
}

static void test_without_a_cpu_more_there_is_no_thread(void)
{
    bool had_fds;

    open_server_with_cpus(2);
    CHECK_EQ(server_receive(&server, 8, no_bytes, 1, &had_fds), -EAGAIN);
    CHECK(!had_fds);
    CHECK_EQ(n_calls, 0);
    CHECK(server.aside == NULL);
}

/* To make one was tried at each call, and budgets were those of somebody who has it. */
static void test_a_thread_that_cannot_be_made_is_tried_once(void)
{
    size_t budget;

    open_server_with_cpus(2);
    budget = server_read_budget(&server);
    server.awake.n_cpus++;
    has_no_threads = true;
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(server_send(&server, 8, no_bytes, 1), -EAGAIN);
    }
    CHECK_EQ(n_threads_made, 1);
    CHECK(server.aside == NULL);
    CHECK_EQ(server_read_budget(&server), budget);
    CHECK_EQ(server_write_budget(&server), budget);
}

static void test_the_threads_timer_ends_with_it(void)
{
    open_server_with_cpus(3);
    CHECK_EQ(linger_start(), 0);
    CHECK_EQ(server_send(&server, 8, no_bytes, 1), -EAGAIN);
    CHECK_EQ(n_timers, 2);
    linger_stop();
    server_turn_end_aside(&server);
    CHECK_EQ(n_timers, 0);
}

static void test_asleep_there_is_no_thread(void)
{
    open_server(false);
    server.awake.n_cpus = 99;
    CHECK_EQ(server_send(&server, 8, no_bytes, 1), -EAGAIN);
    CHECK_EQ(n_calls, 0);
    CHECK(server.aside == NULL);
}

CHECK_MAIN(CHECK_TEST(test_while_awake_nobody_urgent_waits_for_two_steps),
           CHECK_TEST(test_asleep_steps_share_looks),
           CHECK_TEST(test_while_awake_a_look_lies_between_the_reads_of_two_sessions),
           CHECK_TEST(test_urgent_answers_leave_first_and_then_in_order_of_arrival),
           CHECK_TEST(test_while_awake_an_urgent_answer_waits_for_one_flush),
           CHECK_TEST(test_while_awake_a_bell_that_is_always_due_ends_the_turn),
           CHECK_TEST(test_asleep_a_bell_that_is_always_due_ends_the_turn),
           CHECK_TEST(test_asleep_sockets_do_not_wait_for_a_worker_to_fall_silent),
           CHECK_TEST(test_no_step_begins_while_a_small_urgent_chunk_is_at_a_device),
           CHECK_TEST(test_a_long_urgent_chunk_holds_nobody_up),
           CHECK_TEST(test_who_stops_waiting_does_not_try),
           CHECK_TEST(test_with_a_cpu_more_urgent_work_waits_for_no_system_call),
           CHECK_TEST(test_without_a_cpu_more_there_is_no_thread),
           CHECK_TEST(test_a_thread_that_cannot_be_made_is_tried_once),
           CHECK_TEST(test_the_threads_timer_ends_with_it),
           CHECK_TEST(test_asleep_there_is_no_thread))
