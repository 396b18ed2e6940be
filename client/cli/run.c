/*
 * gpupipe-cli run: one op over files, as one streaming job.
 *
 * In order, so that each mistake is found before anything has happened that depends on it: options,
 * the op's manifest, files to arrays, inputs opened, outputs judged, constants sent, the job opened
 * (waiting for room), sizes judged, outputs created, records moved, outputs given their names.
 *
 * Threads: one.
 */
#include "client/cli/args.h"
#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
#include "client/cli/private.h"
#include "client/cli/run_args.h"
#include "client/cli/stream.h"
#include "proto/util.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* How long a cancelled job may take to say so before the connection is just closed. */
#define CANCEL_NS     1000000000u
#define RETRY_MS_FROM 10u
#define RETRY_MS_TO   1000u

/* Everything that has to be undone, in the order of run_finish(). */
struct run {
    struct cli *cli;
    struct run_args args;
    struct gpupipe *gpupipe;
    struct gpupipe_job *job;
    struct manifest_op *op;
    const char *in_paths[LIMIT_IN];
    const char *const_paths[LIMIT_CONSTS];
    const char *out_paths[LIMIT_OUT];
    enum format out_formats[LIMIT_OUT];
    struct npy out_records[LIMIT_OUT]; /* of those that are .npy files */
    uint64_t n_expected;               /* records of each output, as far as the inputs tell */
    uint32_t n_inputs, n_outputs;      /* open */
    struct input inputs[LIMIT_IN];
    struct output outputs[LIMIT_OUT];
    struct msg_job_open request;
    struct progress progress;
    struct stream stream;
};

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

/* ---- files --------------------------------------------------------------------------------- */

static int bind_inputs(struct run *run)
{
    const struct manifest_op *op = run->op;
    bool has_stdin = false;
    int rc = args_bind(run->args.inputs, run->args.n_inputs, op->in, op->n_in, "-i", "input",
                       run->in_paths);

    if (rc == CLI_OK && run->args.n_inputs == 0 && op->n_in == 1 && !isatty(STDIN_FILENO)) {
        run->in_paths[0] = "-";
    }
    for (uint32_t i = 0; i < op->n_in && rc == CLI_OK; i++) {
        const char *path = run->in_paths[i];

        if (path == NULL) {
            return cli_usage("input %s has no file: -i %s=FILE", op->in[i].name, op->in[i].name);
        }
        if (strcmp(path, "-") == 0 && has_stdin) {
            return cli_usage("standard input cannot be two inputs");
        }
        has_stdin |= strcmp(path, "-") == 0;
    }
    return rc;
}

static int bind_consts(struct run *run)
{
    const struct manifest_op *op = run->op;
    int rc = args_bind(run->args.consts, run->args.n_consts, op->consts, op->n_consts, "-k",
                       "constant", run->const_paths);

    for (uint32_t i = 0; i < op->n_consts && rc == CLI_OK; i++) {
        if (run->const_paths[i] == NULL) {
            return cli_usage("constant %s has no file: -k %s=FILE", op->consts[i].name,
                             op->consts[i].name);
        }
    }
    return rc;
}

static int judge_stdout(const struct run *run)
{
    uint32_t n_stdout = 0;

    for (uint32_t i = 0; i < run->op->n_out; i++) {
        n_stdout += output_is_stdout(run->out_paths[i]) ? 1 : 0;
    }
    if (n_stdout > 1) {
        return cli_usage("standard output cannot be two outputs");
    }
    if (n_stdout > 0 && run->cli->is_json) {
        return cli_usage("--json and the op's output both want standard output: use -o FILE");
    }
    return CLI_OK;
}

/* The record of an array, for a file that has a header. */
static int describe_record(const struct run *run, const struct manifest_array *array,
                           struct npy *ret_record)
{
    const struct msg_op *op = &run->request.op;

    return format_record(run->op, array, op->values, op->n_values, ret_record);
}

static int judge_output(struct run *run, uint32_t i)
{
    enum format format = format_of(run->args.format, run->out_paths[i], true);
    int rc = output_check(run->out_paths[i], run->args.is_forced, !format_is_text(format));

    run->out_formats[i] = format;
    if (rc == CLI_OK && format == FORMAT_NPY) {
        rc = describe_record(run, &run->op->out[i], &run->out_records[i]);
    }
    return rc;
}

