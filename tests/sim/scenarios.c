/*
 * Scenarios.  Group 0 is what the story is about.
 */
#include "tests/sim/scenarios.h"

#include "proto/util.h"

#include <math.h>
#include <stdio.h>

#define LENGTH (300 * MS)

static char why[256];

#define FAILED(...) (snprintf(why, sizeof(why), __VA_ARGS__), why)

/* ---- what must come of them ----------------------------------------------------------------- */

/*
 * In front of an urgent chunk are the bulk bytes in flight (32 MiB at 50 bytes a ns, and the
 * copies' overheads), and kernels that run already.  That holds for copies; what is mapped waits
 * less.
 */
static const char *check_behind_bulk(const struct sim_plan *plan, const struct sim_results *results,
                                     const struct sim_results *without)
{
    uint64_t bound = 32 * MIB / 50 + 50 * US;

    (void)plan;
    (void)without;
    if (results->groups[0].n_pushes == 0 || results->groups[0].worst_wait_ns > bound) {
        return FAILED("urgent work waited %lu us; behind the bulk bytes in flight it is %lu",
                      results->groups[0].worst_wait_ns / US, bound / US);
    }
    return NULL;
}

/* Groups 0 and 1 have equal device time, within 5 %. */
static const char *check_equal(const struct sim_plan *plan, const struct sim_results *results,
                               const struct sim_results *without)
{
    uint64_t a = results->groups[0].device_ns, b = results->groups[1].device_ns;

    (void)plan;
    (void)without;
    return MAX(a, b) * 100 > MIN(a, b) * 105
               ? FAILED("device time is %lu to %lu us", a / US, b / US)
               : NULL;
}

/* Bulk, group 0, has a twentieth; and normal, group 2, a tenth. */
static const char *check_shares(const struct sim_plan *plan, const struct sim_results *results,
                                const struct sim_results *without)
{
    const struct sim_result *groups = results->groups;
    uint64_t total = groups[0].device_ns + groups[1].device_ns + groups[2].device_ns;

    (void)plan;
    (void)without;
    if (groups[0].device_ns * 20 < total || groups[2].device_ns * 10 < total) {
        return FAILED("bulk has %.3f of the device's time and normal %.3f",
                      (double)groups[0].device_ns / (double)total,
                      (double)groups[2].device_ns / (double)total);
    }
    return NULL;
}

/* None of group 0 was late. */
static const char *check_in_time(const struct sim_plan *plan, const struct sim_results *results,
                                 const struct sim_results *without)
{
    const struct sim_result *result = &results->groups[0];

    (void)plan;
    (void)without;
    return result->n_pushes == 0 || result->n_late > 0
               ? FAILED("%lu of %lu were late", result->n_late, result->n_pushes)
               : NULL;
}

/* Group 0 has what is normal, and not less than what another user calls urgent, within a tenth. */
static const char *check_alarm(const struct sim_plan *plan, const struct sim_results *results,
                               const struct sim_results *without)
{
    uint64_t normal = results->groups[0].device_ns, urgent = results->groups[1].device_ns;

    (void)plan;
    (void)without;
    return normal * 10 < urgent * 9
               ? FAILED("normal has %lu us of %lu", normal / US, (normal + urgent) / US)
               : NULL;
}

/* The worst wait that scheduler.h states, for group 0, which has not used up its share. */
static const char *check_worst_wait(const struct sim_plan *plan, const struct sim_results *results,
                                    const struct sim_results *without)
{
    uint64_t n_others = plan->n_groups - 1;
    uint64_t bound = 32 * MIB / 50 + n_others * (results->longest_chunk_ns + SCHEDULER_CATCH_UP) +
                     2 * results->longest_chunk_ns;

    (void)without;
    if (results->groups[0].n_pushes == 0 || results->groups[0].worst_wait_ns > bound) {
        return FAILED("urgent work waited %lu us; the worst wait is %lu",
                      results->groups[0].worst_wait_ns / US, bound / US);
    }
    return NULL;
}

