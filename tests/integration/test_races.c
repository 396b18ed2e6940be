/*
 * Races: what meets in the daemon at a bad moment.  A stopped worker makes each moment last.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/socket.h>

#define MIB ((size_t)1 << 20)

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

static pid_t stop_worker(struct harness *daemon)
{
    pid_t worker = harness_await_worker(daemon, 0);

    harness_pause(worker);
    return worker;
}

static void await_nothing_left(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
    CHECK_EQ(stat_of(wire, "jobs"), 0);
    CHECK_EQ(stat_of(wire, "chunks_in_flight"), 0);
    CHECK_EQ(stat_of(wire, "pool_waiting"), 0);
    wire_check_works(wire);
}

/* ---- waiting for room ----------------------------------------------------------------------- */

/*
 * Jobs that leave 4 MiB of the 48 that one user may have of a pool of 64: they take 16, 16, 8 and 4
 * MiB.  Their ids.
 */
static void fill_pool(struct wire *wire, uint64_t ret_jobs[4])
{
    static const char *const options[4] = {"window: 2", "window: 2", "window: 1",
                                           "window: 1, max_push: 2097152"};
    static const size_t used[4] = {16 * MIB, 32 * MIB, 40 * MIB, 44 * MIB};

    for (unsigned i = 0; i < 4; i++) {
        char params[80];

        snprintf(params, sizeof(params), "['copy', {}, {%s}]", options[i]);
        ret_jobs[i] = (uint64_t)wire_number(wire_call(wire, "job.open", params), "job");
        CHECK_EQ(stat_of(wire, "pool_used"), used[i]);
    }
}

static void cancel(struct wire *wire, uint64_t job)
{
    wire_call(wire, "job.cancel", "[%lu]", job);
    CHECK_EQ(wire_number(wire_notification(wire, "job.done"), "0"), job);
}

static void test_a_run_expires_while_it_waits_for_room(void)
{
    struct harness *daemon = harness_start();
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t jobs[4];
    uint32_t late;

    fill_pool(holder, jobs);
    late = wire_send(wire, "run", "['copy', {}, {deadline_ns: 300000000}, [<8388608>]]");
    wire_error_is(wire, late, "DEADLINE", "deadline");
    CHECK_EQ(stat_of(holder, "pool_waiting"), 0);
    wire_check_works(wire);
    for (unsigned i = 0; i < 4; i++) {
        cancel(holder, jobs[i]);
    }
    await_nothing_left(wire);
}

/* The rest of its payload is on its way when the deadline passes. */
static void test_a_run_expires_while_it_arrives(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;
    uint32_t late;

    msgpack_sbuffer_init(&buffer);
    late = wire_pack(wire, &buffer, "run", "['copy', {}, {deadline_ns: 200000000}, [<1000000>]]");
    wire_send_bytes(wire, buffer.data, 500000);
    HARNESS_WAIT(stat_of(other, "pool_used") > 0);
    HARNESS_WAIT(stat_of(other, "pool_used") == 0);
    wire_send_bytes(wire, buffer.data + 500000, buffer.size - 500000);
    msgpack_sbuffer_destroy(&buffer);
    wire_error_is(wire, late, "DEADLINE", "deadline");
    await_nothing_left(wire);
}

/* Begin a run of size bytes of which only the first arrive; *ret_rest are those to come. */
static uint32_t begin_run(struct wire *wire, const void *bytes, size_t size,
                          msgpack_sbuffer *ret_rest)
{
    msgpack_sbuffer buffer;
    uint32_t run;

    msgpack_sbuffer_init(&buffer);
    run = wire_pack(wire, &buffer, "run", "['copy', {}, {}, [%b]]", bytes, size);
    wire_send_bytes(wire, buffer.data, 1000);
    msgpack_sbuffer_init(ret_rest);
    msgpack_sbuffer_write(ret_rest, buffer.data + 1000, buffer.size - 1000);
    msgpack_sbuffer_destroy(&buffer);
    return run;
}

static void end_run(struct wire *wire, uint32_t run, msgpack_sbuffer *rest, const void *bytes,
                    size_t size)
{
    wire_send_bytes(wire, rest->data, rest->size);
    msgpack_sbuffer_destroy(rest);
    CHECK_MEM(wire_output(wire_result(wire, run), size), bytes, size);
}

