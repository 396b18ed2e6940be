/*
 * When pushes are meant to be sent.
 *
 * Threads: one at a time.
 */
#include "client/cli/arrivals.h"

#include <math.h>

const char *const arrivals_names[ARRIVALS_COUNT] = {
    [ARRIVALS_CONSTANT] = "constant",
    [ARRIVALS_POISSON] = "poisson",
};

void arrivals_init(struct arrivals *arrivals, enum arrivals_kind kind, double rate, uint64_t seed)
{
    *arrivals = (struct arrivals){.kind = kind, .gap_ns = 1e9 / rate, .random = seed};
}

/* splitmix64: more than 0 and at most 1, so that its logarithm is finite. */
static double next_random(struct arrivals *arrivals)
{
    uint64_t mixed = arrivals->random += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    mixed ^= mixed >> 31;
    return (double)((mixed >> 11) + 1) * 0x1p-53;
}

uint64_t arrivals_next(struct arrivals *arrivals)
{
    uint64_t n = arrivals->n++;

    if (arrivals->kind == ARRIVALS_CONSTANT) {
        /* Not a sum: that would add up what each gap is rounded by. */
        return (uint64_t)((double)n * arrivals->gap_ns);
    }
    arrivals->sum_ns -= log(next_random(arrivals)) * arrivals->gap_ns;
    return (uint64_t)arrivals->sum_ns;
}
