/*
 * Pace: small jobs in an open loop.  Each is due at its time, whatever became of those before it,
 * and its latency counts from then: where the sender or whoever does the jobs is late, all that
 * were due meanwhile have waited.
 *
 * Each job has fresh random bytes, and poison where its result is to be; every result is compared.
 * That is done while nothing is under way and nothing due, so that it costs no latency.
 *
 * Thread: its caller's.
 */
#pragma once

#include "client/cli/histogram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACE_SLOTS_MAX 64u /* jobs under way */

/* Who does the jobs.  The job of a slot takes its size bytes at in + slot * size to the same of
 * out.
 */
struct pace_way {
    void (*send)(void *state, uint32_t slot);
    /* Slots that are done, at most max; returns how many. */
    uint32_t (*take)(void *state, uint32_t *ret_slots, uint32_t max);
    /* Sleeps until one may be done, or until then.  NULL: all waiting is spinning. */
    void (*wait)(void *state, uint64_t until_ns);
    void *state;
};

struct pace_plan {
    struct pace_way way;
    uint8_t *in;
    uint8_t *out;
    size_t size;
    uint32_t n_slots;
    double rate; /* a second */
};

struct pace;

/* Fresh data for all slots. */
void pace_create(const struct pace_plan *plan, struct pace **ret_pace);
void pace_destroy(struct pace *pace);

/* From now on until to_ns; what is due in [from_ns, to_ns) is added to the histogram, in
 * nanoseconds.  What had not even been sent when as much time again was gone counts with what it
 * has waited until then. */
void pace_run(struct pace *pace, uint64_t from_ns, uint64_t to_ns, struct histogram *histogram);

/* Adds all of more to total. */
void pace_add(struct histogram *total, const struct histogram *more);
