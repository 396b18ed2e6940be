/*
 * The CPU backend behind device.h: results, order by priority, tables of narrow chunks, room,
 * waiting and closing.  Gates hold all computing threads but one, or all, so that nothing here
 * depends on time.
 */
#include "cuda/device.h"
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/fake_ops.h"
#include "tests/random.h"

#include <sys/mman.h>

#define N_MAX 64u

/* One device with memory to work on; static, so that a failing test can be undone. */
static struct {
    struct device *device;
    int doorbell[2];
    uint32_t n_threads;
    uint32_t *gates; /* one for each thread: 0 = closed */
    uint32_t *gate_outs;
    struct device_completion completions[4 * N_MAX];
} bench;

static void open_gate(uint32_t i)
{
    __atomic_store_n(&bench.gates[i], 1000 + i, __ATOMIC_RELEASE);
}

static void tear_down(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < bench.n_threads; i++) {
        open_gate(i);
    }
    device_backend.close(bench.device);
    close(bench.doorbell[0]);
    close(bench.doorbell[1]);
    free(bench.gates);
    free(bench.gate_outs);
}

static void set_up(void)
{
    struct worker_caps caps;
    struct failure failure;

    memset(&bench, 0, sizeof(bench));
    CHECK_EQ(device_backend.probe(&caps, &failure), 0);
    bench.n_threads = caps.n_threads;
    bench.gates = calloc(caps.n_threads, sizeof(uint32_t));
    bench.gate_outs = calloc(caps.n_threads, sizeof(uint32_t));
    CHECK_EQ(channel_pair(true, bench.doorbell), 0);
    CHECK_EQ(device_backend.open(&bench.device, &failure), 0);
    check_at_end(tear_down, NULL);
}

static struct device_work work_of(uint32_t op, enum work_kind kind, enum priority priority,
                                  uint64_t cookie, uint32_t n_records)
{
    return (struct device_work){.cookie = cookie,
                                .issue_ns = now_ns(),
                                .code = op_codes[op],
                                .op = op,
                                .kind = kind,
                                .priority = priority,
                                .n_records = n_records};
}

static struct device_work map_work(uint32_t op, enum priority priority, uint64_t cookie,
                                   const void *in, void *out, uint32_t n_records)
{
    struct device_work work = work_of(op, WORK_MAP, priority, cookie, n_records);

    work.in[0].base = (void *)in;
    work.out[0].base = out;
    work.out[0].size = n_records * sizeof(uint32_t);
    return work;
}

static void issue(struct device_work work)
{
    CHECK_GT(device_backend.room(bench.device, work.priority), 0);
    device_backend.issue(bench.device, &work, 1);
}

/* Wait for n completions; they lie in bench.completions in the order in which they came. */
static void await_any(uint32_t n)
{
    struct failure failure;
    uint32_t n_got = 0;

    CHECK_LE(n, ARRAY_SIZE(bench.completions));
    while (n_got < n) {
        int polled =
            device_backend.poll(bench.device, &bench.completions[n_got], n - n_got, &failure);

        CHECK_GE(polled, 0);
        n_got += (uint32_t)polled;
        if (polled == 0) {
            device_backend.wait(bench.device, bench.doorbell[0]);
        }
    }
}

static void await(uint32_t n)
{
    await_any(n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ(bench.completions[i].result.status, STATUS_OK);
    }
}

/* Every thread waits in a gate of its own; returns once all do. */
static void close_gates(void)
{
    for (uint32_t i = 0; i < bench.n_threads; i++) {
        bench.gate_outs[i] = 0;
        issue(map_work(FAKE_GATE, PRIORITY_URGENT, 1000 + i, &bench.gates[i], &bench.gate_outs[i],
                       1));
    }
}

/* One thread goes on and does all that is issued; its gate's completion is the first. */
static void await_behind_one_gate(uint32_t n)
{
    open_gate(0);
    await(n + 1);
    CHECK_EQ(bench.completions[0].cookie, 1000);
    CHECK_EQ(bench.gate_outs[0], 1000);
}

