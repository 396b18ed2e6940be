/*
 * The scheduler's policy as tables: who goes next, given what waits and what is in flight.  It
 * knows no clock and no device, so whole days of it run here in a moment.
 */
#include "daemon/scheduler.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#define MIB ((uint64_t)1 << 20)

static const struct worker_caps four_chunks = {.bulk_chunks = 4, .bulk_bytes = 16 * MIB};

static struct scheduler_user users[200];
static struct scheduler_rate rate;
static struct scheduler_charge charges[8 * WORK_ENTRIES]; /* in flight */
static size_t n_charges;
static uint64_t at_ns;

static struct scheduler make(void)
{
    struct scheduler scheduler;

    memset(users, 0, sizeof(users));
    rate = (struct scheduler_rate){.is_known = true};
    n_charges = 0;
    at_ns = 0;
    scheduler_init(&scheduler);
    scheduler_device_up(&scheduler, 0, &four_chunks);
    return scheduler;
}

static struct flow flow_of(enum priority priority, uint64_t next_size)
{
    return (struct flow){.priority = priority,
                         .devices = SCHEDULER_ANY_DEVICE,
                         .user = &users[0],
                         .rate = &rate,
                         .next_size = next_size,
                         .next_link_size = next_size};
}

/* What goes next, where there is one device. */
static struct flow *next_of(struct scheduler *scheduler)
{
    struct scheduler_place place = {.device = UINT32_MAX};
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    CHECK_EQ(place.device, flow != NULL ? 0 : UINT32_MAX);
    return flow;
}

/* The chunk of this flow goes where it shall, and is on the books. */
static void issue(struct scheduler *scheduler, struct flow *flow,
                  const struct scheduler_place *place)
{
    CHECK_LT(n_charges, ARRAY_SIZE(charges));
    scheduler_issued(scheduler, flow, place, &charges[n_charges++]);
}

/* The oldest chunk of this priority and size comes back from this device. */
static void done(struct scheduler *scheduler, enum priority priority, uint32_t device,
                 uint64_t size)
{
    for (size_t i = 0; i < n_charges; i++) {
        struct scheduler_charge charge = charges[i];

        if (charge.place.priority == priority && charge.place.device == device &&
            charge.size == size) {
            memmove(&charges[i], &charges[i + 1], (--n_charges - i) * sizeof(charge));
            scheduler_done(scheduler, &charge, 0);
            return;
        }
    }
    CHECK_FAIL("no such chunk is in flight");
}

/* Take the next flow and issue its chunk. */
static struct flow *step(struct scheduler *scheduler)
{
    struct scheduler_place place;
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    if (flow != NULL) {
        issue(scheduler, flow, &place);
        CHECK_EQ(place.device, 0);
    }
    return flow;
}

static void test_nothing_waits(void)
{
    struct scheduler scheduler = make();

    CHECK(next_of(&scheduler) == NULL);
}

static void test_urgent_then_normal_then_bulk(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, MIB);
    struct flow normal = flow_of(PRIORITY_NORMAL, MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, MIB);

    scheduler_add(&scheduler, &bulk, at_ns);
    scheduler_add(&scheduler, &normal, at_ns);
    scheduler_add(&scheduler, &urgent, at_ns);
    CHECK(next_of(&scheduler) == &urgent);
    scheduler_remove(&scheduler, &urgent);
    CHECK(next_of(&scheduler) == &normal);
    scheduler_remove(&scheduler, &normal);
    CHECK(next_of(&scheduler) == &bulk);
    scheduler_remove(&scheduler, &bulk);
    CHECK(next_of(&scheduler) == NULL);
}

