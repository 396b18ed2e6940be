/*
 * bench_after: a chain of jobs, each of which copies what the one before wrote in a ring.
 *
 *     after     all are sent at once, each after the one before
 *     answers   each is sent when the one before has been answered
 *     1         one job alone, which both of them are made of
 *
 * The time is from the first submission until the last answer; jobs are opened before, as they can
 * be in either way.  Fresh random data for each round, outputs poisoned, and every byte checked.
 */
#include "client/gpupipe.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define JOBS_MAX 16u /* in a chain: of each connection several are under way */
#define US_PER_S 1e6
#define RECORD   64u

enum way { AFTER, ANSWERS };

static const struct variant {
    const char *name;
    uint32_t n_jobs;
    enum way way;
} variants[] = {
    {"1", 1, ANSWERS},      {"2, after", 2, AFTER},     {"2, answers", 2, ANSWERS},
    {"8, after", 8, AFTER}, {"8, answers", 8, ANSWERS},
};

struct options {
    const char *backend, *priority, *json;
    size_t size;
    uint32_t n_chains, n_rounds;
};

struct bench {
    const struct options *options;
    enum gpupipe_priority priority;
    struct bench_daemon daemon;
    struct gpupipe *gpupipe;
    struct gpupipe_ring *ring;
    uint8_t *memory; /* arrays of the ring: what goes in, and what each job of a chain writes */
    struct contest contest;
};

static void must(const struct bench *bench, int status)
{
    if (status < 0) {
        bench_fail("libgpupipe: %s", gpupipe_last_error(bench->gpupipe)->message);
    }
}

/* ---- a chain -------------------------------------------------------------------------------- */

static void open_jobs(const struct bench *bench, const struct variant *variant,
                      struct gpupipe_job **ret_jobs)
{
    const struct gpupipe_value record = {"size", GPUPIPE_INT, RECORD, 0, NULL};
    const char *token;
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.ring = bench->ring;
    opts.priority = bench->priority;
    opts.window = 1;
    for (uint32_t i = 0; i < variant->n_jobs; i++) {
        if (variant->way == AFTER && i > 0) {
            token = gpupipe_job_token(ret_jobs[i - 1]);
            opts.after = &token;
            opts.n_after = 1;
        }
        must(bench, gpupipe_job_open(&ret_jobs[i], bench->gpupipe, "copy", &record, 1, &opts));
    }
}

/* Job i of a chain: its only push. */
static void send(const struct bench *bench, struct gpupipe_job *job, uint32_t i)
{
    const size_t size = bench->options->size;
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_records = size / RECORD;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){bench->memory + i * size, size};
    desc.out[0] = (struct gpupipe_room){bench->memory + (i + 1) * size, size};
    desc.is_last = 1;
    must(bench, gpupipe_submit(bench->gpupipe, &desc, 1));
}

static void receive(const struct bench *bench)
{
    struct gpupipe_completion completion;
    int n;

    GPUPIPE_INIT(&completion);
    while ((n = gpupipe_reap(bench->gpupipe, &completion, 1)) == 0) {
        must(bench, gpupipe_wait(bench->gpupipe, -1));
    }
    must(bench, n);
    if (completion.status != GPUPIPE_OK) {
        bench_fail("a job of a chain: %s", completion.error->message);
    }
}

static double time_chain(const struct bench *bench, const struct variant *variant)
{
    const size_t size = bench->options->size;
    struct gpupipe_job *jobs[JOBS_MAX];
    uint64_t start_ns, took_ns;

    open_jobs(bench, variant, jobs);
    bench_fill(bench->memory, size);
    bench_poison(bench->memory + size, variant->n_jobs * size);
    start_ns = now_ns();
    for (uint32_t i = 0; i < variant->n_jobs; i++) {
        send(bench, jobs[i], i);
        if (variant->way == ANSWERS) {
            receive(bench);
        }
    }
    for (uint32_t i = 0; variant->way == AFTER && i < variant->n_jobs; i++) {
        receive(bench);
    }
    took_ns = now_ns() - start_ns;
    for (uint32_t i = 0; i < variant->n_jobs; i++) {
        bench_check_same(variant->name, bench->memory + (i + 1) * size, bench->memory, size);
        gpupipe_job_free(jobs[i]);
    }
    return (double)took_ns * 1e-9;
}

/* The median: a chain that meets something else on the machine says nothing. */
static double run_variant(void *owner, uint32_t variant)
{
    const struct bench *bench = owner;
    uint32_t n = bench->options->n_chains;
    double *seconds = bench_allocate(n * sizeof(*seconds));
    double median;

    for (uint32_t i = 0; i < n; i++) {
        seconds[i] = time_chain(bench, &variants[variant]);
    }
    median = bench_median(seconds, n);
    free(seconds);
    return median;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void report(struct bench *bench)
{
    struct bench_report *report = bench_report_create("after", bench->options->json);

    bench_report_table(report, "chains", "microseconds from the first job to the last answer");
    for (uint32_t i = 0; i < ARRAY_SIZE(variants); i++) {
        const bool is_after = variants[i].way == AFTER;
        const struct bench_cell row[] = {
            {"jobs      ", variants[i].name, 0, 0},
            {"us", NULL, contest_seconds(&bench->contest, i) * US_PER_S, 1},
            {"faster_than_answers", NULL, is_after ? contest_ratio(&bench->contest, i, i + 1) : NAN,
             2},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_table(report, "claims", "times as fast");
    bench_report_claim(report, "2 jobs: after against answers",
                       contest_ratio(&bench->contest, 1, 2), 1);
    bench_report_claim(report, "8 jobs: after against answers",
                       contest_ratio(&bench->contest, 3, 4), 1.5);
    bench_report_destroy(report);
}

static void open_ring(struct bench *bench)
{
    const size_t size = (JOBS_MAX + 1) * bench->options->size;
    int rc = gpupipe_open(&bench->gpupipe, bench->daemon.socket_path, "bench_after");

    must(bench, rc);
    must(bench, gpupipe_ring_open(&bench->ring, bench->gpupipe, 2 * size, NULL));
    bench->memory = gpupipe_ring_alloc(bench->ring, size);
    if (bench->memory == NULL) {
        must(bench, GPUPIPE_ERROR_BUSY);
    }
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"priority", "P", "urgent, normal or bulk", "urgent", .text = &options.priority},
        {"size", "SIZE", "bytes of a job", "4K", RECORD, 8u << 20, .size = &options.size},
        {"chains", "N", "of each kind in a round", "100", 1, 100000, .count = &options.n_chains},
        {"rounds", "N", "rounds", "9", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static const enum gpupipe_priority priorities[] = {
        [PRIORITY_URGENT] = GPUPIPE_URGENT,
        [PRIORITY_NORMAL] = GPUPIPE_NORMAL,
        [PRIORITY_BULK] = GPUPIPE_BULK,
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Chains of jobs that are after one another, against waiting for answers.");
    bench_need_backend(options.backend);
    bench.options = &options;
    bench.priority = priorities[bench_options_priority(options.priority)];
    bench_daemon_start(&bench.daemon, NULL, options.backend);
    open_ring(&bench);
    bench.contest = (struct contest){
        .n_variants = ARRAY_SIZE(variants),
        .n_rounds = options.n_rounds,
        .run = run_variant,
        .owner = &bench,
    };
    contest_run(&bench.contest);
    report(&bench);
    gpupipe_ring_close(bench.ring);
    gpupipe_close(bench.gpupipe);
    bench_daemon_stop(&bench.daemon);
    return EXIT_SUCCESS;
}
