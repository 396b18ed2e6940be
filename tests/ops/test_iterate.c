/*
 * iterate, bit for bit against f64 arithmetic: half of an f32 and one more, and the sum of two f32,
 * rounded to f64 and then to f32, are what they are when rounded to f32 at once.  (The 53 bits of
 * an f64 are more than twice the 24 of an f32, and two to spare.)
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"

#include <math.h>

extern const struct op_code op_iterate;

static const uint32_t in_sizes[] = {sizeof(float)};

static float reference(float x, uint32_t n)
{
    float v = x;

    for (uint32_t k = 0; k < n; k++) {
        const float half = (float)ldexp((double)v, -1);

        v = (float)((double)half + 1.0);
    }
    return (float)((double)x + (double)v);
}

static void check_table(uint32_t n, const struct table *table)
{
    op_iterate.map(&n, table->chunks, table->n_chunks);
    for (uint32_t c = 0; c < table->n_chunks; c++) {
        const struct op_chunk *chunk = &table->chunks[c];
        const float *x = chunk->in[0], *out = chunk->out[0];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            const float expected = reference(x[i], n);

            if (memcmp(&out[i], &expected, sizeof(expected)) != 0 &&
                !(isnan(out[i]) && isnan(expected))) {
                CHECK_FAIL("n = %u of %a is %a, not %a", n, (double)x[i], (double)out[i],
                           (double)expected);
            }
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

/* Random bits: every exponent, subnormals, infinities and NaNs among them. */
static void test_random_bits(void)
{
    static const uint32_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1000};
    static const uint32_t turns[] = {0, 1, 2, 3, 10, 24, 100, 161};

    for (uint32_t n = 0; n < ARRAY_SIZE(counts); n++) {
        for (uint32_t k = 0; k < ARRAY_SIZE(turns); k++) {
            struct table table;

            table_create(&table, counts[n], 1 + n, in_sizes, 1, sizeof(float));
            check_table(turns[k], &table);
        }
    }
}

/* Numbers near 2, where v stays within a few roundings of where it began. */
static void test_near_two(void)
{
    for (uint32_t n = 0; n < 30; n++) {
        struct table table;

        table_create(&table, 1000, 8, in_sizes, 1, sizeof(float));
        for (uint32_t c = 0; c < table.n_chunks; c++) {
            for (uint32_t i = 0; i < table.chunks[c].n_records; i++) {
                ((float *)table.chunks[c].in[0])[i] =
                    2 + (float)(int32_t)random_u64() * ldexpf(1, -(int)(32 + random_below(20)));
            }
        }
        check_table(n, &table);
    }
}

/* The next half is subnormal and rounds: 3 * 2^-149 / 2 is 2 * 2^-149, to even. */
static void test_specials(void)
{
    static const float specials[] = {
        0,         -0.0f,           1,        -1,        2,   -2,      0x1p-149f, 0x3p-149f,
        0x1p-126f, 0x1.fffffep127f, INFINITY, -INFINITY, NAN, 0x1p24f, 0x1p25f,   -0x1.fffffep127f};
    struct table table;

    for (uint32_t n = 0; n < 4; n++) {
        table_create(&table, ARRAY_SIZE(specials), 1, in_sizes, 1, sizeof(float));
        memcpy((void *)table.chunks[0].in[0], specials, sizeof(specials));
        check_table(n, &table);
    }
}

/* Worked out by hand: 8 -> 5 -> 3.5 -> 2.75, and with x again 10.75. */
static void test_known_answer(void)
{
    const float x = 8;
    const uint32_t n = 3;
    float out = NAN;
    const struct op_chunk chunk = {.in = {&x}, .out = {&out}, .n_records = 1};

    op_iterate.map(&n, &chunk, 1);
    CHECK(out == 10.75f);
}

CHECK_MAIN(CHECK_TEST(test_random_bits), CHECK_TEST(test_near_two), CHECK_TEST(test_specials),
           CHECK_TEST(test_known_answer))
