/*
 * Memory of rings: the daemon's own stays as it is, however much goes through them.
 */
#include "proto/status.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <sys/mman.h>
#include <sys/socket.h>

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
    CHECK_EQ(harness_n_fds(daemon), n_fds);
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

CHECK_MAIN(CHECK_TEST(test_descriptors_leave_nothing),
           CHECK_TEST(test_queues_of_rings_that_ended_are_freed))
