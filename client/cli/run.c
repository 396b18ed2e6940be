/*
 * gpupipe-cli run: one op over files, as one streaming job.
 *
 * In order, so that each mistake is found before anything has happened that depends on it: options,
 * the op's manifest, files to arrays, inputs opened, outputs judged, constants sent, the job opened
 * (in a ring, or waiting for room), sizes judged, outputs created, records moved, outputs given
 * their names.
 *
 * Threads: one.
 */
#include "client/cli/run.h"

#include "client/cli/args.h"
#include "client/cli/interrupt.h"
#include "client/cli/private.h"
#include "proto/util.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* How long a cancelled job may take to say so before the connection is just closed. */
#define CANCEL_NS 1000000000u

#define RETRY_MS_FROM 10u
#define RETRY_MS_TO   1000u

/* ---- the op -------------------------------------------------------------------------------- */

static int find_op(struct run *run)
{
    uint32_t n_ops = 0;

    if (call_op_list(run->gpupipe, run->args.op, &run->op, &n_ops) < 0) {
        return cli_failure(gpupipe_last_error(run->gpupipe));
    }
    if (n_ops != 1) {
        cli_error("UNKNOWN_OP: no op is called %s; 'gpupipe-cli op list' shows them", run->args.op);
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int build_request(struct run *run)
{
    struct msg_job_open *request = &run->request;

    request->options = run->args.options;
    snprintf(request->op.name, sizeof(request->op.name), "%s", run->op->name);
    for (uint32_t i = 0; i < run->args.n_params; i++) {
        int rc = args_value(run->args.params[i], run->op, &request->op.values[i]);

        if (rc != CLI_OK) {
            return rc;
        }
        request->op.n_values++;
    }
    return CLI_OK;
}

/* ---- the job ------------------------------------------------------------------------------- */

bool run_wait_for_room(const struct run *run, uint32_t *backoff_ms)
{
    const struct gpupipe_error *error = gpupipe_last_error(run->gpupipe);
    /* Who is not admitted has no time to wait. */
    bool may_pass = error->status == GPUPIPE_ERROR_BUSY ||
                    (error->retry_ms > 0 && error->status != GPUPIPE_ERROR_DEADLINE);

    if (!may_pass || run->args.is_impatient) {
        return false;
    }
    *backoff_ms = MAX(2 * *backoff_ms, RETRY_MS_FROM);
    *backoff_ms = MIN(*backoff_ms, RETRY_MS_TO);
    /* Ends early if the daemon goes away, and a signal ends the program. */
    (void)gpupipe_dispatch(
        run->gpupipe,
        (int)(error->retry_ms == 0 ? *backoff_ms : MIN(error->retry_ms, RETRY_MS_TO)));
    return true;
}

static int open_job(struct run *run)
{
    uint32_t backoff_ms = 0;

    if (run->inputs[0].has_size) {
        run->request.options.total_size = run->inputs[0].size;
    }
    if (run_open_in_ring(run)) {
        return CLI_OK;
    }
    while (call_job_open(&run->job, run->gpupipe, &run->request, NULL) < 0) {
        if (!run_wait_for_room(run, &backoff_ms)) {
            return cli_failure(gpupipe_last_error(run->gpupipe));
        }
    }
    run->shape = *call_job_shape(run->job);
    return CLI_OK;
}

uint64_t run_total_size(const struct run *run)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < run->n_inputs; i++) {
        if (!run->inputs[i].has_size) {
            return 0;
        }
        total += run->inputs[i].size;
    }
    return total;
}

static int move_records(struct run *run)
{
    int rc;

    progress_init(&run->progress, !run->cli->is_quiet && isatty(STDERR_FILENO),
                  run_total_size(run));
    run->stream = (struct stream){
        .gpupipe = run->gpupipe,
        .job = run->job,
        .ring = run->ring,
        .shape = &run->shape,
        .op = run->op,
        .inputs = run->inputs,
        .outputs = run->outputs,
        .formats = run->out_formats,
        .tail = run->args.options.tail,
        .progress = &run->progress,
    };
    rc = stream_run(&run->stream);
    progress_finish(&run->progress);
    return rc;
}

/* Tell the daemon, so that the job is gone when we are.  Closing the connection would do as well.
 */
static void cancel_job(struct run *run)
{
    uint64_t until_ns = now_ns() + CANCEL_NS;
    struct gpupipe_outcome outcome;
    int rc = gpupipe_job_cancel(run->job);

    GPUPIPE_INIT(&outcome);
    while (rc == 0 && gpupipe_job_result(run->job, &outcome) == 0 && now_ns() < until_ns) {
        rc = gpupipe_dispatch(run->gpupipe, 10);
    }
}

/* ---- reports ------------------------------------------------------------------------------- */

static json_t *timing_to_json(const struct gpupipe_timing *timing)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "queue_ns", (json_int_t)timing->queue_ns, "in_ns",
                     (json_int_t)timing->in_ns, "compute_ns", (json_int_t)timing->compute_ns,
                     "out_ns", (json_int_t)timing->out_ns);
}

static json_t *consts_to_json(const struct run *run)
{
    json_t *json = json_object();

    for (uint32_t i = 0; i < run->op->n_consts; i++) {
        json_object_set_new(json, run->op->consts[i].name, json_string(run->const_sha256[i]));
    }
    return json;
}

