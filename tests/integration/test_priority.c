/*
 * Priorities: bulk work is held back, so that what is urgent overtakes it.  Judged by the order of
 * the answers on one connection, never by time.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { N_PUSHES = 16 };

/*
 * Send it all while the worker is stopped, and let it go on when all of it has been accepted: what
 * comes first is then the scheduler's choice, not a race between sender and worker.
 */
static void send_held(struct harness *daemon, struct wire *wire, const msgpack_sbuffer *buffer,
                      unsigned n_pushes)
{
    struct wire *watcher = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);

    harness_pause(worker);
    wire_send_bytes(wire, buffer->data, buffer->size);
    HARNESS_WAIT(wire_number(wire_call(watcher, "stats", "[]"), "pushes_total") == n_pushes);
    kill(worker, SIGCONT);
}

/* A job whose pushes all lie in `buffer`, behind each other. */
static uint64_t pack_job(struct wire *wire, const char *priority, msgpack_sbuffer *buffer)
{
    const msgpack_object *opened = wire_call(
        wire, "job.open", "['sha256', {block: 1}, {priority: %s, window: 16, max_push: 2097152}]",
        priority);
    uint64_t job = (uint64_t)wire_number(opened, "job");

    CHECK_EQ(wire_number(opened, "credit"), N_PUSHES);
    for (unsigned i = 0; i < N_PUSHES; i++) {
        wire_pack(wire, buffer, "job.push", "[%lu, %lu, {}, [<65536>]]", job, (uint64_t)i);
    }
    return job;
}

static bool is_result_of(const msgpack_object *message, uint64_t job)
{
    return wire_number(message, "0") == 2 && strcmp(wire_text(message, "1"), "job.result") == 0 &&
           wire_number(message, "2.0") == job;
}

static bool is_response(const msgpack_object *message, uint32_t msgid)
{
    return wire_number(message, "0") == 1 && wire_number(message, "1") == msgid;
}

static void test_urgent_overtakes_bulk(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    unsigned n_before = 0, n_after = 0;
    bool is_answered = false;
    msgpack_sbuffer buffer;
    uint32_t urgent;
    uint64_t bulk;

    msgpack_sbuffer_init(&buffer);
    bulk = pack_job(wire, "bulk", &buffer);
    urgent = wire_pack(wire, &buffer, "run", "['copy', {}, {priority: 'urgent'}, [<1000>]]");
    send_held(daemon, wire, &buffer, N_PUSHES + 1);
    msgpack_sbuffer_destroy(&buffer);
    while (n_before + n_after < N_PUSHES || !is_answered) {
        const msgpack_object *message = wire_receive(wire);

        CHECK(message != NULL);
        is_answered |= is_response(message, urgent);
        n_before += is_result_of(message, bulk) && !is_answered;
        n_after += is_result_of(message, bulk) && is_answered;
    }
    printf("# %u of %d bulk results came before the urgent one\n", n_before, N_PUSHES);
    CHECK_LE(n_before, N_PUSHES / 2);
}

static void test_bulk_waits_for_normal_and_is_not_starved(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    unsigned n_bulk = 0, n_normal = 0, n_bulk_before_last_normal = 0;
    msgpack_sbuffer buffer;
    uint64_t bulk, normal;

    msgpack_sbuffer_init(&buffer);
    bulk = pack_job(wire, "bulk", &buffer);
    normal = pack_job(wire, "normal", &buffer);
    send_held(daemon, wire, &buffer, 2 * N_PUSHES);
    msgpack_sbuffer_destroy(&buffer);
    while (n_bulk < N_PUSHES || n_normal < N_PUSHES) {
        const msgpack_object *message = wire_receive(wire);

        CHECK(message != NULL);
        n_bulk += is_result_of(message, bulk);
        n_normal += is_result_of(message, normal);
        n_bulk_before_last_normal = n_normal < N_PUSHES ? n_bulk : n_bulk_before_last_normal;
    }
    printf("# %u of %d bulk results came before the last normal one\n", n_bulk_before_last_normal,
           N_PUSHES);
    CHECK_LT(n_bulk_before_last_normal, N_PUSHES);
}

/* As run, push and descriptor: what each was asked to be is what it ran as, where others want
 * nothing. */
