/*
 * Rings: data in memory shared with the daemon, by descriptors and by Refs; and what goes wrong
 * with them that is nobody's malice.
 */
#include "proto/status.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/ring_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCK = 4096 };

static struct harness *start(void)
{
    return harness_start("--ring-pool", "256M");
}

/* Of a job with all its data in rings; params and options as texts of maps. */
static uint64_t open_job(struct wire *wire, const char *op, const char *params, const char *options)
{
    char text[256];

    snprintf(text, sizeof(text), "['%s', {%s}, {inline: false%s}]", op, params, options);
    return (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
}

static void end_job(struct wire *wire, uint64_t job, const char *state)
{
    const msgpack_object *done;

    wire_call(wire, "job.close", "[%lu]", job);
    done = wire_notification(wire, "job.done");
    CHECK_EQ(wire_number(done, "0"), job);
    CHECK_STR(wire_text(done, "1.state"), state);
}

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* A copy of n blocks from one place of the data to another. */
static struct ring_desc copy_desc(uint64_t job, uint64_t tag, size_t from, size_t to, uint32_t n)
{
    return (struct ring_desc){
        .job = (uint32_t)job,
        .tag = tag,
        .n_records = n,
        .in = {(uint32_t)(from / RING_ALIGN)},
        .out = {(uint32_t)(to / RING_ALIGN)},
    };
}

static void check_done(const struct ring_completion *completion, uint64_t job, uint64_t tag,
                       enum status status)
{
    CHECK_EQ(completion->tag, tag);
    CHECK_EQ(completion->job, (uint32_t)job);
    CHECK_STR(status_name(completion->status), status_name(status));
}

/* Fill the first half with fresh bytes, and poison the second. */
static void fill(struct ring_client *ring)
{
    random_bytes(ring->data, ring->size / 2);
    memset(ring->data + ring->size / 2, 0xa5, ring->size / 2);
}

/* ---- what rings are for --------------------------------------------------------------------- */

static void test_descriptors_carry_a_job(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 8 * MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", ", window: 4");
    struct ring_desc descs[4];
    size_t half = ring->size / 2;

    CHECK_EQ(ring->size, 8 * MIB);
    fill(ring);
    for (uint32_t i = 0; i < 4; i++) {
        descs[i] = copy_desc(job, 1000 + i, i * half / 4, half + i * half / 4, half / 4 / BLOCK);
    }
    ring_client_submit(ring, descs, 4);
    for (uint32_t i = 0; i < 4; i++) {
        struct ring_completion completion = ring_client_reap(ring);

        check_done(&completion, job, 1000 + i, STATUS_OK);
        CHECK_EQ(completion.n_records, half / 4 / BLOCK);
        CHECK_EQ(completion.out_size[0], half / 4);
        CHECK_EQ(completion.devices, 1);
        CHECK_EQ(completion.priority, PRIORITY_NORMAL);
        CHECK_EQ(completion.has_timing, 0);
    }
    CHECK_MEM(ring->data + half, ring->data, half);
    end_job(wire, job, "done");
    ring_client_close(ring);
    wire_check_works(wire);
}

/* Far more pushes than the queues have entries: the indices go round. */
static void test_the_queues_go_round(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "copy", "size: 64", ", window: 64, priority: 'urgent'");
    enum { N = 64, ROUNDS = 3 * RING_ENTRIES / N };
    struct ring_desc descs[N];
    size_t half = ring->size / 2;

    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(ring);
        for (uint32_t i = 0; i < N; i++) {
            descs[i] = copy_desc(job, round * N + i, i * 8192, half + i * 8192, 1 + i % 128);
        }
        ring_client_submit(ring, descs, N);
        for (uint32_t i = 0; i < N; i++) {
            struct ring_completion completion = ring_client_reap(ring);
            size_t size = completion.n_records * 64;
            uint8_t *out = ring->data + half + i * 8192;

            check_done(&completion, job, round * N + i, STATUS_OK);
            CHECK_EQ(completion.n_records, 1 + i % 128);
            CHECK_MEM(out, ring->data + i * 8192, size);
            if (size < 8192) { /* and nothing behind it */
                CHECK_EQ(out[size], 0xa5);
            }
        }
    }
    end_job(wire, job, "done");
}