/* Bulk, group 1, keeps 0.97 of what it has without the urgent jobs. */
static const char *check_kept(const struct sim_plan *plan, const struct sim_results *results,
                              const struct sim_results *without)
{
    uint64_t with = results->groups[1].n_bytes;

    (void)plan;
    if (with * 100 < without->groups[1].n_bytes * 97) {
        return FAILED("bulk kept %.3f of the link",
                      (double)with / (double)without->groups[1].n_bytes);
    }
    return NULL;
}

/*
 * Some of group 0 that were refused, each sent all the same in a twin run that is as this one until
 * then: the least time that one took, of its deadline.
 */
#define TWINS 2
static double least_of_refused(const struct sim_plan *plan, const struct sim_results *results)
{
    const struct sim_result *result = &results->groups[0];
    double least = INFINITY;

    for (uint64_t i = 0; i < TWINS && i < result->n_not_admitted; i++) {
        struct sim_plan twin = *plan;
        struct sim_results forced;

        twin.forced = 1 + result->n_not_admitted * (2 * i + 1) / (2 * TWINS);
        sim_run(&twin, results->seed, &forced);
        if (forced.forced_ns != 0) { /* else it was not answered by the end */
            least = MIN(least, (double)forced.forced_ns / (double)plan->groups[0].deadline_ns);
        }
    }
    return least;
}

/*
 * Of group 0, which wants more than it can have, all that is admitted is in time, but for 5 of 100
 * (hardly one, in most seeds).
 * So its queue is always about as long as the deadline allows, and what is refused would not be far
 * from it; but no sooner than after 0.6 of it.
 */
static const char *check_admitted(const struct sim_plan *plan, const struct sim_results *results,
                                  const struct sim_results *without)
{
    const struct sim_result *result = &results->groups[0];
    double least = least_of_refused(plan, results);

    (void)without;
    if (result->n_pushes == 0 || result->n_late * 100 > result->n_pushes * 5) {
        return FAILED("%lu of %lu admitted were late", result->n_late, result->n_pushes);
    }
    if (result->n_not_admitted == 0 || least < 0.6) {
        return FAILED("of %lu refused one takes %.2f of its deadline", result->n_not_admitted,
                      least);
    }
    return NULL;
}

/* What is refused would have been late. */
static const char *check_refused(const struct sim_plan *plan, const struct sim_results *results,
                                 const struct sim_results *without)
{
    const struct sim_result *result = &results->groups[0];
    double least = least_of_refused(plan, results);

    (void)without;
    return result->n_not_admitted == 0 || least < 1
               ? FAILED("of %lu refused one takes %.2f of its deadline", result->n_not_admitted,
                        least)
               : NULL;
}

/* How long the quicker of two devices would have been busy with all that was done. */
static double busy_ns(const struct sim_plan *plan, const struct sim_results *results)
{
    double total = 0;

    for (uint32_t i = 0; i < plan->n_groups; i++) {
        const struct sim_result *result = &results->groups[i];
        double copies_ns =
            (double)(result->n_chunks * SIM_COPY_NS) + (double)result->n_bytes / SIM_LINK_SPEED;
        double kernels_ns = (double)(result->n_pushes * plan->groups[i].kernel_ns);

        total += MAX(copies_ns, kernels_ns);
    }
    return total;
}

/* Of two devices, the second half as fast, 0.95 of what they can do together. */
static const char *check_both(const struct sim_plan *plan, const struct sim_results *results,
                              const struct sim_results *without)
{
    double used = busy_ns(plan, results) / (1.5 * (double)results->length_ns);

    (void)without;
    if (used < 0.95) {
        return FAILED("they did %.3f of what they can", used);
    }
    return plan->n_groups == 2 ? check_equal(plan, results, without) : NULL;
}

