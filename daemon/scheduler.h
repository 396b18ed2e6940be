/*
 * Scheduler: which job's next chunk goes to the device next.
 *
 * A pure function of its queues and loads: no clock, no I/O, no lock.  A *flow* is a job that has
 * work; it says how large its next chunk is.  The policy:
 *   1. urgent before normal before bulk;
 *   2. within a priority the flows take turns, one chunk each: a job with a deep window gets no
 * more than one with a shallow one;
 *   3. a priority is held back while it has as many chunks or bytes in flight as its limits allow.
 *      Copy engines serve in arrival order whatever a stream's priority is, so what bounds an
 * urgent job's wait is how much bulk was let in before it (4 MiB x 3-4 in flight fill the link and
 *      leave urgent p99 at 50 us; 16 in flight make it 1.6 ms).  One chunk is always let in,
 * however large.
 *
 * Thread: the front end's loop.  Flows are their jobs' property.
 */
#pragma once

#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct flow {
    enum priority priority;
    uint64_t next_size; /* bytes of the largest array of its next chunk */
    bool is_queued;
    struct flow *next;
    struct flow *previous;
};

struct scheduler_limit {
    uint32_t n_chunks;
    uint64_t n_bytes;
};

struct scheduler {
    struct {
        struct flow *first, *last;
        uint32_t n_flows;
        uint32_t n_chunks; /* in flight */
        uint64_t n_bytes;
        struct scheduler_limit limit;
    } classes[PRIORITY_COUNT];
};

void scheduler_init(struct scheduler *scheduler);

/* What may be in flight, from what the worker says of its device. */
void scheduler_configure(struct scheduler *scheduler, const struct worker_caps *caps);

/* The flow has work (or another next_size): queue it, at the end if it was not queued. */
void scheduler_add(struct scheduler *scheduler, struct flow *flow);
/* It has none. */
void scheduler_remove(struct scheduler *scheduler, struct flow *flow);

/* The flow whose chunk goes next, or NULL.  Nothing changes until scheduler_issued(). */
struct flow *scheduler_next(const struct scheduler *scheduler);

/* A chunk of this many bytes went out: the flow moves to the end of its class. */
void scheduler_issued(struct scheduler *scheduler, struct flow *flow, uint64_t size);
/* A chunk of this priority came back. */
void scheduler_done(struct scheduler *scheduler, enum priority priority, uint64_t size);
