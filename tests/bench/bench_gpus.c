/*
 * bench_gpus: bulk on two GPUs of one host, `copy` in rings of a private gpupiped, against two
 * processes with the best direct pipeline each.
 *
 *     one process    a direct pipeline on the first GPU alone
 *     direct         one on either, at once: host memory is what limits them
 *     each           a client for either GPU
 *     both           one client, whose work goes to both
 *
 * All ways go over as much memory: SLOTS chunks of 4 MiB for each GPU, in and out.
 *
 * Rounds in random order with fresh random data; results are compared as bulk.h and own_party.h
 * say.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/bulk.h"
#include "tests/bench/contest.h"
#include "tests/bench/own_party.h"
#include "tests/bench/subject.h"

#include <string.h>

#define N_GPUS     2u
#define PUSH_SIZE  (4u << 20)
#define SLOTS      8u
#define DIRECT_MIB "32"

enum variant { V_ONE, V_DIRECT, V_EACH, V_BOTH, V_COUNT };

static const char *const variant_names[] = {"one process", "direct", "each", "both"};

static const char *const device_names[N_GPUS] = {"cuda0", "cuda1"};
static const char *const gpu_names[N_GPUS] = {"0", "1"};

struct options {
    const char *backend;
    const char *json;
    uint32_t run_ms;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_daemon daemon;
    struct bulk_shape shapes[N_GPUS + 1]; /* the last: for both */
    struct party clients[N_GPUS + 1];
    struct party direct[N_GPUS];
    struct contest contest;
};

/* Seconds for each byte. */
static double run_variant(void *owner, uint32_t variant)
{
    struct bench *bench = owner;
    bool is_direct = variant == V_ONE || variant == V_DIRECT;
    const struct party *parties = is_direct           ? bench->direct
                                  : variant == V_EACH ? bench->clients
                                                      : &bench->clients[N_GPUS];
    uint32_t n = variant == V_DIRECT || variant == V_EACH ? N_GPUS : 1;
    struct party_order order = {.what = is_direct ? OWN_WHAT(OWN_NO_SMALL, OWN_PIPELINE)
                                                  : (uint32_t)BULK_COPY};
    uint64_t run_ns = bench->options->run_ms * UINT64_C(1000000), n_bytes;

    party_tell_all(parties, n, &order);
    party_wait_all(parties, n);
    order.is_run = true;
    order.from_ns = now_ns() + PARTY_WARM_NS;
    order.to_ns = order.from_ns + run_ns;
    party_tell_all(parties, n, &order);
    n_bytes = party_wait_all(parties, n);
    if (n_bytes == 0) {
        bench_fail("%s: nothing was done in %u ms", variant_names[variant], bench->options->run_ms);
    }
    return (double)run_ns * 1e-9 / (double)n_bytes;
}

static void measure(struct bench *bench)
{
    struct bench_report *report = bench_report_create("gpus", bench->options->json);

    bench->contest = (struct contest){.n_variants = V_COUNT,
                                      .n_rounds = bench->options->n_rounds,
                                      .run = run_variant,
                                      .owner = bench};
    contest_run(&bench->contest);
    bench_report_table(report, "gpus", "bulk, GB/s each way of all GPUs together");
    for (uint32_t i = 0; i < V_COUNT; i++) {
        const struct bench_cell row[] = {
            {"variant    ", variant_names[i], 0, 0},
            {"gb_per_s", NULL, 1e-9 / contest_seconds(&bench->contest, i), 2},
            {"of_one", NULL, contest_ratio(&bench->contest, i, V_ONE), 3},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_table(report, "reach", "medians of the rounds' ratios");
    bench_report_claim(report, "a client for each against direct",
                       contest_ratio(&bench->contest, V_EACH, V_DIRECT), 0.97);
    bench_report_claim(report, "a client for both against direct",
                       contest_ratio(&bench->contest, V_BOTH, V_DIRECT), 0.95);
    bench_report_destroy(report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct bench *bench)
{
    bench->daemon.ring_pool = "2G";
    bench->daemon.devices = "0,1";
    bench_daemon_start(&bench->daemon, NULL, bench->options->backend);
    for (uint32_t i = 0; i <= N_GPUS; i++) {
        bench->shapes[i] = (struct bulk_shape){
            .socket_path = bench->daemon.socket_path,
            .push_size = PUSH_SIZE,
            .window = i < N_GPUS ? SLOTS : N_GPUS * SLOTS,
            .iterate_n = subject_iterate.value,
            .device = i < N_GPUS ? device_names[i] : NULL,
        };
        bulk_start(&bench->clients[i], &bench->shapes[i]);
    }
    for (uint32_t i = 0; i < N_GPUS; i++) {
        setenv("CUDA_VISIBLE_DEVICES", gpu_names[i], 1);
        party_exec(&bench->direct[i], "tests/bench/own-context", "party", DIRECT_MIB);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    party_wait_all(bench->direct, N_GPUS);
}

static void stop(struct bench *bench)
{
    for (uint32_t i = 0; i < N_GPUS; i++) {
        party_stop(&bench->direct[i]);
    }
    for (uint32_t i = 0; i <= N_GPUS; i++) {
        party_stop(&bench->clients[i]);
    }
    bench_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cuda; cpu has one device", "cuda", .text = &options.backend},
        {"run", "MS", "of each run", "1000", 50, 60000, .count = &options.run_ms},
        {"rounds", "N", "rounds", "5", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Bulk on two GPUs through a private gpupiped.");
    bench_need_backend(options.backend);
    if (bench_count_devices(options.backend) < N_GPUS) {
        printf("skipped: fewer than %u devices\n", N_GPUS);
        return 77;
    }
    bench.options = &options;
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
