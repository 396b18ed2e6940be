/*
 * saxpy: out = a * x + y, two roundings, no fused multiply-add.
 */
#include "cuda/op.h"

struct saxpy_params {
    float a;
};

GP_MAP(saxpy, chunk->n_records)
{
    const float *x = GP_IN(0, float), *y = GP_IN(1, float);
    float *out = GP_OUT(0, float);

    out[i] = params->a * x[i] + y[i];
}

#ifdef GP_HOST

static const struct manifest_op saxpy_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "saxpy",
    .doc = "a * x + y, each operation rounded to f32",
    .n_in = 2,
    .n_out = 1,
    .n_params = 1,
    .params_size = sizeof(struct saxpy_params),
    .in = {{.name = "x", .dtype = DTYPE_F32}, {.name = "y", .dtype = DTYPE_F32}},
    .out = {{.name = "out", .dtype = DTYPE_F32}},
    .params = {{.name = "a",
                .type = PARAM_F32,
                .offset = offsetof(struct saxpy_params, a),
                .is_required = 1}},
    .min_parallel = 1,
};

GP_CODE(saxpy, .map = saxpy_map, .is_streaming = true);

#endif
