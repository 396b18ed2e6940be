/*
 * * Scheduler: for each priority a heap of users, by the device time that they had; for each user a
 * list of flows in the order in which they are due, which is that of their coming, and a heap of
 * those that are due before their turn; and what each device has in flight of each priority.
 *
 * A flow that only one device may run lies in that device's lane, so that it is not in the way of
 * others while the device is full: a decision looks at the first of each lane.
 */
#include "daemon/scheduler.h"

#include "proto/queue.h"
#include "proto/util.h"

#include <assert.h>
#include <string.h>

/*
 * Normal work may have this many times as many chunks in flight as bulk: it may not starve the link
 * when its chunks are small, and urgent work has a queue of its own.  Not tuned.
 */
#define NORMAL_DEPTH 8

/*
 * What a priority is owed of the time of those above it, per mille.  For bulk 1/19, so that it has
 * a twentieth of all, as promised; for normal 2/17, a tenth of all beside bulk's, because somebody
 * waits for it.  A little more, for what the last chunk before a look is short of.
 */
static const int64_t shares[PRIORITY_COUNT] = {0, 120, 55};
/* Owed so much, a priority has had nothing for long (20 ms of others' time for bulk): its chunks
 * are at the worker, which prefers others.  Not tuned: far above a chunk of 8 MiB. */
#define OWED_MOST_NS INT64_C(1000000)
/* What one had before, when nobody else wanted it, is forgotten up to here: about the longest
 * chunk, whose time counts in whole then. */
#define PREPAID_MOST_NS INT64_C(10000000)

/* Bytes in a ns each way, with both directions busy: 47 to 51 (one H200, PCIe 5).  A slower link,
 * or a CPU, shows in the measured rates. */
#define LINK_SPEED 50
/* No chunk is for nothing: about what a launch costs. */
#define COST_LEAST_NS UINT64_C(1000)
/* Corrections wait for the next charge up to here, half a chunk of 4 MiB: it saves a change of the
 * heaps for each chunk.  Not tuned. */
#define CORRECTION_MOST_NS 40000
/* Weight of the newest measurement: follows a change within some ten chunks.  Not tuned. */
#define RATE_WEIGHT 0.125

#define LANE(i) (UINT64_C(1) << (i))

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
    scheduler->ready |= SCHEDULER_DEVICE(device);
}

void scheduler_device_down(struct scheduler *scheduler, uint32_t device)
{
    scheduler->ready &= ~SCHEDULER_DEVICE(device);
}

/* ---- users ---------------------------------------------------------------------------------- */

static struct scheduler_turn *turn_of(struct heap_node *node)
{
    return CONTAINER_OF(node, struct scheduler_turn, node);
}

/* Of these lanes the one whose user had the least; lanes is not empty. */
static uint32_t first_lane(const struct scheduler_class *class, uint64_t lanes)
{
    uint32_t best = (uint32_t)__builtin_ctzll(lanes);

    while ((lanes &= lanes - 1) != 0) {
        uint32_t lane = (uint32_t)__builtin_ctzll(lanes);

        if (heap_is_before(class->heaps[lane].top, class->heaps[best].top)) {
            best = lane;
        }
    }
    return best;
}

/* The least device time that a user of this class had; it has some. */
static uint64_t least_of(const struct scheduler_class *class)
{
    return class->heaps[first_lane(class, class->lanes)].top->key;
}

static uint64_t least_of_all(const struct scheduler *scheduler)
{
    uint64_t least = UINT64_MAX;

    if (scheduler->n_users == 0) {
        return scheduler->used_ns;
    }
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        if (scheduler->classes[priority].lanes != 0) {
            least = MIN(least, least_of(&scheduler->classes[priority]));
        }
    }
    return least;
}

