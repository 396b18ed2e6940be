/*
 * Jobs after jobs: what follows another at the device, before the other's answer is known.  It
 * begins when the other has ended, nothing of it is answered before, and it is as nothing if the
 * other did not end well.
 *
 * A worker that stands still shows what has been handed to it.  Judged by data and by the order of
 * answers, never by time.
 */
#include "proto/cpus.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/util.h"
#include "tests/fake_device.h"
#include "tests/integration/after.h"

#include <signal.h>

enum { CHAIN = 5, FOLLOWING_MOST = 2 };

/* One chunk, whatever is known of the op. */
static void push_block(struct wire *wire, uint64_t job, uint64_t seq, const void *block)
{
    wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, block, (size_t)BLOCK);
}

static void check_block(struct wire *wire, uint64_t job, const void *block)
{
    const msgpack_object *result = wire_notification(wire, "job.result");
    size_t size;
    const void *out = wire_bytes(result, "2.out.0", &size);

    CHECK_EQ(wire_number(result, "0"), job);
    CHECK_EQ(size, BLOCK);
    CHECK_MEM(out, block, BLOCK);
}

/* A worker's work while it stands still. */
static int64_t at_device(struct wire *wire)
{
    return stat_of(wire, "chunks_in_flight");
}

static pid_t pause_worker(struct harness *daemon)
{
    pid_t worker = harness_await_worker(daemon, 0);

    harness_pause(worker);
    return worker;
}

static void go_on(pid_t worker)
{
    CHECK_EQ(kill(worker, SIGCONT), 0);
}

static uint64_t open_in_ring(struct wire *wire, uint64_t other, const char *more)
{
    char options[128];

    snprintf(options, sizeof(options), ", inline: false%s, after: [%" PRIu64 "]", more, other);
    return open_job(wire, options);
}

/* ---- good ends ------------------------------------------------------------------------------ */

/* Each copies what the one before wrote; the descriptors come in any order. */
static void test_a_chain_is_at_the_device_at_once(void)
{
    struct harness *daemon = harness_start("--ring-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 8 * MIB);
    pid_t worker = pause_worker(daemon);
    uint64_t jobs[CHAIN];

    random_bytes(ring->data, BLOCK);
    memset(ring->data + BLOCK, 0xa5, (size_t)CHAIN * BLOCK);
    for (unsigned i = 0; i < CHAIN; i++) {
        jobs[i] = i == 0 ? open_job(wire, ", inline: false") : open_in_ring(wire, jobs[i - 1], "");
    }
    for (unsigned i = 0; i < CHAIN; i++) {
        unsigned job = (i + 2) % CHAIN;
        struct ring_desc desc =
            ring_client_copy(jobs[job], (size_t)job * BLOCK, (size_t)(job + 1) * BLOCK, 1);

        desc.flags = RING_LAST;
        ring_client_submit(ring, &desc, 1);
    }
    HARNESS_WAIT(at_device(wire) == 1 + FOLLOWING_MOST);
    ring_client_is_empty(ring);
    go_on(worker);
    for (unsigned i = 0; i < CHAIN; i++) {
        CHECK_EQ(ring_client_reap(ring).job, jobs[i]);
        check_done(wire, jobs[i], "done");
    }
    for (unsigned i = 1; i <= CHAIN; i++) {
        CHECK_MEM(ring->data + (size_t)i * BLOCK, ring->data, BLOCK);
    }
}

static uint64_t open_fake(struct wire *wire, const char *op, const char *options)
{
    char text[128];

    snprintf(text, sizeof(text), "['%s', {}, {inline: false, window: 2%s}]", op, options);
    return (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
}

/*
 * The first waits in the device until the test opens its gate; what follows it would read what was
 * there before, if it could begin.  What came later has been done by then.
 */
static void test_it_begins_when_the_other_has_ended(void)
{
    struct harness *daemon = harness_create();
    const char *const options[] = {"--backend", "cpu", "--pinned-pool", "64M", NULL};

    if (cpus_usable() < 2) {
        CHECK_SKIP("the gate takes the only processor");
    }
    harness_place_worker(daemon, "cpu", getenv("OPERANDS_WORKER"));
    harness_launch(daemon, options);
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 8 * MIB);
    uint32_t *words = (void *)ring->data; /* one in each line: gate, 1st, 2nd, other's in and out */
    const uint32_t value = 1 + (uint32_t)random_below(1000000);
    char text[32];
    uint64_t jobs[3] = {open_fake(wire, "gate", "")};

    snprintf(text, sizeof(text), ", after: [%" PRIu64 "]", jobs[0]);
    jobs[1] = open_fake(wire, "affine", text);
    jobs[2] = open_fake(wire, "affine", "");
    random_bytes(&words[16], 4 * RING_ALIGN);
    words[0] = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(jobs); i++) {
        const struct ring_desc desc = {.job = (uint32_t)jobs[i],
                                       .n_records = 1,
                                       .in[0] = i == 2 ? 3 : i,
                                       .out[0] = 1 + i + (i == 2)};

        ring_client_submit(ring, &desc, 1);
        HARNESS_WAIT(stat_of(wire, "pushes_total") == i + 1);
        wire_call(wire, "job.close", "[%lu]", jobs[i]);
        if (i < 2) {
            HARNESS_WAIT(at_device(wire) == i + 1);
        }
    }
    CHECK_EQ(ring_client_reap(ring).job, jobs[2]);
    CHECK_EQ(words[4 * 16], 3 * words[3 * 16]);
    ring_client_is_empty(ring);
    __atomic_store_n(&words[0], value, __ATOMIC_RELEASE);
    CHECK_EQ(ring_client_reap(ring).job, jobs[0]);
    CHECK_EQ(ring_client_reap(ring).job, jobs[1]);
    CHECK_EQ(words[16], value);
    CHECK_EQ(words[2 * 16], 3 * value);
}

