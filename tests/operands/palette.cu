/*
 * palette: rows of pixels through a table of colors.  It has what the built-in ops may have and not
 * every one has: constants, and a parameter that may not be less than a product of others.  Only
 * the tests' own workers have it.
 */
#include "cuda/op.h"

struct palette_params {
    uint32_t width, channels;
    uint32_t pitch; /* bytes from one row to the next */
    uint32_t n_colors;
};

GP_MAP(palette, chunk->n_records)
{
    const uint8_t *row = GP_IN(0, uint8_t) + i * params->pitch;
    const uint32_t *colors = GP_CONST_IN(0, uint32_t);
    uint64_t sum = *GP_CONST_IN(1, uint64_t);

    for (uint32_t x = 0; x < params->width * params->channels; x++) {
        sum = sum * 3 + colors[row[x] % params->n_colors];
    }
    GP_OUT(0, uint64_t)[i] = sum;
}

#ifdef GP_HOST

#define PALETTE_PARAM(param_name, member, most)                                                    \
    .name = (param_name), .type = PARAM_U32, .offset = offsetof(struct palette_params, member),    \
    .i_default = 1, .i_min = 1, .i_max = (most)

static const struct manifest_op palette_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "palette",
    .doc = "the colors of a row, added up in order",
    .n_in = 1,
    .n_consts = 2,
    .n_out = 1,
    .n_params = 4,
    .params_size = sizeof(struct palette_params),
    .in = {{.name = "row", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "pitch"}}}},
    .consts = {{.name = "colors", .dtype = DTYPE_U32, .n_dims = 1, .dims = {{.param = "colors"}}},
               {.name = "start", .dtype = DTYPE_U64}},
    .out = {{.name = "sum", .dtype = DTYPE_U64}},
    .params = {{PALETTE_PARAM("width", width, 1 << 20)},
               {PALETTE_PARAM("channels", channels, 4)},
               {PALETTE_PARAM("pitch", pitch, 1 << 21), .n_at_least = 2,
                .at_least = {"width", "channels"}},
               {PALETTE_PARAM("colors", n_colors, LIMIT_RECORD)}},
    .min_parallel = 16,
};

GP_CODE(palette, .map = palette_map);

#endif
