/*
 * Scheduler: three lists of flows and what each priority has in flight.
 */
#include "daemon/scheduler.h"

#include "proto/queue.h"
#include "proto/util.h"

#include <assert.h>
#include <string.h>

/*
 * Normal work may be this many times as deep as bulk: it may not starve the link when its chunks
 * are small, and urgent work has a queue of its own.  Not tuned.
 */
#define NORMAL_DEPTH 8

void scheduler_init(struct scheduler *scheduler)
{
    memset(scheduler, 0, sizeof(*scheduler));
}

void scheduler_configure(struct scheduler *scheduler, const struct worker_caps *caps)
{
    uint32_t n_chunks = MAX(caps->bulk_chunks, 1u);
    uint64_t n_bytes = MAX(caps->bulk_bytes, UINT64_C(1));

    scheduler->classes[PRIORITY_URGENT].limit =
        (struct scheduler_limit){.n_chunks = WORK_ENTRIES, .n_bytes = UINT64_MAX};
    scheduler->classes[PRIORITY_NORMAL].limit = (struct scheduler_limit){
        .n_chunks = MIN(NORMAL_DEPTH * n_chunks, WORK_ENTRIES), .n_bytes = NORMAL_DEPTH * n_bytes};
    scheduler->classes[PRIORITY_BULK].limit =
        (struct scheduler_limit){.n_chunks = MIN(n_chunks, WORK_ENTRIES), .n_bytes = n_bytes};
}

void scheduler_add(struct scheduler *scheduler, struct flow *flow)
{
    if (flow->is_queued) {
        return;
    }
    flow->next = NULL;
    flow->previous = scheduler->classes[flow->priority].last;
    if (flow->previous != NULL) {
        flow->previous->next = flow;
    } else {
        scheduler->classes[flow->priority].first = flow;
    }
    scheduler->classes[flow->priority].last = flow;
    scheduler->classes[flow->priority].n_flows++;
    flow->is_queued = true;
}

void scheduler_remove(struct scheduler *scheduler, struct flow *flow)
{
    if (!flow->is_queued) {
        return;
    }
    if (flow->previous != NULL) {
        flow->previous->next = flow->next;
    } else {
        scheduler->classes[flow->priority].first = flow->next;
    }
    if (flow->next != NULL) {
        flow->next->previous = flow->previous;
    } else {
        scheduler->classes[flow->priority].last = flow->previous;
    }
    scheduler->classes[flow->priority].n_flows--;
    flow->is_queued = false;
}

struct flow *scheduler_next(const struct scheduler *scheduler)
{
    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        struct flow *flow = scheduler->classes[priority].first;
        const struct scheduler_limit *limit = &scheduler->classes[priority].limit;
        uint32_t n_chunks = scheduler->classes[priority].n_chunks;
        uint64_t n_bytes = scheduler->classes[priority].n_bytes;

        if (flow == NULL) {
            continue;
        }
        if (n_chunks == 0 || (n_chunks < limit->n_chunks && n_bytes < limit->n_bytes &&
                              flow->next_size <= limit->n_bytes - n_bytes)) {
            return flow;
        }
    }
    return NULL;
}

void scheduler_issued(struct scheduler *scheduler, struct flow *flow, uint64_t size)
{
    scheduler->classes[flow->priority].n_chunks++;
    scheduler->classes[flow->priority].n_bytes += size;
    if (flow->is_queued) {
        scheduler_remove(scheduler, flow);
        scheduler_add(scheduler, flow);
    }
}

void scheduler_done(struct scheduler *scheduler, enum priority priority, uint64_t size)
{
    assert(scheduler->classes[priority].n_chunks > 0);
    scheduler->classes[priority].n_chunks--;
    scheduler->classes[priority].n_bytes -= size;
}
