/* copy, against memcmp(). */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"

extern const struct op_code op_copy;

static void check_copy(uint32_t size, uint32_t n_records, uint32_t max_chunks)
{
    struct table table;

    table_create(&table, n_records, max_chunks, &size, 1, size);
    op_copy.map(&size, table.chunks, table.n_chunks);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        const struct op_chunk *chunk = &table.chunks[c];

        CHECK_MEM(chunk->out[0], chunk->in[0], (size_t)chunk->n_records * size);
    }
    buffer_check_guards();
    buffer_free_all();
}

static void test_every_size(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 16, 33, 4096, 4097};
    static const uint32_t counts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 255};

    for (uint32_t s = 0; s < ARRAY_SIZE(sizes); s++) {
        for (uint32_t n = 0; n < ARRAY_SIZE(counts); n++) {
            check_copy(sizes[s], counts[n], 1);
            check_copy(sizes[s], counts[n], 8);
        }
    }
}

static void test_the_largest_record(void)
{
    check_copy(LIMIT_RECORD, 1, 1);
}

static void test_no_chunks(void)
{
    const uint32_t size = 1;

    op_copy.map(&size, NULL, 0);
}

/* Wherever both arrays begin, and with any number of bytes: those and no others. */
static void test_every_alignment(void)
{
    const uint32_t size = 1, most = 70, n_alignments = 16;
    const size_t room = most + 2 * n_alignments;
    uint8_t *in = buffer_create(room), *out = buffer_create(room), *expected = buffer_create(room);

    for (uint32_t n = 0; n <= most; n++) {
        for (uint32_t i = 0; i < n_alignments * n_alignments; i++) {
            const uint32_t to = i / n_alignments;
            const struct op_chunk chunk = {
                .in = {in + i % n_alignments}, .out = {out + to}, .n_records = n};

            random_fill(in, room);
            random_fill(out, room);
            memcpy(expected, out, room);
            memcpy(expected + to, chunk.in[0], n);
            op_copy.map(&size, &chunk, 1);
            CHECK_MEM(out, expected, room);
        }
    }
    buffer_free_all();
}

CHECK_MAIN(CHECK_TEST(test_every_size), CHECK_TEST(test_every_alignment),
           CHECK_TEST(test_the_largest_record), CHECK_TEST(test_no_chunks))
