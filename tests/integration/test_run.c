/*
 * run: one request, one answer, for every op and every size that may matter, against references
 * that share no code with the ops.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <math.h>

static void check_copy(struct wire *wire, size_t size)
{
    const void *bytes = random_new(size);
    const msgpack_object *result = wire_call(wire, "run", "['copy', {}, {}, [%b]]", bytes, size);

    CHECK_EQ(wire_number(result, "n"), size);
    CHECK_MEM(wire_output(result, size), bytes, size);
}

static void test_copy_of_every_size(void)
{
    static const size_t sizes[] = {0,
                                   1,
                                   2,
                                   255,
                                   256,
                                   65535,
                                   65536,
                                   65537,
                                   (1 << 20) - 1,
                                   (1 << 20) + 1,
                                   LIMIT_PUSH_DEFAULT - 1,
                                   LIMIT_PUSH_DEFAULT,
                                   LIMIT_PUSH_DEFAULT + 1,
                                   3 * LIMIT_PUSH_DEFAULT + 12345,
                                   LIMIT_PUSH - 1,
                                   LIMIT_PUSH};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_copy(wire, sizes[i]);
    }
    for (unsigned i = 0; i < 50; i++) {
        check_copy(wire, random_below(300000));
    }
}

static void check_saxpy(struct wire *wire, float a, const float *x, const float *y, size_t n)
{
    float *want = random_new(n * sizeof(float));
    const msgpack_object *result = wire_call(wire, "run", "['saxpy', {a: %f}, {}, [%b, %b]]",
                                             (double)a, x, n * sizeof(float), y, n * sizeof(float));

    reference_saxpy(a, x, y, want, n);
    CHECK_EQ(wire_number(result, "n"), n);
    reference_check_floats(wire_output(result, n * sizeof(float)), want, n);
}

static void test_saxpy_of_many_sizes(void)
{
    static const size_t sizes[] = {
        0, 1, 7, 16, 1000, 1048575, 1048576 + 1, 2500000 + 3, LIMIT_PUSH / sizeof(float)};
    struct harness *daemon = harness_start("--pinned-pool", "128M");
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        float a;

        random_floats(&a, 1);
        check_saxpy(wire, a, random_new_floats(sizes[i]), random_new_floats(sizes[i]), sizes[i]);
    }
}

static void test_saxpy_of_nan_and_infinities(void)
{
    static const float special[] = {NAN,    -NAN,    INFINITY, -INFINITY, 0.0f, -0.0f,
                                    1e-45f, -1e-45f, 3.4e38f,  -3.4e38f,  1.0f, -1.5f};
    enum { N_SPECIAL = sizeof(special) / sizeof(special[0]) };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    float x[N_SPECIAL * N_SPECIAL], y[N_SPECIAL * N_SPECIAL];

    for (unsigned i = 0; i < N_SPECIAL * N_SPECIAL; i++) {
        x[i] = special[i / N_SPECIAL];
        y[i] = special[i % N_SPECIAL];
    }
    for (unsigned i = 0; i < N_SPECIAL; i++) {
        check_saxpy(wire, special[i], x, y, N_SPECIAL * N_SPECIAL);
    }
}

static double run_sum(struct wire *wire, const float *x, size_t n)
{
    const msgpack_object *result =
        wire_call(wire, "run", "['sum', {}, {}, [%b]]", x, n * sizeof(float));
    double sum;

    CHECK_EQ(wire_number(result, "n"), n);
    memcpy(&sum, wire_output(result, sizeof(sum)), sizeof(sum));
    return sum;
}

static void test_sum_of_many_sizes(void)
{
    static const size_t sizes[] = {1, 2, 1023, 1024, 1025, 65537, 1048577, LIMIT_PUSH / 4};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const float *x = random_new_floats(sizes[i]);
        double sum = run_sum(wire, x, sizes[i]), again = run_sum(wire, x, sizes[i]);

        reference_check_sum(sum, x, sizes[i]);
        CHECK_MEM(&sum, &again, sizeof(sum));
    }
}

static void test_sum_of_whole_numbers_is_exact(void)
{
    enum { N = 700001 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    float *x = random_new(N * sizeof(float));
    int64_t exact = 0;

    for (unsigned i = 0; i < N; i++) {
        int32_t whole = (int32_t)random_below(1 << 24) - (1 << 23);

        x[i] = (float)whole;
        exact += whole;
    }
    CHECK_EQ((int64_t)run_sum(wire, x, N), exact);
    CHECK(isnan(run_sum(wire, (const float[]){1, NAN, 2}, 3)));
    CHECK(isinf(run_sum(wire, (const float[]){1, INFINITY, 2}, 3)));
    CHECK(isnan(run_sum(wire, (const float[]){INFINITY, -INFINITY}, 2)));
}

static void test_sum_of_nothing_is_zero(void)
{
    struct harness *daemon = harness_start();
    double sum = run_sum(wire_connect(harness_socket(daemon)), (const float[]){7}, 0);

    CHECK_MEM(&sum, &(double){0}, sizeof(sum));
}

static void check_sha256(struct harness *daemon, struct wire *wire, size_t block, size_t n)
{
    const void *bytes = random_new(block * n);
    const msgpack_object *result =
        wire_call(wire, "run", "['sha256', {block: %lu}, {}, [%b]]", block, bytes, block * n);

    CHECK_EQ(wire_number(result, "n"), n);
    CHECK_MEM(wire_output(result, 32 * n), reference_sha256(daemon, bytes, block * n, block),
              32 * n);
}

static void test_sha256_of_many_block_sizes(void)
{
    static const struct {
        size_t block, n;
    } cases[] = {{1, 1},     {1, 300},   {55, 33},    {56, 33},    {63, 17},  {64, 100},
                 {65, 31},   {119, 5},   {120, 5},    {1000, 7},   {4096, 1}, {4096, 1025},
                 {4095, 15}, {65536, 3}, {65536, 64}, {1000003, 4}};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_sha256(daemon, wire, cases[i].block, cases[i].n);
    }
}

static void test_tail_short_and_zero(void)
{
    enum { BLOCK = 4096, N = 37, TAIL = 1234, SIZE = BLOCK * N + TAIL };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint8_t *bytes = random_new(BLOCK * (N + 1));
    const msgpack_object *result =
        wire_call(wire, "run", "['sha256', {}, {tail: 'short'}, [%b]]", bytes, (size_t)SIZE);

    CHECK_EQ(wire_number(result, "n"), N + 1);
    CHECK_MEM(wire_output(result, 32 * (N + 1)), reference_sha256(daemon, bytes, SIZE, BLOCK),
              32 * (N + 1));

    result = wire_call(wire, "run", "['sha256', {}, {tail: 'zero'}, [%b]]", bytes, (size_t)SIZE);
    memset(bytes + SIZE, 0, BLOCK - TAIL);
    CHECK_EQ(wire_number(result, "n"), N + 1);
    CHECK_MEM(wire_output(result, 32 * (N + 1)),
              reference_sha256(daemon, bytes, BLOCK * (N + 1), BLOCK), 32 * (N + 1));
}

/*
 * Runs that differ in nothing but parameters or the length of the last record: a device that keeps
 * what it was told of the run before (a header that is not copied again) gives the wrong digests.
 */
