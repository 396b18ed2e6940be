/* The forecast: what goes before new work, by the scheduler's own rules. */
#include "daemon/forecast.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/scheduler_bench.h"

#define MS        UINT64_C(1000000)
#define RECORD_NS 1000

static struct scheduler scheduler;
static struct flow work; /* the new one: of users[0], normal */

static void start(uint32_t n_threads)
{
    struct worker_caps caps = four_chunks;

    scheduler = make();
    caps.n_threads = n_threads;
    scheduler_device_up(&scheduler, 0, &caps);
    rate = (struct scheduler_rate){.is_known = true, .record_ns = RECORD_NS};
    work = flow_of(PRIORITY_NORMAL, MIB);
}

static struct flow flow_for(uint32_t user, enum priority priority)
{
    struct flow flow = flow_of(priority, MIB);

    flow.user = &users[user];
    return flow;
}

/* Of 1 ms of device time, in chunks of a tenth of it, beside up to two that have so much queued. */
static double forecast_beside(struct flow *a, uint64_t a_ns, struct flow *b, uint64_t b_ns)
{
    struct forecast forecast;
    uint64_t ns, alone_ns;

    CHECK(forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 100));
    if (a != NULL) {
        forecast_add(&forecast, a, a_ns);
    }
    if (b != NULL) {
        forecast_add(&forecast, b, b_ns);
    }
    ns = forecast_ns(&forecast, &alone_ns);
    CHECK(alone_ns <= ns);
    for (unsigned i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
        CHECK(users[i].forecast_ns == 0 && users[i].forecast_next == NULL);
    }
    return (double)ns / (double)MS;
}

/* As much, to what halving comes to; and the margin that a forecast has on top. */
#define IS_ABOUT(got, want) CHECK((got) > 1.13 * (want)*0.98 && (got) < 1.13 * (want)*1.02)

static void test_nobody_knows(void)
{
    struct forecast forecast;

    start(1);
    rate.is_known = false;
    CHECK(!forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 100));
    rate.is_known = true;
    CHECK(forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 100));
    work.devices = SCHEDULER_DEVICE(1);
    CHECK(!forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 100));
    work.devices = SCHEDULER_ANY_DEVICE;
    scheduler_device_down(&scheduler, 0);
    CHECK(!forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 100));
}

static void test_alone(void)
{
    struct forecast forecast;
    uint64_t alone_ns;

    start(1);
    IS_ABOUT(forecast_beside(NULL, 0, NULL, 0), 1);
    start(4);
    IS_ABOUT(forecast_beside(NULL, 0, NULL, 0), 0.25);
    CHECK(forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 1, 1000)); /* one chunk */
    IS_ABOUT((double)forecast_ns(&forecast, &alone_ns) / (double)MS, 1);
    rate.record_ns = 0; /* the link has it: 100 MB at 50 bytes a ns */
    CHECK(forecast_begin(&forecast, &scheduler, &work, at_ns, 1000, 100000, 10));
    IS_ABOUT((double)forecast_ns(&forecast, &alone_ns) / (double)MS, 0.5);
}

static void test_what_is_above_and_below(void)
{
    struct flow urgent = flow_for(1, PRIORITY_URGENT), bulk = flow_for(2, PRIORITY_BULK);

    start(1);
    IS_ABOUT(forecast_beside(&urgent, 3 * MS, NULL, 0), 4);
    IS_ABOUT(forecast_beside(&bulk, 100 * MS, NULL, 0), 1 / 0.95);
    IS_ABOUT(forecast_beside(&urgent, 3 * MS, &bulk, MS / 10), 4.1);
    work.priority = PRIORITY_BULK; /* has a twentieth at least */
    IS_ABOUT(forecast_beside(&urgent, 5 * MS, NULL, 0), 6);
    IS_ABOUT(forecast_beside(&urgent, 1000 * MS, NULL, 0), 20);
    users[1].is_demoted = true;
    work.priority = PRIORITY_NORMAL;
    IS_ABOUT(forecast_beside(&urgent, 100 * MS, NULL, 0), 2.1); /* a user beside it */
}

static void test_users_share(void)
{
    struct flow one = flow_for(1, PRIORITY_NORMAL), two = flow_for(2, PRIORITY_NORMAL);

    start(1);
    IS_ABOUT(forecast_beside(&one, MS / 2, NULL, 0), 1.5);
    IS_ABOUT(forecast_beside(&one, 100 * MS, NULL, 0), 2.1); /* as much, and a chunk */
    IS_ABOUT(forecast_beside(&one, 100 * MS, &two, 100 * MS), 3.2);
    IS_ABOUT(forecast_beside(&one, 100 * MS, &one, 100 * MS), 2.1); /* the same user's */
    users[1].used_ns = users[0].used_ns + 10 * MS;                  /* has had enough */
    IS_ABOUT(forecast_beside(&one, 100 * MS, NULL, 0), 1);
}