/* What one flow of this priority and chunk size gets into flight before it is held back. */
static void test_how_much_is_let_in(void)
{
    static const struct {
        enum priority priority;
        uint64_t size;
        unsigned n;
    } cases[] = {
        {PRIORITY_BULK, 1, 4},       /* bounded by count ... */
        {PRIORITY_BULK, 4 * MIB, 4}, /* ... and by bytes */
        {PRIORITY_BULK, 5 * MIB, 3},    {PRIORITY_BULK, 8 * MIB, 2},
        {PRIORITY_BULK, 16 * MIB, 1},   {PRIORITY_BULK, 64 * MIB, 1}, /* one is always let in */
        {PRIORITY_NORMAL, 1, 32},       {PRIORITY_NORMAL, 4 * MIB, 4},
        {PRIORITY_NORMAL, 16 * MIB, 1}, {PRIORITY_URGENT, 1, WORK_ENTRIES},
        {PRIORITY_URGENT, 4 * MIB, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct scheduler scheduler = make();
        struct flow flow = flow_of(cases[i].priority, cases[i].size);
        unsigned n = 0;

        scheduler_add(&scheduler, &flow, at_ns);
        while (n < 2 * WORK_ENTRIES && step(&scheduler) != NULL) {
            n++;
        }
        if (n != cases[i].n) {
            CHECK_FAIL("case %zu: %u chunks were let in, not %u", i, n, cases[i].n);
        }
        done(&scheduler, cases[i].priority, 0, cases[i].size);
        CHECK(next_of(&scheduler) == &flow);
    }
}

static void test_urgent_passes_bulk_that_is_held_back(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, 4 * MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);

    scheduler_add(&scheduler, &bulk, at_ns);
    while (step(&scheduler) != NULL) {
    }
    scheduler_add(&scheduler, &urgent, at_ns);
    CHECK(step(&scheduler) == &urgent);
}

/* A small bulk flow must not starve behind a large one that does not fit: turns, not sizes. */
static void test_the_first_in_turn_is_waited_for(void)
{
    struct scheduler scheduler = make();
    struct flow first = flow_of(PRIORITY_BULK, 12 * MIB);
    struct flow second = flow_of(PRIORITY_BULK, 12 * MIB);
    struct flow small = flow_of(PRIORITY_BULK, MIB);

    scheduler_add(&scheduler, &first, at_ns);
    scheduler_add(&scheduler, &second, at_ns);
    scheduler_add(&scheduler, &small, at_ns);
    CHECK(step(&scheduler) == &first);
    CHECK(next_of(&scheduler) == NULL);
    done(&scheduler, PRIORITY_BULK, 0, 12 * MIB);
    CHECK(step(&scheduler) == &second);
    CHECK(step(&scheduler) == &small);
}

/* A hundred flows of random chunk sizes: each gets its turn, whatever the others ask for. */
static void test_flows_take_turns(void)
{
    enum { N_FLOWS = 100, N_ROUNDS = 50 };
    struct scheduler scheduler = make();
    struct flow flows[N_FLOWS];
    unsigned n_issued[N_FLOWS] = {0};

    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of(PRIORITY_BULK, 1 + random_below(16 * MIB));
        scheduler_add(&scheduler, &flows[i], at_ns);
    }
    for (unsigned i = 0; i < N_FLOWS * N_ROUNDS; i++) {
        struct flow *flow = step(&scheduler);

        CHECK(flow != NULL);
        n_issued[flow - flows]++;
        done(&scheduler, PRIORITY_BULK, 0, flow->next_size);
    }
    for (unsigned i = 0; i < N_FLOWS; i++) {
        CHECK_EQ(n_issued[i], N_ROUNDS);
    }
}

/* Random adding, removing, issuing and finishing: the books always balance. */
static void test_books_balance(void)
{
    enum { N_FLOWS = 20 };
    struct scheduler scheduler = make();
    struct flow flows[N_FLOWS];
    uint64_t in_flight[PRIORITY_COUNT][4 * WORK_ENTRIES];
    uint32_t n[PRIORITY_COUNT] = {0};

    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of((enum priority)(i % PRIORITY_COUNT), MIB);
    }
    for (unsigned i = 0; i < 20000; i++) {
        struct flow *flow = &flows[random_below(N_FLOWS)];
        enum priority priority = flow->priority;

        switch (random_below(4)) {
        case 0:
            flow->next_size = 1 + random_below(16 * MIB);
            scheduler_add(&scheduler, flow, at_ns);
            break;
        case 1:
            scheduler_remove(&scheduler, flow);
            break;
        case 2:
            if ((flow = step(&scheduler)) != NULL) {
                CHECK(flow->is_queued);
                in_flight[flow->priority][n[flow->priority]++] = flow->next_size;
            }
            break;
        default:
            if (n[priority] > 0) {
                done(&scheduler, priority, 0, in_flight[priority][--n[priority]]);
            }
        }
        for (enum priority p = 0; p < PRIORITY_COUNT; p++) {
            uint64_t bytes = 0;

            for (uint32_t k = 0; k < n[p]; k++) {
                bytes += in_flight[p][k];
            }
            CHECK_EQ(scheduler_in_flight(&scheduler, p), n[p]);
            CHECK_EQ(scheduler.loads[0][p].n_bytes, bytes);
            CHECK_LE(n[p], WORK_ENTRIES);
        }
    }
}

