/*
 * Manifest, packing: do a client's values fit an op's parameters?  The op has passed
 * manifest_check().
 */
#include "proto/manifest.h"

#include "proto/manifest_private.h"
#include "proto/util.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* "an integer, 1 to 64", "a float", "one of lo, hi": what a parameter may be. */
static void describe(const struct manifest_param *param, char *ret_text, size_t size)
{
    int length;

    if (param->type == PARAM_CHOICE) {
        length = snprintf(ret_text, size, "one of");
        for (uint32_t i = 0; i < param->n_choices && (size_t)length < size; i++) {
            length += snprintf(ret_text + length, size - (size_t)length, "%s %s", i == 0 ? "" : ",",
                               param->choices[i]);
        }
    } else if (!manifest_is_float(param)) {
        snprintf(ret_text, size, "an integer, %" PRId64 " to %" PRId64, param->i_min, param->i_max);
    } else if (param->is_bounded) {
        snprintf(ret_text, size, "an %s, %g to %g", param_type_name(param->type), param->f_min,
                 param->f_max);
    } else {
        snprintf(ret_text, size, "an %s", param_type_name(param->type));
    }
}

/* "op "saxpy": parameter "a" is 1e+60; it must be an f32" */
static int refuse(const struct manifest_op *op, const struct manifest_param *param,
                  enum status status, const char *what, struct failure *ret_failure)
{
    char wanted[96];

    describe(param, wanted, sizeof(wanted));
    return fail(ret_failure, status, param->name, "op \"%s\": parameter \"%s\" %s; it must be %s",
                op->name, param->name, what, wanted);
}

static int pack_choice(const struct manifest_op *op, const struct manifest_param *param,
                       const struct value *value, uint8_t *params, struct failure *ret_failure)
{
    char what[MANIFEST_NAME_SIZE + 8];

    if (value->kind != VALUE_STRING) {
        return refuse(op, param, STATUS_INVALID_PARAM, "is no string", ret_failure);
    }
    for (uint32_t i = 0; i < param->n_choices; i++) {
        if (strcmp(param->choices[i], value->s) == 0) {
            memcpy(params + param->offset, &i, sizeof(i));
            return 0;
        }
    }
    snprintf(what, sizeof(what), "is \"%s\"", value->s);
    return refuse(op, param, STATUS_RANGE, what, ret_failure);
}

static int pack_integer(const struct manifest_op *op, const struct manifest_param *param,
                        const struct value *value, uint8_t *params, struct failure *ret_failure)
{
    char what[40];

    if (value->kind != VALUE_INT) {
        return refuse(op, param, STATUS_INVALID_PARAM, "is no integer", ret_failure);
    }
    if (value->i < param->i_min || value->i > param->i_max) {
        snprintf(what, sizeof(what), "is %" PRId64, value->i);
        return refuse(op, param, STATUS_RANGE, what, ret_failure);
    }
    /* Little-endian: the low bytes of an i64 are the i32 or u32. */
    memcpy(params + param->offset, &value->i, param_type_size(param->type));
    return 0;
}

static void store_float(const struct manifest_param *param, double number, uint8_t *params)
{
    float narrow = (float)number;

    if (param->type == PARAM_F32) {
        memcpy(params + param->offset, &narrow, sizeof(narrow));
    } else {
        memcpy(params + param->offset, &number, sizeof(number));
    }
}

static int pack_float(const struct manifest_op *op, const struct manifest_param *param,
                      const struct value *value, uint8_t *params, struct failure *ret_failure)
{
    double number = value->kind == VALUE_INT ? (double)value->i : value->f;
    char what[40];

    if (value->kind == VALUE_STRING) {
        return refuse(op, param, STATUS_INVALID_PARAM, "is no number", ret_failure);
    }
    if (!manifest_is_in_range(param, number)) {
        snprintf(what, sizeof(what), "is %g", number);
        return refuse(op, param, STATUS_RANGE, what, ret_failure);
    }
    store_float(param, number, params);
    return 0;
}

static int pack_default(const struct manifest_op *op, const struct manifest_param *param,
                        uint8_t *params, struct failure *ret_failure)
{
    if (param->is_required) {
        return refuse(op, param, STATUS_INVALID_PARAM, "is missing", ret_failure);
    }
    if (manifest_is_float(param)) {
        store_float(param, param->f_default, params);
    } else {
        memcpy(params + param->offset, &param->i_default, param_type_size(param->type));
    }
    return 0;
}