static void test_of_one_user_the_deadline_counts(void)
{
    struct flow other = flow_for(0, PRIORITY_NORMAL);

    start(1);
    IS_ABOUT(forecast_beside(&other, 100 * MS, NULL, 0), 2); /* in turns */
    other.is_hurried = true;
    other.deadline_ns = at_ns + 5 * MS;
    IS_ABOUT(forecast_beside(&other, 3 * MS, NULL, 0), 4);
    work.deadline_ns = at_ns + 6 * MS;
    IS_ABOUT(forecast_beside(&other, 3 * MS, NULL, 0), 4);
    work.deadline_ns = at_ns + 4 * MS;
    IS_ABOUT(forecast_beside(&other, 3 * MS, NULL, 0), 1);
    IS_ABOUT(forecast_beside(&work, 3 * MS, NULL, 0), 4); /* its own goes first, in any case */
}

static void test_what_is_in_flight_goes_first(void)
{
    struct flow other = flow_for(1, PRIORITY_BULK);

    start(1);
    other.next_records = 2000; /* 2 ms */
    scheduler_add(&scheduler, &other, at_ns);
    CHECK(step(&scheduler) == &other);
    IS_ABOUT(forecast_beside(NULL, 0, NULL, 0), 3);
}

/* The flow has half of the device for long. */
static void use_half(struct flow *flow)
{
    for (unsigned i = 0; i < 600; i++) {
        struct scheduler_place place;
        struct scheduler_charge charge;

        at_ns += MS;
        flow->next_records = 500;
        scheduler_add(&scheduler, flow, at_ns);
        CHECK(scheduler_next(&scheduler, at_ns, &place) == flow);
        scheduler_issued(&scheduler, flow, &place, &charge);
        scheduler_remove(&scheduler, flow);
        scheduler_done(&scheduler, &charge, MS / 2);
    }
}

/* Who has used half of the device goes on like that, until it has not for a while. */
static void test_what_was_of_late(void)
{
    struct flow urgent = flow_for(1, PRIORITY_URGENT);

    start(1);
    use_half(&urgent);
    CHECK(forecast_beside(NULL, 0, NULL, 0) > 1.13 * 1.8);
    CHECK(forecast_beside(NULL, 0, NULL, 0) < 1.13 * 2.2);
    at_ns += (uint64_t)SCHEDULER_LATELY;
    IS_ABOUT(forecast_beside(NULL, 0, NULL, 0), 1);
}

/* What is queued came of late: it is not counted once more as new.  But what has to wait for others
 * in any case says nothing of when those come. */
static void test_what_is_queued_is_not_new_as_well(void)
{
    struct flow one = flow_for(1, PRIORITY_NORMAL), two = flow_for(2, PRIORITY_NORMAL);

    start(1);
    use_half(&one);
    users[0].used_ns = users[2].used_ns = users[1].used_ns;
    IS_ABOUT(forecast_beside(NULL, 0, NULL, 0), 2);
    IS_ABOUT(forecast_beside(&one, MS / 2, NULL, 0), 2);
    users[2].used_ns += 100 * MS;
    IS_ABOUT(forecast_beside(&two, 1000 * MS, NULL, 0), 2);
}

/* More before it is never sooner, whatever it is. */
static void test_random_queues(void)
{
    for (unsigned round = 0; round < 2000; round++) {
        struct flow a, b;
        uint64_t a_ns = random_below(50 * MS), b_ns = random_below(50 * MS);
        double less;

        start(1 + (uint32_t)random_below(8));
        work.priority = (enum priority)random_below(PRIORITY_COUNT);
        work.deadline_ns = random_below(2) * (at_ns + random_below(200 * MS) + 1);
        a = flow_for((uint32_t)random_below(3), (enum priority)random_below(PRIORITY_COUNT));
        b = flow_for((uint32_t)random_below(3), (enum priority)random_below(PRIORITY_COUNT));
        a.is_hurried = random_below(2) != 0;
        a.due_ns = a.deadline_ns = at_ns + random_below(100 * MS) + 1;
        b.due_ns = at_ns + random_below(100 * MS) + 1;
        for (unsigned i = 0; i < 3; i++) {
            users[i].used_ns = random_below(20 * MS);
        }
        less = forecast_beside(&a, a_ns, &b, b_ns);
        CHECK(less >= forecast_beside(NULL, 0, NULL, 0));
        CHECK(forecast_beside(&a, 2 * a_ns, &b, b_ns) >= less);
        CHECK(less <= 1.13 * (1 + 2 * 100) * 20);
    }
}

CHECK_MAIN(CHECK_TEST(test_nobody_knows), CHECK_TEST(test_alone),
           CHECK_TEST(test_what_is_above_and_below), CHECK_TEST(test_users_share),
           CHECK_TEST(test_of_one_user_the_deadline_counts),
           CHECK_TEST(test_what_is_in_flight_goes_first), CHECK_TEST(test_what_was_of_late),
           CHECK_TEST(test_what_is_queued_is_not_new_as_well), CHECK_TEST(test_random_queues))
