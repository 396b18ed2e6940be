/*
 * Manifest: is an op's description sound, and how large are its records?
 *
 * manifest_check() comes first and trusts nothing; every other function relies on what it checked:
 * terminated strings, counts within their arrays, parameters within the packed bytes.
 */
#include "proto/manifest.h"

#include "proto/manifest_private.h"
#include "proto/util.h"
#include "proto/worker_abi.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Arrays that one work entry can name, inputs and outputs together. */
#define WORK_REFS ARRAY_SIZE(((struct work_entry *)NULL)->ref)

/* ---- types --------------------------------------------------------------------------------- */

struct type_row {
    const char *name;
    uint32_t size;
};

static const struct type_row dtypes[DTYPE_COUNT] = {
#define X(name, text, size) [DTYPE_##name] = {text, size},
    DTYPE_LIST(X)
#undef X
};

static const struct type_row param_types[PARAM_COUNT] = {
#define X(name, text, size) [PARAM_##name] = {text, size},
    PARAM_TYPE_LIST(X)
#undef X
};

const char *dtype_name(enum dtype dtype)
{
    return dtypes[dtype].name;
}

uint32_t dtype_size(enum dtype dtype)
{
    return dtypes[dtype].size;
}

enum dtype dtype_from_name(const char *name)
{
    enum dtype dtype = 0;

    while (dtype < DTYPE_COUNT && strcmp(dtypes[dtype].name, name) != 0) {
        dtype++;
    }
    return dtype;
}

uint32_t param_type_size(enum param_type type)
{
    return param_types[type].size;
}

const char *param_type_name(enum param_type type)
{
    return param_types[type].name;
}

enum param_type param_type_from_name(const char *name)
{
    enum param_type type = 0;

    while (type < PARAM_COUNT && strcmp(param_types[type].name, name) != 0) {
        type++;
    }
    return type;
}

bool manifest_is_float(const struct manifest_param *param)
{
    return param->type == PARAM_F32 || param->type == PARAM_F64;
}

int64_t manifest_load_integer(const struct manifest_param *param, const uint8_t *params)
{
    const uint8_t *at = params + param->offset;
    int32_t i32;
    uint32_t u32;
    int64_t i64;

    switch (param->type) {
    case PARAM_I32:
        memcpy(&i32, at, sizeof(i32));
        return i32;
    case PARAM_U32:
        memcpy(&u32, at, sizeof(u32));
        return u32;
    default:
        memcpy(&i64, at, sizeof(i64));
        return i64;
    }
}

/* ---- check: strings ------------------------------------------------------------------------ */

/* [a-z][a-z0-9_]*, terminated within its array. */
static bool is_name(const char name[MANIFEST_NAME_SIZE])
{
    size_t length = strnlen(name, MANIFEST_NAME_SIZE);

    return length < MANIFEST_NAME_SIZE && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

static bool is_text(const char *text, size_t size)
{
    size_t length = strnlen(text, size);

    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) {
            return false;
        }
    }
    return length < size;
}

/* ---- check: parameters --------------------------------------------------------------------- */

const struct manifest_param *manifest_find_param(const struct manifest_op *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_params; i++) {
        if (strcmp(op->params[i].name, name) == 0) {
            return &op->params[i];
        }
    }
    return NULL;
}

static int bad(const struct manifest_op *op, const char *part, const char *what,
               struct failure *ret_failure)
{
    return fail(ret_failure, STATUS_INTERNAL, part, "op \"%s\": %s: %s", op->name, part, what);
}

static bool is_integer_range_sound(const struct manifest_param *param)
{
    int64_t least = param->type == PARAM_I64 ? INT64_MIN : param->type == PARAM_I32 ? INT32_MIN : 0;
    int64_t most = param->type == PARAM_I64   ? INT64_MAX
                   : param->type == PARAM_I32 ? INT32_MAX
                                              : UINT32_MAX;

    return param->i_min >= least && param->i_max <= most && param->i_min <= param->i_max &&
           (param->is_required ||
            (param->i_default >= param->i_min && param->i_default <= param->i_max));
}

