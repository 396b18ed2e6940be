/* Manifests: hostile ones are refused, parameters are packed as the op's C struct has them. */
#include "proto/manifest.h"
#include "proto/util.h"
#include "tests/check.h"

#include <math.h>

/* What an op's own source would declare. */
struct blend_params {
    uint32_t block;
    float a;
    double b;
    int64_t shift;
    int32_t bias;
    uint32_t mode;
};

enum { P_BLOCK, P_A, P_B, P_SHIFT, P_BIAS, P_MODE };

static struct failure failure;

static struct manifest_op make_op(void)
{
    return (struct manifest_op){
        .abi = MANIFEST_ABI,
        .kind = OP_MAP,
        .name = "blend",
        .doc = "Two arrays into one.",
        .n_in = 2,
        .n_out = 1,
        .n_params = 6,
        .params_size = sizeof(struct blend_params),
        .in = {{.name = "x", .dtype = DTYPE_F32},
               {.name = "y", .dtype = DTYPE_U16, .n_dims = 2, .dims = {{3, ""}, {0, "block"}}}},
        .out = {{.name = "z", .dtype = DTYPE_C64, .n_dims = 1, .dims = {{32, ""}}}},
        .params = {{.name = "block",
                    .type = PARAM_U32,
                    .offset = offsetof(struct blend_params, block),
                    .i_default = 4096,
                    .i_min = 1,
                    .i_max = 1 << 30},
                   {.name = "a",
                    .type = PARAM_F32,
                    .offset = offsetof(struct blend_params, a),
                    .is_required = true},
                   {.name = "b",
                    .type = PARAM_F64,
                    .offset = offsetof(struct blend_params, b),
                    .is_bounded = true,
                    .f_default = 0.25,
                    .f_min = -1,
                    .f_max = 1},
                   {.name = "shift",
                    .type = PARAM_I64,
                    .offset = offsetof(struct blend_params, shift),
                    .i_default = -5,
                    .i_min = INT64_MIN,
                    .i_max = INT64_MAX},
                   {.name = "bias",
                    .type = PARAM_I32,
                    .offset = offsetof(struct blend_params, bias),
                    .i_default = -1,
                    .i_min = -8,
                    .i_max = 7},
                   {.name = "mode",
                    .type = PARAM_CHOICE,
                    .offset = offsetof(struct blend_params, mode),
                    .i_default = 1,
                    .n_choices = 2,
                    .choices = {"lo", "hi"}}},
        .tails = TAIL_BIT(TAIL_ERROR) | TAIL_BIT(TAIL_ZERO),
        .min_parallel = 1};
}

static struct manifest_op make_reduce(void)
{
    struct manifest_op op = make_op();

    op.kind = OP_REDUCE;
    op.leaf = 1024;
    op.partial_size = 16;
    return op;
}

static void vary(struct manifest_array *array)
{
    array->n_dims = 1;
    array->dims[0] = (struct manifest_dim){.param = MANIFEST_VARYING};
}

/* Documents of any length, and a constant. */
static struct manifest_op make_varying(void)
{
    struct manifest_op op = {
        .abi = MANIFEST_ABI,
        .kind = OP_MAP,
        .name = "hash",
        .n_in = 2,
        .n_consts = 1,
        .n_out = 1,
        .in = {{.name = "ends", .dtype = DTYPE_U32, .is_ends = 1},
               {.name = "text", .dtype = DTYPE_U16}},
        .consts = {{.name = "salt", .dtype = DTYPE_U64, .n_dims = 1, .dims = {{.fixed = 5}}}},
        .out = {{.name = "digest", .dtype = DTYPE_U64}},
        .min_parallel = 1};

    vary(&op.in[1]);
    return op;
}

struct image_params {
    uint32_t width, channels;
    int64_t pitch;
};

/* Images whose rows may be longer than their pixels. */
static struct manifest_op make_bounded(void)
{
    struct manifest_op op = make_varying();