static void test_probe(void)
{
    struct worker_caps caps;
    struct failure failure;

    memset(&caps, 0xa5, sizeof(caps));
    CHECK_EQ(device_backend.probe(&caps, &failure), 0);
    CHECK_STR(caps.backend, "cpu");
    CHECK_EQ(caps.n_devices, 1);
    CHECK_STR(caps.uuid, "");
    CHECK_GT(strlen(caps.name), 0);
    CHECK_GE(caps.n_threads, 1);
    CHECK_LE(caps.n_threads, sysconf(_SC_NPROCESSORS_CONF));
    CHECK_EQ(caps.bulk_chunks, 2 * caps.n_threads);
    CHECK_GE(caps.bulk_bytes, caps.bulk_chunks * caps.chunk_size);
    CHECK_GT(caps.memory, 64u << 20);
    CHECK_EQ(caps.numa, -1);
}

static void test_a_map_chunk(void)
{
    uint32_t in[1000] = {0}, out[1001];
    const struct fake_params params = {.add = 12345};
    struct device_work work = map_work(FAKE_AFFINE, PRIORITY_NORMAL, 77, in, out, 1000);
    const struct work_result *result = &bench.completions[0].result;

    set_up();
    memcpy(work.params, &params, sizeof(params));
    memset(out, 0xa5, sizeof(out));
    for (uint32_t i = 0; i < 1000; i++) {
        in[i] = (uint32_t)random_u64();
    }
    issue(work);
    await(1);
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK_EQ(out[i], in[i] + in[i] + in[i] + 12345u);
    }
    CHECK_EQ(out[1000], 0xa5a5a5a5u);
    CHECK_EQ(bench.completions[0].cookie, 77);
    CHECK_EQ(result->out_size[0], 4000);
    CHECK_EQ(result->out_size[1], 0);
    CHECK_EQ(result->issue_ns, work.issue_ns);
    CHECK_LE(result->issue_ns, result->start_ns);
    CHECK_LE(result->start_ns, result->end_ns);
    CHECK_GT(result->device_ns, 0);
    CHECK_EQ(result->in_ns, 0);
    CHECK_EQ(result->compute_ns, result->end_ns - result->start_ns);
    CHECK_EQ(result->out_ns, 0);
}

/* Issued bulk first and urgent last; run by one thread, they come urgent first. */
static void test_priorities(void)
{
    uint32_t in[30], out[30];

    set_up();
    close_gates();
    for (uint32_t i = 0; i < 30; i++) {
        in[i] = (uint32_t)random_u64();
        issue(map_work(FAKE_AFFINE, PRIORITY_BULK - i / 10, i, &in[i], &out[i], 1));
    }
    await_behind_one_gate(30);
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t expected = (2 - i / 10) * 10 + i % 10; /* cookies 20..29, 10..19, 0..9 */
        CHECK_EQ(bench.completions[1 + i].cookie, expected);
        CHECK_EQ(out[i], in[i] * 3);
    }
}

struct width {
    uint32_t least, most; /* chunks of its table */
};

static void check_widths(const uint32_t *outs, const struct width *expected, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t width = outs[i * FAKE_PARALLEL] & 0xffff;

        printf("# chunk %u ran beside %u others\n", i, width - 1);
        CHECK_GE(width, expected[i].least);
        CHECK_LE(width, expected[i].most);
    }
}

/*
 * Chunks of 3 records where 16 are wanted: six at once.  What is wide enough runs alone, or, once
 * it is known to be quick, with its neighbours; never beside another op, other parameters or
 * constants.
 */
