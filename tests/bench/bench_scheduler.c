/*
 * bench_scheduler: one decision of the scheduler.
 *
 * A decision is what a chunk costs: scheduler_next(), _issued() and, when it is the oldest in
 * flight, _done().  Flows of random chunk sizes are always queued, or (a run) queued for their one
 * chunk and removed with it.
 */
#include "daemon/scheduler.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS_MAX    99u
#define FLOWS_MAX     10000u
#define USERS_MAX     300u
#define CHUNK_LEAST   4096u
#define IN_FLIGHT_MAX 4096u

struct options {
    const char *json;
    uint32_t n_decisions;
    uint32_t n_rounds;
};

struct rig {
    struct scheduler scheduler;
    struct flow flows[FLOWS_MAX];
    struct scheduler_user users[USERS_MAX];
    struct scheduler_rate rate;
    struct scheduler_charge in_flight[IN_FLIGHT_MAX]; /* a ring */
    uint32_t first, last;
};

struct shape {
    const char *name;
    uint32_t n_flows;
    uint32_t n_uids;
    bool is_run;    /* each flow has one chunk at a time */
    bool is_mixed;  /* of all priorities */
    bool is_pinned; /* all but the last to a device that is full */
};

static const struct worker_caps caps = {.bulk_chunks = 4, .bulk_bytes = 32u << 20};

static void set_up(struct rig *rig, const struct shape *shape)
{
    uint32_t sizes[64];

    bench_fill(sizes, sizeof(sizes));
    memset(rig, 0, sizeof(*rig));
    scheduler_init(&rig->scheduler);
    rig->rate = (struct scheduler_rate){.is_known = true, .record_ns = 1};
    scheduler_device_up(&rig->scheduler, 0, &caps);
    scheduler_device_up(&rig->scheduler, 1, &caps);
    for (uint32_t i = 0; i < shape->n_flows; i++) {
        struct flow *flow = &rig->flows[i];
        bool is_last = i + 1 == shape->n_flows;

        *flow = (struct flow){
            .priority = shape->is_mixed ? (enum priority)(i % PRIORITY_COUNT) : PRIORITY_NORMAL,
            .devices = shape->is_pinned ? SCHEDULER_DEVICE(is_last ? 1 : 0) : SCHEDULER_ANY_DEVICE,
            .user = &rig->users[i % shape->n_uids],
            .rate = &rig->rate,
            .next_records = 1000,
            .next_size = CHUNK_LEAST + sizes[i % ARRAY_SIZE(sizes)] % (4u << 20),
        };
        scheduler_add(&rig->scheduler, flow, 0);
    }
}

/* The oldest come back until something may go. */
static struct flow *decide(struct rig *rig, const struct shape *shape,
                           struct scheduler_place *ret_place)
{
    struct flow *flow;

    while ((flow = scheduler_next(&rig->scheduler, 0, ret_place)) == NULL ||
           rig->last - rig->first == IN_FLIGHT_MAX) {
        uint32_t at = shape->is_pinned ? --rig->last : rig->first++;

        scheduler_done(&rig->scheduler, &rig->in_flight[at % IN_FLIGHT_MAX], 2000);
    }
    return flow;
}

static double time_round(struct rig *rig, const struct shape *shape, uint32_t n_decisions)
{
    set_up(rig, shape);
    uint64_t start_ns = now_ns();
    for (uint32_t i = 0; i < n_decisions; i++) {
        struct scheduler_place place;
        struct flow *flow = decide(rig, shape, &place);

        scheduler_issued(&rig->scheduler, flow, &place,
                         &rig->in_flight[rig->last++ % IN_FLIGHT_MAX]);
        if (shape->is_run) {
            scheduler_remove(&rig->scheduler, flow);
            scheduler_add(&rig->scheduler, flow, 0);
        }
    }
    return (double)(now_ns() - start_ns) / n_decisions;
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {"one run at a time", 1, 1, true, false, false},
        {"64 runs of one user", 64, 1, true, false, false},
        {"5000 flows of one user", 5000, 1, false, false, false},
        {"5000 flows of 300 users", 5000, 300, false, false, false},
        {"5000 mixed flows of 300", 5000, 300, false, true, false},
        {"4999 for a full device", 5000, 300, false, false, true},
    };
    static struct options options;
    static const struct bench_option table[] = {
        {"decisions", "N", "decisions of one round", "200000", 1, 100000000,
         .count = &options.n_decisions},
        {"rounds", "N", "rounds", "7", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct rig rig;
    double ns[ROUNDS_MAX];

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "What one decision of the scheduler costs, with two devices.");
    struct bench_report *report = bench_report_create("scheduler", options.json);
    bench_report_table(report, "decision", "next, issued and done of a chunk");
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        for (uint32_t round = 0; round < options.n_rounds; round++) {
            ns[round] = time_round(&rig, &shapes[i], options.n_decisions);
        }
        const struct bench_cell row[] = {
            {"flows                  ", shapes[i].name, 0, 0},
            {"ns", NULL, bench_median(ns, options.n_rounds), 1},
        };
        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    bench_report_destroy(report);
    return EXIT_SUCCESS;
}
