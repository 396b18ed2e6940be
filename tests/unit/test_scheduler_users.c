/*
 * Whose chunk goes next: users have equal device time, a share of it as urgent, and among the flows
 * of one user what is due first goes first.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/scheduler_bench.h"

/* ---- users ---------------------------------------------------------------------------------- */

/* Two users with 1 and 50 flows take turns, whatever the sizes of their chunks come to. */
static void test_users_have_equal_device_time(void)
{
    enum { N_FLOWS = 51, N_CHUNKS = 5000 };
    struct scheduler scheduler = make();
    struct flow flows[N_FLOWS];
    uint64_t had_ns[2] = {0};

    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of(PRIORITY_BULK, MIB + random_below(4 * MIB));
        flows[i].user = &users[i == 0 ? 0 : 1];
        scheduler_add(&scheduler, &flows[i], at_ns);
    }
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        struct flow *flow = step(&scheduler);
        uint64_t device_ns = 1 + random_below(1000000); /* nothing that anybody expected */

        had_ns[flow == &flows[0] ? 0 : 1] += device_ns;
        scheduler_done(&scheduler, &charges[--n_charges], device_ns);
    }
    CHECK_LE(had_ns[0], had_ns[1] + 2000000);
    CHECK_LE(had_ns[1], had_ns[0] + 2000000);
}

/* A broken worker's time: sums do not run over, and whom it concerns has its turn all the same,
 * when the other has had ten seconds. */
static void check_time(uint64_t device_ns)
{
    struct scheduler scheduler = make();
    struct flow flows[2] = {flow_of(PRIORITY_URGENT, 64), flow_of(PRIORITY_URGENT, 64)};
    unsigned n_others = 0;

    flows[1].user = &users[1];
    for (unsigned i = 0; i < 2; i++) {
        flows[i].next_records = 1;
        scheduler_add(&scheduler, &flows[i], at_ns);
    }
    while (step(&scheduler) != &flows[0]) {
        scheduler_done(&scheduler, &charges[--n_charges], 1000);
    }
    scheduler_done(&scheduler, &charges[--n_charges], device_ns);
    flows[0].next_records = UINT32_MAX;
    while (step(&scheduler) != &flows[0]) {
        scheduler_done(&scheduler, &charges[--n_charges], 1000000);
        at_ns += 1000000;
        n_others++;
        CHECK_LE(n_others, 10002);
    }
    CHECK_LE(charges[n_charges - 1].cost_ns, 10000000000);
    scheduler_done(&scheduler, &charges[--n_charges], 1000);
    CHECK_EQ(scheduler_in_flight(&scheduler, PRIORITY_URGENT), 0);
}

static void test_times_that_cannot_be(void)
{
    static const uint64_t times[] = {
        10000000001, UINT64_C(1) << 62, INT64_MAX, UINT64_MAX / 2 + 2, UINT64_MAX,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(times); i++) {
        check_time(times[i]);
    }
}

/* What one had as urgent counts where it is normal. */
static void test_device_time_counts_across_priorities(void)
{
    struct scheduler scheduler = make();
    struct flow urgent = flow_of(PRIORITY_URGENT, 8 * MIB);
    struct flow normal = flow_of(PRIORITY_NORMAL, 4 * MIB);
    struct flow other = flow_of(PRIORITY_NORMAL, 4 * MIB);

    other.user = &users[1];
    scheduler_add(&scheduler, &urgent, at_ns);
    scheduler_add(&scheduler, &normal, at_ns);
    scheduler_add(&scheduler, &other, at_ns);
    CHECK(step(&scheduler) == &urgent);
    scheduler_remove(&scheduler, &urgent);
    done(&scheduler, PRIORITY_URGENT, 0, 8 * MIB);
    CHECK(step(&scheduler) == &other);
    CHECK(step(&scheduler) == &other);
    CHECK(step(&scheduler) == &normal);
}