static void test_narrow_chunks_run_together(void)
{
    static uint8_t in[N_MAX][FAKE_PARALLEL * FAKE_BLOCK];
    uint32_t outs[N_MAX * FAKE_PARALLEL];
    const struct width expected[] = {{6, 6}, {6, 6}, {6, 6}, {6, 6}, {6, 6}, {6, 6},
                                     {2, 5}, {2, 5}, {1, 5}, {2, 5}, {2, 5}, {1, 1},
                                     {1, 1}, {2, 2}, {2, 2}, {1, 1}, {2, 2}, {2, 2}};
    const struct fake_params other = {.add = 1};

    set_up();
    close_gates();
    for (uint32_t i = 0; i < ARRAY_SIZE(expected); i++) {
        struct device_work work = map_work(FAKE_WIDTH, PRIORITY_NORMAL, i, in[i],
                                           &outs[i * FAKE_PARALLEL], i == 8 ? FAKE_PARALLEL : 3);
        if (i == 11) { /* other parameters */
            memcpy(work.params, &other, sizeof(other));
        }
        if (i == 12) { /* another op behind this one */
            issue(work);
            work = map_work(FAKE_AFFINE, PRIORITY_NORMAL, 99, in[i], &outs[60 * FAKE_PARALLEL], 1);
        }
        if (i == 14) {
            work.tail_size = 5;
        }
        if (i > 14) { /* other constants */
            work.const_ids[0] = 1;
            work.const_ids[1] = i > 15 ? 3 : 2;
        }
        issue(work);
    }
    await_behind_one_gate(ARRAY_SIZE(expected) + 1);
    check_widths(outs, expected, ARRAY_SIZE(expected));
    CHECK_EQ(outs[13 * FAKE_PARALLEL + 2] >> 16, FAKE_BLOCK);
    CHECK_EQ(outs[14 * FAKE_PARALLEL + 1] >> 16, FAKE_BLOCK);
    CHECK_EQ(outs[14 * FAKE_PARALLEL + 2] >> 16, 5);
}

static struct device_work map_after(struct device_work work, uint64_t after)
{
    work.is_after = true;
    work.after = after;
    return work;
}

/*
 * A chain of five, each of whose works reads what the one before wrote and the first what a gate
 * writes, all of one op: none of them begins beside another.  What is after nothing, or after
 * something that is no more, passes them.
 */
static void test_work_after_other_work(void)
{
    uint32_t values[6], other_in[2], other_out[2], expected;

    set_up();
    close_gates();
    random_bytes(values, sizeof(values));
    random_bytes(other_in, sizeof(other_in));
    for (uint32_t i = 0; i < 5; i++) {
        issue(map_after(map_work(FAKE_AFFINE, PRIORITY_URGENT, i,
                                 i == 0 ? &bench.gate_outs[0] : &values[i - 1], &values[i], 1),
                        i == 0 ? 1000 : i - 1));
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct device_work work =
            map_work(FAKE_AFFINE, PRIORITY_URGENT, 10 + i, &other_in[i], &other_out[i], 1);

        issue(i == 0 ? work : map_after(work, 99));
    }
    if (bench.n_threads > 1) {
        open_gate(1);
        await(3);
        CHECK_EQ(bench.completions[0].cookie, 1001);
        CHECK_EQ(bench.completions[1].cookie, 10);
        CHECK_EQ(bench.completions[2].cookie, 11);
        open_gate(0);
        await(6);
    } else {
        open_gate(0);
        await(8);
    }
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(other_out[i], 3 * other_in[i]);
    }
    expected = 1000;
    for (uint32_t i = 0; i < 5; i++) {
        expected *= 3;
        CHECK_EQ(values[i], expected);
    }
}

/* All of the room is taken by those that wait for one another. */
static void test_all_room_after_one_another(void)
{
    uint32_t values[N_MAX * 4], n = 0, first = 1;

    set_up();
    close_gates();
    while (device_backend.room(bench.device, PRIORITY_NORMAL) > 0 && n < ARRAY_SIZE(values)) {
        const struct device_work work = map_work(FAKE_AFFINE, PRIORITY_NORMAL, n,
                                                 n == 0 ? &first : &values[n - 1], &values[n], 1);

        issue(n == 0 ? work : map_after(work, n - 1));
        n++;
    }
    for (uint32_t i = 0; i < bench.n_threads; i++) {
        open_gate(i);
    }
    await(n + bench.n_threads);
    for (uint32_t i = 0; i < n; i++) {
        first *= 3;
        CHECK_EQ(values[i], first);
    }
}

/* The second is after the first, which is after one that has ended: its place is the second's now.
 * Once each waited for the other, for ever. */