    op.n_params = 3;
    op.params_size = sizeof(struct image_params);
    op.params[0] = (struct manifest_param){.name = "width",
                                           .type = PARAM_U32,
                                           .offset = offsetof(struct image_params, width),
                                           .i_default = 8,
                                           .i_max = UINT32_MAX};
    op.params[1] = (struct manifest_param){.name = "channels",
                                           .type = PARAM_U32,
                                           .offset = offsetof(struct image_params, channels),
                                           .i_default = 3,
                                           .i_max = UINT32_MAX};
    op.params[2] = (struct manifest_param){.name = "pitch",
                                           .type = PARAM_I64,
                                           .offset = offsetof(struct image_params, pitch),
                                           .i_default = 20,
                                           .i_max = INT64_C(1) << 40,
                                           .n_at_least = 2,
                                           .at_least = {"width", "channels"}};
    return op;
}

static void test_names_of_types(void)
{
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        CHECK_EQ(dtype_from_name(dtype_name(dtype)), dtype);
        CHECK_EQ(dtype_size(dtype), strtoul(dtype_name(dtype) + 1, NULL, 10) / 8);
    }
    for (enum param_type type = 0; type < PARAM_COUNT; type++) {
        CHECK_EQ(param_type_from_name(param_type_name(type)), type);
    }
    CHECK_EQ(dtype_from_name("f16"), DTYPE_COUNT);
    CHECK_EQ(param_type_from_name(""), PARAM_COUNT);
}

/* ---- check --------------------------------------------------------------------------------- */

static void test_sound_ops(void)
{
    struct manifest_op op = make_op();

    CHECK_EQ(manifest_check(&op, &failure), 0);
    op = make_reduce();
    CHECK_EQ(manifest_check(&op, &failure), 0);
    op.n_params = 0;
    op.params_size = 0;
    op.in[1].n_dims = 0;
    CHECK_EQ(manifest_check(&op, &failure), 0);
    CHECK_EQ(manifest_varying(&op), 0);
    op = make_varying();
    CHECK_EQ(manifest_check(&op, &failure), 0);
    CHECK_EQ(manifest_varying(&op), 1);
    CHECK_EQ(manifest_ends(&op), 0);
    op.n_in = 3;
    op.in[2] = op.in[0];
    op.in[0] = (struct manifest_array){.name = "weight", .dtype = DTYPE_F32};
    CHECK_EQ(manifest_check(&op, &failure), 0);
    CHECK_EQ(manifest_varying(&op), 1);
    CHECK_EQ(manifest_ends(&op), 2);
    op = make_bounded();
    CHECK_EQ(manifest_check(&op, &failure), 0);
}

/* Each turns the sound op into one with a single thing wrong. */
#define BROKEN(name, change)                                                                       \
    static void name(struct manifest_op *op)                                                       \
    {                                                                                              \
        change;                                                                                    \
    }

