/*
 * resize, against Pillow, to the bit, and against a reference of its own: sums over whole windows
 * in long doubles, with weights from whole numbers.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/pillow.h"

#include <math.h>

enum filter { NEAREST, BOX, BILINEAR, N_FILTERS };

extern const struct op_code op_resize;

static const char *const filters[N_FILTERS] = {"nearest", "box", "bilinear"};

/* As packed for the op. */
struct shape {
    uint32_t width, height, channels, pitch, out_width, out_height;
    uint32_t filter;
};

/* ---- reference ------------------------------------------------------------------------------ */

/*
 * The weight of pixel k in pixel i, times any number, when n become n_out.  All in units of half a
 * pixel over n_out (the larger of both, where the filter is widened): 2 (k - center) + 1 pixels
 * become `distance`, of which a filter's half width is `reach`.
 */
static int64_t weight(enum filter filter, int64_t n, int64_t n_out, int64_t i, int64_t k)
{
    const int64_t distance = (2 * k + 1) * n_out - (2 * i + 1) * n, reach = MAX(n, n_out);

    switch (filter) {
    case NEAREST: /* the center of pixel i within pixel k, its left end included */
        return -distance >= -n_out && -distance < n_out;
    case BOX:
        return distance > -reach && distance <= reach;
    default:
        return MAX(2 * reach - llabs(distance), INT64_C(0));
    }
}

/* Pixels that lie `step` bytes apart, resized to as many others. */
static void resize_line(enum filter filter, const uint8_t *in, size_t in_step, uint32_t n,
                        uint8_t *ret_out, size_t out_step, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        int64_t total = 0, sum = INT64_C(1) << 21;

        for (uint32_t k = 0; k < n; k++) {
            total += weight(filter, n, n_out, i, k);
        }
        for (uint32_t k = 0; k < n; k++) {
            const int64_t part = weight(filter, n, n_out, i, k);

            if (part > 0) {
                sum += in[k * in_step] *
                       (int64_t)floorl((long double)part / (long double)total * 0x1p22L + 0.5L);
            }
        }
        ret_out[i * out_step] = (uint8_t)MIN(sum >> 22, INT64_C(255));
    }
}

static void resize_image(const struct shape *shape, const uint8_t *in, uint8_t *ret_out)
{
    const size_t row = (size_t)shape->out_width * shape->channels;
    uint8_t *between = buffer_create(row * shape->height);

    for (uint32_t y = 0; y < shape->height; y++) {
        for (uint32_t channel = 0; channel < shape->channels; channel++) {
            resize_line(shape->filter, in + (size_t)y * shape->pitch + channel, shape->channels,
                        shape->width, between + y * row + channel, shape->channels,
                        shape->out_width);
        }
    }
    for (size_t x = 0; x < row; x++) {
        resize_line(shape->filter, between + x, row, shape->height, ret_out + x, row,
                    shape->out_height);
    }
}

/* ---- shapes --------------------------------------------------------------------------------- */

static struct shape random_shape(enum filter filter, uint32_t most)
{
    struct shape shape = {
        .width = 1 + random_below(most),
        .height = 1 + random_below(most),
        .channels = 1 + random_below(4),
        .out_width = 1 + random_below(most),
        .out_height = 1 + random_below(most),
        .filter = filter,
    };

    shape.pitch = shape.width * shape.channels + random_below(3) * random_below(9);
    return shape;
}

/* More weights and rows than are kept, in each direction. */
static const struct shape large_shapes[] = {
    {3000, 3, 3, 9001, 17, 5, BOX},     {3000, 3, 1, 3000, 9, 2, BILINEAR},
    {2, 3000, 4, 8, 3, 7, BOX},         {2, 3000, 3, 6, 1, 2, BILINEAR},
    {640, 480, 3, 1920, 1, 1, BOX},     {640, 480, 3, 1920, 1, 1, BILINEAR},
    {640, 480, 3, 2000, 3, 2, NEAREST}, {8192, 1, 1, 8192, 1000, 1, BILINEAR},
    {1, 1, 4, 4, 300, 200, BILINEAR},   {3, 2, 1, 5, 300, 200, BILINEAR},
    {100, 60, 3, 301, 99, 61, BOX},     {100, 60, 3, 301, 99, 61, BILINEAR},
};

static size_t in_size(const struct shape *shape)
{
    return (size_t)shape->pitch * shape->height;
}

static size_t out_size(const struct shape *shape)
{
    return (size_t)shape->out_width * shape->out_height * shape->channels;
}

typedef void check_function(const struct shape *shape, const uint8_t *in, const uint8_t *out);

