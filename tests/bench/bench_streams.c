/*
 * bench_streams: what the worker's pool of streams is good for, in data that already lies in
 * segments.
 *
 *     streams    `iterate`, n=1000, with pools of several sizes, the worker's own among them
 *     chunks     the same with the worker's own pool and chunks of several sizes
 *     priority   how long a small job takes behind one kernel that fills the device, as urgent work
 *                and as bulk like the kernel
 *
 * Rounds in random order, fresh random data, every byte of every output checked.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/rig.h"

#include <math.h>

#define SIZE_UNIT   (64u << 20) /* the largest chunk */
#define SMALL_SIZE  4096u
#define LARGE_SIZE  (256u << 20) /* of the kernel that fills the device */
#define STARTING_US 20000        /* until that kernel runs for sure: its input is 5 ms of copying */
#define DEPTH_MAX   64u

static const uint32_t n_streams[] = {1, 2, 3, 4, 8, 0}; /* 0: the worker's own */

enum { RIG_ONE = 0, RIG_DEFAULT = ARRAY_SIZE(n_streams) - 1 };

static const size_t chunk_sizes[] = {64u << 10, 256u << 10, 1u << 20,  2u << 20,
                                     4u << 20,  8u << 20,   16u << 20, 64u << 20};

struct options {
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_report *report;
    struct rig_memory memory;
    struct rig rigs[ARRAY_SIZE(n_streams)];
    struct contest contest;
};

/* The jobs of every rig, in the order in which they are opened. */
enum job { JOB_ITERATE, JOB_ITERATE_LONG };

static void begin_round(void *owner)
{
    struct bench *bench = owner;

    subject_fill(bench->memory.in, bench->memory.size);
}

static double run_rig(struct bench *bench, uint32_t i, size_t chunk_size, uint32_t depth)
{
    struct rig_memory *memory = &bench->memory;
    double seconds;

    bench_poison(memory->out, memory->size);
    seconds = rig_run(&bench->rigs[i], JOB_ITERATE, memory->size, chunk_size, depth);
    subject_iterate.check("iterate", memory->out, memory->in, memory->size);
    return seconds;
}

static void run_contest(struct bench *bench, uint32_t n_variants,
                        double (*run)(void *owner, uint32_t variant))
{
    bench->contest.n_variants = n_variants;
    bench->contest.n_rounds = bench->options->n_rounds;
    bench->contest.begin = begin_round;
    bench->contest.run = run;
    bench->contest.owner = bench;
    contest_run(&bench->contest);
}

static double gigabytes_per_s(const struct bench *bench, uint32_t i)
{
    return (double)bench->memory.size * 1e-9 / contest_seconds(&bench->contest, i);
}

/* ---- streams -------------------------------------------------------------------------------- */

static double run_streams(void *owner, uint32_t i)
{
    struct bench *bench = owner;
    const struct worker_caps *caps = &bench->rigs[i].front.caps;

    return run_rig(bench, i, caps->chunk_size, MAX(caps->bulk_chunks, n_streams[i]));
}

/* Returns how many times as fast as one stream the worker's own pool is. */
static double measure_streams(struct bench *bench)
{
    run_contest(bench, ARRAY_SIZE(n_streams), run_streams);
    bench_report_table(bench->report, "streams",
                       "iterate n=1000, GB/s each way, and how many times as fast as one stream");
    for (uint32_t i = 0; i < ARRAY_SIZE(n_streams); i++) {
        const struct bench_cell row[] = {
            {"pool   ", i == RIG_DEFAULT ? "default" : "of size", 0, 0},
            {"streams", NULL, i == RIG_DEFAULT ? NAN : n_streams[i], 0},
            {"gb_per_s", NULL, gigabytes_per_s(bench, i), 2},
            {"of_one", NULL, contest_ratio(&bench->contest, i, RIG_ONE), 2},
        };

        bench_report_row(bench->report, row, ARRAY_SIZE(row));
    }
    return contest_ratio(&bench->contest, RIG_DEFAULT, RIG_ONE);
}

/* ---- chunks --------------------------------------------------------------------------------- */

/* As many bytes in flight as the worker asks for, and no fewer chunks. */
static uint32_t depth_of(const struct worker_caps *caps, size_t chunk_size)
{
    uint64_t n = MIN(caps->bulk_bytes / chunk_size, (uint64_t)DEPTH_MAX);

    return MAX((uint32_t)n, caps->bulk_chunks);
}

static double run_chunks(void *owner, uint32_t i)
{
    struct bench *bench = owner;
    const struct worker_caps *caps = &bench->rigs[RIG_DEFAULT].front.caps;

    return run_rig(bench, RIG_DEFAULT, chunk_sizes[i], depth_of(caps, chunk_sizes[i]));
}