BROKEN(break_abi, op->abi++)
BROKEN(break_kind, op->kind = 2)
BROKEN(break_name_empty, op->name[0] = '\0')
BROKEN(break_name_case, op->name[1] = 'A')
BROKEN(break_name_end, memset(op->name, 'a', sizeof(op->name)))
BROKEN(break_doc_end, memset(op->doc, 'a', sizeof(op->doc)))
BROKEN(break_doc_text, op->doc[3] = '\n')
BROKEN(break_map_leaf, op->leaf = 1)
BROKEN(break_map_partial, op->partial_size = 8)
BROKEN(break_reduce_leaf, *op = make_reduce(); op->leaf = 0)
BROKEN(break_reduce_no_partial, *op = make_reduce(); op->partial_size = 0)
BROKEN(break_reduce_partial, *op = make_reduce(); op->partial_size = 12)
BROKEN(break_reduce_big_partial, *op = make_reduce(); op->partial_size = 72)
BROKEN(break_min_parallel, op->min_parallel = 0)
BROKEN(break_tails, op->tails |= 8)
BROKEN(break_tolerance_nan, op->tolerance = NAN)
BROKEN(break_tolerance, op->tolerance = -1)
BROKEN(break_n_in, op->n_in = 0)
BROKEN(break_n_in_many, op->n_in = LIMIT_IN + 1)
BROKEN(break_n_out, op->n_out = 0)
BROKEN(break_n_out_many, op->n_out = LIMIT_OUT + 1)
BROKEN(break_n_both, op->n_in = 4; op->n_out = 2)
BROKEN(break_n_huge, op->n_in = UINT32_MAX; op->n_out = 2)
BROKEN(break_array_name, memset(op->in[0].name, 'x', MANIFEST_NAME_SIZE))
BROKEN(break_array_twice, strcpy(op->out[0].name, "y"))
BROKEN(break_dtype, op->out[0].dtype = DTYPE_COUNT)
BROKEN(break_n_dims, op->in[0].n_dims = MANIFEST_DIMS + 1)
BROKEN(break_dim_unknown, strcpy(op->in[1].dims[1].param, "blocks"))
BROKEN(break_dim_end, memset(op->in[1].dims[1].param, 'b', MANIFEST_NAME_SIZE))
BROKEN(break_dim_empty, op->in[1].dims[1].param[0] = '\0')
BROKEN(break_dim_float, strcpy(op->in[1].dims[1].param, "b"))
BROKEN(break_dim_choice, strcpy(op->in[1].dims[1].param, "mode"))
BROKEN(break_dim_least, op->params[P_BLOCK].i_min = 0)
BROKEN(break_n_params, op->n_params = LIMIT_PARAMS + 1)
BROKEN(break_params_size, op->params_size = LIMIT_PARAM_BYTES + 1)
BROKEN(break_param_name, memset(op->params[5].name, 'p', MANIFEST_NAME_SIZE))
BROKEN(break_param_twice, strcpy(op->params[5].name, "a"))
BROKEN(break_param_type, op->params[1].type = PARAM_COUNT)
BROKEN(break_offset_odd, op->params[P_SHIFT].offset += 4)
BROKEN(break_offset_out, op->params[P_MODE].offset = op->params_size)
BROKEN(break_offset_huge, op->params[P_MODE].offset = 0xfffffffc)
BROKEN(break_offset_taken, op->params[P_MODE].offset = op->params[P_B].offset + 4)
BROKEN(break_default_small, op->params[P_BLOCK].i_default = 0)
BROKEN(break_default_big, op->params[P_BIAS].i_default = 8)
BROKEN(break_range, op->params[P_SHIFT].i_min = 1; op->params[P_SHIFT].i_max = 0)
BROKEN(break_u32_min, op->params[P_BLOCK].i_min = -1)
BROKEN(break_u32_max, op->params[P_BLOCK].i_max = INT64_C(1) << 32)
BROKEN(break_i32_min, op->params[P_BIAS].i_min = (int64_t)INT32_MIN - 1)
BROKEN(break_i32_max, op->params[P_BIAS].i_max = (int64_t)INT32_MAX + 1)
BROKEN(break_float_default, op->params[P_B].f_default = 2)
BROKEN(break_float_nan, op->params[P_B].f_default = NAN)
BROKEN(break_float_range, op->params[P_B].f_min = NAN)
BROKEN(break_f32_default, op->params[P_A].is_required = false; op->params[P_A].f_default = 1e300)
BROKEN(break_no_choice, op->params[P_MODE].n_choices = 0)
BROKEN(break_choices_many, op->params[P_MODE].n_choices = MANIFEST_CHOICES + 1)
BROKEN(break_choice_default, op->params[P_MODE].i_default = 2)
BROKEN(break_choice_name, memset(op->params[P_MODE].choices[1], 'c', MANIFEST_NAME_SIZE))
BROKEN(break_choice_twice, strcpy(op->params[P_MODE].choices[1], "lo"))
BROKEN(break_n_consts, op->n_consts = LIMIT_CONSTS + 1)
BROKEN(break_const_name, op->n_consts = 1)
BROKEN(break_const_twice, *op = make_varying(); strcpy(op->consts[0].name, "text"))
BROKEN(break_const_dtype, *op = make_varying(); op->consts[0].dtype = DTYPE_COUNT)
BROKEN(break_varying_first, *op = make_varying(); op->in[0] = op->in[1]; op->n_in = 1)
BROKEN(break_varying_out, *op = make_varying(); op->out[0].n_dims = 1; vary(&op->out[0]))
BROKEN(break_varying_const, *op = make_varying(); vary(&op->consts[0]))
BROKEN(break_varying_twice, *op = make_varying(); op->in[2] = op->in[1]; op->n_in = 3;
       strcpy(op->in[2].name, "more"))
