/* sincos, against the functions of long double (sincos_reference.h). */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/sincos_reference.h"

extern const struct op_code op_sincos;

static const uint32_t in_sizes[] = {sizeof(float), sizeof(float)};

static void check_table(const struct table *table)
{
    op_sincos.map(NULL, table->chunks, table->n_chunks);
    for (uint32_t c = 0; c < table->n_chunks; c++) {
        const struct op_chunk *chunk = &table->chunks[c];
        const float *a = chunk->in[0], *b = chunk->in[1], *out = chunk->out[0];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            sincos_check(a[i], b[i], out[i]);
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

/* Random bits: every exponent, subnormals, infinities and NaNs among them. */
static void test_random_bits(void)
{
    static const uint32_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1000, 20001};

    for (uint32_t n = 0; n < ARRAY_SIZE(counts); n++) {
        struct table table;

        table_create(&table, counts[n], 1 + n, in_sizes, 2, sizeof(float));
        check_table(&table);
    }
}

/* A few turns of the circle. */
static void test_common_angles(void)
{
    struct table table;

    table_create(&table, 20000, 8, in_sizes, 2, sizeof(float));
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < table.chunks[c].n_records; i++) {
                ((float *)table.chunks[c].in[k])[i] = (float)(int32_t)random_u64() * 0x1p-26f;
            }
        }
    }
    check_table(&table);
}

/* sin(b - pi/2) is -cos(b): what is left is what rounding b - pi/2 to f32 has lost. */
static void test_sums_that_cancel(void)
{
    struct table table;

    table_create(&table, 20000, 8, in_sizes, 2, sizeof(float));
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        for (uint32_t i = 0; i < table.chunks[c].n_records; i++) {
            const float b = (float)(int32_t)random_u64() * 0x1p-28f;

            ((float *)table.chunks[c].in[1])[i] = b;
            ((float *)table.chunks[c].in[0])[i] = (float)((double)b - M_PI_2);
        }
    }
    check_table(&table);
}

/* Known without any computing. */
static void test_known_answers(void)
{
    static const struct {
        float a, b, out;
    } rows[] = {{0, 0, 1}, {-0.0f, 0, 1}, {0x1p-149f, 0, 1}, {0, -0x1p-149f, 1}};

    for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
        float out = NAN;
        const struct op_chunk chunk = {
            .in = {&rows[i].a, &rows[i].b}, .out = {&out}, .n_records = 1};

        op_sincos.map(NULL, &chunk, 1);
        CHECK(out == rows[i].out);
    }
}

CHECK_MAIN(CHECK_TEST(test_random_bits), CHECK_TEST(test_common_angles),
           CHECK_TEST(test_sums_that_cancel), CHECK_TEST(test_known_answers))
