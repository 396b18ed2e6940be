/*
 * Rings and workers that do not do as they should.  The worker is a fake (tests/fake_device.h).
 */
#include "proto/status.h"
#include "tests/check.h"
#include "tests/fake_device.h"
#include "tests/harness.h"
#include "tests/ring_client.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20, LARGE = 32 * MIB };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* Beside the daemon: the fake, which starts while there is a file called go. */
static void place_worker(struct harness *harness)
{
    char text[512];

    harness_place_worker(harness, "cpu", getenv("FAKE_WORKER"));
    CHECK_EQ(rename(harness_path(harness, "bin/gpupipe-worker-cpu"),
                    harness_path(harness, "bin/the-gpupipe-worker-cpu")),
             0);
    snprintf(text, sizeof(text),
             "#!/bin/sh\n"
             "while [ ! -e %1$s/go ]; do sleep 0.01; done\n"
             "exec %1$s/bin/the-gpupipe-worker-cpu \"$@\"\n",
             harness_folder(harness));
    harness_write(harness, "bin/gpupipe-worker-cpu", text, strlen(text));
    CHECK_EQ(chmod(harness_path(harness, "bin/gpupipe-worker-cpu"), 0755), 0);
    harness_write(harness, "go", "", 0);
}

static struct harness *start(void)
{
    struct harness *harness = harness_create();
    char file[256];
    const char *const options[] = {"--backend",     "cpu", "--devices",   "cpu0",
                                   "--pinned-pool", "64M", "--ring-pool", "256M",
                                   "--worker-env",  file,  NULL};

    place_worker(harness);
    snprintf(file, sizeof(file), "FAKE_SEGMENT_FILE=%s", harness_path(harness, "most"));
    harness_launch(harness, options);
    return harness;
}

static uint64_t open_job(struct wire *wire)
{
    return (uint64_t)wire_number(
        wire_call(wire, "job.open", "['affine', {}, {inline: false, window: 8}]"), "job");
}

static void submit(struct ring_client *ring, uint64_t job, uint32_t n)
{
    const struct ring_desc desc = {
        .job = (uint32_t)job,
        .n_records = 4096,
        .out = {(uint32_t)(ring->size / 2 / RING_ALIGN)},
    };

    for (uint32_t i = 0; i < n; i++) {
        ring_client_submit(ring, &desc, 1);
    }
}

static void check_reap(struct ring_client *ring, enum status status)
{
    struct ring_completion completion = ring_client_reap(ring);

    CHECK_STR(status_name(completion.status), status_name(status));
}

/* The worker ends, and none comes before go(). */
static void stop_worker(struct harness *daemon, struct wire *wire)
{
    uint64_t n_deaths = stat_of(wire, "worker_deaths");

    CHECK_EQ(unlink(harness_path(daemon, "go")), 0);
    CHECK_EQ(kill(harness_worker(daemon), SIGKILL), 0);
    HARNESS_WAIT(stat_of(wire, "worker_deaths") == n_deaths + 1);
}

static void go(struct harness *daemon)
{
    harness_write(daemon, "go", "", 0);
}

/* From here on segments as large as the pool's can be registered, and no larger ones. */
static void allow_small_segments(const struct harness *daemon)
{
    harness_write(daemon, "most", "16777216\n", 9);
}

static void check_closed(struct wire *wire, const struct ring_client *ring)
{
    const msgpack_object *params = wire_notification(wire, "ring.closed");
    struct wire_error error = wire_error(wire_find(params, "1.error"));

    CHECK_EQ(wire_number(params, "0"), ring->id);
    CHECK_STR(error.name, "RING");
    CHECK_HAS(error.message, "a device that came back cannot have its memory: fakeRegister");
}

static void check_job_failed(struct wire *wire, uint64_t job)
{
    const msgpack_object *params = wire_notification(wire, "job.done");

    CHECK_EQ(wire_number(params, "0"), job);
    CHECK_STR(wire_text(params, "1.state"), "failed");
    CHECK_STR(wire_error(wire_find(params, "1.error")).name, "RING");
}

/*
 * A worker that came anew and could not register a ring was ended for that, and the next, for ever:
 * all clients waited for one.
 */
static void test_a_ring_that_the_next_worker_cannot_have(void)
{
    enum { N = 5 };
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    struct ring_client *large = ring_client_open(wire, LARGE);
    struct ring_client *small = ring_client_open(other, MIB);
    uint64_t large_job = open_job(wire), idle_job = open_job(wire), small_job = open_job(other);

    stop_worker(daemon, other);
    submit(large, large_job, N); /* they wait for a worker */
    submit(small, small_job, N);
    HARNESS_WAIT(stat_of(other, "pushes_total") == 2 * N);
    allow_small_segments(daemon);
    go(daemon);

    check_closed(wire, large);
    for (unsigned i = 0; i < N; i++) {
        check_reap(large, STATUS_RING);
    }
    check_job_failed(wire, large_job);
    for (unsigned i = 0; i < N; i++) {
        check_reap(small, STATUS_OK);
    }
    wire_refused(wire, "NOT_FOUND", "or it is closed", "ring.close", "[%lu]", large->id);
    wire_refused(wire, "NO_MEMORY", "fakeRegister", "ring.open", "[%lu]", (uint64_t)LARGE);
    struct ring_client *next = ring_client_open(wire, MIB);
    submit(next, idle_job, 1);
    check_reap(next, STATUS_OK);
    CHECK_EQ(stat_of(wire, "worker_deaths"), 1);
    CHECK_EQ(stat_of(wire, "rings_broken"), 0);

    CHECK_EQ(unlink(harness_path(daemon, "most")), 0);
    struct ring_client *again = ring_client_open(wire, LARGE);
    submit(again, idle_job, 1);
    check_reap(again, STATUS_OK);
}

/* One that its client closes, or whose client goes, while its work waits; and one that is idle. */
static void test_rings_on_their_way_out_that_the_next_worker_cannot_have(void)
{
    struct harness *daemon = start();
    struct wire *watcher = wire_connect(harness_socket(daemon));
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *gone = wire_connect(harness_socket(daemon));
    struct ring_client *idle = ring_client_open(wire, 2 * LARGE);
    struct ring_client *closing = ring_client_open(wire, LARGE);
    struct ring_client *orphan = ring_client_open(gone, LARGE);
    uint64_t job = open_job(wire);

    ring_client_close(idle);
    stop_worker(daemon, watcher);
    submit(closing, job, 3);
    submit(orphan, open_job(gone), 3);
    HARNESS_WAIT(stat_of(watcher, "pushes_total") == 6);
    uint32_t close = wire_send(wire, "ring.close", "[%lu]", closing->id);
    wire_close(gone);
    HARNESS_WAIT(stat_of(watcher, "sessions") == 2);
    allow_small_segments(daemon);
    go(daemon);

    wire_result(wire, close);
    check_reap(closing, STATUS_RING);
    check_job_failed(wire, job);
    HARNESS_WAIT(stat_of(watcher, "rings") == 0 && stat_of(watcher, "ring_pool_size") == 0);
    CHECK_EQ(stat_of(watcher, "worker_deaths"), 1);
    struct ring_client *next = ring_client_open(wire, MIB);
    submit(next, open_job(wire), 1);
    check_reap(next, STATUS_OK);
}

CHECK_MAIN(CHECK_TEST(test_a_ring_that_the_next_worker_cannot_have),
           CHECK_TEST(test_rings_on_their_way_out_that_the_next_worker_cannot_have))
