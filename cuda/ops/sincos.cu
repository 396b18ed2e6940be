/*
 * sincos: out = sin(a) + cos(b), computed in f64 and rounded to f32 at the end.
 *
 * The functions are those of each platform, good to 2 ulps of f64 or better for any argument, so
 *     |out - exact| <= ulp(out) / 2 + 2^-50
 * and backends differ by at most 1 ulp, or, where the sum nearly cancels (|out| < 2^-21), by 2^-49.
 * Infinities give NaN.
 */
#include "cuda/op.h"

#include <math.h>

struct sincos_params {
}; /* none */

GP_MAP(sincos, chunk->n_records)
{
    const double a = (double)GP_IN(0, float)[i], b = (double)GP_IN(1, float)[i];

    GP_OUT(0, float)[i] = (float)(sin(a) + cos(b));
}

#ifdef GP_HOST

static const struct manifest_op sincos_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "sincos",
    .doc = "sin(a) + cos(b), within ulp(out) / 2 + 2^-50",
    .n_in = 2,
    .n_out = 1,
    .in = {{.name = "a", .dtype = DTYPE_F32}, {.name = "b", .dtype = DTYPE_F32}},
    .out = {{.name = "out", .dtype = DTYPE_F32}},
    .min_parallel = 1,
    .tolerance = 1,
};

GP_CODE(sincos, .map = sincos_map, .is_streaming = true);

#endif