BROKEN(break_varying_dims, *op = make_varying(); op->in[1].n_dims = 2; op->in[1].dims[1].fixed = 3)
BROKEN(break_varying_reduce, *op = make_varying(); op->kind = OP_REDUCE; op->leaf = 4;
       op->partial_size = 8)
BROKEN(break_varying_tail, *op = make_varying(); op->tails = TAIL_BIT(TAIL_SHORT))
BROKEN(break_no_ends, *op = make_varying(); op->in[0].is_ends = 0)
BROKEN(break_ends_alone, op->in[1].is_ends = 1; op->in[1].dtype = DTYPE_U32; op->in[1].n_dims = 0)
BROKEN(break_ends_dtype, *op = make_varying(); op->in[0].dtype = DTYPE_U64)
BROKEN(break_ends_dims, *op = make_varying(); op->in[0].n_dims = 1; op->in[0].dims[0].fixed = 2)
BROKEN(break_ends_out, *op = make_varying(); op->in[0].is_ends = 0; op->out[0].is_ends = 1)
BROKEN(break_factor_unknown, *op = make_bounded(); strcpy(op->params[2].at_least[1], "depth"))
BROKEN(break_factor_end, *op = make_bounded(); memset(op->params[2].at_least[1], 'w', 32))
BROKEN(break_factor_float, *op = make_bounded(); op->params[1].type = PARAM_F32)
BROKEN(break_factor_negative, *op = make_bounded(); op->params[1].type = PARAM_I32;
       op->params[1].i_max = 9; op->params[1].i_min = -1)
BROKEN(break_factor_itself, *op = make_bounded(); strcpy(op->params[2].at_least[1], "pitch"))
BROKEN(break_factors_many, *op = make_bounded(); op->params[2].n_at_least = MANIFEST_FACTORS + 1)
BROKEN(break_factors_of_float, *op = make_bounded(); op->params[2].type = PARAM_F64)