/* Of three completions. */
static uint32_t place_of(uint64_t cookie)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (bench.completions[i].cookie == cookie) {
            return i;
        }
    }
    CHECK_FAIL("no completion has the cookie %" PRIu64, cookie);
}

static void test_work_after_what_had_its_place(void)
{
    uint32_t values[3];

    set_up();
    random_bytes(values, sizeof(values));
    issue(map_work(FAKE_AFFINE, PRIORITY_NORMAL, 7, &values[0], &values[1], 1));
    await(1);
    close_gates();
    issue(map_after(map_work(FAKE_AFFINE, PRIORITY_NORMAL, 8, &values[0], &values[1], 1), 7));
    issue(map_after(
        map_work(FAKE_AFFINE, PRIORITY_NORMAL, 7 + WORK_ENTRIES, &values[1], &values[2], 1), 8));
    open_gate(0);
    await(3); /* the gate's among them: what is soon done need not wait for it */
    CHECK_LT(place_of(8), place_of(7 + WORK_ENTRIES));
    CHECK_EQ(values[2], 9 * values[0]);
}

/* LEAVES of two chunks, MERGE in two steps, FINISH: the same as in one go. */
static void test_reduce(void)
{
    uint32_t in[50] = {0};
    uint64_t out = 0x5a5a;
    struct fake_partial partials[13], fold[2];
    struct device_work work;

    set_up();
    for (uint32_t i = 0; i < 50; i++) {
        in[i] = (uint32_t)random_u64();
    }
    memset(partials, 0xa5, sizeof(partials));
    work = work_of(FAKE_CHAIN, WORK_LEAVES, PRIORITY_BULK, 0, 20);
    work.in[0].base = in;
    work.out[0].base = partials;
    issue(work);
    work = work_of(FAKE_CHAIN, WORK_LEAVES, PRIORITY_BULK, 1, 30);
    work.in[0].base = in + 20;
    work.out[0].base = partials + 5;
    issue(work);
    await(2);
    work = work_of(FAKE_CHAIN, WORK_MERGE, PRIORITY_BULK, 2, 5);
    work.in[1].base = partials;
    work.out[0].base = &fold[0];
    issue(work);
    await(1);
    work = work_of(FAKE_CHAIN, WORK_MERGE, PRIORITY_BULK, 3, 8);
    work.in[0].base = &fold[0];
    work.in[1].base = partials + 5;
    work.out[0].base = &fold[1];
    issue(work);
    await(1);
    work = work_of(FAKE_CHAIN, WORK_FINISH, PRIORITY_BULK, 4, 1);
    work.in[0].base = &fold[1];
    work.out[0].base = &out;
    work.out[0].size = sizeof(out);
    issue(work);
    await(1);
    CHECK_EQ(out, fake_chain(in, 50));
    CHECK_EQ(bench.completions[0].result.out_size[0], sizeof(out));
}

/* Room goes with each issue and comes back with poll(), not before; each priority has its own. */
static void test_room(void)
{
    uint32_t in[1024], out[1024];
    uint32_t room, n = 0;

    set_up();
    room = device_backend.room(bench.device, PRIORITY_BULK);
    CHECK_GE(room, 2 * bench.n_threads);
    CHECK_LE(room, ARRAY_SIZE(bench.completions) - bench.n_threads);
    close_gates();
    CHECK_EQ(device_backend.room(bench.device, PRIORITY_URGENT), room - bench.n_threads);
    while (device_backend.room(bench.device, PRIORITY_BULK) > 0) {
        issue(map_work(FAKE_AFFINE, PRIORITY_BULK, n, &in[n], &out[n], 1));
        n++;
    }
    CHECK_EQ(n, room);
    CHECK_EQ(device_backend.room(bench.device, PRIORITY_NORMAL), room);
    await_behind_one_gate(room);
    CHECK_EQ(device_backend.room(bench.device, PRIORITY_BULK), room);
}

