/*
 * bench_clients: many client processes, a ring each, against one; and the device memory that they
 * cost, against as many processes with CUDA contexts of their own.
 *
 *     one      a single client copies all of the data; the others have their rings and wait
 *     many     each of them copies its part of as many data, all at once
 *
 * Rounds in random order with fresh random data; every byte is checked by its client.
 *
 * Memory is what the device has less while they are there, as a watching process sees it: before
 * the daemon and while its clients have rings; before and while the processes are there, first with
 * a page in each, then with the buffers of a pipeline.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/client.h"
#include "tests/bench/contest.h"
#include "tests/bench/own.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define CLIENTS_MAX  32u
#define SIZE_UNIT    (4u << 20)
#define SIZE_MOST    (512u << 20)
#define PUSH_MOST    (32u << 20) /* the daemon cuts it into chunks */
#define PIPELINE_MIB 32u         /* four chunks of 4 MiB, in and out */
#define SETTLE_US    500000      /* a process is gone before its memory is */
#define MIB          1048576.0

enum variant { ONE, MANY, N_VARIANTS };

struct options {
    const char *backend;
    const char *json;
    size_t size;
    uint32_t n_clients;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    bool is_cuda;
    struct bench_daemon daemon;
    struct client_shape shape;
    struct client clients[CLIENTS_MAX];
    struct own watcher;
    struct own holders[CLIENTS_MAX];
    uint32_t n_runs; /* of many at once; the first is not counted */
    double spread[CONTEST_ROUNDS_MAX + 1];
    struct contest contest;
};

/* ---- throughput ----------------------------------------------------------------------------- */

static double run_variant(void *owner, uint32_t variant)
{
    struct bench *bench = owner;
    uint32_t n = variant == ONE ? 1 : bench->options->n_clients;
    double least = INFINITY, most = 0, seconds;
    uint64_t start_ns;

    for (uint32_t i = 0; i < n; i++) {
        client_prepare(&bench->clients[i]);
    }
    start_ns = now_ns();
    for (uint32_t i = 0; i < n; i++) {
        client_begin(&bench->clients[i], bench->options->n_clients / n);
    }
    for (uint32_t i = 0; i < n; i++) {
        double own = client_end(&bench->clients[i]);

        least = MIN(least, own);
        most = MAX(most, own);
    }
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    for (uint32_t i = 0; i < n; i++) {
        client_check(&bench->clients[i]);
    }
    if (variant == MANY) {
        bench->spread[bench->n_runs++] = most / least;
    }
    return seconds;
}

static void report_throughput(struct bench *bench, struct bench_report *report)
{
    double gb = (double)bench->options->size * 1e-9 * bench->options->n_clients;

    bench_report_table(report, "throughput",
                       "copy, GB/s each way of all clients together; and how many times as long "
                       "as the first to end the last one took");
    for (uint32_t i = 0; i < N_VARIANTS; i++) {
        const struct bench_cell row[] = {
            {"clients", NULL, i == ONE ? 1 : bench->options->n_clients, 0},
            {"gb_per_s", NULL, gb / contest_seconds(&bench->contest, i), 2},
            {"of_one", NULL, contest_ratio(&bench->contest, i, ONE), 3},
            {"spread", NULL, i == ONE ? NAN : bench_median(&bench->spread[1], bench->n_runs - 1),
             2},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static double free_mib(const struct bench *bench)
{
    usleep(SETTLE_US);
    return own_free_memory(&bench->watcher) / MIB;
}

/* That many processes take, so much in each. */
static double held_mib(struct bench *bench, uint32_t mib)
{
    double before = free_mib(bench), held;

    for (uint32_t i = 0; i < bench->options->n_clients; i++) {
        own_start_holder(&bench->holders[i], mib);
    }
    held = before - free_mib(bench);
    for (uint32_t i = 0; i < bench->options->n_clients; i++) {
        own_stop(&bench->holders[i]);
    }
    return held;
}

static void add_memory_row(struct bench_report *report, const char *what, double mib, double ours)
{
    const struct bench_cell row[] = {
        {"what                                ", what, 0, 0},
        {"mib", NULL, mib, 0},
        {"of_ours", NULL, mib / ours, 2},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void report_memory(struct bench_report *report, double ours, double bare, double working)
{
    bench_report_table(report, "memory", "MiB of the device, all clients together");
    add_memory_row(report, "the daemon's worker", ours, ours);
    add_memory_row(report, "contexts of their own", bare, ours);
    add_memory_row(report, "likewise, with a pipeline of 32 MiB", working, ours);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct bench *bench)
{
    const struct options *options = bench->options;

    bench->daemon.ring_pool = "12G";
    bench_daemon_start(&bench->daemon, NULL, options->backend);
    bench->shape = (struct client_shape){
        .socket_path = bench->daemon.socket_path,
        .size = options->size,
        .push_size = MIN((size_t)PUSH_MOST, options->size / 4),
    };
    for (uint32_t i = 0; i < options->n_clients; i++) {
        client_start(&bench->clients[i], &bench->shape);
    }
}

static void stop(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->options->n_clients; i++) {
        client_stop(&bench->clients[i]);
    }
    bench_daemon_stop(&bench->daemon);
}

static void measure(struct bench *bench)
{
    struct bench_report *report = bench_report_create("clients", bench->options->json);
    double before = 0, ours = 0, bare = 0, working = 0;

    if (bench->is_cuda) {
        own_start_watcher(&bench->watcher);
        before = free_mib(bench);
    }
    start(bench);
    bench->contest = (struct contest){.n_variants = N_VARIANTS,
                                      .n_rounds = bench->options->n_rounds,
                                      .run = run_variant,
                                      .owner = bench};
    contest_run(&bench->contest);
    ours = bench->is_cuda ? before - free_mib(bench) : 0;
    if (bench->is_cuda && ours <= 0) {
        bench_fail("the device has no less memory with a worker than without: who else uses it?");
    }
    stop(bench);
    report_throughput(bench, report);
    if (bench->is_cuda) {
        bare = held_mib(bench, 0);
        working = held_mib(bench, PIPELINE_MIB);
        own_stop(&bench->watcher);
        report_memory(report, ours, bare, working);
    }
    bench_report_table(report, "reach", "median of the rounds' ratios; memory");
    bench_report_claim(report, "throughput of all clients against one",
                       contest_ratio(&bench->contest, MANY, ONE), 0.97);
    if (bench->is_cuda) {
        bench_report_claim(report, "memory of own contexts to the worker's", bare / ours, 6);
        bench_report_claim(report, "likewise, with a pipeline in each", working / ours, 6);
    }
    bench_report_destroy(report);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"clients", "N", "client processes", "8", 2, CLIENTS_MAX, .count = &options.n_clients},
        {"size", "SIZE", "bytes of one client", "32M", SIZE_UNIT, SIZE_MOST, .size = &options.size},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Client processes with a ring each, through a private gpupiped.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.is_cuda = strcmp(options.backend, "cuda") == 0;
    measure(&bench);
    return EXIT_SUCCESS;
}
