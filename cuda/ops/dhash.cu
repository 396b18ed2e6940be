/*
 * dhash: the difference hash of each image, 64 bits of which few change with its size, format and
 * brightness.  The image is brought to 9 x 8 values of brightness, and a bit says whether a value
 * is larger than its left neighbour: row by row, the first in the highest bit, as imagehash.dhash()
 * of Python numbers them.
 *
 * Brightness is Pillow's: (19595 R + 38470 G + 7471 B + 32768) >> 16 of the first three channels,
 * the first channel where there are less than three.  The 9 x 8 values are what Pillow's
 * resize((9, 8), BOX) gives, to the bit: means along the rows, then along the columns, rounded
 * after each (resample.h; see resize.cu for Pillow from 12.2 on).  imagehash itself uses LANCZOS,
 * which looks at neighbours as well: its bits differ where two values are nearly the same.
 *
 * A step is a row of the hash; the members of a team share the rows of the image.
 */
#include "cuda/op.h"
#include "cuda/resample.h"

#define DHASH_COLUMNS  9u
#define DHASH_ROWS     8u
#define DHASH_SIDE     8192u /* of an image, at most */
#define DHASH_CHANNELS 4u

struct dhash_params {
    uint32_t width, height, channels;
    uint32_t pitch; /* bytes from one row to the next */
};

struct dhash_columns {
    struct resample_window windows[DHASH_COLUMNS];
    uint32_t weights[DHASH_COLUMNS]; /* of each pixel of the window */
};

/* The sum over n pixels. */
GP_INLINE uint32_t dhash_sum(const uint8_t *pixels, uint32_t n, uint32_t channels)
{
    uint32_t sum = 0;

    if (channels < 3) {
        for (uint32_t k = 0; k < n; k++) {
            sum += pixels[(size_t)k * channels];
        }
        return sum;
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint8_t *rgb = pixels + (size_t)k * channels;

        sum += (19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16;
    }
    return sum;
}

/* Likewise; the loops of the usual images have their distance built in. */
GP_INLINE uint32_t dhash_sum_any(const uint8_t *pixels, uint32_t n, uint32_t channels)
{
    switch (channels) {
    case 1:
        return dhash_sum(pixels, n, 1);
    case 3:
        return dhash_sum(pixels, n, 3);
    default:
        return dhash_sum(pixels, n, channels);
    }
}

GP_INLINE void dhash_open(const struct dhash_params *params, struct dhash_columns *ret_columns)
{
    const struct resample_axis across = {RESAMPLE_BOX, params->width, DHASH_COLUMNS};

    for (uint32_t c = 0; c < DHASH_COLUMNS; c++) {
        ret_columns->windows[c] = resample_window(&across, c);
        resample_weights(&across, &ret_columns->windows[c], 0, 1, &ret_columns->weights[c]);
    }
}

GP_MAP_TEAM(dhash, (size_t)DHASH_ROWS * chunk->n_records)
{
    const struct resample_axis down = {RESAMPLE_BOX, params->height, DHASH_ROWS};
    const uint32_t row = (uint32_t)(i % DHASH_ROWS);
    const struct resample_window window = resample_window(&down, row);
    const uint8_t *in =
        GP_IN(0, uint8_t) + (i / DHASH_ROWS * params->height + window.first) * params->pitch;
    struct dhash_columns columns;
    uint32_t sums[DHASH_COLUMNS] = {0}, weight;
    uint8_t before = 0, bits = 0;

    dhash_open(params, &columns);
    resample_weights(&down, &window, 0, 1, &weight);
    for (uint32_t y = gp_member(); y < window.n; y += GP_TEAM) {
        for (uint32_t c = 0; c < DHASH_COLUMNS; c++) {
            const struct resample_window *span = &columns.windows[c];
            const uint32_t sum = dhash_sum_any(in + (size_t)y * params->pitch +
                                                   (size_t)span->first * params->channels,
                                               span->n, params->channels);

            sums[c] += weight * resample_round(RESAMPLE_HALF + columns.weights[c] * sum);
        }
    }
    for (uint32_t c = 0; c < DHASH_COLUMNS; c++) {
        const uint8_t value = resample_round(RESAMPLE_HALF + gp_team_sum(sums[c]));

        bits = (uint8_t)(bits << 1 | (c > 0 && value > before));
        before = value;
    }
    if (gp_member() == 0) {
        GP_OUT(0, uint8_t)[i - row + DHASH_ROWS - 1 - row] = bits;
    }
}

#ifdef GP_HOST

#define DHASH_PARAM(member, most)                                                                  \
    .name = #member, .type = PARAM_U32, .offset = offsetof(struct dhash_params, member),           \
    .i_min = 1, .i_max = (most)

static const struct manifest_op dhash_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "dhash",
    .doc = "difference hash of an image: bits of imagehash.dhash(), size 8, over Pillow's "
           "resize((9, 8), BOX) of its brightness",
    .n_in = 1,
    .n_out = 1,
    .n_params = 4,
    .params_size = sizeof(struct dhash_params),
    .in = {{.name = "image",
            .dtype = DTYPE_U8,
            .n_dims = 2,
            .dims = {{.param = "height"}, {.param = "pitch"}}}},
    .out = {{.name = "hash", .dtype = DTYPE_U64}},
    .params = {{DHASH_PARAM(width, DHASH_SIDE), .is_required = 1},
               {DHASH_PARAM(height, DHASH_SIDE), .is_required = 1},
               {DHASH_PARAM(channels, DHASH_CHANNELS), .i_default = 3},
               {DHASH_PARAM(pitch, 2 * DHASH_SIDE * DHASH_CHANNELS),
                .i_default = 1, /* raised to a row */
                .n_at_least = 2, .at_least = {"width", "channels"}}},
    .min_parallel = 1,
};

GP_CODE(dhash, .map = dhash_map);

#endif