/* Another client's, and a run; the sum of what was copied, whose last step is followed. */
static void test_whoever_is_after_it_follows(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const void *data = random_new(BLOCK);
    pid_t worker = pause_worker(daemon);
    uint64_t first;
    const char *token = open_with_token(wire, &first);
    uint64_t job = (uint64_t)wire_number(
        wire_call(other, "job.open", "['copy', {size: 4096}, {" SMALL ", after: [%s]}]", token),
        "job");
    uint32_t run = wire_send(other, "run", "['sum', {}, {after: [%lu]}, [<4096>]]", job);

    push_block(other, job, 0, data);
    wire_call(other, "job.close", "[%lu]", job);
    push_block(wire, first, 0, data);
    CHECK_EQ(at_device(wire), 1); /* it may have more */
    wire_call(wire, "job.close", "[%lu]", first);
    HARNESS_WAIT(at_device(wire) == 3);
    CHECK_EQ(wire_held(wire), 0);
    go_on(worker);
    check_block(wire, first, data);
    check_done(wire, first, "done");
    check_block(other, job, data);
    check_done(other, job, "done");
    wire_result(other, run);
}

/* Many wait for one: some are at the device, and there is room for others beside them. */
static void test_those_that_follow_do_not_fill_the_device(void)
{
    enum { N = 12 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(BLOCK);
    pid_t worker = pause_worker(daemon);
    uint64_t first = open_job(wire, ""), other = open_job(wire, ""), jobs[N];
    bool has_ended[N] = {false};

    for (unsigned i = 0; i < N; i++) {
        jobs[i] = open_after(wire, first);
        push_block(wire, jobs[i], 0, data);
        wire_call(wire, "job.close", "[%lu]", jobs[i]);
    }
    push_block(wire, first, 0, data);
    wire_call(wire, "job.close", "[%lu]", first);
    HARNESS_WAIT(at_device(wire) == 1 + FOLLOWING_MOST);
    push_block(wire, other, 0, data);
    HARNESS_WAIT(at_device(wire) == 1 + FOLLOWING_MOST + 1);
    go_on(worker);
    check_done(wire, first, "done");
    for (unsigned n = 0; n < N; n++) {
        const msgpack_object *done = wire_notification(wire, "job.done");
        unsigned i = 0;

        while (i < N && jobs[i] != (uint64_t)wire_number(done, "0")) {
            i++;
        }
        CHECK_LT(i, N);
        CHECK(!has_ended[i]);
        has_ended[i] = true;
        CHECK_STR(wire_text(done, "1.state"), "done");
    }
    wire_check_works(wire);
}

/* Chunks of two priorities have two queues; several that are not back cannot be named as one; and
 * what has two to wait for waits. */
static void test_what_cannot_follow_waits(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(BLOCK);
    uint64_t first = open_job(wire, ""), second, jobs[3];
    char options[64];

    /* When it is known what they cost, chunks of one job go side by side. */
    push_block(wire, first, 0, data);
    check_block(wire, first, data);
    wire_call(wire, "job.close", "[%lu]", first);
    check_done(wire, first, "done");
    pid_t worker = pause_worker(daemon);
    first = open_job(wire, "");
    second = open_job(wire, "");
    snprintf(options, sizeof(options), ", priority: 'bulk', after: [%" PRIu64 "]", first);
    jobs[0] = open_job(wire, options);
    snprintf(options, sizeof(options), ", after: [%" PRIu64 ", %" PRIu64 "]", first, second);
    jobs[1] = open_job(wire, options);
    jobs[2] = open_after(wire, second);
    for (unsigned i = 0; i < ARRAY_SIZE(jobs); i++) {
        push_block(wire, jobs[i], 0, data);
        wire_call(wire, "job.close", "[%lu]", jobs[i]);
    }
    push_block(wire, first, 0, data);
    wire_call(wire, "job.close", "[%lu]", first);
    push_block(wire, second, 0, data);
    push_block(wire, second, 1, data);
    wire_call(wire, "job.close", "[%lu]", second);
    HARNESS_WAIT(at_device(wire) == 3);
    CHECK_EQ(stat_of(wire, "jobs_held"), 3);
    CHECK_EQ(at_device(wire), 3);
    go_on(worker);
    for (unsigned i = 0; i < 5; i++) {
        CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "done");
    }
}

