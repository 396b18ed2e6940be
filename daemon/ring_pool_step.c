/*
 * Ring pool: what happens to segments: made, shown to workers, dropped, cleared; and when.
 *
 * Threads: the loop's, but make_pages() and free_pages(), which have a segment's size, node and
 * descriptor to themselves.
 */
#include "daemon/log.h"
#include "daemon/ring_pool_private.h"
#include "proto/limits.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <fcntl.h>
#include <string.h>

#define URGENT_POLL_MS 10 /* while something waits for urgent work to be done.  Not tuned */

/* ---- clearing ------------------------------------------------------------------------------- */

/* Freeing pages takes as long as allocating them. */
static void free_pages(uv_work_t *work)
{
    struct ring_lease *lease = work->data;

    if (lease->fd >= 0 && !lease->keeps_pages) {
        shm_punch(lease->fd, lease->size);
    }
}

static void on_cleared(uv_work_t *work, int status)
{
    struct ring_lease *lease = work->data;
    struct ring_pool *pool = lease->pool;

    (void)status;         /* nothing is cancelled */
    close_fd(&lease->fd); /* by the thread that has all other descriptors */
    ring_lease_forget(lease);
    ring_pool_step(pool);
}

/* No worker has it; fd is ours, or negative. */
static void clear(struct ring_lease *lease, int fd)
{
    lease->state = LEASE_CLEARING;
    lease->fd = fd;
    lease->keeps_pages = lease->pool->is_closing;
    uv_queue_work(lease->pool->config.loop, &lease->work, free_pages, on_cleared);
}

/* ---- making --------------------------------------------------------------------------------- */

/* There will be none: tell who waits for it.  The stock has nobody who does. */
static void give_up(struct ring_lease *lease, const char *reason)
{
    bool was_leased = lease->is_leased, was_doomed = lease->is_doomed;
    struct failure failure;

    lease->is_leased = false;
    lease->is_doomed = true;
    if (was_leased) {
        fail(&failure, STATUS_NO_MEMORY, NULL, "no memory for a ring of %zu MiB: %s",
             lease->size >> 20, reason);
        lease->on_done(lease->owner, &failure);
    } else if (!was_doomed) {
        lease->pool->is_stock_off = true;
        log_warning("no ring is kept ready: %s", reason);
    }
}

static void on_usable(void *owner, uint32_t segment)
{
    struct ring_lease *lease = owner;
    struct ring_pool *pool = lease->pool;

    lease->segment = segment; /* maybe before segments_add() has told */
    lease->state = LEASE_USABLE;
    pool->is_stock_off = false;
    if (lease->is_leased) {
        ring_lease_show(lease);
        lease->on_done(lease->owner, NULL);
    }
    ring_pool_step(pool);
}

/* The table drops it by itself, and on_gone may have come already. */
static void on_failed(void *owner, uint32_t segment, const char *reason)
{
    struct ring_lease *lease = owner;
    struct ring_pool *pool = lease->pool;

    (void)segment;
    if (lease->state < LEASE_DROPPING) {
        lease->state = LEASE_DROPPING;
    }
    give_up(lease, reason);
    ring_pool_step(pool);
}

/* Whoever leased it lets go of it, now or when what it has under way is done. */
static void on_spoiled(void *owner, uint32_t segment, const char *reason)
{
    struct ring_lease *lease = owner;
    struct ring_pool *pool = lease->pool;
    struct failure failure;

    (void)segment;
    if (ring_lease_is_free(lease)) {
        ring_lease_evict(lease);
    } else if (lease->is_leased && !lease->is_spoiled) {
        lease->is_spoiled = true;
        fail(&failure, STATUS_RING, NULL, "a device that came back cannot have its memory: %s",
             reason);
        lease->on_done(lease->owner, &failure);
    }
    ring_pool_step(pool);
}

/* The table closes its descriptor after this. */
static void on_gone(void *owner, uint32_t segment, int fd)
{
    struct ring_lease *lease = owner;
    int ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    (void)segment;
    if (ours < 0 && !lease->pool->is_closing) {
        /* No descriptor is left: better slowly than not at all. */
        shm_punch(fd, lease->size);
    }
    clear(lease, ours);
}

static void make_pages(uv_work_t *work)
{
    struct ring_lease *lease = work->data;

    lease->fd = shm_create_large("gpupipe-ring-data", lease->size, lease->node);
    if (lease->fd >= 0) {
        lease->is_huge = shm_is_huge(lease->fd);
        lease->is_far = !shm_lies_on(lease->fd, lease->size, lease->node);
    }
}

/* 0: the table has it, and its callbacks may have come.  -errno: it is still ours. */
static int add_to_table(struct ring_lease *lease)
{
    const struct segment_watch watch = {
        .owner = lease,
        .on_usable = on_usable,
        .on_failed = on_failed,
        .on_gone = on_gone,
        .on_spoiled = on_spoiled,
    };

    lease->state = LEASE_ADDING;
    int r =
        segments_add(lease->pool->config.segments, lease->fd, lease->size, &watch, &lease->segment);
    if (r < 0) {
        lease->state = LEASE_MAKING;
    }
    return r;
}

