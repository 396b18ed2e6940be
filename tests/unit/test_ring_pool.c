/* The ring pool: who gets which segment, when, and what becomes of it. */
#include "proto/shm.h"
#include "tests/unit/ring_pool_bench.h"

#include <signal.h>
#include <sys/resource.h>

/* ---- stock ---------------------------------------------------------------------------------- */

static void test_one_is_kept_ready(void)
{
    struct client first, second;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    table.is_quick = true;
    settle();
    CHECK_EQ(ring_pool_size(pool), DEFAULT);
    CHECK_EQ(ring_pool_used(pool), 0);
    CHECK(!uv_loop_alive(&loop)); /* nothing wakes up */
    CHECK_EQ(open_on(&first, 1000, DEFAULT - MIB, -1), 0);
    CHECK_EQ(ring_lease_size(first.lease), DEFAULT);
    CHECK_EQ(ring_pool_used(pool), DEFAULT);
    settle();
    CHECK_EQ(ring_pool_size(pool), 2 * DEFAULT);
    CHECK_EQ(open_on(&second, 1001, DEFAULT, -1), 0);
    CHECK(identity(&second) != identity(&first));
    CHECK_EQ(first.n_done + second.n_done, 0);
    settle();
    CHECK(!uv_loop_alive(&loop));
    close_ring(&first);
    CHECK(uv_loop_alive(&loop)); /* until it is dropped */
    close_ring(&second);
}

/* Nothing is allocated while the client that took the stock touches its pages. */
static void test_stock_waits_for_a_quiet_moment(void)
{
    struct client first, second;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT, .stock_ms = NEVER});
    table.is_quick = true;
    settle();
    CHECK_EQ(ring_pool_size(pool), DEFAULT); /* at the start it is not put off */
    CHECK_EQ(open_on(&first, 1000, DEFAULT, -1), 0);
    settle();
    CHECK_EQ(ring_pool_size(pool), DEFAULT);
    open_ring(&second, 1001, DEFAULT); /* somebody who wants one does not wait */
    CHECK_EQ(ring_pool_size(pool), 2 * DEFAULT);
    CHECK(identity(&second) != identity(&first));
    close_ring(&first);
    close_ring(&second);
}

static void test_stock_is_made_in_the_end(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT, .stock_ms = 20});
    table.is_quick = true;
    settle();
    open_ring(&client, 1000, DEFAULT);
    while (ring_pool_size(pool) < 2 * DEFAULT) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    settle();
    CHECK(!uv_loop_alive(&loop)); /* nothing wakes up any more */
    close_ring(&client);
}

static void test_no_stock_where_nobody_could_have_it(void)
{
    begin(&(struct ring_pool_config){.size = DEFAULT + MIB}); /* a share is 48 MiB */
    table.is_quick = true;
    settle();
    CHECK_EQ(table.n_added, 0);
    CHECK(!uv_loop_alive(&loop));
}

