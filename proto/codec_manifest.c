/*
 * Codec, op.list: a manifest as clients see it.  What only front end and worker need of it (where
 * parameters lie in the packed struct, the size of a partial) stays at home.
 */
#include "proto/codec.h"

#include "proto/codec_fields.h"

static const char *const kind_names[] = {[OP_MAP] = "map", [OP_REDUCE] = "reduce"};

static const char *const dtype_names[DTYPE_COUNT] = {
#define X(name, text, size) [DTYPE_##name] = (text),
    DTYPE_LIST(X)
#undef X
};

static const char *const param_type_names[PARAM_COUNT] = {
#define X(name, text, size) [PARAM_##name] = (text),
    PARAM_TYPE_LIST(X)
#undef X
};

/* ---- arrays: a dimension is a number or a parameter's name ---------------------------------- */

static const struct field dim_fixed = {"", FIELD_UNSIGNED, FIELD_AT(struct manifest_dim, fixed),
                                       .min = 1};
static const struct field dim_param = {"", FIELD_NAME, FIELD_AT(struct manifest_dim, param)};

static int unpack_dim(const struct field *field, const msgpack_object *value, void *whole,
                      struct failure *ret_failure)
{
    (void)field;
    return fields_unpack_value(value->type == MSGPACK_OBJECT_STR ? &dim_param : &dim_fixed, value,
                               whole, ret_failure);
}

static void pack_dim(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct manifest_dim *dim = whole;

    (void)field;
    fields_pack_value(packer, dim->fixed == 0 ? &dim_param : &dim_fixed, dim);
}

static const struct field dim_item = {"", FIELD_CUSTOM, .unpack = unpack_dim, .pack = pack_dim};

static const struct field array_fields[] = {
    {"name", FIELD_NAME, FIELD_AT(struct manifest_array, name), .flags = FIELD_REQUIRED},
    {"dtype", FIELD_WORD, FIELD_AT(struct manifest_array, dtype), .flags = FIELD_REQUIRED,
     FIELD_WORDS(dtype_names)},
    {"shape", FIELD_LIST, FIELD_EACH(struct manifest_array, dims, n_dims), .item = &dim_item},
    {"ends", FIELD_BOOL, FIELD_AT(struct manifest_array, is_ends), .flags = FIELD_SPARSE},
};
static const struct field_table array_table =
    FIELD_TABLE("key", false, struct manifest_array, array_fields);
static const struct field array_item = {"", FIELD_MAP, .table = &array_table};

/* ---- parameters: default, min and max have the parameter's own type ------------------------- */

static bool is_float(const struct manifest_param *param)
{
    return param->type == PARAM_F32 || param->type == PARAM_F64;
}

/*
 * The field that default, min or max really is.  field names the i_ member; the f_ members lie in
 * the same order.  words has room for the parameter's choices and must outlive the result.
 */
static struct field typed_field(const struct field *field, const struct manifest_param *param,
                                const char *words[MANIFEST_CHOICES])
{
    struct field typed = *field;

    if (is_float(param)) {
        typed.type = FIELD_FLOAT;
        typed.offset +=
            offsetof(struct manifest_param, f_min) - offsetof(struct manifest_param, i_min);
    } else if (param->type == PARAM_CHOICE) {
        for (uint32_t i = 0; i < param->n_choices; i++) {
            words[i] = param->choices[i];
        }
        typed.type = FIELD_WORD;
        typed.words = words;
        typed.n_words = param->n_choices;
    } else {
        typed.type = FIELD_SIGNED;
    }
    return typed;
}

static int unpack_typed(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    struct manifest_param *param = whole;
    const char *words[MANIFEST_CHOICES];
    const struct field typed = typed_field(field, param, words);

    if (field->offset != offsetof(struct manifest_param, i_default)) {
        param->is_bounded = true;
    }
    return fields_unpack_value(&typed, value, whole, ret_failure);
}

static void pack_typed(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const char *words[MANIFEST_CHOICES];
    const struct field typed = typed_field(field, whole, words);

    fields_pack_value(packer, &typed, whole);
}

static bool has_default(const void *whole)
{
    const struct manifest_param *param = whole;

    return !param->is_required &&
           (param->type != PARAM_CHOICE || param->i_default < (int64_t)param->n_choices);
}

static bool has_range(const void *whole)
{
    const struct manifest_param *param = whole;

    return param->type != PARAM_CHOICE && (!is_float(param) || param->is_bounded);
}

static const struct field name_item = {"", FIELD_NAME, .size = MANIFEST_NAME_SIZE};