static void test_a_push_larger_than_a_chunk_is_one_answer(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", ", priority: 'bulk', timing: true");
    size_t half = ring->size / 2;
    struct ring_desc desc = copy_desc(job, 7, 0, half, (uint32_t)(half / BLOCK));

    fill(ring);
    ring_client_submit(ring, &desc, 1);
    struct ring_completion completion = ring_client_reap(ring);
    check_done(&completion, job, 7, STATUS_OK);
    CHECK_EQ(completion.has_timing, 1);
    CHECK_GT(completion.compute_ns, 0);
    CHECK_MEM(ring->data + half, ring->data, half);
    ring_client_is_empty(ring);
    end_job(wire, job, "done");
}

static void test_refs_need_no_queues(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "saxpy", "a: 2.5", "");
    enum { N = 10007 };
    float want[N];
    const float *x = (const void *)ring->data;
    const float *y = (const void *)(ring->data + 65536);
    const msgpack_object *result;

    fill(ring);
    reference_saxpy(2.5f, x, y, want, N);
    wire_call(wire, "job.push",
              "[%lu, 0, {n: 10007, out: [[%lu, 524288, 40028]]}, "
              "[[%lu, 0, 40028], [%lu, 65536, 40028]]]",
              job, ring->id, ring->id, ring->id);
    result = wire_notification(wire, "job.result");
    CHECK_EQ(wire_number(result, "1"), 0);
    CHECK_EQ(wire_number(result, "2.n"), N);
    CHECK_STR(wire_text(result, "2.path"), "ring");
    CHECK(wire_find(result, "2.out") == NULL);
    reference_check_floats(ring->data + 524288, want, N);
    end_job(wire, job, "done");
}

/* Who has read the answer has its credit, for a descriptor as well, however early the answer was
 * read: a thread sends it while the front end looks at rings. */
static void test_the_credit_of_refs_is_a_descriptors_at_once(void)
{
    struct harness *harness = harness_start("--ring-pool", "256M", "--awake-cpus", "8");
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "copy", "size: 64", ", priority: 'urgent', window: 1");
    size_t half = ring->size / 2;
    struct ring_desc desc;

    for (uint32_t round = 0; round < 200; round++) {
        fill(ring);
        wire_call(wire, "job.push", "[%lu, %lu, {n: 1, out: [[%lu, %lu, 64]]}, [[%lu, 0, 64]]]",
                  job, UINT64_C(2) * round, ring->id, half, ring->id);
        CHECK_EQ(wire_number(wire_notification(wire, "job.result"), "1"), 2 * round);
        desc = copy_desc(job, round, 4096, half + 4096, 1);
        ring_client_submit(ring, &desc, 1);
        struct ring_completion completion = ring_client_reap(ring);
        check_done(&completion, job, round, STATUS_OK);
        CHECK_MEM(ring->data + half, ring->data, 64);
        CHECK_MEM(ring->data + half + 4096, ring->data + 4096, 64);
    }
    end_job(wire, job, "done");
}

static void test_a_reduce_op_gives_the_same_bits_as_inline(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 4 * MIB);
    const msgpack_object *opened, *done;
    size_t half = ring->size / 2;

    random_floats((void *)ring->data, ring->size / 4);
    double want;
    memcpy(&want,
           wire_output(
               wire_call(wire, "run", "['sum', {}, {}, [%b]]", ring->data, (size_t)ring->size), 8),
           8);
    opened = wire_call(wire, "job.open", "['sum', {}, {inline: false}]");
    uint64_t job = (uint64_t)wire_number(opened, "job");
    CHECK_EQ(half / 4 % (uint64_t)wire_number(opened, "push_multiple"), 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct ring_desc desc = copy_desc(job, i, i * half, 0, (uint32_t)(half / 4));

        desc.out[0] = UINT32_MAX; /* it has none, and nobody looks */
        ring_client_submit(ring, &desc, 1);
        struct ring_completion completion = ring_client_reap(ring);
        check_done(&completion, job, i, STATUS_OK);
        CHECK_EQ(completion.out_size[0], 0);
    }
    wire_call(wire, "job.close", "[%lu]", job);
    done = wire_notification(wire, "job.done");
    CHECK_MEM(wire_output(wire_find(done, "1"), 8), &want, 8);
}