static void test_rings_come_before_the_stock_and_one_at_a_time(void)
{
    struct client first, second;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    CHECK_EQ(open_on(&first, 1000, MIB, -1), RING_POOL_LATER);
    CHECK_EQ(open_on(&second, 1001, 2 * MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(table.n_added, 1);
    say_usable(table.last_added);
    CHECK_EQ(first.n_done, 1);
    CHECK_EQ(second.n_done, 0);
    settle();
    CHECK_EQ(table.n_added, 2);
    CHECK_EQ(ring_pool_size(pool), 3 * MIB);
    say_usable(table.last_added);
    CHECK_EQ(second.n_done, 1);
    settle();
    CHECK_EQ(table.n_added, 3);
    CHECK_EQ(ring_pool_size(pool), 3 * MIB + DEFAULT);
    close_ring(&first);
    close_ring(&second);
}

static void test_stock_in_the_making_is_taken(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    settle();
    CHECK_EQ(table.n_added, 1);
    CHECK_EQ(open_on(&client, 1000, DEFAULT, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(table.n_added, 1);
    say_usable(table.last_added);
    CHECK_EQ(client.n_done, 1);
    CHECK_EQ(ring_lease_segment(client.lease), table.last_added);
    settle();
    CHECK_EQ(table.n_added, 2);
    close_ring(&client);
}

static void test_the_stock_is_where_rings_are_wanted(void)
{
    struct client client[3];

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT, .has_nodes = true});
    table.is_quick = true;
    settle();
    CHECK_EQ(open_on(&client[0], 1000, DEFAULT, 0), RING_POOL_LATER);
    settle();
    CHECK_EQ(client[0].n_done, 1);
    CHECK_EQ(ring_pool_size(pool), 2 * DEFAULT); /* that of no node is gone */
    CHECK_EQ(open_on(&client[1], 1001, DEFAULT, 0), 0);
    settle();
    CHECK_EQ(open_on(&client[2], 1002, DEFAULT, -1), 0);
    for (unsigned i = 0; i < 3; i++) {
        close_ring(&client[i]);
    }
}

/* A node that is full, or is none, does not keep a ring from being made; but that is told. */
static void test_memory_of_another_node_is_told_of(void)
{
    struct client near, far;
    int fd = shm_create_large("test", MIB, -1);
    bool is_told = !shm_lies_on(fd, MIB, 1023);

    close(fd);
    if (!is_told) {
        CHECK_SKIP("nobody tells where memory lies");
    }
    begin(&(struct ring_pool_config){.size = 64 * MIB, .has_nodes = true});
    table.is_quick = true;
    CHECK_EQ(open_on(&near, 1000, 2 * MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(ring_pool_far(pool), 0);
    CHECK_EQ(open_on(&far, 1001, 4 * MIB, 1023), RING_POOL_LATER);
    settle();
    CHECK_EQ(near.n_done + far.n_done, 2);
    CHECK_EQ(ring_pool_far(pool), 4 * MIB);
    CHECK_EQ(ring_pool_huge(pool), shm_is_huge(ring_lease_fd(near.lease)) * 2 * MIB +
                                       shm_is_huge(ring_lease_fd(far.lease)) * 4 * MIB);
    close_ring(&far);
    ring_pool_forget(pool, connection_of(1001));
    settle();
    CHECK_EQ(ring_pool_far(pool), 0);
    close_ring(&near);
}

static void test_one_node_is_as_good_as_another_where_there_is_one(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    table.is_quick = true;
    settle();
    CHECK_EQ(open_on(&client, 1000, DEFAULT, 3), 0);
    close_ring(&client);
}

/* ---- sizes and shares ----------------------------------------------------------------------- */

static void test_sizes_are_powers_of_two(void)
{
    const uint64_t sizes[] = {0, 1, MIB, MIB + 1, 1 + random_below(32 * MIB)};
    struct client client;

    begin(&(struct ring_pool_config){.size = DEFAULT});
    table.is_quick = true;
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct mapping mapping;

        open_ring(&client, 1000, sizes[i]);
        size_t size = ring_lease_size(client.lease);
        CHECK_GE(size, MAX(sizes[i], MIB));
        CHECK(size == MIB || size / 2 < sizes[i]);
        CHECK_EQ(size & (size - 1), 0);
        CHECK(identity(&client) > 0);
        map(&mapping, &client);
        bool is_zero = is_all(mapping.base, size, 0);
        memset(mapping.base, 0xa5, size);
        unmap(&mapping);
        CHECK(is_zero);
        close_ring(&client);
        ring_pool_forget(pool, connection_of(1000));
        settle();
    }
}

static void test_what_can_never_be(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 64 * MIB});
    CHECK_EQ(open_on(&client, 1000, (uint64_t)LIMIT_RING_SIZE + 1, -1), -STATUS_TOO_BIG);
    CHECK_STR(client.failure.limit, "ring_size");
    CHECK_EQ(client.failure.max, LIMIT_RING_SIZE);
    CHECK_EQ(open_on(&client, 1000, UINT64_MAX, -1), -STATUS_TOO_BIG);
    CHECK_EQ(open_on(&client, 1000, 32 * MIB + 1, -1), -STATUS_TOO_BIG);
    CHECK_STR(client.failure.limit, "user_rings");
    CHECK_STR(client.failure.field, "size");
    CHECK_EQ(client.failure.used, 64 * MIB);
    CHECK_EQ(client.failure.max, 48 * MIB);
    CHECK_EQ(client.failure.retry_ms, 0);
    CHECK(client.lease == NULL);
}

static void test_there_may_be_no_rings(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 0});
    settle();
    CHECK_EQ(open_on(&client, 1000, 1, -1), -STATUS_TOO_BIG);
    CHECK_EQ(table.n_added, 0);
}

