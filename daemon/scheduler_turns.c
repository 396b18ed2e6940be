/*
 * Scheduler's turns: for each priority a heap of users, by the device time that they had; for each
 * user a list of flows in the order in which they are due, which is that of their coming, and a
 * heap of those that are due before their turn.
 *
 * A flow that only one device may run lies in that device's lane, so that it is not in the way of
 * others while the device is full: a decision looks at the first of each lane.
 */
#include "daemon/scheduler_turns.h"

#include "proto/util.h"

/* Corrections wait for the next charge up to here, half a chunk of 4 MiB: it saves a change of the
 * heaps for each chunk.  Not tuned. */
#define CORRECTION_MOST_NS 40000

/* ---- users ---------------------------------------------------------------------------------- */

/* Of these lanes the one whose user had the least; lanes is not empty. */
uint32_t turns_first_lane(const struct scheduler_class *class, uint64_t lanes)
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
    return class->heaps[turns_first_lane(class, class->lanes)].top->key;
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

/* Where its flows of this priority are. */
static struct scheduler_class *class_for(struct scheduler *scheduler,
                                         const struct scheduler_user *user, enum priority priority)
{
    bool is_demoted = priority == PRIORITY_URGENT && user->is_demoted;

    return &scheduler->classes[is_demoted ? PRIORITY_NORMAL : priority];
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
struct flow *turns_first_flow(const struct scheduler_turn *turn)
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

            heap_change(&class_for(scheduler, user, priority)->heaps[lane], &turn->node,
                        user->used_ns, turns_first_flow(turn)->due_ns);
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

void turns_pay(struct scheduler *scheduler, struct scheduler_user *user, uint64_t cost_ns)
{
    scheduler->used_ns = user->used_ns;
    if (scheduler->n_users > 1) {
        user->used_ns = MIN(user->used_ns, least_of_all(scheduler) + SCHEDULER_MEMORY);
    }
    settle(user);
    user->used_ns += cost_ns;
    change_keys(scheduler, user);
}

void turns_correct(struct scheduler *scheduler, struct scheduler_user *user, int64_t more_ns)
{
    user->correction_ns += more_ns;
    if (user->correction_ns > CORRECTION_MOST_NS || user->correction_ns < -CORRECTION_MOST_NS) {
        settle(user);
        change_keys(scheduler, user);
    }
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
    uint64_t due_ns = turns_first_flow(turn)->due_ns;

    if (turn->node.tie != due_ns) {
        heap_change(heap, &turn->node, turn->node.key, due_ns);
    }
}

static void add_turn(struct scheduler_class *class, uint32_t lane, struct scheduler_turn *turn)
{
    heap_add(&class->heaps[lane], &turn->node);
    class->lanes |= TURNS_LANE(lane);
}

static void remove_turn(struct scheduler_class *class, uint32_t lane, struct scheduler_turn *turn)
{
    heap_remove(&class->heaps[lane], &turn->node);
    if (class->heaps[lane].top == NULL) {
        class->lanes &= ~TURNS_LANE(lane);
    }
}

void turns_add(struct scheduler *scheduler, struct flow *flow)
{
    struct scheduler_user *user = flow->user;
    struct scheduler_class *class = class_for(scheduler, user, flow->priority);
    uint32_t lane = lane_of(flow);
    struct scheduler_turn *turn = turn_for(flow);

    append(scheduler, turn, flow);
    if (user->lanes[flow->priority] & TURNS_LANE(lane)) {
        note_first(&class->heaps[lane], turn);
        return;
    }
    if (user->n_turns++ == 0) {
        join(scheduler, user, flow->priority);
        scheduler->n_users++;
        scheduler->n_active += user->n_in_flight == 0;
    }
    user->lanes[flow->priority] |= TURNS_LANE(lane);
    turn->node.key = user->used_ns;
    turn->node.tie = flow->due_ns;
    add_turn(class, lane, turn);
}

void turns_remove(struct scheduler *scheduler, struct flow *flow)
{
    struct scheduler_user *user = flow->user;
    struct scheduler_class *class = class_for(scheduler, user, flow->priority);
    uint32_t lane = lane_of(flow);
    struct scheduler_turn *turn = turn_for(flow);

    take_out(turn, flow);
    if (turns_first_flow(turn) != NULL) {
        note_first(&class->heaps[lane], turn);
        return;
    }
    remove_turn(class, lane, turn);
    user->lanes[flow->priority] &= ~TURNS_LANE(lane);
    if (--user->n_turns == 0) {
        scheduler->n_users--;
        scheduler->n_active -= user->n_in_flight == 0;
    }
    if (user->is_demoted && user->lanes[PRIORITY_URGENT] == 0) {
        heap_remove(&scheduler->demoted, &user->again);
        user->is_demoted = false;
    }
}

void turns_go_on(struct scheduler *scheduler, struct flow *flow)
{
    take_out(turn_for(flow), flow);
    append(scheduler, turn_for(flow), flow);
}

/* ---- shares of what is urgent --------------------------------------------------------------- */

/* What all devices give in a ns. */
static uint64_t capacity(const struct scheduler *scheduler)
{
    uint64_t total = 0;

    for (uint32_t devices = scheduler->ready; devices != 0; devices &= devices - 1) {
        total += scheduler->capacity[__builtin_ctz(devices)];
    }
    return MAX(total, UINT64_C(1));
}

/* What it has had, as the time since then has given it its share. */
static int64_t urgent_ns_at(const struct scheduler *scheduler, const struct scheduler_user *user,
                            uint64_t now_ns)
{
    uint64_t since_ns = now_ns - MIN(now_ns, user->urgent_at_ns);

    if (user->urgent_ns <= 0 || since_ns == 0) {
        return user->urgent_ns;
    }
    uint64_t share_ns = since_ns * capacity(scheduler) / MAX(scheduler->n_active, 1u);

    return user->urgent_ns - (int64_t)MIN(share_ns, (uint64_t)user->urgent_ns);
}

static void refill(struct scheduler *scheduler, struct scheduler_user *user)
{
    user->urgent_ns = urgent_ns_at(scheduler, user, scheduler->now_ns);
    user->urgent_at_ns = scheduler->now_ns;
}

int64_t scheduler_urgent_left(const struct scheduler *scheduler, const struct scheduler_user *user,
                              uint64_t now_ns)
{
    return SCHEDULER_BURST - urgent_ns_at(scheduler, user, now_ns);
}

static bool has_used_its_share(struct scheduler *scheduler, struct scheduler_user *user)
{
    if (scheduler->n_active < 2 || user->urgent_ns <= SCHEDULER_BURST) {
        return false;
    }
    refill(scheduler, user);
    return user->urgent_ns > SCHEDULER_BURST;
}

/* Its urgent flows go to the normal ones, or back. */
static void move_urgent(struct scheduler *scheduler, struct scheduler_user *user)
{
    struct scheduler_class *from = class_for(scheduler, user, PRIORITY_URGENT);

    user->is_demoted = !user->is_demoted;
    for (uint64_t lanes = user->lanes[PRIORITY_URGENT]; lanes != 0; lanes &= lanes - 1) {
        uint32_t lane = (uint32_t)__builtin_ctzll(lanes);
        struct scheduler_turn *turn = &user->turns[PRIORITY_URGENT][lane];

        remove_turn(from, lane, turn);
        add_turn(class_for(scheduler, user, PRIORITY_URGENT), lane, turn);
    }
}

/* When it may be urgent again, if as many want something then as now. */
static void await_share(struct scheduler *scheduler, struct scheduler_user *user)
{
    uint64_t beyond_ns = (uint64_t)(user->urgent_ns - SCHEDULER_BURST);

    user->again.key = scheduler->now_ns + beyond_ns * scheduler->n_active / capacity(scheduler) + 1;
    heap_add(&scheduler->demoted, &user->again);
}

void turns_promote(struct scheduler *scheduler)
{
    struct heap_node *top;

    while ((top = scheduler->demoted.top) != NULL &&
           (top->key <= scheduler->now_ns || scheduler->n_active < 2)) {
        struct scheduler_user *user = CONTAINER_OF(top, struct scheduler_user, again);

        heap_remove(&scheduler->demoted, top);
        if (has_used_its_share(scheduler, user)) {
            await_share(scheduler, user);
        } else {
            move_urgent(scheduler, user);
        }
    }
}

bool turns_stay_urgent(struct scheduler *scheduler, struct scheduler_user *user)
{
    if (!has_used_its_share(scheduler, user)) {
        return true;
    }
    move_urgent(scheduler, user);
    await_share(scheduler, user);
    return false;
}

void turns_pay_urgent(struct scheduler *scheduler, struct scheduler_user *user, uint64_t cost_ns)
{
    refill(scheduler, user);
    user->urgent_ns = MIN(user->urgent_ns, SCHEDULER_BURST) + (int64_t)cost_ns;
}

void turns_correct_urgent(struct scheduler_user *user, int64_t more_ns)
{
    user->urgent_ns = MAX(user->urgent_ns + more_ns, INT64_C(0));
}
