/*
 * bench_sweep: the chunks that the daemon makes of a large push in a ring, and how many it lets be
 * under way, against every choice that a client can make by itself.
 *
 *     default   pushes that are much larger than a chunk, in the window that a job has by default
 *     fixed     pushes of one size, so many at once; what is no larger than a chunk of the worker's
 *               (8 MiB on a GPU) is one chunk
 *
 * `copy`; rounds in random order with fresh random data; every byte is checked.  The best fixed one
 * is the fastest of all by its median, so it is a lucky one as well.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/ring_stream.h"

#include <string.h>

#define RECORD       4096u
#define DEFAULT_PUSH (32u << 20)

static const size_t push_sizes[] = {64u << 10, 256u << 10, 1u << 20, 2u << 20,
                                    4u << 20,  8u << 20,   16u << 20};
static const uint32_t windows[] = {2, 4, 8, 16};

#define N_WINDOWS  ARRAY_SIZE(windows)
#define N_FIXED    (ARRAY_SIZE(push_sizes) * N_WINDOWS)
#define DEFAULT    N_FIXED
#define N_VARIANTS (N_FIXED + 1)

struct options {
    const char *backend;
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_daemon daemon;
    struct ring_stream ring;
    struct ring_stream_job jobs[N_WINDOWS];
    struct ring_stream_job default_job;
    uint8_t *in;
    struct contest contest;
};

static void begin_round(void *owner)
{
    struct bench *bench = owner;

    bench_fill(bench->in, bench->options->size);
    memcpy(bench->ring.in, bench->in, bench->options->size);
}

static double run_variant(void *owner, uint32_t variant)
{
    struct bench *bench = owner;
    bool is_default = variant == DEFAULT;
    const struct ring_stream_job *job =
        is_default ? &bench->default_job : &bench->jobs[variant % N_WINDOWS];
    size_t push_size = is_default ? DEFAULT_PUSH : push_sizes[variant / N_WINDOWS];
    size_t size = bench->options->size;
    uint64_t start_ns;
    double seconds;

    bench_poison(bench->ring.out, size);
    start_ns = now_ns();
    ring_stream_run(&bench->ring, job, size, push_size);
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    bench_check_same("ring", bench->ring.out, bench->in, size);
    return seconds;
}

static uint32_t best_fixed(const struct bench *bench)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < N_FIXED; i++) {
        if (contest_seconds(&bench->contest, i) < contest_seconds(&bench->contest, best)) {
            best = i;
        }
    }
    return best;
}

static void add_row(struct bench_report *report, const struct bench *bench, uint32_t i)
{
    const struct bench_cell row[] = {
        {"choice ", i == DEFAULT ? "default" : "fixed", 0, 0},
        {"push_kib", NULL,
         (double)((i == DEFAULT ? DEFAULT_PUSH : push_sizes[i / N_WINDOWS]) >> 10), 0},
        {"window", NULL, i == DEFAULT ? bench->default_job.credit : windows[i % N_WINDOWS], 0},
        {"gb_per_s", NULL,
         (double)bench->options->size * 1e-9 / contest_seconds(&bench->contest, i), 2},
        {"of_default", NULL, contest_ratio(&bench->contest, i, DEFAULT), 3},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void report(const struct bench *bench)
{
    struct bench_report *report = bench_report_create("sweep", bench->options->json);
    uint32_t best = best_fixed(bench);

    bench_report_table(report, "sweep", "copy in a ring, GB/s each way");
    for (uint32_t i = 0; i < N_VARIANTS; i++) {
        add_row(report, bench, i);
    }
    bench_report_table(report, "best", "the fastest of the fixed");
    add_row(report, bench, best);
    bench_report_table(report, "reach", "median of the rounds' ratios");
    bench_report_claim(report, "default against the best fixed",
                       contest_ratio(&bench->contest, DEFAULT, best), 0.97);
    bench_report_destroy(report);
}

static void start(struct bench *bench)
{
    const struct msg_op copy = {.name = "copy",
                                .n_values = 1,
                                .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}}};

    bench->daemon.ring_pool = "4G";
    bench_daemon_start(&bench->daemon, NULL, bench->options->backend);
    ring_stream_open(&bench->ring, bench->daemon.socket_path, 2 * bench->options->size);
    for (uint32_t i = 0; i < N_WINDOWS; i++) {
        ring_stream_prepare(&bench->ring, &copy, PRIORITY_BULK, windows[i], &bench->jobs[i]);
    }
    ring_stream_prepare(&bench->ring, &copy, PRIORITY_BULK, 0, &bench->default_job);
    bench->in = bench_allocate(bench->options->size);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"size", "SIZE", "bytes of one run", "128M", DEFAULT_PUSH, 512u << 20,
         .size = &options.size},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(
        argc, argv, table, ARRAY_SIZE(table), NULL,
        "The daemon's chunks of a large push in a ring, against pushes of any size.");
    bench_need_backend(options.backend);
    bench.options = &options;
    start(&bench);
    bench.contest = (struct contest){
        .n_variants = N_VARIANTS,
        .n_rounds = options.n_rounds,
        .begin = begin_round,
        .run = run_variant,
        .owner = &bench,
    };
    contest_run(&bench.contest);
    report(&bench);
    free(bench.in);
    ring_stream_close(&bench.ring);
    bench_daemon_stop(&bench.daemon);
    return EXIT_SUCCESS;
}
