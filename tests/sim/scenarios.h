/*
 * Scenarios: what the scheduler is for, as plans for the simulator and what must come of them.
 */
#pragma once

#include "tests/sim/sim.h"

struct sim_scenario {
    const char *name;
    const char *story;
    struct sim_plan plan;
    /* Is this what came of it?  without: the same without group 0, where has_without.  NULL or why
     * not.  No check: it is shown, not promised. */
    const char *(*check)(const struct sim_plan *plan, const struct sim_results *results,
                         const struct sim_results *without);
    bool has_without;
    uint32_t n_like; /* it is long: one seed of so many will do; 0: all */
};

extern const struct sim_scenario sim_scenarios[];
extern const size_t sim_n_scenarios;
