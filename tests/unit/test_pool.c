/* The pool's buddy allocator: leases never overlap, lie in their segment, and come back whole. */
#include "daemon/pool.h"
#include "daemon/segments.h"
#include "tests/check.h"
#include "tests/random.h"

#define MIB ((size_t)1 << 20)

static void destroy(void *pool)
{
    pool_destroy(pool);
}

static void destroy_segments(void *segments)
{
    segments_destroy(segments);
}

static struct segments *make_segments(void)
{
    struct segments *segments;

    CHECK_EQ(segments_create(&segments), 0);
    check_at_end(destroy_segments, segments);
    return segments;
}

static struct pool *make(size_t size)
{
    struct pool *pool;
    struct failure failure;

    CHECK_EQ(pool_create(size, make_segments(), &pool, &failure), 0);
    check_at_end(destroy, pool);
    return pool;
}

static void test_sizes_are_rounded_to_powers_of_two(void)
{
    static const struct {
        size_t size, rounded;
    } cases[] = {{1, 4096},          {4096, 4096},           {4097, 8192},
                 {3 * MIB, 4 * MIB}, {4 * MIB + 1, 8 * MIB}, {16 * MIB, 16 * MIB}};
    struct pool *pool = make(16 * MIB);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct block block;

        CHECK_EQ(pool_rounded(cases[i].size), cases[i].rounded);
        CHECK_EQ(pool_lease(pool, cases[i].size, &block), 0);
        CHECK_EQ(block.size, cases[i].rounded);
        CHECK_EQ(pool_used(pool), cases[i].rounded);
        pool_release(pool, &block);
        CHECK(block.base == NULL);
        CHECK_EQ(pool_used(pool), 0);
    }
}

static void test_a_pool_is_whole_segments(void)
{
    struct segments *segments = make_segments();
    struct pool *pool;
    struct failure failure;

    CHECK_EQ(pool_create(33 * MIB, segments, &pool, &failure), 0);
    check_at_end(destroy, pool);
    CHECK_EQ(pool_size(pool), 48 * MIB);
    for (uint32_t id = 0; id < 3; id++) {
        CHECK_EQ(segments_size(segments, id), POOL_SEGMENT_SIZE);
    }
    CHECK_EQ(segments_size(segments, 3), 0);
}

static void test_a_full_pool_says_so(void)
{
    struct pool *pool = make(32 * MIB);
    struct block blocks[3];

    CHECK_EQ(pool_lease(pool, 16 * MIB, &blocks[0]), 0);
    CHECK_EQ(pool_lease(pool, 9 * MIB, &blocks[1]), 0);
    CHECK_EQ(pool_lease(pool, 1, &blocks[2]), -ENOMEM);
    pool_release(pool, &blocks[0]);
    CHECK_EQ(pool_lease(pool, 16 * MIB, &blocks[0]), 0);
    pool_release(pool, &blocks[0]);
    pool_release(pool, &blocks[1]);
}

static void test_too_large_a_pool_is_a_clear_error(void)
{
    struct pool *pool;
    struct failure failure;

    CHECK_EQ(pool_create((size_t)1 << 45, make_segments(), &pool, &failure), -STATUS_NO_MEMORY);
    CHECK_HAS(failure.message, "--pinned-pool");
}

/* Each lease is filled with a mark of its own and must still hold it when it is given back. */
static void test_leases_never_overlap(void)
{
    enum { N_BLOCKS = 200, N_STEPS = 20000 };
    struct pool *pool = make(48 * MIB);
    struct block blocks[N_BLOCKS] = {0};
    struct block whole;

    for (unsigned i = 0; i < N_STEPS; i++) {
        struct block *block = &blocks[random_below(N_BLOCKS)];

        if (block->base == NULL) {
            size_t size = (size_t)1 << random_below(25);
            size -= random_below(size);

            if (pool_lease(pool, size, block) == 0) {
                CHECK_GE(block->size, size);
                CHECK_LE((size_t)block->offset + block->size, POOL_SEGMENT_SIZE);
                CHECK_EQ(block->offset % block->size, 0);
                /* the first and last words are enough: a neighbour begins or ends with its own */
                *(uint64_t *)block->base = (uintptr_t)block;
                *(uint64_t *)(block->base + block->size - 8) = (uintptr_t)block;
            }
        } else {
            CHECK_EQ(*(uint64_t *)block->base, (uintptr_t)block);
            CHECK_EQ(*(uint64_t *)(block->base + block->size - 8), (uintptr_t)block);
            pool_release(pool, block);
        }
    }
    for (unsigned i = 0; i < N_BLOCKS; i++) {
        pool_release(pool, &blocks[i]);
    }
    CHECK_EQ(pool_used(pool), 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(pool_lease(pool, POOL_SEGMENT_SIZE, &whole), 0); /* all buddies found each other */
    }
    CHECK_EQ(pool_lease(pool, 1, &whole), -ENOMEM);
}

CHECK_MAIN(CHECK_TEST(test_sizes_are_rounded_to_powers_of_two),
           CHECK_TEST(test_a_pool_is_whole_segments), CHECK_TEST(test_a_full_pool_says_so),
           CHECK_TEST(test_too_large_a_pool_is_a_clear_error),
           CHECK_TEST(test_leases_never_overlap))