/* Who comes back after a long time has no claim to what the others had meanwhile. */
static void test_who_was_away_has_saved_nothing(void)
{
    struct scheduler scheduler = make();
    struct flow one = flow_of(PRIORITY_NORMAL, 4 * MIB);
    struct flow other = flow_of(PRIORITY_NORMAL, 4 * MIB);
    unsigned n = 0;

    other.user = &users[1];
    scheduler_add(&scheduler, &one, at_ns);
    for (unsigned i = 0; i < 1000; i++) {
        CHECK(step(&scheduler) == &one);
        done(&scheduler, PRIORITY_NORMAL, 0, 4 * MIB);
    }
    scheduler_add(&scheduler, &other, at_ns);
    while (step(&scheduler) == &other) {
        done(&scheduler, PRIORITY_NORMAL, 0, 4 * MIB);
        n++;
    }
    CHECK_LE(n, 2 + SCHEDULER_CATCH_UP / 84000); /* a chunk is 84 us */
}

/*
 * A user's op was thought to take ten seconds, after a tiny chunk that was slow; another user
 * joined where that one seemed to be; then the chunk took a millisecond, and the other one had
 * nothing for ten seconds.
 */
static void test_who_joins_pays_for_no_guess(void)
{
    struct scheduler scheduler = make();
    struct flow guessed = flow_of(PRIORITY_NORMAL, 4096), other = flow_of(PRIORITY_NORMAL, 4096);
    unsigned n_other = 0;

    rate.record_ns = 1000000;
    guessed.next_records = 10000;
    other.user = &users[1];
    scheduler_add(&scheduler, &guessed, at_ns);
    CHECK(step(&scheduler) == &guessed);
    scheduler_add(&scheduler, &other, at_ns);
    scheduler_done(&scheduler, &charges[--n_charges], 1000000);
    for (unsigned i = 0; i < 100; i++) {
        n_other += step(&scheduler) == &other;
        scheduler_done(&scheduler, &charges[--n_charges], 1000000);
    }
    CHECK_GE(n_other, 49);
    CHECK_LE(n_other, 51);
}

/* Of a hundred users with some priorities each: the one with the least time is always next. */
static void test_the_least_served_goes_first(void)
{
    enum { N_USERS = 100, N_STEPS = 5000 };
    struct scheduler scheduler = make();
    static struct flow flows[N_USERS];

    for (unsigned i = 0; i < N_USERS; i++) {
        flows[i] = flow_of(PRIORITY_NORMAL, 4096);
        flows[i].user = &users[i];
        scheduler_add(&scheduler, &flows[i], at_ns);
    }
    for (unsigned i = 0; i < N_STEPS; i++) {
        struct flow *flow = next_of(&scheduler);

        for (unsigned k = 0; k < N_USERS; k++) {
            CHECK(!flows[k].is_queued || flow->user->used_ns <= users[k].used_ns);
        }
        CHECK(step(&scheduler) == flow);
        scheduler_done(&scheduler, &charges[--n_charges], 1 + random_below(200000));
        flow = &flows[random_below(N_USERS)];
        if (random_below(2) == 0) {
            scheduler_add(&scheduler, flow, at_ns);
        } else {
            scheduler_remove(&scheduler, flow);
        }
        scheduler_add(&scheduler, &flows[random_below(N_USERS)], at_ns);
        scheduler_add(&scheduler, &flows[0], at_ns);
    }
}

/* Nobody knows what a chunk of a new op costs: a job has one in flight until that is measured. */
static void test_an_unknown_op_is_measured_first(void)
{
    struct scheduler scheduler = make();
    struct flow flow = flow_of(PRIORITY_BULK, 4096);

    rate.is_known = false;
    flow.next_records = 10;
    scheduler_add(&scheduler, &flow, at_ns);
    CHECK(step(&scheduler) == &flow);
    CHECK(step(&scheduler) == NULL);
    scheduler_done(&scheduler, &charges[--n_charges], 0); /* it failed */
    CHECK(step(&scheduler) == &flow);
    scheduler_remove(&scheduler, &flow);
    scheduler_add(&scheduler, &flow, at_ns);
    CHECK(step(&scheduler) == NULL);
    scheduler_done(&scheduler, &charges[--n_charges], 70000);
    CHECK(step(&scheduler) == &flow);
    CHECK_EQ(charges[n_charges - 1].cost_ns, 70000);
    CHECK(step(&scheduler) == &flow);
}