/* A double that an f32 can hold: infinities and NaN are f32 values too. */
static bool fits_float(const struct manifest_param *param, double value)
{
    return param->type == PARAM_F64 || !isfinite(value) || fabs(value) <= (double)FLT_MAX;
}

bool manifest_is_in_range(const struct manifest_param *param, double value)
{
    return fits_float(param, value) &&
           (!param->is_bounded || (value >= param->f_min && value <= param->f_max));
}

static bool is_float_range_sound(const struct manifest_param *param)
{
    return (!param->is_bounded || param->f_min <= param->f_max) &&
           (param->is_required || manifest_is_in_range(param, param->f_default));
}

static bool are_choices_sound(const struct manifest_param *param)
{
    if (param->n_choices == 0 || param->n_choices > MANIFEST_CHOICES) {
        return false;
    }
    for (uint32_t i = 0; i < param->n_choices; i++) {
        if (!is_name(param->choices[i])) {
            return false;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(param->choices[i], param->choices[k]) == 0) {
                return false;
            }
        }
    }
    return param->is_required || (param->i_default >= 0 && param->i_default < param->n_choices);
}

/* Does the parameter lie within the packed bytes, aligned, and apart from those before it? */
static bool is_place_sound(const struct manifest_op *op, uint32_t index)
{
    uint32_t offset = op->params[index].offset;
    uint32_t size = param_types[op->params[index].type].size;

    if (offset % size != 0 || offset > op->params_size || op->params_size - offset < size) {
        return false;
    }
    for (uint32_t i = 0; i < index; i++) {
        uint32_t other = op->params[i].offset;

        if (offset < other + param_types[op->params[i].type].size && other < offset + size) {
            return false;
        }
    }
    return true;
}

static bool is_integer(const struct manifest_param *param)
{
    return param->type != PARAM_CHOICE && !manifest_is_float(param);
}

/*
 * What the parameter is a product of: integers that cannot be negative, and that have no such bound
 * of their own, so that each bound is known once all values are.
 */
static bool are_factors_sound(const struct manifest_op *op, const struct manifest_param *param)
{
    if (param->n_at_least > MANIFEST_FACTORS || (param->n_at_least > 0 && !is_integer(param))) {
        return false;
    }
    for (uint32_t i = 0; i < param->n_at_least; i++) {
        const char *name = param->at_least[i];
        const struct manifest_param *factor = is_name(name) ? manifest_find_param(op, name) : NULL;

        if (factor == NULL || factor->type >= PARAM_COUNT || !is_integer(factor) ||
            factor->i_min < 0 || factor->n_at_least > 0) {
            return false;
        }
    }
    return true;
}

static int check_param(const struct manifest_op *op, uint32_t index, struct failure *ret_failure)
{
    const struct manifest_param *param = &op->params[index];

    if (manifest_find_param(op, param->name) != param) {
        return bad(op, param->name, "two parameters of this name", ret_failure);
    }
    if (param->type >= PARAM_COUNT) {
        return bad(op, param->name, "no such type", ret_failure);
    }
    if (!is_place_sound(op, index)) {
        return bad(op, param->name, "its offset is unaligned, outside or taken", ret_failure);
    }
    if (!are_factors_sound(op, param)) {
        return bad(op, param->name, "at_least names what is no plain integer parameter",
                   ret_failure);
    }
    if (param->type == PARAM_CHOICE) {
        return are_choices_sound(param) ? 0 : bad(op, param->name, "bad choices", ret_failure);
    }
    if (manifest_is_float(param) ? !is_float_range_sound(param) : !is_integer_range_sound(param)) {
        return bad(op, param->name, "bad default, min or max", ret_failure);
    }
    return 0;
}

/* manifest_find_param() relies on terminated names: they are checked before anything looks one up.
 */
