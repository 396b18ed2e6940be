/*
 * Search: a contest of all shapes.  See search.h.
 */
#include "tests/bench/search.h"

#include "proto/util.h"
#include "tests/bench/contest.h"

static const size_t chunk_sizes[] = {2u << 20, 4u << 20, 8u << 20, SEARCH_CHUNK_MAX};
static const uint32_t depths[] = {3, 4, 6, 8};
static const enum direct_wait waits[] = {DIRECT_EVENTS, DIRECT_GRAPHS};

#define N_WAITS  ARRAY_SIZE(waits)
#define N_SHAPES (ARRAY_SIZE(chunk_sizes) * ARRAY_SIZE(depths) * N_WAITS)

struct search {
    const struct rig_memory *memory;
    const struct subject *subject;
    struct direct_shape shapes[N_SHAPES]; /* ways take turns */
    struct direct_plan *plans[N_SHAPES];
    struct contest contest;
};

double search_run_plan(const struct rig_memory *memory, const struct subject *subject,
                       struct direct_plan *plan)
{
    double seconds;

    bench_poison(memory->out, memory->size);
    seconds = direct_run(plan);
    subject->check("direct", memory->out, memory->in, memory->size);
    return seconds;
}

static void begin_round(void *owner)
{
    const struct search *search = owner;

    subject_fill(search->memory->in, search->memory->size);
}

static double run_shape(void *owner, uint32_t i)
{
    const struct search *search = owner;

    return search_run_plan(search->memory, search->subject, search->plans[i]);
}

static void add_row(struct bench_report *report, const struct search *search, uint32_t i)
{
    const struct direct_shape *shape = &search->shapes[i];
    double seconds = contest_seconds(&search->contest, i);
    const struct bench_cell row[] = {
        {"op     ", search->subject->op, 0, 0},
        {"way    ", shape->wait == DIRECT_GRAPHS ? "graphs" : "events", 0, 0},
        {"chunk_mib", NULL, (double)(shape->chunk_size >> 20), 0},
        {"in_flight", NULL, shape->depth, 0},
        {"gb_per_s", NULL, (double)search->memory->size * 1e-9 / seconds, 2},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* The fastest of those that wait in this way; it is the caller's from now on. */
static struct direct_plan *take_best(struct search *search, uint32_t wait)
{
    uint32_t best = wait;

    for (uint32_t i = wait + N_WAITS; i < N_SHAPES; i += N_WAITS) {
        if (contest_seconds(&search->contest, i) < contest_seconds(&search->contest, best)) {
            best = i;
        }
    }
    return STEAL(search->plans[best]);
}

void search_best(const struct direct *direct, const struct rig_memory *memory,
                 const struct subject *subject, uint32_t n_rounds, struct bench_report *report,
                 struct direct_plan **ret_events, struct direct_plan **ret_graphs)
{
    static struct search search;

    search = (struct search){
        .memory = memory,
        .subject = subject,
        .contest = {.n_variants = N_SHAPES,
                    .n_rounds = n_rounds,
                    .begin = begin_round,
                    .run = run_shape,
                    .owner = &search},
    };
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        search.shapes[i] = (struct direct_shape){
            .subject = subject,
            .chunk_size = chunk_sizes[i / N_WAITS / ARRAY_SIZE(depths)],
            .depth = depths[i / N_WAITS % ARRAY_SIZE(depths)],
            .wait = waits[i % N_WAITS],
        };
        direct_plan_create(direct, &search.shapes[i], &search.plans[i]);
    }
    contest_run(&search.contest);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        add_row(report, &search, i);
    }
    *ret_events = take_best(&search, 0);
    *ret_graphs = take_best(&search, 1);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        direct_plan_destroy(search.plans[i]);
    }
}
