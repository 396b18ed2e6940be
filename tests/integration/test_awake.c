/*
 * Awake: urgent descriptors keep the daemon and the worker from sleeping, for a while and only
 * where they may; and who has nothing to do does not wake up.
 *
 * Whether somebody sleeps is seen from outside: by whether it wants its doorbell rung, and by how
 * often its threads have gone to sleep (their voluntary context switches).
 */
#include "proto/channel.h"
#include "proto/status.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20, BLOCK = 4096 };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

static uint64_t open_job(struct wire *wire, const char *priority)
{
    return (uint64_t)wire_number(
        wire_call(wire, "job.open",
                  "['copy', {size: 4096}, {inline: false, priority: %s, window: 4}]", priority),
        "job");
}

/* One block through the ring and back, fresh bytes each time. */
static void copy_once(struct ring_client *ring, uint64_t job)
{
    const struct ring_desc desc = {
        .job = (uint32_t)job, .tag = 7, .n_records = 1, .out = {BLOCK / RING_ALIGN}};
    struct ring_completion completion;

    random_bytes(ring->data, BLOCK);
    memset(ring->data + BLOCK, 0xa5, BLOCK);
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    CHECK_STR(status_name(completion.status), status_name(STATUS_OK));
    CHECK_MEM(ring->data + BLOCK, ring->data, BLOCK);
}

/* See PROTOCOL.md, Layout. */
static bool daemon_sleeps(const struct ring_client *ring)
{
    return __atomic_load_n((const uint32_t *)ring->shared + 16, __ATOMIC_SEQ_CST) != 0;
}

/* ---- who sleeps ----------------------------------------------------------------------------- */

/*
 * Of a worker's threads those that we have made: the first, which is its control thread, and those
 * that have the names we gave.  Others there wake up as they like: CUDA's event handler does ten
 * times a second, and so does a sanitizer's thread.
 */
static bool is_ours(pid_t pid, const char *task)
{
    char path[300];
    const char *name;

    snprintf(path, sizeof(path), "task/%s/comm", task);
    name = harness_proc(pid, path);
    return atoi(task) == pid ||
           (name != NULL && (strcmp(name, "data\n") == 0 || strcmp(name, "aside\n") == 0 ||
                             strncmp(name, "compute-", 8) == 0));
}

/* How often our threads of a process have gone to sleep. */
static uint64_t n_sleeps(pid_t pid)
{
    char path[300];
    uint64_t n = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    folder = opendir(path);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *status, *line;

        if (entry->d_name[0] == '.' || !is_ours(pid, entry->d_name)) {
            continue;
        }
        snprintf(path, sizeof(path), "task/%s/status", entry->d_name);
        status = harness_proc(pid, path);
        line = status == NULL ? NULL : strstr(status, "\nvoluntary_ctxt_switches:");
        n += line == NULL ? 0 : strtoull(strchr(line, ':') + 1, NULL, 10);
    }
    closedir(folder);
    return n;
}

static bool is_quiet_for_a_second(struct harness *daemon)
{
    pid_t pids[] = {harness_pid(daemon), harness_worker(daemon)};
    uint64_t before = n_sleeps(pids[0]) + n_sleeps(pids[1]);

    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    return n_sleeps(pids[0]) + n_sleeps(pids[1]) == before;
}

/* ---- stories -------------------------------------------------------------------------------- */

static void test_urgent_work_keeps_awake(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "urgent");

    CHECK_EQ(ring->awake_ns, WORK_AWAKE_NS);
    CHECK_EQ(stat_of(wire, "awake_cpus"), 2);
    for (unsigned i = 0; i < 5; i++) {
        uint64_t begin_ns = now_ns();

        copy_once(ring, job);
        while (!daemon_sleeps(ring)) { /* it wants no doorbell ... */
            continue;
        }
        CHECK_GE(now_ns(), begin_ns + WORK_AWAKE_NS); /* ... before its time is over */
    }
    while (stat_of(wire, "awake") == 0) {
        copy_once(ring, job);
    }
    HARNESS_WAIT(stat_of(wire, "awake") == 0);
    HARNESS_WAIT(is_quiet_for_a_second(daemon));
    ring_client_close(ring);
}

/* Nobody else may, and nothing else does. */
static void check_sleeps(struct harness *daemon, const char *priority)
{
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, priority);

    for (unsigned i = 0; i < 50; i++) {
        copy_once(ring, job);
        CHECK_EQ(stat_of(wire, "awake"), 0);
    }
    ring_client_close(ring);
    wire_close(wire);
}

static void test_other_work_does_not(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2");

    check_sleeps(daemon, "normal");
    check_sleeps(daemon, "bulk");
}

static void test_without_cpus_it_sleeps(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "1");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);

    CHECK_EQ(stat_of(wire, "awake_cpus"), 0);
    CHECK_EQ(ring->awake_ns, 0);
    check_sleeps(daemon, "urgent");
}

/* Root's group, say, where this process is not root's. */
static void test_only_the_group_may(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2", "--awake-group", "nogroup");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);

    CHECK_EQ(ring->awake_ns, 0);
    check_sleeps(daemon, "urgent");
}

