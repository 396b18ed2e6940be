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

static struct scheduler make(void)
{
    struct scheduler scheduler;

    scheduler_init(&scheduler);
    scheduler_configure(&scheduler, &four_chunks);
    return scheduler;
}

static struct flow flow_of(enum priority priority, uint64_t next_size)
{
    return (struct flow){.priority = priority, .next_size = next_size};
}

/* Take the next flow and issue its chunk. */
static struct flow *step(struct scheduler *scheduler)
{
    struct flow *flow = scheduler_next(scheduler);

    if (flow != NULL) {
        scheduler_issued(scheduler, flow, flow->next_size);
    }
    return flow;
}

static void test_nothing_waits(void)
{
    struct scheduler scheduler = make();

    CHECK(scheduler_next(&scheduler) == NULL);
}

static void test_urgent_then_normal_then_bulk(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, MIB);
    struct flow normal = flow_of(PRIORITY_NORMAL, MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, MIB);

    scheduler_add(&scheduler, &bulk);
    scheduler_add(&scheduler, &normal);
    scheduler_add(&scheduler, &urgent);
    CHECK(scheduler_next(&scheduler) == &urgent);
    scheduler_remove(&scheduler, &urgent);
    CHECK(scheduler_next(&scheduler) == &normal);
    scheduler_remove(&scheduler, &normal);
    CHECK(scheduler_next(&scheduler) == &bulk);
    scheduler_remove(&scheduler, &bulk);
    CHECK(scheduler_next(&scheduler) == NULL);
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
        {PRIORITY_BULK, 5 * MIB, 3},
        {PRIORITY_BULK, 8 * MIB, 2},
        {PRIORITY_BULK, 16 * MIB, 1},
        {PRIORITY_BULK, 64 * MIB, 1}, /* one is always let in */
        {PRIORITY_NORMAL, 1, 32},
        {PRIORITY_NORMAL, 16 * MIB, 8},
        {PRIORITY_URGENT, 16 * MIB, WORK_ENTRIES},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct scheduler scheduler = make();
        struct flow flow = flow_of(cases[i].priority, cases[i].size);
        unsigned n = 0;

        scheduler_add(&scheduler, &flow);
        while (n < 2 * WORK_ENTRIES && step(&scheduler) != NULL) {
            n++;
        }
        if (n != cases[i].n) {
            CHECK_FAIL("case %zu: %u chunks were let in, not %u", i, n, cases[i].n);
        }
        scheduler_done(&scheduler, cases[i].priority, cases[i].size);
        CHECK(scheduler_next(&scheduler) == &flow);
    }
}

static void test_urgent_passes_bulk_that_is_held_back(void)
{
    struct scheduler scheduler = make();
    struct flow bulk = flow_of(PRIORITY_BULK, 4 * MIB);
    struct flow urgent = flow_of(PRIORITY_URGENT, 4096);

    scheduler_add(&scheduler, &bulk);
    while (step(&scheduler) != NULL) {
    }
    scheduler_add(&scheduler, &urgent);
    CHECK(step(&scheduler) == &urgent);
}

/* A small bulk flow must not starve behind a large one that does not fit: turns, not sizes. */
static void test_the_first_in_turn_is_waited_for(void)
{
    struct scheduler scheduler = make();
    struct flow first = flow_of(PRIORITY_BULK, 12 * MIB);
    struct flow second = flow_of(PRIORITY_BULK, 12 * MIB);
    struct flow small = flow_of(PRIORITY_BULK, MIB);

    scheduler_add(&scheduler, &first);
    scheduler_add(&scheduler, &second);
    scheduler_add(&scheduler, &small);
    CHECK(step(&scheduler) == &first);
    CHECK(scheduler_next(&scheduler) == NULL);
    scheduler_done(&scheduler, PRIORITY_BULK, 12 * MIB);
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
        scheduler_add(&scheduler, &flows[i]);
    }
    for (unsigned i = 0; i < N_FLOWS * N_ROUNDS; i++) {
        struct flow *flow = step(&scheduler);

        CHECK(flow != NULL);
        n_issued[flow - flows]++;
        scheduler_done(&scheduler, PRIORITY_BULK, flow->next_size);
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
            scheduler_add(&scheduler, flow);
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
                scheduler_done(&scheduler, priority, in_flight[priority][--n[priority]]);
            }
        }
        for (enum priority p = 0; p < PRIORITY_COUNT; p++) {
            uint64_t bytes = 0;

            for (uint32_t k = 0; k < n[p]; k++) {
                bytes += in_flight[p][k];
            }
            CHECK_EQ(scheduler.classes[p].n_chunks, n[p]);
            CHECK_EQ(scheduler.classes[p].n_bytes, bytes);
            CHECK_LE(n[p], WORK_ENTRIES);
        }
    }
}

CHECK_MAIN(CHECK_TEST(test_nothing_waits), CHECK_TEST(test_urgent_then_normal_then_bulk),
           CHECK_TEST(test_how_much_is_let_in),
           CHECK_TEST(test_urgent_passes_bulk_that_is_held_back),
           CHECK_TEST(test_the_first_in_turn_is_waited_for), CHECK_TEST(test_flows_take_turns),
           CHECK_TEST(test_books_balance))
