/*
 * The scheduler's policy as tables: who goes next, given what waits and what is in flight.  It
 * knows no clock and no device, so whole days of it run here in a moment.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/scheduler_bench.h"

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

/* Where it is known how quick they are there may be more normal chunks, for less than 300 us. */
static void test_how_much_that_is_quick(void)
{
    static const struct {
        enum priority priority;
        float chunk_us; /* 0: never measured */
        unsigned n;
    } cases[] = {
        {PRIORITY_NORMAL, 0, 32},           {PRIORITY_NORMAL, 4, 74}, {PRIORITY_NORMAL, 20, 32},
        {PRIORITY_NORMAL, 1, WORK_ENTRIES}, {PRIORITY_BULK, 4, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct scheduler scheduler = make();
        struct flow flow = flow_of(cases[i].priority, 4096);
        unsigned n = 0;

        rate.devices[0].n_records = cases[i].chunk_us > 0 ? 1000 : 0;
        rate.devices[0].record_ns = cases[i].chunk_us;
        flow.next_records = 1000;
        scheduler_add(&scheduler, &flow, at_ns);
        while (n < 2 * WORK_ENTRIES && step(&scheduler) != NULL) {
            n++;
        }
        if (n != cases[i].n) {
            CHECK_FAIL("case %zu: %u chunks were let in, not %u", i, n, cases[i].n);
        }
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

/* ---- several devices ------------------------------------------------------------------------ */

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

/* So long a record of this op takes on that device: it has had many chunks of it. */
static void measure(struct scheduler *scheduler, struct flow *flow, uint32_t device,
                    uint64_t record_ns)
{
    uint32_t devices = flow->devices, n_records = flow->next_records;

    flow->devices = SCHEDULER_DEVICE(device);
    flow->next_records = 1 + (uint32_t)random_below(1000);
    scheduler_add(scheduler, flow, at_ns);
    for (unsigned i = 0; i < 200; i++) {
        CHECK_EQ(place(scheduler), (int)device);
        n_charges--;
        scheduler_done(scheduler, &charges[n_charges], record_ns * charges[n_charges].n_records);
    }
    scheduler_remove(scheduler, flow);
    flow->devices = devices;
    flow->next_records = n_records;
}

/* Three devices that are quick at different things: each chunk goes where it will be done first. */
static void test_the_first_to_finish_gets_it(void)
{
    enum { N_DEVICES = 3, N_OPS = 4, N_CHUNKS = 40, RECORDS = 1000 };

    for (unsigned round = 0; round < 200; round++) {
        struct scheduler scheduler = make();
        struct scheduler_rate rates[N_OPS] = {0};
        struct flow flows[N_OPS];
        uint64_t record_ns[N_OPS][N_DEVICES], finish_ns[N_DEVICES] = {0};

        scheduler_device_up(&scheduler, 1, &four_chunks);
        scheduler_device_up(&scheduler, 2, &four_chunks);
        for (unsigned op = 0; op < N_OPS; op++) {
            flows[op] = flow_of(PRIORITY_URGENT, 64);
            flows[op].rate = &rates[op];
            flows[op].next_records = RECORDS;
            for (uint32_t device = 0; device < N_DEVICES; device++) {
                record_ns[op][device] = 10 + random_below(10000);
                measure(&scheduler, &flows[op], device, record_ns[op][device]);
            }
        }
        for (unsigned i = 0; i < N_CHUNKS; i++) {
            unsigned op = (unsigned)random_below(N_OPS);

            scheduler_add(&scheduler, &flows[op], at_ns);
            uint32_t device = (uint32_t)place(&scheduler);
            scheduler_remove(&scheduler, &flows[op]);
            CHECK_LT(device, N_DEVICES);
            finish_ns[device] += record_ns[op][device] * RECORDS;
            for (uint32_t other = 0; other < N_DEVICES; other++) {
                /* but for what a float leaves of a sum */
                CHECK_LE(finish_ns[device],
                         (finish_ns[other] + (other != device) * record_ns[op][other] * RECORDS) *
                                 1.0001 +
                             N_CHUNKS);
            }
        }
    }
}

/* A slow device is kept busy, but no chunk is queued there that waiting would have done sooner; and
 * who waits so keeps nobody from the slow one who may use no other. */
static void test_a_slow_device_gets_no_queue(void)
{
    static const struct {
        uint64_t times;
        unsigned n;
    } cases[] = {{1, 4}, {2, 3}, {5, 3}, {6, 1}, {100, 1}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct scheduler scheduler = make();
        struct scheduler_rate unequal = {0};
        struct flow flow = flow_of(PRIORITY_BULK, MIB), pinned = flow_of(PRIORITY_BULK, MIB);
        unsigned n[2] = {0};
        int device;

        scheduler_device_up(&scheduler, 1, &four_chunks);
        flow.rate = &unequal;
        flow.next_records = 1000;
        measure(&scheduler, &flow, 0, 1000);
        measure(&scheduler, &flow, 1, 1000 * cases[i].times);
        scheduler_add(&scheduler, &flow, at_ns);
        while ((device = place(&scheduler)) >= 0) {
            n[device]++;
        }
        CHECK_EQ(n[0], 4);
        if (n[1] != cases[i].n) {
            CHECK_FAIL("%u chunks are on the device that takes %u times as long", n[1],
                       (unsigned)cases[i].times);
        }
        pinned.devices = SCHEDULER_DEVICE(1);
        scheduler_add(&scheduler, &pinned, at_ns);
        CHECK_EQ(place(&scheduler), n[1] < 4 ? 1 : -1);
        done(&scheduler, PRIORITY_BULK, 0, MIB);
        scheduler_remove(&scheduler, &pinned);
        CHECK_EQ(place(&scheduler), 0);
    }
}

/* An op that was never measured there takes as long as elsewhere, or as its bytes do. */
static void test_an_op_that_a_device_has_not_had(void)
{
    struct scheduler scheduler = make();
    struct scheduler_rate known = {0}, unknown = {0};
    struct flow first = flow_of(PRIORITY_URGENT, 64), second = flow_of(PRIORITY_URGENT, 64);

    scheduler_device_up(&scheduler, 1, &four_chunks);
    first.rate = &known;
    first.next_records = 100;
    measure(&scheduler, &first, 1, 1000);
    scheduler_add(&scheduler, &first, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    CHECK_EQ(place(&scheduler), 1);
    CHECK_EQ(place(&scheduler), 0);
    scheduler_remove(&scheduler, &first);
    CHECK_GE(scheduler.loads[0][PRIORITY_URGENT].n_ns, 199900);
    CHECK_LE(scheduler.loads[0][PRIORITY_URGENT].n_ns, 200100);
    second.rate = &unknown;
    second.next_records = 1000000;
    second.next_link_size = 50 * MIB;
    scheduler_add(&scheduler, &second, at_ns);
    CHECK_EQ(place(&scheduler), 1);
    CHECK_EQ(charges[n_charges - 1].cost_ns, MIB); /* 50 bytes a ns */
}

/* A CPU's threads share what it has in flight. */
static void test_a_device_with_threads_is_done_sooner(void)
{
    static const struct worker_caps four_threads = {
        .n_threads = 4, .bulk_chunks = 8, .bulk_bytes = 64 * MIB};
    struct scheduler scheduler = make();
    struct flow flow = flow_of(PRIORITY_NORMAL, MIB);
    unsigned n[2] = {0};

    scheduler_device_up(&scheduler, 1, &four_threads);
    scheduler_add(&scheduler, &flow, at_ns);
    for (unsigned i = 0; i < 10; i++) {
        n[place(&scheduler)]++;
    }
    CHECK_EQ(n[0], 2);
    CHECK_EQ(n[1], 8);
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

/*
 * A job's first chunk was being measured on one device, and it was first in line for the other,
 * which was full: nothing else got to the device that had room until the chunk came back, which
 * takes as long as an op that nobody knows may take.
 */
static void test_what_is_being_measured_held_up_others(void)
{
    struct scheduler scheduler = make();
    struct scheduler_rate unknown = {0};
    struct flow filler = flow_of(PRIORITY_BULK, 16 * MIB);
    struct flow first = flow_of(PRIORITY_BULK, MIB);
    struct flow other = flow_of(PRIORITY_BULK, MIB);

    filler.devices = SCHEDULER_DEVICE(1);
    first.rate = &unknown;
    first.next_records = 1;
    other.user = &users[1];
    other.user->used_ns = 1000000000; /* so it is behind in any case */
    scheduler_device_up(&scheduler, 1, &four_chunks);
    scheduler_add(&scheduler, &filler, at_ns);
    CHECK_EQ(place(&scheduler), 1);
    scheduler_remove(&scheduler, &filler);
    scheduler_add(&scheduler, &other, at_ns);
    scheduler_add(&scheduler, &first, at_ns);
    CHECK_EQ(place(&scheduler), 0);
    CHECK(charges[n_charges - 1].flow == &first);
    CHECK_EQ(place(&scheduler), 0);
    CHECK(charges[n_charges - 1].flow == &other);
    scheduler_done(&scheduler, &charges[1], 50000); /* it is known now, and first again */
    CHECK_EQ(place(&scheduler), 0);
    CHECK(charges[n_charges - 1].flow == &first);
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
           CHECK_TEST(test_how_much_is_let_in), CHECK_TEST(test_how_much_that_is_quick),
           CHECK_TEST(test_urgent_passes_bulk_that_is_held_back),
           CHECK_TEST(test_the_first_in_turn_is_waited_for), CHECK_TEST(test_flows_take_turns),
           CHECK_TEST(test_books_balance), CHECK_TEST(test_large_urgent_work_goes_ahead_of_bulk),
           CHECK_TEST(test_nobody_starves), CHECK_TEST(test_who_is_owed_holds_nobody_up_for_ever),
           CHECK_TEST(test_the_least_loaded_device_gets_it),
           CHECK_TEST(test_the_first_to_finish_gets_it),
           CHECK_TEST(test_a_slow_device_gets_no_queue),
           CHECK_TEST(test_an_op_that_a_device_has_not_had),
           CHECK_TEST(test_a_device_with_threads_is_done_sooner),
           CHECK_TEST(test_a_flow_fills_all_devices),
           CHECK_TEST(test_what_is_being_measured_held_up_others),
           CHECK_TEST(test_a_flow_of_one_device_waits_for_it),
           CHECK_TEST(test_nobody_overtakes_for_being_small),
           CHECK_TEST(test_a_device_that_is_down_gets_nothing),
           CHECK_TEST(test_random_days_with_several_devices))
