/*
 * bench_runs: small requests.
 *
 * Rate: one client sends many `run` requests of a 1 KiB copy, a fixed number of them under way, to
 * gpupiped and to a bare MessagePack-RPC echo server, in turn.
 *
 * Latency: one 4 KiB copy at a time, alone and beside three clients that stream bulk work, as an
 * urgent and as a normal request; the echo server's and a `ping` tell what of it is the socket and
 * what the front end.
 *
 * All data are fresh random bytes; every output is compared with its input.
 */
#include "proto/codec.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/calls.h"
#include "tests/bench/rpc_echo.h"
#include "tests/bench/stream.h"

#include <stdbool.h>
#include <string.h>

#define RUN_SIZE     1024u
#define LATENCY_SIZE 4096u
#define ROUNDS_MAX   99u
#define N_STREAMS    3u
#define STREAM_SIZE  (64u << 20)
#define STREAM_PUSH  (1u << 20)

struct options {
    const char *daemon;
    const char *json;
    uint32_t n_runs;
    uint32_t depth;
    uint32_t n_rounds;
    uint32_t n_latencies;
};

struct bench {
    const struct options *options;
    struct bench_daemon daemon;
    struct rpc_echo rpc_echo;
    struct calls to_daemon;
    struct calls to_echo;
};

static void set_run(struct calls *calls, uint32_t size, enum priority priority)
{
    struct msg_run run = {
        .op = {.name = "copy",
               .n_values = 1,
               .values = {{.name = "size", .kind = VALUE_INT, .i = size}}},
        .options = {.priority = priority},
        .n_data = 1,
    };

    calls_prepare_run(calls, &run);
}

/* ---- rate ----------------------------------------------------------------------------------- */

struct rate {
    double seconds[ROUNDS_MAX];
    double server_cpu_s;
    double worker_cpu_s;
    double client_cpu_s;
};

static void time_runs(const struct bench *bench, struct calls *calls, pid_t server, size_t round,
                      struct rate *rate)
{
    uint32_t n_runs = bench->options->n_runs;
    size_t size = (size_t)n_runs * RUN_SIZE;
    uint8_t *in = bench_allocate(size);
    uint8_t *out = bench_allocate(size);

    bench_fill(in, size);
    bench_poison(out, size);
    struct bench_usage own = bench_usage(0);
    struct bench_usage used = bench_usage(server);
    struct bench_usage worker = bench_usage(bench->daemon.worker);
    uint64_t start_ns = now_ns();
    calls_run(calls, in, out, RUN_SIZE, n_runs, bench->options->depth);
    rate->seconds[round] = (double)(now_ns() - start_ns) * 1e-9;
    rate->client_cpu_s += bench_usage_since(0, &own).cpu_s;
    rate->server_cpu_s += bench_usage_since(server, &used).cpu_s;
    rate->worker_cpu_s += bench_usage_since(bench->daemon.worker, &worker).cpu_s;
    bench_check_same("run", out, in, size);
    free(in);
    free(out);
}

