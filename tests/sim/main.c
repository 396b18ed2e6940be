/*
 * sim: scenarios for the scheduler, over seeds.
 *
 *     sim [--scenario NAME] [--seeds N] [--first SEED]
 *
 * Prints a table for each scenario, over all seeds, and what went wrong; exit status 1 then.
 */
#include "proto/util.h"
#include "tests/sim/scenarios.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FAILURES_SHOWN 5

/* Over all seeds. */
struct row {
    double share_least, share_most;
    double bytes_per_ns; /* sum */
    double pushes_per_s;
    double p99_us; /* sum */
    uint64_t worst_wait_ns, worst_ns, n_late;
};

static uint64_t device_time(const struct sim_plan *plan, const struct sim_results *results)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < plan->n_groups; i++) {
        total += results->groups[i].device_ns;
    }
    return MAX(total, UINT64_C(1));
}

static void note(const struct sim_plan *plan, const struct sim_results *results, bool is_first,
                 struct row *rows)
{
    double total = (double)device_time(plan, results);
    double length_ns = (double)results->length_ns;

    for (uint32_t i = 0; i < plan->n_groups; i++) {
        const struct sim_result *result = &results->groups[i];
        double share = (double)result->device_ns / total;
        struct row *row = &rows[i];

        row->share_least = is_first ? share : MIN(row->share_least, share);
        row->share_most = is_first ? share : MAX(row->share_most, share);
        row->bytes_per_ns += (double)result->n_bytes / length_ns;
        row->pushes_per_s += (double)result->n_pushes / length_ns * 1e9;
        row->p99_us += (double)sim_percentile(result, 990) / (double)US;
        row->worst_wait_ns = MAX(row->worst_wait_ns, result->worst_wait_ns);
        row->worst_ns = MAX(row->worst_ns, result->worst_ns);
        row->n_late += result->n_late;
    }
}

static void print(const struct sim_scenario *scenario, const struct row *rows, uint64_t n_seeds,
                  uint64_t n_failures)
{
    const char *verdict = scenario->check == NULL ? "not promised"
                          : n_failures > 0        ? "NOT SO"
                                                  : "ok";

    printf("%s: %s: %s\n", scenario->name, scenario->story, verdict);
    printf("    %-16s %13s %8s %10s %9s %13s %11s %6s\n", "group", "device time %", "GB/s",
           "pushes/s", "p99 us", "worst wait us", "worst us", "late");
    for (uint32_t i = 0; i < scenario->plan.n_groups; i++) {
        const struct row *row = &rows[i];

        printf("    %-16s %6.1f-%6.1f %8.2f %10.0f %9.1f %13" PRIu64 " %11" PRIu64 " %6" PRIu64
               "\n",
               scenario->plan.groups[i].name, 100 * row->share_least, 100 * row->share_most,
               row->bytes_per_ns / (double)n_seeds, row->pushes_per_s / (double)n_seeds,
               row->p99_us / (double)n_seeds, row->worst_wait_ns / US, row->worst_ns / US,
               row->n_late);
    }
}

static bool play(const struct sim_scenario *scenario, uint64_t first, uint64_t n_seeds)
{
    struct row rows[SIM_GROUPS] = {0};
    struct sim_plan quiet = scenario->plan; /* without the first group */
    uint64_t n_failures = 0;

    n_seeds = (n_seeds - 1) / MAX(scenario->n_like, 1u) + 1;
    quiet.groups[0].n_programs = 0;
    for (uint64_t seed = first; seed < first + n_seeds; seed++) {
        static struct sim_results results, without;

        sim_run(&scenario->plan, seed, &results);
        if (scenario->has_without) {
            sim_run(&quiet, seed, &without);
        }
        note(&scenario->plan, &results, seed == first, rows);
        const char *why =
            scenario->check != NULL ? scenario->check(&scenario->plan, &results, &without) : NULL;
        if (why != NULL && n_failures++ < FAILURES_SHOWN) {
            printf("%s, seed %" PRIu64 ": %s\n", scenario->name, seed, why);
        }
    }
    print(scenario, rows, n_seeds, n_failures);
    return n_failures == 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: sim [--scenario NAME] [--seeds N] [--first SEED]\nscenarios:\n");
    for (size_t i = 0; i < sim_n_scenarios; i++) {
        fprintf(stderr, "    %-12s %s\n", sim_scenarios[i].name, sim_scenarios[i].story);
    }
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"scenario", required_argument, NULL, 'c'},
        {"seeds", required_argument, NULL, 'n'},
        {"first", required_argument, NULL, 'f'},
        {0},
    };
    const char *name = NULL;
    uint64_t n_seeds = 10, first = 1;
    size_t n_played = 0;
    bool is_good = true;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            name = optarg;
            break;
        case 'n':
            n_seeds = strtoull(optarg, NULL, 0);
            break;
        case 'f':
            first = strtoull(optarg, NULL, 0);
            break;
        default:
            return usage();
        }
    }
    for (size_t i = 0; i < sim_n_scenarios; i++) {
        if (name == NULL || strcmp(name, sim_scenarios[i].name) == 0) {
            is_good &= play(&sim_scenarios[i], first, n_seeds);
            n_played++;
        }
    }
    return n_played == 0 || n_seeds == 0 || optind < argc ? usage() : !is_good;
}