static void test_a_short_last_record(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "sha256", "block: 4096", ", tail: 'short'");
    enum { N = 100, LAST = 1234, SIZE = (N - 1) * BLOCK + LAST };
    struct ring_desc desc = copy_desc(job, 1, 0, ring->size / 2, N);

    fill(ring);
    const uint8_t *want = reference_sha256(harness, ring->data, SIZE, BLOCK);
    desc.tail_size = LAST;
    ring_client_submit(ring, &desc, 1);
    struct ring_completion completion = ring_client_reap(ring);
    check_done(&completion, job, 1, STATUS_OK);
    CHECK_EQ(completion.out_size[0], N * 32);
    CHECK_MEM(ring->data + ring->size / 2, want, N * 32);
    ring_client_submit(ring, &desc, 1); /* it ended the input */
    completion = ring_client_reap(ring);
    check_done(&completion, job, 1, STATUS_SEQ);
    end_job(wire, job, "done");
}

/* ---- memory --------------------------------------------------------------------------------- */

static void test_a_ring_is_sealed(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    int fds[] = {ring->queues_fd, ring->data_fd};

    for (unsigned i = 0; i < 2; i++) {
        CHECK_LT(ftruncate(fds[i], 4096), 0);
        CHECK_EQ(errno, EPERM);
        CHECK_LT(ftruncate(fds[i], (off_t)1 << 32), 0);
        CHECK_EQ(errno, EPERM);
        CHECK_LT(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE), 0);
        CHECK_EQ(errno, EPERM);
    }
}

static void test_what_was_mine_is_mine_again_or_gone(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 4 * MIB);
    uint8_t *old = ring->data, mark[64];

    random_bytes(mark, sizeof(mark));
    memcpy(old + 12345, mark, sizeof(mark));
    ring_client_close(ring);
    struct ring_client *next = ring_client_open(wire, 4 * MIB);
    CHECK_MEM(next->data + 12345, mark, sizeof(mark)); /* the same user's, still warm */
    wire_close(wire);
    /* The last connection of this user went: its memory as well, though it is mapped here. */
    struct wire *other = wire_connect(harness_socket(harness));
    HARNESS_WAIT(stat_of(other, "ring_pool_used") == 0);
    wire_close(other);
    HARNESS_WAIT(old[12345] != mark[0] || memcmp(old + 12345, mark, sizeof(mark)) != 0);
    CHECK_EQ(old[12345], 0);
}

static void test_sizes_are_rounded_up_and_bounded(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));

    CHECK_EQ(ring_client_open(wire, 1)->size, MIB);
    CHECK_EQ(ring_client_open(wire, 3 * MIB)->size, 4 * MIB);
    wire_refused(wire, "RANGE", "size", "ring.open", "[0]");
    wire_refused(wire, "INVALID_PARAM", "size", "ring.open", "['much']");
    wire_refused(wire, "TOO_BIG", "the largest has 1073741824", "ring.open", "[1099511627776]");
    wire_refused(wire, "TOO_BIG", "--ring-pool", "ring.open", "[268435456]");
    wire_refused(wire, "NO_DEVICE", "\"gpu9\"", "ring.open", "[4096, {device: 'gpu9'}]");
    wire_refused(wire, "NOT_FOUND", "no ring", "ring.close", "[77]");
    for (unsigned i = 2; i < 16; i++) {
        ring_client_open(wire, MIB);
    }
    wire_refused(wire, "QUOTA", "at most 16", "ring.open", "[4096]");
    wire_check_works(wire);
}

static void test_one_user_leaves_memory_for_others(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));

    ring_client_open(wire, 128 * MIB);
    ring_client_open(wire, 64 * MIB);
    wire_refused(wire, "QUOTA", "your rings have 192 MiB", "ring.open", "[1048576]");
    CHECK_EQ(stat_of(wire, "ring_pool_used"), 192 * MIB);
}

