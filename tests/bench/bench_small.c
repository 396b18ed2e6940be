/*
 * bench_small: jobs of 1 KiB of `copy`, as many a second as go through the rings of a private
 * gpupiped, against the same jobs one by one in one process.
 *
 *     touched     one client; it writes every byte of a job before it and reads every byte after it
 *     untouched   likewise, but it leaves the data as they are; all are compared at the end
 *     together    several clients, touched, all at once
 *     copies      one process: copy-in, kernel, copy-out, event, and the next one; touched
 *     mapped      likewise, a kernel that works in the host's memory
 *
 * The rate of a ring is about its window by the time that a job takes: the window is stated.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/own_party.h"
#include "tests/bench/small.h"

#include <math.h>
#include <string.h>

#define CLIENTS_MAX 16u
#define OTHER_CPUS  3u /* front end, worker and one for all others */

/* On two quiet CPUs, which one client keeps busy: eight came to 0.52 to 0.91 of it, where they wait
 * for each other's CPU.  A third less than the least. */
#define CPU_TOGETHER 0.35

enum variant { V_TOUCHED, V_UNTOUCHED, V_TOGETHER, V_FIXED, V_COPIES = V_FIXED, V_MAPPED, V_COUNT };

static const char *const variant_names[] = {
    [V_TOUCHED] = "touched",           [V_UNTOUCHED] = "untouched",       [V_TOGETHER] = "together",
    [V_COPIES] = "one by one, copies", [V_MAPPED] = "one by one, mapped",
};

struct options {
    const char *backend;
    const char *priority;
    const char *json;
    uint32_t run_ms;
    uint32_t n_rounds;
    uint32_t n_clients;
    uint32_t window;
    uint32_t n_cpus; /* 0: this machine's */
    uint32_t has_rivals;
};

struct bench {
    const struct options *options;
    bool is_cuda;
    struct bench_daemon daemon;
    struct small_shape shape;
    struct party clients[CLIENTS_MAX];
    struct party own;
    uint64_t n_as_normal[V_COUNT];
    struct contest contest;
};

static double run_variant(void *owner, uint32_t variant)
{
    static const uint32_t whats[] = {
        [V_TOUCHED] = SMALL_TOUCHED,
        [V_UNTOUCHED] = SMALL_UNTOUCHED,
        [V_TOGETHER] = SMALL_TOUCHED,
        [V_COPIES] = OWN_WHAT(OWN_ONE_COPIES, OWN_NO_BULK),
        [V_MAPPED] = OWN_WHAT(OWN_ONE_MAPPED, OWN_NO_BULK),
    };
    struct bench *bench = owner;
    const struct party *parties = variant < V_FIXED ? bench->clients : &bench->own;
    uint32_t n = variant == V_TOGETHER ? bench->options->n_clients : 1;
    uint64_t run_ns = bench->options->run_ms * UINT64_C(1000000), n_jobs;
    struct party_order order = {.what = whats[variant], .size = SMALL_SIZE};

    party_tell_all(parties, n, &order);
    party_wait_all(parties, n);
    order.is_run = true;
    order.from_ns = now_ns() + PARTY_WARM_NS;
    order.to_ns = order.from_ns + run_ns;
    party_tell_all(parties, n, &order);
    n_jobs = party_wait_all(parties, n) / SMALL_SIZE;
    for (uint32_t i = 0; i < n; i++) {
        bench->n_as_normal[variant] += parties[i].answer->n_as_normal;
    }
    if (n_jobs == 0) {
        bench_fail("%s: no job was done in %u ms", variant_names[variant], bench->options->run_ms);
    }
    return (double)run_ns * 1e-9 / (double)n_jobs;
}

/* ---- results -------------------------------------------------------------------------------- */

