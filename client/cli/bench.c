/*
 * gpupipe-cli bench: what the daemon can do here, measured from the side of a program.
 *
 * In order, so that a mistake is found before anything is measured: arguments, the connection,
 * memory for the pushes, where the picture goes; then each point of the sweep (or the only one),
 * and the report.
 *
 * Threads: one.
 */
#include "client/cli/bench_report.h"
#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
#include "proto/util.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#define CHUNK_LEAST (UINT64_C(64) << 10)

/* Memory for so many times what is in flight: of a round, begin and end are a small part then. */
#define ROUND_WINDOWS 16u

/* How late a sleep may end: by default 50 us, which would be in every latency of an open loop. */
#define TIMER_SLACK_NS 1000ul

struct bench {
    struct cli *cli;
    struct bench_args args;
    struct gpupipe *gpupipe;
    struct bench_memory memory;
    struct bench_report report;
    struct output picture; /* no path: none is wanted */
};

/* ---- points -------------------------------------------------------------------------------- */

/* What is measured at the index-th point; false: there is no such. */
typedef bool (*point_function)(const struct bench *bench, uint32_t index, struct load_plan *plan);

static bool the_only_point(const struct bench *bench, uint32_t index, struct load_plan *plan)
{
    /* An open loop has as many in flight as it takes. */
    if (plan->rate > 0) {
        uint64_t most = gpupipe_limit(bench->gpupipe, "window");

        plan->window = (uint32_t)MIN(most, BENCH_MEMORY_MOST / load_push_size(plan));
    }
    return index == 0;
}

static bool chunk_point(const struct bench *bench, uint32_t index, struct load_plan *plan)
{
    plan->size = CHUNK_LEAST << index;
    return index < BENCH_POINTS_MOST && plan->size <= gpupipe_limit(bench->gpupipe, "max_push");
}

static bool window_point(const struct bench *bench, uint32_t index, struct load_plan *plan)
{
    plan->window = 1u << index;
    return index < BENCH_POINTS_MOST && plan->window <= gpupipe_limit(bench->gpupipe, "window");
}

static const point_function points[BENCH_COUNT] = {
    [BENCH_THROUGHPUT] = the_only_point,
    [BENCH_LATENCY] = the_only_point,
    [BENCH_CHUNKS] = chunk_point,
    [BENCH_STREAMS] = window_point,
};

