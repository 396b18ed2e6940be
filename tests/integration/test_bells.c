/*
 * Bells: a worker that has had work of a ring and has none hears its client's doorbell as the front
 * end does, so that after a silence both wake up at once (worker_abi.h).
 *
 * That it was the bell which woke the worker is certain where the front end stands still.  How
 * often the worker's data thread has slept is seen from outside, by its voluntary context switches.
 */
#include "proto/channel.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/ring_client.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20 };

/* ---- the worker, from outside --------------------------------------------------------------- */

static unsigned n_fds_of(pid_t worker)
{
    char path[64];
    unsigned n = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)worker);
    folder = opendir(path);
    if (folder == NULL) {
        CHECK_SKIP("this user may not look at a worker's descriptors");
    }
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

/* A segment that is being mapped is open for a moment. */
static unsigned n_fds_at_rest(pid_t worker)
{
    unsigned n = n_fds_of(worker);

    for (unsigned n_same = 0; n_same < 5; n_same++) {
        unsigned n_now;

        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        n_now = n_fds_of(worker);
        n_same = n_now == n ? n_same : 0;
        n = n_now;
    }
    return n;
}

static int data_thread(pid_t worker)
{
    char path[300];
    int thread = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)worker);
    folder = opendir(path);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *name;

        snprintf(path, sizeof(path), "task/%s/comm", entry->d_name);
        name = entry->d_name[0] == '.' ? NULL : harness_proc(worker, path);
        if (name != NULL && strcmp(name, "data\n") == 0) {
            thread = atoi(entry->d_name);
        }
    }
    closedir(folder);
    CHECK_GT(thread, 0);
    return thread;
}

static const char *data_thread_file(pid_t worker, const char *file)
{
    char path[64];

    snprintf(path, sizeof(path), "task/%d/%s", data_thread(worker), file);
    return harness_proc(worker, path);
}

static uint64_t n_sleeps(pid_t worker)
{
    const char *status = data_thread_file(worker, "status");
    const char *line = status == NULL ? NULL : strstr(status, "\nvoluntary_ctxt_switches:");

    CHECK(line != NULL);
    return strtoull(strchr(line, ':') + 1, NULL, 10);
}

static bool is_asleep(pid_t worker)
{
    const char *stat = data_thread_file(worker, "stat");

    return stat != NULL && strstr(stat, ") S ") != NULL;
}

/* For as long as it might have been something else, twice over. */
static bool sleeps_on(pid_t worker)
{
    uint64_t n = n_sleeps(worker);

    for (unsigned i = 0; i < 10; i++) {
        if (!is_asleep(worker)) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = WORK_AWAKE_NS / 5}, NULL);
    }
    return n_sleeps(worker) == n;
}

static uint64_t n_ring_wakes(struct wire *wire)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), "ring_wakes");
}

/* ---- a daemon and its client ---------------------------------------------------------------- */

struct story {
    struct harness *daemon;
    struct wire *wire;
    struct ring_client *ring;
    uint64_t job;
};

static struct story start(const char *n_cpus)
{
    struct story story = {.daemon = harness_start("--awake-cpus", n_cpus)};

    story.wire = wire_connect(harness_socket(story.daemon));
    story.ring = ring_client_open(story.wire, MIB);
    story.job = ring_client_open_copy(story.wire, ", priority: 'urgent'");
    return story;
}

/* The worker was woken though nobody but the client can have done it. */
static void check_hears(const struct story *story)
{
    pid_t worker = harness_worker(story->daemon);
    uint64_t n;

    HARNESS_WAIT(sleeps_on(worker));
    harness_pause(harness_pid(story->daemon));
    n = n_sleeps(worker);
    channel_ring(story->ring->doorbell_fd);
    HARNESS_WAIT(n_sleeps(worker) > n);
}

static void go_on(const struct story *story)
{
    CHECK_EQ(kill(harness_pid(story->daemon), SIGCONT), 0);
    ring_client_check_works(story->ring, story->job);
}

/* ---- stories -------------------------------------------------------------------------------- */

static void test_a_bell_wakes_the_worker(void)
{
    struct story story = start("2");

    ring_client_check_works(story.ring, story.job);
    for (unsigned i = 0; i < 3; i++) {
        check_hears(&story);
        go_on(&story);
    }
}

/* Bulk keeps nobody awake; but it need not wait for one after the other to wake up. */
static void test_a_bell_of_bulk_work_wakes_the_worker_once(void)
{
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);
    uint64_t n;

    story.job = ring_client_open_copy(story.wire, ", priority: 'bulk'");
    ring_client_check_works(story.ring, story.job);
    check_hears(&story);
    HARNESS_WAIT(sleeps_on(worker));
    n = n_sleeps(worker);
    channel_ring(story.ring->doorbell_fd); /* for nothing again */
    HARNESS_WAIT(sleeps_on(worker));
    CHECK_EQ(n_sleeps(worker), n);
    go_on(&story);
    check_hears(&story);
    go_on(&story);
}

/* One that rings on and on costs the worker one look, until there is urgent work again. */
static void test_a_bell_that_rings_for_nothing_is_heard_once(void)
{
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);
    uint64_t n;

    ring_client_check_works(story.ring, story.job);
    check_hears(&story);
    HARNESS_WAIT(sleeps_on(worker));
    n = n_sleeps(worker);
    for (unsigned i = 0; i < 1000; i++) {
        channel_ring(story.ring->doorbell_fd);
    }
    HARNESS_WAIT(sleeps_on(worker));
    CHECK_EQ(n_sleeps(worker), n);
    go_on(&story);
    check_hears(&story);
    go_on(&story);
}