static void test_shares_hold_also_for_what_is_in_the_making(void)
{
    struct client first, second, other, last;

    begin(&(struct ring_pool_config){.size = 16 * MIB});
    CHECK_EQ(open_on(&first, 1000, 8 * MIB, -1), RING_POOL_LATER);
    CHECK_EQ(open_on(&second, 1000, 8 * MIB, -1), -STATUS_QUOTA);
    CHECK_STR(second.failure.limit, "user_rings");
    CHECK_EQ(second.failure.used, 8 * MIB);
    CHECK_EQ(second.failure.max, 12 * MIB);
    CHECK_GT(second.failure.retry_ms, 0);
    CHECK_EQ(open_on(&second, 1000, 4 * MIB, -1), RING_POOL_LATER);
    CHECK_EQ(open_on(&other, 1001, 8 * MIB, -1), -STATUS_BUSY);
    CHECK_STR(other.failure.limit, "ring_pool");
    CHECK_EQ(other.failure.used, 12 * MIB);
    CHECK_EQ(other.failure.max, 16 * MIB);
    CHECK_GT(other.failure.retry_ms, 0);
    CHECK_EQ(open_on(&other, 1001, 4 * MIB, -1), RING_POOL_LATER);
    CHECK_EQ(open_on(&last, 1002, 1, -1), -STATUS_BUSY);
    close_ring(&second);
    CHECK_EQ(open_on(&last, 1002, 1, -1), RING_POOL_LATER);
    table.is_quick = true;
    settle();
    CHECK_EQ(first.n_done + other.n_done + last.n_done, 3);
    CHECK_EQ(second.n_done, 0);
    CHECK_EQ(ring_pool_used(pool), 13 * MIB);
    close_ring(&first);
    close_ring(&other);
    close_ring(&last);
}

/* ---- whose it is ---------------------------------------------------------------------------- */

/* The promise, in one story. */
static void test_what_a_user_had_is_never_anothers(void)
{
    struct client client, other;
    struct mapping mine, again, theirs;
    uint8_t *bytes = random_new(4 * MIB);

    begin(&(struct ring_pool_config){.size = 64 * MIB});
    table.is_quick = true;
    open_ring(&client, 1000, 4 * MIB);
    ino_t id = identity(&client);
    memcpy(map_for_ever(&mine, &client), bytes, 4 * MIB);
    close_ring(&client);

    open_ring(&other, 1001, 4 * MIB); /* idle, but not theirs */
    CHECK(identity(&other) != id);
    CHECK(is_all(map_for_ever(&theirs, &other), 4 * MIB, 0));
    CHECK_EQ(open_on(&client, 1000, 4 * MIB, -1), 0); /* mine, at once */
    CHECK_EQ(identity(&client), id);
    CHECK_MEM(map_for_ever(&again, &client), bytes, 4 * MIB);
    close_ring(&client);

    ring_pool_forget(pool, connection_of(1000));
    settle();
    CHECK_EQ(ring_pool_size(pool), 4 * MIB); /* the other's */
    CHECK(is_all(mine.base, 4 * MIB, 0));
    memcpy(mine.base, bytes, 4 * MIB); /* new pages, its own */
    open_ring(&client, 1001, 4 * MIB);
    CHECK(is_all(map_for_ever(&again, &client), 4 * MIB, 0));
    CHECK(is_all(theirs.base, 4 * MIB, 0));
    CHECK_MEM(mine.base, bytes, 4 * MIB);
    close_ring(&client);
    close_ring(&other);
}

