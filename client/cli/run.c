/*
 * gpupipe-cli run: one op over files, as one streaming job.
 *
 * In order, so that each mistake is found before anything has happened that depends on it: options,
 * the op's manifest, files to arrays, inputs opened, outputs judged, the job opened (waiting for
 * room), sizes judged, outputs created, records moved, outputs given their names.
 *
 * Threads: one.
 */
#include "client/cli/args.h"
#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
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

enum run_option {
    OPTION_CHUNK = OPTION_FIRST,
    OPTION_DEADLINE,
    OPTION_DEVICE,
    OPTION_FORMAT,
    OPTION_INLINE,
    OPTION_NO_WAIT,
    OPTION_PRIORITY,
    OPTION_REQUIRE,
    OPTION_TAIL,
    OPTION_TIMING,
};

/* The command line, not yet held against the op. */
struct run_args {
    const char *op;
    struct msg_options options;
    uint64_t chunk_size;
    bool is_text;
    bool is_forced;
    bool is_impatient;
    uint32_t n_params, n_inputs, n_outputs;
    const char *params[LIMIT_PARAMS];
    const char *inputs[LIMIT_IN];
    const char *outputs[LIMIT_OUT];
};

/* Everything that has to be undone, in the order of run_finish(). */
struct run {
    struct cli *cli;
    struct run_args args;
    struct gpupipe *gpupipe;
    struct gpupipe_job *job;
    struct manifest_op *op;
    const char *in_paths[LIMIT_IN];
    const char *out_paths[LIMIT_OUT];
    uint32_t n_inputs, n_outputs; /* open */
    struct input inputs[LIMIT_IN];
    struct output outputs[LIMIT_OUT];
    struct msg_job_open request;
    struct progress progress;
    struct stream stream;
};

/* ---- options ------------------------------------------------------------------------------- */

static int add(const char **list, uint32_t *n_list, uint32_t n_most, const char *option)
{
    if (*n_list == n_most) {
        return cli_usage("%s %s: no op takes more than %u", option, optarg, n_most);
    }
    list[(*n_list)++] = optarg;
    return CLI_OK;
}

static int choose(const char *option, const char *const *names, uint32_t n_names,
                  uint32_t *ret_choice)
{
    uint32_t choice = args_choice(optarg, names, n_names);
    char all[128] = "";

    if (choice < n_names) {
        *ret_choice = choice;
        return CLI_OK;
    }
    for (uint32_t i = 0; i < n_names; i++) {
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i == 0 ? "" : ", ",
                 names[i]);
    }
    return cli_usage("%s %s: may be %s", option, optarg, all);
}

static int take_format(struct run_args *args)
{
    if (strcmp(optarg, "npy") == 0 || strcmp(optarg, "hex") == 0) {
        return cli_usage("--format %s: not in this version", optarg);
    }
    if (strcmp(optarg, "raw") != 0 && strcmp(optarg, "text") != 0) {
        return cli_usage("--format %s: may be raw, text", optarg);
    }
    args->is_text = strcmp(optarg, "text") == 0;
    return CLI_OK;
}

static int take_chunk(struct run_args *args)
{
    if (!args_size(optarg, &args->chunk_size) || args->chunk_size > LIMIT_PUSH) {
        return cli_usage("--chunk %s: expected a size up to 16M, as 65536 or 4M", optarg);
    }
    return CLI_OK;
}

static int take_device(struct run_args *args)
{
    if (strlen(optarg) >= sizeof(args->options.device)) {
        return cli_usage("--device %s: no device has a name that long", optarg);
    }
    snprintf(args->options.device, sizeof(args->options.device), "%s", optarg);
    return CLI_OK;
}

static int take_deadline(struct run_args *args)
{
    if (!args_duration(optarg, &args->options.deadline_ns)) {
        return cli_usage("--deadline %s: expected a time with its unit, as 5ms or 1.5s", optarg);
    }
    return CLI_OK;
}

static int take_choice(int option, struct run_args *args)
{
    uint32_t choice = 0;
    int rc;

    switch (option) {
    case OPTION_PRIORITY:
        rc = choose("--priority", priority_names, PRIORITY_COUNT, &choice);
        args->options.priority = choice;
        return rc;
    case OPTION_REQUIRE:
        rc = choose("--require", require_names, REQUIRE_COUNT, &choice);
        args->options.require = choice;
        return rc;
    default:
        rc = choose("--tail", tail_names, TAIL_COUNT, &choice);
        args->options.tail = choice;
        return rc;
    }
}