/* While the front end runs, which reads a doorbell that workers hear later than others. */
static void test_a_storm_of_bells(void)
{
    enum { N = 300000, IDLE_WAKES = 64, QUIET_MS = 5 }; /* as daemon/ring_link.c */
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);
    uint64_t n, n_wakes, start_ns;

    ring_client_check_works(story.ring, story.job);
    HARNESS_WAIT(sleeps_on(worker));
    n = n_sleeps(worker);
    n_wakes = n_ring_wakes(story.wire);
    start_ns = now_ns();
    for (unsigned i = 0; i < N; i++) {
        channel_ring(story.ring->doorbell_fd);
    }
    n_wakes = n_ring_wakes(story.wire) - n_wakes;
    CHECK_LE(n_wakes, IDLE_WAKES + 2 + 2 * (now_ns() - start_ns) / (QUIET_MS * 1000000));
    HARNESS_WAIT(sleeps_on(worker));
    /* What the front end was quicker to read it has not heard, and sleeps on. */
    CHECK_LE(n_sleeps(worker), n + n_wakes + IDLE_WAKES);
    ring_client_is_empty(story.ring);
    ring_client_check_works(story.ring, story.job);
    check_hears(&story);
    go_on(&story);
}

static void test_nobody_hears_it_without_cpus(void)
{
    struct story story = start("1");
    pid_t worker = harness_worker(story.daemon);
    unsigned n_fds;
    uint64_t n;

    ring_client_check_works(story.ring, ring_client_open_copy(story.wire, ""));
    n_fds = n_fds_at_rest(worker);
    ring_client_check_works(story.ring, story.job);
    HARNESS_WAIT(n_fds_of(worker) == n_fds);
    HARNESS_WAIT(sleeps_on(worker));
    harness_pause(harness_pid(story.daemon));
    n = n_sleeps(worker);
    channel_ring(story.ring->doorbell_fd);
    HARNESS_WAIT(sleeps_on(worker));
    CHECK_EQ(n_sleeps(worker), n);
    go_on(&story);
}

static void test_the_next_worker_hears_it(void)
{
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);

    ring_client_check_works(story.ring, story.job);
    kill(worker, SIGKILL);
    harness_await_worker(story.daemon, worker);
    HARNESS_WAIT(
        strcmp(wire_text(wire_call(story.wire, "device.list", "[]"), "0.state"), "ready") == 0);
    ring_client_check_works(story.ring, story.job);
    check_hears(&story);
    go_on(&story);
}

/* Closed by their clients, or with the connection. */
static void test_bells_go_with_their_rings(void)
{
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);
    unsigned n_fds;

    ring_client_check_works(story.ring, story.job); /* what a device opens, it has open then */
    ring_client_close(story.ring);
    n_fds = n_fds_at_rest(worker);
    for (unsigned i = 0; i < 100; i++) {
        struct wire *wire = wire_connect(harness_socket(story.daemon));
        struct ring_client *ring = ring_client_open(wire, MIB);

        ring_client_check_works(ring, ring_client_open_copy(wire, ", priority: 'urgent'"));
        HARNESS_WAIT(n_fds_of(worker) > n_fds);
        if (i % 2 == 0) {
            ring_client_close(ring);
        }
        wire_close(wire);
        HARNESS_WAIT(n_fds_of(worker) == n_fds);
    }
}

enum { OF_ONE = 14, CROWD = WORKER_BELLS / OF_ONE + 1 }; /* rings of a connection; connections */

/* More rings than bells, with work of this kind. */
static void open_crowd(const struct story *story, const char *options, struct wire *ret_wires[])
{
    for (unsigned i = 0; i < CROWD * OF_ONE; i++) {
        struct wire **wire = &ret_wires[i / OF_ONE];

        *wire = i % OF_ONE == 0 ? wire_connect(harness_socket(story->daemon)) : *wire;
        ring_client_check_works(ring_client_open(*wire, MIB),
                                ring_client_open_copy(*wire, options));
    }
}

static void close_crowd(struct wire *wires[])
{
    for (unsigned i = 0; i < CROWD; i++) {
        wire_close(wires[i]);
    }
}

static void test_more_rings_than_bells(void)
{
    struct story story = start("2");
    pid_t worker = harness_worker(story.daemon);
    struct wire *bulk[CROWD], *urgent[CROWD];
    unsigned n_fds;

    ring_client_check_works(story.ring, story.job); /* what a device opens, it has open then */
    ring_client_close(story.ring);
    n_fds = n_fds_at_rest(worker);
    open_crowd(&story, ", priority: 'bulk'", bulk); /* all bells were its, and no urgent ring's */
    HARNESS_WAIT(n_fds_of(worker) == n_fds + WORKER_BELLS_OTHER);
    open_crowd(&story, ", priority: 'urgent'", urgent);
    HARNESS_WAIT(n_fds_of(worker) == n_fds + WORKER_BELLS);
    close_crowd(bulk);
    HARNESS_WAIT(n_fds_of(worker) == n_fds + WORKER_BELLS - WORKER_BELLS_OTHER);
    close_crowd(urgent);
    HARNESS_WAIT(n_fds_of(worker) == n_fds);
}

CHECK_MAIN(CHECK_TEST(test_a_bell_wakes_the_worker),
           CHECK_TEST(test_a_bell_of_bulk_work_wakes_the_worker_once),
           CHECK_TEST(test_a_bell_that_rings_for_nothing_is_heard_once),
           CHECK_TEST(test_a_storm_of_bells), CHECK_TEST(test_nobody_hears_it_without_cpus),
           CHECK_TEST(test_the_next_worker_hears_it), CHECK_TEST(test_bells_go_with_their_rings),
           CHECK_TEST(test_more_rings_than_bells))
