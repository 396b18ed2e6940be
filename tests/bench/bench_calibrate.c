/*
 * bench_calibrate: what a pipeline measures of its device when it is created, and what comes of it.
 * The CUDA backend's own code, no worker.
 *
 *     small   up to how many bytes kernels move arrays in the engines' place, of several pipelines
 *             one after the other, and how long it takes to find that out
 *     ways    an idle device's times for `copy` of several sizes, by a kernel and by the engines
 */
#include "cuda/cuda_calibrate.h"
#include "cuda/cuda_slots.h"
#include "cuda/cuda_streams.h"
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/must.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_SKIPPED 77
#define ROUNDS_MAX   100u
#define LEAST        8192u /* of both arrays */

struct options {
    const char *json;
    uint32_t n_rounds;
};

/* As MUST(), of our own calls. */
static void check(int error, const struct cuda_trouble *trouble)
{
    if (error < 0) {
        bench_fail("%s", trouble->failure.message);
    }
}

static uint32_t find_copy(void)
{
    uint32_t op = 0;

    while (strcmp(op_codes[op]->manifest->name, "copy") != 0) {
        op++;
    }
    return op;
}

static struct cuda_pipeline *create(void)
{
    struct cuda_pipeline *pipeline;
    struct cuda_trouble trouble;

    check(cuda_pipeline_create(CUDA_STREAMS, &pipeline, &trouble), &trouble);
    return pipeline;
}

/* The first pipeline finds the device as a worker does. */
static void measure_small(struct bench_report *report, uint32_t n_rounds)
{
    bench_report_table(report, "small",
                       "KiB of both arrays that a new pipeline takes for small, what it finds when "
                       "it is asked again, and milliseconds until it has");
    for (uint32_t i = 0; i < n_rounds; i++) {
        struct cuda_pipeline *pipeline = create();
        const uint64_t first = cuda_pipeline_small(pipeline);
        struct cuda_trouble trouble;
        uint64_t again, start_ns = now_ns();

        check(cuda_calibrate(pipeline, find_copy(), &again, &trouble), &trouble);
        const struct bench_cell row[] = {
            {"pipeline", NULL, i + 1, 0},
            {"small_kib", NULL, (double)(first >> 10), 0},
            {"again_kib", NULL, (double)(again >> 10), 0},
            {"took_ms", NULL, (double)(now_ns() - start_ns) / 1e6, 2},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
        cuda_pipeline_destroy(pipeline);
    }
}

static void measure_ways(struct bench_report *report, uint32_t n_rounds)
{
    struct cuda_pipeline *pipeline = create();
    void *memory;

    MUST(cudaHostAlloc(&memory, CUDA_SMALL, cudaHostAllocMapped));
    bench_report_table(report, "ways",
                       "microseconds for both arrays of so many KiB: medians of the rounds, each "
                       "the best of a few runs, and the lowest ratio in a round");
    for (uint64_t bytes = LEAST; bytes <= CUDA_SMALL; bytes *= 2) {
        double kernel_us[ROUNDS_MAX], engines_us[ROUNDS_MAX], ratios[ROUNDS_MAX];

        for (uint32_t i = 0; i < n_rounds; i++) {
            struct cuda_trouble trouble;
            struct cuda_times times;

            check(cuda_calibrate_time(pipeline, find_copy(), memory, bytes, &times, &trouble),
                  &trouble);
            kernel_us[i] = (double)times.kernel_ns / 1e3;
            engines_us[i] = (double)times.engines_ns / 1e3;
            ratios[i] = engines_us[i] / kernel_us[i];
        }
        const struct bench_cell row[] = {
            {"kib", NULL, (double)(bytes >> 10), 0},
            {"kernel_us", NULL, bench_median(kernel_us, n_rounds), 1},
            {"engines_us", NULL, bench_median(engines_us, n_rounds), 1},
            {"lowest_ratio", NULL, bench_quantile(ratios, n_rounds, 0), 2},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    MUST(cudaFreeHost(memory));
    cuda_pipeline_destroy(pipeline);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"rounds", "N", "rounds", "7", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    struct bench_report *report;
    int n = 0;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Up to which size kernels move data no slower than the copy engines.");
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* as the worker does */
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("skipped: no GPU\n");
        return EXIT_SKIPPED;
    }
    MUST(cudaInitDevice(0, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid));
    MUST(cudaSetDevice(0));
    report = bench_report_create("calibrate", options.json);
    measure_small(report, options.n_rounds);
    measure_ways(report, options.n_rounds);
    bench_report_destroy(report);
    return EXIT_SUCCESS;
}