/* Whoever freed pages of it has parted it from what a device has registered, and nothing tells. */
static void test_what_a_connection_had_is_not_anothers_of_the_same_user(void)
{
    struct client first, second, third;

    begin(&(struct ring_pool_config){.size = 32 * MIB, .idle_ms = NEVER});
    table.is_quick = true;
    open_ring(&first, 1000, 8 * MIB);
    ino_t old = identity(&first);
    close_ring(&first);
    which_connection = 1;
    open_ring(&second, 1000, 8 * MIB);
    CHECK_NE(identity(&second), old);
    which_connection = 0;
    open_ring(&third, 1000, 8 * MIB);
    CHECK_EQ(identity(&third), old); /* its own again */
    close_ring(&second);
    close_ring(&third);
    ring_pool_forget(pool, connection_of(1000));
    settle();
    CHECK_EQ(ring_pool_size(pool), 8 * MIB); /* the other's stays */
}

static void test_idle_ones_are_dropped_after_a_while(void)
{
    struct client client;
    struct mapping mapping;

    begin(&(struct ring_pool_config){.size = 64 * MIB, .idle_ms = 20});
    table.is_quick = true;
    open_ring(&client, 1000, 2 * MIB);
    memset(map_for_ever(&mapping, &client), 0x77, 2 * MIB);
    uv_run(&loop, UV_RUN_DEFAULT); /* ends: nothing is timed while it is leased */
    CHECK_EQ(ring_pool_size(pool), 2 * MIB);
    close_ring(&client);
    uv_run(&loop, UV_RUN_DEFAULT); /* ends: nothing is timed once it is gone */
    CHECK_EQ(ring_pool_size(pool), 0);
    CHECK(is_all(mapping.base, 2 * MIB, 0));
}

static void test_others_need_drives_out_the_oldest(void)
{
    struct client first, second, big, small;

    begin(&(struct ring_pool_config){.size = 16 * MIB, .idle_ms = NEVER});
    table.is_quick = true;
    open_ring(&first, 1000, 4 * MIB);
    open_ring(&second, 1000, 4 * MIB);
    ino_t kept = identity(&first);
    close_ring(&second);
    close_ring(&first);
    open_ring(&big, 1001, 8 * MIB);
    CHECK_EQ(ring_pool_size(pool), 16 * MIB);
    open_ring(&small, 1001, 4 * MIB);
    CHECK_EQ(ring_pool_size(pool), 16 * MIB);
    CHECK_EQ(open_on(&first, 1000, 4 * MIB, -1), 0);
    CHECK_EQ(identity(&first), kept);
    close_ring(&first);
    close_ring(&big);
    close_ring(&small);
}

static void test_stock_gives_way_as_well(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 2 * DEFAULT, .idle_ms = 20});
    table.is_quick = true;
    settle();
    CHECK_EQ(ring_pool_size(pool), DEFAULT);
    open_ring(&client, 1000, 1); /* it fits beside */
    CHECK_EQ(ring_pool_size(pool), DEFAULT + MIB);
    close_ring(&client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), DEFAULT);

    struct client others[3];
    for (unsigned i = 0; i < 3; i++) {
        open_ring(&others[i], 1000 + i, DEFAULT / 2);
    }
    CHECK_EQ(ring_pool_size(pool), 3 * DEFAULT / 2);
    CHECK_EQ(ring_pool_used(pool), 3 * DEFAULT / 2);
    for (unsigned i = 0; i < 3; i++) {
        close_ring(&others[i]);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), DEFAULT); /* there again */
}

