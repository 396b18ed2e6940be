/*
 * iterate: as much arithmetic for each value as one likes.  v starts as x, n times v = v * 0.5 + 1,
 * out = x + v, each operation rounded to f32.
 *
 * v tends to 2, which a finite x reaches after some 150 steps, so a large n tells nothing about x;
 * but no compiler knows.  n is bounded so that a chunk takes seconds on one CPU thread at most.
 */
#include "cuda/op.h"

/* Values of one step: a thread of a GPU has one, a CPU four vectors that wait for each other's
 * arithmetic.  No compiler finds those by itself: the long loop is the inner one. */
#ifdef __CUDACC__
#define ITERATE_GROUP 1u
#else
#define ITERATE_GROUP 16u
#endif

struct iterate_params {
    uint32_t n;
};

GP_MAP(iterate, ((size_t)chunk->n_records + ITERATE_GROUP - 1) / ITERATE_GROUP)
{
    const size_t first = i * ITERATE_GROUP, left = chunk->n_records - first;
    const size_t n_values = left < ITERATE_GROUP ? left : ITERATE_GROUP;
    const float *in = GP_IN(0, float) + first;
    float *out = GP_OUT(0, float) + first;
    float x[ITERATE_GROUP] = {0}, v[ITERATE_GROUP] = {0};

    for (size_t k = 0; k < n_values; k++) {
        x[k] = in[k];
        v[k] = x[k];
    }
    for (uint32_t turn = 0; turn < params->n; turn++) {
        GP_UNROLL
        for (size_t k = 0; k < ITERATE_GROUP; k++) {
            v[k] = v[k] * 0.5f + 1.0f;
        }
    }
    for (size_t k = 0; k < n_values; k++) {
        out[k] = x[k] + v[k];
    }
}

#ifdef GP_HOST

static const struct manifest_op iterate_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "iterate",
    .doc = "x + v, where v is x after n times v = v * 0.5 + 1, each operation rounded to f32",
    .n_in = 1,
    .n_out = 1,
    .n_params = 1,
    .params_size = sizeof(struct iterate_params),
    .in = {{.name = "x", .dtype = DTYPE_F32}},
    .out = {{.name = "out", .dtype = DTYPE_F32}},
    .params = {{.name = "n",
                .type = PARAM_U32,
                .offset = offsetof(struct iterate_params, n),
                .i_default = 1000,
                .i_min = 0,
                .i_max = 100000}},
    .min_parallel = 1,
};

GP_CODE(iterate, .map = iterate_map, .is_streaming = true);

#endif
