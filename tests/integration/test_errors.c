/*
 * What a worker knows about its work reaches the client: why it went wrong, how the worker ended,
 * how long each stage took.  The worker is one whose device does what it is told
 * (tests/fake_device.h), FAKE_WORKER is its program.
 */
#include "proto/status.h"
#include "tests/check.h"
#include "tests/fake_device.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>

/* A daemon that finds the fake worker beside itself. */
static struct harness *start_with_fake(void)
{
    static const char *const options[] = {"--backend", "cpu", "--pinned-pool", "64M", NULL};
    struct harness *harness = harness_create();

    harness_place_worker(harness, "cpu", getenv("FAKE_WORKER"));
    harness_launch(harness, options);
    return harness;
}

static void check_failing_run(struct wire *wire, enum status status)
{
    wire_refused(wire, status_name(status), "op affine on device cpu0: " FAKE_ERROR, "run",
                 "['affine', {add: %lu}, {}, [<400>]]", (uint64_t)status);
}

static void test_a_failed_chunk_says_why(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));

    check_failing_run(wire, STATUS_NO_MEMORY);
    check_failing_run(wire, STATUS_KERNEL_FAULT);
    check_failing_run(wire, STATUS_INTERNAL);
    wire_output(wire_call(wire, "run", "['affine', {}, {}, [<400>]]"), 400);
}

/* A status that there is none of is a defect, whatever its words. */
static void test_a_status_from_nowhere(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_refused(wire, "INTERNAL", FAKE_ERROR, "run", "['affine', {add: %lu}, {}, [<400>]]",
                 (uint64_t)STATUS_COUNT);
    wire_refused(wire, "INTERNAL", FAKE_ERROR, "run", "['affine', {add: %lu}, {}, [<400>]]",
                 (uint64_t)UINT32_MAX);
}

/* The rest of the memory has what another client's push left there. */
static void test_an_output_that_is_not_whole(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_refused(wire, "INTERNAL", "op affine on device cpu0: output y has 399 bytes of 400", "run",
                 "['affine', {add: %lu}, {}, [<400>]]", (uint64_t)FAKE_SHORT);
    wire_output(wire_call(wire, "run", "['affine', {}, {}, [<400>]]"), 400);
}

/* Whatever end is seen first: the socket's, the doorbell's, the process's. */
static void test_a_lost_device_says_why(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (int i = 0; i < 20; i++) {
        wire_refused(wire, "DEVICE_LOST", FAKE_LOSS, "run", "['affine', {add: %lu}, {}, [<400>]]",
                     (uint64_t)FAKE_LOSES);
        wire_output(wire_call(wire, "run", "['affine', {}, {}, [<400>]]"), 400);
        harness_notified(daemon); /* a daemon whose notifications nobody reads comes to a stop */
    }
}

static void test_a_worker_that_dies_without_a_word(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));
    char words[64];

    snprintf(words, sizeof(words), "it ended with signal %d", SIGABRT);
    wire_refused(wire, "DEVICE_LOST", words, "run", "['affine', {add: %lu}, {}, [<400>]]",
                 (uint64_t)FAKE_DIES);
    CHECK_HAS(harness_log(daemon), words);
}

/* A run of several chunks: their times are added up, and measured only where asked for. */
static void test_timing_is_a_sum_over_chunks(void)
{
    enum { N_CHUNKS = 5, SIZE = N_CHUNKS * FAKE_CHUNK_SIZE };
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));
    static uint8_t bytes[SIZE];
    const msgpack_object *result;

    random_bytes(bytes, sizeof(bytes));
    result = wire_call(wire, "run", "['affine', {}, {timing: true}, [%b]]", bytes, sizeof(bytes));
    CHECK_EQ(wire_number(result, "timing.in_ns"), N_CHUNKS * FAKE_IN_NS);
    CHECK_EQ(wire_number(result, "timing.compute_ns"), N_CHUNKS * FAKE_COMPUTE_NS);
    CHECK_EQ(wire_number(result, "timing.out_ns"), N_CHUNKS * FAKE_OUT_NS);
    CHECK_GT(wire_number(result, "timing.queue_ns"), 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "chunks_total"), N_CHUNKS);
    result = wire_call(wire, "run", "['affine', {}, {timing: false}, [%b]]", bytes, sizeof(bytes));
    CHECK(wire_find(result, "timing.in_ns") == NULL);
}

/* Each push of a job has its own. */
static void test_timing_of_a_job(void)
{
    struct harness *daemon = start_with_fake();
    struct wire *wire = wire_connect(harness_socket(daemon));
    static uint8_t bytes[3 * FAKE_CHUNK_SIZE];
    const msgpack_object *params;
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['affine', {}, {timing: true, window: 2}]"), "job");

    random_bytes(bytes, sizeof(bytes));
    for (uint64_t seq = 0; seq < 6; seq++) {
        uint64_t n_chunks = 1 + seq % 3;

        wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes,
                  n_chunks * FAKE_CHUNK_SIZE);
        params = wire_notification(wire, "job.result");
        CHECK_EQ(wire_number(params, "2.timing.in_ns"), n_chunks * FAKE_IN_NS);
        CHECK_EQ(wire_number(params, "2.timing.compute_ns"), n_chunks * FAKE_COMPUTE_NS);
        CHECK_EQ(wire_number(params, "2.timing.out_ns"), n_chunks * FAKE_OUT_NS);
    }
}

CHECK_MAIN(CHECK_TEST(test_a_failed_chunk_says_why), CHECK_TEST(test_a_status_from_nowhere),
           CHECK_TEST(test_an_output_that_is_not_whole), CHECK_TEST(test_a_lost_device_says_why),
           CHECK_TEST(test_a_worker_that_dies_without_a_word),
           CHECK_TEST(test_timing_is_a_sum_over_chunks), CHECK_TEST(test_timing_of_a_job))