static bool get_point(const struct bench *bench, uint32_t index, struct load_plan *ret_plan)
{
    *ret_plan = bench->args.plan;
    return points[bench->args.kind](bench, index, ret_plan);
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t memory_for(const struct load_plan *plan)
{
    return plan->window * load_push_size(plan);
}

/* Enough for the first point; later ones of a sweep may find that it is not for them. */
static int open_memory(struct bench *bench)
{
    const struct bench_args *args = &bench->args;
    struct load_plan plan;
    uint64_t least, most = 0;

    for (uint32_t i = 0; get_point(bench, i, &plan); i++) {
        most = MAX(most, memory_for(&plan));
    }
    (void)get_point(bench, 0, &plan);
    least = plan.rate > 0 ? load_push_size(&plan) : memory_for(&plan);
    if (least > BENCH_MEMORY_MOST) {
        return cli_usage("%u pushes of %" PRIu64 " bytes are more at once than the %" PRIu64
                         " MiB that a benchmark takes: try a lower --concurrency or --size",
                         plan.window, plan.size, BENCH_MEMORY_MOST >> 20);
    }
    return bench_memory_open(bench->gpupipe, args->is_inline, plan.device, least,
                             ROUND_WINDOWS * most, &bench->memory);
}

/* ---- measuring ----------------------------------------------------------------------------- */

static int report_refusal(const struct bench *bench, const struct load_plan *plan)
{
    if (bench->report.n_points == 0) {
        cli_error("the daemon has no room for %u pushes of %" PRIu64
                  " bytes at once: try a lower --concurrency or --size",
                  plan->window, plan->size);
        return CLI_FAILED;
    }
    if (!bench->cli->is_quiet) {
        cli_error("the sweep ends here: there is no room for %u pushes of %" PRIu64
                  " bytes at once",
                  plan->window, plan->size);
    }
    return CLI_OK;
}

static bool has_memory(const struct bench *bench, struct load_plan *plan)
{
    uint64_t most = bench->memory.size / load_push_size(plan);

    if (plan->rate > 0 && plan->window > most) {
        plan->window = (uint32_t)most;
    }
    return plan->window <= most;
}

static int measure(struct bench *bench)
{
    struct bench_report *report = &bench->report;
    struct load_plan plan;
    int rc = CLI_OK;

    for (uint32_t i = 0; rc == CLI_OK && get_point(bench, i, &plan); i++) {
        if (!has_memory(bench, &plan)) {
            return report_refusal(bench, &plan);
        }
        rc = load_run(bench->gpupipe, &bench->memory, &plan, report->last);
        if (rc == CLI_OK && report->last->is_refused) {
            return report_refusal(bench, &plan);
        }
        if (rc == CLI_OK || rc == CLI_INTERRUPTED) {
            bench_report_add(report, plan.size);
        }
    }
    return rc;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int open_picture(struct bench *bench)
{
    const struct bench_args *args = &bench->args;
    int rc = CLI_OK;

    if (args->svg_path != NULL) {
        rc = output_check(args->svg_path, args->is_forced, false);
    }
    if (args->svg_path != NULL && rc == CLI_OK) {
        rc = output_open(args->svg_path, args->is_forced, false, &bench->picture);
    }
    return rc;
}

static int finish_picture(struct bench *bench)
{
    int rc = CLI_OK;

    if (bench->picture.path != NULL) {
        rc = bench_report_draw(&bench->report, &bench->picture);
    }
    if (bench->picture.path != NULL && rc == CLI_OK) {
        rc = output_commit(&bench->picture);
    }
    return rc;
}

static int connect_daemon(struct bench *bench)
{
    return cli_connect(bench->cli, &bench->gpupipe);
}

static int prepare(struct bench *bench)
{
    static int (*const steps[])(struct bench * bench) = {connect_daemon, open_memory};
    int rc = CLI_OK;

    bench->report.args = &bench->args;
    bench->report.last = calloc(1, sizeof(*bench->report.last));
    if (bench->report.last == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    for (size_t i = 0; i < ARRAY_SIZE(steps) && rc == CLI_OK; i++) {
        rc = steps[i](bench);
    }
    return rc;
}

static int run(struct bench *bench)
{
    int rc = prepare(bench), print_rc;

    interrupt_hold();
    if (bench->args.plan.rate > 0) {
        (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    }
    if (rc == CLI_OK) {
        rc = open_picture(bench);
    }
    if (rc == CLI_OK) {
        rc = measure(bench);
    }
    if (rc != CLI_OK && rc != CLI_INTERRUPTED) {
        return rc;
    }
    bench->report.is_interrupted = rc == CLI_INTERRUPTED;
    print_rc = bench_report_print(&bench->report);
    if (rc == CLI_OK) {
        rc = finish_picture(bench);
    }
    return print_rc != CLI_OK ? print_rc : rc;
}

int command_bench(struct cli *cli, int argc, char **argv)
{
    struct bench bench = {.cli = cli};
    int rc = bench_args_parse(cli, argc, argv, &bench.args);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    /* A closed pipe is an error of its file, with a message. */
    signal(SIGPIPE, SIG_IGN);
    interrupt_install();
    rc = run(&bench);
    if (rc == CLI_OK) {
        gpupipe_ring_close(bench.memory.ring);
    }
    /* Takes the ring with it, whatever is under way there. */
    gpupipe_close(bench.gpupipe);
    bench_memory_free(&bench.memory);
    output_abandon(&bench.picture);
    free(bench.report.last);
    return rc;
}
