/*
 * Deadlines: what is late gets no more chunks and is answered, with what was done; and nobody else
 * notices.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include "proto/status.h"

#include <math.h>
#include <signal.h>

enum { MIB = 1 << 20, BLOCK = RING_CLIENT_BLOCK, N_BULK = 64, POISON = 0xa5 };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

static void check_status(const struct ring_completion *completion, uint64_t tag, enum status status)
{
    CHECK_EQ(completion->tag, tag);
    CHECK_STR(status_name(completion->status), status_name(status));
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* A worker that does nothing has all the bulk work that it takes, so that more waits. */
struct jam {
    struct wire *wire;
    pid_t worker;
    uint32_t runs[N_BULK];
};

static void make_jam(struct jam *jam, struct harness *daemon)
{
    jam->wire = wire_connect(harness_socket(daemon));
    jam->worker = harness_await_worker(daemon, 0);
    harness_pause(jam->worker);
    for (unsigned i = 0; i < N_BULK; i++) {
        jam->runs[i] = wire_send(jam->wire, "run", "['copy', {}, {priority: 'bulk'}, [<100>]]");
    }
    HARNESS_WAIT(stat_of(jam->wire, "chunks_waiting_bulk") > 0);
}

static void end_jam(struct jam *jam)
{
    kill(jam->worker, SIGCONT);
    for (unsigned i = 0; i < N_BULK; i++) {
        wire_output(wire_result(jam->wire, jam->runs[i]), 100);
    }
}

static void test_a_late_descriptor_is_answered_and_its_job_goes_on(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = ring_client_open_copy(wire, ", window: 4, priority: 'bulk', ordered: false");
    struct ring_desc descs[3];
    struct ring_completion completion;
    struct jam jam;

    random_bytes(ring->data, MIB / 2);
    memset(ring->data + MIB / 2, POISON, MIB / 2);
    make_jam(&jam, daemon);
    for (unsigned i = 0; i < 3; i++) {
        descs[i] = ring_client_copy(job, i * BLOCK, MIB / 2 + i * BLOCK, 1);
        descs[i].tag = i;
    }
    descs[1].deadline_ns = 1000000;
    descs[2].deadline_ns = LIMIT_DEADLINE * UINT64_C(1000000);
    ring_client_submit(ring, descs, 3);
    completion = ring_client_reap(ring); /* while the worker still does nothing */
    check_status(&completion, 1, STATUS_DEADLINE);
    CHECK_EQ(completion.n_records, 0);
    CHECK_EQ(completion.out_size[0], 0);
    end_jam(&jam);
    for (unsigned i = 0; i < 2; i++) {
        completion = ring_client_reap(ring);
        check_status(&completion, completion.tag == 0 ? 0 : 2, STATUS_OK);
    }
    CHECK_MEM(ring->data + MIB / 2, ring->data, BLOCK);
    CHECK_MEM(ring->data + MIB / 2 + 2 * BLOCK, ring->data + 2 * BLOCK, BLOCK);
    for (unsigned i = 0; i < BLOCK; i++) {
        CHECK_EQ(ring->data[MIB / 2 + BLOCK + i], POISON);
    }
    ring_client_check_works(ring, job);
}

