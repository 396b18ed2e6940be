/*
 * Forecast: demand and supply of device time.
 */
#include "daemon/forecast.h"

#include "proto/util.h"

/* What scheduler.h promises to those below others. */
static const double shares[PRIORITY_COUNT] = {0, 0.1, 0.05};

/* For what cannot be foreseen, above all what others bring meanwhile: in tests/sim the same work in
 * the same state takes between 0.8 and 1.2 times as long, as chance has it.  With a tenth some
 * seeds have 6 of 100 late, with a fifth some refuse what would have taken half of its deadline. */
#define MARGIN 1.13

/* Longer than any deadline. */
#define FORECAST_MOST 1e18
/* Halvings: to a thousandth. */
#define FORECAST_STEPS 10

static enum priority class_of(const struct flow *flow)
{
    bool is_demoted = flow->priority == PRIORITY_URGENT && flow->user->is_demoted;

    return is_demoted ? PRIORITY_NORMAL : flow->priority;
}

static double capacity_of(const struct scheduler *scheduler, uint32_t devices)
{
    double total = 0;

    for (devices &= scheduler->ready; devices != 0; devices &= devices - 1) {
        total += scheduler->capacity[__builtin_ctz(devices)];
    }
    return total;
}

static double in_flight(const struct scheduler *scheduler, uint32_t devices, enum priority priority)
{
    double n_ns = 0;

    for (devices &= scheduler->ready; devices != 0; devices &= devices - 1) {
        n_ns += (double)scheduler->loads[__builtin_ctz(devices)][priority].n_ns;
    }
    return n_ns;
}

uint64_t forecast_cost(const struct scheduler_rate *rate, uint64_t n_records, uint64_t link_size)
{
    double link_ns = (double)n_records * (double)link_size / SCHEDULER_LINK_SPEED;
    double cost_ns = MAX(rate->record_ns * (double)n_records, link_ns);

    return cost_ns < FORECAST_MOST ? (uint64_t)cost_ns : (uint64_t)FORECAST_MOST;
}

/* A user without flows will join where the others are: see scheduler_turns.c. */
static double used_by(const struct scheduler *scheduler, const struct scheduler_user *user)
{
    double least = (double)scheduler->used_ns - (double)SCHEDULER_CATCH_UP;
    double used_ns = (double)user->used_ns;

    return (user->n_turns == 0 ? MAX(used_ns, least) : used_ns) + (double)user->unpaid_ns;
}

bool forecast_begin(struct forecast *forecast, const struct scheduler *scheduler,
                    const struct flow *flow, uint64_t now_ns, uint64_t n_records,
                    uint64_t link_size, uint64_t chunk_records)
{
    double capacity = capacity_of(scheduler, flow->devices);

    if (!flow->rate->is_known || capacity == 0) {
        return false;
    }
    *forecast = (struct forecast){
        .scheduler = scheduler,
        .flow = flow,
        .now_ns = MAX(now_ns, scheduler->now_ns),
        .capacity = capacity,
        .cost_ns = (double)forecast_cost(flow->rate, n_records, link_size),
        .chunk_ns = (double)forecast_cost(flow->rate, MIN(n_records, chunk_records), link_size),
        .own_used_ns = used_by(scheduler, flow->user),
    };
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        forecast->in_flight_ns[priority] = in_flight(scheduler, flow->devices, priority);
    }
    return true;
}

/* How much of this flow, of the same user and priority, is due before it? */
static double due_before(const struct forecast *forecast, const struct flow *flow,
                         double waiting_ns)
{
    uint64_t then_ns = forecast->now_ns + SCHEDULER_DUE;
    uint64_t deadline_ns = forecast->flow->deadline_ns;
    bool is_hurried = deadline_ns != 0 && deadline_ns < then_ns;

    if (flow->is_hurried) {
        return !is_hurried || flow->deadline_ns <= deadline_ns ? waiting_ns : 0;
    }
    if (is_hurried) { /* a chunk, then it is due anew */
        return flow->due_ns <= deadline_ns ? MIN(waiting_ns, forecast->chunk_ns) : 0;
    }
    return MIN(waiting_ns, forecast->cost_ns); /* in turns */
}

static void add_other(struct forecast *forecast, struct scheduler_user *user, double waiting_ns)
{
    if (user->forecast_ns == 0) {
        user->forecast_next = forecast->others;
        forecast->others = user;
    }
    user->forecast_ns += waiting_ns;
}

void forecast_add(struct forecast *forecast, const struct flow *flow, uint64_t waiting_ns)
{
    const struct scheduler *scheduler = forecast->scheduler;
    uint32_t common = flow->devices & forecast->flow->devices;
    double all = capacity_of(scheduler, flow->devices);
    enum priority mine = class_of(forecast->flow), its = class_of(flow);

    if (waiting_ns == 0 || all == 0) {
        return;
    }
    double part_ns = (double)waiting_ns * capacity_of(scheduler, common) / all;
    if (flow == forecast->flow) {
        forecast->own_ns += part_ns;
    } else if (its != mine) {
        forecast->queued_ns[its] += part_ns;
    } else if (flow->user == forecast->flow->user) {
        forecast->own_ns += due_before(forecast, flow, part_ns);
    } else if (part_ns > 0) {
        add_other(forecast, flow->user, part_ns);
    }
}

