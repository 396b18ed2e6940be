/*
 * sha256, against the examples of FIPS 180-4 and against sha256sum: each record is written to a
 * file of its own, and one call of sha256sum hashes them all.  Every width of vector is tested.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/lanes.h"

#define DIGEST_SIZE 32

extern const struct op_code op_sha256;

static void hex_of(const uint8_t *digest, char ret_hex[2 * DIGEST_SIZE + 1])
{
    for (uint32_t k = 0; k < DIGEST_SIZE; k++) {
        snprintf(ret_hex + 2 * k, 3, "%02x", digest[k]);
    }
}

static uint32_t record_size(const struct op_chunk *chunk, uint32_t i, uint32_t block)
{
    const bool is_short = i == chunk->n_records - 1 && chunk->tail_size != 0;

    return is_short ? chunk->tail_size : block;
}

static char folder[64];

static void remove_folder(void *arg)
{
    char command[128];

    (void)arg;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0) {
        printf("# left behind: %s\n", folder);
    }
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_op_sha256.XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    check_at_end(remove_folder, NULL);
}

static void write_record(uint32_t number, const void *bytes, uint32_t size)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%08u", folder, number);
    file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, size, file), size);
    CHECK_EQ(fclose(file), 0);
}

/* Compare all digests of the table with what sha256sum says of its records; frees all buffers. */
static void check_digests(const struct table *table, uint32_t block)
{
    char command[128], line[256], hex[2 * DIGEST_SIZE + 1];
    uint32_t number = 0;
    FILE *output;

    for (uint32_t c = 0; c < table->n_chunks; c++) {
        const struct op_chunk *chunk = &table->chunks[c];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            write_record(number++, (const uint8_t *)chunk->in[0] + (size_t)i * block,
                         record_size(chunk, i, block));
        }
    }
    snprintf(command, sizeof(command), "cd %s && ls | head -n %u | xargs -r sha256sum", folder,
             number);
    output = popen(command, "r");
    CHECK(output != NULL);
    for (uint32_t c = 0; c < table->n_chunks; c++) {
        for (uint32_t i = 0; i < table->chunks[c].n_records; i++) {
            CHECK(fgets(line, sizeof(line), output) != NULL);
            line[2 * DIGEST_SIZE] = '\0';
            hex_of((const uint8_t *)table->chunks[c].out[0] + (size_t)i * DIGEST_SIZE, hex);
            CHECK_STR(hex, line);
        }
    }
    CHECK_EQ(pclose(output), 0);
    buffer_check_guards();
    buffer_free_all();
}

/* Give the last record of a chunk this length; a byte behind it that is read crashes. */
static void shorten(struct op_chunk *chunk, uint32_t block, uint32_t tail_size)
{
    const size_t size = (size_t)(chunk->n_records - 1) * block + tail_size;
    uint8_t *bytes = buffer_create(size);

    random_fill(bytes, size);
    chunk->in[0] = bytes;
    chunk->tail_size = tail_size;
}

/* Chunks of any width, some with a short last record. */
static void check_random_tables(map_function *map)
{
    static const uint32_t blocks[] = {1,   3,   32,  55,  56,  57,   63,   64,   65,
                                      111, 119, 120, 128, 500, 4096, 4099, 20000};
    static const uint32_t widths[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 50};

    for (uint32_t b = 0; b < ARRAY_SIZE(blocks); b++) {
        const uint32_t n_records = widths[random_below(ARRAY_SIZE(widths))];
        struct table table;

        table_create(&table, n_records, 9, &blocks[b], 1, DIGEST_SIZE);
        for (uint32_t c = 0; c < table.n_chunks; c++) {
            if (table.chunks[c].n_records > 0 && random_below(2) == 0) {
                shorten(&table.chunks[c], blocks[b], 1 + random_below(blocks[b]));
            }
        }
        map(&blocks[b], table.chunks, table.n_chunks);
        check_digests(&table, blocks[b]);
    }
}

/* Every length up to three blocks, as the only record of a chunk, 64 chunks to a table. */
static void check_every_length(map_function *map)
{
    const uint32_t block = 192;

    for (uint32_t first = 1; first <= block; first += 64) {
        struct table table = {.n_chunks = 64};

        for (uint32_t c = 0; c < 64; c++) {
            table.chunks[c].n_records = 1;
            table.chunks[c].out[0] = buffer_create(DIGEST_SIZE);
            shorten(&table.chunks[c], block, first + c);
        }
        map(&block, table.chunks, table.n_chunks);
        check_digests(&table, block);
    }
}

/* One chunk of each width around those of the lanes, whole records only. */
static void check_every_width(map_function *map)
{
    const uint32_t block = 70;

    for (uint32_t n = 0; n <= 34; n++) {
        struct table table;

        table_create(&table, n, 1, &block, 1, DIGEST_SIZE);
        map(&block, table.chunks, table.n_chunks);
        check_digests(&table, block);
    }
}

static void check_known(map_function *map, const char *message, uint32_t size, const char *expected)
{
    char hex[2 * DIGEST_SIZE + 1];
    uint8_t *in = buffer_create(size), *out = buffer_create(DIGEST_SIZE);
    const struct op_chunk chunk = {.in = {in}, .out = {out}, .n_records = 1};

    memcpy(in, message, size);
    map(&size, &chunk, 1);
    hex_of(out, hex);
    CHECK_STR(hex, expected);
    buffer_check_guards();
}

static void check_known_answers(map_function *map)
{
    static char million[1000000];

    memset(million, 'a', sizeof(million));
    check_known(map, "abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_known(map, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_known(map,
                "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
                "klmnopqrlmnopqrsmnopqrstnopqrstu",
                112, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    check_known(map, million, sizeof(million),
                "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void check_map(map_function *map)
{
    make_folder();
    check_known_answers(map);
    check_every_width(map);
    check_every_length(map);
    check_random_tables(map);
}

LANES_TESTS(op_sha256, check_map)

static void test_the_width_that_is_picked(void)
{
    check_map(op_sha256.map);
}

static void test_the_largest_record(void)
{
    const uint32_t block = LIMIT_RECORD;
    struct table table;

    make_folder();
    table_create(&table, 1, 1, &block, 1, DIGEST_SIZE);
    op_sha256.map(&block, table.chunks, 1);
    check_digests(&table, block);
}

CHECK_MAIN(CHECK_TEST(test_4_lanes), CHECK_TEST(test_8_lanes), CHECK_TEST(test_16_lanes),
           CHECK_TEST(test_the_width_that_is_picked), CHECK_TEST(test_the_largest_record))
