/*
 * Arrivals: when pushes are meant to be sent, at a rate.
 *
 * Constant: one every 1/rate.  Poisson: as many programs send that know nothing of each other; the
 * gaps are exponential, of the same mean.  Times count from the start, in nanoseconds, and never go
 * back; the first is 0 for constant, and a gap for poisson.  They depend on nothing but the
 * arguments, least of all on what became of earlier ones.
 *
 * Threads: one at a time.
 */
#pragma once

#include <stdint.h>

enum arrivals_kind { ARRIVALS_CONSTANT, ARRIVALS_POISSON, ARRIVALS_COUNT };

extern const char *const arrivals_names[ARRIVALS_COUNT];

struct arrivals {
    enum arrivals_kind kind;
    double gap_ns; /* the mean */
    double sum_ns;
    uint64_t n;
    uint64_t random;
};

/* rate: a second, more than 0.  seed: of any value. */
void arrivals_init(struct arrivals *arrivals, enum arrivals_kind kind, double rate, uint64_t seed);
/* When the next one is due. */
uint64_t arrivals_next(struct arrivals *arrivals);
