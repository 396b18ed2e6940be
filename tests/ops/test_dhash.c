/*
 * dhash, against Pillow and Python, to the bit, and against a reference of its own that looks for
 * each pixel's place among 9 x 8.  How near it is to imagehash's own hash, of LANCZOS, is held for
 * images of soft shapes.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/pillow.h"

#include <math.h>

extern const struct op_code op_dhash;

/* As packed for the op. */
struct shape {
    uint32_t width, height, channels, pitch;
};

/* ---- reference ------------------------------------------------------------------------------ */

static uint32_t luma(const uint8_t *pixel, uint32_t channels)
{
    return channels < 3
               ? pixel[0]
               : (pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 32768u) / 65536u;
}

/* The mean of n values of this sum, by a share of one that is rounded to 2^-22, rounded. */
static uint32_t mean(uint64_t sum, uint32_t n)
{
    const uint64_t share = ((UINT64_C(1) << 23) / n + 1) / 2;

    return (uint32_t)((sum * share + (1u << 21)) >> 22);
}

/* Which of n_out parts of n pixels does pixel k belong to, its middle counting to the left part?
 * For n >= n_out. */
static uint32_t part(uint32_t k, uint32_t n, uint32_t n_out)
{
    uint32_t i = 0;

    while ((2 * k + 1) * n_out > 2 * n * (i + 1)) {
        i++;
    }
    return i;
}

static uint64_t hash_image(const struct shape *shape, const uint8_t *in)
{
    uint64_t down[9][8] = {{0}}, hash = 0;
    uint32_t n_rows[8] = {0};

    for (uint32_t y = 0; y < shape->height; y++) {
        uint64_t sums[9] = {0};
        uint32_t n[9] = {0}, row = part(y, shape->height, 8);

        for (uint32_t x = 0; x < shape->width; x++) {
            const uint8_t *pixel = in + (size_t)y * shape->pitch + (size_t)x * shape->channels;
            const uint32_t column = part(x, shape->width, 9);

            sums[column] += luma(pixel, shape->channels);
            n[column]++;
        }
        for (uint32_t column = 0; column < 9; column++) {
            down[column][row] += mean(sums[column], n[column]);
        }
        n_rows[row]++;
    }
    for (uint32_t bit = 0; bit < 64; bit++) {
        const uint32_t row = bit / 8, column = bit % 8;

        hash = hash << 1 |
               (mean(down[column + 1][row], n_rows[row]) > mean(down[column][row], n_rows[row]));
    }
    return hash;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct shape random_shape(uint32_t least_width, uint32_t least_height, uint32_t most)
{
    struct shape shape = {
        .width = least_width + random_below(most),
        .height = least_height + random_below(most),
        .channels = 1 + random_below(4),
    };

    shape.pitch = shape.width * shape.channels + random_below(3) * random_below(9);
    return shape;
}

typedef uint64_t hash_function(const struct shape *shape, const uint8_t *in);

static void check_images(const struct shape *shape, uint32_t n_images, hash_function *hash)
{
    const uint32_t in_sizes[] = {shape->pitch * shape->height};
    struct table table;

    table_create(&table, n_images, 3, in_sizes, 1, sizeof(uint64_t));
    op_dhash.map(shape, table.chunks, table.n_chunks);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        const struct op_chunk *chunk = &table.chunks[c];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            const uint64_t want = hash(shape, (const uint8_t *)chunk->in[0] + i * in_sizes[0]);

            CHECK_EQ(((const uint64_t *)chunk->out[0])[i], want);
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

static void test_reference(void)
{
    const struct shape large = {8192, 33, 3, 8192 * 3 + 1}, high = {40, 8192, 1, 41};

    for (uint32_t round = 0; round < 200; round++) {
        const struct shape shape = random_shape(9, 8, round < 150 ? 30 : 300);

        check_images(&shape, random_below(4), hash_image);
    }
    check_images(&large, 1, hash_image);
    check_images(&high, 1, hash_image);
}

static uint64_t hash_by_pillow(const struct shape *shape, const uint8_t *in)
{
    const struct pillow_image image = {in, shape->width, shape->height, shape->channels,
                                       shape->pitch};

    return pillow_dhash(&image, "box");
}

static void test_pillow(void)
{
    pillow_start();
    for (uint32_t round = 0; round < 200; round++) {
        const struct shape shape = random_shape(1, 1, 200);

        check_images(&shape, random_below(3), hash_by_pillow);
    }
}

/* All that have less than 9 x 8 pixels, and some more. */
static void test_small_images(void)
{
    pillow_start();
    for (uint32_t width = 1; width <= 20; width++) {
        for (uint32_t height = 1; height <= 18; height++) {
            const struct shape shape = {width, height, 1, width};

            check_images(&shape, 1, hash_by_pillow);
        }
    }
}

/* Waves of random length, direction and strength. */
static void fill_softly(uint8_t *bytes, uint32_t width, uint32_t height)
{
    double waves[5][4];

    for (uint32_t k = 0; k < ARRAY_SIZE(waves); k++) {
        for (uint32_t j = 0; j < 4; j++) {
            waves[k][j] = (double)random_below(1000) / 1000;
        }
    }
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            double value = 127;

            for (uint32_t k = 0; k < ARRAY_SIZE(waves); k++) {
                value += 25 * waves[k][0] *
                         sin(30 * waves[k][1] * x / width + 30 * waves[k][2] * y / height +
                             7 * waves[k][3]);
            }
            bytes[(size_t)y * width + x] = (uint8_t)value;
        }
    }
}

static void test_nearly_as_imagehash(void)
{
    const struct shape shape = {320, 240, 1, 320};
    uint8_t *in = buffer_create((size_t)320 * 240);
    uint32_t n_different = 0;

    pillow_start();
    for (uint32_t round = 0; round < 100; round++) {
        const struct pillow_image image = {in, 320, 240, 1, 320};
        uint64_t hash;
        const struct op_chunk chunk = {.in = {in}, .out = {&hash}, .n_records = 1};

        fill_softly(in, 320, 240);
        op_dhash.map(&shape, &chunk, 1);
        n_different += (uint32_t)__builtin_popcountll(hash ^ pillow_dhash(&image, "lanczos"));
    }
    printf("# %u of 6400 bits differ\n", n_different);
    CHECK_LE(n_different, 640u); /* 10 %; about 5 were seen */
}

/* It grows to the right in the upper half, to the left in the lower. */
static void test_known_answer(void)
{
    const struct shape shape = {18, 16, 1, 18};
    uint8_t *in = buffer_create((size_t)18 * 16);
    uint64_t hash = 0;
    const struct op_chunk chunk = {.in = {in}, .out = {&hash}, .n_records = 1};

    for (uint32_t y = 0; y < 16; y++) {
        for (uint32_t x = 0; x < 18; x++) {
            in[18 * y + x] = (uint8_t)(y < 8 ? 10 * x : 250 - 10 * x);
        }
    }
    in[18 * 15 + 17] = in[18 * 15 + 16] = 255;
    in[18 * 14 + 17] = in[18 * 14 + 16] = 255;
    op_dhash.map(&shape, &chunk, 1);
    CHECK_EQ(hash, UINT64_C(0xffffffff00000001));
}

CHECK_MAIN(CHECK_TEST(test_known_answer), CHECK_TEST(test_reference), CHECK_TEST(test_pillow),
           CHECK_TEST(test_small_images), CHECK_TEST(test_nearly_as_imagehash))
