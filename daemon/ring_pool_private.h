/*
 * Ring pool, inside: the list of segments, for ring_pool.c (who gets which) and ring_pool_step.c
 * (what then happens to them).
 *
 * Whose a segment is does not depend on its state: it is
 *
 *     leased   somebody has it, or waits for it
 *     free     nobody does: idle (a client has seen it) or stock (none has)
 *     doomed   nobody will: it is dropped as soon as that is possible
 *
 * and leased + free never exceed the size of the pool; that holds while leases wait, so the doomed
 * are all that a waiting one ever waits for.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/ring_pool.h"

enum lease_state {
    LEASE_WAITING,
    LEASE_MAKING,
    LEASE_ADDING,
    LEASE_USABLE,
    LEASE_DROPPING,
    LEASE_CLEARING,
};

struct ring_lease {
    struct ring_pool *pool;
    struct ring_lease *next, *previous; /* of the pool's, in order of since_ms */
    enum lease_state state;
    bool is_leased;
    bool is_doomed;      /* neither means that it is free */
    bool was_shown;      /* a client may have it mapped, for ever */
    bool is_spoiled;     /* leased, and a device cannot have it: nobody will again */
    uid_t uid;           /* if it is leased, or was shown: of whom ... */
    uint64_t connection; /* ... and on which connection */
    uint64_t since_ms;   /* it has been waiting, free or doomed */
    size_t size;
    int node;
    bool is_huge, is_far; /* what it got: huge pages; pages of another node */
    ring_pool_done *on_done;
    void *owner;
    uint32_t segment;
    int fd;           /* the table's while it has the segment; -errno: why there is none */
    bool keeps_pages; /* while it is cleared */
    uv_work_t work;
};

struct ring_pool {
    struct ring_pool_config config;
    struct ring_lease *first, *last;
    uv_timer_t timer;       /* active while something is idle, or waits */
    uint64_t stock_from_ms; /* not before this is stock made */
    int stock_node;         /* where the last ring of the stock's size was wanted */
    bool is_stock_off;      /* it could not be made; until something else could */
    bool is_closing;
};

/* What the list has, in bytes. */
struct ring_sums {
    size_t leased, free;
    size_t user_leased, user_idle; /* of one user */
    unsigned n_stock;
};

struct ring_sums ring_pool_sum_up(const struct ring_pool *pool, uid_t uid);
/* Bytes that one user may lease. */
uint64_t ring_pool_share(const struct ring_pool *pool);

/* WAITING, and free; NULL: no memory. */
struct ring_lease *ring_lease_add(struct ring_pool *pool, size_t size, int node);
void ring_lease_forget(struct ring_lease *lease);
bool ring_lease_is_free(const struct ring_lease *lease);
/* A free one: nobody will have it. */
void ring_lease_evict(struct ring_lease *lease);
/* Its user has it. */
void ring_lease_show(struct ring_lease *lease);

/* Do what has become possible; after each change. */
void ring_pool_step(struct ring_pool *pool);
void ring_pool_on_timer(uv_timer_t *timer);
