/*
 * Pace: see pace.h.  A slot is clean (its input is fresh), under way, or used (its result has not
 * been looked at).
 */
#include "tests/bench/pace.h"

#include "client/cli/arrivals.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <string.h>

#define WAIT_NS UINT64_C(1000000) /* for a completion, which ends it earlier */

struct slots {
    uint32_t n;
    uint32_t slots[PACE_SLOTS_MAX];
};

struct pace {
    struct pace_plan plan;
    uint8_t *want;
    uint64_t due_ns[PACE_SLOTS_MAX];
    struct slots clean;
    struct slots used;
    uint32_t n_flying;
    struct arrivals arrivals;
    uint64_t start_ns; /* the schedule's 0 */
    uint64_t next_ns;
    uint64_t from_ns;
    uint64_t to_ns;
    struct histogram *histogram;
};

/* ---- slots ---------------------------------------------------------------------------------- */

static void put(struct slots *slots, uint32_t slot)
{
    slots->slots[slots->n++] = slot;
}

static uint32_t get(struct slots *slots)
{
    return slots->slots[--slots->n];
}

static void make_clean(struct pace *pace, uint32_t slot)
{
    const struct pace_plan *plan = &pace->plan;
    size_t at = slot * plan->size;

    bench_fill(pace->want + at, plan->size);
    memcpy(plan->in + at, pace->want + at, plan->size);
    bench_poison(plan->out + at, plan->size);
    put(&pace->clean, slot);
}

static void check(const struct pace *pace, uint32_t slot)
{
    size_t at = slot * pace->plan.size;

    bench_check_same("urgent", pace->plan.out + at, pace->want + at, pace->plan.size);
}

static void renew(struct pace *pace)
{
    uint32_t slot = get(&pace->used);

    check(pace, slot);
    make_clean(pace, slot);
}

void pace_create(const struct pace_plan *plan, struct pace **ret_pace)
{
    struct pace *pace = bench_allocate(sizeof(*pace));

    *pace = (struct pace){.plan = *plan, .want = bench_allocate(plan->n_slots * plan->size)};
    for (uint32_t slot = 0; slot < plan->n_slots; slot++) {
        make_clean(pace, slot);
    }
    *ret_pace = pace;
}

void pace_destroy(struct pace *pace)
{
    free(pace->want);
    free(pace);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void note(struct pace *pace, uint64_t due_ns, uint64_t now)
{
    if (due_ns >= pace->from_ns) {
        histogram_add(pace->histogram, now - due_ns);
    }
}

static void plan_next(struct pace *pace)
{
    pace->next_ns = pace->start_ns + arrivals_next(&pace->arrivals);
}

static void send_next(struct pace *pace)
{
    uint32_t slot = get(&pace->clean);

    pace->due_ns[slot] = pace->next_ns;
    pace->n_flying++;
    pace->plan.way.send(pace->plan.way.state, slot);
    plan_next(pace);
}

/* Returns whether any was done. */
static bool take(struct pace *pace)
{
    uint32_t slots[PACE_SLOTS_MAX];
    uint32_t n = pace->plan.way.take(pace->plan.way.state, slots, PACE_SLOTS_MAX);
    uint64_t now = n > 0 ? now_ns() : 0;

    for (uint32_t i = 0; i < n; i++) {
        note(pace, pace->due_ns[slots[i]], now);
        put(&pace->used, slots[i]);
    }
    pace->n_flying -= n;
    return n > 0;
}

/* A slot of 4 KiB takes about 2 us, one of 64 KiB 25. */
static bool is_time_to_renew(const struct pace *pace, uint64_t now)
{
    uint64_t renew_ns = 2000 + pace->plan.size / 2;

    return pace->used.n > 0 &&
           (pace->clean.n == 0 || (pace->n_flying == 0 && pace->next_ns > now + renew_ns));
}

static void turn(struct pace *pace, uint64_t now)
{
    const struct pace_way *way = &pace->plan.way;
    bool is_sending = pace->next_ns < pace->to_ns;

    if (is_sending && pace->next_ns <= now && pace->clean.n > 0) {
        send_next(pace);
    } else if (pace->n_flying > 0 && take(pace)) {
        return;
    } else if (is_time_to_renew(pace, now)) {
        renew(pace);
    } else if (way->wait != NULL) {
        way->wait(way->state, is_sending && pace->clean.n > 0 ? pace->next_ns : now + WAIT_NS);
    }
}

void pace_run(struct pace *pace, uint64_t from_ns, uint64_t to_ns, struct histogram *histogram)
{
    uint64_t end_ns = to_ns + (to_ns - from_ns), now = now_ns();

    pace->from_ns = from_ns;
    pace->to_ns = to_ns;
    pace->histogram = histogram;
    pace->start_ns = now;
    arrivals_init(&pace->arrivals, ARRIVALS_CONSTANT, pace->plan.rate, 0);
    plan_next(pace);
    while (pace->n_flying > 0 || (pace->next_ns < to_ns && now < end_ns)) {
        turn(pace, now);
        now = now_ns();
    }
    for (; pace->next_ns < to_ns; plan_next(pace)) { /* given up */
        note(pace, pace->next_ns, now);
    }
    while (pace->used.n > 0) {
        renew(pace);
    }
}

void pace_add(struct histogram *total, const struct histogram *more)
{
    if (more->n == 0) {
        return;
    }
    total->least = total->n == 0 ? more->least : MIN(total->least, more->least);
    total->greatest = MAX(total->greatest, more->greatest);
    total->n += more->n;
    total->sum += more->sum;
    for (uint32_t i = 0; i < HISTOGRAM_SIZE; i++) {
        total->counts[i] += more->counts[i];
    }
}
