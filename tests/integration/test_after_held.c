/*
 * Jobs after jobs: what is held has no room that anybody needs, can be ended, and is told when it
 * can never begin, wherever it is by then; the end of the daemon included.
 */
#include "proto/limits.h"
#include "tests/integration/after.h"

#include <signal.h>

/* ---- ends before the wait -------------------------------------------------------------------- */

static void test_after_one_that_has_ended_well(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *gone = wire_connect(harness_socket(daemon));
    const char *words = "['copy', {size: 4096}, {after: [%s, %lu]}, [%b]]";
    const void *data = random_new(SIZE);
    uint64_t foreign, job = open_job(wire, "");
    char token[33];

    snprintf(token, sizeof(token), "%s", open_with_token(gone, &foreign));
    wire_call(gone, "job.close", "[%lu]", foreign);
    check_done(gone, foreign, "done");
    wire_close(gone);
    wire_call(wire, "job.close", "[%lu]", job);
    check_done(wire, job, "done");
    HARNESS_WAIT(stat_of(wire, "sessions") == 1);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_MEM(wire_output(wire_call(wire, "run", words, token, job, data, (size_t)SIZE), SIZE),
                  data, SIZE);
    }
    /* This user ends as many as are remembered: the first is not, the last is. */
    for (unsigned i = 0; i < LIMIT_JOBS_REMEMBERED; i++) {
        foreign = open_job(wire, "");
        wire_call(wire, "job.close", "[%lu]", foreign);
        check_done(wire, foreign, "done");
    }
    wire_refused(wire, "NOT_FOUND", "no job has this token, or it ended too long ago", "run", words,
                 token, job, data, (size_t)SIZE);
    wire_refused(wire, "NOT_FOUND", "or it ended too long ago", "run",
                 "['copy', {}, {after: [%lu]}, [<1>]]", job);
    wire_call(wire, "run", "['copy', {}, {after: [%lu]}, [<1>]]", foreign);
}

/* ---- what is held ---------------------------------------------------------------------------- */

static void test_what_is_held_can_be_cancelled(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, ""), job = open_after(wire, first);

    push(wire, job, 0, data);
    CHECK_STR(wire_text(wire_call(wire, "job.cancel", "[%lu]", job), "state"), "cancelled");
    CHECK_STR(wire_error(wire_find(wire_notification(wire, "job.result"), "2.error")).name,
              "CANCELLED");
    check_done(wire, job, "cancelled");
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    push(wire, first, 0, data);
    check_result(wire, first, 0, data);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
}

static void test_deadlines_go_on_while_held(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, "");
    uint32_t run =
        wire_send(wire, "run", "['copy', {}, {after: [%lu], deadline_ns: 50000000}, [<9>]]", first);

    wire_error_is(wire, run, "DEADLINE", "the deadline passed");
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    push(wire, first, 0, data);
    check_result(wire, first, 0, data);
}

/* One of its pushes is late by then, the job goes on. */
static void test_a_push_is_late_while_held(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, ""), job = open_after(wire, first);

    wire_call(wire, "job.push", "[%lu, 0, {deadline_ns: 50000000}, [%b]]", job, data, (size_t)SIZE);
    push(wire, job, 1, data);
    CHECK_STR(wire_error(wire_find(wire_notification(wire, "job.result"), "2.error")).name,
              "DEADLINE");
    CHECK_EQ(held(wire, job), 1);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    check_result(wire, job, 1, data);
}

/* It waits for others, not for a device; of the memory and the places it has its share. */
static void test_what_is_held_is_not_what_waits(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, ""), job = open_after(wire, first);
    const msgpack_object *stats;

    push(wire, job, 0, data);
    push(wire, job, 1, data);
    CHECK_EQ(held(wire, job), 1);
    stats = wire_call(wire, "stats", "[]");
    CHECK_EQ(wire_number(stats, "jobs_held"), 1);
    CHECK_EQ(wire_number(stats, "queues.1.waiting"), 0);
    CHECK_EQ(wire_number(stats, "queues.1.waiting_size"), 0);
    CHECK_EQ(wire_number(stats, "queues.1.oldest_ns"), 0);
    CHECK_EQ(wire_number(stats, "queues.1.places"), 4);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    check_result(wire, job, 0, data);
    check_result(wire, job, 1, data);
}

/* What it was sent before it failed for itself is still its to compute, when its turn comes. */
static void test_what_fails_while_held_answers_later(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, ""), job = open_after(wire, first);

    push(wire, job, 0, data);
    wire_notify(wire, "job.push", "[%lu, 1, {}, [<6000>]]", job);
    CHECK_EQ(held(wire, job), 1);
    CHECK_EQ(wire_held(wire), 0);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    check_result(wire, job, 0, data);
    CHECK_STR(wire_error(wire_find(wire_notification(wire, "job.result"), "2.error")).name,
              "RANGE");
    check_done(wire, job, "failed");
}