static void test_runs_that_differ_in_a_word(void)
{
    enum { SIZE = 5 * 4096 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint8_t *bytes = random_new(SIZE);

    for (unsigned i = 0; i < 24; i++) {
        size_t block = i % 3 == 0 ? 4095 : 4096;
        size_t size = SIZE - 1 - random_below(4090); /* five or six records */
        const msgpack_object *result =
            wire_call(wire, "run", "['sha256', {block: %lu}, {tail: 'short'}, [%b]]",
                      (uint64_t)block, bytes, size);
        uint64_t n = (size + block - 1) / block;

        CHECK_EQ(wire_number(result, "n"), n);
        CHECK_MEM(wire_output(result, 32 * n), reference_sha256(daemon, bytes, size, block),
                  32 * n);
    }
}

/*
 * The daemon does not read again the words of a run that are those of the one before: whatever the
 * order in which few runs alternate, each is answered by its own.
 */
static void test_runs_of_the_same_words(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint8_t *bytes = random_new(1000);

    for (unsigned i = 0; i < 200; i++) {
        size_t block = 64 + random_below(2), size = 1 + random_below(1000);
        const char *tail = random_below(2) == 0 ? "short" : "error";
        uint32_t msgid = wire_send(wire, "run", "['sha256', {block: %lu}, {tail: %s}, [%b]]",
                                   (uint64_t)block, tail, bytes, size);
        uint64_t n = (size + block - 1) / block;

        if (size % block != 0 && strcmp(tail, "error") == 0) {
            wire_error_is(wire, msgid, "RANGE", "no multiple");
        } else {
            CHECK_MEM(wire_output(wire_result(wire, msgid), 32 * n),
                      reference_sha256(daemon, bytes, size, block), 32 * n);
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        wire_refused(wire, "DEADLINE", "", "run", "['copy', {}, {deadline_ns: 1}, [<5>]]");
    }
    wire_call(wire, "run", "['copy', {}, {}, [<5>]]");
    wire_refused(wire, "INVALID_PARAM", "not 2", "run", "['copy', {}, {}, [<5>, <5>]]");
    wire_refused(wire, "INVALID_PARAM", "neither bytes", "run", "['copy', {}, {}, [nil]]");
    wire_output(wire_call(wire, "run", "['copy', {}, {}, [<5>]]"), 5);
}

static void test_tail_error_refuses_and_the_connection_lives(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_refused(wire, "RANGE", "4096", "run", "['sha256', {}, {}, [<5000>]]");
    wire_refused(wire, "RANGE", "4096", "run", "['sha256', {}, {tail: 'error'}, [<5000>]]");
    check_copy(wire, 1000);
}

static void test_str_payloads_are_as_good_as_bins(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    static const size_t sizes[] = {0, 1, 31, 32, 255, 256, 65535, 65536, 5000000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const void *bytes = random_new(sizes[i]);
        const msgpack_object *result =
            wire_call(wire, "run", "['copy', {}, {}, [%t]]", bytes, sizes[i]);

        CHECK_MEM(wire_output(result, sizes[i]), bytes, sizes[i]);
    }
}

static void test_an_empty_array_stands_for_an_empty_map(void)
{
    struct wire *wire = wire_connect(harness_socket(harness_start()));
    const void *bytes = random_new(1000);

    CHECK_MEM(
        wire_output(wire_call(wire, "run", "['copy', [], [], [%b]]", bytes, (size_t)1000), 1000),
        bytes, 1000);
    wire_refused(wire, "INVALID_PARAM", "must be a map", "run", "['copy', [1], [], [<5>]]");
}

static void test_reply_says_how_it_was_done(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *device = wire_call(wire, "device.list", "[]"), *result;

    result = wire_call(wire, "run", "['copy', {}, {priority: 'urgent', require: %s}, [<100>]]",
                       harness_kind());
    CHECK_STR(wire_text(result, "backend"), harness_backend());
    CHECK_STR(wire_text(result, "priority"), "urgent");
    CHECK_STR(wire_text(result, "device"), wire_text(device, "0.device"));
    CHECK_STR(wire_text(result, "path"), "inline");
    result = wire_call(wire, "run", "['copy', {}, {}, [<100>]]");
    CHECK_STR(wire_text(result, "priority"), "normal");
    CHECK(wire_find(result, "timing.compute_ns") == NULL);
    result = wire_call(wire, "run", "['copy', {}, {timing: true, device: %s}, [<100000>]]",
                       wire_text(device, "0.device"));
    CHECK_GT(wire_number(result, "timing.compute_ns"), 0);
    CHECK_GE(wire_number(result, "timing.queue_ns"), 0);
    /* A CPU copies nothing. */
    bool is_copying = strcmp(harness_backend(), "cpu") != 0;
    CHECK_EQ(wire_number(result, "timing.in_ns") > 0, is_copying);
    CHECK_EQ(wire_number(result, "timing.out_ns") > 0, is_copying);
}

static void test_what_no_device_can_do(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const char *other = harness_other_kind();

    wire_refused(wire, "NO_DEVICE", other, "run", "['copy', {}, {require: %s}, [<100>]]", other);
    wire_refused(wire, "NO_DEVICE", other, "job.open", "['copy', {}, {require: %s}]", other);
    wire_refused(wire, "NO_DEVICE", "cuda77", "run", "['copy', {}, {device: 'cuda77'}, [<100>]]");
    check_copy(wire, 1000);
}

static void test_deadline_passed(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_refused(wire, "DEADLINE", "", "run", "['copy', {}, {deadline_ns: 1}, [<4194304>]]");
    wire_call(wire, "run", "['copy', {}, {deadline_ns: 60000000000}, [<1000>]]");
}

static void test_many_runs_in_one_write(void)
{
    enum { N = 300 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;
    uint8_t *bytes[N];
    uint32_t msgids[N];
    bool is_sent;

    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < N; i++) {
        bytes[i] = malloc(i * 13 + 1);
        random_bytes(bytes[i], i * 13 + 1);
        msgids[i] =
            wire_pack(wire, &buffer, "run", "['copy', {}, {}, [%b]]", bytes[i], (size_t)i * 13);
    }
    is_sent = wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    for (unsigned i = 0; i < N; i++) {
        CHECK_MEM(wire_output(wire_result(wire, msgids[i]), i * 13), bytes[i], i * 13);
        free(bytes[i]);
    }
    CHECK(is_sent);
}

static void test_a_request_in_single_bytes(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;
    uint32_t msgid;

    msgpack_sbuffer_init(&buffer);
    msgid = wire_pack(wire, &buffer, "run", "['saxpy', {a: 3}, {timing: false}, [<400>, <400>]]");
    for (size_t i = 0; i < buffer.size; i++) {
        wire_send_bytes(wire, buffer.data + i, 1);
    }
    msgpack_sbuffer_destroy(&buffer);
    CHECK_EQ(wire_number(wire_result(wire, msgid), "n"), 100);
}

static void test_clients_between_each_others_bytes(void)
{
    enum { SIZE = 3000000 };
    struct harness *daemon = harness_start();
    struct wire *slow = wire_connect(harness_socket(daemon));
    struct wire *quick = wire_connect(harness_socket(daemon));
    const void *bytes = random_new(SIZE);
    msgpack_sbuffer buffer;
    uint32_t msgid;
    size_t sent = 0;

    msgpack_sbuffer_init(&buffer);
    msgid = wire_pack(slow, &buffer, "run", "['copy', {}, {}, [%b]]", bytes, (size_t)SIZE);
    while (sent < buffer.size) {
        size_t piece = 1 + random_below(200000);

        piece = piece < buffer.size - sent ? piece : buffer.size - sent;
        wire_send_bytes(slow, buffer.data + sent, piece);
        sent += piece;
        check_copy(quick, random_below(50000));
    }
    msgpack_sbuffer_destroy(&buffer);
    CHECK_MEM(wire_output(wire_result(slow, msgid), SIZE), bytes, SIZE);
}

CHECK_MAIN(CHECK_TEST(test_copy_of_every_size), CHECK_TEST(test_saxpy_of_many_sizes),
           CHECK_TEST(test_saxpy_of_nan_and_infinities), CHECK_TEST(test_sum_of_many_sizes),
           CHECK_TEST(test_sum_of_whole_numbers_is_exact), CHECK_TEST(test_sum_of_nothing_is_zero),
           CHECK_TEST(test_sha256_of_many_block_sizes), CHECK_TEST(test_tail_short_and_zero),
           CHECK_TEST(test_runs_that_differ_in_a_word), CHECK_TEST(test_runs_of_the_same_words),
           CHECK_TEST(test_tail_error_refuses_and_the_connection_lives),
           CHECK_TEST(test_str_payloads_are_as_good_as_bins),
           CHECK_TEST(test_an_empty_array_stands_for_an_empty_map),
           CHECK_TEST(test_reply_says_how_it_was_done), CHECK_TEST(test_what_no_device_can_do),
           CHECK_TEST(test_deadline_passed), CHECK_TEST(test_many_runs_in_one_write),
           CHECK_TEST(test_a_request_in_single_bytes),
           CHECK_TEST(test_clients_between_each_others_bytes))
