/*
 * Places: two counters, and two periods of counting.
 */
#include "daemon/places.h"

#include "proto/limits.h"
#include "proto/util.h"

#define USER_QUEUE (LIMIT_QUEUE * LIMIT_USER_QUEUE / 100)

/* Long enough for several pushes of a slow op, short enough to follow a change.  Not tuned. */
#define PERIOD_NS     UINT64_C(250000000)
#define RETRY_MOST_NS UINT64_C(10000000000) /* who is there may go at any time */

/* ---- how soon ------------------------------------------------------------------------------- */

/* The period that is now, and the one before it. */
static void turn_over(struct places *places, uint64_t now_ns)
{
    uint64_t n_periods = (now_ns - places->since_ns) / PERIOD_NS;

    if (n_periods > 0) {
        places->n_freed_before = n_periods == 1 ? places->n_freed : 0;
        places->n_freed = 0;
        places->since_ns += n_periods * PERIOD_NS;
    }
}

static uint64_t retry_ns(const struct places *places, uint32_t n_wanted, uint64_t now_ns)
{
    struct places now = *places;

    turn_over(&now, now_ns);
    uint64_t n = (uint64_t)now.n_freed + now.n_freed_before;
    if (n > 0) {
        return (PERIOD_NS + now_ns - now.since_ns) * n_wanted / n;
    }
    /* As long again as none has come free; if that never was, nobody knows. */
    return now.freed_ns != 0 ? now_ns - now.freed_ns : PERIOD_NS;
}

uint32_t places_retry_ms(const struct places *places, uint32_t n_wanted, uint64_t now_ns)
{
    uint64_t ns = MIN(retry_ns(places, n_wanted, now_ns), RETRY_MOST_NS);

    return (uint32_t)(ns / 1000000) + 1;
}

uint32_t places_retry_any_ms(const struct places places[PRIORITY_COUNT], uint64_t now_ns)
{
    uint32_t least = UINT32_MAX;

    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        if (places[priority].n_taken > 0) {
            uint32_t retry_ms = places_retry_ms(&places[priority], 1, now_ns);

            least = MIN(least, retry_ms);
        }
    }
    return least != UINT32_MAX ? least : PERIOD_NS / 1000000;
}

/* ---- the counters --------------------------------------------------------------------------- */

static uint32_t room(const struct places *places, uint32_t most)
{
    return most - MIN(most, places->n_taken);
}

static int refuse(const struct places_pair *places, enum priority priority, uint64_t now_ns,
                  struct failure *ret_failure)
{
    bool is_user = room(places->user, USER_QUEUE) == 0;
    const struct places *full = is_user ? places->user : places->all;
    uint32_t most = is_user ? USER_QUEUE : LIMIT_QUEUE;

    fail(ret_failure, STATUS_BUSY, "priority",
         "%u pushes of priority %s may be under way %s, all that %s may have; try again later",
         full->n_taken, priority_names[priority], is_user ? "for your jobs and runs" : "here",
         is_user ? "one user" : "there");
    ret_failure->retry_ms = places_retry_ms(full, 1, now_ns);
    return failure_add_limit(ret_failure, is_user ? "user_queue" : "queue", full->n_taken, most);
}

int places_take(const struct places_pair *places, enum priority priority, uint32_t n_wanted,
                uint64_t now_ns, uint32_t *ret_n, struct failure *ret_failure)
{
    uint32_t n_all = room(places->all, LIMIT_QUEUE), n_user = room(places->user, USER_QUEUE);
    uint32_t n_free = MIN(n_all, n_user);

    if (n_free == 0) {
        return refuse(places, priority, now_ns, ret_failure);
    }
    n_free = MAX(n_free / 2, 1u);
    *ret_n = MIN(n_wanted, n_free);
    places->all->n_taken += *ret_n;
    places->user->n_taken += *ret_n;
    return 0;
}

static void free_of(struct places *places, uint32_t n, uint64_t now_ns)
{
    turn_over(places, now_ns);
    places->n_taken -= n;
    places->n_freed += n;
    places->freed_ns = now_ns;
}

void places_free(const struct places_pair *places, uint32_t n, uint64_t now_ns)
{
    if (n > 0) {
        free_of(places->all, n, now_ns);
        free_of(places->user, n, now_ns);
    }
}

void places_give_back(const struct places_pair *places, uint32_t n)
{
    places->all->n_taken -= n;
    places->user->n_taken -= n;
}
