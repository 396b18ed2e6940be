/*
 * Cancel: at any moment of a job's life every push and every descriptor has one answer, whoever was
 * first; and what it says was done is done, and nothing else.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include "proto/status.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCK = RING_CLIENT_BLOCK, WINDOW = 8, N_ROUNDS = 60, POISON = 0xa5 };

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

static void await_nothing_left(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "jobs") == 0 && stat_of(wire, "pool_used") == 0);
    CHECK_EQ(stat_of(wire, "chunks_in_flight"), 0);
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)random_below(500000)}, NULL);
}

/* From the job's connection or another one of its user's: both may be late, or twice. */
static void cancel(struct wire *const wires[2], uint64_t job)
{
    uint32_t n = 1 + (uint32_t)random_below(2);

    for (uint32_t i = 0; i < n; i++) {
        struct wire *wire = wires[random_below(2)];
        const msgpack_object *response =
            wire_response(wire, wire_send(wire, "job.cancel", "[%lu]", job));
        struct wire_error error = wire_error(wire_find(response, "2"));

        CHECK(error.name[0] == '\0' || strcmp(error.name, "NOT_FOUND") == 0);
    }
}

/* ---- through the socket --------------------------------------------------------------------- */

struct pushes {
    uint8_t *bytes;
    size_t size; /* of each */
    uint32_t requests[WINDOW];
    unsigned n, n_accepted, n_good;
};

/* One result for each that was accepted, then job.done. */
static void check_results(struct wire *wire, struct pushes *pushes)
{
    bool is_seen[WINDOW] = {false};
    const msgpack_object *params;

    for (unsigned i = 0; i < pushes->n; i++) {
        const msgpack_object *response = wire_response(wire, pushes->requests[i]);
        struct wire_error error = wire_error(wire_find(response, "2"));

        CHECK(error.name[0] == '\0' || strcmp(error.name, "NOT_FOUND") == 0);
        CHECK(error.name[0] != '\0' ||
              i == pushes->n_accepted); /* all those before one that is not */
        pushes->n_accepted += error.name[0] == '\0';
    }
    for (unsigned i = 0; i < pushes->n_accepted; i++) {
        params = wire_notification(wire, "job.result");
        uint64_t seq = (uint64_t)wire_number(params, "1");

        CHECK_GT(pushes->n_accepted, seq);
        CHECK(!is_seen[seq]);
        is_seen[seq] = true;
        if (wire_find(params, "2.error") == NULL) {
            CHECK_MEM(wire_output(wire_find(params, "2"), pushes->size),
                      pushes->bytes + seq * pushes->size, pushes->size);
            pushes->n_good++;
        } else {
            CHECK_STR(wire_error(wire_find(params, "2.error")).name, "CANCELLED");
        }
    }
    params = wire_notification(wire, "job.done");
    CHECK_EQ(wire_number(params, "1.pushes"), pushes->n_accepted);
    CHECK_EQ(wire_number(params, "1.n"), pushes->n_good * pushes->size);
    CHECK_STR(wire_text(params, "1.state"), "cancelled");
}

static void test_pushes_and_cancels_race(void)
{
    struct harness *daemon = harness_start();
    struct wire *wires[2] = {wire_connect(harness_socket(daemon)),
                             wire_connect(harness_socket(daemon))};
    struct wire *wire = wires[0];
    unsigned n_good = 0, n_cancelled = 0, n_refused = 0;

    for (unsigned round = 0; round < N_ROUNDS; round++) {
        struct pushes pushes = {.size = 1 + random_below(200000)};
        unsigned cancelled_at = (unsigned)random_below(WINDOW + 1);
        uint64_t job = (uint64_t)wire_number(
            wire_call(wire, "job.open",
                      random_below(2) == 0 ? "['copy', {}, {window: 8, max_push: 262144}]"
                                           : "['copy', {}, {window: 8, max_push: 262144, "
                                             "ordered: false, priority: 'bulk'}]"),
            "job");

        pushes.bytes = random_new(WINDOW * pushes.size);
        for (uint64_t i = 0; i <= WINDOW; i++) {
            if (i == cancelled_at) {
                pause_a_little();
                cancel(wires, job);
            }
            if (i < WINDOW) {
                pushes.requests[pushes.n++] =
                    wire_send(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, i,
                              pushes.bytes + i * pushes.size, pushes.size);
            }
        }
        check_results(wire, &pushes);
        wire_refused(wire, "NOT_FOUND", "ended", "job.cancel", "[%lu]", job);
        CHECK_EQ(wire_held(wire), 0); /* not a word more */
        n_good += pushes.n_good;
        n_cancelled += pushes.n_accepted - pushes.n_good;
        n_refused += WINDOW - pushes.n_accepted;
    }
    printf("# %u done, %u cancelled, %u too late\n", n_good, n_cancelled, n_refused);
    await_nothing_left(wires[1]);
    wire_check_works(wire);
}

/* ---- in a ring ------------------------------------------------------------------------------ */

enum { ROOM = 2 * MIB }; /* for the input of one, and as much for its output */