/* ---- priorities ----------------------------------------------------------------------------- */

/* Large chunks of what is above take the room of bulk; small ones pass beside it. */
static void test_large_urgent_work_goes_ahead_of_bulk(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, 4 * MIB);
    struct flow large = flow_of(PRIORITY_URGENT, 4 * MIB);
    struct flow small = flow_of(PRIORITY_URGENT, SCHEDULER_SMALL);

    scheduler_add(&scheduler, &bulk, at_ns);
    CHECK(step(&scheduler) == &bulk);
    done(&scheduler, PRIORITY_BULK, 0, 4 * MIB); /* so it is owed nothing for a while */
    scheduler_add(&scheduler, &large, at_ns);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(step(&scheduler) == &large);
    }
    CHECK(step(&scheduler) == NULL);
    scheduler_remove(&scheduler, &large);
    scheduler_add(&scheduler, &small, at_ns);
    CHECK(step(&scheduler) == NULL); /* nor does a small one overtake those of its own priority */
    for (unsigned i = 0; i < 4; i++) {
        done(&scheduler, PRIORITY_URGENT, 0, 4 * MIB);
    }
    CHECK(step(&scheduler) == &small);
    scheduler_remove(&scheduler, &small);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(step(&scheduler) == &bulk);
    }
    CHECK(step(&scheduler) == NULL);
}

/* What a device that knows nothing but priority runs next: taken out of those in flight. */
static struct scheduler_charge take_first(void)
{
    size_t best = 0;

    CHECK_GT(n_charges, 0);
    for (size_t i = 0; i < n_charges; i++) {
        best = charges[i].place.priority < charges[best].place.priority ? i : best;
    }
    struct scheduler_charge charge = charges[best];
    charges[best] = charges[--n_charges];
    return charge;
}

/* Chunks of random length, endlessly; the device goes on at once, before we hear of it. */
static void test_nobody_starves(void)
{
    enum { N_DONE = 20000 };
    struct scheduler scheduler = make();
    struct flow flows[PRIORITY_COUNT];
    uint64_t had_ns[PRIORITY_COUNT] = {0}, total_ns = 0;

    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        flows[priority] = flow_of(priority, 4096);
        scheduler_add(&scheduler, &flows[priority], at_ns);
    }
    while (step(&scheduler) != NULL) {
    }
    struct scheduler_charge running = take_first();
    for (unsigned i = 0; i < N_DONE; i++) {
        struct scheduler_charge ended = running;
        uint64_t device_ns = 1 + random_below(300000);

        running = take_first();
        had_ns[ended.place.priority] += device_ns;
        total_ns += device_ns;
        scheduler_done(&scheduler, &ended, device_ns);
        while (step(&scheduler) != NULL) {
        }
    }
    CHECK_GE(had_ns[PRIORITY_BULK] * 1000, total_ns * 50);
    CHECK_GE(had_ns[PRIORITY_NORMAL] * 1000, total_ns * 100);
    CHECK_GE(had_ns[PRIORITY_URGENT] * 1000, total_ns * 800);
}

/* A bulk chunk that never ends must not stop what is urgent: one at a time goes on. */
static void test_who_is_owed_holds_nobody_up_for_ever(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, 4 * MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);

    scheduler_add(&scheduler, &bulk, at_ns);
    CHECK(step(&scheduler) == &bulk);
    scheduler_remove(&scheduler, &bulk);
    scheduler_add(&scheduler, &urgent, at_ns);
    for (unsigned i = 0; i < 1000; i++) {
        CHECK(step(&scheduler) == &urgent);
        scheduler_done(&scheduler, &charges[--n_charges], 100000);
    }
    CHECK(step(&scheduler) == &urgent);
    CHECK(step(&scheduler) == NULL);
    done(&scheduler, PRIORITY_BULK, 0, 4 * MIB);
    CHECK(step(&scheduler) == &urgent);
}

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

/* ---- several devices ------------------------------------------------------------------------ */

