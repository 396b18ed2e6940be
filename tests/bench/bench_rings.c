/*
 * bench_rings: data in a ring against the same data through the socket of the same daemon.
 *
 * One job of `copy` at a time, pushes of four sizes, in rounds of random order with fresh random
 * data; every byte is checked.  The client of a ring does not copy: what it would compute lies
 * where the daemon reads it.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/ring_stream.h"
#include "tests/bench/stream.h"

#include <string.h>

#define RECORD 4096u
#define WINDOW 4

static const size_t push_sizes[] = {64u << 10, 256u << 10, 1u << 20, 4u << 20};

enum way { WAY_RING, WAY_SOCKET, WAY_COUNT };

#define MIB_VARIANT (2 * WAY_COUNT) /* where those of 1 MiB begin */

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
    struct ring_stream_job job;
    uint8_t *in;
    uint8_t *out;
    double cpu_s[ARRAY_SIZE(push_sizes)][WAY_COUNT]; /* client, front end and worker, all rounds */
    struct contest contest;
};

static const struct msg_op copy = {
    .name = "copy",
    .n_values = 1,
    .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}},
};

static double cpu_s(const struct bench *bench)
{
    return bench_usage(0).cpu_s + bench_usage(bench->daemon.pid).cpu_s +
           bench_usage(bench->daemon.worker).cpu_s;
}

static void begin_round(void *owner)
{
    struct bench *bench = owner;

    bench_fill(bench->in, bench->options->size);
    memcpy(bench->ring.in, bench->in, bench->options->size);
}

static void run_socket(const struct bench *bench, size_t push_size)
{
    const struct stream stream = {
        .op = copy,
        .priority = PRIORITY_BULK,
        .in = bench->in,
        .out = bench->out,
        .in_size = bench->options->size,
        .push_size = push_size,
        .in_record = RECORD,
        .out_record = RECORD,
    };

    stream_run(bench->daemon.socket_path, &stream);
}

static double run_variant(void *owner, uint32_t variant)
{
    struct bench *bench = owner;
    size_t size = bench->options->size, push_size = push_sizes[variant / WAY_COUNT];
    bool is_ring = variant % WAY_COUNT == WAY_RING;
    uint8_t *out = is_ring ? bench->ring.out : bench->out;
    double used_s, seconds;
    uint64_t start_ns;

    bench_poison(out, size);
    used_s = cpu_s(bench);
    start_ns = now_ns();
    if (is_ring) {
        ring_stream_run(&bench->ring, &bench->job, size, push_size);
    } else {
        run_socket(bench, push_size);
    }
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    bench->cpu_s[variant / WAY_COUNT][variant % WAY_COUNT] += cpu_s(bench) - used_s;
    bench_check_same(is_ring ? "ring" : "socket", out, bench->in, size);
    return seconds;
}

static double rate(const struct bench *bench, uint32_t variant)
{
    return (double)bench->options->size * 1e-9 / contest_seconds(&bench->contest, variant);
}

static void report(const struct bench *bench)
{
    /* The round that is not counted was run as well. */
    double gb = (double)bench->options->size * 1e-9 * (bench->options->n_rounds + 1);
    struct bench_report *report = bench_report_create("rings", bench->options->json);

    bench_report_table(report, "throughput", "copy, GB/s each way, and CPU seconds for each GB");
    for (uint32_t i = 0; i < ARRAY_SIZE(push_sizes); i++) {
        uint32_t ring = i * WAY_COUNT + WAY_RING, socket = i * WAY_COUNT + WAY_SOCKET;
        const struct bench_cell row[] = {
            {"push_kib", NULL, (double)(push_sizes[i] >> 10), 0},
            {"ring", NULL, rate(bench, ring), 2},
            {"socket", NULL, rate(bench, socket), 2},
            {"ratio", NULL, contest_ratio(&bench->contest, ring, socket), 2},
            {"ring_cpu", NULL, bench->cpu_s[i][WAY_RING] / gb, 4},
            {"socket_cpu", NULL, bench->cpu_s[i][WAY_SOCKET] / gb, 4},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_table(report, "reach", "median of the rounds' ratios");
    bench_report_claim(
        report, "ring against the socket, pushes of 1 MiB",
        contest_ratio(&bench->contest, MIB_VARIANT + WAY_RING, MIB_VARIANT + WAY_SOCKET),
        strcmp(bench->options->backend, "cuda") == 0 ? 5 : 2);
    bench_report_destroy(report);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"size", "SIZE", "bytes of one run", "128M", 4u << 20, 256u << 20, .size = &options.size},
        {"rounds", "N", "rounds", "9", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Data in a ring of a private gpupiped against data through its socket.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.daemon.ring_pool = "2G";
    bench_daemon_start(&bench.daemon, NULL, options.backend);
    ring_stream_open(&bench.ring, bench.daemon.socket_path, 2 * options.size);
    ring_stream_prepare(&bench.ring, &copy, PRIORITY_BULK, WINDOW, &bench.job);
    bench.in = bench_allocate(options.size);
    bench.out = bench_allocate(options.size);
    bench.contest = (struct contest){
        .n_variants = ARRAY_SIZE(push_sizes) * WAY_COUNT,
        .n_rounds = options.n_rounds,
        .begin = begin_round,
        .run = run_variant,
        .owner = &bench,
    };
    contest_run(&bench.contest);
    report(&bench);
    free(bench.in);
    free(bench.out);
    ring_stream_close(&bench.ring);
    bench_daemon_stop(&bench.daemon);
    return EXIT_SUCCESS;
}
