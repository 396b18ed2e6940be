/* Users: shares are counted by uid, end where they must, and leave nothing behind. */
#include "daemon/user.h"
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/random.h"

#define MIB ((uint64_t)1 << 20)

static void test_connections_end_at_the_share(void)
{
    struct user *users = NULL, *one = NULL, *again, *other = NULL;

    for (unsigned i = 0; i < LIMIT_USER_SESSIONS; i++) {
        CHECK_EQ(user_join(&users, 1000, &again), 0);
        CHECK(one == NULL || again == one);
        one = again;
    }
    again = NULL;
    CHECK_EQ(user_join(&users, 1000, &again), -EDQUOT);
    CHECK(again == NULL);
    CHECK_EQ(user_join(&users, 1001, &other), 0);
    CHECK(other != one);
    user_leave(&users, one);
    CHECK_EQ(user_join(&users, 1000, &again), 0);
    CHECK(again == one);
    for (unsigned i = 0; i < LIMIT_USER_SESSIONS; i++) {
        user_leave(&users, one);
    }
    CHECK(users == other && other->next == NULL);
    user_leave(&users, other);
    CHECK(users == NULL);
}

/* A job may outlive its connection: the device still writes for it. */
static void test_a_job_keeps_its_user(void)
{
    struct user *users = NULL, *user, *again;

    CHECK_EQ(user_join(&users, 7, &user), 0);
    for (unsigned i = 0; i < LIMIT_USER_JOBS; i++) {
        CHECK(!user_has_all_jobs(user));
        user_add_job(user);
    }
    CHECK(user_has_all_jobs(user));
    user_leave(&users, user);
    CHECK(users == user);
    CHECK_EQ(user_join(&users, 7, &again), 0);
    CHECK(again == user && user_has_all_jobs(again));
    user_leave(&users, again);
    for (unsigned i = 0; i < LIMIT_USER_JOBS; i++) {
        user_drop_job(&users, user);
    }
    CHECK(users == NULL);
}

static void test_the_room_in_the_pool(void)
{
    struct user user = {0};

    CHECK_EQ(user_pool_share(64 * MIB), 48 * MIB);
    CHECK_EQ(user_pool_share((size_t)1 << 40), (uint64_t)3 << 38);
    CHECK_EQ(user_pool_room(&user, 64 * MIB), 48 * MIB);
    user.pool_size = 40 * MIB;
    CHECK_EQ(user_pool_room(&user, 64 * MIB), 8 * MIB);
    user.pool_size = 48 * MIB;
    CHECK_EQ(user_pool_room(&user, 64 * MIB), 0);
    user.pool_size = 48 * MIB + 4096; /* a fold comes on top */
    CHECK_EQ(user_pool_room(&user, 64 * MIB), 0);
}

/* Any order of comings and goings of many users. */
static void test_many_users_come_and_go(void)
{
    enum { N = 500, N_UIDS = 9 };
    struct user *users = NULL, *held[N];
    unsigned n = 0;

    for (unsigned i = 0; i < 20000; i++) {
        if (n < N && random_below(2) == 0) {
            uid_t uid = (uid_t)random_below(N_UIDS);

            if (user_join(&users, uid, &held[n]) == 0) {
                CHECK_EQ(held[n]->uid, uid);
                n++;
            }
        } else if (n > 0) {
            unsigned k = (unsigned)random_below(n);

            user_leave(&users, held[k]);
            held[k] = held[--n];
        }
    }
    while (n > 0) {
        user_leave(&users, held[--n]);
    }
    CHECK(users == NULL);
}

CHECK_MAIN(CHECK_TEST(test_connections_end_at_the_share), CHECK_TEST(test_a_job_keeps_its_user),
           CHECK_TEST(test_the_room_in_the_pool), CHECK_TEST(test_many_users_come_and_go))
