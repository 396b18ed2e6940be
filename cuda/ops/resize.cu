/*
 * resize: images of other dimensions, each channel for itself, with the filters of Pillow and to
 * the bit what its Image.resize() gives: first along the rows, then along the columns, rounded to 8
 * bits after each (resample.h).
 *
 *     nearest   the pixel that the center lies in: floor((2 i + 1) * n_in / (2 * n_out))
 *     box       the mean of the pixels that fall into one; the nearest where it grows
 *     bilinear  a triangle, as wide as two pixels of the smaller image
 *
 * Pillow adds up positions for `nearest`, so that where a center lies just between two pixels it
 * may take the one before.  It premultiplies RGBA; here a fourth channel is one as the others.
 * Since 12.2 it takes the columns first where an image over 100 times as high as wide is made
 * lower; until then, as here, always the rows.
 *
 * A step is a strip of RESIZE_COLUMNS columns of a result, RESIZE_ROWS rows long: the weights along
 * the rows are worked out once for it, and rows stay as long as the next rows of the result need
 * them.  A thread of a GPU has one pixel and keeps nothing.
 */
#include "cuda/op.h"
#include "cuda/resample.h"

#define RESIZE_SIDE     8192u /* of an image, at most */
#define RESIZE_CHANNELS 4u
#define RESIZE_WEIGHTS  64u /* kept for a column; where there are more, they are made again */

#ifdef __CUDACC__
#define RESIZE_COLUMNS 1u
#define RESIZE_ROWS    1u
#define RESIZE_KEPT    1u
#else
#define RESIZE_COLUMNS 64u /* at 16, working out the weights down costs as much as the pixels */
#define RESIZE_ROWS    RESIZE_SIDE
#define RESIZE_KEPT    64u /* rows, enough to shrink to a thirtieth */
#endif

#define RESIZE_VALUES (RESIZE_COLUMNS * RESIZE_CHANNELS)

struct resize_params {
    uint32_t width, height, channels;
    uint32_t pitch; /* bytes from one row to the next */
    uint32_t out_width, out_height;
    uint32_t filter; /* enum resample_filter */
};

struct resize_strip {
    const uint8_t *in;
    uint32_t pitch, channels;
    struct resample_axis across, down;
    uint32_t n_columns;
    struct resample_window windows[RESIZE_COLUMNS];
    uint32_t weights[RESIZE_COLUMNS][RESIZE_WEIGHTS];
    /* Row y of the image, resized, lies at y % RESIZE_KEPT. */
    uint32_t kept_y[RESIZE_KEPT];
    uint8_t kept[RESIZE_KEPT][RESIZE_VALUES];
};

