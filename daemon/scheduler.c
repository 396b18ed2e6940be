/*
 * Scheduler: three lists of flows, and what each device has in flight of each priority.
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

void scheduler_device_up(struct scheduler *scheduler, uint32_t device,
                         const struct worker_caps *caps)
{
    struct scheduler_load *loads = scheduler->loads[device];
    uint32_t n_chunks = MAX(caps->bulk_chunks, 1u);
    uint64_t n_bytes = MAX(caps->bulk_bytes, UINT64_C(1));

    loads[PRIORITY_URGENT].chunks_max = WORK_ENTRIES;
    loads[PRIORITY_URGENT].bytes_max = UINT64_MAX;
    loads[PRIORITY_NORMAL].chunks_max = MIN(NORMAL_DEPTH * n_chunks, WORK_ENTRIES);
    loads[PRIORITY_NORMAL].bytes_max = NORMAL_DEPTH * n_bytes;
    loads[PRIORITY_BULK].chunks_max = MIN(n_chunks, WORK_ENTRIES);
    loads[PRIORITY_BULK].bytes_max = n_bytes;
    scheduler->ready |= SCHEDULER_DEVICE(device);
}

void scheduler_device_down(struct scheduler *scheduler, uint32_t device)
{
    scheduler->ready &= ~SCHEDULER_DEVICE(device);
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

/* May the device of this load have a chunk of this size as well? */
static bool fits(const struct scheduler_load *load, uint64_t size)
{
    return load->n_chunks == 0 ||
           (load->n_chunks < load->chunks_max && load->n_bytes < load->bytes_max &&
            size <= load->bytes_max - load->n_bytes);
}

static uint64_t bytes_in_flight(const struct scheduler *scheduler, uint32_t device)
{
    uint64_t n_bytes = 0;

    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        n_bytes += scheduler->loads[device][priority].n_bytes;
    }
    return n_bytes;
}

/* Of these devices the least loaded that takes the flow's chunk; false: none does. */
static bool choose_device(const struct scheduler *scheduler, const struct flow *flow,
                          uint32_t devices, uint32_t *ret_device)
{
    uint64_t least = UINT64_MAX;
    bool is_found = false;

    for (; devices != 0; devices &= devices - 1) {
        uint32_t device = (uint32_t)__builtin_ctz(devices);

        if (fits(&scheduler->loads[device][flow->priority], flow->next_size)) {
            uint64_t n_bytes = bytes_in_flight(scheduler, device);

            if (!is_found || n_bytes < least) {
                is_found = true;
                least = n_bytes;
                *ret_device = device;
            }
        }
    }
    return is_found;
}

struct flow *scheduler_next(struct scheduler *scheduler, struct scheduler_place *ret_place)
{
    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        uint32_t open = scheduler->ready; /* devices that no flow so far waits for */

        for (struct flow *flow = scheduler->classes[priority].first; flow != NULL && open != 0;
             flow = flow->next) {
            if (choose_device(scheduler, flow, flow->devices & open, &ret_place->device)) {
                ret_place->priority = priority;
                return flow;
            }
            open &= ~flow->devices;
        }
    }
    return NULL;
}

static struct scheduler_load *load_of(struct scheduler *scheduler,
                                      const struct scheduler_place *place)
{
    return &scheduler->loads[place->device][place->priority];
}

void scheduler_issued(struct scheduler *scheduler, struct flow *flow,
                      const struct scheduler_place *place, struct scheduler_charge *ret_charge)
{
    struct scheduler_load *load = load_of(scheduler, place);

    *ret_charge = (struct scheduler_charge){.place = *place, .size = flow->next_size};
    load->n_chunks++;
    load->n_bytes += flow->next_size;
    if (flow->is_queued) {
        scheduler_remove(scheduler, flow);
        scheduler_add(scheduler, flow);
    }
}

void scheduler_done(struct scheduler *scheduler, const struct scheduler_charge *charge)
{
    struct scheduler_load *load = load_of(scheduler, &charge->place);

    assert(load->n_chunks > 0);
    load->n_chunks--;
    load->n_bytes -= charge->size;
}

uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority)
{
    uint32_t n_chunks = 0;

    for (uint32_t device = 0; device < LIMIT_DEVICES; device++) {
        n_chunks += scheduler->loads[device][priority].n_chunks;
    }
    return n_chunks;
}