/* Many small works from all priorities, polled in small bites: each comes back exactly once. */
static void test_many(void)
{
    static uint32_t in[N_MAX], out[N_MAX];
    static uint8_t n_seen[20000];
    uint32_t n_issued = 0, n_done = 0;
    struct failure failure;

    set_up();
    memset(n_seen, 0, sizeof(n_seen));
    while (n_done < ARRAY_SIZE(n_seen)) {
        enum priority priority = random_u64() % PRIORITY_COUNT;
        int n;

        while (n_issued < ARRAY_SIZE(n_seen) && device_backend.room(bench.device, priority) > 0) {
            uint32_t place = n_issued % N_MAX;
            issue(map_work(FAKE_AFFINE, priority, n_issued++, &in[place], &out[place], 0));
        }
        n = device_backend.poll(bench.device, bench.completions, 1 + random_u64() % 7, &failure);
        CHECK_GE(n, 0);
        for (int i = 0; i < n; i++) {
            CHECK_EQ(n_seen[bench.completions[i].cookie]++, 0);
        }
        n_done += (uint32_t)n;
        if (n == 0 && n_done < n_issued) {
            device_backend.wait(bench.device, bench.doorbell[0]);
        }
    }
    CHECK_EQ(device_backend.poll(bench.device, bench.completions, 1, &failure), 0);
}

static void test_the_doorbell_ends_a_wait(void)
{
    set_up();
    close_gates();
    channel_ring(bench.doorbell[1]);
    device_backend.wait(bench.device, bench.doorbell[0]);
    CHECK(channel_drain(bench.doorbell[0], NULL));
}

/* What has begun ends, what has not begun never does. */
static void test_close_drops_what_waits(void)
{
    static uint32_t in[N_MAX], out[N_MAX];

    set_up();
    close_gates();
    for (uint32_t i = 0; i < N_MAX / 2; i++) {
        issue(map_work(FAKE_AFFINE, PRIORITY_BULK, i, &in[i], &out[i], 1));
    }
}

/* ---- memory that is no more ----------------------------------------------------------------- */

/* A mapping whose pages are gone, as those of a hole where there are no more huge pages. */
static void *map_nothing(size_t size)
{
    int fd = memfd_create("nothing", MFD_CLOEXEC);
    void *base;

    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    CHECK_EQ(ftruncate(fd, 0), 0);
    close(fd);
    return base;
}

/* Who has lost its memory learns it; those beside it, in the same table too, get their results. */
static void test_memory_that_is_no_more(void)
{
    enum { N = 16 };
    static uint32_t in[N], out[N];
    uint32_t *nothing = map_nothing(4096);
    uint32_t without_in = (uint32_t)random_below(N / 2);
    uint32_t without_out = N / 2 + (uint32_t)random_below(N / 2);

    set_up();
    random_bytes(in, sizeof(in));
    memset(out, 0xa5, sizeof(out));
    close_gates();
    for (uint32_t i = 0; i < N; i++) {
        issue(map_work(FAKE_AFFINE, PRIORITY_NORMAL, i, i == without_in ? nothing : &in[i],
                       i == without_out ? nothing : &out[i], 1));
    }
    open_gate(0);
    await_any(N + 1);
    for (uint32_t i = 1; i < N + 1; i++) {
        const struct device_completion *completion = &bench.completions[i];
        uint64_t at = completion->cookie;

        if (at == without_in || at == without_out) {
            CHECK_EQ(completion->result.status, STATUS_RING);
            CHECK_HAS(completion->error.text, "freed");
        } else {
            CHECK_EQ(completion->result.status, STATUS_OK);
            CHECK_EQ(out[at], 3 * in[at]);
        }
    }
    munmap(nothing, 4096);
}

CHECK_MAIN(CHECK_TEST(test_probe), CHECK_TEST(test_a_map_chunk), CHECK_TEST(test_priorities),
           CHECK_TEST(test_narrow_chunks_run_together), CHECK_TEST(test_work_after_other_work),
           CHECK_TEST(test_all_room_after_one_another),
           CHECK_TEST(test_work_after_what_had_its_place), CHECK_TEST(test_reduce),
           CHECK_TEST(test_room), CHECK_TEST(test_many), CHECK_TEST(test_the_doorbell_ends_a_wait),
           CHECK_TEST(test_close_drops_what_waits), CHECK_TEST(test_memory_that_is_no_more))