/* A user that had no flows has one of this priority: it joins where the others are. */
static void join(struct scheduler *scheduler, struct scheduler_user *user, enum priority priority)
{
    const struct scheduler_class *class = &scheduler->classes[priority];
    uint64_t least = class->lanes != 0 ? least_of(class) : least_of_all(scheduler);

    if (user->used_ns + SCHEDULER_CATCH_UP < least) {
        user->used_ns = least - SCHEDULER_CATCH_UP;
    }
}

/* NULL: it has none. */
static struct flow *first_flow(const struct scheduler_turn *turn)
{
    struct heap_node *top = turn->hurried.top;

    if (top != NULL && (turn->first == NULL || top->key < turn->first->due_ns)) {
        return CONTAINER_OF(top, struct flow, node);
    }
    return turn->first;
}

/* Its device time, or the first of its flows, changed. */
static void change_keys(struct scheduler *scheduler, struct scheduler_user *user)
{
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        for (uint64_t lanes = user->lanes[priority]; lanes != 0; lanes &= lanes - 1) {
            uint32_t lane = (uint32_t)__builtin_ctzll(lanes);
            struct scheduler_turn *turn = &user->turns[priority][lane];

            heap_change(&scheduler->classes[priority].heaps[lane], &turn->node, user->used_ns,
                        first_flow(turn)->due_ns);
        }
    }
}

/* What was too little or too much counts now. */
static void settle(struct scheduler_user *user)
{
    if (user->correction_ns < 0) {
        user->used_ns -= MIN(user->used_ns, (uint64_t)-user->correction_ns);
    } else {
        user->used_ns += (uint64_t)user->correction_ns;
    }
    user->correction_ns = 0;
}

static void pay(struct scheduler *scheduler, struct scheduler_user *user, uint64_t cost_ns)
{
    scheduler->used_ns = user->used_ns;
    if (scheduler->n_users > 1) {
        user->used_ns = MIN(user->used_ns, least_of_all(scheduler) + SCHEDULER_MEMORY);
    }
    settle(user);
    user->used_ns += cost_ns;
    change_keys(scheduler, user);
}

/* ---- flows ---------------------------------------------------------------------------------- */

static uint32_t lane_of(const struct flow *flow)
{
    bool is_one = (flow->devices & (flow->devices - 1)) == 0 && flow->devices != 0;

    return is_one ? 1 + (uint32_t)__builtin_ctz(flow->devices) : 0;
}

static struct scheduler_turn *turn_for(const struct flow *flow)
{
    return &flow->user->turns[flow->priority][lane_of(flow)];
}

/* When is its next chunk due?  Those of the list are due one after the other, if only by a ns. */
static void append(struct scheduler *scheduler, struct scheduler_turn *turn, struct flow *flow)
{
    uint64_t due_ns = MAX(scheduler->now_ns + SCHEDULER_DUE, scheduler->last_due_ns + 1);

    flow->is_hurried = flow->deadline_ns != 0 && flow->deadline_ns < due_ns;
    if (flow->is_hurried) {
        flow->due_ns = flow->deadline_ns;
        flow->node.key = flow->deadline_ns;
        flow->node.tie = scheduler->last_due_ns;
        heap_add(&turn->hurried, &flow->node);
        return;
    }
    flow->due_ns = due_ns;
    scheduler->last_due_ns = due_ns;
    flow->next = NULL;
    flow->previous = turn->last;
    *(turn->last != NULL ? &turn->last->next : &turn->first) = flow;
    turn->last = flow;
}

static void take_out(struct scheduler_turn *turn, struct flow *flow)
{
    if (flow->is_hurried) {
        heap_remove(&turn->hurried, &flow->node);
        return;
    }
    *(flow->next != NULL ? &flow->next->previous : &turn->last) = flow->previous;
    *(flow->previous != NULL ? &flow->previous->next : &turn->first) = flow->next;
}

/* Its first flow may be another one. */
static void note_first(struct heap *heap, struct scheduler_turn *turn)
{
    uint64_t due_ns = first_flow(turn)->due_ns;

    if (turn->node.tie != due_ns) {
        heap_change(heap, &turn->node, turn->node.key, due_ns);
    }
}