static const struct field param_fields[] = {
    {"name", FIELD_NAME, FIELD_AT(struct manifest_param, name), .flags = FIELD_REQUIRED},
    {"type", FIELD_WORD, FIELD_AT(struct manifest_param, type), .flags = FIELD_REQUIRED,
     FIELD_WORDS(param_type_names)},
    {"required", FIELD_BOOL, FIELD_AT(struct manifest_param, is_required), .flags = FIELD_SPARSE},
    {"choices", FIELD_LIST, FIELD_EACH(struct manifest_param, choices, n_choices),
     .flags = FIELD_SPARSE, .item = &name_item},
    {"default", FIELD_CUSTOM, FIELD_AT(struct manifest_param, i_default), .unpack = unpack_typed,
     .pack = pack_typed, .is_there = has_default},
    {"min", FIELD_CUSTOM, FIELD_AT(struct manifest_param, i_min), .unpack = unpack_typed,
     .pack = pack_typed, .is_there = has_range},
    {"max", FIELD_CUSTOM, FIELD_AT(struct manifest_param, i_max), .unpack = unpack_typed,
     .pack = pack_typed, .is_there = has_range},
    {"at_least", FIELD_LIST, FIELD_EACH(struct manifest_param, at_least, n_at_least),
     .flags = FIELD_SPARSE, .item = &name_item},
};
static const struct field_table param_table =
    FIELD_TABLE("key", false, struct manifest_param, param_fields);
static const struct field param_item = {"", FIELD_MAP, .table = &param_table};

/* ---- ops ----------------------------------------------------------------------------------- */

/* Words of tails that a later version may add are ignored, like unknown keys. */
static int unpack_tails(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    const msgpack_object_array *words = &value->via.array;
    struct manifest_op *op = whole;

    (void)field;
    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be an array");
    }
    for (uint32_t i = 0; i < words->size; i++) {
        for (uint32_t tail = TAIL_ZERO; tail < TAIL_COUNT; tail++) {
            if (words->ptr[i].type == MSGPACK_OBJECT_STR &&
                fields_is_text(&words->ptr[i].via.str, tail_names[tail])) {
                op->tails |= TAIL_BIT(tail);
            }
        }
    }
    return 0;
}

static void pack_tails(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct manifest_op *op = whole;
    uint32_t tails = op->tails | TAIL_BIT(TAIL_ERROR);

    (void)field;
    msgpack_pack_array(packer, (size_t)__builtin_popcount(tails));
    for (uint32_t tail = 0; tail < TAIL_COUNT; tail++) {
        if (tails & TAIL_BIT(tail)) {
            fields_pack_string(packer, tail_names[tail]);
        }
    }
}

static const struct field op_fields[] = {
    {"name", FIELD_NAME, FIELD_AT(struct manifest_op, name), .flags = FIELD_REQUIRED},
    {"doc", FIELD_TEXT, FIELD_AT(struct manifest_op, doc)},
    {"kind", FIELD_WORD, FIELD_AT(struct manifest_op, kind), .flags = FIELD_REQUIRED,
     FIELD_WORDS(kind_names)},
    {"in", FIELD_LIST, FIELD_EACH(struct manifest_op, in, n_in), .flags = FIELD_REQUIRED,
     .item = &array_item},
    {"const", FIELD_LIST, FIELD_EACH(struct manifest_op, consts, n_consts), .item = &array_item},
    {"out", FIELD_LIST, FIELD_EACH(struct manifest_op, out, n_out), .flags = FIELD_REQUIRED,
     .item = &array_item},
    {"params", FIELD_LIST, FIELD_EACH(struct manifest_op, params, n_params), .item = &param_item},
    {"tail", FIELD_CUSTOM, .unpack = unpack_tails, .pack = pack_tails},
    {"min_parallel", FIELD_UNSIGNED, FIELD_AT(struct manifest_op, min_parallel), .fallback = 1},
    {"leaf", FIELD_UNSIGNED, FIELD_AT(struct manifest_op, leaf), .flags = FIELD_SPARSE},
    {"tolerance", FIELD_FLOAT, FIELD_AT(struct manifest_op, tolerance)},
};
static const struct field_table op_table = FIELD_TABLE("key", false, struct manifest_op, op_fields);

int codec_unpack_op_list_result(const msgpack_object *result, struct manifest_op **ret_ops,
                                uint32_t *ret_n_ops, struct failure *ret_failure)
{
    void *ops;
    int r = fields_unpack_array(&op_table, result, &ops, ret_n_ops, ret_failure);

    if (r == 0) {
        *ret_ops = ops;
    }
    return r;
}

void codec_pack_op_list_result(msgpack_packer *packer, uint32_t msgid,
                               const struct manifest_op *const *ops, uint32_t n_ops,
                               const char *backend)
{
    rpc_pack_result(packer, msgid);
    msgpack_pack_array(packer, n_ops);
    for (uint32_t i = 0; i < n_ops; i++) {
        fields_pack_map(packer, &op_table, ops[i], 1);
        fields_pack_string(packer, "backends");
        msgpack_pack_array(packer, 1);
        fields_pack_string(packer, backend);
    }
}
