/*
 * Memory: the daemon's own stays as it is, however much goes through rings; and no byte of one
 * client comes to another, in a ring or in a result, whoever their users are.
 */
#include "proto/status.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

static uint64_t open_job(struct wire *wire, const char *text)
{
    return (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
}

/* ---- the daemon's own ------------------------------------------------------------------------ */

#define GROWTH_MAX_KIB 256 /* of 100,000 descriptors: 2.6 bytes for each are seen */

/* As many small copies as the job has credit for, of the first half of the data to the second. */
static void copy_batch(struct ring_client *ring, uint64_t job, uint32_t n, size_t size)
{
    struct ring_desc descs[64];
    size_t half = ring->size / 2;

    random_bytes(ring->data, n * size);
    memset(ring->data + half, 0xa5, n * size);
    for (uint32_t i = 0; i < n; i++) {
        descs[i] = (struct ring_desc){
            .job = (uint32_t)job,
            .n_records = (uint32_t)size / 64,
            .in = {(uint32_t)(i * size / RING_ALIGN)},
            .out = {(uint32_t)((half + i * size) / RING_ALIGN)},
        };
    }
    ring_client_submit(ring, descs, n);
    for (uint32_t i = 0; i < n; i++) {
        struct ring_completion completion = ring_client_reap(ring);

        CHECK_STR(status_name(completion.status), status_name(STATUS_OK));
    }
    CHECK_MEM(ring->data + half, ring->data, n * size);
}

/* tests/bench/bench_soak.c does it 10 million times. */
static void test_descriptors_leave_nothing(void)
{
    enum { N = 200000, WINDOW = 64 };
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = open_job(wire, "['copy', {size: 64}, {inline: false, window: 64}]");
    unsigned long half_kib = 0;
    unsigned n_fds = harness_n_fds(daemon);

    harness_deadline(240);
    for (uint32_t i = 0; i < N; i += WINDOW) {
        if (half_kib == 0 && i >= N / 2) {
            half_kib = harness_rss_kib(daemon);
        }
        copy_batch(ring, job, WINDOW, 64 + 64 * random_below(8));
    }
    CHECK_GE(stat_of(wire, "pushes_total"), N);
    CHECK_LE(harness_rss_kib(daemon), half_kib + GROWTH_MAX_KIB + HARNESS_SANITIZER_KIB);
    CHECK_LE(harness_n_fds(daemon), n_fds + HARNESS_BLANK_FDS);
}

/* Pages that there are of a ring's queues, whether this process has touched them or not. */
static size_t n_queue_pages(const struct ring_client *ring)
{
    unsigned char is_there[1024];
    size_t n_pages = ring->shared_size / 4096, n = 0;

    CHECK_LE(n_pages, sizeof(is_there));
    CHECK_EQ(mincore(ring->shared, ring->shared_size, is_there), 0);
    for (size_t i = 0; i < n_pages; i++) {
        n += is_there[i] & 1;
    }
    return n;
}

/*
 * A client that kept mappings of the queues of rings that it had closed, or that were broken, had
 * their memory for as long as it liked, and nobody counted it.
 */
static void test_queues_of_rings_that_ended_are_freed(void)
{
    enum { N = 100, N_KEPT = 16 };
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *watcher = wire_connect(harness_socket(daemon));
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *rings[N];
    size_t n = 0;

    for (unsigned i = 0; i < N; i++) {
        rings[i] = ring_client_open(wire, MIB);
        CHECK_GT(n_queue_pages(rings[i]), 0);
        if (random_below(2) == 0) {
            ring_client_close(rings[i]);
        } else {
            shutdown(rings[i]->doorbell_fd, SHUT_RDWR);
            wire_notification(wire, "ring.closed");
        }
    }
    for (unsigned i = 0; i < N; i++) {
        n += n_queue_pages(rings[i]) > 0;
    }
    CHECK_EQ(n, N_KEPT);
    wire_close(wire);
    HARNESS_WAIT(stat_of(watcher, "sessions") == 1);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(n_queue_pages(rings[i]), 0);
    }
}

/* ---- what others left ------------------------------------------------------------------------ */

enum { ONE = 61004, OTHER = 61005 }; /* uids that nobody has */

static void be_root_again(void *arg)
{
    (void)arg;
    if (getuid() == 0 && seteuid(0) < 0) {
        abort();
    }
}

/* A daemon for all users. */
static struct harness *start_for_all(void)
{
    struct harness *daemon = harness_start("--log-level", "warning", "--ring-pool", "256M");

    check_at_end(be_root_again, NULL);
    CHECK_EQ(chmod(harness_folder(daemon), 0711), 0);
    CHECK_EQ(chmod(harness_socket(daemon), 0666), 0);
    return daemon;
}

/* A connection of that user's, where this process may be any. */
static struct wire *connect_as(struct harness *daemon, uid_t uid)
{
    struct wire *wire;
    bool is_root = getuid() == 0;