static void link_flow(struct scheduler *scheduler, struct flow *flow)
{
    struct scheduler_class *class = &scheduler->classes[flow->priority];
    struct scheduler_user *user = flow->user;
    uint32_t lane = lane_of(flow);
    struct scheduler_turn *turn = turn_for(flow);

    append(scheduler, turn, flow);
    if (user->lanes[flow->priority] & LANE(lane)) {
        note_first(&class->heaps[lane], turn);
        return;
    }
    if (user->n_turns++ == 0) {
        join(scheduler, user, flow->priority);
        scheduler->n_users++;
    }
    turn->node.key = user->used_ns;
    turn->node.tie = flow->due_ns;
    heap_add(&class->heaps[lane], &turn->node);
    class->lanes |= LANE(lane);
    user->lanes[flow->priority] |= LANE(lane);
}

static void unlink_flow(struct scheduler *scheduler, struct flow *flow)
{
    struct scheduler_class *class = &scheduler->classes[flow->priority];
    uint32_t lane = lane_of(flow);
    struct scheduler_turn *turn = turn_for(flow);

    take_out(turn, flow);
    if (first_flow(turn) != NULL) {
        note_first(&class->heaps[lane], turn);
        return;
    }
    heap_remove(&class->heaps[lane], &turn->node);
    flow->user->lanes[flow->priority] &= ~LANE(lane);
    scheduler->n_users -= --flow->user->n_turns == 0;
    if (class->heaps[lane].top == NULL) {
        class->lanes &= ~LANE(lane);
    }
}

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
        link_flow(scheduler, flow);
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
        unlink_flow(scheduler, flow);
    }
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* Has the device something of this priority, or is something queued that it may run? */
static bool is_wanted(const struct scheduler *scheduler, uint32_t device, enum priority priority)
{
    return scheduler->loads[device][priority].n_chunks > 0 ||
           (scheduler->classes[priority].lanes & (LANE(0) | LANE(1 + device))) != 0;
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

/* May the device have a chunk of this priority and size as well? */
static bool fits(const struct scheduler *scheduler, uint32_t device, enum priority priority,
                 uint64_t size)
{
    const struct scheduler_load *loads = scheduler->loads[device];
    const struct scheduler_load *load = &loads[priority];
    uint64_t n_bytes = load->n_bytes;

    for (enum priority above = 0; above < priority && !is_owed(load); above++) {
        n_bytes += loads[above].n_large_bytes;
    }
    if (is_held_back(scheduler, device, priority)) {
        return false;
    }
    return load->n_chunks < load->chunks_max &&
           (n_bytes == 0 || (n_bytes < load->bytes_max && size <= load->bytes_max - n_bytes));
}

static uint64_t ns_in_flight(const struct scheduler *scheduler, uint32_t device)
{
    uint64_t n_ns = 0;

    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        n_ns += scheduler->loads[device][priority].n_ns;
    }
    return n_ns;
}

/* Of these devices the least loaded that takes the flow's chunk; false: none does. */
static bool choose_device(const struct scheduler *scheduler, const struct flow *flow,
                          enum priority priority, uint32_t devices, uint32_t *ret_device)
{
    uint64_t least = UINT64_MAX;
    bool is_found = false;

    for (; devices != 0; devices &= devices - 1) {
        uint32_t device = (uint32_t)__builtin_ctz(devices);

        if (fits(scheduler, device, priority, flow->next_size)) {
            uint64_t n_ns = ns_in_flight(scheduler, device);

            if (!is_found || n_ns < least) {
                is_found = true;
                least = n_ns;
                *ret_device = device;
            }
        }
    }
    return is_found;
}

/* Devices that may have a chunk of the flow's, if they have room. */
static uint32_t free_devices(const struct flow *flow)
{
    return flow->rate->is_known ? flow->devices : flow->devices & ~flow->measuring;
}

