/*
 * job.push as a notification: no answer when it is accepted; when it is refused, the job fails with
 * that error, after everything that was accepted before.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>

enum { SIZE = 4096 };

static uint64_t open_job(struct wire *wire, const char *params)
{
    return (uint64_t)wire_number(wire_call(wire, "job.open", params), "job");
}

static void notify_push(struct wire *wire, uint64_t job, uint64_t seq, const void *bytes)
{
    wire_notify(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes, (size_t)SIZE);
}

/* The result of this push, as a success. */
static void take_result(struct wire *wire, uint64_t job, uint64_t seq, const void *bytes)
{
    const msgpack_object *params = wire_notification(wire, "job.result");

    CHECK_EQ(wire_number(params, "0"), job);
    CHECK_EQ(wire_number(params, "1"), seq);
    CHECK_MEM(wire_output(wire_find(params, "2"), SIZE), bytes, SIZE);
}

/* The answer of a refused push, and the job's end; nothing else came, and the connection works. */
static void take_refusal(struct wire *wire, uint64_t job, uint64_t seq, const char *name,
                         const char *text)
{
    const msgpack_object *params = wire_notification(wire, "job.result");

    CHECK_EQ(wire_number(params, "0"), job);
    CHECK_EQ(wire_number(params, "1"), seq);
    CHECK_STR(wire_error(wire_find(params, "2.error")).name, name);
    CHECK_HAS(wire_error(wire_find(params, "2.error")).message, text);
    CHECK(wire_find(params, "2.out") == NULL);
    params = wire_notification(wire, "job.done");
    CHECK_EQ(wire_number(params, "0"), job);
    CHECK_STR(wire_text(params, "1.state"), "failed");
    CHECK_EQ(wire_number(params, "1.pushes"), seq + 1);
    CHECK_STR(wire_error(wire_find(params, "1.error")).name, name);
    wire_check_works(wire);
    CHECK_EQ(wire_held(wire), 0);
}

static void test_a_stream_without_answers(void)
{
    enum { N = 40 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['copy', {}, {window: 4}]");
    const uint8_t *bytes = random_new(N * SIZE);
    const msgpack_object *done;

    for (uint64_t seq = 0; seq < N; seq++) {
        if (seq >= 4) {
            take_result(wire, job, seq - 4, bytes + (seq - 4) * SIZE);
        }
        notify_push(wire, job, seq, bytes + seq * SIZE);
    }
    CHECK_EQ(wire_number(wire_call(wire, "job.close", "[%lu]", job), "pushed"), N);
    for (uint64_t seq = N - 4; seq < N; seq++) {
        take_result(wire, job, seq, bytes + seq * SIZE);
    }
    done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "done");
    CHECK_EQ(wire_number(done, "1.n"), N * SIZE);
    CHECK_EQ(wire_held(wire), 0); /* not one response */
}

/* What is wrong with a push, behind one that is right; %lu is the job. */
static const struct {
    const char *params;
    const char *error;
    const char *text;
} refused[] = {
    {"[%lu, 0, {}, [<4096>]]", "SEQ", "the next push is 1"},
    {"[%lu, 7, {}, [<4096>]]", "SEQ", "the next push is 1"},
    {"[%lu, 1, {}, [<70000>]]", "TOO_BIG", "max_push"},
    {"[%lu, 1, {n: 5}, [<4096>]]", "RANGE", "n is 5"},
    {"[%lu, 1, {}, []]", "INVALID_PARAM", "inputs"},
    {"[%lu, 1, {}, [<8>, <8>]]", "INVALID_PARAM", "inputs"},
    {"[%lu, 1, {}, [nil]]", "INVALID_PARAM", "neither"},
    {"[%lu, 1, {m: 5}, [<4096>]]", "INVALID_PARAM", "m"},
    {"[%lu, 1, {m: <7>}, [<4096>]]", "INVALID_PARAM", "bin"},
    {"[%lu, 'one', {}, [<4096>]]", "INVALID_PARAM", "seq"},
    {"[%lu]", "INVALID_PARAM", "seq"},
    {"[%lu, 1, {}, [<4096>], 5]", "INVALID_PARAM", "5"},
};

static void test_a_refused_one_fails_its_job(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const uint8_t *bytes = random_new(SIZE);

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        uint64_t job = open_job(wire, "['copy', {}, {max_push: 65536}]");

        printf("# %s: %s\n", refused[i].params, refused[i].error);
        notify_push(wire, job, 0, bytes);
        wire_notify(wire, "job.push", refused[i].params, job);
        take_result(wire, job, 0, bytes);
        take_refusal(wire, job, 1, refused[i].error, refused[i].text);
        wire_refused(wire, "NOT_FOUND", "job", "job.close", "[%lu]", job);
    }
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "pool_used") == 0);
}