/* In order: its answer waits for those before it. */
static void test_a_late_push_is_answered_and_its_job_goes_on(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['copy', {}, {window: 3, priority: 'bulk'}]"), "job");
    uint8_t *bytes = random_new(3000);
    const msgpack_object *result;
    struct jam jam;

    wire_call(wire, "hello", "[{errors: 'structured'}]");
    make_jam(&jam, daemon);
    wire_call(wire, "job.push", "[%lu, 0, {deadline_ns: 1000000}, [%b]]", job, bytes, (size_t)1000);
    wire_call(wire, "job.push", "[%lu, 1, {}, [%b]]", job, bytes + 1000, (size_t)1000);
    result = wire_notification(wire, "job.result");
    CHECK_EQ(wire_number(result, "1"), 0);
    CHECK_EQ(wire_number(result, "2.n"), 0);
    CHECK_EQ(wire_number(result, "2.credit"), 1);
    CHECK_STR(wire_error(wire_find(result, "2.error")).name, "DEADLINE");
    CHECK_HAS(wire_error(wire_find(result, "2.error")).message, "0 of 1000 records");
    wire_call(wire, "job.push", "[%lu, 2, {}, [%b]]", job, bytes + 2000, (size_t)1000);
    end_jam(&jam);
    for (unsigned i = 1; i < 3; i++) {
        result = wire_notification(wire, "job.result");
        CHECK_EQ(wire_number(result, "1"), i);
        CHECK_MEM(wire_output(wire_find(result, "2"), 1000), bytes + i * 1000, 1000);
    }
    wire_call(wire, "job.close", "[%lu]", job);
    result = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(result, "1.state"), "done");
    CHECK_EQ(wire_number(result, "1.n"), 2000);
    CHECK_EQ(wire_number(result, "1.pushes"), 3);
}

/* Its answer is CANCELLED, and the only one. */
static void test_cancel_of_a_job_with_a_deadline_that_waits(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = ring_client_open_copy(wire, ", window: 4, priority: 'bulk'");
    struct ring_desc desc = ring_client_copy(job, 0, MIB / 2, 1);
    struct ring_completion completion;
    struct jam jam;

    make_jam(&jam, daemon);
    desc.deadline_ns = LIMIT_DEADLINE * UINT64_C(1000000);
    ring_client_submit(ring, &desc, 1);
    HARNESS_WAIT(stat_of(wire, "pushes_total") == N_BULK + 1);
    wire_call(wire, "job.cancel", "[%lu]", job);
    completion = ring_client_reap(ring); /* at once, as it is not at the worker */
    check_status(&completion, desc.tag, STATUS_CANCELLED);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "cancelled");
    end_jam(&jam);
    ring_client_is_empty(ring);
}

/* ---- running -------------------------------------------------------------------------------- */

/* v tends to 2 within 150 steps, and no more of them change it. */
static float iterated(float x)
{
    float v = x;

    for (unsigned i = 0; i < 1000; i++) {
        v = v * 0.5f + 1.0f;
    }
    return x + v;
}

static void skip_where_it_is_quick(void)
{
    if (strcmp(harness_backend(), "cuda") == 0) {
        CHECK_SKIP("a GPU is done with it in time");
    }
}

/* It takes minutes, and ends after some of its chunks: those are there, and nothing behind them. */
static void test_a_late_descriptor_has_what_was_done(void)
{
    enum { N = 4 * MIB };
    skip_where_it_is_quick();
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 32 * MIB);
    float *in = (float *)(void *)ring->data, *out = in + N;
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['iterate', {n: 50000}, {inline: false}]"), "job");
    struct ring_desc desc = {.job = (uint32_t)job,
                             .tag = 7,
                             .n_records = N,
                             .out = {N * sizeof(float) / RING_ALIGN},
                             .deadline_ns = 100000000};
    struct ring_completion completion;

    for (unsigned i = 0; i < N; i++) {
        in[i] = (float)random_below(1 << 20) / 1024;
    }
    memset(out, POISON, N * sizeof(float));
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    check_status(&completion, 7, STATUS_DEADLINE);
    printf("# %u of %u records were done\n", completion.n_records, N);
    CHECK_GT(N, completion.n_records);
    CHECK_EQ(completion.out_size[0], completion.n_records * sizeof(float));
    for (unsigned i = 0; i < completion.n_records; i++) {
        CHECK(out[i] == iterated(in[i]));
    }
    for (uint8_t *at = (uint8_t *)(out + completion.n_records); at < (uint8_t *)(out + N); at++) {
        CHECK_EQ(*at, POISON);
    }
    desc.deadline_ns = 0;
    desc.n_records = 16;
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    check_status(&completion, 7, STATUS_OK);
}

