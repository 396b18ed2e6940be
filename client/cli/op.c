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

/* ---- as JSON ------------------------------------------------------------------------------- */

static json_t *array_to_json(const struct manifest_array *array)
{
    json_t *shape = json_array();

    for (uint32_t i = 0; i < array->n_dims; i++) {
        json_array_append_new(shape, array->dims[i].fixed != 0 ? json_integer(array->dims[i].fixed)
                                                               : json_string(array->dims[i].param));
    }
    return json_pack("{s:s, s:s, s:o}", "name", array->name, "dtype", dtype_name(array->dtype),
                     "shape", shape);
}

static json_t *arrays_to_json(const struct manifest_array *arrays, uint32_t n_arrays)
{
    json_t *json = json_array();

    for (uint32_t i = 0; i < n_arrays; i++) {
        json_array_append_new(json, array_to_json(&arrays[i]));
    }
    return json;
}

static void add_float_range(json_t *json, const struct manifest_param *param)
{
    if (!param->is_required) {
        json_object_set_new(json, "default", json_real(param->f_default));
    }
    if (param->is_bounded) {
        json_object_set_new(json, "min", json_real(param->f_min));
        json_object_set_new(json, "max", json_real(param->f_max));
    }
}

static void add_choices(json_t *json, const struct manifest_param *param)
{
    json_t *choices = json_array();

    for (uint32_t i = 0; i < param->n_choices; i++) {
        json_array_append_new(choices, json_string(param->choices[i]));
    }
    if (!param->is_required) {
        json_object_set_new(json, "default", json_string(param->choices[param->i_default]));
    }
    json_object_set_new(json, "choices", choices);
}

static void add_integer_range(json_t *json, const struct manifest_param *param)
{
    if (!param->is_required) {
        json_object_set_new(json, "default", json_integer(param->i_default));
    }
    json_object_set_new(json, "min", json_integer(param->i_min));
    json_object_set_new(json, "max", json_integer(param->i_max));
}

static json_t *param_to_json(const struct manifest_param *param)
{
    json_t *json = json_pack("{s:s, s:s, s:b}", "name", param->name, "type",
                             param_type_name(param->type), "required", param->is_required != 0);

    if (is_float(param)) {
        add_float_range(json, param);
    } else if (param->type == PARAM_CHOICE) {
        add_choices(json, param);
    } else {
        add_integer_range(json, param);
    }
    return json;
}

static json_t *op_to_json(const struct manifest_op *op)
{
    json_t *params = json_array(), *tails = json_array();

    for (uint32_t i = 0; i < op->n_params; i++) {
        json_array_append_new(params, param_to_json(&op->params[i]));
    }
    for (enum tail tail = TAIL_ERROR; tail < TAIL_COUNT; tail++) {
        if (tail == TAIL_ERROR || (op->tails & TAIL_BIT(tail)) != 0) {
            json_array_append_new(tails, json_string(tail_names[tail]));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:f}", "name", op->name, "doc",
                     op->doc, "kind", kind_name(op), "in", arrays_to_json(op->in, op->n_in), "out",
                     arrays_to_json(op->out, op->n_out), "params", params, "tail", tails,
                     "min_parallel", (json_int_t)op->min_parallel, "tolerance", op->tolerance);
}

static json_t *ops_to_json(const struct manifest_op *ops, uint32_t n_ops)
{
    json_t *json = json_array();

    for (uint32_t i = 0; i < n_ops; i++) {
        json_array_append_new(json, op_to_json(&ops[i]));
    }
    return json_pack("{s:o}", "ops", json);
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

/* Connect and fetch one op, or all where name is NULL. */
static int fetch(struct cli *cli, const char *name, struct manifest_op **ret_ops,
                 uint32_t *ret_n_ops)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    int rc = cli_connect(cli, &gpupipe);

    if (rc == CLI_OK && call_op_list(gpupipe, name, ret_ops, ret_n_ops) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return rc;
}

int command_op_list(struct cli *cli, int argc, char **argv)
{
    _cleanup_(free_pointer) struct manifest_op *ops = NULL;
    uint32_t n_ops = 0;
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc == CLI_OK && !cli->wants_help) {
        rc = fetch(cli, NULL, &ops, &n_ops);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    return cli->is_json ? cli_print_json(ops_to_json(ops, n_ops)) : print_list(ops, n_ops);
}

/* ---- op show ------------------------------------------------------------------------------- */

static void print_arrays(const char *title, const struct manifest_array *arrays, uint32_t n_arrays)
{
    for (uint32_t i = 0; i < n_arrays; i++) {
        char type[TEXT_SIZE] = "";

        append_type(type, &arrays[i]);
        printf("%-10s %s  %s\n", i == 0 ? title : "", arrays[i].name, type);
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
    _cleanup_(free_pointer) struct manifest_op *ops = NULL;
    uint32_t n_ops = 0;
    int rc = cli_operands(cli, argc, argv, NULL, 1, 1);

    if (rc == CLI_OK && !cli->wants_help) {
        rc = fetch(cli, argv[optind], &ops, &n_ops);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (n_ops != 1) {
        cli_error("UNKNOWN_OP: no op is called %s", argv[optind]);
        return CLI_FAILED;
    }
    return cli->is_json ? cli_print_json(op_to_json(&ops[0])) : print_op(&ops[0]);
}