static void test_what_a_user_left_idle_is_in_its_share(void)
{
    struct client client[3], big;

    begin(&(struct ring_pool_config){.size = 16 * MIB, .idle_ms = NEVER});
    table.is_quick = true;
    for (unsigned i = 0; i < 3; i++) {
        open_ring(&client[i], 1000, 4 * MIB);
    }
    ino_t last = identity(&client[2]);
    for (unsigned i = 0; i < 3; i++) {
        close_ring(&client[i]);
    }
    open_ring(&big, 1000, 8 * MIB);
    CHECK_EQ(ring_pool_size(pool), 12 * MIB);
    CHECK_EQ(open_on(&client[2], 1000, 4 * MIB, -1), 0);
    CHECK_EQ(identity(&client[2]), last);
    close_ring(&client[2]);
    close_ring(&big);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void test_a_lease_waits_for_what_is_being_dropped(void)
{
    struct client first, second, third;

    begin(&(struct ring_pool_config){.size = 16 * MIB, .idle_ms = NEVER});
    table.is_quick = true;
    open_ring(&first, 1000, 8 * MIB);
    close_ring(&first);
    table.is_quick = false;
    CHECK_EQ(open_on(&second, 1001, 8 * MIB, -1), RING_POOL_LATER);
    settle();
    say_usable(table.last_added);
    CHECK_EQ(second.n_done, 1); /* beside what is idle */
    CHECK_EQ(open_on(&third, 1002, 8 * MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(n_dropping(), 1);
    CHECK_EQ(ring_pool_size(pool), 16 * MIB);
    CHECK_EQ(table.n_added, 2); /* not before the first is gone */
    say_all();
    settle();
    CHECK_EQ(table.n_added, 3);
    CHECK_EQ(ring_pool_size(pool), 16 * MIB);
    say_all();
    CHECK_EQ(third.n_done, 1);
    CHECK(!third.has_failed);
    close_ring(&second);
    close_ring(&third);
}

static void test_a_lease_that_waits_can_be_released(void)
{
    struct client first, second;

    begin(&(struct ring_pool_config){.size = 16 * MIB, .idle_ms = NEVER});
    table.is_quick = true;
    open_ring(&first, 1000, 8 * MIB);
    close_ring(&first);
    open_ring(&first, 1001, 8 * MIB);
    table.is_quick = false;
    CHECK_EQ(open_on(&second, 1002, 8 * MIB, -1), RING_POOL_LATER);
    settle();
    close_ring(&second);
    say_all();
    settle();
    CHECK_EQ(table.n_added, 2);
    CHECK_EQ(second.n_done, 0);
    CHECK_EQ(ring_pool_size(pool), 8 * MIB);
    close_ring(&first);
}

/* In each state that it can be in; nobody has seen it, so it may become anybody's. */
static void test_what_was_released_in_the_making(void)
{
    struct client client, other;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    CHECK_EQ(open_on(&client, 1000, 2 * MIB, -1), RING_POOL_LATER); /* being allocated */
    close_ring(&client);
    settle();
    CHECK_EQ(table.n_added, 1); /* the stock's */
    CHECK_EQ(ring_pool_size(pool), DEFAULT);
    CHECK_EQ(open_on(&client, 1000, DEFAULT, -1), RING_POOL_LATER); /* being registered */
    close_ring(&client);
    say_usable(table.last_added);
    CHECK_EQ(open_on(&other, 1001, DEFAULT, -1), 0);
    CHECK_EQ(client.n_done, 0);
    settle();
    say_all();
    CHECK_EQ(open_on(&client, 1000, 2 * MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(table.n_added, 3);
    close_ring(&client);
    CHECK_EQ(n_dropping(), 1);
    say_all();
    settle();
    CHECK_EQ(ring_pool_size(pool), 2 * DEFAULT);
    CHECK_EQ(client.n_done, 0);
    close_ring(&other);
}

static void test_urgent_work_is_not_held_up(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 64 * MIB, .idle_ms = NEVER, .patience_ms = NEVER});
    table.is_quick = true;
    is_urgent = true;
    CHECK_EQ(open_on(&client, 1000, MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(table.n_added, 0);
    CHECK(uv_loop_alive(&loop));
    is_urgent = false;
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(client.n_done, 1);
    close_ring(&client);
    is_urgent = true;
    ring_pool_forget(pool, connection_of(1000));
    settle();
    CHECK(table.all[0].is_used);
    is_urgent = false;
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), 0);
}

static void test_urgent_work_that_does_not_end_is_not_waited_for(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT, .idle_ms = 20, .patience_ms = 20});
    table.is_quick = true;
    is_urgent = true;
    CHECK_EQ(open_on(&client, 1000, MIB, -1), RING_POOL_LATER);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(client.n_done, 1);
    CHECK_EQ(ring_pool_size(pool), DEFAULT + MIB);
    close_ring(&client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), DEFAULT);
}