static void test_a_late_run_says_what_was_done(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *error;
    uint64_t deadline_ns = 50000000;
    uint32_t run;

    skip_where_it_is_quick();
    wire_call(wire, "hello", "[{errors: 'structured'}]");
    do { /* until there were some chunks before it was late */
        deadline_ns *= 2;
        run = wire_send(wire, "run", "['iterate', {n: 50000}, {deadline_ns: %lu}, [<8388608>]]",
                        deadline_ns);
        error = wire_find(wire_response(wire, run), "2");
        CHECK_STR(wire_error(error).name, "DEADLINE");
    } while (wire_find(error, "2.done") == NULL);
    CHECK_HAS(wire_error(error).message, "of 2097152 records were done");
    CHECK_GT(2097152, wire_number(error, "2.done"));
    CHECK_GT(wire_number(error, "2.done"), 0);
    wire_check_works(wire);
}

/* ---- admission ------------------------------------------------------------------------------ */

/* The op was measured: 16 Ki records of it take ms on any CPU. */
#define SLOW "'iterate', {n: 50000}"

static void measure(struct wire *wire)
{
    wire_call(wire, "hello", "[{errors: 'structured'}]");
    wire_call(wire, "run", "[" SLOW ", {deadline_ns: 600000000000000}, [<65536>]]");
}

/* An error's details, of what was not admitted. */
static const msgpack_object *check_refused(const msgpack_object *error, uint64_t deadline_ns)
{
    const msgpack_object *details = wire_find(error, "2");

    CHECK_STR(wire_error(error).name, "DEADLINE");
    CHECK_STR(wire_error(error).field, "admit");
    CHECK_GT(wire_number(details, "predicted_ns"), deadline_ns);
    return details;
}

static void test_what_takes_too_long_is_refused_at_once(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *details;
    uint64_t n_chunks;
    uint32_t request;

    measure(wire);
    n_chunks = stat_of(wire, "chunks_total");
    request =
        wire_send(wire, "run", "[" SLOW ", {admit: true, deadline_ns: 1000000}, [<8388608>]]");
    details = check_refused(wire_find(wire_response(wire, request), "2"), 1000000);
    CHECK(wire_find(details, "retry_ms") == NULL); /* it takes too long even alone */
    CHECK(wire_find(details, "done") == NULL);
    request = wire_send(wire, "job.open",
                        "[" SLOW ", {admit: true, deadline_ns: 1000000, total: 1000000000}]");
    check_refused(wire_find(wire_response(wire, request), "2"), 1000000);
    CHECK_EQ(stat_of(wire, "chunks_total"), n_chunks);
    CHECK_EQ(stat_of(wire, "jobs"), 0);
    CHECK_EQ(stat_of(wire, "pool_used"), 0);
    /* What there is time for, and what nobody has measured, comes in. */
    wire_call(wire, "run", "[" SLOW ", {admit: true, deadline_ns: 600000000000000}, [<65536>]]");
    wire_refused(wire, "DEADLINE", "0 of 16 records", "run",
                 "['iterate', {n: 51}, {admit: true, deadline_ns: 1}, [<64>]]");
    wire_refused(wire, "INVALID_PARAM", "add deadline_ns", "run",
                 "['copy', {}, {admit: true}, [<64>]]");
    wire_refused(wire, "INVALID_PARAM", "must be", "run",
                 "['copy', {}, {admit: 1, deadline_ns: 1000000000}, [<64>]]");
}

/* What a small run would take now. */
static uint64_t predicted(struct wire *wire)
{
    uint32_t request = wire_send(wire, "run", "[" SLOW ", {admit: true, deadline_ns: 1}, [<64>]]");

    return (uint64_t)wire_number(check_refused(wire_find(wire_response(wire, request), "2"), 1),
                                 "predicted_ns");
}