static void add_rate_row(struct bench_report *report, const struct bench *bench, const char *server,
                         struct rate *rate, double ratio)
{
    double n_runs = bench->options->n_runs;
    double n_total = n_runs * (double)bench->options->n_rounds;
    const struct bench_cell row[] = {
        {"server", server, 0, 0},
        {"runs_per_s", NULL, n_runs / bench_median(rate->seconds, bench->options->n_rounds), 0},
        {"of_echo", NULL, ratio, 3},
        {"client_us", NULL, rate->client_cpu_s / n_total * 1e6, 2},
        {"server_us", NULL, rate->server_cpu_s / n_total * 1e6, 2},
        {"worker_us", NULL, rate->worker_cpu_s / n_total * 1e6, 2},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void measure_rate(struct bench *bench, struct bench_report *report)
{
    static struct rate daemon, echo;
    double ratios[ROUNDS_MAX];
    size_t n_rounds = bench->options->n_rounds;

    set_run(&bench->to_daemon, RUN_SIZE, PRIORITY_NORMAL);
    set_run(&bench->to_echo, RUN_SIZE, PRIORITY_NORMAL);
    for (size_t round = 0; round < n_rounds; round++) {
        uint32_t order[2];

        bench_shuffle(order, 2);
        for (size_t turn = 0; turn < 2; turn++) {
            if (order[turn] == 0) {
                time_runs(bench, &bench->to_daemon, bench->daemon.pid, round, &daemon);
            } else {
                time_runs(bench, &bench->to_echo, bench->rpc_echo.pid, round, &echo);
            }
        }
        ratios[round] = echo.seconds[round] / daemon.seconds[round];
    }
    bench_report_table(report, "rate",
                       "copies of 1 KiB through one connection, and CPU time for each");
    add_rate_row(report, bench, "gpupiped", &daemon, bench_median(ratios, n_rounds));
    add_rate_row(report, bench, "rpc echo", &echo, 1);
}

/* ---- latency -------------------------------------------------------------------------------- */

/* A client that streams bulk work until it is ended. */
static pid_t start_stream(const struct bench_daemon *daemon)
{
    struct stream stream = {
        .op = {.name = "copy",
               .n_values = 1,
               .values = {{.name = "size", .kind = VALUE_INT, .i = LATENCY_SIZE}}},
        .priority = PRIORITY_BULK,
        .in_size = STREAM_SIZE,
        .push_size = STREAM_PUSH,
        .in_record = LATENCY_SIZE,
        .out_record = LATENCY_SIZE,
    };
    pid_t pid = bench_fork();

    if (pid != 0) {
        return pid;
    }
    stream.in = bench_allocate(STREAM_SIZE);
    stream.out = bench_allocate(STREAM_SIZE);
    for (;;) {
        bench_fill((void *)stream.in, STREAM_SIZE);
        bench_poison(stream.out, STREAM_SIZE);
        stream_run(daemon->socket_path, &stream);
        bench_check_same("stream", stream.out, stream.in, STREAM_SIZE);
    }
}

static void time_one_by_one(const struct bench *bench, struct calls *calls, size_t size,
                            double *ret_us)
{
    uint8_t in[LATENCY_SIZE], out[LATENCY_SIZE];

    for (uint32_t i = 0; i < bench->options->n_latencies; i++) {
        bench_fill(in, size);
        bench_poison(out, size);
        uint64_t start_ns = now_ns();
        calls_run(calls, in, out, size, 1, 1);
        ret_us[i] = (double)(now_ns() - start_ns) * 1e-3;
        bench_check_same("run", out, in, size);
    }
}

static void add_latency_row(struct bench_report *report, const struct bench *bench,
                            const char *request, const char *beside, double *us)
{
    size_t n = bench->options->n_latencies;
    const struct bench_cell row[] = {
        {"request ", request, 0, 0},
        {"beside   ", beside, 0, 0},
        {"p50_us", NULL, bench_median(us, n), 1},
        {"p99_us", NULL, bench_quantile(us, n, 0.99), 1},
        {"max_us", NULL, us[n - 1], 1},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* Against the daemon, in three ways. */
static void measure_requests(struct bench *bench, struct bench_report *report, const char *beside,
                             double *us)
{
    calls_prepare_ping(&bench->to_daemon);
    time_one_by_one(bench, &bench->to_daemon, 0, us);
    add_latency_row(report, bench, "ping", beside, us);
    for (enum priority priority = PRIORITY_URGENT; priority <= PRIORITY_NORMAL; priority++) {
        set_run(&bench->to_daemon, LATENCY_SIZE, priority);
        time_one_by_one(bench, &bench->to_daemon, LATENCY_SIZE, us);
        add_latency_row(report, bench, priority_names[priority], beside, us);
    }
}

static void measure_latency(struct bench *bench, struct bench_report *report)
{
    double *us = bench_allocate(bench->options->n_latencies * sizeof(*us));
    pid_t streams[N_STREAMS];

    bench_report_table(report, "latency", "one ping, or one copy of 4 KiB, at a time");
    set_run(&bench->to_echo, LATENCY_SIZE, PRIORITY_NORMAL);
    time_one_by_one(bench, &bench->to_echo, LATENCY_SIZE, us);
    add_latency_row(report, bench, "rpc echo", "nothing", us);
    measure_requests(bench, report, "nothing", us);
    for (size_t i = 0; i < N_STREAMS; i++) {
        streams[i] = start_stream(&bench->daemon);
    }
    measure_requests(bench, report, "3 bulk", us);
    for (size_t i = 0; i < N_STREAMS; i++) {
        bench_end(streams[i]);
    }
    free(us);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"daemon", "PATH", "the daemon (default: of this build)", .text = &options.daemon},
        {"runs", "N", "requests of one round", "100000", 1, 10000000, .count = &options.n_runs},
        {"depth", "N", "requests under way at once", "64", 1, 100000, .count = &options.depth},
        {"rounds", "N", "rounds", "7", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"latency-runs", "N", "requests one at a time", "10000", 100, 10000000,
         .count = &options.n_latencies},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    struct bench bench = {.options = &options};

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Small requests through a private gpupiped, against a bare RPC server.");
    struct bench_report *report = bench_report_create("runs", options.json);
    rpc_echo_start(&bench.rpc_echo);
    bench_daemon_start(&bench.daemon, options.daemon, "cpu");
    calls_open(&bench.to_daemon, bench.daemon.socket_path);
    calls_open_fd(&bench.to_echo, bench.rpc_echo.fd);
    measure_latency(&bench, report);
    measure_rate(&bench, report);
    calls_close(&bench.to_daemon);
    calls_close(&bench.to_echo);
    bench_report_destroy(report);
    bench_daemon_stop(&bench.daemon);
    rpc_echo_stop(&bench.rpc_echo);
    return EXIT_SUCCESS;
}
