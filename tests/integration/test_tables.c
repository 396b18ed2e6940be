/*
 * Tables: small descriptors that are there at once are one push to the daemon and its workers, and
 * remain many to their client.  The op is gray, whose reference is here.
 */
#include "proto/channel.h"
#include "proto/status.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <signal.h>
#include <unistd.h>

enum { MIB = 1 << 20, N = 64, PLACE = 2048, RECORDS_MAX = PLACE / 3 }; /* a place for each array */
enum { PIXEL = 3, POISON = 0xa5 };
#define WINDOW ", window: 64" /* as many as N */

static struct wire *wire; /* of the running test */
static struct harness *daemon_of_test;
static struct ring_client *ring;

static uint64_t stat_of(const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* Options as ", timing: true". */
static uint64_t open_job(const char *options)
{
    char params[256];

    snprintf(params, sizeof(params), "['gray', {}, {inline: false%s}]", options);
    return (uint64_t)wire_number(wire_call(wire, "job.open", params), "job");
}

/* Job i's arrays: inputs in the first half of the ring, outputs in the second.  What the op has not
 * may be anything. */
static struct ring_desc describe(uint64_t job, uint32_t i)
{
    return (struct ring_desc){
        .job = (uint32_t)job,
        .n_records = 1 + (uint32_t)random_below(RECORDS_MAX),
        .tag = i,
        .in = {i * PLACE / RING_ALIGN, (uint32_t)random_u64(), UINT32_MAX},
        .out = {(MIB / 2 + i * PLACE) / RING_ALIGN, (uint32_t)random_u64()},
    };
}

static uint8_t *input_of(uint32_t i)
{
    return ring->data + (size_t)i * PLACE;
}

static uint8_t *output_of(uint32_t i)
{
    return ring->data + MIB / 2 + (size_t)i * PLACE;
}

static void fill(void)
{
    random_bytes(ring->data, MIB / 2);
    memset(ring->data + MIB / 2, POISON, MIB / 2);
}

/* A ring, and a daemon that knows how long the op takes; else there are no tables. */
static void start(void)
{
    struct ring_desc desc;
    uint64_t job;

    daemon_of_test = harness_start();
    wire = wire_connect(harness_socket(daemon_of_test));
    ring = ring_client_open(wire, MIB);
    fill();
    job = open_job(WINDOW);
    desc = describe(job, 0);
    ring_client_submit(ring, &desc, 1);
    CHECK_EQ(ring_client_reap(ring).status, STATUS_OK);
    wire_call(wire, "job.close", "[%lu]", job);
    wire_notification(wire, "job.done");
    fill();
}

/* n pixels of the place's are grey, and what is behind them is as it was. */
static void check_output(uint32_t i, uint32_t n)
{
    const uint8_t *in = input_of(i), *out = output_of(i);

    for (uint32_t k = 0; k < PLACE; k++) {
        const uint32_t rgb[] = {in[k * PIXEL % PLACE], in[(k * PIXEL + 1) % PLACE],
                                in[(k * PIXEL + 2) % PLACE]};

        CHECK_EQ(out[k], k < n ? (77 * rgb[0] + 150 * rgb[1] + 29 * rgb[2] + 128) >> 8 : POISON);
    }
}

static void check_good(const struct ring_desc *desc, const struct ring_completion *completion)
{
    CHECK_EQ(completion->status, STATUS_OK);
    CHECK_EQ(completion->job, desc->job);
    CHECK_EQ(completion->n_records, desc->n_records);
    CHECK_EQ(completion->out_size[0], desc->n_records);
    CHECK_EQ(completion->out_size[1], 0);
    CHECK_EQ(completion->priority, PRIORITY_NORMAL);
    CHECK_EQ(completion->devices, 1);
    check_output((uint32_t)desc->tag, desc->n_records);
}

/* One of each of these, in any order; returns it. */
static struct ring_completion reap_one(bool seen[N])
{
    struct ring_completion completion = ring_client_reap(ring);

    CHECK_LT(completion.tag, N);
    CHECK(!seen[completion.tag]);
    seen[completion.tag] = true;
    return completion;
}

/* N descriptors at once, each answered in its turn; returns how many chunks they were. */
static uint64_t run_batch(uint64_t job)
{
    uint64_t n_chunks = stat_of("chunks_total"), n_pushes = stat_of("pushes_total");
    struct ring_desc descs[N];
    bool seen[N] = {false};

    fill();
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
    }
    ring_client_submit(ring, descs, N);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        CHECK_EQ(completion.tag, i);
        CHECK_EQ(completion.has_timing, 0);
        check_good(&descs[i], &completion);
    }
    CHECK_EQ(stat_of("pushes_total") - n_pushes, N);
    return stat_of("chunks_total") - n_chunks;
}