GP_INLINE uint32_t resize_least(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

GP_INLINE uint32_t resize_strips(const struct resize_params *params)
{
    return (params->out_width + RESIZE_COLUMNS - 1) / RESIZE_COLUMNS;
}

GP_INLINE uint32_t resize_bands(const struct resize_params *params)
{
    return (params->out_height + RESIZE_ROWS - 1) / RESIZE_ROWS;
}

GP_INLINE size_t resize_steps(const struct resize_params *params)
{
    return (size_t)resize_bands(params) * resize_strips(params);
}

/* Columns first .. of the result. */
GP_INLINE void resize_open(const struct resize_params *params, const uint8_t *in, uint32_t first,
                           struct resize_strip *ret_strip)
{
    const enum resample_filter filter = (enum resample_filter)params->filter;

    ret_strip->in = in;
    ret_strip->pitch = params->pitch;
    ret_strip->channels = params->channels;
    ret_strip->across = (struct resample_axis){filter, params->width, params->out_width};
    ret_strip->down = (struct resample_axis){filter, params->height, params->out_height};
    ret_strip->n_columns = resize_least(RESIZE_COLUMNS, params->out_width - first);
    for (uint32_t c = 0; c < ret_strip->n_columns; c++) {
        const struct resample_window window = resample_window(&ret_strip->across, first + c);

        ret_strip->windows[c] = window;
        resample_weights(&ret_strip->across, &window, 0, resize_least(window.n, RESIZE_WEIGHTS),
                         ret_strip->weights[c]);
    }
    for (uint32_t k = 0; k < RESIZE_KEPT; k++) {
        ret_strip->kept_y[k] = UINT32_MAX;
    }
}

/* Column c of row y.  `channels` is a constant where this is called. */
GP_INLINE void resize_pixel(struct resize_strip *strip, uint32_t c, uint32_t y, uint32_t channels,
                            uint8_t *ret_pixel)
{
    const struct resample_window *window = &strip->windows[c];
    const uint8_t *pixels = strip->in + (size_t)y * strip->pitch + (size_t)window->first * channels;
    uint32_t sums[RESIZE_CHANNELS] = {RESAMPLE_HALF, RESAMPLE_HALF, RESAMPLE_HALF, RESAMPLE_HALF};

    for (uint32_t first = 0; first < window->n; first += RESIZE_WEIGHTS) {
        const uint32_t n = resize_least(window->n - first, RESIZE_WEIGHTS);

        if (window->n > RESIZE_WEIGHTS) {
            resample_weights(&strip->across, window, first, n, strip->weights[c]);
        }
        for (uint32_t k = 0; k < n; k++) {
            GP_UNROLL
            for (uint32_t channel = 0; channel < channels; channel++) {
                sums[channel] += strip->weights[c][k] * pixels[channels * (first + k) + channel];
            }
        }
    }
    GP_UNROLL
    for (uint32_t channel = 0; channel < channels; channel++) {
        ret_pixel[channel] = resample_round(sums[channel]);
    }
}

GP_INLINE void resize_pixels(struct resize_strip *strip, uint32_t y, uint32_t channels,
                             uint8_t *ret_pixels)
{
    GP_ROLLED
    for (uint32_t c = 0; c < strip->n_columns; c++) {
        resize_pixel(strip, c, y, channels, ret_pixels + (size_t)c * channels);
    }
}

/* Row y of the image, resized. */
GP_INLINE const uint8_t *resize_row(struct resize_strip *strip, uint32_t y)
{
    uint8_t *row = strip->kept[y % RESIZE_KEPT];

    if (strip->kept_y[y % RESIZE_KEPT] == y) {
        return row;
    }
    strip->kept_y[y % RESIZE_KEPT] = y;
    switch (strip->channels) {
    case 1:
        resize_pixels(strip, y, 1, row);
        break;
    case 2:
        resize_pixels(strip, y, 2, row);
        break;
    case 3:
        resize_pixels(strip, y, 3, row);
        break;
    default:
        resize_pixels(strip, y, 4, row);
    }
    return row;
}

/* Row i of the result. */
GP_INLINE void resize_write(struct resize_strip *strip, uint32_t i, uint8_t *out)
{
    const struct resample_window window = resample_window(&strip->down, i);
    const uint32_t n_values = strip->n_columns * strip->channels;
    uint32_t sums[RESIZE_VALUES];

    for (uint32_t v = 0; v < n_values; v++) {
        sums[v] = RESAMPLE_HALF;
    }
    GP_ROLLED
    for (uint32_t k = 0; k < window.n; k++) {
        const uint8_t *row = resize_row(strip, window.first + k);
        uint32_t weight;

        resample_weights(&strip->down, &window, k, 1, &weight);
        for (uint32_t v = 0; v < n_values; v++) {
            sums[v] += weight * row[v];
        }
    }
    for (uint32_t v = 0; v < n_values; v++) {
        out[v] = resample_round(sums[v]);
    }
}

GP_MAP(resize, resize_steps(params) * chunk->n_records)
{
    const uint32_t n_strips = resize_strips(params), n_bands = resize_bands(params);
    const uint32_t column = (uint32_t)(i % n_strips) * RESIZE_COLUMNS;
    const uint32_t row = (uint32_t)(i / n_strips % n_bands) * RESIZE_ROWS;
    const size_t record = i / n_strips / n_bands;
    const uint32_t end = resize_least(row + RESIZE_ROWS, params->out_height);
    const size_t out_pitch = (size_t)params->out_width * params->channels;
    uint8_t *out = GP_OUT(0, uint8_t) + record * out_pitch * params->out_height;
    struct resize_strip strip;

    resize_open(params, GP_IN(0, uint8_t) + record * params->height * params->pitch, column,
                &strip);
    GP_ROLLED
    for (uint32_t y = row; y < end; y++) {
        resize_write(&strip, y, out + y * out_pitch + (size_t)column * params->channels);
    }
}

#ifdef GP_HOST

#define RESIZE_SIDE_PARAM(member)                                                                  \
    {                                                                                              \
        .name = #member, .type = PARAM_U32, .offset = offsetof(struct resize_params, member),      \
        .is_required = 1, .i_min = 1, .i_max = RESIZE_SIDE                                         \
    }

static const struct manifest_op resize_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "resize",
    .doc =
        "an image of another width and height, as Pillow's resize() gives it; each channel for "
        "itself; box is the mean, bilinear a triangle as wide as two pixels of the smaller image",
    .n_in = 1,
    .n_out = 1,
    .n_params = 7,
    .params_size = sizeof(struct resize_params),
    .in = {{.name = "image",
            .dtype = DTYPE_U8,
            .n_dims = 2,
            .dims = {{.param = "height"}, {.param = "pitch"}}}},
    .out = {{.name = "out",
             .dtype = DTYPE_U8,
             .n_dims = 3,
             .dims = {{.param = "out_height"}, {.param = "out_width"}, {.param = "channels"}}}},
    .params = {RESIZE_SIDE_PARAM(width),
               RESIZE_SIDE_PARAM(height),
               {.name = "channels",
                .type = PARAM_U32,
                .offset = offsetof(struct resize_params, channels),
                .i_default = 3,
                .i_min = 1,
                .i_max = RESIZE_CHANNELS},
               {.name = "pitch",
                .type = PARAM_U32,
                .offset = offsetof(struct resize_params, pitch),
                .i_default = 1, /* raised to a row */
                .i_min = 1,
                .i_max = 2 * RESIZE_SIDE * RESIZE_CHANNELS,
                .n_at_least = 2,
                .at_least = {"width", "channels"}},
               RESIZE_SIDE_PARAM(out_width),
               RESIZE_SIDE_PARAM(out_height),
               {.name = "filter",
                .type = PARAM_CHOICE,
                .offset = offsetof(struct resize_params, filter),
                .i_default = RESAMPLE_BILINEAR,
                .n_choices = 3,
                .choices = {"nearest", "box", "bilinear"}}},
    .min_parallel = 1,
};

GP_CODE(resize, .map = resize_map);

#endif