static void test_no_ring_pool_no_rings(void)
{
    struct harness *harness = harness_start("--ring-pool", "0");
    struct wire *wire = wire_connect(harness_socket(harness));

    wire_refused(wire, "TOO_BIG", "--ring-pool", "ring.open", "[4096]");
    wire_check_works(wire);
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* A descriptor that is refused; then one that is not. */
static void check_refused(struct ring_client *ring, const struct ring_desc *desc, uint64_t job,
                          enum status status)
{
    struct ring_desc good = copy_desc(job, 99, 0, ring->size / 2, 3);
    struct ring_completion completion;

    ring_client_submit(ring, desc, 1);
    completion = ring_client_reap(ring);
    check_done(&completion, desc->job, desc->tag, status);
    CHECK_EQ(completion.n_records, 0);
    CHECK_EQ(completion.out_size[0], 0);
    fill(ring);
    ring_client_submit(ring, &good, 1);
    completion = ring_client_reap(ring);
    check_done(&completion, job, 99, STATUS_OK);
    CHECK_MEM(ring->data + ring->size / 2, ring->data, (size_t)3 * BLOCK);
}

static void test_bad_descriptors_are_refused_and_the_job_goes_on(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct wire *other = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", "");
    uint64_t foreign = open_job(other, "copy", "size: 4096", "");
    const size_t half = ring->size / 2, end = ring->size;
    struct ring_desc odd = copy_desc(job, 5, 0, half, 1);
    const struct {
        struct ring_desc desc;
        enum status status;
    } rows[] = {
        {copy_desc(job + 1000, 1, 0, half, 1), STATUS_NOT_FOUND},
        {copy_desc(foreign, 2, 0, half, 1), STATUS_NOT_FOUND},
        {copy_desc(job, 3, end - BLOCK + 64, half, 1), STATUS_RANGE},
        {copy_desc(job, 4, 0, end - BLOCK + 64, 1), STATUS_RANGE},
        {copy_desc(job, 5, end, half, 1), STATUS_RANGE},
        {copy_desc(job, 6, 0, half, UINT32_MAX), STATUS_TOO_BIG},
        {copy_desc(job, 7, 0, half, (uint32_t)(half / BLOCK) + 1), STATUS_RANGE},
        {copy_desc(job, 8, 0, 0, 1), STATUS_RANGE},
        {copy_desc(job, 9, 0, BLOCK, 2), STATUS_RANGE},
        {copy_desc(job, 10, BLOCK, 64, 2), STATUS_RANGE},
        {copy_desc(job, 11, (size_t)UINT32_MAX * 64, half, 1), STATUS_RANGE},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_refused(ring, &rows[i].desc, job, rows[i].status);
    }
    odd.flags = RING_LAST << (1 + random_below(63));
    check_refused(ring, &odd, job, STATUS_INVALID_PARAM);
    odd.flags = 0;
    odd.deadline_ns = LIMIT_DEADLINE * UINT64_C(1000000) + 1;
    check_refused(ring, &odd, job, STATUS_RANGE);
    odd.deadline_ns = UINT64_MAX;
    check_refused(ring, &odd, job, STATUS_RANGE);
    odd.deadline_ns = 0;
    odd.varying_size = 1;
    check_refused(ring, &odd, job, STATUS_RANGE);
    odd.varying_size = 0;
    odd.tail_size = 1;
    check_refused(ring, &odd, job, STATUS_RANGE);
    end_job(wire, job, "done");
    check_refused(ring, &rows[0].desc, open_job(wire, "copy", "size: 4096", ""), STATUS_NOT_FOUND);
}

static void test_bad_refs_are_refused_and_the_seq_is_free(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct wire *other = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, MIB);
    struct ring_client *foreign = ring_client_open(other, MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", "");
    static const struct {
        const char *name, *text, *params;
    } rows[] = {
        {"INVALID_PARAM", "[ring, offset, length]",
         "[%lu, 0, {out: [[%lu, 8192]]}, [[%lu, 0, 1]]]"},
        {"INVALID_PARAM", "1 outputs", "[%lu, 0, {out: []}, [[%lu, 0, 4096]]]"},
        {"RANGE", "multiple of 64", "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [[%lu, 1, 4096]]]"},
        {"RANGE", "multiple", "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [[%lu, 0, 4095]]]"},
        {"RANGE", "not 1 records", "[%lu, 0, {out: [[%lu, 8192, 4097]]}, [[%lu, 0, 4096]]]"},
        {"RANGE", "outside", "[%lu, 0, {out: [[%lu, 1048576, 4096]]}, [[%lu, 0, 4096]]]"},
        {"RANGE", "lies over", "[%lu, 0, {out: [[%lu, 64, 4096]]}, [[%lu, 0, 4096]]]"},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wire_refused(wire, rows[i].name, rows[i].text, "job.push", rows[i].params, job, ring->id,
                     ring->id);
    }
    wire_refused(wire, "NOT_YOURS", "another connection's", "job.push",
                 "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [[%lu, 0, 4096]]]", job, foreign->id,
                 foreign->id);
    wire_refused(wire, "INVALID_PARAM", "one ring", "job.push",
                 "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [[%lu, 0, 4096]]]", job, foreign->id,
                 ring->id);
    wire_refused(wire, "RANGE", "n is 2", "job.push",
                 "[%lu, 0, {n: 2, out: [[%lu, 8192, 4096]]}, [[%lu, 0, 4096]]]", job, ring->id,
                 ring->id);
    wire_refused(wire, "INVALID_PARAM", "its data are Refs", "job.push", "[%lu, 0, {}, [<4096>]]",
                 job);
    fill(ring);
    wire_call(wire, "job.push", "[%lu, 0, {out: [[%lu, 524288, 4096]]}, [[%lu, 0, 4096]]]", job,
              ring->id, ring->id);
    wire_notification(wire, "job.result");
    CHECK_MEM(ring->data + 524288, ring->data, BLOCK);
    wire_refused(wire, "INVALID_PARAM", "padded by the client", "job.open",
                 "['sha256', {block: 4096}, {inline: false, tail: 'zero'}]");
    uint64_t with_bytes =
        (uint64_t)wire_number(wire_call(wire, "job.open", "['copy', {size: 4096}]"), "job");
    wire_refused(wire, "INVALID_PARAM", "option out", "job.push",
                 "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [<4096>]]", with_bytes, ring->id);
    wire_refused(wire, "INVALID_PARAM", "only a job opened with inline = false", "job.push",
                 "[%lu, 0, {out: [[%lu, 8192, 4096]]}, [[%lu, 0, 4096]]]", with_bytes, ring->id,
                 ring->id);
}

static void test_more_than_the_window_gets_no_credit(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", ", window: 2");
    struct ring_desc descs[3];
    unsigned n_done = 0, n_refused = 0;

    fill(ring);
    for (uint32_t i = 0; i < 3; i++) {
        size_t at = i * 8 * MIB;

        descs[i] = copy_desc(job, i, at, ring->size / 2 + at, 8 * MIB / BLOCK);
    }
    ring_client_submit(ring, descs, 3); /* all are taken in one turn */
    for (uint32_t i = 0; i < 3; i++) {
        struct ring_completion completion = ring_client_reap(ring);

        if (completion.tag == 2) {
            check_done(&completion, job, 2, STATUS_NO_CREDIT);
            n_refused++;
        } else {
            check_done(&completion, job, n_done++, STATUS_OK);
        }
    }
    CHECK_EQ(n_refused, 1);
    CHECK_MEM(ring->data + ring->size / 2, ring->data, 16 * MIB);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void test_close_answers_when_what_was_taken_is_done(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    struct ring_client *other = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", "");
    struct ring_desc desc = copy_desc(job, 3, 0, ring->size / 2, 32 * MIB / BLOCK);
    struct ring_desc after = copy_desc(job, 4, 0, other->size / 2, 1);

    fill(ring);
    ring_client_submit(ring, &desc, 1);
    HARNESS_WAIT(stat_of(wire, "pushes_total") == 1);
    ring_client_close(ring);
    struct ring_completion completion = ring_client_reap(ring);
    check_done(&completion, job, 3, STATUS_OK);
    CHECK_MEM(ring->data + ring->size / 2, ring->data, 32 * MIB);
    wire_refused(wire, "NOT_FOUND", "or it is closed", "ring.close", "[%lu]", ring->id);
    fill(other); /* which knows nothing of all this */
    ring_client_submit(other, &after, 1);
    completion = ring_client_reap(other);
    check_done(&completion, job, 4, STATUS_OK);
    CHECK_MEM(other->data + other->size / 2, other->data, BLOCK);
}

static void test_a_client_that_dies_leaves_nothing(void)
{
    struct harness *harness = start();
    struct wire *watcher = wire_connect(harness_socket(harness));

    for (unsigned round = 0; round < 20; round++) {
        struct wire *wire = wire_connect(harness_socket(harness));
        struct ring_client *ring = ring_client_open(wire, 16 * MIB);
        uint64_t job = open_job(wire, "copy", "size: 4096", ", window: 8");

        for (uint32_t i = 0; i < 8; i++) {
            struct ring_desc desc = copy_desc(job, i, 0, 8 * MIB, 8 * MIB / BLOCK);

            ring_client_submit(ring, &desc, 1);
        }
        usleep(random_below(3000));
        wire_close(wire);
    }
    HARNESS_WAIT(stat_of(watcher, "rings") == 0 && stat_of(watcher, "ring_pool_used") == 0 &&
                 stat_of(watcher, "jobs") == 0 && stat_of(watcher, "chunks_in_flight") == 0);
    wire_check_works(watcher);
}

static void test_a_worker_that_dies_costs_what_it_had_and_no_ring(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", "");
    struct ring_desc desc = copy_desc(job, 3, 0, ring->size / 2, 32 * MIB / BLOCK);
    pid_t worker = harness_worker(harness);
    const msgpack_object *done;

    harness_pause(worker);
    ring_client_submit(ring, &desc, 1);
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") > 0);
    kill(worker, SIGKILL);
    struct ring_completion completion = ring_client_reap(ring);
    check_done(&completion, job, 3, STATUS_DEVICE_LOST);
    done = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(done, "1.state"), "failed");
    CHECK_STR(wire_error(wire_find(done, "1.error")).name, "DEVICE_LOST");

    harness_await_worker(harness, worker);
    job = open_job(wire, "copy", "size: 4096", "");
    desc.job = (uint32_t)job;
    fill(ring);
    ring_client_submit(ring, &desc, 1);
    completion = ring_client_reap(ring);
    check_done(&completion, job, 3, STATUS_OK);
    CHECK_MEM(ring->data + ring->size / 2, ring->data, 32 * MIB);
}

static void test_cancel_ends_what_waits_in_a_ring(void)
{
    struct harness *harness = start();
    struct wire *wire = wire_connect(harness_socket(harness));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    uint64_t job = open_job(wire, "copy", "size: 4096", ", window: 8");
    unsigned n_cancelled = 0;

    harness_pause(harness_worker(harness));
    for (uint32_t i = 0; i < 8; i++) {
        struct ring_desc desc = copy_desc(job, i, 0, 32 * MIB, 32 * MIB / BLOCK);

        ring_client_submit(ring, &desc, 1);
    }
    HARNESS_WAIT(stat_of(wire, "pushes_total") == 8);
    wire_call(wire, "job.cancel", "[%lu]", job);
    kill(harness_worker(harness), SIGCONT);
    for (uint32_t i = 0; i < 8; i++) {
        struct ring_completion completion = ring_client_reap(ring);

        CHECK_EQ(completion.tag, i);
        n_cancelled += completion.status == STATUS_CANCELLED;
    }
    CHECK_GT(n_cancelled, 0);
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "cancelled");
    ring_client_is_empty(ring);
}