static int bind_outputs(struct run *run)
{
    const struct manifest_op *op = run->op;
    int rc = args_bind(run->args.outputs, run->args.n_outputs, op->out, op->n_out, "-o", "output",
                       run->out_paths);

    if (rc == CLI_OK && run->args.n_outputs == 0 && op->n_out == 1) {
        run->out_paths[0] = "-";
    }
    for (uint32_t i = 0; i < op->n_out && rc == CLI_OK; i++) {
        if (run->out_paths[i] == NULL) {
            return cli_usage("output %s has no file: -o %s=FILE", op->out[i].name, op->out[i].name);
        }
        rc = judge_output(run, i);
    }
    return rc == CLI_OK ? judge_stdout(run) : rc;
}

static int open_input(const struct run *run, const struct manifest_array *array, const char *path,
                      struct input *ret_input)
{
    bool is_npy = format_of(run->args.format, path, false) == FORMAT_NPY;
    struct npy record;
    int rc = is_npy ? describe_record(run, array, &record) : CLI_OK;

    return rc == CLI_OK ? input_open(array->name, path, is_npy ? &record : NULL, ret_input) : rc;
}

static int open_inputs(struct run *run)
{
    uint32_t varying = manifest_varying(run->op);

    while (run->n_inputs < run->op->n_in) {
        uint32_t i = run->n_inputs;
        int rc = open_input(run, &run->op->in[i], run->in_paths[i], &run->inputs[i]);

        if (rc != CLI_OK) {
            return rc;
        }
        run->inputs[i].is_varying = varying > 0 && i == varying;
        run->n_inputs++;
    }
    return CLI_OK;
}

/* ---- constants ----------------------------------------------------------------------------- */

/* All of a constant's file: it must have exactly size bytes; buffer has room for one more. */
static int read_const(const struct run *run, uint32_t i, uint8_t *buffer, uint64_t size)
{
    struct input input;
    size_t filled = 0;
    int rc = open_input(run, &run->op->consts[i], run->const_paths[i], &input);

    if (rc != CLI_OK) {
        return rc;
    }
    while (rc == CLI_OK && filled <= size && !input.is_at_end) {
        rc = input_fill(&input, buffer, size + 1, &filled);
    }
    input_close(&input);
    if (rc == CLI_OK && filled != size) {
        cli_error("constant %s: %s has %s than the %" PRIu64 " bytes that the op takes",
                  run->op->consts[i].name, run->const_paths[i], filled < size ? "less" : "more",
                  size);
        return CLI_FAILED;
    }
    return rc;
}