/* A sum of nothing has work, too: one record is made of it. */
static void test_a_reduce_op_waits_with_its_end(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t first = open_job(wire, "");
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['sum', {}, {" SMALL ", after: [%lu]}]", first), "job");
    size_t size;

    wire_call(wire, "job.close", "[%lu]", job);
    CHECK_EQ(held(wire, job), 1);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    const msgpack_object *done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "done");
    wire_bytes(done, "1.out.0", &size);
    CHECK_GT(size, 0);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* All the pushes that it may have unanswered, and one that is refused; then no more. */
static void fill_window(struct wire *wire, const msgpack_object *opened)
{
    uint64_t job = (uint64_t)wire_number(opened, "job"), size = wire_number(opened, "max_push");
    uint64_t credit = (uint64_t)wire_number(opened, "credit");
    const void *data = random_new(size);

    for (uint64_t seq = 0; seq < credit; seq++) {
        wire_notify(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, data, (size_t)size);
    }
    wire_refused(wire, "NO_CREDIT", "", "job.push", "[%lu, %lu, {}, [<4096>]]", job, credit);
    wire_call(wire, "job.close", "[%lu]", job);
}

/*
 * The smallest pool, and as many waiters as it has room for, each with all its pushes: the job that
 * they wait for has what it needs since it was opened.
 */
static void test_waiters_leave_room_for_whom_they_wait(void)
{
    enum { MOST = LIMIT_JOBS };
    struct harness *daemon = harness_start("--pinned-pool", "64M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t first = open_job(wire, "");
    unsigned n = 0;

    for (; n < MOST; n++) {
        uint32_t msgid = wire_send(wire, "job.open",
                                   "['copy', {size: 4096}, {window: 8, max_push: 262144, after: "
                                   "[%lu]}]",
                                   first);
        const msgpack_object *response = wire_response(wire, msgid);

        if (wire_find(response, "2")->type != MSGPACK_OBJECT_NIL) {
            break;
        }
        fill_window(wire, wire_find(response, "3"));
    }
    printf("# %u waiters have all but all of the pool\n", n);
    CHECK_GT(n, 4);
    for (uint64_t seq = 0; seq < 5; seq++) {
        push(wire, first, seq, data);
        check_result(wire, first, seq, data);
    }
    CHECK_EQ(stat_of(wire, "jobs_held"), n);
    CHECK_EQ(stat_of(wire, "chunks_waiting_normal"), 0);
    wire_call(wire, "job.close", "[%lu]", first);
    for (unsigned i = 0; i < n + 1; i++) {
        CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "done");
    }
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    wire_check_works(wire);
}

/* Jobs with these options until there is no room for the least of them. */
static void hold_all(struct wire *wire, const char *options)
{
    char words[128];

    snprintf(words, sizeof(words), "['copy', {size: 4096}, {window: 64%s}]", options);
    for (;;) {
        uint32_t msgid = wire_send(wire, "job.open", words);

        if (wire_find(wire_response(wire, msgid), "2")->type != MSGPACK_OBJECT_NIL) {
            return;
        }
    }
}

/* Whoever waits has the room that a run wants: who is to end the wait is read on from. */
static void test_a_run_does_not_wait_for_who_waits_for_it(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "64M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const char *words = "['copy', {size: 4096}, {}, [%b]]";
    const void *data = random_new(SIZE);
    char options[64];
    uint64_t first;

    snprintf(options, sizeof(options), ", after: ['%s']", open_with_token(wire, &first));
    hold_all(other, options);
    wire_refused(wire, "BUSY", "others wait for job", "run", words, data, (size_t)SIZE);
    push(wire, first, 0, data);
    check_result(wire, first, 0, data);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    wire_close(other);
    CHECK_MEM(wire_output(wire_call(wire, "run", words, data, (size_t)SIZE), SIZE), data, SIZE);
}

/* The same where the run was there before anybody waited. */
static void test_a_run_that_waits_gives_up_when_it_is_awaited(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "64M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *holder = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    char token[33];
    uint64_t first, job;

    snprintf(token, sizeof(token), "%s", open_with_token(wire, &first));
    hold_all(holder, "");
    uint32_t run = wire_send(wire, "run", "['copy', {}, {}, [<65536>]]"); /* fits a socket */
    HARNESS_WAIT(stat_of(holder, "pool_waiting") == 1);
    job = (uint64_t)wire_number(
        wire_call(other, "job.open", "['copy', {}, {inline: false, after: [%s]}]", token), "job");
    wire_error_is(wire, run, "BUSY", "others wait for job");
    wire_call(other, "job.close", "[%lu]", job);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    check_done(other, job, "done");
}

/* ---- on their way -----------------------------------------------------------------------------
 */

/* The whole message but for its last bytes, which are sent by send_rest(). */
static void send_most(struct wire *wire, const msgpack_sbuffer *buffer)
{
    CHECK(wire_send_bytes(wire, buffer->data, buffer->size - 100));
}

static void send_rest(struct wire *wire, msgpack_sbuffer *buffer)
{
    CHECK(wire_send_bytes(wire, buffer->data + buffer->size - 100, 100));
    msgpack_sbuffer_destroy(buffer);
}

