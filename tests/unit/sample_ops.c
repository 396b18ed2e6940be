/* Sample ops: see sample_ops.h. */
#include "tests/unit/sample_ops.h"

#include <stddef.h>

struct manifest_op make_op(void)
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

struct manifest_op make_reduce(void)
{
    struct manifest_op op = make_op();

    op.kind = OP_REDUCE;
    op.leaf = 1024;
    op.partial_size = 16;
    return op;
}

void vary(struct manifest_array *array)
{
    array->n_dims = 1;
    array->dims[0] = (struct manifest_dim){.param = MANIFEST_VARYING};
}

struct manifest_op make_varying(void)
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

struct manifest_op make_bounded(void)
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
