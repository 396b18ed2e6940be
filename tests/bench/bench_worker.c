/*
 * What one worker does with data that already lies in segments, no daemon in between: bytes each
 * way per second for several depths, and the time of a small job, alone and beside bulk.
 *
 * Usage: GPUPIPE_WORKER=program bench_worker.  The front end spins: what is measured is the worker.
 * Data is random and every output is compared at the end.
 */
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#define CHUNK   (4u << 20)
#define PLACES  8u /* chunks that the segments hold */
#define N_BULK  512u
#define N_SMALL 2000u
#define SMALL   4096u

enum { IN, OUT, SMALL_IN, SMALL_OUT };

static struct front front;

static void compare(uint32_t in, uint32_t out, size_t size)
{
    if (memcmp(front.segments[in].base, front.segments[out].base, size) != 0) {
        CHECK_MEM(front.segments[out].base, front.segments[in].base, size);
    }
}

static void start(void)
{
    const struct value size = {.name = "size", .i = 4096};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    uint32_t op;

    front_start_ready(&front, "GPUPIPE_WORKER", 0);
    op = front_op(&front, "copy");
    CHECK_EQ(manifest_pack(&front.ops[op], &size, 1, params, &failure), 0);
    front_set_job(&front, 0, op, params, sizeof(params));
    random_bytes(front_add_segment(&front, IN, PLACES * CHUNK), PLACES * CHUNK);
    front_add_segment(&front, OUT, PLACES * CHUNK);
    random_bytes(front_add_segment(&front, SMALL_IN, SMALL), SMALL);
    front_add_segment(&front, SMALL_OUT, SMALL);
}

static void submit_bulk(uint32_t i)
{
    size_t offset = (size_t)(i % PLACES) * CHUNK;

    front_submit(&front, PRIORITY_BULK,
                 (struct work_entry){.n_records = CHUNK / 4096,
                                     .ref = {WORK_REF(IN, offset), WORK_REF(OUT, offset)}});
}

/* Returns how many entries of each priority were answered, without sleeping. */
static void take(uint32_t n[PRIORITY_COUNT])
{
    struct done_entry done;
    int n_done = queue_done_take(front.queue, &done, 1);

    CHECK_GE(n_done, 0);
    for (uint32_t i = 0; n_done > 0 && i < done.count; i++) {
        struct work_entry entry;
        struct work_result result;

        queue_work_read(front.queue, done.queue, done.first + i, &entry, &result);
        CHECK_EQ(result.status, STATUS_OK);
        queue_work_release(front.queue, done.queue, done.first + i);
        n[done.queue]++;
    }
}

static void run_bulk(uint32_t depth)
{
    uint32_t n_submitted = 0, n[PRIORITY_COUNT] = {0};
    uint64_t start_ns = now_ns();
    double seconds;

    while (n[PRIORITY_BULK] < N_BULK) {
        while (n_submitted < N_BULK && n_submitted - n[PRIORITY_BULK] < depth) {
            submit_bulk(n_submitted++);
        }
        take(n);
    }
    seconds = (double)(now_ns() - start_ns) / 1e9;
    printf("# bulk, %u in flight: %.2f GB/s each way\n", depth,
           (double)N_BULK * CHUNK / seconds / 1e9);
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Small jobs one by one; with depth bulk chunks always in flight. */
static void run_small(enum priority priority, uint32_t depth)
{
    static uint64_t times[N_SMALL];
    uint32_t n_bulk = 0, n[PRIORITY_COUNT] = {0};

    for (uint32_t i = 0; i < N_SMALL; i++) {
        uint64_t start_ns = now_ns();

        front_submit(&front, priority,
                     (struct work_entry){.n_records = SMALL / 4096,
                                         .ref = {WORK_REF(SMALL_IN, 0), WORK_REF(SMALL_OUT, 0)}});
        while (n[priority] <= i) {
            while (n_bulk - n[PRIORITY_BULK] < depth) {
                submit_bulk(n_bulk++);
            }
            take(n);
        }
        times[i] = now_ns() - start_ns;
    }
    while (n[PRIORITY_BULK] < n_bulk) {
        take(n);
    }
    qsort(times, N_SMALL, sizeof(times[0]), compare_ns);
    printf("# 4 KiB, %s, beside %u bulk chunks: p50 %.1f us, p99 %.1f us\n",
           priority == PRIORITY_URGENT ? "urgent" : "normal", depth,
           (double)times[N_SMALL / 2] / 1e3, (double)times[N_SMALL * 99 / 100] / 1e3);
}

static void bench_bulk(void)
{
    static const uint32_t depths[] = {1, 2, 3, 4, 6, 8};

    start();
    run_bulk(4); /* to warm up */
    for (uint32_t i = 0; i < 2 * ARRAY_SIZE(depths); i++) {
        run_bulk(depths[i % ARRAY_SIZE(depths)]);
    }
    compare(IN, OUT, PLACES * CHUNK);
}

static void bench_small(void)
{
    start();
    run_small(PRIORITY_URGENT, 0);
    run_small(PRIORITY_NORMAL, 0);
    run_small(PRIORITY_URGENT, 4);
    run_small(PRIORITY_NORMAL, 4);
    compare(IN, OUT, PLACES * CHUNK);
    compare(SMALL_IN, SMALL_OUT, SMALL);
}

CHECK_MAIN(CHECK_TEST(bench_bulk), CHECK_TEST(bench_small))
