/*
 * bench_overlap: what CUDA itself does for a pipeline and what it does not; the reasons for the way
 * the worker issues and waits.  CUDA directly, no worker.
 *
 *     calls        an asynchronous call returns before its work is done, unless memory is pageable
 *     waiting      an event for each chunk against a synchronise after each chunk
 *     dependency   a copy of a kernel's result on another stream, with and without an event between
 *                  them, and with the code loaded at its first use (lazy) or before (eager): lazy
 *                  loading makes the first launch wait, which hides that the event is missing
 *
 * Rounds in random order, fresh random data; every byte is checked wherever the result is defined.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/direct.h"
#include "tests/bench/must.h"
#include "tests/bench/race.h"

#include <string.h>
#include <sys/wait.h>

#define CHUNK_SIZE   (4u << 20)
#define DEPTH        4u
#define RACE_ROUNDS  3u
#define EXIT_SKIPPED 77

struct options {
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_report *report;
    uint8_t *in;
    uint8_t *out;
    struct direct *direct;
};

/* ---- dependency ----------------------------------------------------------------------------- */

static const struct race races[] = {
    {.is_eager = false, .has_event = false},
    {.is_eager = true, .has_event = false},
    {.is_eager = false, .has_event = true},
    {.is_eager = true, .has_event = true},
};

