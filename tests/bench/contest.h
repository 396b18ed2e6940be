/*
 * Contest: variants of one piece of work that take turns.  Each round has fresh data and its own
 * random order; a variant's ratio to another is the median of the ratios of all rounds.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CONTEST_ROUNDS_MAX   99u
#define CONTEST_VARIANTS_MAX 64u

struct contest {
    uint32_t n_variants;
    uint32_t n_rounds;
    void (*begin)(void *owner); /* a round: makes fresh data; NULL is fine */
    /* Prepare, run and check one variant; the seconds of the run alone. */
    double (*run)(void *owner, uint32_t variant);
    void *owner;
    double seconds[CONTEST_VARIANTS_MAX][CONTEST_ROUNDS_MAX];
};

/* One round that is not counted, then all others. */
void contest_run(struct contest *contest);

/* The median. */
double contest_seconds(const struct contest *contest, uint32_t variant);
/* How many times as fast as the other this variant is. */
double contest_ratio(const struct contest *contest, uint32_t variant, uint32_t other);