    CHECK_EQ(is_root ? seteuid(uid) : 0, 0);
    wire = wire_connect(harness_socket(daemon));
    CHECK_EQ(is_root ? seteuid(0) : 0, 0);
    return wire;
}

/* Each client writes its own word, over and over: 15 bytes of it are found wherever they are. */
static void fill_with(void *bytes, size_t size, uint64_t word)
{
    for (size_t at = 0; at < size; at += sizeof(word)) {
        memcpy((uint8_t *)bytes + at, &word, MIN(sizeof(word), size - at));
    }
}

static void check_without(const void *bytes, size_t size, uint64_t word)
{
    if (memmem(bytes, size, &word, sizeof(word)) != NULL) {
        CHECK_FAIL("%zu bytes have a word of another client's", size);
    }
}

static void check_zeros(const uint8_t *bytes, size_t size)
{
    CHECK_EQ(bytes[0], 0);
    CHECK_EQ(memcmp(bytes, bytes + 1, size - 1), 0);
}

/* The queues, but for their header, and the flag of a daemon that sleeps. */
static void check_queues_are_new(const struct ring_client *ring)
{
    check_zeros((uint8_t *)ring->shared + ring->sq, ring->shared_size - ring->sq);
}

static void test_a_new_ring_has_nothing_of_anybody(void)
{
    struct harness *daemon = start_for_all();
    const uid_t uids[] = {ONE, OTHER};
    struct ring_client *before = NULL;

    harness_deadline(240);
    for (unsigned round = 0; round < 16; round++) {
        struct wire *wire = connect_as(daemon, uids[random_below(2)]);
        struct ring_client *ring = ring_client_open(wire, (uint64_t)MIB << 2 * random_below(4));
        uint64_t job = ring_client_open_copy(wire, "");

        check_zeros(ring->data, ring->size);
        check_queues_are_new(ring);
        if (before != NULL) { /* whose memory it is no more */
            fill_with(before->data, before->size, random_u64());
            memset(before->shared, 0xa5, before->shared_size);
            check_zeros(ring->data, ring->size);
            check_queues_are_new(ring);
        }
        ring_client_check_works(ring, job);
        fill_with(ring->data, ring->size, random_u64());
        if (random_below(2) == 0) {
            ring_client_close(ring);
        }
        wire_close(wire);
        before = ring;
    }
}

/* Both halves of the pool's pushes: what came, and what copy made of it. */
static void push_all(struct wire *wire, uint64_t job, uint64_t n, const uint8_t *bytes, size_t size)
{
    for (uint64_t seq = 0; seq < n; seq++) {
        wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes, size);
    }
    wire_call(wire, "job.close", "[%lu]", job);
    wire_notification(wire, "job.done");
}

/* Have this word in all of the pool that this user may have, or that is left. */
struct hoard {
    struct wire *wire;
    uint64_t word;
    uint64_t job[8];
    uint64_t credit[8];
    size_t max_push[8];
    unsigned n_jobs;
};

static void hoard_pool(struct harness *daemon, uid_t uid, uint64_t until, struct hoard *ret_hoard)
{
    *ret_hoard = (struct hoard){.wire = connect_as(daemon, uid), .word = random_u64()};
    while (stat_of(ret_hoard->wire, "pool_used") < until) {
        unsigned i = ret_hoard->n_jobs++;
        const msgpack_object *opened =
            wire_call(ret_hoard->wire, "job.open", "['copy', {}, {window: 4}]");

        CHECK_LT(i, 8);
        ret_hoard->job[i] = (uint64_t)wire_number(opened, "job");
        ret_hoard->credit[i] = (uint64_t)wire_number(opened, "credit");
        ret_hoard->max_push[i] = (size_t)wire_number(opened, "max_push");
    }
}

static void fill_hoard(const struct hoard *hoard)
{
    for (unsigned i = 0; i < hoard->n_jobs; i++) {
        uint8_t *bytes = malloc(hoard->max_push[i]);

        fill_with(bytes, hoard->max_push[i], hoard->word);
        push_all(hoard->wire, hoard->job[i], hoard->credit[i], bytes, hoard->max_push[i]);
        free(bytes);
    }
    wire_close(hoard->wire);
}

static const struct work {
    const char *op, *params, *options;
    size_t in[3];
    unsigned n_in;
} works[] = {
    {"copy", "size: 1", "", {13}, 1},
    {"copy", "size: 4096", "", {3 * 4096}, 1},
    {"sha256", "block: 4096", "tail: 'short'", {4096 * 5 + 1}, 1},
    {"sha256", "block: 64", "tail: 'short'", {7}, 1},
    {"saxpy", "a: 2.5", "", {4 * 1001, 4 * 1001}, 2},
    {"gray", "", "", {3 * 1003}, 1},
    {"iterate", "n: 3", "", {4 * 33}, 1},
    {"sincos", "", "", {4 * 17, 4 * 17}, 2},
    {"dhash", "width: 33, height: 21", "", {33 * 21 * 3 * 5}, 1},
    {"resize", "width: 33, height: 21, out_width: 7, out_height: 50", "", {33 * 21 * 3 * 3}, 1},
    {"align_score", "length: 64", "", {64 * 5, 64 * 5, 8 * 5}, 3},
};