/*
 * A push a little larger than a chunk ends with a chunk of one record, which took as long as a
 * launch does.  As a rate that made its user's next large chunk cost a hundred times what it did.
 */
static void test_a_tiny_chunk_says_little_of_the_rate(void)
{
    struct scheduler scheduler = make();
    struct flow flow = flow_of(PRIORITY_BULK, 4 * MIB);

    rate.is_known = false;
    scheduler_add(&scheduler, &flow, at_ns);
    for (unsigned i = 0; i < 100; i++) {
        flow.next_records = i % 2 == 0 ? 8192 : 1;
        flow.next_link_size = i % 2 == 0 ? 4 * MIB : 512;
        CHECK(step(&scheduler) == &flow);
        if (i > 0 && i % 2 == 0) {
            CHECK_LE(charges[n_charges - 1].cost_ns, 100000);
        }
        scheduler_done(&scheduler, &charges[--n_charges], i % 2 == 0 ? 85000 : 8000);
    }
}

/* It may go while its chunk is still out. */
static void test_a_held_flow_is_removed(void)
{
    struct scheduler scheduler = make();
    struct flow flow = flow_of(PRIORITY_BULK, 4096);

    rate.is_known = false;
    flow.next_records = 10;
    scheduler_add(&scheduler, &flow, at_ns);
    CHECK(step(&scheduler) == &flow);
    scheduler_remove(&scheduler, &flow);
    CHECK_EQ(scheduler.classes[PRIORITY_BULK].n_flows, 0);
    scheduler_done(&scheduler, &charges[--n_charges], 70000);
    CHECK(step(&scheduler) == NULL);
}

/* ---- the share of what is urgent ------------------------------------------------------------ */

/* Issue what goes next and have it done at once; returns the priority that it ran as. */
static enum priority run_one(struct scheduler *scheduler, const struct flow *expected,
                             uint64_t device_ns)
{
    CHECK(step(scheduler) == expected);
    struct scheduler_charge charge = charges[--n_charges];
    scheduler_done(scheduler, &charge, device_ns);
    return charge.place.priority;
}

/* A user that is alone takes nothing from anybody. */
static void test_alone_all_may_be_urgent(void)
{
    struct scheduler scheduler = make();
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);

    scheduler_add(&scheduler, &urgent, at_ns);
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQ(run_one(&scheduler, &urgent, 1000000), PRIORITY_URGENT);
    }
}

/* Past its burst it runs as normal, in turn with what is normal, until time has given it more. */
static void test_too_much_urgent_work_is_normal(void)
{
    struct scheduler scheduler = make();
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);
    struct flow other = flow_of(PRIORITY_NORMAL, 4096);
    unsigned n_urgent = 0, n_normal = 0, n_other = 0;

    other.user = &users[1];
    scheduler_add(&scheduler, &urgent, at_ns);
    scheduler_add(&scheduler, &other, at_ns);
    for (unsigned i = 0; i < 1000; i++) {
        struct flow *flow = step(&scheduler);
        struct scheduler_charge charge = charges[--n_charges];

        scheduler_done(&scheduler, &charge, 1000000);
        n_urgent += flow == &urgent && charge.place.priority == PRIORITY_URGENT;
        n_normal += flow == &urgent && charge.place.priority == PRIORITY_NORMAL;
        n_other += flow == &other;
        at_ns += 1000000; /* one device, so this is what it gives */
    }
    CHECK_GE(n_urgent, 490); /* its half */
    CHECK_LE(n_urgent, 510);
    CHECK_GE(n_other, 490);
    CHECK_EQ(n_urgent + n_normal + n_other, 1000);
    /* Nothing comes from the device any more, but time passes. */
    while (run_one(&scheduler, next_of(&scheduler), 1000000) == PRIORITY_URGENT) {
    }
    scheduler_remove(&scheduler, &other);
    scheduler_add(&scheduler, &other, at_ns);
    at_ns += 100 * (uint64_t)SCHEDULER_BURST;
    for (unsigned i = 0; i < SCHEDULER_BURST / 1000000; i++) {
        CHECK_EQ(run_one(&scheduler, &urgent, 1000000), PRIORITY_URGENT);
    }
}

