/* spans: a hash of each record of a varying input.  Only the tests' own workers have it. */
#include "cuda/op.h"

struct spans_params {
    uint32_t none; /* C wants a member */
};

GP_MAP(spans, chunk->n_records)
{
    const struct op_span span = GP_SPAN(GP_IN(0, uint32_t), uint16_t, i);
    const uint16_t *text = GP_IN(1, uint16_t) + span.first;
    uint64_t hash = span.n;

    for (uint32_t k = 0; k < span.n; k++) {
        hash = hash * 31 + text[k];
    }
    GP_OUT(0, uint64_t)[i] = hash;
}

#ifdef GP_HOST

static const struct manifest_op spans_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "spans",
    .doc = "a hash of each text",
    .n_in = 2,
    .n_out = 1,
    .in =
        {{.name = "ends", .dtype = DTYPE_U32, .is_ends = 1},
         {.name = "text", .dtype = DTYPE_U16, .n_dims = 1, .dims = {{.param = MANIFEST_VARYING}}}},
    .out = {{.name = "hash", .dtype = DTYPE_U64}},
    .min_parallel = 16,
};

GP_CODE(spans, .map = spans_map);

#endif