/* However long it was idle before. */
static void test_a_segment_waits_from_when_it_is_to_be_dropped(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 64 * MIB, .idle_ms = NEVER, .patience_ms = 20});
    table.is_quick = true;
    open_ring(&client, 1000, MIB);
    close_ring(&client);
    for (uint64_t start = uv_now(&loop); uv_now(&loop) < start + 20;) {
        usleep(5000);
        uv_update_time(&loop);
    }
    is_urgent = true;
    ring_pool_forget(pool, connection_of(1000));
    CHECK(table.all[0].is_used);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(ring_pool_size(pool), 0);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* A table with one worker says GONE first, for its only mapping is none; with more of them last. */
static void test_a_device_that_cannot_register_it(void)
{
    for (int gone_first = 0; gone_first < 2; gone_first++) {
        struct client client, next;

        begin(&(struct ring_pool_config){.size = 64 * MIB});
        CHECK_EQ(open_on(&client, 1000, MIB, -1), RING_POOL_LATER);
        CHECK_EQ(open_on(&next, 1000, MIB, -1), RING_POOL_LATER);
        settle();
        const struct segment_watch watch = table.all[0].watch;
        if (gone_first) {
            say_gone(0);
        }
        watch.on_failed(watch.owner, 0, "cuda1: out of memory");
        if (!gone_first) {
            say_gone(0);
        }
        CHECK_EQ(client.n_done, 1);
        CHECK(client.has_failed && client.lease == NULL);
        CHECK_EQ(client.failure.status, STATUS_NO_MEMORY);
        CHECK_HAS(client.failure.message, "cuda1: out of memory");
        table.is_quick = true;
        settle();
        CHECK_EQ(next.n_done, 1);
        CHECK(!next.has_failed);
        CHECK_EQ(ring_pool_size(pool), MIB);
        close_ring(&next);
        check_n_undo--;
        end(NULL);
    }
}

static void test_stock_that_cannot_be_is_not_tried_again_and_again(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT});
    settle();
    const struct segment_watch watch = table.all[0].watch;
    say_gone(0);
    watch.on_failed(watch.owner, 0, "no more locked memory");
    CHECK_HAS(last_warning, "no more locked memory");
    settle();
    CHECK_EQ(table.n_added, 1);
    CHECK_EQ(ring_pool_size(pool), 0);
    CHECK(!uv_loop_alive(&loop));
    table.is_quick = true;
    open_ring(&client, 1000, MIB); /* that went well */
    settle();
    CHECK_EQ(ring_pool_size(pool), DEFAULT + MIB);
    close_ring(&client);
}

