/*
 * How a push is cut for a device that copies while it computes: its first chunks are small, so that
 * results come back early, and its last ones, so that little is left when all is copied in.  The
 * device is a fake that writes down what it was given (tests/fake_device.h) and stands still while
 * it is given it.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/fake_device.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <signal.h>

#define RECORD 4u
#define MOST   (FAKE_CHUNK_SIZE / RECORD) /* records of a chunk */
#define LEAST  (MOST / 8)

static struct harness *start(void)
{
    static char file[512], least[64];
    struct harness *harness = harness_create();

    snprintf(file, sizeof(file), "FAKE_CHUNK_FILE=%s", harness_path(harness, "chunks"));
    snprintf(least, sizeof(least), "FAKE_CHUNK_LEAST=%u", LEAST * RECORD);
    harness_place_worker(harness, "cpu", getenv("FAKE_WORKER"));
    harness_launch(harness,
                   (const char *const[]){"--backend", "cpu", "--pinned-pool", "64M", "--worker-env",
                                         file, "--worker-env", least, NULL});
    return harness;
}

/* The records of each chunk so far; returns their number. */
static uint32_t read_chunks(struct harness *harness, uint64_t *ret_chunks, uint32_t max)
{
    FILE *file = fopen(harness_path(harness, "chunks"), "re");
    uint32_t n = 0;

    CHECK(file != NULL);
    while (n < max && fscanf(file, "%" SCNu64, &ret_chunks[n]) == 1) {
        n++;
    }
    fclose(file);
    CHECK_LT(n, max);
    return n;
}

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

struct run {
    struct wire *wire;
    uint32_t msgid;
    uint32_t *in;
    uint32_t n;
};

/* Send it, and wait until all of its chunks wait for the worker. */
static void send_run(struct harness *harness, struct run *run, uint32_t n)
{
    struct wire *other = wire_connect(harness_socket(harness));
    uint64_t n_before = stat_of(other, "chunks_in_flight");

    run->wire = wire_connect(harness_socket(harness));
    run->n = n;
    run->in = random_new((size_t)n * RECORD);
    run->msgid =
        wire_send(run->wire, "run", "['affine', {}, {}, [%b]]", run->in, (size_t)n * RECORD);
    HARNESS_WAIT(stat_of(other, "chunks_in_flight") > n_before &&
                 stat_of(other, "chunks_waiting_normal") == 0);
    wire_close(other);
}

static void check_run(const struct run *run)
{
    const char *out = wire_output(wire_result(run->wire, run->msgid), (size_t)run->n * RECORD);

    for (uint32_t i = 0; i < run->n; i++) {
        uint32_t value;

        memcpy(&value, out + (size_t)i * RECORD, sizeof(value));
        CHECK_EQ(value, 3 * run->in[i]);
    }
}

/* How long a record takes is known from here on: that decides on chunks as well. */
static void measure(struct harness *harness)
{
    struct wire *wire = wire_connect(harness_socket(harness));

    wire_output(wire_call(wire, "run", "['affine', {}, {}, [<400>]]"), 400);
    wire_close(wire);
    CHECK_EQ(remove(harness_path(harness, "chunks")), 0);
}

static void check_sum(const uint64_t *chunks, uint32_t n, uint64_t n_records)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        CHECK_LE(chunks[i], MOST);
        sum += chunks[i];
    }
    CHECK_EQ(sum, n_records);
}

/* None takes more than half of what is left, unless that is next to nothing; the last but one still
 * fills the device. */
static void check_last_ones(const uint64_t *chunks, uint32_t n, uint64_t n_records)
{
    for (uint32_t i = 0; i < n; i++) {
        CHECK_LE(chunks[i], MAX(n_records / 2, (uint64_t)LEAST));
        CHECK(chunks[i] >= LEAST || i + 1 == n);
        n_records -= chunks[i];
    }
}

static void test_a_push_alone(void)
{
    const uint32_t n_records = 7 * MOST + (uint32_t)random_below(MOST);
    struct harness *harness = start();
    uint64_t chunks[64];
    struct run run;
    uint32_t n;

    measure(harness);
    harness_pause(harness_worker(harness));
    send_run(harness, &run, n_records);
    kill(harness_worker(harness), SIGCONT);
    check_run(&run);
    n = read_chunks(harness, chunks, ARRAY_SIZE(chunks));
    check_sum(chunks, n, n_records);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(chunks[i], LEAST << i);
    }
    check_last_ones(chunks, n, n_records);
}

/* Behind other work there is nothing to wait for: it begins with what is best. */
static void test_a_push_behind_others(void)
{
    struct harness *harness = start();
    struct run runs[2];
    uint64_t chunks[64];
    uint32_t n, first = 0;

    measure(harness);
    harness_pause(harness_worker(harness));
    send_run(harness, &runs[0], 4 * MOST);
    send_run(harness, &runs[1], 4 * MOST);
    kill(harness_worker(harness), SIGCONT);
    check_run(&runs[0]);
    check_run(&runs[1]);
    n = read_chunks(harness, chunks, ARRAY_SIZE(chunks));
    for (uint64_t sum = 0; sum < 4 * MOST; first++) {
        sum += chunks[first];
    }
    CHECK_EQ(chunks[0], LEAST);
    check_sum(chunks, first, 4 * MOST);
    check_sum(chunks + first, n - first, 4 * MOST);
    CHECK_EQ(chunks[first], MOST);
    CHECK_EQ(chunks[first + 1], MOST);
    check_last_ones(chunks + first, n - first, 4 * MOST);
}

CHECK_MAIN(CHECK_TEST(test_a_push_alone), CHECK_TEST(test_a_push_behind_others))