static void test_broken_ops(void)
{
    static const struct {
        void (*break_op)(struct manifest_op *op);
        const char *message;
    } cases[] = {
        {break_abi, "ABI 3, not 2"},
        {break_kind, "kind"},
        {break_name_empty, "name"},
        {break_name_case, "name"},
        {break_name_end, "name"},
        {break_doc_end, "doc"},
        {break_doc_text, "doc"},
        {break_map_leaf, "leaf"},
        {break_map_partial, "partial"},
        {break_reduce_leaf, "leaf"},
        {break_reduce_no_partial, "partial"},
        {break_reduce_partial, "partial"},
        {break_reduce_big_partial, "partial"},
        {break_min_parallel, "min_parallel"},
        {break_tails, "tail"},
        {break_tolerance_nan, "tolerance"},
        {break_tolerance, "tolerance"},
        {break_n_in, "arrays"},
        {break_n_in_many, "arrays"},
        {break_n_out, "arrays"},
        {break_n_out_many, "arrays"},
        {break_n_both, "arrays"},
        {break_n_huge, "arrays"},
        {break_array_name, "name"},
        {break_array_twice, "two arrays"},
        {break_dtype, "dtype"},
        {break_n_dims, "dimensions"},
        {break_dim_unknown, "dimension"},
        {break_dim_end, "dimension"},
        {break_dim_empty, "dimension"},
        {break_dim_float, "dimension"},
        {break_dim_choice, "dimension"},
        {break_dim_least, "dimension"},
        {break_n_params, "too many"},
        {break_params_size, "too many"},
        {break_param_name, "name"},
        {break_param_twice, "two parameters"},
        {break_param_type, "type"},
        {break_offset_odd, "offset"},
        {break_offset_out, "offset"},
        {break_offset_huge, "offset"},
        {break_offset_taken, "offset"},
        {break_default_small, "block: bad default"},
        {break_default_big, "bias: bad default"},
        {break_range, "shift: bad default"},
        {break_u32_min, "block: bad default"},
        {break_u32_max, "block: bad default"},
        {break_i32_min, "bias: bad default"},
        {break_i32_max, "bias: bad default"},
        {break_float_default, "b: bad default"},
        {break_float_nan, "b: bad default"},
        {break_float_range, "b: bad default"},
        {break_f32_default, "a: bad default"},
        {break_no_choice, "choices"},
        {break_choices_many, "choices"},
        {break_choice_default, "choices"},
        {break_choice_name, "choices"},
        {break_choice_twice, "choices"},
        {break_n_consts, "arrays"},
        {break_const_name, "name"},
        {break_const_twice, "two arrays"},
        {break_const_dtype, "dtype"},
        {break_varying_first, "text: only an input but the first"},
        {break_varying_out, "digest: only an input but the first"},
        {break_varying_const, "salt: only an input but the first"},
        {break_varying_twice, "one input may be varying"},
        {break_varying_dims, "dimension"},
        {break_varying_reduce, "neither reduce nor tail"},
        {break_varying_tail, "neither reduce nor tail"},
        {break_no_ends, "one has its ends"},
        {break_ends_alone, "one has its ends"},
        {break_ends_dtype, "ends are an input of u32"},
        {break_ends_dims, "ends are an input of u32"},
        {break_ends_out, "ends are an input of u32"},
        {break_factor_unknown, "at_least"},
        {break_factor_end, "at_least"},
        {break_factor_float, "at_least"},
        {break_factor_negative, "at_least"},
        {break_factor_itself, "at_least"},
        {break_factors_many, "at_least"},
        {break_factors_of_float, "at_least"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct manifest_op op = make_op();

        cases[i].break_op(&op);
        memset(&failure, 0xa5, sizeof(failure));
        printf("# case %zu, %s\n", i, cases[i].message);
        CHECK_EQ(manifest_check(&op, &failure), -STATUS_INTERNAL);
        CHECK_HAS(failure.message, cases[i].message);
    }
}

/* Whatever bytes a broken worker sends: refused or sound, and never read past their end. */
static void test_random_bytes(void)
{
    unsigned seed = (unsigned)time(NULL);

    printf("# seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < 20000; round++) {
        struct manifest_op op = round % 3 == 0   ? make_op()
                                : round % 3 == 1 ? make_reduce()
                                                 : make_bounded();
        uint8_t *bytes = (uint8_t *)&op;
        uint8_t params[LIMIT_PARAM_BYTES];
        uint32_t size;

        for (int n = 1 + (int)(random() % 4); n > 0; n--) {
            bytes[(size_t)random() % sizeof(op)] = (uint8_t)random();
        }
        if (manifest_check(&op, &failure) < 0) {
            continue;
        }
        CHECK_LT(manifest_varying(&op), op.n_in);
        CHECK_LT(manifest_ends(&op), op.n_in);
        if (manifest_pack(&op, &(struct value){"a", VALUE_INT, 1, 0, ""}, round % 3 < 2, params,
                          &failure) == 0) {
            for (uint32_t i = 0; i < op.n_in; i++) {
                if (manifest_record_size(&op, &op.in[i], params, &size, &failure) == 0) {
                    CHECK_GE(size, 1);
                    CHECK_LE(size, LIMIT_RECORD);
                }
            }
        }
    }
}

/* ---- pack ---------------------------------------------------------------------------------- */

static void test_pack_everything(void)
{
    const struct manifest_op op = make_op();
    const struct value values[] = {
        {.name = "mode", .kind = VALUE_STRING, .s = "lo"},
        {.name = "bias", .kind = VALUE_INT, .i = -8},
        {.name = "block", .kind = VALUE_INT, .i = 1 << 30},
        {.name = "shift", .kind = VALUE_INT, .i = INT64_MIN},
        {.name = "b", .kind = VALUE_FLOAT, .f = -1},
        {.name = "a", .kind = VALUE_INT, .i = -3},
    };
    uint8_t params[LIMIT_PARAM_BYTES];
    const uint8_t zeros[LIMIT_PARAM_BYTES] = {0};
    struct blend_params read;

    memset(params, 0xa5, sizeof(params));
    CHECK_EQ(manifest_pack(&op, values, ARRAY_SIZE(values), params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK_EQ(read.block, 1 << 30);
    CHECK(read.a == -3.0f);
    CHECK(read.b == -1.0);
    CHECK_EQ(read.shift, INT64_MIN);
    CHECK_EQ(read.bias, -8);
    CHECK_EQ(read.mode, 0);
    CHECK_MEM(params + sizeof(read), zeros, sizeof(params) - sizeof(read));
}

static void test_pack_defaults(void)
{
    const struct manifest_op op = make_op();
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 0.1};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct blend_params read;

    memset(params, 0xa5, sizeof(params));
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK_EQ(read.block, 4096);
    CHECK(read.a == 0.1f);
    CHECK(read.b == 0.25);
    CHECK_EQ(read.shift, -5);
    CHECK_EQ(read.bias, -1);
    CHECK_EQ(read.mode, 1);
}

static void test_pack_special_floats(void)
{
    struct manifest_op op = make_op();
    struct value value = {.name = "a", .kind = VALUE_FLOAT, .f = NAN};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct blend_params read;

    CHECK_EQ(manifest_pack(&op, &value, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK(isnan(read.a));
    value.f = -INFINITY;
    CHECK_EQ(manifest_pack(&op, &value, 1, params, &failure), 0);
    memcpy(&read, params, sizeof(read));
    CHECK(isinf(read.a) && read.a < 0);
}

static void test_pack_refusals(void)
{
    const struct manifest_op op = make_op();
    static const struct {
        struct value value;
        enum status status;
        const char *message;
    } cases[] = {
        {{"c", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\" has no parameter \"c\"; it has block, a, b, shift, bias, mode"},
        {{"a", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"a\" stands there twice"},
        {{"block", VALUE_FLOAT, 0, 4096, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"block\" is no integer; it must be an integer, 1 to "
         "1073741824"},
        {{"block", VALUE_STRING, 0, 0, "4096"},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"block\" is no integer; it must be an integer, 1 to "
         "1073741824"},
        {{"block", VALUE_INT, 0, 0, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"block\" is 0; it must be an integer, 1 to 1073741824"},
        {{"bias", VALUE_INT, 8, 0, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"bias\" is 8; it must be an integer, -8 to 7"},
        {{"b", VALUE_FLOAT, 0, 1.5, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"b\" is 1.5; it must be an f64, -1 to 1"},
        {{"b", VALUE_FLOAT, 0, NAN, ""},
         STATUS_RANGE,
         "op \"blend\": parameter \"b\" is nan; it must be an f64, -1 to 1"},
        {{"b", VALUE_STRING, 0, 0, "x"},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"b\" is no number; it must be an f64, -1 to 1"},
        {{"mode", VALUE_STRING, 0, 0, "mid"},
         STATUS_RANGE,
         "op \"blend\": parameter \"mode\" is \"mid\"; it must be one of lo, hi"},
        {{"mode", VALUE_INT, 1, 0, ""},
         STATUS_INVALID_PARAM,
         "op \"blend\": parameter \"mode\" is no string; it must be one of lo, hi"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct value values[] = {{.name = "a", .kind = VALUE_INT, .i = 1}, cases[i].value};
        uint8_t params[LIMIT_PARAM_BYTES], before[LIMIT_PARAM_BYTES];

        memset(params, 0xa5, sizeof(params));
        memset(before, 0xa5, sizeof(before));
        CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), -(int)cases[i].status);
        CHECK_STR(failure.message, cases[i].message);
        CHECK_STR(failure.field, cases[i].value.name);
        CHECK_MEM(params, before, sizeof(params));
    }
}

static void test_pack_required_and_f32(void)
{
    const struct manifest_op op = make_op();
    struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 1e300};
    uint8_t params[LIMIT_PARAM_BYTES];

    CHECK_EQ(manifest_pack(&op, NULL, 0, params, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "op \"blend\": parameter \"a\" is missing; it must be an f32");
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), -STATUS_RANGE);
    CHECK_STR(failure.message, "op \"blend\": parameter \"a\" is 1e+300; it must be an f32");
}

static void test_pack_without_parameters(void)
{
    struct manifest_op op = make_op();
    const struct value a = {.name = "a", .kind = VALUE_INT, .i = 1};
    uint8_t params[LIMIT_PARAM_BYTES];

    op.n_params = 0;
    CHECK_EQ(manifest_pack(&op, NULL, 0, params, &failure), 0);
    CHECK_EQ(manifest_pack(&op, &a, 1, params, &failure), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "op \"blend\" has no parameter \"a\"; it has none");
}

/* What a parameter may not be less than: a value is refused, a default gives way. */
static void test_pack_bounds(void)
{
    static const struct {
        int64_t width, channels;
        int64_t pitch; /* -1: not said */
        int64_t packed;
        const char *message; /* NULL: it is packed */
    } cases[] = {
        {8, 3, 24, 24, NULL},
        {8, 3, 25, 25, NULL},
        {8, 3, 23, 0,
         "op \"hash\": parameter \"pitch\" is 23; it must be at least width * channels, 24"},
        {0, 3, 0, 0, NULL},
        {8, 3, -1, 24, NULL},
        {6, 3, -1, 20, NULL},
        {1 << 20, 1 << 20, -1, INT64_C(1) << 40, NULL},
        {1 << 20, (1 << 20) + 1, -1, 0,
         "op \"hash\": parameter \"pitch\" is at most 1099511627776; it must be at least width * "
         "channels, 1099512676352"},
        {UINT32_MAX, UINT32_MAX, 7, 0,
         "op \"hash\": parameter \"pitch\" is 7; it must be at least width * channels, "
         "9223372036854775807"},
    };
    const struct manifest_op op = make_bounded();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct value values[] = {
            {.name = "channels", .kind = VALUE_INT, .i = cases[i].channels},
            {.name = "width", .kind = VALUE_INT, .i = cases[i].width},
            {.name = "pitch", .kind = VALUE_INT, .i = cases[i].pitch},
        };
        uint32_t n_values = cases[i].pitch < 0 ? 2 : 3;
        uint8_t params[LIMIT_PARAM_BYTES];
        struct image_params read;
        int r = manifest_pack(&op, values, n_values, params, &failure);

        if (cases[i].message == NULL) {
            CHECK_EQ(r, 0);
            memcpy(&read, params, sizeof(read));
            CHECK_EQ(read.pitch, cases[i].packed);
            CHECK_EQ(read.width, cases[i].width);
        } else {
            CHECK_EQ(r, -STATUS_RANGE);
            CHECK_STR(failure.message, cases[i].message);
            CHECK_STR(failure.field, "pitch");
        }
    }
}

/* ---- record sizes -------------------------------------------------------------------------- */

static void test_record_sizes(void)
{
    struct manifest_op op = make_op();
    struct value values[] = {{.name = "a", .kind = VALUE_INT, .i = 1},
                             {.name = "block", .kind = VALUE_INT, .i = 10}};
    uint8_t params[LIMIT_PARAM_BYTES];
    uint32_t size = 0;

    CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), 0);
    CHECK_EQ(manifest_record_size(&op, &op.in[0], params, &size, &failure), 0);
    CHECK_EQ(size, 4);
    CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), 0);
    CHECK_EQ(size, 2 * 3 * 10);
    CHECK_EQ(manifest_record_size(&op, &op.out[0], params, &size, &failure), 0);
    CHECK_EQ(size, 8 * 32);
}

static void test_record_sizes_of_operands(void)
{
    const struct manifest_op op = make_varying();
    const uint8_t params[LIMIT_PARAM_BYTES] = {0};
    uint32_t size = 0;

    CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), 0);
    CHECK_EQ(size, 2);
    CHECK_EQ(manifest_record_size(&op, &op.consts[0], params, &size, &failure), 0);
    CHECK_EQ(size, 8 * 5);
}