static void check_images(const struct shape *shape, uint32_t n_images, check_function *check)
{
    const uint32_t in_sizes[] = {(uint32_t)in_size(shape)};
    struct table table;

    table_create(&table, n_images, 3, in_sizes, 1, (uint32_t)out_size(shape));
    op_resize.map(shape, table.chunks, table.n_chunks);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        const struct op_chunk *chunk = &table.chunks[c];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            check(shape, (const uint8_t *)chunk->in[0] + i * in_size(shape),
                  (const uint8_t *)chunk->out[0] + i * out_size(shape));
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

static void check_shapes(check_function *check)
{
    for (uint32_t round = 0; round < 150; round++) {
        const struct shape shape = random_shape(round % N_FILTERS, round < 100 ? 20 : 70);

        check_images(&shape, random_below(4), check);
    }
    for (uint32_t k = 0; k < ARRAY_SIZE(large_shapes); k++) {
        check_images(&large_shapes[k], 1, check);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

/*
 * Does a border between pixels of the result (box), or a center of one (nearest), lie where the
 * choice hangs on how a double was rounded?
 */
static bool has_tie(enum filter filter, uint32_t n, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        const uint32_t border = (2 * i + 2) * n, center = (2 * i + 1) * n;

        if (filter == BOX && n > n_out ? border % n_out == 0 && border / n_out % 2 == 1
                                       : center % (2 * n_out) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_certain(const struct shape *shape)
{
    return !has_tie(shape->filter, shape->width, shape->out_width) &&
           !has_tie(shape->filter, shape->height, shape->out_height);
}

/* The op takes doubles for box, as Pillow does. */
static void check_by_reference(const struct shape *shape, const uint8_t *in, const uint8_t *out)
{
    uint8_t *want = buffer_create(out_size(shape));

    if (shape->filter != BOX || is_certain(shape)) {
        resize_image(shape, in, want);
        CHECK_MEM(out, want, out_size(shape));
    }
}

static void test_reference(void)
{
    check_shapes(check_by_reference);
}

/* The op takes whole numbers for nearest, where Pillow adds up doubles. */
static void check_by_pillow(const struct shape *shape, const uint8_t *in, const uint8_t *out)
{
    const struct pillow_image image = {in, shape->width, shape->height, shape->channels,
                                       shape->pitch};
    uint8_t *want = buffer_create(out_size(shape));

    if (shape->channels != 2 && (shape->filter != NEAREST || is_certain(shape))) {
        pillow_resize(&image, shape->out_width, shape->out_height, filters[shape->filter], want);
        CHECK_MEM(out, want, out_size(shape));
    }
}

static void test_pillow(void)
{
    pillow_start();
    check_shapes(check_by_pillow);
}

/* The same pixels at the same size; a mean; a ramp between two. */
static void test_known_answers(void)
{
    static const uint8_t in[6] = {10, 20, 30, 40, 50, 63};
    static const struct {
        struct shape shape;
        uint8_t out[6];
    } rows[] = {
        {{6, 1, 1, 6, 6, 1, NEAREST}, {10, 20, 30, 40, 50, 63}},
        {{6, 1, 1, 6, 6, 1, BOX}, {10, 20, 30, 40, 50, 63}},
        {{6, 1, 1, 6, 6, 1, BILINEAR}, {10, 20, 30, 40, 50, 63}},
        {{6, 1, 1, 6, 3, 1, BOX}, {15, 35, 57}},
        {{6, 1, 1, 6, 3, 1, NEAREST}, {20, 40, 63}},
        {{2, 3, 1, 2, 1, 3, BOX}, {15, 35, 57}},
        {{1, 6, 1, 1, 1, 2, BOX}, {20, 51}},
        {{2, 1, 3, 6, 1, 1, BOX}, {25, 35, 47}},
        {{2, 1, 1, 2, 4, 1, BILINEAR}, {10, 13, 18, 20}},
        {{2, 1, 1, 2, 4, 1, NEAREST}, {10, 10, 20, 20}},
    };

    for (uint32_t k = 0; k < ARRAY_SIZE(rows); k++) {
        const size_t size = out_size(&rows[k].shape);
        uint8_t *out = buffer_create(size);
        const struct op_chunk chunk = {.in = {in}, .out = {out}, .n_records = 1};

        op_resize.map(&rows[k].shape, &chunk, 1);
        CHECK_MEM(out, rows[k].out, size);
    }
}

CHECK_MAIN(CHECK_TEST(test_known_answers), CHECK_TEST(test_reference), CHECK_TEST(test_pillow))