/* The other job ends badly while this work is being received, or waits for room. */
static void test_work_that_is_not_all_here(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *runner = wire_connect(harness_socket(daemon));
    struct wire *pusher = wire_connect(harness_socket(daemon));
    struct wire *waiter = wire_connect(harness_socket(daemon));
    msgpack_sbuffer run, half;
    char token[33], options[64];
    uint64_t first, job;

    snprintf(token, sizeof(token), "%s", open_with_token(wire, &first));
    snprintf(options, sizeof(options), ", after: ['%s']", token);
    job = open_job(pusher, options);
    msgpack_sbuffer_init(&run);
    msgpack_sbuffer_init(&half);
    uint32_t run_id =
        wire_pack(runner, &run, "run", "['copy', {}, {after: [%s]}, [<65536>]]", token);
    uint32_t push_id = wire_pack(pusher, &half, "job.push", "[%lu, 0, {}, [<65536>]]", job);
    send_most(runner, &run);
    send_most(pusher, &half);
    HARNESS_WAIT(stat_of(wire, "jobs_held") == 2);
    hold_all(wire, "");
    uint32_t waiting = wire_send(waiter, "run", "['copy', {}, {after: [%s]}, [<65536>]]", token);
    HARNESS_WAIT(stat_of(wire, "pool_waiting") == 1);
    CHECK_EQ(stat_of(wire, "jobs_held"), 3);

    wire_call(wire, "job.cancel", "[%lu]", first);
    check_not_begun(wire_find(wire_response(waiter, waiting), "2"), first, "was cancelled");
    check_failed(pusher, job, 0, first, "was cancelled");
    CHECK_EQ(stat_of(wire, "jobs_held"), 0);
    send_rest(runner, &run);
    check_not_begun(wire_find(wire_response(runner, run_id), "2"), first, "was cancelled");
    send_rest(pusher, &half);
    wire_error_is(pusher, push_id, "NOT_FOUND", "");
    wire_close(wire);
    wire_check_works(runner);
    wire_check_works(pusher);
    wire_check_works(waiter);
}

/* ---- the daemon's end ------------------------------------------------------------------------ */

static void check_listed(struct wire *wire, uint64_t job, const char *state, int64_t n_unanswered)
{
    const msgpack_object *list = wire_call(wire, "job.list", "[]");

    CHECK_EQ(wire_count(list, ""), 1);
    CHECK_EQ(wire_number(list, "0.job"), job);
    CHECK_STR(wire_text(list, "0.state"), state);
    CHECK_EQ(wire_number(list, "0.pushed") - wire_number(list, "0.done"), n_unanswered);
}

/*
 * A daemon that stops does not wait for a job to be closed, so what is after that one need not wait
 * either, though there is other work to finish.  What is after closed jobs is finished with them.
 */
static void test_sigterm_waits_for_nobody_to_close_a_job(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const void *data = random_new(SIZE);
    uint64_t open = open_job(wire, ""), job = open_after(wire, open), last = open_after(wire, job);
    uint64_t closed = open_job(other, ""), good = open_after(other, closed);
    uint32_t run = wire_send(wire, "run", "['copy', {}, {after: [%lu]}, [<100>]]", open);
    pid_t worker = harness_worker(daemon);

    harness_pause(worker);
    push(wire, open, 0, data);
    push(wire, job, 0, data);
    wire_call(wire, "job.close", "[%lu]", job);
    push(wire, last, 0, data);
    push(other, closed, 0, data);
    wire_call(other, "job.close", "[%lu]", closed);
    push(other, good, 0, data);
    wire_call(other, "job.close", "[%lu]", good);
    CHECK_EQ(stat_of(wire, "jobs_held"), 4);

    harness_signal(daemon, SIGTERM);
    check_not_begun(wire_find(wire_response(wire, run), "2"), open, "is still open");
    check_failed(wire, job, 1, open, "is still open");
    check_failed(wire, last, 1, job, "failed");
    check_listed(wire, open, "open", 1);
    kill(worker, SIGCONT);
    check_result(wire, open, 0, data);
    check_result(other, closed, 0, data);
    check_done(other, closed, "done");
    check_result(other, good, 0, data);
    check_done(other, good, "done");
    CHECK_EQ(harness_wait_exit(daemon), 0);
    CHECK(strstr(harness_log(daemon), "work in flight") == NULL);
}

CHECK_MAIN(CHECK_TEST(test_after_one_that_has_ended_well),
           CHECK_TEST(test_what_is_held_can_be_cancelled),
           CHECK_TEST(test_deadlines_go_on_while_held), CHECK_TEST(test_a_push_is_late_while_held),
           CHECK_TEST(test_what_is_held_is_not_what_waits),
           CHECK_TEST(test_what_fails_while_held_answers_later),
           CHECK_TEST(test_a_reduce_op_waits_with_its_end),
           CHECK_TEST(test_waiters_leave_room_for_whom_they_wait),
           CHECK_TEST(test_a_run_does_not_wait_for_who_waits_for_it),
           CHECK_TEST(test_a_run_that_waits_gives_up_when_it_is_awaited),
           CHECK_TEST(test_work_that_is_not_all_here),
           CHECK_TEST(test_sigterm_waits_for_nobody_to_close_a_job))
