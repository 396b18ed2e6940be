/*
 * Pool: the segments (sealed memfds of 16 MiB) that hold clients' data, leased out in blocks.
 *
 * A buddy allocator over each segment: blocks are powers of two from 4 KiB to a whole segment, so
 * an emptied segment is whole again whatever was leased from it, and no block crosses a segment.
 * All segments exist from the start: their pages are allocated, and workers map them, before the
 * first job.
 *
 * Segments of this pool receive what came through sockets and are never given to a client, so a
 * block may go from one user to the next: a lease is written before it is read, and only what was
 * written leaves the daemon.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

#define POOL_SEGMENT_SIZE ((size_t)16 << 20)
#define POOL_BLOCK_MIN    ((size_t)4 << 10)

struct pool;

/* A lease; base NULL = none. */
struct block {
    uint8_t *base;    /* in this process */
    uint32_t segment; /* where workers find it */
    uint32_t offset;
    uint32_t size; /* of the block: at least what was asked for */
};

struct segments;

/*
 * size is rounded up to whole segments, which are added to the table: segments, as the first in it,
 * so that both count them alike.  NO_MEMORY where the machine has less.
 */
int pool_create(size_t size, struct segments *segments, struct pool **ret_pool,
                struct failure *ret_failure);
void pool_destroy(struct pool *pool);

/* Lease size bytes, 0 < size <= POOL_SEGMENT_SIZE.  0 or -ENOMEM (nothing that large is free). */
int pool_lease(struct pool *pool, size_t size, struct block *ret_block);
/* Give a block back; one without a lease is ignored.  *block is empty afterwards. */
void pool_release(struct pool *pool, struct block *block);

/* Bytes that a lease of size bytes really takes. */
size_t pool_rounded(size_t size);

size_t pool_size(const struct pool *pool);
size_t pool_used(const struct pool *pool);