static void test_a_table_that_is_full(void)
{
    struct client client;

    begin(&(struct ring_pool_config){.size = 64 * MIB});
    table.add_error = -EAGAIN;
    CHECK_EQ(open_on(&client, 1000, MIB, -1), RING_POOL_LATER);
    settle();
    CHECK_EQ(client.n_done, 1);
    CHECK_EQ(client.failure.status, STATUS_NO_MEMORY);
    CHECK(client.lease == NULL);
    CHECK_EQ(ring_pool_size(pool), 0);
}

/* The file size limit stands in for memory that runs out. */
static void test_a_machine_without_memory(void)
{
    struct rlimit before, small;
    struct client client;

    begin(&(struct ring_pool_config){.size = 64 * MIB});
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){MIB, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    int r = open_on(&client, 1000, 3 * MIB, -1);
    settle();
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_EQ(r, RING_POOL_LATER);
    CHECK_EQ(client.n_done, 1);
    CHECK_EQ(client.failure.status, STATUS_NO_MEMORY);
    CHECK_HAS(client.failure.message, "4 MiB");
    CHECK_EQ(ring_pool_size(pool), 0);
    table.is_quick = true;
    open_ring(&client, 1000, 3 * MIB);
    close_ring(&client);
}

/* At the end of the daemon: whatever is under way. */
static void test_it_ends_in_the_middle(void)
{
    struct client client[3];

    begin(&(struct ring_pool_config){.size = 4 * DEFAULT, .idle_ms = NEVER});
    CHECK_EQ(open_on(&client[0], 1000, MIB, -1), RING_POOL_LATER);
    settle();
    say_all();
    CHECK_EQ(open_on(&client[1], 1000, 2 * MIB, -1), RING_POOL_LATER);
    CHECK_EQ(open_on(&client[2], 1001, 4 * MIB, -1), RING_POOL_LATER);
    close_ring(&client[0]);
    close_ring(&client[1]);
    close_ring(&client[2]);
}

CHECK_MAIN(CHECK_TEST(test_one_is_kept_ready), CHECK_TEST(test_stock_waits_for_a_quiet_moment),
           CHECK_TEST(test_stock_is_made_in_the_end),
           CHECK_TEST(test_no_stock_where_nobody_could_have_it),
           CHECK_TEST(test_rings_come_before_the_stock_and_one_at_a_time),
           CHECK_TEST(test_stock_in_the_making_is_taken),
           CHECK_TEST(test_the_stock_is_where_rings_are_wanted),
           CHECK_TEST(test_memory_of_another_node_is_told_of),
           CHECK_TEST(test_one_node_is_as_good_as_another_where_there_is_one),
           CHECK_TEST(test_sizes_are_powers_of_two), CHECK_TEST(test_what_can_never_be),
           CHECK_TEST(test_there_may_be_no_rings),
           CHECK_TEST(test_shares_hold_also_for_what_is_in_the_making),
           CHECK_TEST(test_what_a_user_had_is_never_anothers),
           CHECK_TEST(test_what_a_connection_had_is_not_anothers_of_the_same_user),
           CHECK_TEST(test_idle_ones_are_dropped_after_a_while),
           CHECK_TEST(test_others_need_drives_out_the_oldest),
           CHECK_TEST(test_stock_gives_way_as_well),
           CHECK_TEST(test_what_a_user_left_idle_is_in_its_share),
           CHECK_TEST(test_a_lease_waits_for_what_is_being_dropped),
           CHECK_TEST(test_a_lease_that_waits_can_be_released),
           CHECK_TEST(test_what_was_released_in_the_making),
           CHECK_TEST(test_urgent_work_is_not_held_up),
           CHECK_TEST(test_urgent_work_that_does_not_end_is_not_waited_for),
           CHECK_TEST(test_a_segment_waits_from_when_it_is_to_be_dropped),
           CHECK_TEST(test_a_device_that_cannot_register_it),
           CHECK_TEST(test_stock_that_cannot_be_is_not_tried_again_and_again),
           CHECK_TEST(test_a_table_that_is_full), CHECK_TEST(test_a_machine_without_memory),
           CHECK_TEST(test_it_ends_in_the_middle))
