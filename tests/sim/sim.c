/*
 * Sim: the virtual clock, and the front end.
 */
#include "tests/sim/sim.h"

#include "proto/util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WARM_UP_NS (20 * MS)
/* From the front end to the worker or back: 1.1 us both ways when awake, more in the daemon's turn.
 */
#define HOP_NS (2 * US)

/* ---- the clock ------------------------------------------------------------------------------ */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->number < b->number);
}

void sim_at(struct sim *sim, uint64_t in_ns, void (*happen)(struct sim *sim, void *a, void *b),
            void *a, void *b)
{
    struct sim_event event = {sim->now_ns + in_ns, sim->n_events_ever++, happen, a, b};
    size_t i = sim->n_events++;

    if (sim->n_events > sim->n_events_max) {
        sim->n_events_max = 2 * sim->n_events;
        sim->events = realloc(sim->events, sim->n_events_max * sizeof(*sim->events));
        if (sim->events == NULL) {
            abort();
        }
    }
    for (; i > 0 && is_before(&event, &sim->events[(i - 1) / 2]); i = (i - 1) / 2) {
        sim->events[i] = sim->events[(i - 1) / 2];
    }
    sim->events[i] = event;
}

static struct sim_event take_event(struct sim *sim)
{
    struct sim_event *events = sim->events;
    struct sim_event first = events[0], last = events[--sim->n_events];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < sim->n_events) {
        child += child + 1 < sim->n_events && is_before(&events[child + 1], &events[child]);
        if (!is_before(&events[child], &last)) {
            break;
        }
        events[i] = events[child];
        i = child;
    }
    events[i] = last;
    return first;
}

/* splitmix64 */
uint64_t sim_random(struct sim *sim, uint64_t below)
{
    uint64_t mixed = sim->random += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ (mixed >> 31)) % below;
}

bool sim_is_warm(const struct sim *sim)
{
    return sim->now_ns >= WARM_UP_NS;
}

/* ---- the front end -------------------------------------------------------------------------- */

static void arrive_at_worker(struct sim *sim, void *arg, void *unused)
{
    struct sim_work *work = arg;

    (void)unused;
    sim_device_submit(&sim->devices[work->charge.place.device], work);
}

static struct sim_work *make_work(struct sim *sim)
{
    struct sim_work *work = sim->spare;
    struct sim_work *made_before = sim->made;

    if (work != NULL) {
        sim->spare = work->next;
        made_before = work->made_before;
    } else if ((work = malloc(sizeof(*work))) != NULL) {
        sim->made = work;
    } else {
        abort();
    }
    *work = (struct sim_work){.made_before = made_before};
    return work;
}

static void dispatch(struct sim *sim)
{
    struct scheduler_place place;
    struct flow *flow;

    while ((flow = scheduler_next(&sim->scheduler, sim->now_ns, &place)) != NULL) {
        struct sim_work *work = make_work(sim);

        work->priority = place.priority;
        scheduler_issued(&sim->scheduler, flow, &place, &work->charge);
        sim_program_issue(CONTAINER_OF(flow, struct sim_program, flow), work);
        sim_at(sim, HOP_NS, arrive_at_worker, work, NULL);
    }
}

void sim_chunk_done(struct sim *sim, void *arg, void *unused)
{
    struct sim_work *work = arg;
    struct sim_program *program = work->program;

    (void)unused;
    scheduler_done(&sim->scheduler, &work->charge, work->device_ns);
    if (sim_is_warm(sim)) {
        program->result->device_ns += work->device_ns;
        program->result->n_bytes += work->size;
        program->result->n_chunks++;
        sim->results->longest_chunk_ns = MAX(sim->results->longest_chunk_ns, work->device_ns);
    }
    sim_program_done(program, work);
    work->next = sim->spare;
    sim->spare = work;
}

uint32_t sim_time_step(uint64_t took_ns)
{
    return MIN((uint32_t)(16 * log2((double)took_ns + 1)), SIM_TIMES - 1u);
}

uint64_t sim_percentile(const struct sim_result *result, uint64_t per_mille)
{
    uint64_t n = 0;
    uint32_t i = 0;

    while (i < SIM_TIMES - 1 && (n += result->n_times[i]) * 1000 < result->n_pushes * per_mille) {
        i++;
    }
    return (uint64_t)exp2((i + 1) / 16.0);
}

static void start_devices(struct sim *sim)
{
    struct worker_caps caps;

    for (uint32_t i = 0; i < MAX(sim->plan->n_devices, 1u); i++) {
        sim_device_init(&sim->devices[i], sim, MAX(sim->plan->slowness[i], 1u), &caps);
        scheduler_device_up(&sim->scheduler, i, &caps);
    }
}

void sim_run(const struct sim_plan *plan, uint64_t seed, struct sim_results *ret_results)
{
    struct sim sim = {.plan = plan, .random = seed, .results = ret_results};

    memset(ret_results, 0, sizeof(*ret_results));
    ret_results->seed = seed;
    ret_results->length_ns = plan->length_ns - WARM_UP_NS;
    scheduler_init(&sim.scheduler);
    start_devices(&sim);
    sim_programs_start(&sim);
    while (sim.n_events > 0 && sim.events[0].at_ns < plan->length_ns) {
        struct sim_event event = take_event(&sim);

        sim.now_ns = event.at_ns;
        event.happen(&sim, event.a, event.b);
        dispatch(&sim);
    }
    for (struct sim_work *work; (work = sim.made) != NULL;) {
        sim.made = work->made_before;
        free(work);
    }
    free(sim.events);
    free(sim.programs);
}
