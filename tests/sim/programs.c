/*
 * Programs: each has one job and sends pushes to it, the next when one is answered, or at random
 * times.  Pushes are handed out in order and chunk by chunk.
 */
#include "tests/sim/sim.h"

#include "proto/util.h"

#include <math.h>

#define SIM_RECORD 512
#define THINK_NS   (20 * US) /* at most, from an answer to the next push */

static uint32_t records_of(uint64_t size)
{
    return (uint32_t)(size / SIM_RECORD + 1);
}

static struct sim_push *push_at(struct sim_program *program, uint32_t number)
{
    return &program->pushes[number % SIM_BACKLOG];
}

static uint64_t next_size(struct sim_program *program)
{
    return MIN(push_at(program, program->next)->size, SIM_CHUNK);
}

/* What job_settle() does. */
static void settle(struct sim_program *program)
{
    struct scheduler *scheduler = &program->sim->scheduler;

    if (program->next == program->last) {
        scheduler_remove(scheduler, &program->flow);
        return;
    }
    /* Each push counts as a run, with a deadline of its own. */
    if (program->group->deadline_ns != 0) {
        scheduler_remove(scheduler, &program->flow);
        program->flow.deadline_ns =
            push_at(program, program->next)->arrival_ns + program->group->deadline_ns;
    }
    program->flow.next_size = next_size(program);
    program->flow.next_link_size = program->flow.next_size;
    program->flow.next_records = records_of(program->flow.next_size);
    scheduler_add(scheduler, &program->flow, program->sim->now_ns);
}

/* Bytes to be handed out. */
static uint64_t waiting(const struct sim_program *program)
{
    uint64_t size = 0;

    for (uint32_t i = program->next; i != program->last; i++) {
        size += program->pushes[i % SIM_BACKLOG].size;
    }
    return size;
}

/* What job_check_admit() does: may it come? */
static bool is_admitted(struct sim *sim, struct sim_program *program, bool *ret_is_forced)
{
    uint64_t alone_ns, deadline_ns = program->group->deadline_ns;
    struct flow flow = program->flow; /* as it will be */
    struct forecast forecast;

    *ret_is_forced = false;
    flow.deadline_ns = sim->now_ns + deadline_ns;
    if (!program->group->is_admitted ||
        !forecast_begin(&forecast, &sim->scheduler, &flow, sim->now_ns, records_of(program->size),
                        SIM_RECORD, records_of(SIM_CHUNK))) {
        return true;
    }
    for (uint32_t i = 0; i < sim->n_programs; i++) {
        const struct sim_program *other = &sim->programs[i];
        uint64_t n = waiting(other);

        if (n > 0) {
            forecast_add(&forecast, other == program ? &flow : &other->flow,
                         forecast_cost(other->flow.rate, records_of(n), SIM_RECORD));
        }
    }
    if (forecast_ns(&forecast, &alone_ns) <= deadline_ns) {
        return true;
    }
    program->result->n_not_admitted++;
    *ret_is_forced =
        program->group == sim->plan->groups && program->result->n_not_admitted == sim->plan->forced;
    return *ret_is_forced;
}

static uint32_t most_under_way(const struct sim_program *program)
{
    bool has_window = program->group->window != 0;

    return has_window ? program->group->window : SIM_BACKLOG;
}

static void note_under_way(const struct sim_program *program)
{
    bool is_late = program->sim->now_ns > program->sim->plan->length_ns / 2;
    uint32_t *most = &program->result->most_under_way[is_late];

    *most = MAX(*most, program->last - program->first);
}

static void send_push(struct sim *sim, void *arg, void *unused)
{
    struct sim_program *program = arg;
    bool is_forced;

    (void)unused;
    if (program->last - program->first == most_under_way(program)) {
        program->result->n_refused++;
        return;
    }
    if (!is_admitted(sim, program, &is_forced)) {
        return;
    }
    *push_at(program, program->last++) =
        (struct sim_push){.arrival_ns = sim->now_ns, .size = program->size, .is_forced = is_forced};
    note_under_way(program);
    settle(program);
}

static void send_at_random(struct sim *sim, void *arg, void *unused)
{
    struct sim_program *program = arg;
    double u = (double)(sim_random(sim, UINT32_MAX) + 1) / ((double)UINT32_MAX + 1);

    send_push(sim, program, unused);
    sim_at(sim, (uint64_t)(-log(u) * 1e9 / program->group->per_second), send_at_random, program,
           NULL);
}

void sim_program_issue(struct sim_program *program, struct sim_work *work)
{
    struct sim_push *push = push_at(program, program->next);

    work->program = program;
    work->push = push;
    work->size = next_size(program);
    work->kernel_ns = program->group->kernel_ns * work->size / program->size;
    push->size -= work->size;
    push->n_chunks++;
    program->next += push->size == 0;
    settle(program);
}

static void answer(struct sim_program *program, const struct sim_push *push)
{
    struct sim *sim = program->sim;
    struct sim_result *result = program->result;
    uint64_t took_ns = sim->now_ns - push->arrival_ns;

    if (push->is_forced) {
        sim->results->forced_ns = took_ns;
    }
    if (sim_is_warm(sim)) {
        result->n_pushes++;
        result->n_times[sim_time_step(took_ns)]++;
        result->worst_ns = MAX(result->worst_ns, took_ns);
        result->worst_wait_ns = MAX(result->worst_wait_ns, push->begin_ns - push->arrival_ns);
        result->n_late += program->group->deadline_ns != 0 && took_ns > program->group->deadline_ns;
    }
    if (program->group->per_second == 0) {
        sim_at(sim, sim_random(sim, THINK_NS), send_push, program, NULL);
    }
}

/* Pushes are answered in order. */
void sim_program_done(struct sim_program *program, const struct sim_work *work)
{
    work->push->n_chunks--;
    while (program->first != program->next && push_at(program, program->first)->n_chunks == 0) {
        answer(program, push_at(program, program->first));
        program->first++;
    }
    settle(program);
}

static void start(struct sim *sim, const struct sim_group *group, struct sim_result *result)
{
    struct sim_program *program = &sim->programs[sim->n_programs++];

    *program = (struct sim_program){
        .sim = sim,
        .group = group,
        .result = result,
        .size = group->window != 0 && group->per_second != 0
                    ? group->size
                    : group->size / 2 + sim_random(sim, group->size / 2) + 1,
        .flow = {.priority = group->priority,
                 .devices = SCHEDULER_ANY_DEVICE,
                 .user = &sim->users[group->uid],
                 .rate = &sim->rates[group - sim->plan->groups]},
    };
    if (group->per_second != 0) {
        sim_at(sim, sim_random(sim, MS), send_at_random, program, NULL);
    }
    for (uint32_t i = 0; group->per_second == 0 && i < group->window; i++) {
        sim_at(sim, sim_random(sim, MS), send_push, program, NULL);
    }
}

void sim_programs_start(struct sim *sim)
{
    sim->programs = calloc(SIM_PROGRAMS, sizeof(*sim->programs));
    if (sim->programs == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < sim->plan->n_groups; i++) {
        const struct sim_group *group = &sim->plan->groups[i];

        for (uint32_t k = 0; k < group->n_programs && sim->n_programs < SIM_PROGRAMS; k++) {
            start(sim, group, &sim->results->groups[i]);
        }
    }
}