/* A push ends as if both devices ended at once, or one chunk on the slower one later. */
static const char *check_tail(const struct sim_plan *plan, const struct sim_results *results,
                              const struct sim_results *without)
{
    const struct sim_group *group = &plan->groups[0];
    uint64_t chunk_ns = 2 * group->kernel_ns / (group->size / 2 / SIM_CHUNK);
    uint64_t bound = group->kernel_ns * 2 / 3 + chunk_ns;

    (void)without;
    return results->groups[0].n_pushes == 0 || results->groups[0].worst_ns > bound
               ? FAILED("a push took %lu us; %lu would do", results->groups[0].worst_ns / US,
                        bound / US)
               : NULL;
}

/* More bulk than the link takes, groups 0 and 1: it is full, urgent work, group 2, hardly notices,
 * and nothing grows. */
static const char *check_overload(const struct sim_plan *plan, const struct sim_results *results,
                                  const struct sim_results *without)
{
    const struct sim_result *groups = results->groups;
    double used = busy_ns(plan, results) / (double)results->length_ns;
    uint64_t with = sim_percentile(&groups[2], 990);
    uint64_t before = sim_percentile(&without->groups[2], 990);

    if (used < 0.97) {
        return FAILED("%.3f of the link is used", used);
    }
    if (groups[2].n_pushes == 0 || groups[2].n_refused > 0 || with * 2 > before * 3) {
        return FAILED("p99 of urgent work is %lu us, where it was %lu", with / US, before / US);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (groups[i].n_refused == 0 ||
            groups[i].most_under_way[1] > groups[i].most_under_way[0] * 11 / 10) {
            return FAILED("of group %u %u were under way, then %u", i, groups[i].most_under_way[0],
                          groups[i].most_under_way[1]);
        }
    }
    return NULL;
}

/* ---- the scenarios -------------------------------------------------------------------------- */

#define BULK_CLIENTS(id)                                                                           \
    {                                                                                              \
        .name = "3 bulk programs", .uid = (id), .n_programs = 3, .priority = PRIORITY_BULK,        \
        .size = 4 * MIB, .window = 4, .kernel_ns = 40 * US                                         \
    }

#define ALL_URGENT(id, n)                                                                          \
    {                                                                                              \
#n " urgent", (id), (n), PRIORITY_URGENT, 8 * MIB, 4, 0, 40 * US, 0                        \
    }

/* Two devices, the second takes twice as long for everything. */
#define UNEQUAL .n_devices = 2, .slowness = {1, 2}