static void measure_dependency(struct bench *bench)
{
    bench_report_table(bench->report, "dependency",
                       "runs of which a stream read another's result too soon, and bytes of these");
    for (size_t i = 0; i < ARRAY_SIZE(races); i++) {
        size_t n_wrong = 0;
        uint32_t n_found = 0;

        for (uint32_t round = 0; round < RACE_ROUNDS; round++) {
            size_t n = race_run(&races[i]);

            n_wrong += n;
            n_found += n > 0;
        }
        if (races[i].has_event && n_wrong > 0) {
            bench_fail("dependency: %zu bytes are wrong although the stream waited", n_wrong);
        }
        const struct bench_cell row[] = {
            {"loading", races[i].is_eager ? "eager" : "lazy", 0, 0},
            {"event  ", races[i].has_event ? "yes" : "missing", 0, 0},
            {"found", NULL, n_found, 0},
            {"of_runs", NULL, RACE_ROUNDS, 0},
            {"wrong_bytes", NULL, (double)n_wrong, 0},
        };
        bench_report_row(bench->report, row, ARRAY_SIZE(row));
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

enum memory { PINNED, PAGEABLE, MEMORIES };

static const char *const memory_names[] = {[PINNED] = "pinned", [PAGEABLE] = "pageable"};

struct calls_test {
    struct bench *bench;
    void *device;
    void *pageable;
    cudaStream_t stream;
    uint32_t n_runs[MEMORIES];
    uint32_t n_early[MEMORIES];                       /* was not done when the call returned */
    double issue_s[MEMORIES][CONTEST_ROUNDS_MAX + 1]; /* the first round is not counted */
};

/* One copy to the device, and back to see what came. */
static double run_call(void *owner, uint32_t i)
{
    struct calls_test *test = owner;
    struct bench *bench = test->bench;
    size_t size = bench->options->size;
    uint64_t start_ns, issued_ns;
    double seconds;

    if (i == PAGEABLE) {
        memcpy(test->pageable, bench->in, size);
    }
    bench_poison(bench->out, size);
    start_ns = now_ns();
    MUST(cudaMemcpyAsync(test->device, i == PAGEABLE ? test->pageable : bench->in, size,
                         cudaMemcpyHostToDevice, test->stream));
    issued_ns = now_ns();
    test->n_early[i] += cudaStreamQuery(test->stream) == cudaErrorNotReady;
    MUST(cudaStreamSynchronize(test->stream));
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    test->issue_s[i][test->n_runs[i]++] = (double)(issued_ns - start_ns) * 1e-9;
    MUST(cudaMemcpy(bench->out, test->device, size, cudaMemcpyDeviceToHost));
    bench_check_same("copy", bench->out, bench->in, size);
    return seconds;
}

static void begin_calls(void *owner)
{
    const struct calls_test *test = owner;

    subject_fill(test->bench->in, test->bench->options->size);
}

static void measure_calls(struct bench *bench)
{
    static struct calls_test test;
    static struct contest contest;

    test.bench = bench;
    test.pageable = bench_allocate(bench->options->size);
    MUST(cudaMalloc(&test.device, bench->options->size));
    MUST(cudaStreamCreateWithFlags(&test.stream, cudaStreamNonBlocking));
    contest = (struct contest){.n_variants = MEMORIES,
                               .n_rounds = bench->options->n_rounds,
                               .begin = begin_calls,
                               .run = run_call,
                               .owner = &test};
    contest_run(&contest);
    bench_report_table(bench->report, "calls",
                       "an asynchronous copy to the device: microseconds until the call returned "
                       "and until the copy was done, and how often it was not when the call was");
    for (enum memory i = 0; i < MEMORIES; i++) {
        const struct bench_cell row[] = {
            {"memory  ", memory_names[i], 0, 0},
            {"call_us", NULL, bench_median(&test.issue_s[i][1], test.n_runs[i] - 1) * 1e6, 1},
            {"done_us", NULL, contest_seconds(&contest, i) * 1e6, 1},
            {"early", NULL, test.n_early[i], 0},
            {"of_runs", NULL, test.n_runs[i], 0},
        };

        bench_report_row(bench->report, row, ARRAY_SIZE(row));
    }
    MUST(cudaStreamDestroy(test.stream));
    MUST(cudaFree(test.device));
    free(test.pageable);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static const struct waiting {
    const char *name;
    enum direct_wait wait;
    uint32_t depth;
} waitings[] = {
    {"event for each chunk", DIRECT_EVENTS, DEPTH},
    {"event, one in flight", DIRECT_EVENTS, 1},
    {"synchronise after each", DIRECT_SYNCHRONISE, DEPTH},
};

struct waiting_test {
    struct bench *bench;
    struct direct_plan *plans[ARRAY_SIZE(waitings)];
};

static double run_waiting(void *owner, uint32_t i)
{
    const struct waiting_test *test = owner;
    const struct bench *bench = test->bench;
    double seconds;

    bench_poison(bench->out, bench->options->size);
    seconds = direct_run(test->plans[i]);
    subject_iterate.check("waiting", bench->out, bench->in, bench->options->size);
    return seconds;
}

static void begin_waiting(void *owner)
{
    const struct waiting_test *test = owner;

    subject_fill(test->bench->in, test->bench->options->size);
}

static void measure_waiting(struct bench *bench)
{
    static struct waiting_test test;
    static struct contest contest;

    test.bench = bench;
    for (uint32_t i = 0; i < ARRAY_SIZE(waitings); i++) {
        const struct direct_shape shape = {.subject = &subject_iterate,
                                           .chunk_size = CHUNK_SIZE,
                                           .depth = waitings[i].depth,
                                           .wait = waitings[i].wait};
        direct_plan_create(bench->direct, &shape, &test.plans[i]);
    }
    contest = (struct contest){.n_variants = ARRAY_SIZE(waitings),
                               .n_rounds = bench->options->n_rounds,
                               .begin = begin_waiting,
                               .run = run_waiting,
                               .owner = &test};
    contest_run(&contest);
    bench_report_table(bench->report, "waiting",
                       "iterate n=1000 in chunks of 4 MiB, GB/s each way, and how many times as "
                       "fast as a synchronise after each");
    for (uint32_t i = 0; i < ARRAY_SIZE(waitings); i++) {
        const struct bench_cell row[] = {
            {"waiting               ", waitings[i].name, 0, 0},
            {"gb_per_s", NULL, (double)bench->options->size * 1e-9 / contest_seconds(&contest, i),
             2},
            {"of_sync", NULL, contest_ratio(&contest, i, ARRAY_SIZE(waitings) - 1), 2},
        };

        bench_report_row(bench->report, row, ARRAY_SIZE(row));
        direct_plan_destroy(test.plans[i]);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static bool has_device(void)
{
    pid_t pid = bench_fork();
    int status = 0;

    if (pid == 0) {
        int n = 0;

        _exit(cudaGetDeviceCount(&n) != cudaSuccess || n == 0);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

static void measure(struct bench *bench)
{
    size_t size = bench->options->size;

    bench->report = bench_report_create("overlap", bench->options->json);
    measure_dependency(bench); /* before this process uses CUDA */
    bench->in = bench_allocate(size);
    bench->out = bench_allocate(size);
    bench_poison(bench->in, size);
    bench_poison(bench->out, size);
    direct_open(bench->in, bench->out, size, &bench->direct);
    measure_calls(bench);
    measure_waiting(bench);
    direct_close(bench->direct);
    bench_report_destroy(bench->report);
    free(bench->in);
    free(bench->out);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"size", "SIZE", "bytes of one run", "256M", CHUNK_SIZE, UINT64_C(1) << 33,
         .size = &options.size},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "What CUDA does for a pipeline, and what it does not.");
    bench.options = &options;
    if (!has_device()) {
        printf("skipped: no GPU\n");
        return EXIT_SKIPPED;
    }
    measure(&bench);
    return EXIT_SUCCESS;
}