/* Of this class, on those of the open devices that no flow before it waits for. */
static struct flow *next_of_class(struct scheduler *scheduler, enum priority priority,
                                  uint32_t open, struct scheduler_place *ret_place)
{
    struct scheduler_class *class = &scheduler->classes[priority];
    uint64_t lanes = class->lanes;

    while (lanes != 0 && open != 0) {
        uint32_t lane = first_lane(class, lanes);
        struct flow *flow = first_flow(turn_of(class->heaps[lane].top));

        if (choose_device(scheduler, flow, priority, free_devices(flow) & open,
                          &ret_place->device)) {
            ret_place->priority = priority;
            return flow;
        }
        open &= ~free_devices(flow);
        lanes &= ~LANE(lane);
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

static uint64_t estimate(const struct flow *flow)
{
    uint64_t link_ns = MAX(flow->next_link_size / LINK_SPEED, COST_LEAST_NS);
    double compute_ns = flow->rate->record_ns * flow->next_records;

    return compute_ns > (double)link_ns ? (uint64_t)compute_ns : link_ns;
}

static void measure(struct scheduler_rate *rate, uint32_t n_records, uint64_t device_ns)
{
    double record_ns = (double)device_ns / n_records;

    rate->record_ns += (record_ns - rate->record_ns) * (rate->is_known ? RATE_WEIGHT : 1);
    rate->is_known = true;
}

void scheduler_issued(struct scheduler *scheduler, struct flow *flow,
                      const struct scheduler_place *place, struct scheduler_charge *ret_charge)
{
    struct scheduler_load *load = load_of(scheduler, place);
    uint64_t cost_ns = estimate(flow);

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
    if (!flow->rate->is_known && flow->next_records > 0) {
        flow->measuring |= SCHEDULER_DEVICE(place->device);
        flow->is_held = (free_devices(flow) & scheduler->ready) == 0;
    }
    if (flow->is_held) {
        unlink_flow(scheduler, flow);
    } else {
        take_out(turn_for(flow), flow);
        append(scheduler, turn_for(flow), flow);
    }
    pay(scheduler, flow->user, cost_ns);
}

/* The chunk cost more or less than was thought. */
static void correct(struct scheduler *scheduler, const struct scheduler_charge *charge,
                    uint64_t device_ns)
{
    struct scheduler_user *user = charge->flow->user;

    if (charge->n_records > 0) {
        measure(charge->flow->rate, charge->n_records, device_ns);
    }
    user->correction_ns += (int64_t)(device_ns - charge->cost_ns);
    if (user->correction_ns > CORRECTION_MOST_NS || user->correction_ns < -CORRECTION_MOST_NS) {
        settle(user);
        change_keys(scheduler, user);
    }
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

void scheduler_done(struct scheduler *scheduler, const struct scheduler_charge *charge,
                    uint64_t device_ns)
{
    struct scheduler_load *load = load_of(scheduler, &charge->place);
    struct flow *flow = charge->flow;

    assert(load->n_chunks > 0);
    load->n_chunks--;
    load->n_bytes -= charge->size;
    load->n_large_bytes -= charge->size > SCHEDULER_SMALL ? charge->size : 0;
    load->n_ns -= charge->cost_ns;
    settle_shares(scheduler, &charge->place,
                  (int64_t)(device_ns > 0 ? device_ns : charge->cost_ns));
    if (device_ns > 0) {
        correct(scheduler, charge, device_ns);
    }
    flow->measuring &= ~SCHEDULER_DEVICE(charge->place.device);
    if (flow->is_held) {
        flow->is_held = false;
        if (flow->is_queued) {
            link_flow(scheduler, flow);
        }
    }
}

uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority)
{
    uint32_t n_chunks = 0;

    for (uint32_t device = 0; device < LIMIT_DEVICES; device++) {
        n_chunks += scheduler->loads[device][priority].n_chunks;
    }
    return n_chunks;
}