/* They are one push in the daemon and the worker, or few; but not as long as one record is measured
 * to take so long that several would keep the device from others: a busy machine's first ones do.
 */
static void test_descriptors_share_chunks(void)
{
    uint64_t job, n_batches = 1;

    start();
    job = open_job(WINDOW);
    while (run_batch(job) == N) {
        CHECK_LT(n_batches, 100);
        n_batches++;
    }
    CHECK_EQ(wire_number(wire_call(wire, "job.close", "[%lu]", job), "pushed"), n_batches * N);
    CHECK_EQ(wire_number(wire_notification(wire, "job.done"), "1.pushes"), n_batches * N);
}

/* One with a deadline of its own is a push of its own, however alike they are, whenever the device
 * would have them share. */
static void test_who_has_a_deadline_shares_nothing(void)
{
    struct ring_desc descs[N];
    uint64_t job, n_batches = 1, n_chunks;

    start();
    job = open_job(WINDOW);
    while (run_batch(job) == N) {
        CHECK_LT(n_batches++, 100);
    }
    for (uint32_t round = 0; round < 20; round++) {
        bool seen[N] = {false};

        fill();
        for (uint32_t i = 0; i < N; i++) {
            descs[i] = describe(job, i);
            descs[i].n_records = descs[0].n_records;
            descs[i].deadline_ns = i % 4 == 3 ? UINT64_C(3600000000000) : 0;
        }
        n_chunks = stat_of("chunks_total");
        ring_client_submit(ring, descs, N);
        for (uint32_t i = 0; i < N; i++) {
            struct ring_completion completion = reap_one(seen);

            check_good(&descs[completion.tag], &completion);
        }
        CHECK_GE(stat_of("chunks_total") - n_chunks, 2 * N / 4); /* and those between them */
    }
}

static enum status spoil(struct ring_desc *desc)
{
    desc->n_records = MAX(desc->n_records, 1u); /* of nothing many things are right */
    switch (random_below(7)) {
    case 0:
        desc->in[0] = MIB / RING_ALIGN - 1;
        desc->n_records = RING_ALIGN / PIXEL + 1;
        return STATUS_RANGE;
    case 1:
        desc->out[0] = UINT32_MAX;
        return STATUS_RANGE;
    case 2:
        desc->out[0] = desc->in[0];
        return STATUS_RANGE;
    case 3:
        desc->n_records = UINT32_MAX;
        return STATUS_TOO_BIG;
    case 4:
        desc->tail_size = 1;
        return STATUS_RANGE;
    case 5:
        desc->flags = UINT64_C(2) << random_below(63);
        return STATUS_INVALID_PARAM;
    default:
        desc->job += 1000;
        return STATUS_NOT_FOUND;
    }
}

/* Each is refused alone, and what is before and behind it is done, as if there were no tables. */
static void test_good_and_bad_in_one_batch(void)
{
    uint64_t job;

    start();
    job = open_job(WINDOW ", ordered: false, timing: true");
    for (uint32_t round = 0; round < 20; round++) {
        enum status expected[N];
        struct ring_desc descs[N];
        bool seen[N] = {false};
        const uint32_t n_usual = describe(job, 0).n_records;

        for (uint32_t i = 0; i < N; i++) {
            descs[i] = describe(job, i);
            if (round % 2 == 0) { /* most are of one kind */
                descs[i].n_records = n_usual;
            }
            if (random_below(10) == 0) {
                descs[i].n_records = 0;
            }
            if (random_below(10) == 0) {
                descs[i].deadline_ns = UINT64_C(3600000000000);
            }
            expected[i] = random_below(8) == 0 ? spoil(&descs[i]) : STATUS_OK;
        }
        ring_client_submit(ring, descs, N);
        for (uint32_t i = 0; i < N; i++) {
            struct ring_completion completion = reap_one(seen);
            const struct ring_desc *desc = &descs[completion.tag];

            CHECK_STR(status_name(completion.status), status_name(expected[completion.tag]));
            if (completion.status != STATUS_OK) {
                CHECK_EQ(completion.n_records, 0);
                check_output((uint32_t)completion.tag, 0);
            } else if (desc->n_records > 0) {
                CHECK_EQ(completion.has_timing, 1);
                check_good(desc, &completion);
            }
        }
        fill();
    }
}

