/*
 * Scheduler: which job's next chunk goes to which device next.
 *
 * A pure function of its queues, loads and the time it is told: no clock, no I/O, no lock.  A
 * *flow* is a job that has work; it says how large its next chunk is and which devices may run it.
 * The policy:
 *   1. urgent before normal before bulk;
 *   2. within a priority the flows take turns, one chunk each: a job with a deep window gets no
 *      more than one with a shallow one;
 *   3. a device is held back while it has as many chunks or bytes of a priority in flight as its
 *      limits allow.  Copy engines serve in arrival order whatever a stream's priority is, so what
 *      bounds an urgent job's wait is how much bulk was let in before it (four chunks in flight
 *      fill the link; urgent p99 is then 0.3 ms where they are of 4 MiB, 0.6 where they are of 8;
 *      sixteen of 4 MiB make it 1.7 ms).  One chunk is always let in, however large;
 *   4. of the devices that take the chunk, the one with the fewest bytes in flight gets it.  A flow
 *      whose chunk does not fit keeps its devices from those behind it: nobody overtakes it for
 *      being small.
 *
 * Thread: the front end's loop.  Flows are their jobs' property.
 */
#pragma once

#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets of devices, by index. */
#define SCHEDULER_ANY_DEVICE UINT32_MAX
#define SCHEDULER_DEVICE(i)  (UINT32_C(1) << (i))
_Static_assert(LIMIT_DEVICES <= 32, "a device is a bit of a uint32_t");

struct flow {
    enum priority priority;
    uint32_t devices;   /* set of those that may run it */
    uint64_t next_size; /* bytes of the largest array of its next chunk */
    bool is_queued;
    struct flow *next;
    struct flow *previous;
};

/* What a device has of one priority, and may have. */
struct scheduler_load {
    uint32_t n_chunks;
    uint64_t n_bytes;
    uint32_t chunks_max;
    uint64_t bytes_max;
};

/* Where a chunk goes, and as what. */
struct scheduler_place {
    uint32_t device;
    enum priority priority;
};

/* What a chunk in flight weighs: scheduler_issued() fills it in, scheduler_done() takes it back. */
struct scheduler_charge {
    struct scheduler_place place;
    uint64_t size;
};

struct scheduler {
    struct {
        struct flow *first, *last;
        uint32_t n_flows;
    } classes[PRIORITY_COUNT];
    struct scheduler_load loads[LIMIT_DEVICES][PRIORITY_COUNT];
    uint32_t ready; /* set of devices that take work */
};

void scheduler_init(struct scheduler *scheduler);

/* The device takes work, as much as its worker says of it. */
void scheduler_device_up(struct scheduler *scheduler, uint32_t device,
                         const struct worker_caps *caps);
/* It takes none; what it has in flight comes back by scheduler_done(). */
void scheduler_device_down(struct scheduler *scheduler, uint32_t device);

/* The flow has work: queue it, at the end if it was not queued.  Its next_size may change while it
 * is. */
void scheduler_add(struct scheduler *scheduler, struct flow *flow);
/* It has none. */
void scheduler_remove(struct scheduler *scheduler, struct flow *flow);

/* The flow whose chunk goes next, and where; or NULL.  No chunk is on the books until
 * scheduler_issued(). */
struct flow *scheduler_next(struct scheduler *scheduler, struct scheduler_place *ret_place);

/* Its next chunk went there: the flow moves to the end of its class. */
void scheduler_issued(struct scheduler *scheduler, struct flow *flow,
                      const struct scheduler_place *place, struct scheduler_charge *ret_charge);
/* A chunk came back from its device. */
void scheduler_done(struct scheduler *scheduler, const struct scheduler_charge *charge);

/* Chunks of this priority in flight, on all devices. */
uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority);