static void test_every_answer_says_what_it_ran_as(void)
{
    static const char *const names[] = {"urgent", "normal", "bulk"};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 1 << 20);

    for (unsigned i = 0; i < 3; i++) {
        char option[32];
        struct ring_desc desc;
        uint64_t job;

        snprintf(option, sizeof(option), ", priority: '%s'", names[i]);
        CHECK_STR(wire_text(wire_call(wire, "run", "['copy', {}, {priority: %s}, [<9>]]", names[i]),
                            "priority"),
                  names[i]);
        job = (uint64_t)wire_number(
            wire_call(wire, "job.open", "['copy', {}, {priority: %s, window: 1, max_push: 65536}]",
                      names[i]),
            "job");
        wire_call(wire, "job.push", "[%lu, 0, {}, [<9>]]", job);
        CHECK_STR(wire_text(wire_notification(wire, "job.result"), "2.priority"), names[i]);
        desc = ring_client_copy(ring_client_open_copy(wire, option), 0, 1 << 19, 1);
        ring_client_submit(ring, &desc, 1);
        CHECK_EQ(ring_client_reap(ring).priority, i);
    }
}

/* On the CPU, whose bound is known here: two chunks for each thread. */
static void test_bulk_in_flight_is_bounded(void)
{
    struct harness *daemon = harness_start(HARNESS_ON_CPU, "--pinned-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *watcher = wire_connect(harness_socket(daemon));
    int64_t n_most = 0;
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    pack_job(wire, "bulk", &buffer);
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    for (unsigned i = 0; i < 50; i++) {
        const msgpack_object *stats = wire_call(watcher, "stats", "[]");
        int64_t n = wire_number(stats, "chunks_in_flight");

        n_most = n > n_most ? n : n_most;
    }
    for (unsigned i = 0; i < N_PUSHES; i++) {
        wire_notification(wire, "job.result");
    }
    printf("# at most %d chunks were in flight\n", (int)n_most);
    CHECK_LE(n_most, 2 * sysconf(_SC_NPROCESSORS_ONLN));
}

/* out = x + v, v starting as x and n times v * 0.5 + 1: see README, The ops. */
static float iterated(float x, unsigned n)
{
    float v = x;

    for (unsigned i = 0; i < n; i++) {
        v = v * 0.5f + 1.0f;
    }
    return x + v;
}

/* Chunks of this push as it goes through the daemon once more. */
static int64_t n_chunks_of(struct wire *wire, const float *in, size_t n)
{
    int64_t before = wire_number(wire_call(wire, "stats", "[]"), "chunks_total");
    const msgpack_object *result =
        wire_call(wire, "run", "['iterate', {n: 20000}, {}, [%b]]", in, n * sizeof(in[0]));
    const float *out = wire_output(result, n * sizeof(in[0]));

    for (size_t i = 0; i < n; i += 997) {
        float wanted = iterated(in[i], 20000), got;

        memcpy(&got, &out[i], sizeof(got));
        CHECK_MEM(&got, &wanted, sizeof(got));
    }
    return wire_number(wire_call(wire, "stats", "[]"), "chunks_total") - before;
}

/*
 * Nothing interrupts a chunk that is being computed, so one of a slow op is small: these take a
 * second of one core together.  The same with other parameters would be another op.  On the CPU, as
 * a GPU's chunks are never so small that part of it would be idle.
 */
static void test_chunks_of_slow_ops_are_small(void)
{
    enum { N = 65536 };
    static float in[N];
    struct harness *daemon = harness_start(HARNESS_ON_CPU);
    struct wire *wire = wire_connect(harness_socket(daemon));
    int64_t n_slow, before;

    for (unsigned i = 0; i < N; i++) {
        in[i] = (float)random_below(1 << 20) / 1024;
    }
    n_chunks_of(wire, in, N); /* nobody knows yet how slow it is */
    n_slow = n_chunks_of(wire, in, N);
    CHECK_GE(n_slow, 10);
    wire_call(wire, "run", "['copy', {}, {}, [<262144>]]");
    before = wire_number(wire_call(wire, "stats", "[]"), "chunks_total");
    wire_call(wire, "run", "['copy', {}, {}, [<262144>]]");
    CHECK_LT(wire_number(wire_call(wire, "stats", "[]"), "chunks_total") - before, n_slow);
}

CHECK_MAIN(CHECK_TEST(test_urgent_overtakes_bulk), CHECK_TEST(test_chunks_of_slow_ops_are_small),
           CHECK_TEST(test_bulk_waits_for_normal_and_is_not_starved),
           CHECK_TEST(test_every_answer_says_what_it_ran_as),
           CHECK_TEST(test_bulk_in_flight_is_bounded))