static const msgpack_object *run_inline(struct wire *wire, const struct work *work,
                                        uint8_t *const in[3])
{
    char text[256];

    snprintf(text, sizeof(text), "['%s', {%s}, {%s}, [%s]]", work->op, work->params, work->options,
             &"%b, %b, %b"[4 * (3 - work->n_in)]);
    return wire_call(wire, "run", text, in[0], work->in[0], in[1], work->in[1], in[2], work->in[2]);
}

/* The same in a ring, whose second half it finds full of this byte; returns where the output is. */
static const uint8_t *run_in_ring(struct ring_client *ring, const struct work *work,
                                  uint8_t *const in[3], size_t out_size, uint8_t poison)
{
    char text[256], refs[3][32] = {"", "", ""};
    struct wire *wire = ring->wire;
    size_t half = ring->size / 2;

    snprintf(text, sizeof(text), "['%s', {%s}, {inline: false%s%s}]", work->op, work->params,
             work->options[0] != '\0' ? ", " : "", work->options);
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
    memset(ring->data, ~poison, half);
    memset(ring->data + half, poison, half);
    for (unsigned i = 0; i < work->n_in; i++) {
        memcpy(ring->data + i * (MIB / 8), in[i], work->in[i]);
        snprintf(refs[i], sizeof(refs[i]), "%s[%d, %d, %zu]", i > 0 ? ", " : "", (int)ring->id,
                 (int)i * (MIB / 8), work->in[i]);
    }
    snprintf(text, sizeof(text), "[%d, 0, {out: [[%d, %zu, %zu]]}, [%s%s%s]]", (int)job,
             (int)ring->id, half, out_size, refs[0], refs[1], refs[2]);
    wire_call(wire, "job.push", text);
    CHECK(wire_find(wire_notification(wire, "job.result"), "2.error") == NULL);
    wire_call(wire, "job.close", "[%lu]", job);
    wire_notification(wire, "job.done");
    return ring->data + half;
}

static void check_work(struct ring_client *ring, const struct work *work,
                       const struct hoard *hoards)
{
    uint8_t *in[3] = {NULL}, *want;
    size_t size;

    for (unsigned i = 0; i < work->n_in; i++) {
        in[i] = random_new(work->in[i]);
    }
    const void *result = wire_bytes(run_inline(ring->wire, work, in), "out.0", &size);
    want = malloc(size);
    check_at_end(free, want);
    memcpy(want, result, size);
    check_without(want, size, hoards[0].word);
    check_without(want, size, hoards[1].word);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t poison = (uint8_t)(0xa5 * i);
        const uint8_t *out = run_in_ring(ring, work, in, size, poison);

        CHECK_MEM(out, want, size);
        CHECK_EQ(out[size], poison);
        CHECK_EQ(memcmp(out + size, out + size + 1, 4096), 0);
    }
}

/* All of the pool has been somebody's; a ring has what this client put there. */
static void test_results_have_nothing_of_what_others_left(void)
{
    struct harness *daemon = start_for_all();
    struct wire *wire = connect_as(daemon, ONE);
    struct ring_client *ring = ring_client_open(wire, MIB);
    struct hoard hoards[2];
    uint8_t byte = (uint8_t)random_u64();

    if (getuid() != 0) {
        CHECK_SKIP("needs root, to be two users, who have all of the pool together");
    }
    harness_deadline(240);
    hoard_pool(daemon, ONE, 48 * MIB, &hoards[0]);
    hoard_pool(daemon, OTHER, 64 * MIB, &hoards[1]);
    fill_hoard(&hoards[0]);
    fill_hoard(&hoards[1]);
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
    for (unsigned i = 0; i < ARRAY_SIZE(works); i++) {
        check_work(ring, &works[i], hoards);
    }
    const uint8_t *padded = wire_output(
        wire_call(wire, "run", "['copy', {size: 4096}, {tail: 'zero'}, [%b]]", &byte, (size_t)1),
        4096);
    CHECK_EQ(padded[0], byte);
    check_zeros(padded + 1, 4095);
}

CHECK_MAIN(CHECK_TEST(test_descriptors_leave_nothing),
           CHECK_TEST(test_queues_of_rings_that_ended_are_freed),
           CHECK_TEST(test_a_new_ring_has_nothing_of_anybody),
           CHECK_TEST(test_results_have_nothing_of_what_others_left))
