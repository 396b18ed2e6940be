/*
 * Ring pool: who gets which segment, and what it may cost the others.
 */
#include "daemon/ring_pool.h"

#include "daemon/ring_pool_private.h"
#include "proto/limits.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>

#define RETRY_MS 100 /* what BUSY and QUOTA suggest: rings live long.  Not tuned */

/* ---- the list ------------------------------------------------------------------------------- */

static void unlink_lease(struct ring_lease *lease)
{
    struct ring_pool *pool = lease->pool;

    *(lease->previous != NULL ? &lease->previous->next : &pool->first) = lease->next;
    *(lease->next != NULL ? &lease->next->previous : &pool->last) = lease->previous;
}

static void append(struct ring_lease *lease)
{
    struct ring_pool *pool = lease->pool;

    lease->since_ms = uv_now(pool->config.loop);
    lease->next = NULL;
    lease->previous = pool->last;
    *(pool->last != NULL ? &pool->last->next : &pool->first) = lease;
    pool->last = lease;
}

struct ring_lease *ring_lease_add(struct ring_pool *pool, size_t size, int node)
{
    struct ring_lease *lease = calloc(1, sizeof(*lease));

    if (lease != NULL) {
        *lease = (struct ring_lease){.pool = pool, .size = size, .node = node, .fd = -1};
        lease->work.data = lease;
        append(lease);
    }
    return lease;
}

void ring_lease_forget(struct ring_lease *lease)
{
    unlink_lease(lease);
    free(lease);
}

bool ring_lease_is_free(const struct ring_lease *lease)
{
    return !lease->is_leased && !lease->is_doomed;
}

static bool is_idle_of(const struct ring_lease *lease, uid_t uid)
{
    return ring_lease_is_free(lease) && lease->was_shown && lease->uid == uid;
}

struct ring_sums ring_pool_sum_up(const struct ring_pool *pool, uid_t uid)
{
    struct ring_sums sums = {0};

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        sums.leased += lease->is_leased ? lease->size : 0;
        sums.free += ring_lease_is_free(lease) ? lease->size : 0;
        sums.user_leased += lease->is_leased && lease->uid == uid ? lease->size : 0;
        sums.user_idle += is_idle_of(lease, uid) ? lease->size : 0;
        sums.n_stock += ring_lease_is_free(lease) && !lease->was_shown;
    }
    return sums;
}

void ring_lease_show(struct ring_lease *lease)
{
    lease->state = LEASE_USABLE;
    lease->was_shown = true;
}

size_t ring_pool_size(const struct ring_pool *pool)
{
    size_t size = 0;

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        size += lease->state > LEASE_WAITING ? lease->size : 0;
    }
    return size;
}

/* There are pages from then on. */
static bool is_made(const struct ring_lease *lease)
{
    return lease->state > LEASE_MAKING;
}

size_t ring_pool_huge(const struct ring_pool *pool)
{
    size_t size = 0;

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        size += is_made(lease) && lease->is_huge ? lease->size : 0;
    }
    return size;
}

size_t ring_pool_far(const struct ring_pool *pool)
{
    size_t size = 0;

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        size += is_made(lease) && lease->is_far ? lease->size : 0;
    }
    return size;
}

size_t ring_pool_used(const struct ring_pool *pool)
{
    size_t size = 0;

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        size += lease->is_leased && lease->state == LEASE_USABLE ? lease->size : 0;
    }
    return size;
}

uint64_t ring_pool_share(const struct ring_pool *pool)
{
    return (uint64_t)pool->config.size * LIMIT_USER_RINGS / 100;
}

/* ---- letting go ----------------------------------------------------------------------------- */

void ring_lease_evict(struct ring_lease *lease)
{
    if (lease->state == LEASE_WAITING) {
        ring_lease_forget(lease);
        return;
    }
    lease->is_doomed = true;
    unlink_lease(lease);
    append(lease);
}

/* Evict the oldest that are free, of one user or of all, until they are excess bytes. */
static void shed(struct ring_pool *pool, const uid_t *uid, size_t excess)
{
    struct ring_lease *lease = pool->first, *next;

    for (size_t shed = 0; lease != NULL && shed < excess; lease = next) {
        next = lease->next;
        if (uid != NULL ? is_idle_of(lease, *uid) : ring_lease_is_free(lease)) {
            shed += lease->size;
            ring_lease_evict(lease);
        }
    }
}