static void test_a_small_run_need_not_wait_for_a_large_one(void)
{
    struct harness *daemon = harness_start();
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *large = wire_connect(harness_socket(daemon));
    struct wire *small = wire_connect(harness_socket(daemon));
    void *bytes = random_new(16 * MIB);
    msgpack_sbuffer large_rest, small_rest;
    uint32_t large_run, small_run;
    uint64_t jobs[4];

    fill_pool(holder, jobs);
    large_run = begin_run(large, bytes, 16 * MIB, &large_rest);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    small_run = begin_run(small, bytes, 3 * MIB, &small_rest);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 2);
    cancel(holder, jobs[2]);
    end_run(small, small_run, &small_rest, bytes, 3 * MIB);
    CHECK_EQ(stat_of(holder, "pool_waiting"), 1);
    cancel(holder, jobs[0]);
    cancel(holder, jobs[1]);
    end_run(large, large_run, &large_rest, bytes, 16 * MIB);
    cancel(holder, jobs[3]);
    await_nothing_left(small);
}

static void test_who_waits_behind_a_client_that_leaves(void)
{
    struct harness *daemon = harness_start();
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *leaver = wire_connect(harness_socket(daemon));
    struct wire *next = wire_connect(harness_socket(daemon));
    void *bytes = random_new(8 * MIB);
    msgpack_sbuffer leaver_rest, rest;
    uint64_t jobs[4];
    uint32_t run;

    fill_pool(holder, jobs);
    begin_run(leaver, bytes, 8 * MIB, &leaver_rest);
    msgpack_sbuffer_destroy(&leaver_rest);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    run = begin_run(next, bytes, 8 * MIB, &rest);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 2);
    wire_close(leaver);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    cancel(holder, jobs[1]);
    end_run(next, run, &rest, bytes, 8 * MIB);
    cancel(holder, jobs[0]);
    cancel(holder, jobs[2]);
    cancel(holder, jobs[3]);
    await_nothing_left(next);
}

/* ---- waiting for room, unread ---------------------------------------------------------------- */

/*
 * Of the daemon's memory an answer to op.list takes 8 KiB and that of a small run 280 bytes: the
 * lists stay within LIMIT_UNREAD, so that runs may follow; all together do not.
 */
enum { N_LISTS = 12, N_UNREAD = 700, UNREAD_SIZE = 4000000 };

/* What a connection asked for and does not read. */
struct unread {
    uint8_t *bytes; /* of the first run: more than a socket holds */
    uint32_t first, lists[N_LISTS], runs[N_UNREAD];
};

/* wire_send_bytes() would read meanwhile. */
static void send_deaf(const struct wire *wire, msgpack_sbuffer *buffer)
{
    size_t sent = 0;

    while (sent < buffer->size) {
        ssize_t n = send(wire_fd(wire), buffer->data + sent, buffer->size - sent, MSG_NOSIGNAL);

        CHECK_GT(n, 0);
        sent += (size_t)n;
    }
    msgpack_sbuffer_clear(buffer);
}

/* The socket is full of the first answer, runs are under way; returns the worker, stopped. */
static pid_t leave_unread(struct harness *daemon, struct wire *wire, struct wire *watcher,
                          struct unread *ret_unread)
{
    msgpack_sbuffer buffer;
    pid_t worker;

    ret_unread->bytes = random_new(UNREAD_SIZE);
    msgpack_sbuffer_init(&buffer);
    ret_unread->first = wire_pack(wire, &buffer, "run", "['copy', {}, {}, [%b]]", ret_unread->bytes,
                                  (size_t)UNREAD_SIZE);
    send_deaf(wire, &buffer);
    HARNESS_WAIT(stat_of(watcher, "bytes_out") > 100000);
    worker = stop_worker(daemon);
    for (unsigned i = 0; i < N_LISTS; i++) {
        ret_unread->lists[i] = wire_pack(wire, &buffer, "op.list", "[]");
    }
    for (unsigned i = 0; i < N_UNREAD; i++) {
        ret_unread->runs[i] = wire_pack(wire, &buffer, "run", "['copy', {}, {}, [<1>]]");
    }
    send_deaf(wire, &buffer);
    msgpack_sbuffer_destroy(&buffer);
    HARNESS_WAIT(stat_of(watcher, "runs_total") == 1 + N_UNREAD);
    return worker;
}

/* Constants that leave less than two blocks of 8 KiB of its user's 48 MiB. */
static void fill_share(struct wire *holder)
{
    uint64_t room = 48 * MIB - (uint64_t)stat_of(holder, "pool_used");

    for (uint64_t size = 16 * MIB; size >= 8192; size /= 2) {
        for (; room >= size; room -= size) {
            char params[40];

            snprintf(params, sizeof(params), "[{}, [<%u>]]", (unsigned)size);
            wire_call(holder, "const.put", params);
        }
    }
    CHECK_EQ(stat_of(holder, "pool_used"), 48 * MIB - room);
}

