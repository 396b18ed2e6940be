/*
 * Streaming jobs: pushes and credits, results in order, exactly one end, and what goes wrong in
 * between.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

struct job {
    struct wire *wire;
    uint64_t id;
    unsigned credit;
    unsigned window; /* credit as opened */
    uint64_t seq;    /* of the next push */
    uint64_t n_results;
};

static struct job opened_job(struct wire *wire, const msgpack_object *opened)
{
    unsigned credit = (unsigned)wire_number(opened, "credit");

    CHECK_GE(credit, 1);
    return (struct job){.wire = wire,
                        .id = (uint64_t)wire_number(opened, "job"),
                        .credit = credit,
                        .window = credit};
}

static struct job open_job(struct wire *wire, const char *params)
{
    return opened_job(wire, wire_call(wire, "job.open", params));
}

/* Take the next result, which must be the next in order and a success. */
static const msgpack_object *take_result(struct job *job)
{
    const msgpack_object *params = wire_notification(job->wire, "job.result");

    CHECK_EQ(wire_number(params, "0"), job->id);
    CHECK_EQ(wire_number(params, "1"), job->n_results);
    CHECK(wire_find(params, "2.error") == NULL);
    job->n_results++;
    job->credit += (unsigned)wire_number(params, "2.credit");
    return wire_find(params, "2");
}

/* One push of one array, with its reply. */
static void push(struct job *job, const void *bytes, size_t size)
{
    CHECK_GT(job->credit, 0);
    wire_call(job->wire, "job.push", "[%lu, %lu, {}, [%b]]", job->id, job->seq, bytes, size);
    job->seq++;
    job->credit--;
}

static void close_job(struct job *job)
{
    const msgpack_object *closed = wire_call(job->wire, "job.close", "[%lu]", job->id);

    CHECK_EQ(wire_number(closed, "pushed"), job->seq);
}

