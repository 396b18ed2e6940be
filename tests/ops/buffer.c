/*
 * Buffer: see buffer.h.  The list of buffers lets a test that fails half way be cleaned up.
 */
#include "tests/ops/buffer.h"

#include "proto/util.h"
#include "tests/check.h"

#include <sys/mman.h>

#define GUARD_SIZE 64
#define POISON     0xa5

struct buffer {
    struct buffer *next;
    uint8_t *mapping;
    size_t mapping_size;
    uint8_t *bytes;
};

static struct buffer *buffers;
static bool is_undo_registered;

static uint64_t random_seed(void)
{
    const char *text = getenv("GPUPIPE_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : now_ns() ^ (uint64_t)getpid() << 40;

    printf("# GPUPIPE_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* splitmix64 */
uint64_t random_u64(void)
{
    static uint64_t state;
    static bool is_seeded;
    uint64_t x;

    if (!is_seeded) {
        state = random_seed();
        is_seeded = true;
    }
    x = state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint32_t random_below(uint32_t n)
{
    return (uint32_t)((random_u64() >> 32) * n >> 32);
}

void random_fill(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t x = random_u64();

        memcpy((uint8_t *)bytes + i, &x, MIN(size - i, sizeof(x)));
    }
}

static void undo_buffers(void *arg)
{
    (void)arg;
    buffer_free_all();
    is_undo_registered = false;
}

void *buffer_create(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = div_round_up(GUARD_SIZE + size, page) * page;
    struct buffer *buffer = malloc(sizeof(*buffer));

    CHECK(buffer != NULL);
    buffer->mapping_size = used + page;
    buffer->mapping =
        mmap(NULL, used + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer->mapping != MAP_FAILED);
    CHECK_EQ(mprotect(buffer->mapping + used, page, PROT_NONE), 0);
    memset(buffer->mapping, POISON, used);
    buffer->bytes = buffer->mapping + used - size;
    if (!is_undo_registered) {
        check_at_end(undo_buffers, NULL);
        is_undo_registered = true;
    }
    buffer->next = buffers;
    buffers = buffer;
    return buffer->bytes;
}

void buffer_free_all(void)
{
    while (buffers != NULL) {
        struct buffer *next = buffers->next;

        munmap(buffers->mapping, buffers->mapping_size);
        free(buffers);
        buffers = next;
    }
}

void buffer_check_guards(void)
{
    for (const struct buffer *buffer = buffers; buffer != NULL; buffer = buffer->next) {
        for (size_t i = 1; i <= GUARD_SIZE; i++) {
            CHECK_EQ(buffer->bytes[-(ptrdiff_t)i], POISON);
        }
    }
}

void table_create(struct table *ret_table, uint32_t n_records, uint32_t max_chunks,
                  const uint32_t *in_sizes, uint32_t n_in, uint32_t out_size)
{
    uint32_t left = n_records;

    memset(ret_table, 0, sizeof(*ret_table));
    ret_table->n_chunks = 1 + random_below(MIN(max_chunks, 64u));
    for (uint32_t c = 0; c < ret_table->n_chunks; c++) {
        struct op_chunk *chunk = &ret_table->chunks[c];
        const bool is_last = c == ret_table->n_chunks - 1;

        chunk->n_records = is_last ? left : random_below(left + 1);
        left -= chunk->n_records;
        for (uint32_t k = 0; k < n_in; k++) {
            const size_t size = (size_t)chunk->n_records * in_sizes[k];
            void *bytes = buffer_create(size);

            random_fill(bytes, size);
            chunk->in[k] = bytes;
        }
        chunk->out[0] = buffer_create((size_t)chunk->n_records * out_size);
    }
}
