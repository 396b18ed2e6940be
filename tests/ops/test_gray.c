/*
 * gray, against a reference of its own making: the distance to the exact weighted mean, which an
 * integer that is rounded half up keeps within half a step, and known answers.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"

extern const struct op_code op_gray;

static const uint32_t in_sizes[] = {3};

/* y is mean rounded half up exactly if mean - 1/2 < y <= mean + 1/2, here in 256ths. */
static void check_pixel(const uint8_t rgb[3], uint8_t y)
{
    const int mean = 77 * rgb[0] + 150 * rgb[1] + 29 * rgb[2];

    CHECK_LT(mean - 128, 256 * y);
    CHECK_LE(256 * y, mean + 128);
}

static void check_table(const struct table *table)
{
    op_gray.map(NULL, table->chunks, table->n_chunks);
    for (uint32_t c = 0; c < table->n_chunks; c++) {
        const struct op_chunk *chunk = &table->chunks[c];
        const uint8_t *rgb = chunk->in[0], *y = chunk->out[0];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            check_pixel(rgb + 3 * i, y[i]);
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

static void test_random_pixels(void)
{
    static const uint32_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1000, 65537};

    for (uint32_t n = 0; n < ARRAY_SIZE(counts); n++) {
        struct table table;

        table_create(&table, counts[n], 1 + n, in_sizes, 1, 1);
        check_table(&table);
    }
}

/* One colour beside nothing, at every strength. */
static void test_every_strength(void)
{
    struct table table;
    uint8_t *rgb;

    table_create(&table, 3 * 256, 1, in_sizes, 1, 1);
    rgb = (uint8_t *)table.chunks[0].in[0];
    memset(rgb, 0, (size_t)3 * 3 * 256);
    for (uint32_t i = 0; i < 3 * 256; i++) {
        rgb[3 * i + i % 3] = (uint8_t)(i / 3);
    }
    check_table(&table);
}

/* Worked out by hand. */
static void test_known_answers(void)
{
    static const struct {
        uint8_t rgb[3], y;
    } rows[] = {
        {{0, 0, 0}, 0},     {{255, 255, 255}, 255}, {{128, 128, 128}, 128}, {{255, 0, 0}, 77},
        {{0, 255, 0}, 149}, {{0, 0, 255}, 29},      {{1, 2, 3}, 2},         {{200, 100, 50}, 124},
    };

    for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t y = 0xa5;
        const struct op_chunk chunk = {.in = {rows[i].rgb}, .out = {&y}, .n_records = 1};

        op_gray.map(NULL, &chunk, 1);
        CHECK_EQ(y, rows[i].y);
    }
}

CHECK_MAIN(CHECK_TEST(test_random_pixels), CHECK_TEST(test_every_strength),
           CHECK_TEST(test_known_answers))