const struct sim_scenario sim_scenarios[] = {
    {
        .name = "processes",
        .story = "two users with 1 and 50 programs: equal device time",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"1 program", 1, 1, PRIORITY_BULK, 8 * MIB, 8, 0, 40 * US, 0},
                            {"50 programs", 2, 50, PRIORITY_BULK, 8 * MIB, 4, 0, 40 * US, 0}}},
        .check = check_equal,
    },
    {
        .name = "deadlines",
        .story = "a deadline on everything gains nothing from others",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"all with 2 ms", 1, 8, PRIORITY_NORMAL, 4 * MIB, 4, 0, 40 * US,
                             2 * MS},
                            {"none", 2, 8, PRIORITY_NORMAL, 4 * MIB, 4, 0, 40 * US, 0}}},
        .check = check_equal,
    },
    {
        .name = "hurry",
        .story = "among one user's programs the deadline goes first",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"10 ms, 100/s", 1, 1, PRIORITY_NORMAL, 1 * MIB, 0, 100, 20 * US,
                             10 * MS},
                            {"others", 1, 60, PRIORITY_NORMAL, 8 * MIB, 8, 0, 80 * US, 0}}},
        .check = check_in_time,
    },
    {
        .name = "admit",
        .story = "more than the device can do in time: what is admitted is in time",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 1,
                 .groups = {{"2 ms, 30000/s", 1, 1, PRIORITY_NORMAL, 4 * MIB, 0, 30000, 40 * US,
                             2 * MS, true}}},
        .check = check_admitted,
    },
    {
        .name = "admit_beside",
        .story = "the same beside others: bulk, a stream of its own priority, and urgent jobs",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 4,
                 .groups = {{"5 ms, 20000/s", 1, 1, PRIORITY_NORMAL, 4 * MIB, 0, 20000, 40 * US,
                             5 * MS, true},
                            BULK_CLIENTS(2),
                            {"normal", 3, 1, PRIORITY_NORMAL, 4 * MIB, 4, 0, 40 * US, 0, false},
                            {"urgent 1 MiB", 4, 1, PRIORITY_URGENT, 1 * MIB, 0, 3000, 10 * US, 0,
                             false}}},
        .check = check_admitted,
    },
    {
        .name = "admit_threads",
        .story = "on a CPU with four threads, two users with deadlines and one without",
        .plan = {.n_threads = 4,
                 .length_ns = 3 * LENGTH,
                 .n_groups = 3,
                 .groups = {{"50 ms, 400/s", 1, 1, PRIORITY_NORMAL, 16 * MIB, 0, 400, 8 * MS,
                             50 * MS, true},
                            {"20 ms, 400/s", 2, 1, PRIORITY_NORMAL, 4 * MIB, 0, 400, 2 * MS,
                             20 * MS, true},
                            {"normal", 3, 2, PRIORITY_NORMAL, 4 * MIB, 8, 0, 1 * MS, 0, false}}},
        .check = check_admitted,
    },
    {
        .name = "admit_below",
        .story = "bulk with a deadline that its least share is too little for: refused",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"0.5 ms, 200/s", 1, 1, PRIORITY_BULK, 8 * MIB, 0, 200, 80 * US, MS / 2,
                             true},
                            {"normal", 2, 3, PRIORITY_NORMAL, 4 * MIB, 8, 0, 40 * US, 0, false}}},
        .check = check_refused,
    },
    {
        .name = "hog",
        .story = "kernels of 1 ms beside kernels of 0.1 ms: equal device time",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"hog", 1, 2, PRIORITY_BULK, 2 * MIB, 4, 0, 1 * MS, 0},
                            {"light", 2, 2, PRIORITY_BULK, 2 * MIB, 4, 0, 100 * US, 0}}},
        .check = check_equal,
    },
    {
        .name = "everybody",
        .story = "eight users, all of it urgent: the worst wait",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 8,
                 .groups = {{"one at a time", 1, 1, PRIORITY_URGENT, 4 * MIB, 1, 0, 20 * US, 0},
                            ALL_URGENT(2, 1),
                            ALL_URGENT(3, 1),
                            ALL_URGENT(4, 2),
                            ALL_URGENT(5, 5),
                            ALL_URGENT(6, 10),
                            ALL_URGENT(7, 20),
                            ALL_URGENT(8, 40)}},
        .check = check_worst_wait,
    },
    {
        .name = "endless",
        .story = "bulk under endless urgent and normal load: 5 %",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 3,
                 .groups = {{"bulk", 1, 1, PRIORITY_BULK, 4 * MIB, 4, 0, 40 * US, 0},
                            {"urgent", 2, 8, PRIORITY_URGENT, 4 * MIB, 4, 0, 40 * US, 0},
                            {"normal", 3, 8, PRIORITY_NORMAL, 4 * MIB, 4, 0, 40 * US, 0}}},
        .check = check_shares,
    },
    {
        .name = "threads",
        .story = "the same on a CPU with four threads, which know nothing but priority",
        .plan = {.n_threads = 4,
                 .length_ns = 3 * LENGTH,
                 .n_groups = 3,
                 .groups = {{"bulk", 1, 1, PRIORITY_BULK, 4 * MIB, 8, 0, 1 * MS, 0},
                            {"urgent", 2, 8, PRIORITY_URGENT, 1 * MIB, 64, 0, 1 * MS, 0},
                            {"normal", 3, 8, PRIORITY_NORMAL, 1 * MIB, 64, 0, 1 * MS, 0}}},
        .check = check_shares,
    },
    {
        .name = "alarm",
        .story = "everything urgent from one user, normal from another: a fair share",
        .plan = {.n_threads = 4,
                 .length_ns = 3 * LENGTH,
                 .n_groups = 2,
                 .groups = {{"normal", 1, 4, PRIORITY_NORMAL, 1 * MIB, 16, 0, 1 * MS, 0},
                            {"urgent", 2, 4, PRIORITY_URGENT, 1 * MIB, 16, 0, 1 * MS, 0}}},
        .check = check_alarm,
    },
    {
        .name = "unequal",
        .story = "two devices, one half as fast, long kernels: all of both",
        .plan = {UNEQUAL, .length_ns = LENGTH, .n_groups = 2,
                 .groups = {{"8 programs", 1, 8, PRIORITY_BULK, 8 * MIB, 4, 0, 400 * US, 0},
                            {"2 programs", 2, 2, PRIORITY_BULK, 8 * MIB, 4, 0, 400 * US, 0}}},
        .check = check_both,
    },
    {
        .name = "unequal_link",
        .story = "two devices, one half as fast, copies: all of both",
        .plan = {UNEQUAL, .length_ns = LENGTH, .n_groups = 2,
                 .groups = {{"8 programs", 1, 8, PRIORITY_BULK, 4 * MIB, 8, 0, 40 * US, 0},
                            {"2 programs", 2, 2, PRIORITY_BULK, 4 * MIB, 8, 0, 40 * US, 0}}},
        .check = check_both,
    },
    {
        .name = "unequal_tail",
        .story = "two devices, one half as fast: a push of many chunks ends on both at once",
        .plan = {UNEQUAL, .length_ns = LENGTH, .n_groups = 1,
                 .groups = {{"1 program", 1, 1, PRIORITY_BULK, 64 * MIB, 1, 0, 8 * MS, 0}}},
        .check = check_tail,
    },
    {
        .name = "overload",
        .story = "a minute of bulk at 130 % of the link, 1,000 urgent jobs a second",
        .plan = {.length_ns = 60000 * MS,
                 .n_groups = 3,
                 .groups = {{"bulk, 60 %", 1, 4, PRIORITY_BULK, 4 * MIB, 64, 1767, 40 * US, 0},
                            {"bulk, 70 %", 2, 4, PRIORITY_BULK, 4 * MIB, 64, 2062, 40 * US, 0},
                            {"urgent 4 KiB", 3, 1, PRIORITY_URGENT, 4 * KIB, 64, 1000, 2 * US, 0}}},
        .check = check_overload,
        .has_without = true,
        .n_like = 1000,
    },
    {
        .name = "behind_bulk",
        .story = "urgent copies wait for the bulk bytes in flight, not for the queues",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"urgent 1 MiB", 1, 1, PRIORITY_URGENT, 1 * MIB, 0, 1000, 10 * US, 0},
                            BULK_CLIENTS(2)}},
        .check = check_behind_bulk,
    },
    {
        .name = "kept_1000",
        .story = "1,000 urgent jobs a second leave bulk its link",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"urgent 4 KiB", 1, 1, PRIORITY_URGENT, 4 * KIB, 0, 1000, 2 * US, 0},
                            BULK_CLIENTS(2)}},
        .check = check_kept,
        .has_without = true,
    },
    {
        .name = "kept_20000",
        .story = "and 20,000",
        .plan = {.length_ns = LENGTH,
                 .n_groups = 2,
                 .groups = {{"urgent 4 KiB", 1, 1, PRIORITY_URGENT, 4 * KIB, 0, 20000, 2 * US, 0},
                            BULK_CLIENTS(2)}},
        .check = check_kept,
        .has_without = true,
    },
};
const size_t sim_n_scenarios = ARRAY_SIZE(sim_scenarios);