static void add_row(const struct bench *bench, struct bench_report *report, uint32_t i)
{
    double seconds = contest_seconds(&bench->contest, i);
    const struct bench_cell row[] = {
        {"variant              ", variant_names[i], 0, 0},
        {"clients", NULL, i == V_TOGETHER ? bench->options->n_clients : 1, 0},
        {"window", NULL, i < V_FIXED ? bench->options->window : 1, 0},
        {"m_jobs_s", NULL, 1e-6 / seconds, 3},
        {"ns_a_job", NULL, seconds * 1e9, 0},
        {"as_normal", NULL, (double)bench->n_as_normal[i], 0},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void add_claim(const struct bench *bench, struct bench_report *report, uint32_t variant,
                      uint32_t other, double bound)
{
    double ratio = contest_ratio(&bench->contest, variant, other);
    char claim[64];

    snprintf(claim, sizeof(claim), "%s against %s", variant_names[variant], variant_names[other]);
    if (isnan(bound)) { /* it is stated */
        bench_report_limit(report, claim, ratio, NAN);
    } else {
        bench_report_claim(report, claim, ratio, bound);
    }
}

static void measure(struct bench *bench)
{
    struct bench_report *report = bench_report_create("small", bench->options->json);

    contest_run(&bench->contest);
    bench_report_table(report, "small", "jobs of 1 KiB, millions a second");
    for (uint32_t i = 0; i < bench->contest.n_variants; i++) {
        add_row(bench, report, i);
    }
    bench_report_table(report, "reach", "medians of the rounds' ratios of jobs a second");
    add_claim(bench, report, V_TOGETHER, V_TOUCHED, bench->is_cuda ? 3 : CPU_TOGETHER);
    if (bench->contest.n_variants > V_FIXED) {
        add_claim(bench, report, V_TOUCHED, V_COPIES, 50);
        add_claim(bench, report, V_UNTOUCHED, V_COPIES, 120);
        add_claim(bench, report, V_TOUCHED, V_MAPPED, NAN);
        add_claim(bench, report, V_UNTOUCHED, V_MAPPED, NAN);
    }
    bench_report_destroy(report);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct bench *bench)
{
    const struct options *options = bench->options;

    bench_daemon_start(&bench->daemon, NULL, options->backend);
    bench->shape = (struct small_shape){
        .socket_path = bench->daemon.socket_path,
        .priority = bench_options_priority(options->priority),
        .window = options->window,
        .is_spinning = options->n_cpus >= options->n_clients + OTHER_CPUS,
    };
    for (uint32_t i = 0; i < options->n_clients; i++) {
        small_start(&bench->clients[i], &bench->shape);
    }
    bench->contest = (struct contest){
        .n_variants = V_FIXED, .n_rounds = options->n_rounds, .run = run_variant, .owner = bench};
    if (bench->is_cuda && options->has_rivals) {
        party_exec(&bench->own, "tests/bench/own-context", "party", "0");
        party_wait(&bench->own);
        bench->contest.n_variants = V_COUNT;
    }
}

static void stop(struct bench *bench)
{
    party_stop(&bench->own);
    for (uint32_t i = 0; i < bench->options->n_clients; i++) {
        party_stop(&bench->clients[i]);
    }
    bench_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"priority", "P", "urgent, normal or bulk", "normal", .text = &options.priority},
        {"window", "N", "jobs that a client has under way", "1024", 1, SMALL_WINDOW_MAX,
         .count = &options.window},
        {"clients", "N", "of those together", "8", 1, CLIENTS_MAX, .count = &options.n_clients},
        {"run", "MS", "of each run", "1000", 50, 60000, .count = &options.run_ms},
        {"rounds", "N", "rounds", "5", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"cpus", "N", "clients spin where they and three others have one each", NULL, 1, 4096,
         .count = &options.n_cpus},
        {"rivals", "0|1", "those of a GPU as well", "1", 0, 1, .count = &options.has_rivals},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    options.n_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Jobs of 1 KiB a second, through rings of a private gpupiped.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.is_cuda = strcmp(options.backend, "cuda") == 0;
    start(&bench);
    measure(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