/* Of the time that all devices have, as much as these ones have of it. */
static double of_late(const struct forecast *forecast, const struct scheduler_usage *usage)
{
    const struct scheduler *scheduler = forecast->scheduler;

    return MIN(scheduler_usage_rate(usage, forecast->now_ns) /
                   capacity_of(scheduler, scheduler->ready),
               1.0) *
           forecast->capacity;
}

static double allowed_ns(const struct forecast *forecast)
{
    return forecast->own_ns + forecast->cost_ns + forecast->chunk_ns;
}

/* Until it had as much as its own user by then. */
static double lead_ns(const struct forecast *forecast, const struct scheduler_user *user)
{
    double lead_ns = forecast->own_used_ns + allowed_ns(forecast);

    return MAX(lead_ns - used_by(forecast->scheduler, user), 0.0);
}

/*
 * In how much of this time do users of the same priority bring something new?  What they have in
 * flight, and what they have queued and goes first, is what came of late; only then come others.
 */
static double new_ns(const struct forecast *forecast, double all, double in_ns)
{
    double there_ns = forecast->in_flight_ns[class_of(forecast->flow)];

    for (struct scheduler_user *user = forecast->others; user != NULL; user = user->forecast_next) {
        there_ns += MIN(user->forecast_ns, lead_ns(forecast, user));
    }
    return all > 0 ? MAX(in_ns - there_ns / all, 0.0) : 0;
}

/*
 * What users of the same priority want in so much time beside what they have in flight, up to as
 * much as its own user had by then.
 */
static double demand_beside(const struct forecast *forecast, double in_ns)
{
    enum priority priority = class_of(forecast->flow);
    double all = of_late(forecast, &forecast->scheduler->usage[priority]);
    double rest = all - of_late(forecast, &forecast->flow->user->usage[priority]);
    double begin_ns = new_ns(forecast, all, in_ns);
    double demand_ns = 0;

    for (struct scheduler_user *user = forecast->others; user != NULL; user = user->forecast_next) {
        double rate = of_late(forecast, &user->usage[priority]);

        demand_ns += MIN(user->forecast_ns + rate * begin_ns, lead_ns(forecast, user));
        rest -= rate;
    }
    /* Those who have nothing queued at the moment. */
    return demand_ns + (rest > 0 ? MIN(rest * begin_ns, allowed_ns(forecast)) : 0);
}

/* What others of these priorities have in so much time, at most `most` but for what is in flight.
 */
static double demand_of(const struct forecast *forecast, enum priority first, enum priority end,
                        double in_ns, double most)
{
    double demand_ns = 0, in_flight_ns = 0;

    for (enum priority priority = first; priority < end; priority++) {
        double lately_ns = of_late(forecast, &forecast->scheduler->usage[priority]) * in_ns;

        demand_ns +=
            forecast->queued_ns[priority] + MAX(lately_ns, forecast->in_flight_ns[priority]);
        in_flight_ns += forecast->in_flight_ns[priority];
    }
    demand_ns = MIN(demand_ns, most);
    return MAX(demand_ns, in_flight_ns);
}

/* What the devices give before it is done, it included, if that is in so much time. */
static double demand(const struct forecast *forecast, double in_ns)
{
    enum priority mine = class_of(forecast->flow);
    double supply_ns = in_ns * forecast->capacity;
    double demand_ns = forecast->in_flight_ns[mine] + forecast->own_ns + forecast->cost_ns +
                       demand_beside(forecast, in_ns);

    demand_ns += demand_of(forecast, PRIORITY_URGENT, mine, in_ns, (1 - shares[mine]) * supply_ns);
    for (enum priority below = mine + 1; below < PRIORITY_COUNT; below++) {
        demand_ns += demand_of(forecast, below, below + 1, in_ns, shares[below] * supply_ns);
    }
    return demand_ns;
}

static void forget_others(struct forecast *forecast)
{
    struct scheduler_user *next;

    for (struct scheduler_user *user = forecast->others; user != NULL; user = next) {
        next = user->forecast_next;
        user->forecast_ns = 0;
        user->forecast_next = NULL;
    }
    forecast->others = NULL;
}

uint64_t forecast_ns(struct forecast *forecast, uint64_t *ret_alone_ns)
{
    double alone_ns = MAX(forecast->cost_ns / forecast->capacity, forecast->chunk_ns);
    double least = 0, most = alone_ns + 1;

    while (most < FORECAST_MOST && demand(forecast, most) > most * forecast->capacity) {
        least = most;
        most *= 2;
    }
    for (int i = 0; i < FORECAST_STEPS; i++) {
        double half = (least + most) / 2;

        *(demand(forecast, half) > half * forecast->capacity ? &least : &most) = half;
    }
    forget_others(forecast);
    /* Its last chunk is alone on one of several threads. */
    most += alone_ns - forecast->cost_ns / forecast->capacity;
    *ret_alone_ns = (uint64_t)alone_ns;
    return (uint64_t)(MIN(most, FORECAST_MOST) * MARGIN);
}