static int print_json(const struct run *run, uint64_t elapsed_ns)
{
    const struct stream *stream = &run->stream;
    bool has_pushes = stream->n_pushes > 0;
    json_t *json = json_pack(
        "{s:s, s:s, s:s?, s:s, s:s?, s:I, s:I, s:I, s:I, s:f}", "op", run->op->name, "backend",
        has_pushes ? stream->backend : call_hello(run->gpupipe)->backend, "device",
        has_pushes ? stream->device : NULL, "priority", priority_names[run->args.options.priority],
        "path", has_pushes ? stream->path : NULL, "records", (json_int_t)stream->n_records,
        "pushes", (json_int_t)stream->n_pushes, "bytes_in", (json_int_t)stream->in_size,
        "bytes_out", (json_int_t)stream->out_size, "seconds", (double)elapsed_ns / 1e9);

    if (json != NULL && run->args.options.wants_timing) {
        json_object_set_new(json, "timing", timing_to_json(&stream->timing));
    }
    if (json != NULL && run->op->n_consts > 0) {
        json_object_set_new(json, "sha256", consts_to_json(run));
    }
    return cli_print_json(json);
}

static void print_timing(const struct run *run, uint64_t elapsed_ns)
{
    const struct gpupipe_timing *timing = &run->stream.timing;
    char total[PROGRESS_TEXT_SIZE], queue[PROGRESS_TEXT_SIZE], in[PROGRESS_TEXT_SIZE];
    char compute[PROGRESS_TEXT_SIZE], out[PROGRESS_TEXT_SIZE];

    fprintf(stderr,
            "%s; summed over %" PRIu64
            " pushes, which overlap: queue %s, in %s, compute %s, out %s\n",
            progress_time(elapsed_ns, total), run->stream.n_pushes,
            progress_time(timing->queue_ns, queue), progress_time(timing->in_ns, in),
            progress_time(timing->compute_ns, compute), progress_time(timing->out_ns, out));
}

static int report_run(const struct run *run, uint64_t elapsed_ns)
{
    if (run->cli->is_json) {
        return print_json(run, elapsed_ns);
    }
    if (run->args.options.wants_timing && !run->cli->is_quiet) {
        print_timing(run, elapsed_ns);
    }
    return CLI_OK;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int prepare(struct run *run)
{
    static int (*const steps[])(struct run * run) = {
        find_op,         build_request,  run_bind_inputs, run_bind_consts, run_bind_outputs,
        run_open_inputs, run_put_consts, open_job,        run_drop_consts,
    };
    int rc = cli_connect(run->cli, &run->gpupipe);

    for (size_t i = 0; i < ARRAY_SIZE(steps) && rc == CLI_OK; i++) {
        rc = steps[i](run);
    }
    return rc;
}

static int execute(struct run *run)
{
    int rc = input_check(run->inputs, run->n_inputs, run->shape.in_size, run->args.options.tail);

    if (rc == CLI_OK) {
        interrupt_hold();
        rc = run_open_outputs(run);
    }
    if (rc == CLI_OK) {
        rc = move_records(run);
    }
    if (rc == CLI_OK) {
        rc = run_commit_outputs(run);
    }
    if (rc != CLI_OK) {
        cancel_job(run);
    }
    return rc;
}

static void run_finish(struct run *run)
{
    for (uint32_t i = 0; i < run->n_outputs; i++) {
        output_abandon(&run->outputs[i]);
    }
    for (uint32_t i = 0; i < run->n_inputs; i++) {
        input_close(&run->inputs[i]);
    }
    /* Closing takes the buffers back from pushes that are still in flight, and the ring with all
     * that lies in it. */
    gpupipe_close(run->gpupipe);
    stream_finish(&run->stream);
    free(run->op);
}

static int run_files(void *arg)
{
    struct run *run = arg;
    uint64_t start_ns = now_ns();
    int rc;

    /* A closed pipe is an error of its file, with a message. */
    signal(SIGPIPE, SIG_IGN);
    interrupt_install();
    rc = prepare(run);
    if (rc == CLI_OK) {
        rc = execute(run);
    }
    if (rc == CLI_OK) {
        rc = report_run(run, now_ns() - start_ns);
    }
    run_finish(run);
    return rc;
}

/* What the pool must lend at once: the pushes under way with all their arrays, and the constants.
 */
static uint64_t pool_size(const struct run_args *args)
{
    uint64_t max_push = args->options.max_push == 0 ? LIMIT_PUSH_DEFAULT : args->options.max_push;
    uint64_t n_arrays = MAX(args->n_inputs, 1u) + MAX(args->n_outputs, 1u);

    return LIMIT_WINDOW_DEFAULT * n_arrays * max_push + args->n_consts * (uint64_t)LIMIT_CONST_SIZE;
}

static int run_privately(struct run *run)
{
    static const char *const backends[REQUIRE_COUNT] = {"auto", "cuda", "cpu"};
    const struct private_options options = {
        .backend = backends[run->args.options.require],
        .pool_size = pool_size(&run->args),
    };

    return private_run(&options, run_files, run);
}

int command_run(struct cli *cli, int argc, char **argv)
{
    struct run run = {.cli = cli};
    int rc = run_args_parse(cli, argc, argv, &run.args);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    return run.args.is_private ? run_privately(&run) : run_files(&run);
}