static int check_params(const struct manifest_op *op, struct failure *ret_failure)
{
    if (op->n_params > LIMIT_PARAMS || op->params_size > LIMIT_PARAM_BYTES) {
        return bad(op, "params", "too many", ret_failure);
    }
    for (uint32_t i = 0; i < op->n_params; i++) {
        if (!is_name(op->params[i].name)) {
            return bad(op, "params", "a name is not [a-z][a-z0-9_]*", ret_failure);
        }
    }
    for (uint32_t i = 0; i < op->n_params; i++) {
        int r = check_param(op, i, ret_failure);

        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* ---- check: arrays ------------------------------------------------------------------------- */

/* A dimension that a parameter gives: an integer that cannot be less than 1. */
static bool is_dim_sound(const struct manifest_op *op, const struct manifest_dim *dim)
{
    const struct manifest_param *param;

    if (dim->fixed != 0) {
        return true;
    }
    param = is_name(dim->param) ? manifest_find_param(op, dim->param) : NULL;
    return param != NULL && is_integer(param) && param->i_min >= 1;
}

static bool is_varying(const struct manifest_array *array)
{
    return array->n_dims == 1 && array->dims[0].fixed == 0 &&
           memcmp(array->dims[0].param, MANIFEST_VARYING, sizeof(MANIFEST_VARYING)) == 0;
}

static int check_array(const struct manifest_op *op, const struct manifest_array *array,
                       struct failure *ret_failure)
{
    if (array->dtype >= DTYPE_COUNT) {
        return bad(op, array->name, "no such dtype", ret_failure);
    }
    if (array->n_dims > MANIFEST_DIMS) {
        return bad(op, array->name, "too many dimensions", ret_failure);
    }
    if (is_varying(array)) {
        return 0;
    }
    for (uint32_t i = 0; i < array->n_dims; i++) {
        if (!is_dim_sound(op, &array->dims[i])) {
            return bad(op, array->name, "a dimension is no integer parameter of at least 1",
                       ret_failure);
        }
    }
    return 0;
}

/* The op's arrays, inputs, outputs and constants: index < n_in + n_out + n_consts. */
static const struct manifest_array *array_at(const struct manifest_op *op, uint32_t index)
{
    if (index < op->n_in) {
        return &op->in[index];
    }
    index -= op->n_in;
    return index < op->n_out ? &op->out[index] : &op->consts[index - op->n_out];
}

static int check_arrays(const struct manifest_op *op, struct failure *ret_failure)
{
    if (op->n_in == 0 || op->n_in > LIMIT_IN || op->n_out == 0 || op->n_out > LIMIT_OUT ||
        op->n_in + op->n_out > WORK_REFS || op->n_consts > LIMIT_CONSTS) {
        return bad(op, "in, const, out", "too few or too many arrays", ret_failure);
    }
    for (uint32_t i = 0; i < op->n_in + op->n_out + op->n_consts; i++) {
        const struct manifest_array *array = array_at(op, i);
        int r;

        if (!is_name(array->name)) {
            return bad(op, "in, const, out", "a name is not [a-z][a-z0-9_]*", ret_failure);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(array->name, array_at(op, k)->name) == 0) {
                return bad(op, array->name, "two arrays of this name", ret_failure);
            }
        }
        r = check_array(op, array, ret_failure);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/*
 * At most one varying array, an input but the first, and exactly one input with its ends.  It comes
 * whole: neither is it cut into leaves, nor is there a tail.
 */
static int check_varying(const struct manifest_op *op, struct failure *ret_failure)
{
    uint32_t n_varying = 0, n_ends = 0;

    for (uint32_t i = 0; i < op->n_in + op->n_out + op->n_consts; i++) {
        const struct manifest_array *array = array_at(op, i);

        n_varying += is_varying(array);
        n_ends += array->is_ends != 0;
        if (is_varying(array) && (i == 0 || i >= op->n_in)) {
            return bad(op, array->name, "only an input but the first may be varying", ret_failure);
        }
        if (array->is_ends != 0 &&
            (i >= op->n_in || array->dtype != DTYPE_U32 || array->n_dims != 0)) {
            return bad(op, array->name, "ends are an input of u32", ret_failure);
        }
    }
    if (n_varying > 1 || n_ends != n_varying) {
        return bad(op, "in", "one input may be varying, and one has its ends", ret_failure);
    }
    if (n_varying == 1 && (op->kind != OP_MAP || (op->tails & ~TAIL_BIT(TAIL_ERROR)) != 0)) {
        return bad(op, "in", "a varying input goes with neither reduce nor tail", ret_failure);
    }
    return 0;
}

/* ---- check --------------------------------------------------------------------------------- */

static bool is_kind_sound(const struct manifest_op *op)
{
    if (op->kind == OP_MAP) {
        return op->leaf == 0 && op->partial_size == 0;
    }
    return op->kind == OP_REDUCE && op->leaf >= 1 && op->partial_size >= 1 &&
           op->partial_size <= MANIFEST_PARTIAL_SIZE && op->partial_size % 8 == 0;
}

int manifest_check(const struct manifest_op *op, struct failure *ret_failure)
{
    int r;

    if (op->abi != MANIFEST_ABI) {
        return fail(ret_failure, STATUS_INTERNAL, "abi", "an op of ABI %" PRIu32 ", not %d",
                    op->abi, MANIFEST_ABI);
    }
    if (!is_name(op->name)) {
        return fail(ret_failure, STATUS_INTERNAL, "name",
                    "an op whose name is not [a-z][a-z0-9_]*");
    }
    if (!is_text(op->doc, sizeof(op->doc))) {
        return bad(op, "doc", "not printable ASCII", ret_failure);
    }
    if (!is_kind_sound(op)) {
        return bad(op, "kind", "leaf and partial_size belong to a reduce op, and only there",
                   ret_failure);
    }
    if (op->min_parallel == 0) {
        return bad(op, "min_parallel", "less than 1", ret_failure);
    }
    if (op->tails >= TAIL_BIT(TAIL_COUNT)) {
        return bad(op, "tails", "no such tail", ret_failure);
    }
    if (!isfinite(op->tolerance) || op->tolerance < 0) {
        return bad(op, "tolerance", "not a number of ulps", ret_failure);
    }
    r = check_params(op, ret_failure);
    if (r == 0) {
        r = check_arrays(op, ret_failure);
    }
    return r == 0 ? check_varying(op, ret_failure) : r;
}

/* ---- record sizes -------------------------------------------------------------------------- */

uint32_t manifest_varying(const struct manifest_op *op)
{
    for (uint32_t i = 1; i < op->n_in; i++) {
        if (is_varying(&op->in[i])) {
            return i;
        }
    }
    return 0;
}

uint32_t manifest_ends(const struct manifest_op *op)
{
    uint32_t i = 0;

    while (i + 1 < op->n_in && op->in[i].is_ends == 0) {
        i++;
    }
    return i;
}

int manifest_record_size(const struct manifest_op *op, const struct manifest_array *array,
                         const uint8_t *params, uint32_t *ret_size, struct failure *ret_failure)
{
    uint64_t size = dtype_size(array->dtype);

    for (uint32_t i = 0; i < array->n_dims && !is_varying(array); i++) {
        const struct manifest_dim *dim = &array->dims[i];
        int64_t n = dim->fixed != 0
                        ? dim->fixed
                        : manifest_load_integer(manifest_find_param(op, dim->param), params);

        if (n < 1) {
            return fail(ret_failure, STATUS_RANGE, array->name,
                        "op \"%s\": a record of \"%s\" would have 0 bytes", op->name, array->name);
        }
        /* size is at most LIMIT_RECORD here: bounding n first keeps the product within 64 bits. */
        if (n > LIMIT_RECORD || size * (uint64_t)n > LIMIT_RECORD) {
            return fail(ret_failure, STATUS_TOO_BIG, array->name,
                        "op \"%s\": a record of \"%s\" would be larger than %d bytes", op->name,
                        array->name, LIMIT_RECORD);
        }
        size *= (uint64_t)n;
    }
    *ret_size = (uint32_t)size;
    return 0;
}
