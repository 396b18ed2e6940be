/* Places: what waits has a bound, for each user and for all, and who finds none hears how long. */
#include "daemon/places.h"

#include "proto/limits.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#define MS         UINT64_C(1000000)
#define USER_QUEUE (LIMIT_QUEUE * LIMIT_USER_QUEUE / 100)

static struct places all, users[2];
static const struct places_pair one = {&all, &users[0]}, other = {&all, &users[1]};

static void reset(void)
{
    all = users[0] = users[1] = (struct places){0};
}

static uint32_t take(const struct places_pair *places, uint32_t n_wanted)
{
    struct failure failure;
    uint32_t n;

    CHECK_EQ(places_take(places, PRIORITY_BULK, n_wanted, 0, &n, &failure), 0);
    return n;
}

static struct failure refused(const struct places_pair *places, uint64_t now_ns)
{
    struct failure failure = {0};
    uint32_t n = 12345;

    CHECK_EQ(places_take(places, PRIORITY_BULK, 1, now_ns, &n, &failure), -STATUS_BUSY);
    CHECK_EQ(n, 12345);
    CHECK_EQ(failure.status, STATUS_BUSY);
    CHECK_STR(failure.field, "priority");
    return failure;
}

/* One user takes windows of 64 until it gets less, and less, then none; others still get some. */
static void test_a_user_leaves_a_quarter(void)
{
    struct failure failure;
    uint32_t n = 64, total = 0;

    reset();
    while (users[0].n_taken < USER_QUEUE) {
        uint32_t got = take(&one, 64);

        CHECK_GE(got, 1);
        CHECK_LE(got, n);
        n = got;
        total += got;
    }
    CHECK_EQ(n, 1);
    CHECK_EQ(total, USER_QUEUE);
    failure = refused(&one, MS);
    CHECK_STR(failure.limit, "user_queue");
    CHECK_EQ(failure.used, USER_QUEUE);
    CHECK_EQ(failure.max, USER_QUEUE);
    CHECK_EQ(take(&other, 64), 64);
    while (all.n_taken < LIMIT_QUEUE) {
        take(&other, 64);
    }
    failure = refused(&other, MS);
    CHECK_STR(failure.limit, "queue");
    CHECK_EQ(failure.used, LIMIT_QUEUE);
    CHECK_EQ(failure.max, LIMIT_QUEUE);
    places_free(&one, 1, MS);
    CHECK_EQ(take(&other, 1), 1);
}

/* At any steady rate the time for n places is that of n places, once it went on for two periods. */
static void test_the_retry_is_that_of_the_drain(void)
{
    for (unsigned round = 0; round < 100; round++) {
        uint64_t every_ns = MS / 10 + random_below(20 * MS), now_ns = random_below(1000000 * MS);
        uint32_t n_wanted = 1 + (uint32_t)random_below(64);

        reset();
        users[0].n_taken = all.n_taken = LIMIT_QUEUE;
        for (uint64_t end_ns = now_ns + 1000 * MS; now_ns < end_ns;) {
            now_ns += every_ns;
            places_free(&one, 1, now_ns);
        }
        uint64_t retry_ms = places_retry_ms(&users[0], n_wanted, now_ns);
        CHECK_GE((retry_ms + 1) * MS * 10, n_wanted * every_ns * 8);
        CHECK_LE((retry_ms - 1) * MS * 10, n_wanted * every_ns * 12);
        CHECK_EQ(places_retry_ms(&all, n_wanted, now_ns), retry_ms);
    }
}

/* What was quick a while ago says nothing of now; and nobody is sent away for minutes. */
static void test_a_queue_that_stands_still(void)
{
    reset();
    users[0].n_taken = all.n_taken = LIMIT_QUEUE;
    CHECK_EQ(places_retry_ms(&all, 1, 5000 * MS), 251);
    for (unsigned i = 1; i <= 1000; i++) {
        places_free(&one, 1, i * MS);
    }
    CHECK_LE(places_retry_ms(&all, 1, 1000 * MS), 2);
    CHECK_LE(places_retry_ms(&all, 1, 1240 * MS), 3);
    CHECK_EQ(places_retry_ms(&all, 1, 3000 * MS), 2001);
    CHECK_EQ(places_retry_ms(&all, 1, 1000000 * MS), 10001);
    places_free(&one, 1, 1000000 * MS);
    CHECK_LE(places_retry_ms(&all, 1, 1000001 * MS), 502);
    CHECK_EQ(places_retry_ms(&all, 64, 1000001 * MS), 10001);
}

CHECK_MAIN(CHECK_TEST(test_a_user_leaves_a_quarter),
           CHECK_TEST(test_the_retry_is_that_of_the_drain),
           CHECK_TEST(test_a_queue_that_stands_still))