static struct ring_desc desc_for(uint64_t job, uint32_t i)
{
    struct ring_desc desc = ring_client_copy(job, (size_t)i * ROOM, (size_t)(WINDOW + i) * ROOM,
                                             1 + (uint32_t)random_below(ROOM / BLOCK));

    desc.tag = i;
    desc.deadline_ns = random_below(4) == 0 ? 1 + random_below(2000000) : 0;
    return desc;
}

static void check_completion(const struct ring_client *ring, const struct ring_desc *desc,
                             const struct ring_completion *completion)
{
    const uint8_t *in = ring->data + desc->tag * ROOM, *out = in + (size_t)WINDOW * ROOM;
    size_t done = (size_t)completion->n_records * BLOCK;

    CHECK_EQ(completion->out_size[0], done);
    CHECK_GE(desc->n_records, completion->n_records);
    CHECK(completion->status != STATUS_OK || completion->n_records == desc->n_records);
    CHECK(completion->status != STATUS_NOT_FOUND || completion->n_records == 0);
    CHECK_MEM(out, in, done);
    for (size_t i = done; i < ROOM; i++) {
        CHECK_EQ(out[i], POISON);
    }
}

/* Submitted in bursts, while it is cancelled; each comes back once, with what it says. */
static void check_round(struct ring_client *ring, struct wire *const wires[2], unsigned *counts)
{
    uint64_t job = ring_client_open_copy(
        wires[0], random_below(2) == 0 ? ", window: 8" : ", window: 8, ordered: false");
    unsigned cancelled_at = (unsigned)random_below(WINDOW + 1), n_taken = 0;
    struct ring_desc descs[WINDOW];
    bool is_seen[WINDOW] = {false};

    memset(ring->data + (size_t)WINDOW * ROOM, POISON, (size_t)WINDOW * ROOM);
    for (uint32_t i = 0, n; i < WINDOW; i += n) {
        n = 1 + (uint32_t)random_below(WINDOW - i);
        for (uint32_t k = i; k < i + n; k++) {
            descs[k] = desc_for(job, k);
        }
        ring_client_submit(ring, descs + i, n);
        if (i <= cancelled_at && cancelled_at < i + n) {
            pause_a_little();
            cancel(wires, job);
        }
    }
    if (cancelled_at == WINDOW) {
        cancel(wires, job);
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        struct ring_completion completion = ring_client_reap(ring);

        CHECK_GT(WINDOW, completion.tag);
        CHECK(!is_seen[completion.tag]);
        is_seen[completion.tag] = true;
        CHECK(completion.status == STATUS_OK || completion.status == STATUS_CANCELLED ||
              completion.status == STATUS_DEADLINE || completion.status == STATUS_NOT_FOUND);
        check_completion(ring, &descs[completion.tag], &completion);
        counts[completion.status]++;
        n_taken += completion.status != STATUS_NOT_FOUND;
    }
    CHECK_EQ(wire_number(wire_notification(wires[0], "job.done"), "1.pushes"), n_taken);
    ring_client_is_empty(ring);
}

static void test_descriptors_and_cancels_race(void)
{
    struct harness *daemon = harness_start();
    struct wire *wires[2] = {wire_connect(harness_socket(daemon)),
                             wire_connect(harness_socket(daemon))};
    struct ring_client *ring = ring_client_open(wires[0], 2 * WINDOW * ROOM);
    unsigned counts[STATUS_COUNT] = {0};

    random_bytes(ring->data, (size_t)WINDOW * ROOM);
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        check_round(ring, wires, counts);
    }
    printf("# %u done, %u cancelled, %u late, %u too late\n", counts[STATUS_OK],
           counts[STATUS_CANCELLED], counts[STATUS_DEADLINE], counts[STATUS_NOT_FOUND]);
    await_nothing_left(wires[1]);
}

/* ---- whose it is ---------------------------------------------------------------------------- */

static void be_root_again(void *arg)
{
    (void)arg;
    if (seteuid(0) < 0) {
        abort();
    }
}

static void test_a_job_in_a_ring_is_nobody_elses(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon)), *stranger;
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = ring_client_open_copy(wire, "");

    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be two users");
    }
    check_at_end(be_root_again, NULL);
    CHECK_EQ(chmod(harness_folder(daemon), 0711), 0);
    CHECK_EQ(seteuid(12345), 0);
    stranger = wire_connect(harness_socket(daemon));
    CHECK_EQ(seteuid(0), 0);
    wire_refused(stranger, "NOT_YOURS", "another connection's", "job.cancel", "[%lu]", job);
    ring_client_check_works(ring, job);
    wire_call(wire, "job.cancel", "[%lu]", job);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "cancelled");
    wire_refused(stranger, "NOT_FOUND", "ended", "job.cancel", "[%lu]", job);
}

CHECK_MAIN(CHECK_TEST(test_pushes_and_cancels_race), CHECK_TEST(test_descriptors_and_cancels_race),
           CHECK_TEST(test_a_job_in_a_ring_is_nobody_elses))