/*
 * It waits behind others for a worker that does nothing, and nobody says anything: a run's deadline
 * was once not among what the clock ticks for.
 */
static void test_a_run_expires_while_nothing_happens(void)
{
    enum { N = 64 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = stop_worker(daemon);
    uint32_t runs[N], late;

    for (unsigned i = 0; i < N; i++) {
        runs[i] = wire_send(wire, "run", "['copy', {}, {priority: 'bulk'}, [<100>]]");
    }
    HARNESS_WAIT(stat_of(wire, "chunks_waiting_bulk") > 0);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* until nothing is timed */
    late =
        wire_send(wire, "run", "['copy', {}, {priority: 'bulk', deadline_ns: 1000000}, [<100>]]");
    wire_error_is(wire, late, "DEADLINE", "deadline");
    kill(worker, SIGCONT);
    for (unsigned i = 0; i < N; i++) {
        wire_output(wire_result(wire, runs[i]), 100);
    }
    await_nothing_left(wire);
}

/*
 * What it sent is all in the daemon's hands, so that no byte will tell of it; while it waited, its
 * unread answers became too many for it to be read.
 */
static void test_a_run_expires_while_answers_are_unread(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct unread unread;
    pid_t worker = leave_unread(daemon, wire, holder, &unread);
    msgpack_sbuffer buffer;
    uint32_t late, ping;

    fill_share(holder);
    msgpack_sbuffer_init(&buffer);
    late = wire_pack(wire, &buffer, "run", "['copy', {}, {deadline_ns: 3000000000}, [<8192>]]");
    ping = wire_pack(wire, &buffer, "ping", "[]");
    send_deaf(wire, &buffer);
    msgpack_sbuffer_destroy(&buffer);
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    CHECK_EQ(kill(worker, SIGCONT), 0);
    HARNESS_WAIT(stat_of(holder, "chunks_total") >= 1 + N_UNREAD);
    printf("# all answers are there; %d waits\n", (int)stat_of(holder, "pool_waiting"));
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 0);

    CHECK_MEM(wire_output(wire_result(wire, unread.first), UNREAD_SIZE), unread.bytes, UNREAD_SIZE);
    for (unsigned i = 0; i < N_LISTS; i++) {
        wire_result(wire, unread.lists[i]);
    }
    for (unsigned i = 0; i < N_UNREAD; i++) {
        wire_output(wire_result(wire, unread.runs[i]), 1);
    }
    wire_error_is(wire, late, "DEADLINE", "deadline");
    wire_result(wire, ping);
    wire_check_works(wire);
}

/* ---- a job's end ---------------------------------------------------------------------------- */

static void test_cancelled_by_another_while_a_push_arrives(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const msgpack_object *done;
    msgpack_sbuffer buffer;
    uint64_t job;
    uint32_t push;

    job = (uint64_t)wire_number(wire_call(wire, "job.open", "['copy']"), "job");
    msgpack_sbuffer_init(&buffer);
    push = wire_pack(wire, &buffer, "job.push", "[%lu, 0, {}, [<300000>]]", job);
    wire_send_bytes(wire, buffer.data, 200000);
    HARNESS_WAIT(stat_of(other, "bytes_in") > 200000);
    CHECK_STR(wire_text(wire_call(other, "job.cancel", "[%lu]", job), "state"), "cancelled");
    done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "cancelled");
    CHECK_EQ(wire_number(done, "1.pushes"), 0);
    wire_send_bytes(wire, buffer.data + 200000, buffer.size - 200000);
    msgpack_sbuffer_destroy(&buffer);
    wire_error_is(wire, push, "NOT_FOUND", "ended");
    await_nothing_left(wire);
}

/* Its chunk, or its fold, is at the worker when it is cancelled, twice: answers come once it is
 * back, and one of each. */
static void check_cancel_in_flight(const char *open, const char *push)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", open), "job");
    pid_t worker = stop_worker(daemon);
    const msgpack_object *params;

    if (push != NULL) {
        wire_call(wire, "job.push", push, job);
    }
    wire_call(wire, "job.close", "[%lu]", job);
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 1);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_STR(wire_text(wire_call(wire, "job.cancel", "[%lu]", job), "state"), "cancelled");
    }
    CHECK_GT(stat_of(wire, "pool_used"), 0);
    CHECK_EQ(wire_held(wire), 0);
    kill(worker, SIGCONT);
    if (push != NULL) {
        params = wire_notification(wire, "job.result");
        CHECK_STR(wire_error(wire_find(params, "2.error")).name, "CANCELLED");
    }
    params = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(params, "1.state"), "cancelled");
    CHECK(wire_find(params, "1.out") == NULL);
    wire_refused(wire, "NOT_FOUND", "or it has ended", "job.cancel", "[%lu]", job);
    CHECK_EQ(wire_held(wire), 0);
    await_nothing_left(wire);
}