/* Though the daemon keeps what it made of a run's words for the next one of the same. */
static void test_what_a_run_has_measured_others_know(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint32_t run;

    wire_call(other, "hello", "[{errors: 'structured'}]");
    wire_call(wire, "run", "[" SLOW ", {}, [<65536>]]");
    run = wire_send(other, "run", "[" SLOW ", {admit: true, deadline_ns: 1}, [<64>]]");
    check_refused(wire_find(wire_response(other, run), "2"), 1);
}

/* The worker stands still, and there is much for it.  When that is gone, who was refused comes in.
 */
static void test_what_waits_too_long_is_refused_at_once(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint64_t job, alone_ns, behind_ns;
    const msgpack_object *error;
    uint32_t run;
    pid_t worker;

    measure(wire);
    alone_ns = predicted(wire);
    worker = harness_await_worker(daemon, 0);
    harness_pause(worker);
    job = (uint64_t)wire_number(wire_call(other, "job.open",
                                          "[" SLOW
                                          ", {priority: 'urgent', window: 4, max_push: 2097152}]"),
                                "job");
    for (uint64_t i = 0; i < 4; i++) {
        wire_call(other, "job.push", "[%lu, %lu, {}, [<2097152>]]", job, i);
    }
    behind_ns = predicted(wire);
    printf("# it takes %.3f ms, and behind others %.3f\n", (double)alone_ns / 1e6,
           (double)behind_ns / 1e6);
    CHECK_GT(behind_ns, 2 * alone_ns);
    run = wire_send(wire, "run", "[" SLOW ", {admit: true, deadline_ns: %lu}, [<64>]]",
                    behind_ns / 2);
    error = wire_find(wire_response(wire, run), "2");
    CHECK_GT(wire_number(check_refused(error, behind_ns / 2), "retry_ms"), 0);
    wire_call(other, "job.cancel", "[%lu]", job);
    kill(worker, SIGCONT);
    wire_notification(other, "job.done");
    while (predicted(wire) > behind_ns / 2) { /* how busy it was is forgotten in a moment */
        wire_check_works(other);
    }
}

/* Each descriptor and push for itself; the job goes on. */
static void test_pushes_are_admitted_one_by_one(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 32 * MIB);
    struct ring_completion completion;
    struct ring_desc desc = {.tag = 5, .n_records = 4 * MIB, .out = {16 * MIB / RING_ALIGN}};
    uint64_t job;
    uint32_t push;

    measure(wire);
    desc.job = (uint32_t)wire_number(
        wire_call(wire, "job.open", "[" SLOW ", {admit: true, inline: false}]"), "job");
    desc.deadline_ns = 1000000;
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    check_status(&completion, 5, STATUS_DEADLINE);
    CHECK_EQ(completion.n_records, 0);
    CHECK_EQ(completion.devices, 0);
    desc.n_records = 16;
    desc.deadline_ns = LIMIT_DEADLINE * UINT64_C(1000000);
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    check_status(&completion, 5, STATUS_OK);
    job = (uint64_t)wire_number(wire_call(wire, "job.open", "[" SLOW ", {admit: true}]"), "job");
    push = wire_send(wire, "job.push", "[%lu, 0, {deadline_ns: 1000000}, [<4194304>]]", job);
    check_refused(wire_find(wire_response(wire, push), "2"), 1000000);
    wire_call(wire, "job.push", "[%lu, 0, {}, [<64>]]", job); /* the same seq */
    wire_output(wire_find(wire_notification(wire, "job.result"), "2"), 64);
}

/* What a small push of the job would take now. */
static uint64_t predicted_push(struct wire *wire, uint64_t job, uint64_t seq)
{
    uint32_t push = wire_send(wire, "job.push", "[%lu, %lu, {deadline_ns: 1}, [<64>]]", job, seq);

    return (uint64_t)wire_number(check_refused(wire_find(wire_response(wire, push), "2"), 1),
                                 "predicted_ns");
}

