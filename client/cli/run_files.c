/*
 * What gpupipe-cli run reads and writes: files for the op's inputs, constants and outputs.
 *
 * Threads: one.
 */
#include "client/cli/run.h"

#include "client/cli/args.h"
#include "proto/util.h"

#include <inttypes.h>
#include <string.h>

int run_bind_inputs(struct run *run)
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

int run_bind_consts(struct run *run)
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

int run_bind_outputs(struct run *run)
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

int run_open_inputs(struct run *run)
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
    uint32_t backoff_ms = 0;
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
    while (rc == CLI_OK &&
           gpupipe_const_put(run->gpupipe, buffer, size, &run->request.options.consts[i],
                             run->const_sha256[i]) < 0) {
        if (!run_wait_for_room(run, &backoff_ms)) {
            rc = cli_failure(gpupipe_last_error(run->gpupipe));
        }
    }
    return rc;
}

int run_put_consts(struct run *run)
{
    struct msg_options *options = &run->request.options;
    int rc = CLI_OK;

    while (rc == CLI_OK && options->n_consts < run->op->n_consts) {
        rc = put_const(run, options->n_consts++);
    }
    return rc;
}

/* The job keeps them for as long as it needs them. */
int run_drop_consts(struct run *run)
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

int run_open_outputs(struct run *run)
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

int run_commit_outputs(struct run *run)
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