/* Its flows may go, and come, and be of several lanes meanwhile. */
static void test_random_days_of_urgent_users(void)
{
    enum { N_FLOWS = 60, N_STEPS = 50000 };
    struct scheduler scheduler = make();
    static struct flow flows[N_FLOWS];

    scheduler_device_up(&scheduler, 1, &four_chunks);
    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of((enum priority)random_below(PRIORITY_COUNT), 4096);
        flows[i].user = &users[random_below(5)];
        flows[i].devices = random_below(2) == 0 ? SCHEDULER_ANY_DEVICE
                                                : SCHEDULER_DEVICE((uint32_t)random_below(2));
    }
    for (unsigned i = 0; i < N_STEPS; i++) {
        struct flow *flow = &flows[random_below(N_FLOWS)];
        struct scheduler_place place;

        at_ns += random_below(100000);
        switch (random_below(5)) {
        case 0:
            scheduler_add(&scheduler, flow, at_ns);
            break;
        case 1:
            scheduler_remove(&scheduler, flow);
            break;
        case 2:
            if (n_charges > 0) {
                size_t k = random_below(n_charges);
                struct scheduler_charge charge = charges[k];

                charges[k] = charges[--n_charges];
                scheduler_done(&scheduler, &charge, random_below(400000));
            }
            break;
        default:
            flow = scheduler_next(&scheduler, at_ns, &place);
            if (flow != NULL) {
                CHECK(flow->is_queued && (flow->devices & SCHEDULER_DEVICE(place.device)));
                CHECK(place.priority == flow->priority ||
                      (flow->priority == PRIORITY_URGENT && place.priority == PRIORITY_NORMAL));
                issue(&scheduler, flow, &place);
            }
        }
    }
    while (n_charges > 0) {
        scheduler_done(&scheduler, &charges[--n_charges], 0);
    }
    for (unsigned i = 0; i < N_FLOWS; i++) {
        scheduler_remove(&scheduler, &flows[i]);
    }
    CHECK_EQ(scheduler.n_active, 0);
    CHECK_EQ(scheduler.n_users, 0);
    CHECK(scheduler.demoted.top == NULL);
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        CHECK_EQ(scheduler.classes[priority].lanes, 0);
        CHECK_EQ(scheduler.classes[priority].n_flows, 0);
        CHECK_EQ(scheduler_in_flight(&scheduler, priority), 0);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Of one user's flows: those in a hurry by deadline, the others in turn. */
static void test_what_is_due_first_goes_first(void)
{
    struct scheduler scheduler = make();
    struct flow none = flow_of(PRIORITY_NORMAL, 4096);
    struct flow far = flow_of(PRIORITY_NORMAL, 4096);
    struct flow near = flow_of(PRIORITY_NORMAL, 4096);
    struct flow nearer = flow_of(PRIORITY_NORMAL, 4096);

    far.deadline_ns = 10 * SCHEDULER_DUE;
    near.deadline_ns = SCHEDULER_DUE / 2;
    nearer.deadline_ns = SCHEDULER_DUE / 3;
    scheduler_add(&scheduler, &none, at_ns);
    scheduler_add(&scheduler, &far, at_ns);
    scheduler_add(&scheduler, &near, at_ns);
    scheduler_add(&scheduler, &nearer, at_ns);
    CHECK(step(&scheduler) == &nearer);
    CHECK(step(&scheduler) == &nearer);
    scheduler_remove(&scheduler, &nearer);
    CHECK(step(&scheduler) == &near);
    scheduler_remove(&scheduler, &near);
    CHECK(step(&scheduler) == &none); /* a far deadline is no worse than none */
    CHECK(step(&scheduler) == &far);
    CHECK(step(&scheduler) == &none);
    at_ns = 9 * SCHEDULER_DUE + 2;
    CHECK(step(&scheduler) == &far);
    CHECK(step(&scheduler) == &none); /* long due */
    CHECK(step(&scheduler) == &far);  /* now it is near */
    CHECK(step(&scheduler) == &far);
}