/* A job that is held is not among those that wait for a device, but goes through its own queue. */
static void test_the_own_queue_counts_while_held(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t first, job, alone_ns;

    measure(wire);
    first = (uint64_t)wire_number(wire_call(wire, "job.open", "['copy', {}, {}]"), "job");
    job = (uint64_t)wire_number(wire_call(wire, "job.open",
                                          "[" SLOW ", {admit: true, after: [%lu], window: 4, "
                                          "max_push: 2097152}]",
                                          first),
                                "job");
    alone_ns = predicted_push(wire, job, 0);
    for (uint64_t i = 0; i < 3; i++) {
        wire_call(wire, "job.push", "[%lu, %lu, {}, [<2097152>]]", job, i);
    }
    CHECK_GT(predicted_push(wire, job, 3), 2 * alone_ns);
}

/* ---- what cannot be ------------------------------------------------------------------------- */

static void test_absurd_deadlines(void)
{
    static const struct {
        const char *deadline, *name, *text;
    } rows[] = {
        {"-1", "RANGE", "-1 is less than 0"},
        {"604800000000001", "RANGE", "in 604800001 ms: at most 604800000 (deadline_ms)"},
        {"604801000000000", "RANGE", "at most 604800000 (deadline_ms)"},
        {"9007199254740991", "RANGE", "at most 604800000 (deadline_ms)"},
        {"9007199254740992", "RANGE", "is more than"},
        {"1.5", "INVALID_PARAM", "must be an integer"},
        {"nan", "INVALID_PARAM", "must be an integer"},
        {"-inf", "INVALID_PARAM", "must be an integer"},
        {"'soon'", "INVALID_PARAM", "must be an integer"},
        {"true", "INVALID_PARAM", "must be an integer"},
        {"[]", "INVALID_PARAM", "must be an integer"},
    };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", "['copy']"), "job");
    uint64_t sum = (uint64_t)wire_number(wire_call(wire, "job.open", "['sum']"), "job");

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char params[128];

        snprintf(params, sizeof(params), "['copy', {}, {deadline_ns: %s}, [<5>]]",
                 rows[i].deadline);
        wire_refused(wire, rows[i].name, rows[i].text, "run", params);
        snprintf(params, sizeof(params), "['copy', {}, {deadline_ns: %s}]", rows[i].deadline);
        wire_refused(wire, rows[i].name, rows[i].text, "job.open", params);
        snprintf(params, sizeof(params), "[%%lu, 0, {deadline_ns: %s}, [<5>]]", rows[i].deadline);
        wire_refused(wire, rows[i].name, rows[i].text, "job.push", params, job);
    }
    wire_refused(wire, "INVALID_PARAM", "give the deadline to the job", "job.push",
                 "[%lu, 0, {deadline_ns: 1000000000}, [<8>]]", sum);
    wire_call(wire, "job.push", "[%lu, 0, {deadline_ns: 604800000000000}, [<5>]]", job);
    wire_output(wire_find(wire_notification(wire, "job.result"), "2"), 5);
}

CHECK_MAIN(CHECK_TEST(test_a_late_descriptor_is_answered_and_its_job_goes_on),
           CHECK_TEST(test_a_late_push_is_answered_and_its_job_goes_on),
           CHECK_TEST(test_cancel_of_a_job_with_a_deadline_that_waits),
           CHECK_TEST(test_a_late_descriptor_has_what_was_done),
           CHECK_TEST(test_a_late_run_says_what_was_done), CHECK_TEST(test_absurd_deadlines),
           CHECK_TEST(test_what_takes_too_long_is_refused_at_once),
           CHECK_TEST(test_what_a_run_has_measured_others_know),
           CHECK_TEST(test_what_waits_too_long_is_refused_at_once),
           CHECK_TEST(test_pushes_are_admitted_one_by_one),
           CHECK_TEST(test_the_own_queue_counts_while_held))
