/*
 * Places: how many pushes of one priority may be unanswered at a time.
 *
 * A job takes a place for each push of its window when it is opened, a run takes one; they are free
 * again when it is gone.  So a push that keeps to its credits is never refused, and what waits has
 * a bound: LIMIT_QUEUE for each priority, three quarters of it for one user.  Who finds none is
 * told how long the places it needs take to come free, as they did lately.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/message.h"

#include <stdint.h>

struct places {
    uint32_t n_taken;
    /* How many came free in this period, which began then, and in the one before. */
    uint64_t since_ns;
    uint32_t n_freed, n_freed_before;
    uint64_t freed_ns; /* the last time; 0: never */
};

/* Those of a priority: of all users, of one user. */
struct places_pair {
    struct places *all, *user;
};

/*
 * Take up to n_wanted, not 0: half of what is free, so that others find some, but one at least.
 * BUSY: there is none.
 */
int places_take(const struct places_pair *places, enum priority priority, uint32_t n_wanted,
                uint64_t now_ns, uint32_t *ret_n, struct failure *ret_failure);
void places_free(const struct places_pair *places, uint32_t n, uint64_t now_ns);
/* They were never used: that says nothing of how fast places come free. */
void places_give_back(const struct places_pair *places, uint32_t n);

/* How long until so many come free, at the rate of the last half second: at least 1. */
uint32_t places_retry_ms(const struct places *places, uint32_t n_wanted, uint64_t now_ns);
/* ... until one does, of any priority: when a job ends, there is more of everything. */
uint32_t places_retry_any_ms(const struct places places[PRIORITY_COUNT], uint64_t now_ns);
