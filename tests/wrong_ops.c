/*
 * Wrong ops: a registry of what gpupipe-cli bench can check, wrong in ways that a device, a driver
 * or a daemon could be.  It takes the place of cuda/ops in what it is linked into.
 *
 *     copy      leaves the last byte of each chunk unwritten
 *     saxpy     rounds once instead of twice, as a fused multiply-add does
 *     iterate   gives one bit of the last value of each chunk the wrong way around
 *
 * Threads: any number at once.
 */
#include "cuda/registry.h"
#include "proto/util.h"

#include <stddef.h>
#include <string.h>

struct copy_params {
    uint32_t size;
};

struct saxpy_params {
    float a;
};

struct iterate_params {
    uint32_t n;
};

static void copy_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct copy_params *copy = params;

    for (uint32_t i = 0; i < n_chunks; i++) {
        memcpy(chunks[i].out[0], chunks[i].in[0], (size_t)chunks[i].n_records * copy->size - 1);
    }
}

static void saxpy_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct saxpy_params *saxpy = params;

    for (uint32_t i = 0; i < n_chunks; i++) {
        const float *x = chunks[i].in[0], *y = chunks[i].in[1];
        float *out = chunks[i].out[0];

        for (uint32_t k = 0; k < chunks[i].n_records; k++) {
            out[k] = __builtin_fmaf(saxpy->a, x[k], y[k]);
        }
    }
}

static void iterate_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct iterate_params *iterate = params;

    for (uint32_t i = 0; i < n_chunks; i++) {
        const float *x = chunks[i].in[0];
        float *out = chunks[i].out[0];

        for (uint32_t k = 0; k < chunks[i].n_records; k++) {
            float v = x[k];

            for (uint32_t turn = 0; turn < iterate->n; turn++) {
                v = v * 0.5f + 1.0f;
            }
            out[k] = x[k] + v;
            ((uint8_t *)&out[k])[1] ^= k + 1 == chunks[i].n_records;
        }
    }
}

static const struct manifest_op copy_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "copy",
    .doc = "the input, almost",
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
    .min_parallel = 1,
};

static const struct manifest_op saxpy_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "saxpy",
    .doc = "a * x + y, rounded once",
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

static const struct manifest_op iterate_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "iterate",
    .doc = "x + v, and now and then a bit less",
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
                .i_max = 100000}},
    .min_parallel = 1,
};

static const struct op_code copy = {.manifest = &copy_manifest, .map = copy_map};
static const struct op_code saxpy = {.manifest = &saxpy_manifest, .map = saxpy_map};
static const struct op_code iterate = {.manifest = &iterate_manifest, .map = iterate_map};

const struct op_code *const op_codes[] = {&copy, &saxpy, &iterate};
const uint32_t n_op_codes = ARRAY_SIZE(op_codes);