static int take_option(struct cli *cli, int option, char **argv, struct run_args *args)
{
    switch (option) {
    case 'f':
        args->is_forced = true;
        return CLI_OK;
    case 'i':
        return add(args->inputs, &args->n_inputs, LIMIT_IN, "-i");
    case 'o':
        return add(args->outputs, &args->n_outputs, LIMIT_OUT, "-o");
    case 'p':
        return add(args->params, &args->n_params, LIMIT_PARAMS, "-p");
    case 'k':
        return cli_usage("-k: not in this version");
    case OPTION_CHUNK:
        return take_chunk(args);
    case OPTION_DEADLINE:
        return take_deadline(args);
    case OPTION_DEVICE:
        return take_device(args);
    case OPTION_FORMAT:
        return take_format(args);
    case OPTION_INLINE:
        /* The only path that this version has. */
        return CLI_OK;
    case OPTION_NO_WAIT:
        args->is_impatient = true;
        return CLI_OK;
    case OPTION_PRIORITY:
    case OPTION_REQUIRE:
    case OPTION_TAIL:
        return take_choice(option, args);
    case OPTION_TIMING:
        args->options.wants_timing = true;
        return CLI_OK;
    default:
        return cli_option(cli, option, argv);
    }
}

static int parse(struct cli *cli, int argc, char **argv, struct run_args *args)
{
    static const struct option options[] = {
        {"chunk", required_argument, NULL, OPTION_CHUNK},
        {"deadline", required_argument, NULL, OPTION_DEADLINE},
        {"device", required_argument, NULL, OPTION_DEVICE},
        {"format", required_argument, NULL, OPTION_FORMAT},
        {"inline", no_argument, NULL, OPTION_INLINE},
        {"no-wait", no_argument, NULL, OPTION_NO_WAIT},
        {"priority", required_argument, NULL, OPTION_PRIORITY},
        {"private", no_argument, NULL, OPTION_LATER},
        {"require", required_argument, NULL, OPTION_REQUIRE},
        {"tail", required_argument, NULL, OPTION_TAIL},
        {"then", no_argument, NULL, OPTION_LATER},
        {"timing", no_argument, NULL, OPTION_TIMING},
        CLI_LONG_OPTIONS,
        {0},
    };
    int rc = CLI_OK, option;

    args->options.priority = PRIORITY_NORMAL;
    optind = 0;
    while (rc == CLI_OK &&
           (option = getopt_long(argc, argv, CLI_SHORT_OPTIONS "fi:o:p:k:", options, NULL)) != -1) {
        rc = take_option(cli, option, argv, args);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (optind == argc) {
        return cli_usage("run: an op is missing; 'gpupipe-cli op list' shows them");
    }
    if (optind + 1 < argc) {
        return cli_usage("run: unexpected argument '%s'; files are given with -i and -o",
                         argv[optind + 1]);
    }
    args->op = argv[optind];
    return CLI_OK;
}

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
    if (run->args.chunk_size != 0) {
        request->options.max_push = MAX(run->args.chunk_size, (uint64_t)LIMIT_PUSH_LEAST);
    }
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
        rc = output_check(run->out_paths[i], run->args.is_forced, !run->args.is_text);
    }
    return rc == CLI_OK ? judge_stdout(run) : rc;
}

static int open_inputs(struct run *run)
{
    while (run->n_inputs < run->op->n_in) {
        uint32_t i = run->n_inputs;
        int rc = input_open(run->op->in[i].name, run->in_paths[i], &run->inputs[i]);

        if (rc != CLI_OK) {
            return rc;
        }
        run->n_inputs++;
    }
    return CLI_OK;
}

static int open_outputs(struct run *run)
{
    while (run->n_outputs < run->op->n_out) {
        uint32_t i = run->n_outputs;
        int rc = output_open(run->out_paths[i], run->args.is_forced, &run->outputs[i]);

        if (rc != CLI_OK) {
            return rc;
        }
        run->n_outputs++;
    }
    return CLI_OK;
}

static int commit_outputs(struct run *run)
{
    for (uint32_t i = 0; i < run->n_outputs; i++) {
        int rc = output_commit(&run->outputs[i]);

        if (rc != CLI_OK) {
            return rc;
        }
    }
    return CLI_OK;
}

/* ---- the job ------------------------------------------------------------------------------- */

/* Waiting for room is the default: many of us at once must not meet errors. */
static int open_job(struct run *run)
{
    uint32_t backoff_ms = RETRY_MS_FROM;

    while (call_job_open(&run->job, run->gpupipe, &run->request) < 0) {
        const struct gpupipe_error *error = gpupipe_last_error(run->gpupipe);
        uint32_t wait_ms = error->retry_ms == 0 ? backoff_ms : error->retry_ms;
        bool may_pass = error->status == GPUPIPE_ERROR_BUSY || error->retry_ms > 0;

        if (!may_pass || run->args.is_impatient) {
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
        .tail = run->args.options.tail,
        .chunk_size = run->args.chunk_size,
        .is_text = run->args.is_text,
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
        find_op, build_request, bind_inputs, bind_outputs, open_inputs, open_job,
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

int command_run(struct cli *cli, int argc, char **argv)
{
    _cleanup_(run_finish) struct run run = {.cli = cli};
    uint64_t start_ns = now_ns();
    int rc = parse(cli, argc, argv, &run.args);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    /* A closed pipe is an error of its file, with a message. */
    signal(SIGPIPE, SIG_IGN);
    interrupt_install();
    rc = prepare(&run);
    if (rc == CLI_OK) {
        rc = execute(&run);
    }
    return rc == CLI_OK ? report_run(&run, now_ns() - start_ns) : rc;
}