static void test_one_without_credit_comes_after_the_window(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['copy', {}, {window: 2}]");
    const uint8_t *bytes = random_new(3 * SIZE);
    pid_t worker = harness_await_worker(daemon, 0);

    harness_pause(worker);
    for (uint64_t seq = 0; seq < 3; seq++) {
        notify_push(wire, job, seq, bytes + seq * SIZE);
    }
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[]"), "") == 1 &&
                 strcmp(wire_text(wire_call(wire, "job.list", "[]"), "0.state"), "failed") == 0);
    CHECK_EQ(wire_held(wire), 0);
    kill(worker, SIGCONT);
    take_result(wire, job, 0, bytes);
    take_result(wire, job, 1, bytes + SIZE);
    take_refusal(wire, job, 2, "NO_CREDIT", "window");
}

static void test_one_behind_the_end_of_input(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['copy']");
    const uint8_t *bytes = random_new(SIZE);
    pid_t worker = harness_await_worker(daemon, 0);

    harness_pause(worker);
    notify_push(wire, job, 0, bytes);
    wire_call(wire, "job.close", "[%lu]", job);
    notify_push(wire, job, 1, bytes);
    wire_call(wire, "ping", "[]");
    kill(worker, SIGCONT);
    take_result(wire, job, 0, bytes);
    take_refusal(wire, job, 1, "SEQ", "closed");
}

/* A reduce op's job has a fold under way when it fails. */
static void test_one_of_a_reduce_op(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['sum']");

    wire_notify(wire, "job.push", "[%lu, 0, {}, [<40>]]", job);
    wire_notify(wire, "job.push", "[%lu, 1, {}, [<40>]]", job);
    CHECK_EQ(wire_number(wire_notification(wire, "job.result"), "1"), 0);
    take_refusal(wire, job, 1, "RANGE", "multiple");
}

static void test_unknown_jobs_are_ignored(void)
{
    struct harness *daemon = harness_start();
    struct wire *owner = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(owner, "['copy']");
    const uint8_t *bytes = random_new(SIZE);

    notify_push(other, job, 0, bytes); /* another connection's */
    notify_push(other, job, 5, bytes);
    notify_push(other, job + 1, 0, bytes);
    notify_push(other, 0, 0, bytes);
    wire_notify(other, "job.push", "[]");
    wire_notify(other, "job.push", "['one', 0, {}, [<4096>]]");
    wire_notify(other, "job.push", "[-1, 0, {}, [<4096>]]");
    wire_notify(other, "job.push", "[<8>, 0, {}, [<4096>]]");
    wire_check_works(other);
    CHECK_EQ(wire_held(other), 0);
    notify_push(owner, job, 0, bytes);
    take_result(owner, job, 0, bytes);
    wire_call(owner, "job.cancel", "[%lu]", job);
    wire_notification(owner, "job.done");
    notify_push(owner, job, 1, bytes);
    wire_check_works(owner);
    CHECK_EQ(wire_held(owner), 0);
}

/* Its job is cancelled from outside while its payload is on the way. */
static void test_one_whose_job_ends_while_it_arrives(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['copy']");
    static const char head[] = "\x93\x02\xa8job.push\x94";
    uint8_t rest[] = {0, 0, 0x80, 0x91, 0xc4, 100, 1, 2, 3};

    CHECK_LT(job, 0x80);
    rest[0] = (uint8_t)job;
    wire_send_bytes(wire, head, sizeof(head) - 1);
    wire_send_bytes(wire, rest, sizeof(rest));
    wire_call(other, "job.cancel", "[%lu]", job);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "cancelled");
    wire_send_bytes(wire, random_new(97), 97);
    wire_check_works(wire);
    CHECK_EQ(wire_held(wire), 0);
}

static void test_other_methods_stay_requests(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = open_job(wire, "['copy']");

    wire_notify(wire, "job.cancel", "[%lu]", job);
    wire_notify(wire, "job.close", "[%lu]", job);
    wire_notify(wire, "run", "['copy', {}, {}, [<100000>]]");
    wire_notify(wire, "job.open", "['copy']");
    wire_check_works(wire);
    CHECK_EQ(wire_held(wire), 0);
    CHECK_EQ(wire_count(wire_call(wire, "job.list", "[]"), ""), 1);
    CHECK_STR(wire_text(wire_call(wire, "job.list", "[]"), "0.state"), "open");
}

CHECK_MAIN(CHECK_TEST(test_a_stream_without_answers), CHECK_TEST(test_a_refused_one_fails_its_job),
           CHECK_TEST(test_one_without_credit_comes_after_the_window),
           CHECK_TEST(test_one_behind_the_end_of_input), CHECK_TEST(test_one_of_a_reduce_op),
           CHECK_TEST(test_unknown_jobs_are_ignored),
           CHECK_TEST(test_one_whose_job_ends_while_it_arrives),
           CHECK_TEST(test_other_methods_stay_requests))