CHECK_MAIN(CHECK_TEST(test_descriptors_carry_a_job), CHECK_TEST(test_the_queues_go_round),
           CHECK_TEST(test_a_push_larger_than_a_chunk_is_one_answer),
           CHECK_TEST(test_the_credit_of_refs_is_a_descriptors_at_once),
           CHECK_TEST(test_refs_need_no_queues),
           CHECK_TEST(test_a_reduce_op_gives_the_same_bits_as_inline),
           CHECK_TEST(test_a_short_last_record), CHECK_TEST(test_a_ring_is_sealed),
           CHECK_TEST(test_what_was_mine_is_mine_again_or_gone),
           CHECK_TEST(test_sizes_are_rounded_up_and_bounded),
           CHECK_TEST(test_one_user_leaves_memory_for_others),
           CHECK_TEST(test_no_ring_pool_no_rings),
           CHECK_TEST(test_bad_descriptors_are_refused_and_the_job_goes_on),
           CHECK_TEST(test_bad_refs_are_refused_and_the_seq_is_free),
           CHECK_TEST(test_more_than_the_window_gets_no_credit),
           CHECK_TEST(test_close_answers_when_what_was_taken_is_done),
           CHECK_TEST(test_a_client_that_dies_leaves_nothing),
           CHECK_TEST(test_a_worker_that_dies_costs_what_it_had_and_no_ring),
           CHECK_TEST(test_cancel_ends_what_waits_in_a_ring))
