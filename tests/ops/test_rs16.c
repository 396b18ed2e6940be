/*
 * rs16, against multiplication by the book: the product of two polynomials, then long division by
 * the field's.  The field's tables of powers are checked against published ones, so that it is
 * PAR2's; what PAR2 makes of it is in tests/integration.  Every width of vector is tested.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/lanes.h"

extern const struct op_code op_rs16;

struct params {
    uint32_t k, m, n;
};

static uint16_t multiply(uint16_t a, uint16_t b)
{
    uint32_t product = 0;

    for (int bit = 0; bit < 16; bit++) {
        product ^= (b >> bit & 1) != 0 ? (uint32_t)a << bit : 0;
    }
    for (int bit = 30; bit >= 16; bit--) {
        product ^= (product >> bit & 1) != 0 ? (uint32_t)0x1100b << (bit - 16) : 0;
    }
    return (uint16_t)product;
}

/* 2 generates the field: only its power 65535 is 1 again, as the specification of PAR2 needs it. */
static void test_the_reference(void)
{
    uint16_t power = 1;

    for (uint32_t exponent = 1; exponent < 65535; exponent++) {
        power = multiply(power, 2);
        CHECK_NE(power, 1);
        if (exponent == 16) {
            CHECK_EQ(power, 0x100b);
        }
    }
    CHECK_EQ(multiply(power, 2), 1);
}

static void check_chunk(const struct params *params, const struct op_chunk *chunk)
{
    const size_t k = params->k, m = params->m, n = params->n;
    const uint16_t *in = chunk->in[0], *out = chunk->out[0], *matrix = chunk->consts[0];

    for (size_t row = 0; row < chunk->n_records * m; row++) {
        const uint16_t *slices = in + row / m * k * n;

        for (size_t i = 0; i < n; i++) {
            uint16_t expected = 0;

            for (size_t l = 0; l < k; l++) {
                expected ^= multiply(matrix[row % m * k + l], slices[l * n + i]);
            }
            if (out[row * n + i] != expected) {
                CHECK_FAIL("k %zu, m %zu, n %zu: word %zu of row %zu is %04x, not %04x", k, m, n, i,
                           row, out[row * n + i], expected);
            }
        }
    }
}

static void check_records(map_function *map, struct params params, uint32_t n_records)
{
    const uint32_t in_size = 2 * params.k * params.n, out_size = 2 * params.m * params.n;
    const size_t matrix_size = (size_t)2 * params.m * params.k;
    uint16_t *matrix = buffer_create(matrix_size);
    struct table table;

    random_fill(matrix, matrix_size);
    table_create(&table, n_records, 3, &in_size, 1, out_size);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        table.chunks[c].consts[0] = matrix;
    }
    map(&params, table.chunks, table.n_chunks);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        check_chunk(&params, &table.chunks[c]);
    }
    buffer_check_guards();
    buffer_free_all();
}

/* Every shape around the groups of outputs and of slices; short slices. */
static void check_small(map_function *map)
{
    for (uint32_t k = 1; k <= 17; k++) {
        for (uint32_t m = 1; m <= 17; m++) {
            check_records(map, (struct params){k, m, 1 + random_below(40)}, random_below(4));
        }
    }
}

/* Slices of every length around those of vectors, half tiles and tiles. */
static void check_lengths(map_function *map)
{
    static const uint32_t lengths[] = {1,   15,  16,   17,   31,   32,   33,   127,  128,  129,
                                       255, 257, 1023, 1024, 1025, 1039, 2047, 2048, 2049, 5000};

    for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        check_records(map, (struct params){1 + random_below(4), 1 + random_below(9), lengths[i]},
                      1);
    }
}

/* Every constant times every bit: the words of slice 0 are the powers of x. */
static void check_all_constants(map_function *map)
{
    const struct params params = {1, 32768, 16};
    uint16_t *in = buffer_create(32), *matrix = buffer_create(65536);
    struct op_chunk chunk = {
        .in = {in}, .out = {buffer_create(1 << 20)}, .consts = {matrix}, .n_records = 1};

    for (uint32_t bit = 0; bit < 16; bit++) {
        in[bit] = (uint16_t)(1 << bit);
    }
    for (uint32_t half = 0; half < 65536; half += 32768) {
        for (uint32_t j = 0; j < params.m; j++) {
            matrix[j] = (uint16_t)(half + j);
        }
        map(&params, &chunk, 1);
        check_chunk(&params, &chunk);
    }
    buffer_check_guards();
    buffer_free_all();
}

static void check_large(map_function *map)
{
    check_records(map, (struct params){2, 1, 300001}, 1);
    check_records(map, (struct params){32768, 2, 3}, 1);
    check_records(map, (struct params){300, 9, 1030}, 1);
}

static void check_map(map_function *map)
{
    check_small(map);
    check_lengths(map);
    check_all_constants(map);
    check_large(map);
}

LANES_TESTS(op_rs16, check_map)

static void test_the_width_that_is_picked(void)
{
    check_map(op_rs16.map);
}

CHECK_MAIN(CHECK_TEST(test_the_reference), CHECK_TEST(test_4_lanes), CHECK_TEST(test_8_lanes),
           CHECK_TEST(test_16_lanes), CHECK_TEST(test_the_width_that_is_picked))
