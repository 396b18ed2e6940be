/*
 * Ring pool: the data segments that clients' rings lie in, and whose each is.
 *
 *     WAITING   for its turn, or for others to be gone; takes no memory yet
 *     MAKING    its pages are being allocated, on a thread of libuv's
 *     ADDING    workers map and register it
 *     USABLE    "leased" to a ring; "idle", for the same connection's next of its size; or "stock"
 *     DROPPING  workers let go of it
 *     CLEARING  its pages are being freed, on a thread of libuv's
 *
 * A mapping cannot be taken back from a client, so **what one connection had is never another's**:
 * it is reused there, or dropped, and dropping frees its pages whoever still has it mapped.  Not
 * even another program's of the same user: whoever frees pages of a ring (a hole punched, an
 * MADV_REMOVE) parts it from what a GPU has registered, for good, and nothing tells.  Only a daemon
 * that stops leaves the pages to who has them mapped: a program may not have read its results yet.
 *
 * Stock is one segment of LIMIT_RING_SIZE_DEFAULT that no client ever had, so that ring.open need
 * not wait for pages and registration; it is made at start, and again RING_POOL_STOCK_MS after the
 * last lease.  Idle segments are dropped RING_POOL_IDLE_MS after their last ring, when their
 * connection is gone, or, with the stock, oldest first, when somebody needs their room.
 *
 * Segments are made one at a time, the stock last, and neither made nor dropped while urgent work
 * is under way (registering 64 MiB holds it up for 4 ms), but RING_POOL_PATIENCE_MS later all the
 * same. Nothing wakes up while there is nothing to do.
 *
 * Whatever takes memory counts for the pool's size, so what is leased, idle and stock fits once
 * everything dropped is gone: a lease that waits for room gets it.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/segments.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define RING_POOL_IDLE_MS     10000 /* one program after the other opens a ring.  Not tuned */
#define RING_POOL_PATIENCE_MS 1000
/* A client that got a ring touches its pages next, and to allocate and register others meanwhile is
 * in its way: on two cores ring.open took 5 ms instead of 0.2. */
#define RING_POOL_STOCK_MS 200
#define RING_POOL_LATER    1

struct ring_pool;
struct ring_lease; /* a segment, from ring_pool_lease() to ring_pool_release() */

struct ring_pool_config {
    uv_loop_t *loop;
    struct segments *segments;
    size_t size;    /* bytes of all segments together, at most; 0: there are no rings */
    bool has_nodes; /* shm_has_nodes(): else the node of a lease does not matter */
    uint32_t idle_ms, patience_ms; /* 0: as above */
    uint32_t stock_ms;             /* after a lease, before stock is made; 0: at once */
    void *owner;
    bool (*has_urgent)(void *owner); /* is urgent work under way?  Asked from the loop only. */
};

struct ring_holder {
    uid_t uid;           /* whose share it counts in */
    uint64_t connection; /* who may have it again; a number of no other, ever */
};

/*
 * NULL: it is ready.  Else why it cannot be (NO_MEMORY): then there is no lease any more.  One that
 * was ready may become useless (RING), when a device comes back that cannot have it: nothing new
 * may use it, and it is to be released when nothing does.
 */
typedef void ring_pool_done(void *owner, const struct failure *failure);

/* The stock follows.  0 or -ENOMEM. */
int ring_pool_create(const struct ring_pool_config *config, struct ring_pool **ret_pool);
/*
 * Nothing is leased from here on, and all is dropped once it is released.  The loop must run until
 * nothing is active in it before ring_pool_destroy(), after which the table of segments may not
 * call any more.  NULL is fine for both.
 */
void ring_pool_close(struct ring_pool *pool);
void ring_pool_destroy(struct ring_pool *pool);

/*
 * A segment of at least size bytes for this holder, on a NUMA node if there is a choice (-1: any).
 *   0                 it is ready
 *   RING_POOL_LATER   on_done comes, from the loop, or has come already
 * or a negative status: TOO_BIG (for any ring, or for this pool), QUOTA (the user's share is used
 * up), BUSY (others have it all).  *ret_lease is to be released in the first two cases.
 */
int ring_pool_lease(struct ring_pool *pool, const struct ring_holder *holder, uint64_t size,
                    int node, ring_pool_done *on_done, void *owner, struct ring_lease **ret_lease,
                    struct failure *ret_failure);
/*
 * Nothing that a device might still do concerns it.  Of one that is not ready as well: on_done does
 * not come any more.  NULL is fine.
 */
void ring_pool_release(struct ring_pool *pool, struct ring_lease *lease);
/* The connection is gone: what it left idle is dropped. */
void ring_pool_forget(struct ring_pool *pool, uint64_t connection);

/* Of one that is ready.  The descriptor stays the table's; size is a power of two. */
size_t ring_lease_size(const struct ring_lease *lease);
uint32_t ring_lease_segment(const struct ring_lease *lease);
int ring_lease_fd(const struct ring_lease *lease);

/* Bytes that there are, at most the configured size; and bytes of them that rings have. */
size_t ring_pool_size(const struct ring_pool *pool);
size_t ring_pool_used(const struct ring_pool *pool);
/* And those in huge pages; and those of which some lie on another node than was asked for. */
size_t ring_pool_huge(const struct ring_pool *pool);
size_t ring_pool_far(const struct ring_pool *pool);
