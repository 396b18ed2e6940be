/* Manifests: hostile ones are refused, and the sizes of their records. */
#include "proto/manifest.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/sample_ops.h"

#include <math.h>

static struct failure failure;

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
           CHECK_TEST(test_random_bytes), CHECK_TEST(test_record_sizes),
           CHECK_TEST(test_record_sizes_of_operands), CHECK_TEST(test_record_size_limits),
           CHECK_TEST(test_record_size_of_strange_parameters),
           CHECK_TEST(test_dimensions_of_every_integer_type))