static const struct value *find_value(const struct value *values, uint32_t n_values,
                                      const char *name)
{
    for (uint32_t i = 0; i < n_values; i++) {
        if (strcmp(values[i].name, name) == 0) {
            return &values[i];
        }
    }
    return NULL;
}

/* Every value must have a parameter, and only one value may. */
static int check_names(const struct manifest_op *op, const struct value *values, uint32_t n_values,
                       struct failure *ret_failure)
{
    char known[96] = "none";
    size_t length = 0;

    for (uint32_t i = 0; i < op->n_params && length < sizeof(known); i++) {
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
                                   i == 0 ? "" : ", ", op->params[i].name);
    }
    for (uint32_t i = 0; i < n_values; i++) {
        if (manifest_find_param(op, values[i].name) == NULL) {
            return fail(ret_failure, STATUS_INVALID_PARAM, values[i].name,
                        "op \"%s\" has no parameter \"%s\"; it has %s", op->name, values[i].name,
                        known);
        }
        if (find_value(values, i, values[i].name) != NULL) {
            return fail(ret_failure, STATUS_INVALID_PARAM, values[i].name,
                        "op \"%s\": parameter \"%s\" stands there twice", op->name, values[i].name);
        }
    }
    return 0;
}

static int pack_param(const struct manifest_op *op, const struct manifest_param *param,
                      const struct value *value, uint8_t *params, struct failure *ret_failure)
{
    if (value == NULL) {
        return pack_default(op, param, params, ret_failure);
    }
    if (param->type == PARAM_CHOICE) {
        return pack_choice(op, param, value, params, ret_failure);
    }
    return manifest_is_float(param) ? pack_float(op, param, value, params, ret_failure)
                                    : pack_integer(op, param, value, params, ret_failure);
}

/* The product of what the parameter may not be less than; INT64_MAX where that is more. */
static int64_t least_of(const struct manifest_op *op, const struct manifest_param *param,
                        const uint8_t *params)
{
    int64_t least = 1;

    for (uint32_t i = 0; i < param->n_at_least; i++) {
        int64_t factor = manifest_load_integer(manifest_find_param(op, param->at_least[i]), params);

        if (__builtin_mul_overflow(least, factor, &least)) {
            return INT64_MAX;
        }
    }
    return least;
}

/* Hold a packed parameter to at_least: a value is refused, a default (is_given false) raised. */
static int bound_param(const struct manifest_op *op, const struct manifest_param *param,
                       bool is_given, uint8_t *params, struct failure *ret_failure)
{
    int64_t value = manifest_load_integer(param, params), least = least_of(op, param, params);
    char product[MANIFEST_FACTORS * (MANIFEST_NAME_SIZE + 3)] = "";
    size_t length = 0;

    if (value >= least) {
        return 0;
    }
    if (!is_given && least <= param->i_max) {
        memcpy(params + param->offset, &least, param_type_size(param->type));
        return 0;
    }
    for (uint32_t i = 0; i < param->n_at_least; i++) {
        length += (size_t)snprintf(product + length, sizeof(product) - length, "%s%s",
                                   i == 0 ? "" : " * ", param->at_least[i]);
    }
    return fail(ret_failure, STATUS_RANGE, param->name,
                "op \"%s\": parameter \"%s\" is %s%" PRId64 "; it must be at least %s, %" PRId64,
                op->name, param->name, is_given ? "" : "at most ", is_given ? value : param->i_max,
                product, least);
}

int manifest_pack(const struct manifest_op *op, const struct value *values, uint32_t n_values,
                  uint8_t ret_params[LIMIT_PARAM_BYTES], struct failure *ret_failure)
{
    uint8_t params[LIMIT_PARAM_BYTES] = {0};
    int r = check_names(op, values, n_values, ret_failure);

    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct manifest_param *param = &op->params[i];

        r = pack_param(op, param, find_value(values, n_values, param->name), params, ret_failure);
        if (r < 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct manifest_param *param = &op->params[i];

        if (param->n_at_least > 0) {
            bool is_given = find_value(values, n_values, param->name) != NULL;

            r = bound_param(op, param, is_given, params, ret_failure);
        }
        if (r < 0) {
            return r;
        }
    }
    memcpy(ret_params, params, sizeof(params));
    return 0;
}