/* Sockets are served while rings keep it awake. */
static void test_sockets_have_their_turn(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "urgent");

    for (unsigned i = 0; i < 200; i++) {
        uint32_t run = wire_send(other, "run", "['copy', {}, {}, [<1000>]]");

        copy_once(ring, job);
        wire_output(wire_result(other, run), 1000);
    }
    wire_check_works(other);
    ring_client_close(ring);
}

/* A worker that dies awake: the next one knows nothing of it, and all is as it was. */
static void test_the_worker_dies_awake(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "urgent");
    pid_t worker = harness_await_worker(daemon, 0);

    copy_once(ring, job);
    kill(worker, SIGKILL);
    harness_await_worker(daemon, worker);
    HARNESS_WAIT(strcmp(wire_text(wire_call(wire, "device.list", "[]"), "0.state"), "ready") == 0);
    copy_once(ring, job);
    ring_client_close(ring);
    HARNESS_WAIT(is_quiet_for_a_second(daemon));
}

/* What a client has rung, and stopped ringing, is read in the end: much of it in small parts. */
static void test_a_doorbell_that_rang_for_nothing(void)
{
    enum { IDLE_WAKES = 64 }; /* as daemon/ring_link.c */
    struct harness *daemon = harness_start("--awake-cpus", "2");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);

    while (stat_of(wire, "ring_wakes") < IDLE_WAKES + 2) {
        channel_ring(ring->doorbell_fd);
    }
    for (unsigned n_rings = 1; n_rings <= 1000; n_rings *= 1000) {
        uint64_t n_wakes = stat_of(wire, "ring_wakes");

        for (unsigned i = 0; i < n_rings; i++) {
            channel_ring(ring->doorbell_fd);
        }
        HARNESS_WAIT(stat_of(wire, "ring_wakes") > n_wakes);
        HARNESS_WAIT(is_quiet_for_a_second(daemon));
    }
    copy_once(ring, open_job(wire, "normal"));
    HARNESS_WAIT(is_quiet_for_a_second(daemon));
}

/* Does the front end have the thread that reads and writes sockets for it? */
static bool has_aside(struct harness *daemon)
{
    char path[300];
    bool has_it = false;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)harness_pid(daemon));
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *name;

        snprintf(path, sizeof(path), "task/%s/comm", entry->d_name);
        name = entry->d_name[0] == '.' ? NULL : harness_proc(harness_pid(daemon), path);
        has_it |= name != NULL && strcmp(name, "aside\n") == 0;
    }
    closedir(folder);
    return has_it;
}

/*
 * While urgent work goes on, others' data go through sockets: whole, whether their jobs live,
 * expire or are cancelled while bytes of theirs are on their way.
 */
static void check_sockets_beside_urgent_work(struct harness *daemon)
{
    static uint8_t bytes[300000];
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *others[2] = {wire_connect(harness_socket(daemon)),
                              wire_connect(harness_socket(daemon))};
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "urgent");

    for (unsigned i = 0; i < 60; i++) {
        uint64_t ended = (uint64_t)wire_number(
            wire_call(others[0], "job.open", "['copy', {}, {deadline_ns: %lu}]",
                      i % 2 == 0 ? UINT64_C(0) : 1 + (uint64_t)random_below(3000000)),
            "job");
        uint32_t push, run;

        copy_once(ring, job);
        push = wire_send(others[0], "job.push", "[%lu, 0, {}, [<300000>]]", ended);
        random_bytes(bytes, sizeof(bytes));
        run = wire_send(others[1], "run", "['copy', {}, {}, [%b]]", bytes, sizeof(bytes));
        copy_once(ring, job);
        wire_response(wire, wire_send(wire, "job.cancel", "[%lu]", ended));
        copy_once(ring, job);
        CHECK_MEM(wire_output(wire_result(others[1], run), sizeof(bytes)), bytes, sizeof(bytes));
        wire_response(others[0], push);
        wire_notification(others[0], "job.done");
    }
    HARNESS_WAIT(stat_of(wire, "jobs") == 1 && stat_of(wire, "chunks_in_flight") == 0);
    wire_check_works(others[0]);
    wire_check_works(others[1]);
    ring_client_close(ring);
}

static void test_with_a_cpu_more_a_thread_reads_and_writes_sockets(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "3");

    CHECK(!has_aside(daemon));
    check_sockets_beside_urgent_work(daemon);
    CHECK(has_aside(daemon));
    HARNESS_WAIT(is_quiet_for_a_second(daemon));
}

static void test_without_it_the_front_end_does_so_itself(void)
{
    struct harness *daemon = harness_start("--awake-cpus", "2");

    check_sockets_beside_urgent_work(daemon);
    CHECK(!has_aside(daemon));
}

CHECK_MAIN(CHECK_TEST(test_urgent_work_keeps_awake), CHECK_TEST(test_other_work_does_not),
           CHECK_TEST(test_without_cpus_it_sleeps), CHECK_TEST(test_only_the_group_may),
           CHECK_TEST(test_sockets_have_their_turn), CHECK_TEST(test_the_worker_dies_awake),
           CHECK_TEST(test_a_doorbell_that_rang_for_nothing),
           CHECK_TEST(test_with_a_cpu_more_a_thread_reads_and_writes_sockets),
           CHECK_TEST(test_without_it_the_front_end_does_so_itself))