/* This user has leased something: its share holds, and then the size of the pool. */
static void make_room(struct ring_pool *pool, uid_t uid)
{
    struct ring_sums sums = ring_pool_sum_up(pool, uid);
    uint64_t share = ring_pool_share(pool);

    if (sums.user_leased + sums.user_idle > share) {
        shed(pool, &uid, sums.user_leased + sums.user_idle - share);
        sums = ring_pool_sum_up(pool, uid);
    }
    if (sums.leased + sums.free > pool->config.size) {
        shed(pool, NULL, sums.leased + sums.free - pool->config.size);
    }
}

/* ---- leasing -------------------------------------------------------------------------------- */

static size_t rounded(uint64_t size)
{
    size_t power = LIMIT_RING_SIZE_LEAST;

    while (power < size && power < LIMIT_RING_SIZE) {
        power *= 2;
    }
    return power;
}

/* What no waiting changes. */
static int check_size(const struct ring_pool *pool, uint64_t wanted, struct failure *ret_failure)
{
    uint64_t size = rounded(wanted), share = ring_pool_share(pool);

    if (wanted > LIMIT_RING_SIZE) {
        fail(ret_failure, STATUS_TOO_BIG, "size",
             "a ring of %llu bytes, and the largest has %d; open several",
             (unsigned long long)wanted, LIMIT_RING_SIZE);
        return failure_add_limit(ret_failure, "ring_size", wanted, LIMIT_RING_SIZE);
    }
    if (size > share) {
        fail(ret_failure, STATUS_TOO_BIG, "size",
             "a ring of %llu MiB is more than one user may have of this daemon's --ring-pool, %llu "
             "MiB; open a smaller one, or send data inline",
             (unsigned long long)size >> 20, (unsigned long long)share >> 20);
        return failure_add_limit(ret_failure, "user_rings", size, share);
    }
    return 0;
}

static int refuse_user(const struct ring_pool *pool, size_t size, size_t held,
                       struct failure *ret_failure)
{
    uint64_t share = ring_pool_share(pool);

    fail(ret_failure, STATUS_QUOTA, "size",
         "your rings have %zu MiB, of %llu that one user may have: no room for %zu; close some",
         held >> 20, (unsigned long long)share >> 20, size >> 20);
    ret_failure->retry_ms = RETRY_MS;
    return failure_add_limit(ret_failure, "user_rings", held, share);
}

static int refuse_now(const struct ring_pool *pool, size_t size, size_t leased,
                      struct failure *ret_failure)
{
    fail(ret_failure, STATUS_BUSY, "size",
         "rings of others leave no room for one of %zu MiB now; try again, or send data inline",
         size >> 20);
    ret_failure->retry_ms = RETRY_MS;
    return failure_add_limit(ret_failure, "ring_pool", leased, pool->config.size);
}

static int refuse_for_memory(struct failure *ret_failure)
{
    fail(ret_failure, STATUS_BUSY, NULL, "the daemon is out of memory; try again later");
    ret_failure->retry_ms = RETRY_MS;
    return -STATUS_BUSY;
}

static int check_room(const struct ring_pool *pool, uid_t uid, size_t size,
                      struct failure *ret_failure)
{
    struct ring_sums sums = ring_pool_sum_up(pool, uid);

    if (sums.user_leased + size > ring_pool_share(pool)) {
        return refuse_user(pool, size, sums.user_leased, ret_failure);
    }
    if (sums.leased + size > pool->config.size) {
        return refuse_now(pool, size, sums.leased, ret_failure);
    }
    return 0;
}

/* 0 = this one cannot have it; else the higher the better. */
static unsigned suits(const struct ring_lease *lease, const struct ring_holder *holder, size_t size,
                      int node)
{
    if (!ring_lease_is_free(lease) || lease->size != size || (node >= 0 && lease->node != node)) {
        return 0;
    }
    if (lease->was_shown) {
        return lease->connection == holder->connection ? 3 : 0;
    }
    return lease->state == LEASE_USABLE ? 2 : 1;
}

/* Of several that suit, the one that was used last. */
static struct ring_lease *find(const struct ring_pool *pool, const struct ring_holder *holder,
                               size_t size, int node)
{
    struct ring_lease *found = NULL;
    unsigned best = 1;

    for (struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        unsigned how_well = suits(lease, holder, size, node);

        if (how_well >= best) {
            best = how_well;
            found = lease;
        }
    }
    return found;
}

/* The first of the stock that is another than this one. */
static struct ring_lease *other_stock(const struct ring_pool *pool, const struct ring_lease *but)
{
    struct ring_lease *lease = pool->first;

    while (lease != NULL && (lease == but || lease->was_shown || !ring_lease_is_free(lease))) {
        lease = lease->next;
    }
    return lease;
}