/* Issue what goes next; returns the device, or -1 for none. */
static int place(struct scheduler *scheduler)
{
    struct scheduler_place place;
    struct flow *flow = scheduler_next(scheduler, at_ns, &place);

    if (flow == NULL) {
        return -1;
    }
    issue(scheduler, flow, &place);
    return (int)place.device;
}

static void test_the_least_loaded_device_gets_it(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, 3 * MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);

    scheduler_device_up(&scheduler, 5, &four_chunks);
    scheduler_device_up(&scheduler, 31, &four_chunks);
    scheduler_add(&scheduler, &bulk, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    CHECK_EQ(place(&scheduler), 5);
    CHECK_EQ(place(&scheduler), 31);
    CHECK_EQ(place(&scheduler), 0);
    done(&scheduler, PRIORITY_BULK, 31, 3 * MIB);
    scheduler_add(&scheduler, &urgent, at_ns); /* counts what other priorities have there */
    CHECK_EQ(place(&scheduler), 31);
}

/* Each device has limits of its own, and takes no more from a job than these. */
static void test_a_flow_fills_all_devices(void)
{
    static const struct worker_caps two_chunks = {.bulk_chunks = 2, .bulk_bytes = 16 * MIB};
    struct scheduler scheduler = make();
    struct flow flow = flow_of(PRIORITY_BULK, 4 * MIB);
    unsigned n[2] = {0};
    int device;

    scheduler_device_up(&scheduler, 1, &two_chunks);
    scheduler_add(&scheduler, &flow, at_ns);
    while ((device = place(&scheduler)) >= 0) {
        n[device]++;
    }
    CHECK_EQ(n[0], 4);
    CHECK_EQ(n[1], 2);
    done(&scheduler, PRIORITY_BULK, 1, 4 * MIB);
    CHECK_EQ(place(&scheduler), 1);
    CHECK_EQ(place(&scheduler), -1);
}