static void test_record_size_limits(void)
{
    struct manifest_op op = make_op();
    struct value values[] = {{.name = "a", .kind = VALUE_INT, .i = 1},
                             {.name = "block", .kind = VALUE_INT, .i = LIMIT_RECORD / 6}};
    uint8_t params[LIMIT_PARAM_BYTES];
    uint32_t size = 77;

    CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), 0);
    CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), 0);
    CHECK_EQ(size, LIMIT_RECORD / 6 * 6);
    values[1].i++;
    CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), 0);
    CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), -STATUS_TOO_BIG);
    CHECK_STR(failure.field, "y");
    CHECK_EQ(size, LIMIT_RECORD / 6 * 6);

    /* Four dimensions of 2^32 - 1: a product that no integer holds. */
    op.out[0].n_dims = MANIFEST_DIMS;
    for (int i = 0; i < MANIFEST_DIMS; i++) {
        op.out[0].dims[i].fixed = UINT32_MAX;
    }
    CHECK_EQ(manifest_record_size(&op, &op.out[0], params, &size, &failure), -STATUS_TOO_BIG);
}

/* Parameters that no manifest_pack() wrote. */
static void test_record_size_of_strange_parameters(void)
{
    const struct manifest_op op = make_op();
    const uint8_t params[LIMIT_PARAM_BYTES] = {0};
    uint32_t size = 77;

    CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), -STATUS_RANGE);
    CHECK_EQ(size, 77);
}