/* Stock on a node that nobody asks for is of no use. */
static void move_stock(struct ring_pool *pool, int node)
{
    struct ring_lease *stock = other_stock(pool, NULL);

    pool->stock_node = node;
    if (stock != NULL && stock->node != node) {
        ring_lease_evict(stock);
    }
}

/* No client has seen it: of two that could be stock the one stays that is further along. */
static void put_in_stock(struct ring_pool *pool, struct ring_lease *lease)
{
    struct ring_lease *other = other_stock(pool, lease);

    if (lease->size != LIMIT_RING_SIZE_DEFAULT) {
        ring_lease_evict(lease);
    } else if (other != NULL) {
        ring_lease_evict(other->state < lease->state ? other : lease);
    }
}

int ring_pool_lease(struct ring_pool *pool, const struct ring_holder *holder, uint64_t wanted,
                    int node, ring_pool_done *on_done, void *owner, struct ring_lease **ret_lease,
                    struct failure *ret_failure)
{
    assert(!pool->is_closing);
    size_t size = rounded(wanted);
    int r = check_size(pool, wanted, ret_failure);

    node = pool->config.has_nodes ? node : -1;
    if (r == 0) {
        r = check_room(pool, holder->uid, size, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    struct ring_lease *lease = find(pool, holder, size, node);
    if (lease == NULL && (lease = ring_lease_add(pool, size, node)) == NULL) {
        return refuse_for_memory(ret_failure);
    }
    lease->is_leased = true;
    lease->uid = holder->uid;
    lease->connection = holder->connection;
    lease->on_done = on_done;
    lease->owner = owner;
    pool->stock_from_ms = uv_now(pool->config.loop) + pool->config.stock_ms;
    if (lease->state == LEASE_USABLE) {
        ring_lease_show(lease);
    } else {
        r = RING_POOL_LATER;
    }
    if (node >= 0 && size == LIMIT_RING_SIZE_DEFAULT) {
        move_stock(pool, node);
    }
    make_room(pool, holder->uid);
    *ret_lease = lease;
    ring_pool_step(pool);
    return r;
}

void ring_pool_release(struct ring_pool *pool, struct ring_lease *lease)
{
    if (lease == NULL) {
        return;
    }
    lease->is_leased = false;
    if (lease->state == LEASE_WAITING) {
        ring_lease_forget(lease);
    } else if (lease->is_spoiled) {
        ring_lease_evict(lease);
    } else if (!lease->was_shown) {
        put_in_stock(pool, lease);
    } else {
        unlink_lease(lease);
        append(lease);
    }
    ring_pool_step(pool);
}

void ring_pool_forget(struct ring_pool *pool, uint64_t connection)
{
    struct ring_lease *next;

    for (struct ring_lease *lease = pool->first; lease != NULL; lease = next) {
        next = lease->next;
        if (ring_lease_is_free(lease) && lease->was_shown && lease->connection == connection) {
            ring_lease_evict(lease);
        }
    }
    ring_pool_step(pool);
}

size_t ring_lease_size(const struct ring_lease *lease)
{
    return lease->size;
}

uint32_t ring_lease_segment(const struct ring_lease *lease)
{
    return lease->segment;
}

int ring_lease_fd(const struct ring_lease *lease)
{
    return lease->fd;
}

/* ---- life ----------------------------------------------------------------------------------- */

int ring_pool_create(const struct ring_pool_config *config, struct ring_pool **ret_pool)
{
    struct ring_pool *pool = calloc(1, sizeof(*pool));

    if (pool == NULL) {
        return -ENOMEM;
    }
    pool->config = *config;
    pool->config.idle_ms = config->idle_ms > 0 ? config->idle_ms : RING_POOL_IDLE_MS;
    pool->config.patience_ms =
        config->patience_ms > 0 ? config->patience_ms : RING_POOL_PATIENCE_MS;
    pool->stock_node = -1;
    uv_timer_init(config->loop, &pool->timer);
    pool->timer.data = pool;
    /* Not now: its owner may not be complete yet. */
    uv_timer_start(&pool->timer, ring_pool_on_timer, 0, 0);
    *ret_pool = pool;
    return 0;
}

void ring_pool_close(struct ring_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pool->is_closing = true;
    uv_close((uv_handle_t *)&pool->timer, NULL);
    ring_pool_step(pool);
}

void ring_pool_destroy(struct ring_pool *pool)
{
    while (pool != NULL && pool->first != NULL) {
        assert(pool->first->state != LEASE_MAKING && pool->first->state != LEASE_CLEARING);
        ring_lease_forget(pool->first);
    }
    free(pool);
}