/* Neighbours in the ring of another job, which has another order, are another table. */
static void test_two_jobs_interleaved(void)
{
    uint64_t jobs[2];
    uint64_t last_tag = 0;

    start();
    jobs[0] = open_job(WINDOW);
    jobs[1] = open_job(WINDOW ", ordered: false");
    for (uint32_t round = 0; round < 20; round++, last_tag = 0) {
        struct ring_desc descs[N];
        bool seen[N] = {false};

        for (uint32_t i = 0; i < N; i++) {
            descs[i] = describe(jobs[random_below(2)], i);
        }
        ring_client_submit(ring, descs, N);
        for (uint32_t i = 0; i < N; i++) {
            struct ring_completion completion = reap_one(seen);

            check_good(&descs[completion.tag], &completion);
            if (completion.job == (uint32_t)jobs[0]) {
                CHECK_GE(completion.tag, last_tag);
                last_tag = completion.tag;
            }
        }
        fill();
    }
}

/* The one that closes the job may be a row; what comes behind it is refused. */
static void test_a_row_closes_the_job(void)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};
    uint64_t job;
    uint32_t last;

    start();
    job = open_job(WINDOW);
    last = (uint32_t)random_below(N);
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
        descs[i].n_records = descs[0].n_records; /* of one kind, but for this: */
    }
    descs[last].flags = RING_LAST;
    ring_client_submit(ring, descs, N);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        if (completion.tag <= last) {
            check_good(&descs[completion.tag], &completion);
        } else {
            CHECK(completion.status == STATUS_SEQ || completion.status == STATUS_NOT_FOUND);
        }
    }
    const msgpack_object *done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "done");
    CHECK_EQ(wire_number(done, "1.pushes"), last + 1);
}

/* Of N the job takes as many as its window holds, and each is answered once. */
static void check_credit(uint64_t job, uint32_t window)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};

    harness_pause(harness_worker(daemon_of_test));
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
        descs[i].deadline_ns = random_below(4) == 0 ? UINT64_C(3600000000000) : 0; /* no row */
    }
    ring_client_submit(ring, descs, N);
    for (uint32_t i = window; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        CHECK_EQ(completion.tag, i);
        CHECK_EQ(completion.status, STATUS_NO_CREDIT);
    }
    ring_client_is_empty(ring);
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    for (uint32_t i = 0; i < window; i++) {
        struct ring_completion completion = reap_one(seen);

        check_good(&descs[completion.tag], &completion);
    }
}

/* As many as the job may have unanswered, each of which counts, and gives its credit back. */
static void test_rows_take_credit(void)
{
    uint32_t window = 1 + (uint32_t)random_below(N - 1);
    char options[64];
    uint64_t job;

    start();
    snprintf(options, sizeof(options), ", window: %u, ordered: false", window);
    job = open_job(options);
    for (uint32_t round = 0; round < 5; round++) {
        check_credit(job, window);
        fill();
    }
}

/* The worker stands still while these wait for it, or are there.  Their job. */
static uint64_t submit_to_paused_worker(struct ring_desc descs[N], const char *options)
{
    uint64_t job;

    start();
    harness_pause(harness_worker(daemon_of_test));
    job = open_job(options);
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
    }
    for (uint32_t i = 0, n; i < N; i += n) {
        n = MIN(1 + (uint32_t)random_below(N), N - i);
        ring_client_submit(ring, &descs[i], n);
    }
    return job;
}

static void await_pushes(void)
{
    HARNESS_WAIT(stat_of("pushes_total") == N + 1);
}

static void test_cancel_answers_each_once(void)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};
    uint64_t job = submit_to_paused_worker(descs, WINDOW);

    await_pushes();
    wire_call(wire, "job.cancel", "[%lu]", job);
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        CHECK_EQ(completion.tag, i);
        CHECK_EQ(completion.status, STATUS_CANCELLED);
        if (completion.n_records > 0) {
            CHECK_EQ(completion.n_records, descs[i].n_records);
            check_output(i, descs[i].n_records);
        }
    }
    ring_client_is_empty(ring);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "cancelled");
}

static bool has_open_job(void)
{
    const msgpack_object *list = wire_call(wire, "job.list", "[]");

    return list->via.array.size > 0 && strcmp(wire_text(list, "0.state"), "open") == 0;
}

/* Where the machine is slow it has passed before some are taken. */
static void test_a_deadline_that_passes_answers_each_once(void)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};

    submit_to_paused_worker(descs, WINDOW ", deadline_ns: 300000000");
    HARNESS_WAIT(!has_open_job());
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    for (uint32_t i = 0; i < N; i++) {
        enum status status = reap_one(seen).status;

        CHECK(status == STATUS_DEADLINE || status == STATUS_NOT_FOUND);
    }
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "expired");
}

