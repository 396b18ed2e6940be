/*
 * gpupipe-cli op list, op show: what the daemon's workers announced.
 *
 * Threads: one.
 */
#include "client/cli/table.h"
#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 320

static const char *kind_name(const struct manifest_op *op)
{
    return op->kind == OP_REDUCE ? "reduce" : "map";
}

static bool is_float(const struct manifest_param *param)
{
    return param->type == PARAM_F32 || param->type == PARAM_F64;
}

/* ---- as text ------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void append(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, TEXT_SIZE - used, format, args);
    va_end(args);
}

/* "u8[block]", "f32". */
static void append_type(char *text, const struct manifest_array *array)
{
    append(text, "%s", dtype_name(array->dtype));
    for (uint32_t i = 0; i < array->n_dims; i++) {
        append(text, "%s", i == 0 ? "[" : ", ");
        if (array->dims[i].fixed != 0) {
            append(text, "%u", array->dims[i].fixed);
        } else {
            append(text, "%s", array->dims[i].param);
        }
    }
    append(text, "%s", array->n_dims == 0 ? "" : "]");
}

static void append_arrays(char *text, const struct manifest_array *arrays, uint32_t n_arrays)
{
    for (uint32_t i = 0; i < n_arrays; i++) {
        append(text, "%s%s ", i == 0 ? "" : ", ", arrays[i].name);
        append_type(text, &arrays[i]);
    }
}

static void append_default(char *text, const struct manifest_param *param)
{
    if (param->is_required) {
        append(text, "required");
    } else if (is_float(param)) {
        append(text, "%.9g", param->f_default);
    } else if (param->type == PARAM_CHOICE) {
        append(text, "%s", param->choices[param->i_default]);
    } else {
        append(text, "%" PRId64, param->i_default);
    }
}

static void append_range(char *text, const struct manifest_param *param)
{
    if (param->type == PARAM_CHOICE) {
        for (uint32_t i = 0; i < param->n_choices; i++) {
            append(text, "%s%s", i == 0 ? "" : ", ", param->choices[i]);
        }
    } else if (!is_float(param)) {
        append(text, "%" PRId64 " to %" PRId64, param->i_min, param->i_max);
    } else if (param->is_bounded) {
        append(text, "%.9g to %.9g", param->f_min, param->f_max);
    } else {
        append(text, "any");
    }
    for (uint32_t i = 0; i < param->n_at_least; i++) {
        append(text, "%s%s", i == 0 ? ", no less than " : " * ", param->at_least[i]);
    }
}

static void append_tails(char *text, const struct manifest_op *op)
{
    append(text, "error");
    for (enum tail tail = TAIL_ZERO; tail < TAIL_COUNT; tail++) {
        if ((op->tails & TAIL_BIT(tail)) != 0) {
            append(text, ", %s", tail_names[tail]);
        }
    }
}

/* ---- op list ------------------------------------------------------------------------------- */

static int print_list(const struct manifest_op *ops, uint32_t n_ops)
{
    static const struct table_column columns[] = {
        {"OP"}, {"KIND"}, {"IN"}, {"OUT"}, {"WHAT IT DOES", .is_long = true},
    };
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));

    for (uint32_t i = 0; i < n_ops; i++) {
        char in[TEXT_SIZE] = "", out[TEXT_SIZE] = "";
        const char *const texts[] = {ops[i].name, kind_name(&ops[i]), in, out, ops[i].doc};

        append_arrays(in, ops[i].in, ops[i].n_in);
        append_arrays(out, ops[i].out, ops[i].n_out);
        table_add(table, texts, ARRAY_SIZE(texts));
    }
    return table_print(table);
}

/* The daemon's own words: of one op, or of all where name is NULL. */
static int print_json(struct gpupipe *gpupipe, const char *name)
{
    _cleanup_(free_pointer) char *json = NULL;

    if (gpupipe_op_describe(gpupipe, name, &json) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    printf(name == NULL ? "{\"ops\": %s}\n" : "%s\n", json);
    return cli_flush();
}

int command_op_list(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    _cleanup_(free_pointer) struct manifest_op *ops = NULL;
    uint32_t n_ops = 0;
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc == CLI_OK && !cli->wants_help) {
        rc = cli_connect(cli, &gpupipe);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (cli->is_json) {
        return print_json(gpupipe, NULL);
    }
    if (call_op_list(gpupipe, NULL, &ops, &n_ops) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return print_list(ops, n_ops);
}

/* ---- op show ------------------------------------------------------------------------------- */

static void print_arrays(const char *title, const struct manifest_array *arrays, uint32_t n_arrays)
{
    for (uint32_t i = 0; i < n_arrays; i++) {
        char type[TEXT_SIZE] = "";

        append_type(type, &arrays[i]);
        printf("%-10s %s  %s%s\n", i == 0 ? title : "", arrays[i].name, type,
               arrays[i].is_ends ? "  where each record of the varying input ends" : "");
    }
}

static int print_params(const struct manifest_op *op)
{
    static const struct table_column columns[] = {{"PARAMETER"}, {"TYPE"}, {"DEFAULT"}, {"MAY BE"}};
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));

    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct manifest_param *param = &op->params[i];
        char by_default[TEXT_SIZE] = "", range[TEXT_SIZE] = "";
        const char *const texts[] = {param->name, param_type_name(param->type), by_default, range};

        append_default(by_default, param);
        append_range(range, param);
        table_add(table, texts, ARRAY_SIZE(texts));
    }
    putchar('\n');
    return table_print(table);
}

static int print_op(const struct manifest_op *op)
{
    char tails[TEXT_SIZE] = "";

    append_tails(tails, op);
    printf("%s (%s): %s\n\n", op->name, kind_name(op), op->doc);
    print_arrays("in", op->in, op->n_in);
    print_arrays("const", op->consts, op->n_consts);
    print_arrays("out", op->out, op->n_out);
    printf("%-10s %s\n", "tail", tails);
    printf("%-10s %u records at once keep a device busy\n", "parallel", op->min_parallel);
    if (op->tolerance > 0) {
        printf("%-10s %.9g ulps between backends\n", "tolerance", op->tolerance);
    }
    return op->n_params > 0 ? print_params(op) : cli_flush();
}

int command_op_show(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    _cleanup_(free_pointer) struct manifest_op *ops = NULL;
    uint32_t n_ops = 0;
    int rc = cli_operands(cli, argc, argv, NULL, 1, 1);

    if (rc == CLI_OK && !cli->wants_help) {
        rc = cli_connect(cli, &gpupipe);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (cli->is_json) {
        return print_json(gpupipe, argv[optind]);
    }
    if (call_op_list(gpupipe, argv[optind], &ops, &n_ops) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    if (n_ops != 1) {
        cli_error("UNKNOWN_OP: no op is called %s", argv[optind]);
        return CLI_FAILED;
    }
    return print_op(&ops[0]);
}
