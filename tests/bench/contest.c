/*
 * Contest: rounds, order and medians.  See contest.h.
 */
#include "tests/bench/contest.h"

#include "tests/bench/bench.h"

#include <string.h>

static void run_round(struct contest *contest, uint32_t *ret_order)
{
    if (contest->begin != NULL) {
        contest->begin(contest->owner);
    }
    bench_shuffle(ret_order, contest->n_variants);
}

void contest_run(struct contest *contest)
{
    uint32_t order[CONTEST_VARIANTS_MAX];

    run_round(contest, order);
    for (uint32_t turn = 0; turn < contest->n_variants; turn++) {
        contest->run(contest->owner, order[turn]);
    }
    for (uint32_t round = 0; round < contest->n_rounds; round++) {
        run_round(contest, order);
        for (uint32_t turn = 0; turn < contest->n_variants; turn++) {
            contest->seconds[order[turn]][round] = contest->run(contest->owner, order[turn]);
        }
    }
}

double contest_seconds(const struct contest *contest, uint32_t variant)
{
    double seconds[CONTEST_ROUNDS_MAX];

    memcpy(seconds, contest->seconds[variant], sizeof(seconds));
    return bench_median(seconds, contest->n_rounds);
}

double contest_ratio(const struct contest *contest, uint32_t variant, uint32_t other)
{
    double ratios[CONTEST_ROUNDS_MAX];

    for (uint32_t i = 0; i < contest->n_rounds; i++) {
        ratios[i] = contest->seconds[other][i] / contest->seconds[variant][i];
    }
    return bench_median(ratios, contest->n_rounds);
}