/* Of those with a deadline of their own each has it for itself. */
static void test_a_row_s_deadline_is_nobody_else_s(void)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};
    uint64_t job;

    start();
    job = open_job(WINDOW ", ordered: false");
    harness_pause(harness_worker(daemon_of_test));
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
        descs[i].deadline_ns = random_below(2) * 1000000;
    }
    ring_client_submit(ring, descs, N);
    await_pushes();
    usleep(300000); /* so that it is noted, most likely */
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);
        const struct ring_desc *desc = &descs[completion.tag];

        if (desc->deadline_ns == 0 || completion.status != STATUS_DEADLINE) {
            check_good(desc, &completion);
        }
    }
}

/* What the worker had is lost, what is behind it is not begun; and the next job has its tables. */
static void test_a_worker_that_dies_answers_each_once(void)
{
    struct ring_desc descs[N];
    bool seen[N] = {false};
    bool was_lost = false;
    pid_t worker;
    uint64_t job;

    submit_to_paused_worker(descs, WINDOW);
    await_pushes();
    worker = harness_worker(daemon_of_test);
    CHECK_EQ(kill(worker, SIGKILL), 0);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        CHECK(completion.status == STATUS_DEVICE_LOST || completion.status == STATUS_CANCELLED);
        CHECK_EQ(completion.n_records, 0);
        was_lost |= completion.status == STATUS_DEVICE_LOST;
    }
    CHECK(was_lost);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "failed");
    harness_await_worker(daemon_of_test, worker);
    fill();
    memset(seen, 0, sizeof(seen));
    job = open_job(WINDOW);
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
    }
    ring_client_submit(ring, descs, N);
    for (uint32_t i = 0; i < N; i++) {
        struct ring_completion completion = reap_one(seen);

        check_good(&descs[i], &completion);
    }
}

/* One job's rows in two rings, in turns: each is computed in its ring, and answered there. */
static void test_rows_of_two_rings_stay_apart(void)
{
    struct ring_desc descs[N];
    bool seen[2][N] = {{false}};
    struct ring_client *rings[2];
    uint64_t job;

    start();
    rings[0] = ring;
    rings[1] = ring_client_open(wire, MIB);
    job = open_job(WINDOW ", ordered: false");
    for (uint32_t r = 0; r < 2; r++) {
        ring = rings[r];
        fill();
    }
    harness_pause(harness_worker(daemon_of_test));
    for (uint32_t i = 0; i < N; i++) {
        descs[i] = describe(job, i);
        ring_client_submit(rings[i % 2], &descs[i], 1);
    }
    await_pushes();
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    for (uint32_t i = 0; i < N; i++) {
        ring = rings[i % 2];
        struct ring_completion completion = reap_one(seen[i % 2]);

        CHECK_EQ(completion.tag % 2, i % 2);
        check_good(&descs[completion.tag], &completion);
        check_output((uint32_t)(completion.tag ^ 1), 0); /* which is the other ring's */
    }
}

/* Rows hold their ring until the worker is done with them; they have nowhere to be answered. */
static void test_a_ring_that_breaks_under_its_rows(void)
{
    struct ring_desc descs[N];

    submit_to_paused_worker(descs, WINDOW);
    await_pushes();
    __atomic_store_n((uint32_t *)((uint8_t *)ring->shared + ring->sq), 1 << 20, __ATOMIC_SEQ_CST);
    channel_ring(ring->doorbell_fd);
    CHECK_EQ(wire_number(wire_notification(wire, "ring.closed"), "0"), ring->id);
    ring_client_is_empty(ring);
    CHECK_EQ(stat_of("rings"), 1);
    CHECK_EQ(kill(harness_worker(daemon_of_test), SIGCONT), 0);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "failed");
    HARNESS_WAIT(stat_of("rings") == 0);
    ring_client_is_empty(ring);
    CHECK_EQ(stat_of("chunks_in_flight"), 0);
    ring_client_check_works(ring_client_open(wire, MIB), ring_client_open_copy(wire, ""));
}

CHECK_MAIN(CHECK_TEST(test_descriptors_share_chunks),
           CHECK_TEST(test_who_has_a_deadline_shares_nothing),
           CHECK_TEST(test_good_and_bad_in_one_batch), CHECK_TEST(test_two_jobs_interleaved),
           CHECK_TEST(test_a_row_closes_the_job), CHECK_TEST(test_rows_take_credit),
           CHECK_TEST(test_cancel_answers_each_once),
           CHECK_TEST(test_a_deadline_that_passes_answers_each_once),
           CHECK_TEST(test_a_row_s_deadline_is_nobody_else_s),
           CHECK_TEST(test_a_worker_that_dies_answers_each_once),
           CHECK_TEST(test_rows_of_two_rings_stay_apart),
           CHECK_TEST(test_a_ring_that_breaks_under_its_rows))