static void test_a_flow_of_one_device_waits_for_it(void)
{
    struct scheduler scheduler = make();
    struct flow first = flow_of(PRIORITY_BULK, 16 * MIB);
    struct flow second = flow_of(PRIORITY_BULK, 16 * MIB);
    struct flow other = flow_of(PRIORITY_BULK, 16 * MIB);

    first.devices = second.devices = SCHEDULER_DEVICE(0);
    scheduler_device_up(&scheduler, 1, &four_chunks);
    scheduler_add(&scheduler, &first, at_ns);
    scheduler_add(&scheduler, &second, at_ns);
    scheduler_add(&scheduler, &other, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    CHECK_EQ(place(&scheduler), 1); /* of `other`: the two before it do not hold it up */
    CHECK_EQ(place(&scheduler), -1);
    done(&scheduler, PRIORITY_BULK, 1, 16 * MIB);
    CHECK_EQ(place(&scheduler), 1);
}

/* What fits nowhere now is not overtaken where it may run, but is elsewhere. */
static void test_nobody_overtakes_for_being_small(void)
{
    struct scheduler scheduler = make();
    struct flow filler = flow_of(PRIORITY_BULK, 12 * MIB);
    struct flow large = flow_of(PRIORITY_BULK, 8 * MIB);
    struct flow small = flow_of(PRIORITY_BULK, MIB);

    filler.devices = large.devices = SCHEDULER_DEVICE(0);
    scheduler_device_up(&scheduler, 1, &four_chunks);
    scheduler_add(&scheduler, &filler, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    scheduler_remove(&scheduler, &filler);
    scheduler_add(&scheduler, &large, at_ns);
    scheduler_add(&scheduler, &small, at_ns);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(place(&scheduler), 1); /* though device 0 would have room for `small` */
    }
    CHECK_EQ(place(&scheduler), -1);
    done(&scheduler, PRIORITY_BULK, 0, 12 * MIB);
    CHECK_EQ(place(&scheduler), 0);
}

static void test_a_device_that_is_down_gets_nothing(void)
{
    struct scheduler scheduler = make();
    struct flow any = flow_of(PRIORITY_NORMAL, MIB);
    struct flow pinned = flow_of(PRIORITY_URGENT, MIB);

    pinned.devices = SCHEDULER_DEVICE(1);
    scheduler_device_up(&scheduler, 1, &four_chunks);
    scheduler_add(&scheduler, &any, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    CHECK_EQ(place(&scheduler), 1);
    scheduler_device_down(&scheduler, 1);
    scheduler_add(&scheduler, &pinned, at_ns);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(place(&scheduler), 0);
    }
    done(&scheduler, PRIORITY_NORMAL, 1, MIB); /* known lost later */
    scheduler_device_down(&scheduler, 0);
    CHECK_EQ(place(&scheduler), -1);
    scheduler_device_up(&scheduler, 1, &four_chunks);
    CHECK(scheduler_next(&scheduler, at_ns, &(struct scheduler_place){0}) == &pinned);
    CHECK_EQ(place(&scheduler), 1);
}

/* Whatever waits and runs: within all limits, and never at rest while something waits. */
static void test_random_days_with_several_devices(void)
{
    enum { N_DEVICES = 4, N_FLOWS = 12, N_STEPS = 20000 };
    static struct scheduler_charge in_flight[N_STEPS];
    struct scheduler scheduler = make();
    struct flow flows[N_FLOWS];
    unsigned n_in_flight = 0;

    for (uint32_t device = 1; device < N_DEVICES; device++) {
        scheduler_device_up(&scheduler, device, &four_chunks);
    }
    for (unsigned i = 0; i < N_FLOWS; i++) {
        flows[i] = flow_of(PRIORITY_BULK, 1 + random_below(8 * MIB));
        flows[i].devices = (uint32_t)random_below(2) == 0
                               ? SCHEDULER_ANY_DEVICE
                               : SCHEDULER_DEVICE((uint32_t)random_below(N_DEVICES));
        scheduler_add(&scheduler, &flows[i], at_ns);
    }
    for (unsigned i = 0; i < N_STEPS; i++) {
        struct scheduler_place place;
        struct flow *flow = scheduler_next(&scheduler, at_ns, &place);

        if (flow != NULL && random_below(3) > 0) {
            const struct scheduler_load *load = &scheduler.loads[place.device][PRIORITY_BULK];

            CHECK(flow->devices & SCHEDULER_DEVICE(place.device));
            scheduler_issued(&scheduler, flow, &place, &in_flight[n_in_flight++]);
            CHECK_LE(load->n_chunks, 4);
            CHECK(load->n_chunks == 1 || load->n_bytes <= 16 * MIB);
            flow->next_size = 1 + random_below(8 * MIB);
        } else if (n_in_flight > 0) {
            unsigned k = (unsigned)random_below(n_in_flight);

            scheduler_done(&scheduler, &in_flight[k], 1 + random_below(1000000));
            in_flight[k] = in_flight[--n_in_flight];
        } else {
            CHECK(flow != NULL); /* idle devices take anything */
        }
    }
}

CHECK_MAIN(CHECK_TEST(test_nothing_waits), CHECK_TEST(test_urgent_then_normal_then_bulk),
           CHECK_TEST(test_how_much_is_let_in),
           CHECK_TEST(test_urgent_passes_bulk_that_is_held_back),
           CHECK_TEST(test_the_first_in_turn_is_waited_for), CHECK_TEST(test_flows_take_turns),
           CHECK_TEST(test_books_balance), CHECK_TEST(test_large_urgent_work_goes_ahead_of_bulk),
           CHECK_TEST(test_nobody_starves), CHECK_TEST(test_who_is_owed_holds_nobody_up_for_ever),
           CHECK_TEST(test_users_have_equal_device_time),
           CHECK_TEST(test_device_time_counts_across_priorities),
           CHECK_TEST(test_who_was_away_has_saved_nothing),
           CHECK_TEST(test_the_least_served_goes_first),
           CHECK_TEST(test_an_unknown_op_is_measured_first),
           CHECK_TEST(test_a_held_flow_is_removed), CHECK_TEST(test_what_is_due_first_goes_first),
           CHECK_TEST(test_a_flow_without_deadline_has_its_turn), CHECK_TEST(test_random_deadlines),
           CHECK_TEST(test_the_least_loaded_device_gets_it),
           CHECK_TEST(test_a_flow_fills_all_devices),
           CHECK_TEST(test_a_flow_of_one_device_waits_for_it),
           CHECK_TEST(test_nobody_overtakes_for_being_small),
           CHECK_TEST(test_a_device_that_is_down_gets_nothing),
           CHECK_TEST(test_random_days_with_several_devices))
