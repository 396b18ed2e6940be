/*
 * Pool: a buddy allocator over sealed memfds.
 *
 * Each segment has a complete binary tree over its 4 KiB units, stored as an array (children of
 * node i are 2i + 1 and 2i + 2).  A node holds 1 + the order of the largest free block below it, or
 * 0 for none; order 0 is POOL_BLOCK_MIN.  Leasing walks down to a node of the wanted order, and
 * both leasing and releasing mend the nodes above it.
 */
#include "daemon/pool.h"

#include "daemon/segments.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define TOP_ORDER 12 /* POOL_BLOCK_MIN << 12 is a segment */
#define N_NODES   ((2u << TOP_ORDER) - 1)
_Static_assert(POOL_BLOCK_MIN << TOP_ORDER == POOL_SEGMENT_SIZE, "the tree covers a segment");

struct segment {
    uint8_t *base;
    uint8_t largest[N_NODES];
};

struct pool {
    uint32_t n_segments;
    size_t used;
    struct segment segments[];
};

static unsigned order_of(size_t size)
{
    unsigned order = 0;

    while ((POOL_BLOCK_MIN << order) < size) {
        order++;
    }
    return order;
}

size_t pool_rounded(size_t size)
{
    return POOL_BLOCK_MIN << order_of(size);
}

static void tree_reset(struct segment *segment)
{
    unsigned order = TOP_ORDER;

    for (unsigned node = 0; node < N_NODES; node++) {
        segment->largest[node] = (uint8_t)(order + 1);
        if (((node + 2) & (node + 1)) == 0) { /* the last node of a level: 0, 2, 6, 14, ... */
            order--;
        }
    }
}

/*
 * Recompute the nodes above one that changed; children have the given order.  Above one that stays
 * as it was nothing changes: mostly that is not far.
 */
static void tree_mend(struct segment *segment, unsigned node, unsigned order)
{
    while (node > 0) {
        node = (node - 1) / 2;
        order++;
        uint8_t left = segment->largest[2 * node + 1];
        uint8_t right = segment->largest[2 * node + 2];
        /* Two wholly free children (value = their order + 1) are one free block of this order. */
        uint8_t largest = left == order && right == order ? (uint8_t)(order + 1) : MAX(left, right);

        if (segment->largest[node] == largest) {
            return;
        }
        segment->largest[node] = largest;
    }
}

/* Take a free block of this order; the segment has one.  Returns its offset. */
static uint32_t tree_take(struct segment *segment, unsigned wanted)
{
    unsigned node = 0;

    for (unsigned order = TOP_ORDER; order > wanted; order--) {
        node = 2 * node + 1;
        if (segment->largest[node] <= wanted) {
            node++;
        }
    }
    assert(segment->largest[node] == wanted + 1);
    segment->largest[node] = 0;
    tree_mend(segment, node, wanted);
    unsigned first = (1u << (TOP_ORDER - wanted)) - 1;
    return (uint32_t)((node - first) * (POOL_BLOCK_MIN << wanted));
}

static void tree_give(struct segment *segment, uint32_t offset, unsigned order)
{
    unsigned first = (1u << (TOP_ORDER - order)) - 1;
    unsigned node = first + (unsigned)(offset / (POOL_BLOCK_MIN << order));

    assert(segment->largest[node] == 0);
    segment->largest[node] = (uint8_t)(order + 1);
    tree_mend(segment, node, order);
}

static int segment_init(struct segment *segment, uint32_t number, struct segments *segments,
                        struct failure *ret_failure)
{
    _cleanup_(close_fd) int fd = shm_create("gpupipe-segment", POOL_SEGMENT_SIZE);
    void *base;
    int r = fd < 0 ? fd : shm_map(fd, POOL_SEGMENT_SIZE, &base);
    uint32_t id;

    if (r == 0) {
        r = segments_add(segments, fd, POOL_SEGMENT_SIZE, NULL, &id);
        if (r < 0) {
            shm_unmap(base, POOL_SEGMENT_SIZE);
        }
    }
    if (r < 0) {
        return fail(ret_failure, STATUS_NO_MEMORY, "pinned-pool",
                    "no memory for the pool: %s; choose a smaller --pinned-pool", strerror(-r));
    }
    steal_fd(&fd);
    assert(id == number);
    segment->base = base;
    tree_reset(segment);
    return 0;
}

int pool_create(size_t size, struct segments *segments, struct pool **ret_pool,
                struct failure *ret_failure)
{
    uint32_t n = (uint32_t)div_round_up(size, POOL_SEGMENT_SIZE);
    size_t available = shm_available();

    /* Asked first: allocating until it fails would have the OOM killer end somebody else. */
    if (size > available) {
        return fail(ret_failure, STATUS_NO_MEMORY, "pinned-pool",
                    "the machine has %zu MiB left, less than the pool of %zu MiB; choose a smaller "
                    "--pinned-pool",
                    available >> 20, size >> 20);
    }
    struct pool *pool = calloc(1, sizeof(*pool) + n * sizeof(pool->segments[0]));

    if (pool == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, "pinned-pool", "no memory for the pool");
    }
    for (; pool->n_segments < n; pool->n_segments++) {
        int r = segment_init(&pool->segments[pool->n_segments], pool->n_segments, segments,
                             ret_failure);
        if (r < 0) {
            pool_destroy(pool);
            return r;
        }
    }
    *ret_pool = pool;
    return 0;
}

void pool_destroy(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pool->n_segments; i++) {
        shm_unmap(pool->segments[i].base, POOL_SEGMENT_SIZE);
    }
    free(pool);
}

int pool_lease(struct pool *pool, size_t size, struct block *ret_block)
{
    assert(size > 0 && size <= POOL_SEGMENT_SIZE);
    unsigned order = order_of(size);

    for (uint32_t i = 0; i < pool->n_segments; i++) {
        struct segment *segment = &pool->segments[i];

        if (segment->largest[0] > order) {
            uint32_t offset = tree_take(segment, order);

            *ret_block = (struct block){
                .base = segment->base + offset,
                .segment = i,
                .offset = offset,
                .size = (uint32_t)(POOL_BLOCK_MIN << order),
            };
            pool->used += ret_block->size;
            return 0;
        }
    }
    return -ENOMEM;
}

void pool_release(struct pool *pool, struct block *block)
{
    if (block->base == NULL) {
        return;
    }
    tree_give(&pool->segments[block->segment], block->offset, order_of(block->size));
    pool->used -= block->size;
    *block = (struct block){0};
}

size_t pool_size(const struct pool *pool)
{
    return pool->n_segments * POOL_SEGMENT_SIZE;
}

size_t pool_used(const struct pool *pool)
{
    return pool->used;
}