/* The end of this job; it must be the last word about it. */
static const msgpack_object *take_done(struct job *job, const char *state)
{
    const msgpack_object *params = wire_notification(job->wire, "job.done");

    CHECK_EQ(wire_number(params, "0"), job->id);
    CHECK_STR(wire_text(params, "1.state"), state);
    wire_call(job->wire, "ping", "[]");
    CHECK_EQ(wire_held(job->wire), 0);
    wire_refused(job->wire, "NOT_FOUND", "job", "job.close", "[%lu]", job->id);
    return wire_find(params, "1");
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Random bytes through copy, in pushes of random sizes. */
static void stream_copy(struct wire *wire, int window, unsigned n_pushes, size_t most)
{
    struct job job =
        opened_job(wire, wire_call(wire, "job.open", "['copy', {}, {window: %d}]", window));
    uint8_t *bytes = random_new(n_pushes * most);
    size_t sizes[256], sent = 0, received = 0;
    const msgpack_object *done;

    CHECK_LE(job.window, window);
    CHECK_LE(n_pushes, 256);
    while (job.n_results < n_pushes) {
        if (job.credit > 0 && job.seq < n_pushes) {
            size_t size = sizes[job.seq] = 1 + random_below(most);

            push(&job, bytes + sent, size);
            sent += size;
        } else {
            size_t size = sizes[job.n_results];

            CHECK_MEM(wire_output(take_result(&job), size), bytes + received, size);
            received += size;
        }
    }
    close_job(&job);
    CHECK_EQ(job.credit, job.window);
    done = take_done(&job, "done");
    CHECK_EQ(wire_number(done, "pushes"), n_pushes);
    CHECK_EQ(wire_number(done, "n"), sent);
}

static void test_a_stream_with_window_one(void)
{
    struct harness *daemon = harness_start();

    stream_copy(wire_connect(harness_socket(daemon)), 1, 20, 100000);
}

static void test_a_stream_with_the_usual_window(void)
{
    struct harness *daemon = harness_start();

    stream_copy(wire_connect(harness_socket(daemon)), LIMIT_WINDOW_DEFAULT, 40, 1000000);
}

static void test_a_stream_with_the_largest_window(void)
{
    struct harness *daemon = harness_start();

    stream_copy(wire_connect(harness_socket(daemon)), LIMIT_WINDOW, 200, 20000);
}

static void test_two_jobs_side_by_side(void)
{
    enum { N = 20, SIZE = 50000 };
    struct harness *daemon = harness_start();
    struct job jobs[2] = {open_job(wire_connect(harness_socket(daemon)), "['copy']"),
                          open_job(wire_connect(harness_socket(daemon)), "['copy']")};
    const uint8_t *bytes = random_new(N * SIZE);

    CHECK_NE(jobs[0].id, jobs[1].id);
    for (unsigned i = 0; i < N; i++) {
        for (unsigned k = 0; k < 2; k++) {
            push(&jobs[k], bytes + i * SIZE, SIZE);
        }
        for (unsigned k = 0; k < 2; k++) {
            CHECK_MEM(wire_output(take_result(&jobs[k]), SIZE), bytes + i * SIZE, SIZE);
        }
    }
    for (unsigned k = 0; k < 2; k++) {
        close_job(&jobs[k]);
        take_done(&jobs[k], "done");
    }
}

static void test_what_job_open_tells(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *saxpy = wire_call(wire, "job.open", "['saxpy', {a: 1}]");
    const msgpack_object *sha256 = wire_call(wire, "job.open", "['sha256', {block: 1000}, {}]");
    const msgpack_object *sum = wire_call(wire, "job.open", "['sum']");

    CHECK_EQ(wire_number(saxpy, "in_size.0"), 4);
    CHECK_EQ(wire_number(saxpy, "in_size.1"), 4);
    CHECK_EQ(wire_number(saxpy, "out_size.0"), 4);
    CHECK_EQ(wire_number(saxpy, "push_multiple"), 1);
    CHECK_LE(wire_number(saxpy, "max_push"), LIMIT_PUSH);
    CHECK_GE(wire_number(saxpy, "max_push"), LIMIT_PUSH_LEAST);
    CHECK_EQ(wire_number(sha256, "in_size.0"), 1000);
    CHECK_EQ(wire_number(sha256, "out_size.0"), 32);
    CHECK_GT(wire_number(sum, "push_multiple"), 1);
    CHECK_EQ(wire_number(sum, "out_size.0"), 8);
}

/* ---- rules of pushing ---------------------------------------------------------------------- */

static void test_a_wrong_seq_may_be_sent_again(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['copy']");

    wire_refused(wire, "SEQ", "0", "job.push", "[%lu, 1, {}, [<10>]]", job.id);
    push(&job, "first", 5);
    wire_refused(wire, "SEQ", "1", "job.push", "[%lu, 0, {}, [<10>]]", job.id);
    push(&job, "second", 6);
    close_job(&job);
    CHECK_MEM(wire_output(take_result(&job), 5), "first", 5);
    CHECK_MEM(wire_output(take_result(&job), 6), "second", 6);
    take_done(&job, "done");
}

static void test_no_credit_no_push(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['sha256', {}, {window: 1}]");
    msgpack_sbuffer buffer;
    uint32_t first, second;

    /* Both in one write: the first cannot have been answered when the second is judged. */
    msgpack_sbuffer_init(&buffer);
    first = wire_pack(wire, &buffer, "job.push", "[%lu, 0, {}, [<65536>]]", job.id);
    second = wire_pack(wire, &buffer, "job.push", "[%lu, 1, {}, [<4096>]]", job.id);
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    wire_result(wire, first);
    wire_error_is(wire, second, "NO_CREDIT", "window");
    job.seq = 1;
    job.credit = 0;
    CHECK_EQ(wire_number(take_result(&job), "n"), 16);
    push(&job, "", 0);
    close_job(&job);
    CHECK_EQ(wire_number(take_result(&job), "n"), 0);
    take_done(&job, "done");
}

static void test_pushes_that_cannot_be(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['saxpy', {a: 2}, {max_push: 65536}]");
    uint64_t id = job.id;

    wire_refused(wire, "INVALID_PARAM", "2", "job.push", "[%lu, 0, {}, [<8>]]", id);
    wire_refused(wire, "INVALID_PARAM", "2", "job.push", "[%lu, 0, {}, [<8>, <8>, <8>]]", id);
    wire_refused(wire, "RANGE", "", "job.push", "[%lu, 0, {}, [<8>, <12>]]", id);
    wire_refused(wire, "RANGE", "", "job.push", "[%lu, 0, {}, [<7>, <7>]]", id);
    wire_refused(wire, "RANGE", "n", "job.push", "[%lu, 0, {n: 3}, [<8>, <8>]]", id);
    wire_refused(wire, "INVALID_PARAM", "m", "job.push", "[%lu, 0, {m: 3}, [<8>, <8>]]", id);
    wire_refused(wire, "TOO_BIG", "max_push", "job.push", "[%lu, 0, {}, [<65540>, <65540>]]", id);
    wire_call(wire, "job.push", "[%lu, 0, {n: 2}, [<8>, <8>]]", id);
    job.seq = 1;
    CHECK_EQ(wire_number(take_result(&job), "n"), 2);
    close_job(&job);
    take_done(&job, "done");
}

static void test_no_push_after_close(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['sha256', {}, {priority: 'bulk'}]");
    msgpack_sbuffer buffer;
    uint32_t closed, pushed;

    push(&job, random_new(1 << 20), 1 << 20);
    msgpack_sbuffer_init(&buffer);
    closed = wire_pack(wire, &buffer, "job.close", "[%lu]", job.id);
    pushed = wire_pack(wire, &buffer, "job.push", "[%lu, 1, {}, [<4096>]]", job.id);
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    CHECK_EQ(wire_number(wire_result(wire, closed), "pushed"), 1);
    /* SEQ while the job still works, NOT_FOUND once it has ended: either way, not accepted. */
    CHECK_NE(wire_error(wire_find(wire_response(wire, pushed), "2")).name[0], '\0');
    CHECK_EQ(wire_number(take_result(&job), "n"), 256);
    CHECK_EQ(wire_number(take_done(&job, "done"), "pushes"), 1);
}

static void test_a_short_record_ends_the_input(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['sha256', {block: 64}, {tail: 'short'}]");
    const void *bytes = random_new(1000);
    const uint8_t *want = reference_sha256(daemon, bytes, 1000, 64);

    push(&job, bytes, 1000);
    wire_refused(wire, "SEQ", "", "job.push", "[%lu, 1, {}, [<64>]]", job.id);
    close_job(&job);
    CHECK_MEM(wire_output(take_result(&job), 16 * 32), want, 16 * 32);
    CHECK_EQ(wire_number(take_done(&job, "done"), "n"), 16);
}

/* ---- reduce -------------------------------------------------------------------------------- */

/* Sum these floats as a job, cut into pushes of random multiples; returns the result's bits. */
static uint64_t sum_job(struct wire *wire, const float *x, size_t n)
{
    const msgpack_object *opened = wire_call(wire, "job.open", "['sum', {}, {window: 3}]"), *done;
    struct job job = opened_job(wire, opened);
    size_t multiple = (size_t)wire_number(opened, "push_multiple");
    size_t most = (size_t)wire_number(opened, "max_push") / sizeof(float) / multiple;
    uint64_t bits;

    for (size_t at = 0; at < n;) {
        size_t piece = multiple * (1 + random_below(most));

        piece = piece < n - at ? piece : n - at;
        while (job.credit == 0) {
            CHECK(wire_find(take_result(&job), "out") == NULL);
        }
        push(&job, x + at, piece * sizeof(float));
        at += piece;
    }
    close_job(&job);
    while (job.n_results < job.seq) {
        take_result(&job);
    }
    done = take_done(&job, "done");
    CHECK_EQ(wire_number(done, "n"), n);
    memcpy(&bits, wire_output(done, sizeof(bits)), sizeof(bits));
    return bits;
}

static void test_a_sum_has_the_same_bits_however_it_is_cut(void)
{
    enum { N = 3000017 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const float *x = random_new_floats(N);
    uint64_t bits = sum_job(wire, x, N);
    const msgpack_object *result;
    double sum;

    memcpy(&sum, &bits, sizeof(sum));
    reference_check_sum(sum, x, N);
    for (unsigned i = 0; i < 5; i++) {
        CHECK_EQ(sum_job(wire, x, N), bits);
    }
    result = wire_call(wire, "run", "['sum', {}, {}, [%b]]", x, N * sizeof(float));
    CHECK_MEM(wire_output(result, sizeof(bits)), &bits, sizeof(bits));
}

static void test_a_sum_of_no_pushes_is_zero(void)
{
    struct harness *daemon = harness_start();
    struct job job = open_job(wire_connect(harness_socket(daemon)), "['sum']");

    close_job(&job);
    CHECK_MEM(wire_output(take_done(&job, "done"), sizeof(double)), &(double){0}, sizeof(double));
}

static void test_a_sum_wants_whole_leaves(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['sum']");
    const float x[3] = {1, 2, 4};
    double sum;

    push(&job, x, sizeof(x));
    wire_refused(wire, "RANGE", "multiple", "job.push", "[%lu, 1, {}, [<12>]]", job.id);
    close_job(&job);
    take_result(&job);
    memcpy(&sum, wire_output(take_done(&job, "done"), sizeof(sum)), sizeof(sum));
    CHECK_EQ((int)sum, 7);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_cancel_in_mid_job(void)
{
    enum { SIZE = 1 << 20 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = open_job(wire, "['sha256', {}, {priority: 'bulk'}]");
    const void *bytes = random_new(SIZE);
    const msgpack_object *state;

    for (unsigned n = job.credit; n > 0; n--) {
        push(&job, bytes, SIZE);
    }
    state = wire_call(wire, "job.cancel", "[%lu]", job.id);
    CHECK_STR(wire_text(state, "state"), "cancelled");
    for (uint64_t i = 0; i < job.seq; i++) {
        const msgpack_object *params = wire_notification(wire, "job.result");
        const msgpack_object *error = wire_find(params, "2.error");

        CHECK_EQ(wire_number(params, "1"), i);
        CHECK((error == NULL) != (wire_find(params, "2.out") == NULL));
        if (error != NULL) {
            CHECK_STR(wire_error(error).name, "CANCELLED");
        }
    }
    CHECK_EQ(wire_number(take_done(&job, "cancelled"), "pushes"), job.seq);
    wire_refused(wire, "NOT_FOUND", "job", "job.push", "[%lu, 9, {}, [<4096>]]", job.id);
}

static void test_jobs_belong_to_their_connection(void)
{
    struct harness *daemon = harness_start();
    struct wire *owner = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint64_t id = open_job(owner, "['copy']").id;

    wire_refused(other, "NOT_YOURS", "job", "job.push", "[%lu, 0, {}, [<10>]]", id);
    wire_refused(other, "NOT_YOURS", "job", "job.close", "[%lu]", id);
    wire_refused(other, "NOT_FOUND", "job", "job.close", "[%lu]", id + 1000);
    wire_close(owner);
    HARNESS_WAIT(wire_count(wire_call(other, "job.list", "[{all: true}]"), "") == 0);
    wire_refused(other, "NOT_FOUND", "job", "job.close", "[%lu]", id);
}

/* As gpupipe-cli job cancel does it: for any job of the same user. */
static void test_a_job_may_be_cancelled_from_outside(void)
{
    struct harness *daemon = harness_start();
    struct wire *owner = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    struct job job = open_job(owner, "['copy']");

    push(&job, "bytes", 5);
    CHECK_EQ(wire_number(take_result(&job), "n"), 5);
    wire_call(other, "job.cancel", "[%lu]", job.id);
    CHECK_EQ(wire_number(take_done(&job, "cancelled"), "pushes"), 1);
}

static void test_no_more_jobs_than_the_limit(void)
{
    static const char small[] = "['copy', {}, {window: 1, max_push: 65536}]";
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct job job = {.wire = wire};

    for (unsigned i = 0; i < LIMIT_JOBS; i++) {
        job = open_job(wire, small);
    }
    wire_refused(wire, "QUOTA", "64", "job.open", small);
    close_job(&job);
    take_done(&job, "done");
    open_job(wire, small);
}

CHECK_MAIN(CHECK_TEST(test_a_stream_with_window_one),
           CHECK_TEST(test_a_stream_with_the_usual_window),
           CHECK_TEST(test_a_stream_with_the_largest_window),
           CHECK_TEST(test_two_jobs_side_by_side), CHECK_TEST(test_what_job_open_tells),
           CHECK_TEST(test_a_wrong_seq_may_be_sent_again), CHECK_TEST(test_no_credit_no_push),
           CHECK_TEST(test_pushes_that_cannot_be), CHECK_TEST(test_no_push_after_close),
           CHECK_TEST(test_a_short_record_ends_the_input),
           CHECK_TEST(test_a_sum_has_the_same_bits_however_it_is_cut),
           CHECK_TEST(test_a_sum_of_no_pushes_is_zero), CHECK_TEST(test_a_sum_wants_whole_leaves),
           CHECK_TEST(test_cancel_in_mid_job), CHECK_TEST(test_jobs_belong_to_their_connection),
           CHECK_TEST(test_a_job_may_be_cancelled_from_outside),
           CHECK_TEST(test_no_more_jobs_than_the_limit))
