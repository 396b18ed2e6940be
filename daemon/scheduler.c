/*
 * Scheduler: what each device has in flight of each priority, may have and owes, and what a chunk
 * costs.  Who is first among those that wait: scheduler_turns.c.
 */
#include "daemon/scheduler.h"

#include "daemon/scheduler_turns.h"
#include "proto/queue.h"
#include "proto/util.h"

#include <assert.h>
#include <string.h>

/*
 * Normal work may have this many times as many chunks in flight as bulk: it may not starve the link
 * when its chunks are small, and urgent work has a queue of its own.  Not tuned.
 */
#define NORMAL_DEPTH 8
/* And more, as long as all that it has there is known to take no longer than this, about two bulk
 * chunks: tables of small jobs are done before the front end has put as many more together, and
 * eight clients together had a sixth less. */
#define QUICK_NS 300000

/*
 * What a priority is owed of the time of those above it, per mille.  For bulk 1/19, so that it has
 * a twentieth of all, as promised; for normal 2/17, a tenth of all beside bulk's, because somebody
 * waits for it.  A little more, for what the last chunk before a look is short of.
 */
static const int64_t shares[PRIORITY_COUNT] = {0, 125, 60};
/* Owed so much, a priority has had nothing for long (20 ms of others' time for bulk): its chunks
 * are at the worker, which prefers others.  Not tuned: far above a chunk of 8 MiB. */
#define OWED_MOST_NS INT64_C(1000000)
/* What one had before, when nobody else wanted it, is forgotten up to here: about the longest
 * chunk, whose time counts in whole then. */
#define PREPAID_MOST_NS INT64_C(10000000)

/* Copy in, compute, copy out. */
#define STAGES 3
/* What a worker says beyond this is not believed, nor what would be expected of it: a broken one
 * could have a user wait for ever, or sums run over.  No sensible chunk takes so long. */
#define COST_MOST_NS UINT64_C(10000000000)
/* No chunk is for nothing: about what a launch costs. */
#define COST_LEAST_NS UINT64_C(1000)
/* What is left of older measurements with each new one: it follows a change within some ten chunks.
 * Not tuned. */
#define RATE_KEPT 0.875

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
    loads[PRIORITY_URGENT].bytes_max = n_bytes;
    loads[PRIORITY_NORMAL].chunks_max = MIN(NORMAL_DEPTH * n_chunks, WORK_ENTRIES);
    loads[PRIORITY_NORMAL].bytes_max = n_bytes;
    loads[PRIORITY_BULK].chunks_max = MIN(n_chunks, WORK_ENTRIES);
    loads[PRIORITY_BULK].bytes_max = n_bytes;
    scheduler->capacity[device] = MAX(caps->n_threads, 1u);
    scheduler->ready |= SCHEDULER_DEVICE(device);
}

void scheduler_device_down(struct scheduler *scheduler, uint32_t device)
{
    scheduler->ready &= ~SCHEDULER_DEVICE(device);
}

/* ---- flows ---------------------------------------------------------------------------------- */

static void tell_time(struct scheduler *scheduler, uint64_t now_ns)
{
    scheduler->now_ns = MAX(scheduler->now_ns, now_ns);
}

void scheduler_add(struct scheduler *scheduler, struct flow *flow, uint64_t now_ns)
{
    if (flow->is_queued) {
        return;
    }
    tell_time(scheduler, now_ns);
    flow->is_queued = true;
    scheduler->classes[flow->priority].n_flows++;
    if (!flow->is_held) {
        turns_add(scheduler, flow);
    }
}