/* Nobody waits for ever behind others' deadlines: what is due is due. */
static void test_a_flow_without_deadline_has_its_turn(void)
{
    struct scheduler scheduler = make();
    struct flow none = flow_of(PRIORITY_NORMAL, 4096);
    struct flow hasty = flow_of(PRIORITY_NORMAL, 4096);
    unsigned n = 0;

    scheduler_add(&scheduler, &none, at_ns);
    for (bool is_over = false; !is_over; n++) {
        hasty.deadline_ns = at_ns + 1000000;
        scheduler_add(&scheduler, &hasty, at_ns);
        is_over = step(&scheduler) == &none;
        scheduler_remove(&scheduler, &hasty);
        done(&scheduler, PRIORITY_NORMAL, 0, 4096);
        at_ns += 1000000;
    }
    CHECK_EQ(n, SCHEDULER_DUE / 1000000);
}

/* Hundreds of flows with random deadlines, at random times: always the one that is due first. */
static void test_random_deadlines(void)
{
    enum { N_FLOWS = 300, N_STEPS = 5000 };
    struct scheduler scheduler = make();
    static struct flow flows[N_FLOWS];

    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of(PRIORITY_NORMAL, 4096);
    }
    for (unsigned i = 0; i < N_STEPS; i++) {
        struct flow *flow = &flows[random_below(N_FLOWS)];

        at_ns += random_below(2000000);
        scheduler_remove(&scheduler, flow);
        if (random_below(3) > 0) {
            flow->deadline_ns = random_below(2) * (at_ns + random_below(2 * SCHEDULER_DUE));
            scheduler_add(&scheduler, flow, at_ns);
        }
        flow = next_of(&scheduler);
        for (unsigned k = 0; k < N_FLOWS; k++) {
            CHECK(!flows[k].is_queued || (flow != NULL && flow->due_ns <= flows[k].due_ns));
        }
        if (flow != NULL && random_below(2) == 0) {
            CHECK(step(&scheduler) == flow);
            CHECK_LE(flow->due_ns, at_ns + SCHEDULER_DUE + N_STEPS);
            CHECK(flow->deadline_ns == 0 || flow->due_ns <= flow->deadline_ns);
            done(&scheduler, PRIORITY_NORMAL, 0, 4096);
        }
    }
}

CHECK_MAIN(
    CHECK_TEST(test_users_have_equal_device_time), CHECK_TEST(test_times_that_cannot_be),
    CHECK_TEST(test_device_time_counts_across_priorities),
    CHECK_TEST(test_who_was_away_has_saved_nothing), CHECK_TEST(test_who_joins_pays_for_no_guess),
    CHECK_TEST(test_the_least_served_goes_first), CHECK_TEST(test_an_unknown_op_is_measured_first),
    CHECK_TEST(test_a_tiny_chunk_says_little_of_the_rate), CHECK_TEST(test_a_held_flow_is_removed),
    CHECK_TEST(test_alone_all_may_be_urgent), CHECK_TEST(test_too_much_urgent_work_is_normal),
    CHECK_TEST(test_random_days_of_urgent_users), CHECK_TEST(test_what_is_due_first_goes_first),
    CHECK_TEST(test_a_flow_without_deadline_has_its_turn), CHECK_TEST(test_random_deadlines))