static void on_made(uv_work_t *work, int status)
{
    struct ring_lease *lease = work->data;
    struct ring_pool *pool = lease->pool;
    int r = lease->fd;

    (void)status; /* nothing is cancelled */
    if (r >= 0 && !lease->is_doomed) {
        r = add_to_table(lease);
        if (r == 0) {
            ring_pool_step(pool);
            return;
        }
    }
    if (r < 0) {
        give_up(lease, strerror(-r));
    }
    if (lease->fd >= 0) {
        clear(lease, lease->fd);
    } else {
        ring_lease_forget(lease);
    }
    ring_pool_step(pool);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Nothing urgent is held up by it, or it has waited long enough. */
static bool may_go(const struct ring_lease *lease)
{
    const struct ring_pool_config *config = &lease->pool->config;

    return lease->pool->is_closing || !config->has_urgent(config->owner) ||
           uv_now(config->loop) - lease->since_ms >= config->patience_ms;
}

static bool has_expired(const struct ring_lease *lease)
{
    const struct ring_pool *pool = lease->pool;

    if (!ring_lease_is_free(lease)) {
        return false;
    }
    return pool->is_closing || (lease->was_shown && uv_now(pool->config.loop) - lease->since_ms >=
                                                        pool->config.idle_ms);
}

static void evict_expired(struct ring_pool *pool)
{
    struct ring_lease *next;

    for (struct ring_lease *lease = pool->first; lease != NULL; lease = next) {
        next = lease->next;
        if (has_expired(lease)) {
            ring_lease_evict(lease);
        }
    }
}

static bool is_to_be_dropped(const struct ring_lease *lease)
{
    return lease->is_doomed && (lease->state == LEASE_ADDING || lease->state == LEASE_USABLE);
}

static struct ring_lease *next_to_drop(const struct ring_pool *pool)
{
    struct ring_lease *lease = pool->first;

    while (lease != NULL && !(is_to_be_dropped(lease) && may_go(lease))) {
        lease = lease->next;
    }
    return lease;
}

/*
 * The table may call back for any segment, and whoever leased that may do anything, down to another
 * step: look anew each time.
 */
static void drop_doomed(struct ring_pool *pool)
{
    struct ring_lease *lease;

    while ((lease = next_to_drop(pool)) != NULL) {
        lease->state = LEASE_DROPPING;
        segments_drop(pool->config.segments, lease->segment);
    }
}

/* Have one in stock, or waiting to be made, if it drives nobody out and somebody may lease it. */
static void plan_stock(struct ring_pool *pool)
{
    struct ring_sums sums = ring_pool_sum_up(pool, 0);

    if (sums.n_stock == 0 && !pool->is_stock_off &&
        LIMIT_RING_SIZE_DEFAULT <= ring_pool_share(pool) &&
        sums.leased + sums.free + LIMIT_RING_SIZE_DEFAULT <= pool->config.size) {
        ring_lease_add(pool, LIMIT_RING_SIZE_DEFAULT, pool->stock_node);
    }
}

/* Stock is, as long as no client has it. */
static bool waits_in_peace(const struct ring_lease *lease)
{
    const struct ring_pool *pool = lease->pool;

    return ring_lease_is_free(lease) && uv_now(pool->config.loop) < pool->stock_from_ms;
}

/* Which of those that wait is made next; NULL: none can be now, urgent work aside. */
static struct ring_lease *next_to_make(const struct ring_pool *pool)
{
    struct ring_lease *found = NULL;

    for (struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        if (lease->state == LEASE_MAKING || lease->state == LEASE_ADDING) {
            return NULL;
        }
        if (lease->state == LEASE_WAITING && !waits_in_peace(lease) &&
            (found == NULL || (lease->is_leased && !found->is_leased))) {
            found = lease;
        }
    }
    bool fits = found != NULL && ring_pool_size(pool) + found->size <= pool->config.size;
    return fits ? found : NULL;
}

static void make_one(struct ring_pool *pool)
{
    struct ring_lease *lease = next_to_make(pool);

    if (lease != NULL && may_go(lease)) {
        lease->state = LEASE_MAKING;
        uv_queue_work(pool->config.loop, &lease->work, make_pages, on_made);
    }
}

/* When something happens by itself: it expires, or has been held up long enough. */
static uint64_t due_ms(const struct ring_pool *pool)
{
    const struct ring_pool_config *config = &pool->config;
    const struct ring_lease *held_up = next_to_make(pool);
    uint64_t due = UINT64_MAX;

    for (const struct ring_lease *lease = pool->first; lease != NULL; lease = lease->next) {
        if (lease == held_up || is_to_be_dropped(lease)) {
            due = MIN(due, lease->since_ms + config->patience_ms);
            due = MIN(due, uv_now(config->loop) + URGENT_POLL_MS);
        } else if (lease->state == LEASE_WAITING && waits_in_peace(lease)) {
            due = MIN(due, pool->stock_from_ms);
        } else if (ring_lease_is_free(lease) && lease->was_shown) {
            due = MIN(due, lease->since_ms + config->idle_ms);
        }
    }
    return due;
}

static void set_timer(struct ring_pool *pool)
{
    uint64_t now = uv_now(pool->config.loop), due = due_ms(pool);

    if (due == UINT64_MAX) {
        uv_timer_stop(&pool->timer);
    } else {
        uv_timer_start(&pool->timer, ring_pool_on_timer, MAX(due, now) - now, 0);
    }
}

void ring_pool_step(struct ring_pool *pool)
{
    evict_expired(pool);
    drop_doomed(pool);
    if (!pool->is_closing) {
        plan_stock(pool);
        make_one(pool);
        set_timer(pool);
    }
}

void ring_pool_on_timer(uv_timer_t *timer)
{
    ring_pool_step(timer->data);
}