static void measure_chunks(struct bench *bench)
{
    const struct worker_caps *caps = &bench->rigs[RIG_DEFAULT].front.caps;

    run_contest(bench, ARRAY_SIZE(chunk_sizes), run_chunks);
    bench_report_table(bench->report, "chunks",
                       "iterate n=1000 with the default pool, GB/s each way");
    for (uint32_t i = 0; i < ARRAY_SIZE(chunk_sizes); i++) {
        const struct bench_cell row[] = {
            {"chunk_kib", NULL, (double)(chunk_sizes[i] >> 10), 0},
            {"in_flight", NULL, depth_of(caps, chunk_sizes[i]), 0},
            {"gb_per_s", NULL, gigabytes_per_s(bench, i), 2},
        };

        bench_report_row(bench->report, row, ARRAY_SIZE(row));
    }
}

/* ---- priority ------------------------------------------------------------------------------- */

static const enum priority priorities[] = {PRIORITY_URGENT, PRIORITY_BULK};

/* Of the small job, whose bytes lie behind the large one's. */
static double run_priority(void *owner, uint32_t i)
{
    struct bench *bench = owner;
    struct rig_memory *memory = &bench->memory;
    struct rig *rig = &bench->rigs[RIG_DEFAULT];
    size_t large_size = MIN((size_t)LARGE_SIZE, memory->size - SMALL_SIZE);
    uint32_t n[PRIORITY_COUNT] = {0};
    uint64_t start_ns;
    uint32_t index;
    double seconds;

    bench_poison(memory->out, large_size + SMALL_SIZE);
    rig_submit(rig, PRIORITY_BULK, JOB_ITERATE_LONG, 0, large_size);
    usleep(STARTING_US);
    start_ns = now_ns();
    index = rig_submit(rig, priorities[i], JOB_ITERATE, large_size, SMALL_SIZE);
    while (queue_work_is_held(rig->front.queue, priorities[i], index)) {
        rig_take(rig, n);
    }
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    if (priorities[i] == PRIORITY_URGENT && n[PRIORITY_BULK] > 0) {
        bench_fail("the kernel that should fill the device ended before the urgent job");
    }
    while (n[PRIORITY_URGENT] + n[PRIORITY_BULK] < 2) {
        rig_take(rig, n);
    }
    subject_iterate.check("priority", memory->out, memory->in, large_size + SMALL_SIZE);
    return seconds;
}

/* Returns how many times as soon urgent work is done. */
static double measure_priority(struct bench *bench)
{
    double ratio;

    run_contest(bench, ARRAY_SIZE(priorities), run_priority);
    ratio = contest_ratio(&bench->contest, 0, 1);
    bench_report_table(bench->report, "priority",
                       "a 4 KiB job behind a kernel that fills the device (iterate n=20000 over "
                       "256 MiB, bulk), until its answer");
    const struct bench_cell row[] = {
        {"as_urgent_us", NULL, contest_seconds(&bench->contest, 0) * 1e6, 1},
        {"as_bulk_us", NULL, contest_seconds(&bench->contest, 1) * 1e6, 1},
        {"sooner", NULL, ratio, 1},
    };
    bench_report_row(bench->report, row, ARRAY_SIZE(row));
    return ratio;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct bench *bench)
{
    rig_memory_create(bench->options->size, &bench->memory);
    for (uint32_t i = 0; i < ARRAY_SIZE(n_streams); i++) {
        rig_start(&bench->memory, n_streams[i], &bench->rigs[i]);
        CHECK_EQ(rig_open(&bench->rigs[i], &subject_iterate), JOB_ITERATE);
        CHECK_EQ(rig_open(&bench->rigs[i], &subject_iterate_long), JOB_ITERATE_LONG);
    }
}

static void measure(struct bench *bench)
{
    double streams, priority;

    bench->report = bench_report_create("streams", bench->options->json);
    streams = measure_streams(bench);
    measure_chunks(bench);
    priority = measure_priority(bench);
    bench_report_table(bench->report, "reach", "median of the rounds' ratios");
    bench_report_claim(bench->report, "default pool against one stream", streams, 1.6);
    bench_report_claim(bench->report, "urgent against bulk behind a kernel", priority, 50);
    bench_report_destroy(bench->report);
}

static void stop(struct bench *bench)
{
    for (uint32_t i = 0; i < ARRAY_SIZE(n_streams); i++) {
        rig_stop(&bench->rigs[i]);
    }
    rig_memory_destroy(&bench->memory);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"size", "SIZE", "bytes of one run", "1G", SIZE_UNIT, UINT64_C(1) << 33,
         .size = &options.size},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "The GPU worker's streams: how many, what chunks, which priority.");
    bench.options = &options;
    RIG_GUARD();
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