/* ---- several devices ------------------------------------------------------------------------ */

static struct harness *start_with_devices(unsigned n)
{
    struct harness *daemon = harness_create();
    char line[32], path[16];
    const char *const options[] = {"--backend", "cuda", "--pinned-pool", "64M", "--worker-env",
                                   line,        NULL};

    snprintf(line, sizeof(line), "FAKE_DEVICES=%u", n);
    harness_place_worker(daemon, "cuda", getenv("FAKE_WORKER"));
    harness_launch(daemon, options);
    struct wire *wire = wire_connect(harness_socket(daemon));
    HARNESS_WAIT(stat_of(wire, "worker_starts") == n);
    for (unsigned i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%u.state", i);
        HARNESS_WAIT(strcmp(wire_text(wire_call(wire, "device.list", "[]"), path), "ready") == 0);
    }
    wire_close(wire);
    harness_settle(daemon);
    return daemon;
}

/* It goes where the other is, though another device is idle, unless it may not. */
static void test_it_follows_to_the_others_device(void)
{
    struct harness *daemon = start_with_devices(3);
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t first, jobs[2];

    first = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['affine', {}, {" SMALL ", device: 'cuda0'}]"), "job");
    pid_t worker = pause_worker(daemon);
    for (unsigned i = 0; i < 2; i++) {
        char text[128];

        snprintf(text, sizeof(text), "['affine', {}, {" SMALL ", after: [%" PRIu64 "]%s}]", first,
                 i == 0 ? "" : ", device: 'cuda1'");
        jobs[i] = (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
        wire_call(wire, "job.push", "[%lu, 0, {}, [<400>]]", jobs[i]);
        wire_call(wire, "job.close", "[%lu]", jobs[i]);
    }
    wire_call(wire, "job.push", "[%lu, 0, {}, [<400>]]", first);
    wire_call(wire, "job.close", "[%lu]", first);
    HARNESS_WAIT(at_device(wire) == 2);
    CHECK_EQ(wire_held(wire), 0);
    go_on(worker);
    for (unsigned i = 0; i < 3; i++) {
        const msgpack_object *result = wire_notification(wire, "job.result");
        uint64_t job = (uint64_t)wire_number(result, "0");

        CHECK_EQ(job == first, i == 0);
        CHECK_STR(wire_text(result, "2.device"), job == jobs[1] ? "cuda1" : "cuda0");
    }
}

/* ---- ends that are not good ------------------------------------------------------------------ */

enum bad_end { CANCELLED, FAILED, DISCONNECTED, WORKER_KILLED };

/* What follows it is at the device by then, and so is what follows that. */
static void check_bad_end(enum bad_end end, const char *why)
{
    struct harness *daemon = harness_create();
    const char *const options[] = {"--backend", "cpu", "--pinned-pool", "64M", NULL};

    harness_place_worker(daemon, "cpu", getenv("FAKE_WORKER"));
    harness_launch(daemon, options);
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const char *words = "['affine', {}, {" SMALL ", after: [%s]}]";
    const msgpack_object *opened =
        wire_call(wire, "job.open", "['affine', {add: %lu}, {" SMALL "}]",
                  (uint64_t)(end == FAILED ? STATUS_KERNEL_FAULT : 0));
    uint64_t first = (uint64_t)wire_number(opened, "job"), job, last;
    pid_t worker = pause_worker(daemon);

    opened = wire_call(other, "job.open", words, wire_text(opened, "token"));
    job = (uint64_t)wire_number(opened, "job");
    last = (uint64_t)wire_number(wire_call(other, "job.open", words, wire_text(opened, "token")),
                                 "job");
    wire_call(other, "job.push", "[%lu, 0, {}, [<400>]]", last);
    wire_call(other, "job.push", "[%lu, 0, {}, [<400>]]", job);
    wire_call(other, "job.close", "[%lu]", job);
    wire_call(wire, "job.push", "[%lu, 0, {}, [<400>]]", first);
    wire_call(wire, "job.close", "[%lu]", first);
    HARNESS_WAIT(at_device(other) == 3);
    if (end == CANCELLED) {
        wire_call(wire, "job.cancel", "[%lu]", first);
    } else if (end == DISCONNECTED) {
        wire_close(wire);
        HARNESS_WAIT(stat_of(other, "sessions") == 1);
    }
    CHECK_EQ(wire_held(other), 0);
    CHECK_EQ(kill(worker, end == WORKER_KILLED ? SIGKILL : SIGCONT), 0);
    check_failed(other, job, 1, first, why);
    check_failed(other, last, 1, job, "failed: CANCELLED");
    CHECK_EQ(stat_of(other, "jobs_held"), 0);
    HARNESS_WAIT(at_device(other) == 0);
    wire_call(other, "run", "['affine', {}, {}, [<400>]]");
}

static void test_one_that_is_cancelled_is_followed(void)
{
    check_bad_end(CANCELLED, "was cancelled, or its connection ended");
}

static void test_one_that_fails_is_followed(void)
{
    check_bad_end(FAILED, "failed: KERNEL_FAULT");
}

static void test_one_whose_connection_ends_is_followed(void)
{
    check_bad_end(DISCONNECTED, "was cancelled, or its connection ended");
}

static void test_one_whose_worker_is_killed_is_followed(void)
{
    check_bad_end(WORKER_KILLED, "failed: DEVICE_LOST");
}

/* It is answered once, and the other is none the worse for it. */
static void test_what_follows_is_cancelled(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *data = random_new(BLOCK);
    uint64_t first = open_job(wire, ""), job = open_after(wire, first);
    pid_t worker = pause_worker(daemon);

    push_block(wire, job, 0, data);
    push_block(wire, first, 0, data);
    wire_call(wire, "job.close", "[%lu]", first);
    HARNESS_WAIT(at_device(wire) == 2);
    CHECK_STR(wire_text(wire_call(wire, "job.cancel", "[%lu]", job), "state"), "cancelled");
    go_on(worker);
    for (unsigned i = 0; i < 2; i++) {
        const msgpack_object *done = wire_notification(wire, "job.done");

        CHECK_STR(wire_text(done, "1.state"),
                  wire_number(done, "0") == (int64_t)job ? "cancelled" : "done");
    }
    wire_check_works(wire);
}

CHECK_MAIN(CHECK_TEST(test_a_chain_is_at_the_device_at_once),
           CHECK_TEST(test_it_begins_when_the_other_has_ended),
           CHECK_TEST(test_whoever_is_after_it_follows),
           CHECK_TEST(test_those_that_follow_do_not_fill_the_device),
           CHECK_TEST(test_what_cannot_follow_waits),
           CHECK_TEST(test_it_follows_to_the_others_device),
           CHECK_TEST(test_one_that_is_cancelled_is_followed),
           CHECK_TEST(test_one_that_fails_is_followed),
           CHECK_TEST(test_one_whose_connection_ends_is_followed),
           CHECK_TEST(test_one_whose_worker_is_killed_is_followed),
           CHECK_TEST(test_what_follows_is_cancelled))
