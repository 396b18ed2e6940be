/*
 * copy: the bytes as they are.  An op that costs nothing measures everything around it.
 */
#include "cuda/op.h"

struct copy_params {
    uint32_t size; /* bytes of a record */
};

/* Records lie end to end, so a step is a byte of the chunk: threads of a warp read neighbours. */
GP_MAP(copy, (size_t)chunk->n_records * params->size)
{
    GP_OUT(0, uint8_t)[i] = GP_IN(0, uint8_t)[i];
}

#ifdef GP_HOST

static const struct manifest_op copy_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "copy",
    .doc = "the input, unchanged",
    .n_in = 1,
    .n_out = 1,
    .n_params = 1,
    .params_size = sizeof(struct copy_params),
    .in = {{.name = "in", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .out = {{.name = "out", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .params = {{.name = "size",
                .type = PARAM_U32,
                .offset = offsetof(struct copy_params, size),
                .i_default = 1,
                .i_min = 1,
                .i_max = LIMIT_RECORD}},
    .tails = TAIL_BIT(TAIL_ZERO),
    .min_parallel = 1,
};

GP_CODE(copy, .map = copy_map);

#endif
