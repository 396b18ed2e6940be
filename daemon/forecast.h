/*
 * Forecast: when would new work be done, if it came now?
 *
 * A pure function of the scheduler's queues, loads, rates and time, as scheduler.h orders them:
 *
 *     forecast_begin(), forecast_add() for each flow with work, forecast_ns()
 *
 * Chunks are taken for a fluid.  What is in flight goes first, and what is queued above it; that
 * users of the same priority have equal time, and what is due first goes first within a user; what
 * is below has its least share.  What is yet to come is taken to be as it was of late: the devices'
 * time that each priority and each user had, up to what they may have, after what they have there.
 *
 * It promises nothing of a single work: who comes meanwhile is a matter of chance.  But where a
 * user always asks for more than can be in time and others go on as of late, with random arrivals,
 * of 100 works that are let in at most 5 are late, 1 as a rule; and none is refused that would have
 * taken less than 0.6 of its deadline (tests/sim, admit...).
 *
 * What it does not know of: the way through the socket, workers that fall behind their rates, who
 * begins something new or urgent in the meantime, and that copies and kernels of a single chunk
 * follow each other.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/scheduler.h"

struct forecast {
    const struct scheduler *scheduler;
    const struct flow *flow; /* what would have it, queued or not */
    uint64_t now_ns;
    double capacity; /* of the devices that may run it: their ns in a ns */
    double cost_ns, chunk_ns;
    double own_used_ns; /* device time of its user, on the users' scale */
    double own_ns;      /* what its user has queued that goes before it */
    double in_flight_ns[PRIORITY_COUNT];
    double queued_ns[PRIORITY_COUNT]; /* of other priorities than its own */
    struct scheduler_user *others;    /* of its priority, that have something queued */
};

/*
 * Of n_records for this flow: of their bytes link_size each goes over the link, and they are handed
 * out chunk_records at a time.  False: nobody knows what they take, or no device is ready.
 */
bool forecast_begin(struct forecast *forecast, const struct scheduler *scheduler,
                    const struct flow *flow, uint64_t now_ns, uint64_t n_records,
                    uint64_t link_size, uint64_t chunk_records);
/* The flow, or another one that is queued, has so much to be handed out. */
void forecast_add(struct forecast *forecast, const struct flow *flow, uint64_t waiting_ns);
/* From now on; *ret_alone_ns is what it would be if there were nothing else. */
uint64_t forecast_ns(struct forecast *forecast, uint64_t *ret_alone_ns);

/* What so many records take of a device, in all. */
uint64_t forecast_cost(const struct scheduler_rate *rate, uint64_t n_records, uint64_t link_size);