static int put_const(struct run *run, uint32_t i)
{
    _cleanup_(free_pointer) uint8_t *buffer = NULL;
    struct npy record;
    uint64_t size;
    int rc = describe_record(run, &run->op->consts[i], &record);

    if (rc != CLI_OK) {
        return rc;
    }
    size = npy_size(&record);
    if (size == 0 || size > LIMIT_CONST_SIZE) {
        cli_error("TOO_BIG: with these parameters constant %s has more than %d bytes",
                  run->op->consts[i].name, LIMIT_CONST_SIZE);
        return CLI_FAILED;
    }
    buffer = malloc(size + 1);
    if (buffer == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    rc = read_const(run, i, buffer, size);
    if (rc == CLI_OK &&
        gpupipe_const_put(run->gpupipe, buffer, size, &run->request.options.consts[i]) < 0) {
        return cli_failure(gpupipe_last_error(run->gpupipe));
    }
    return rc;
}

static int put_consts(struct run *run)
{
    struct msg_options *options = &run->request.options;
    int rc = CLI_OK;

    while (rc == CLI_OK && options->n_consts < run->op->n_consts) {
        rc = put_const(run, options->n_consts++);
    }
    return rc;
}

/* The job keeps them for as long as it needs them. */
static int drop_consts(struct run *run)
{
    for (uint32_t i = 0; i < run->op->n_consts; i++) {
        if (gpupipe_const_drop(run->gpupipe, run->request.options.consts[i]) < 0) {
            return cli_failure(gpupipe_last_error(run->gpupipe));
        }
    }
    return CLI_OK;
}

/* ---- outputs ------------------------------------------------------------------------------- */

/* How many records each output will have; false: that shows at the end. */
static bool count_expected(const struct run *run, uint64_t *ret_n_records)
{
    if (run->op->kind == OP_REDUCE) {
        *ret_n_records = 1;
        return true;
    }
    for (uint32_t i = 0; i < run->n_inputs; i++) {
        if (run->inputs[i].has_size && !run->inputs[i].is_varying) {
            *ret_n_records =
                div_round_up(run->inputs[i].size, gpupipe_record_size(run->job, false, i));
            return true;
        }
    }
    return false;
}

static int begin_npy(struct run *run, uint32_t i)
{
    uint8_t header[NPY_HEADER_SIZE];

    if (!count_expected(run, &run->n_expected) && !output_can_rewrite(&run->outputs[i])) {
        cli_error("output %s: a .npy begins with the number of records, which is not known yet and "
                  "cannot be put into %s later: use -o FILE, or --format raw",
                  run->op->out[i].name, run->outputs[i].path);
        return CLI_FAILED;
    }
    npy_header(&run->out_records[i], run->n_expected, header);
    return output_write(&run->outputs[i], header, sizeof(header));
}

static int end_npy(struct run *run, uint32_t i)
{
    uint64_t size = run->outputs[i].n_written - NPY_HEADER_SIZE;
    uint64_t n_records = size / npy_size(&run->out_records[i]);
    uint8_t header[NPY_HEADER_SIZE];

    if (n_records == run->n_expected) {
        return CLI_OK;
    }
    if (!output_can_rewrite(&run->outputs[i])) {
        cli_error("output %s: it has %" PRIu64 " records, and its header tells %" PRIu64
                  ": the input's size has changed meanwhile",
                  run->op->out[i].name, n_records, run->n_expected);
        return CLI_FAILED;
    }
    npy_header(&run->out_records[i], n_records, header);
    return output_rewrite(&run->outputs[i], header, sizeof(header));
}

static int open_outputs(struct run *run)
{
    while (run->n_outputs < run->op->n_out) {
        uint32_t i = run->n_outputs;
        bool is_binary = !format_is_text(run->out_formats[i]);
        int rc = output_open(run->out_paths[i], run->args.is_forced, is_binary, &run->outputs[i]);

        if (rc != CLI_OK) {
            return rc;
        }
        run->n_outputs++;
        rc = run->out_formats[i] == FORMAT_NPY ? begin_npy(run, i) : CLI_OK;
        if (rc != CLI_OK) {
            return rc;
        }
    }
    return CLI_OK;
}

static int commit_outputs(struct run *run)
{
    int rc = CLI_OK;

    for (uint32_t i = 0; i < run->n_outputs && rc == CLI_OK; i++) {
        rc = run->out_formats[i] == FORMAT_NPY ? end_npy(run, i) : CLI_OK;
        if (rc == CLI_OK) {
            rc = output_commit(&run->outputs[i]);
        }
    }
    return rc;
}

/* ---- the job ------------------------------------------------------------------------------- */

/* Waiting for room is the default: many of us at once must not meet errors. */
static int open_job(struct run *run)
{
    uint32_t backoff_ms = RETRY_MS_FROM;

    while (call_job_open(&run->job, run->gpupipe, &run->request) < 0) {
        const struct gpupipe_error *error = gpupipe_last_error(run->gpupipe);
        uint32_t wait_ms = error->retry_ms == 0 ? backoff_ms : error->retry_ms;

        if (error->status != GPUPIPE_ERROR_BUSY || run->args.is_impatient) {
            return cli_failure(error);
        }
        /* Ends early if the daemon goes away, and a signal ends the program. */
        (void)gpupipe_dispatch(run->gpupipe, (int)MIN(wait_ms, RETRY_MS_TO));
        backoff_ms = MIN(backoff_ms * 2, RETRY_MS_TO);
    }
    return CLI_OK;
}

static uint64_t total_size(const struct run *run)
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

    progress_init(&run->progress, !run->cli->is_quiet && isatty(STDERR_FILENO), total_size(run));
    run->stream = (struct stream){
        .gpupipe = run->gpupipe,
        .job = run->job,
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
        find_op,     build_request, bind_inputs, bind_consts, bind_outputs,
        open_inputs, put_consts,    open_job,    drop_consts,
    };
    int rc = cli_connect(run->cli, &run->gpupipe);

    for (size_t i = 0; i < ARRAY_SIZE(steps) && rc == CLI_OK; i++) {
        rc = steps[i](run);
    }
    return rc;
}

static int execute(struct run *run)
{
    int rc = input_check(run->inputs, run->n_inputs, call_job_shape(run->job)->in_size,
                         run->args.options.tail);

    if (rc == CLI_OK) {
        interrupt_hold();
        rc = open_outputs(run);
    }
    if (rc == CLI_OK) {
        rc = move_records(run);
    }
    if (rc == CLI_OK) {
        rc = commit_outputs(run);
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
    /* Closing takes the buffers back from pushes that are still in flight. */
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