static void test_dimensions_of_every_integer_type(void)
{
    static const uint32_t by[] = {P_BLOCK, P_SHIFT, P_BIAS};
    struct manifest_op op = make_op();

    for (size_t i = 0; i < ARRAY_SIZE(by); i++) {
        struct manifest_param *param = &op.params[by[i]];
        struct value values[] = {{.name = "a", .kind = VALUE_INT, .i = 1},
                                 {.kind = VALUE_INT, .i = 5}};
        uint8_t params[LIMIT_PARAM_BYTES];
        uint32_t size;

        param->i_min = 1;
        param->i_default = 2;
        strcpy(op.in[1].dims[1].param, param->name);
        strcpy(values[1].name, param->name);
        CHECK_EQ(manifest_check(&op, &failure), 0);
        CHECK_EQ(manifest_pack(&op, values, 2, params, &failure), 0);
        CHECK_EQ(manifest_record_size(&op, &op.in[1], params, &size, &failure), 0);
        CHECK_EQ(size, 2 * 3 * 5);
    }
}

CHECK_MAIN(CHECK_TEST(test_names_of_types), CHECK_TEST(test_sound_ops), CHECK_TEST(test_broken_ops),
           CHECK_TEST(test_random_bytes), CHECK_TEST(test_pack_everything),
           CHECK_TEST(test_pack_defaults), CHECK_TEST(test_pack_special_floats),
           CHECK_TEST(test_pack_refusals), CHECK_TEST(test_pack_required_and_f32),
           CHECK_TEST(test_pack_without_parameters), CHECK_TEST(test_pack_bounds),
           CHECK_TEST(test_record_sizes), CHECK_TEST(test_record_sizes_of_operands),
           CHECK_TEST(test_record_size_limits), CHECK_TEST(test_record_size_of_strange_parameters),
           CHECK_TEST(test_dimensions_of_every_integer_type))
