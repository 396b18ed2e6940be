/*
 * gray: the brightness of each pixel of 8-bit RGB, by the weights of ITU-R BT.601 in 256ths:
 *     (77 R + 150 G + 29 B + 128) >> 8
 * The weights add up to 256, so white stays 255.
 */
#include "cuda/op.h"

struct gray_params {
}; /* none */

GP_MAP(gray, chunk->n_records)
{
    const uint8_t *rgb = GP_IN(0, uint8_t) + 3 * i;

    GP_OUT(0, uint8_t)[i] = (uint8_t)((77u * rgb[0] + 150u * rgb[1] + 29u * rgb[2] + 128u) >> 8);
}

#ifdef GP_HOST

static const struct manifest_op gray_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "gray",
    .doc = "RGB to luma: (77 R + 150 G + 29 B + 128) >> 8",
    .n_in = 1,
    .n_out = 1,
    .in = {{.name = "rgb", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = 3}}}},
    .out = {{.name = "out", .dtype = DTYPE_U8}},
    .min_parallel = 1,
};

GP_CODE(gray, .map = gray_map, .is_streaming = true);

#endif