static void test_cancel_with_a_chunk_in_flight(void)
{
    check_cancel_in_flight("['copy']", "[%lu, 0, {}, [<5000>]]");
}

static void test_cancel_with_leaves_in_flight(void)
{
    check_cancel_in_flight("['sum']", "[%lu, 0, {}, [<4000>]]");
}

static void test_cancel_with_a_fold_in_flight(void)
{
    check_cancel_in_flight("['sum']", NULL);
}

/* FINISH belongs to no push; its loss was answered as CANCELLED. */
static void test_a_run_whose_fold_is_lost(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = stop_worker(daemon);
    uint32_t run = wire_send(wire, "run", "['sum', {}, {}, [<0>]]");

    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 1);
    kill(worker, SIGKILL);
    wire_error_is(wire, run, "DEVICE_LOST", "sum");
    await_nothing_left(wire);
}

/* A merge may be left to issue in a job that has failed; its deadline then held the loop for ever.
 */
static void test_late_jobs_lose_their_worker(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    pid_t worker = 0;

    for (unsigned round = 0; round < 6; round++) {
        uint64_t job = (uint64_t)wire_number(
            wire_call(wire, "job.open",
                      "['sum', {}, {window: 16, max_push: 65536, deadline_ns: 150000000}]"),
            "job");
        msgpack_sbuffer buffer;

        worker = harness_await_worker(daemon, worker);
        msgpack_sbuffer_init(&buffer);
        for (uint64_t i = 0; i < 16; i++) {
            wire_pack(wire, &buffer, "job.push", "[%lu, %lu, {}, [<65536>]]", job, i);
        }
        wire_send_bytes(wire, buffer.data, buffer.size / 2);
        harness_signal(daemon, SIGSTOP);
        kill(worker, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 160000000}, NULL);
        harness_signal(daemon, SIGCONT);
        wire_send_bytes(wire, buffer.data + buffer.size / 2, buffer.size - buffer.size / 2);
        msgpack_sbuffer_destroy(&buffer);
        CHECK_EQ(wire_number(wire_notification(wire, "job.done"), "0"), job);
    }
    await_nothing_left(other);
}

/* ---- the daemon's end ----------------------------------------------------------------------- */

/* All pushes are answered, and the output is still to be made. */
static void test_sigterm_waits_for_the_last_fold(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", "['sum']"), "job");
    pid_t worker = stop_worker(daemon);
    const msgpack_object *done;

    wire_call(wire, "job.close", "[%lu]", job);
    harness_signal(daemon, SIGTERM);
    HARNESS_WAIT(harness_n_notified(daemon, "STOPPING=1") == 1);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    kill(worker, SIGCONT);
    done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "done");
    wire_output(wire_find(done, "1"), sizeof(double));
    CHECK_EQ(harness_wait_exit(daemon), 0);
}

/* A worker that hangs cannot hold the daemon, nor leave anything behind in it. */
static void test_sigterm_does_not_wait_for_ever(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *leaver = wire_connect(harness_socket(daemon));

    stop_worker(daemon);
    wire_send(wire, "run", "['copy', {}, {}, [<100000>]]");
    wire_send(leaver, "run", "['copy', {}, {}, [<100000>]]");
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 2);
    wire_close(leaver);
    harness_signal(daemon, SIGTERM);
    CHECK_EQ(harness_wait_exit(daemon), 0);
    CHECK_HAS(harness_log(daemon), "work in flight");
}

CHECK_MAIN(CHECK_TEST(test_a_run_expires_while_it_waits_for_room),
           CHECK_TEST(test_a_run_expires_while_it_arrives),
           CHECK_TEST(test_a_run_expires_while_answers_are_unread),
           CHECK_TEST(test_a_run_expires_while_nothing_happens),
           CHECK_TEST(test_a_small_run_need_not_wait_for_a_large_one),
           CHECK_TEST(test_who_waits_behind_a_client_that_leaves),
           CHECK_TEST(test_cancelled_by_another_while_a_push_arrives),
           CHECK_TEST(test_cancel_with_a_chunk_in_flight),
           CHECK_TEST(test_cancel_with_leaves_in_flight),
           CHECK_TEST(test_cancel_with_a_fold_in_flight), CHECK_TEST(test_a_run_whose_fold_is_lost),
           CHECK_TEST(test_late_jobs_lose_their_worker),
           CHECK_TEST(test_sigterm_waits_for_the_last_fold),
           CHECK_TEST(test_sigterm_does_not_wait_for_ever))