void scheduler_remove(struct scheduler *scheduler, struct flow *flow)
{
    if (!flow->is_queued) {
        return;
    }
    flow->is_queued = false;
    scheduler->classes[flow->priority].n_flows--;
    if (!flow->is_held) {
        turns_remove(scheduler, flow);
    }
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* Has the device something of this priority, or is something queued that it may run? */
static bool is_wanted(const struct scheduler *scheduler, uint32_t device, enum priority priority)
{
    return scheduler->loads[device][priority].n_chunks > 0 ||
           (scheduler->classes[priority].lanes & (TURNS_LANE(0) | TURNS_LANE(1 + device))) != 0;
}

/* Does something below this priority wait in vain, and one chunk of what is above that is there? */
static bool is_held_back(const struct scheduler *scheduler, uint32_t device, enum priority priority)
{
    const struct scheduler_load *loads = scheduler->loads[device];
    uint32_t n_above = 0;

    for (enum priority below = 1; below < PRIORITY_COUNT; below++) {
        n_above += loads[below - 1].n_chunks;
        if (below > priority && n_above > 0 && loads[below].owed_ns > OWED_MOST_NS &&
            is_wanted(scheduler, device, below)) {
            return true;
        }
    }
    return false;
}

/* Is this priority owed more than what it has in flight? */
static bool is_owed(const struct scheduler_load *load)
{
    return load->owed_ns > 0 && (uint64_t)load->owed_ns > load->n_ns;
}

static uint64_t estimate(const struct flow *flow, uint32_t device)
{
    const struct scheduler_rate *rate = flow->rate;
    const struct scheduler_measured *here = &rate->devices[device];
    double record_ns = here->n_records > 0 ? (double)here->record_ns : rate->record_ns;
    uint64_t link_ns = MAX(flow->next_link_size / SCHEDULER_LINK_SPEED, COST_LEAST_NS);
    double compute_ns = MIN(record_ns * flow->next_records, (double)COST_MOST_NS);

    return compute_ns > (double)link_ns ? (uint64_t)compute_ns : link_ns;
}

/* May the device have one more chunk of this priority, however large? */
static bool has_room_for_one(const struct scheduler_load *load, const struct flow *flow,
                             uint32_t device, enum priority priority)
{
    return load->n_chunks < load->chunks_max ||
           (priority == PRIORITY_NORMAL && load->n_chunks < WORK_ENTRIES &&
            flow->rate->devices[device].n_records > 0 &&
            load->n_ns + estimate(flow, device) < QUICK_NS);
}

/* May the device have the flow's chunk as this priority as well? */
static bool fits(const struct scheduler *scheduler, uint32_t device, enum priority priority,
                 const struct flow *flow)
{
    const uint64_t size = flow->next_size;
    const struct scheduler_load *loads = scheduler->loads[device];
    const struct scheduler_load *load = &loads[priority];
    uint64_t n_bytes = load->n_bytes;

    for (enum priority above = 0; above < priority && !is_owed(load); above++) {
        n_bytes += loads[above].n_large_bytes;
    }
    if (is_held_back(scheduler, device, priority)) {
        return false;
    }
    return has_room_for_one(load, flow, device, priority) &&
           (n_bytes == 0 || (n_bytes < load->bytes_max && size <= load->bytes_max - n_bytes));
}

static uint32_t chunks_in_flight(const struct scheduler *scheduler, uint32_t device)
{
    const struct scheduler_load *loads = scheduler->loads[device];

    return loads[PRIORITY_URGENT].n_chunks + loads[PRIORITY_NORMAL].n_chunks +
           loads[PRIORITY_BULK].n_chunks;
}

/* When it will have done what it has in flight, a CPU's threads being equally busy. */
static uint64_t free_at_ns(const struct scheduler *scheduler, uint32_t device)
{
    const struct scheduler_load *loads = scheduler->loads[device];

    return (loads[PRIORITY_URGENT].n_ns + loads[PRIORITY_NORMAL].n_ns + loads[PRIORITY_BULK].n_ns) /
           scheduler->capacity[device];
}

/* Of these devices, if any, the one that would have done the flow's chunk first, and when. */
static uint64_t first_to_finish(const struct scheduler *scheduler, const struct flow *flow,
                                uint32_t devices, uint32_t *ret_device)
{
    uint64_t least_ns = UINT64_MAX;

    for (; devices != 0; devices &= devices - 1) {
        uint32_t device = (uint32_t)__builtin_ctz(devices);
        uint64_t finish_ns = free_at_ns(scheduler, device) + estimate(flow, device);

        if (finish_ns < least_ns) {
            least_ns = finish_ns;
            *ret_device = device;
        }
    }
    return least_ns;
}

/*
 * Would the device begin with the chunk before another one, by least_ns, has done it?  Else a job
 * would wait for its last chunks there.  But it may have one in each stage, unless it is so slow
 * that the chunk alone takes longer: else a link has pauses.
 */
static bool is_worth_it(const struct scheduler *scheduler, const struct flow *flow, uint32_t device,
                        uint64_t least_ns)
{
    return free_at_ns(scheduler, device) <= least_ns ||
           (chunks_in_flight(scheduler, device) < STAGES && estimate(flow, device) <= least_ns);
}

/*
 * Which of these devices gets the flow's chunk?  The first to finish it, of those that have room
 * and are worth it; false: the flow waits for those of *ret_awaited.
 */
static bool choose_device(const struct scheduler *scheduler, const struct flow *flow,
                          enum priority priority, uint32_t devices, uint32_t *ret_device,
                          uint32_t *ret_awaited)
{
    uint32_t first = 0, with_room = 0, good = 0; /* the last two are sets */
    uint64_t least_ns = first_to_finish(scheduler, flow, devices, &first);

    for (uint32_t left = devices; left != 0; left &= left - 1) {
        uint32_t device = (uint32_t)__builtin_ctz(left);

        if (fits(scheduler, device, priority, flow)) {
            with_room |= SCHEDULER_DEVICE(device);
            good |= is_worth_it(scheduler, flow, device, least_ns) ? SCHEDULER_DEVICE(device) : 0;
        }
    }
    *ret_awaited = with_room != 0 ? SCHEDULER_DEVICE(first) : devices;
    first_to_finish(scheduler, flow, good, ret_device);
    return good != 0;
}

/* Devices that may have a chunk of the flow's, if they have room. */
static uint32_t free_devices(const struct flow *flow)
{
    return flow->rate->is_known ? flow->devices : flow->devices & ~flow->measuring;
}

static struct flow *first_of(const struct scheduler_class *class, uint32_t lane)
{
    return turns_first_flow(CONTAINER_OF(class->heaps[lane].top, struct scheduler_turn, node));
}

/*
 * A flow that is being measured on some devices while the others are full: the first ones have
 * room, perhaps, that those behind it in its lane may use.  It is out of their way until its chunk
 * comes back.
 */
static bool gives_way(struct scheduler *scheduler, struct flow *flow, uint32_t among)
{
    if (flow->rate->is_known || flow->measuring == 0 || among != scheduler->ready) {
        return false;
    }
    flow->is_held = true;
    turns_remove(scheduler, flow);
    return true;
}

/* Of this class, on those of these devices that no flow before it waits for. */
static struct flow *next_of_class(struct scheduler *scheduler, enum priority priority,
                                  uint32_t among, struct scheduler_place *ret_place)
{
    struct scheduler_class *class = &scheduler->classes[priority];
    uint64_t lanes = class->lanes;
    uint32_t open = among;

    while (lanes != 0 && open != 0) {
        uint32_t lane = turns_first_lane(class, lanes);
        struct flow *flow = first_of(class, lane);
        uint32_t awaited;

        if (priority == PRIORITY_URGENT && !turns_stay_urgent(scheduler, flow->user)) {
            lanes &= class->lanes;
            continue;
        }
        if (choose_device(scheduler, flow, priority, free_devices(flow) & open, &ret_place->device,
                          &awaited)) {
            ret_place->priority = priority;
            return flow;
        }
        if (gives_way(scheduler, flow, among)) {
            lanes &= class->lanes;
            continue;
        }
        open &= ~awaited;
        lanes &= ~TURNS_LANE(lane);
    }
    return NULL;
}

/* Ready devices that owe this priority something. */
static uint32_t debtors(const struct scheduler *scheduler, enum priority priority)
{
    uint32_t set = 0;

    for (uint32_t devices = scheduler->ready; devices != 0; devices &= devices - 1) {
        uint32_t device = (uint32_t)__builtin_ctz(devices);

        set |= is_owed(&scheduler->loads[device][priority]) ? SCHEDULER_DEVICE(device) : 0;
    }
    return set;
}

struct flow *scheduler_next(struct scheduler *scheduler, uint64_t now_ns,
                            struct scheduler_place *ret_place)
{
    struct flow *flow = NULL;

    tell_time(scheduler, now_ns);
    turns_promote(scheduler);
    for (enum priority priority = PRIORITY_BULK; priority > PRIORITY_URGENT && flow == NULL;
         priority--) {
        if (scheduler->classes[priority].lanes != 0) {
            flow = next_of_class(scheduler, priority, debtors(scheduler, priority), ret_place);
        }
    }
    for (enum priority priority = 0; priority < PRIORITY_COUNT && flow == NULL; priority++) {
        flow = next_of_class(scheduler, priority, scheduler->ready, ret_place);
    }
    return flow;
}

/* ---- what a chunk costs --------------------------------------------------------------------- */

static struct scheduler_load *load_of(struct scheduler *scheduler,
                                      const struct scheduler_place *place)
{
    return &scheduler->loads[place->device][place->priority];
}

/* By records, not by chunks: what a chunk costs besides its records would be all that a chunk of
 * one record says of them. */
static void measure(struct scheduler_rate *rate, uint32_t device, uint32_t n_records,
                    uint64_t device_ns)
{
    struct scheduler_measured *here = &rate->devices[device];

    if (here->n_records == 0) { /* it begins as elsewhere: its first chunk may be a tiny one */
        here->n_ns = (float)rate->n_ns;
        here->n_records = (float)rate->n_records;
    }
    here->n_ns = here->n_ns * (float)RATE_KEPT + (float)device_ns;
    here->n_records = here->n_records * (float)RATE_KEPT + (float)n_records;
    here->record_ns = here->n_ns / here->n_records;
    rate->n_ns = rate->n_ns * RATE_KEPT + (double)device_ns;
    rate->n_records = rate->n_records * RATE_KEPT + n_records;
    rate->record_ns = rate->n_ns / rate->n_records;
    rate->is_known = true;
}

/* What the user pays at issue, the rest when it was measured: who joins the others while one of
 * them has paid for what it will not get would be behind them for as long. */
static uint64_t paid_ns(uint64_t cost_ns)
{
    return MIN(cost_ns, SCHEDULER_CATCH_UP);
}

void scheduler_issued(struct scheduler *scheduler, struct flow *flow,
                      const struct scheduler_place *place, struct scheduler_charge *ret_charge)
{
    struct scheduler_load *load = load_of(scheduler, place);
    uint64_t cost_ns = estimate(flow, place->device);

    assert(flow->is_queued && !flow->is_held);
    *ret_charge = (struct scheduler_charge){
        .place = *place,
        .flow = flow,
        .size = flow->next_size,
        .cost_ns = cost_ns,
        .n_records = flow->next_records,
    };
    load->n_chunks++;
    load->n_bytes += flow->next_size;
    load->n_large_bytes += flow->next_size > SCHEDULER_SMALL ? flow->next_size : 0;
    load->n_ns += cost_ns;
    flow->user->n_bytes += flow->next_size;
    flow->user->n_in_flight++; /* before it may have no flows, so that it stays active */
    if (!flow->rate->is_known && flow->next_records > 0) {
        flow->measuring |= SCHEDULER_DEVICE(place->device);
        flow->is_held = (free_devices(flow) & scheduler->ready) == 0;
    }
    if (flow->is_held) {
        turns_remove(scheduler, flow);
    } else {
        turns_go_on(scheduler, flow);
    }
    flow->user->unpaid_ns += cost_ns - paid_ns(cost_ns);
    turns_pay(scheduler, flow->user, paid_ns(cost_ns));
    if (place->priority == PRIORITY_URGENT) {
        turns_pay_urgent(scheduler, flow->user, paid_ns(cost_ns));
    }
}

/* The chunk cost more or less than was thought. */
static void correct(struct scheduler *scheduler, const struct scheduler_charge *charge,
                    uint64_t device_ns)
{
    struct scheduler_user *user = charge->flow->user;
    int64_t more_ns = (int64_t)(device_ns - paid_ns(charge->cost_ns));

    if (charge->n_records > 0) {
        measure(charge->flow->rate, charge->place.device, charge->n_records, device_ns);
    }
    if (charge->place.priority == PRIORITY_URGENT) {
        turns_correct_urgent(user, more_ns);
    }
    turns_correct(scheduler, user, more_ns);
}

/* So much of the device's time went to this priority: those below it that want some are owed their
 * share, and it was paid. */
static void settle_shares(struct scheduler *scheduler, const struct scheduler_place *place,
                          int64_t device_ns)
{
    struct scheduler_load *loads = scheduler->loads[place->device];
    struct scheduler_load *load = &loads[place->priority];

    for (enum priority below = place->priority + 1; below < PRIORITY_COUNT; below++) {
        if (is_wanted(scheduler, place->device, below)) {
            loads[below].owed_ns += device_ns * shares[below] / 1000;
        } else {
            loads[below].owed_ns = MIN(loads[below].owed_ns, INT64_C(0));
        }
    }
    load->owed_ns = MAX(load->owed_ns - device_ns, -PREPAID_MOST_NS);
}

static void settle_use(struct scheduler *scheduler, const struct scheduler_charge *charge,
                       uint64_t device_ns)
{
    settle_shares(scheduler, &charge->place, (int64_t)device_ns);
    load_of(scheduler, &charge->place)->used_ns += device_ns;
    charge->flow->user->had_ns += device_ns;
    charge->flow->user->n_bytes -= charge->size;
    charge->flow->user->unpaid_ns -= charge->cost_ns - paid_ns(charge->cost_ns);
}

/* How much is left of what was: straight to nothing, but in many steps as an exponential does. */
static double kept(const struct scheduler_usage *usage, uint64_t now_ns)
{
    double since_ns = (double)(now_ns - usage->at_ns);

    return since_ns < SCHEDULER_LATELY ? 1 - since_ns / SCHEDULER_LATELY : 0;
}

double scheduler_usage_rate(const struct scheduler_usage *usage, uint64_t now_ns)
{
    double part = kept(usage, now_ns);
    double in_ns = usage->in_ns * part + (double)(now_ns - usage->at_ns);

    return part > 0 && in_ns > 0 ? usage->ns * part / in_ns : 0;
}

/* Who begins is taken for one who goes on like that. */
static void note_usage(struct scheduler_usage *usage, uint64_t now_ns, uint64_t device_ns)
{
    double part = kept(usage, now_ns);
    double in_ns = part > 0 ? usage->in_ns * part + (double)(now_ns - usage->at_ns) : 0;

    usage->ns = usage->ns * part + (double)device_ns;
    usage->in_ns = MAX(in_ns, (double)device_ns);
    usage->at_ns = now_ns;
}

void scheduler_done(struct scheduler *scheduler, const struct scheduler_charge *charge,
                    uint64_t device_ns)
{
    struct scheduler_load *load = load_of(scheduler, &charge->place);
    struct flow *flow = charge->flow;

    assert(load->n_chunks > 0);
    device_ns = MIN(device_ns, COST_MOST_NS);
    load->n_chunks--;
    load->n_bytes -= charge->size;
    load->n_large_bytes -= charge->size > SCHEDULER_SMALL ? charge->size : 0;
    load->n_ns -= charge->cost_ns;
    settle_use(scheduler, charge, device_ns > 0 ? device_ns : charge->cost_ns);
    if (device_ns > 0) {
        correct(scheduler, charge, device_ns);
        note_usage(&scheduler->usage[charge->place.priority], scheduler->now_ns, device_ns);
        note_usage(&flow->user->usage[charge->place.priority], scheduler->now_ns, device_ns);
    }
    flow->measuring &= ~SCHEDULER_DEVICE(charge->place.device);
    if (flow->is_held) {
        flow->is_held = false;
        if (flow->is_queued) {
            turns_add(scheduler, flow);
        }
    }
    flow->user->n_in_flight--;
    scheduler->n_active -= flow->user->n_in_flight == 0 && flow->user->n_turns == 0;
}

uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority)
{
    uint32_t n_chunks = 0;

    for (uint32_t device = 0; device < LIMIT_DEVICES; device++) {
        n_chunks += scheduler->loads[device][priority].n_chunks;
    }
    return n_chunks;
}
