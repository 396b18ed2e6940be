/*
 * saxpy, bit for bit against binary128 arithmetic, which the compiler's library does in integers.
 * With its 113 bits the product of two f32 is exact and a sum rounded there and once more to f32 is
 * the sum rounded to f32.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"

#include <math.h>

#ifdef __SIZEOF_FLOAT128__
typedef __float128 binary128;
#else
typedef long double binary128;
#endif

extern const struct op_code op_saxpy;

static const uint32_t in_sizes[] = {sizeof(float), sizeof(float)};

static float reference(float a, float x, float y)
{
    const float product = (float)((binary128)a * (binary128)x);

    return (float)((binary128)product + (binary128)y);
}

static void check_float(float result, float expected)
{
    uint32_t result_bits, expected_bits;

    memcpy(&result_bits, &result, sizeof(result));
    memcpy(&expected_bits, &expected, sizeof(expected));
    if (isnan(expected)) {
        CHECK(isnan(result));
    } else {
        CHECK_EQ(result_bits, expected_bits);
    }
}

static void check_saxpy(float a, const struct table *table)
{
    op_saxpy.map(&a, table->chunks, table->n_chunks);
    for (uint32_t c = 0; c < table->n_chunks; c++) {
        const struct op_chunk *chunk = &table->chunks[c];
        const float *x = chunk->in[0], *y = chunk->in[1], *out = chunk->out[0];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            check_float(out[i], reference(a, x[i], y[i]));
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

/* Random bits: every exponent, subnormals, infinities and NaNs among them. */
static void test_random_bits(void)
{
    static const uint32_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1000, 65537};

    for (uint32_t n = 0; n < ARRAY_SIZE(counts); n++) {
        struct table table;
        float a;

        random_fill(&a, sizeof(a));
        table_create(&table, counts[n], 1 + n, in_sizes, 2, sizeof(float));
        check_saxpy(a, &table);
    }
}

/* Numbers of like size, where the second rounding sees cancellation. */
static void test_like_sizes(void)
{
    struct table table;

    table_create(&table, 20000, 8, in_sizes, 2, sizeof(float));
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        for (uint32_t k = 0; k < 2; k++) {
            float *x = (float *)table.chunks[c].in[k];

            for (uint32_t i = 0; i < table.chunks[c].n_records; i++) {
                x[i] = (float)((int32_t)random_u64()) / 0x1p31f;
            }
        }
    }
    check_saxpy(-0.7f, &table);
}

static void test_specials(void)
{
    static const float specials[] = {
        0,         -0.0f,    1,         -1,  0x1p-149f,       -0x1p-149f,
        0x1p-126f, INFINITY, -INFINITY, NAN, 0x1.fffffep127f, 0x1p-75f,
        0x1p75f};
    enum { N = ARRAY_SIZE(specials) };

    for (uint32_t k = 0; k < N; k++) {
        struct table table;

        table_create(&table, N * N, 1, in_sizes, 2, sizeof(float));
        for (uint32_t i = 0; i < N * N; i++) {
            ((float *)table.chunks[0].in[0])[i] = specials[i / N];
            ((float *)table.chunks[0].in[1])[i] = specials[i % N];
        }
        check_saxpy(specials[k], &table);
    }
}

/* (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 if the product is not rounded first. */
static void test_nothing_is_fused(void)
{
    struct table table;

    table_create(&table, 64, 1, in_sizes, 2, sizeof(float));
    for (uint32_t i = 0; i < 64; i++) {
        ((float *)table.chunks[0].in[0])[i] = 1 + 0x1p-12f;
        ((float *)table.chunks[0].in[1])[i] = -(1 + 0x1p-11f);
    }
    op_saxpy.map(&(float){1 + 0x1p-12f}, table.chunks, 1);
    for (uint32_t i = 0; i < 64; i++) {
        check_float(((const float *)table.chunks[0].out[0])[i], 0);
    }
}

CHECK_MAIN(CHECK_TEST(test_random_bits), CHECK_TEST(test_like_sizes), CHECK_TEST(test_specials),
           CHECK_TEST(test_nothing_is_fused))
