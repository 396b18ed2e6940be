/*
 * Rings in the hands of clients that mean harm, or do not look: nobody else gets an error, and the
 * daemon ends with as many descriptors and as much memory as before.
 */
#include "proto/channel.h"
#include "proto/status.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCK = 4096 };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

static void await_nothing_left(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "rings") == 0 && stat_of(wire, "ring_pool_used") == 0 &&
                 stat_of(wire, "jobs") == 0 && stat_of(wire, "chunks_in_flight") == 0);
}

/* ---- the queues ------------------------------------------------------------------------------ */

/* A process that writes anything anywhere in the queues, the indices most of all. */
static pid_t start_mutator(const struct ring_client *ring, uint64_t seed)
{
    volatile uint64_t *words = ring->shared;
    const size_t n_words = ring->shared_size / 8;
    const size_t interesting[] = {
        8, 16, ring->sq / 8, ring->cq / 8 + 8, ring->sq / 8 + 8, ring->sq / 8 + 10};
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t x = seed | 1, i = 0; i < UINT64_C(50000000); i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t at = x & 3 ? interesting[(x >> 8) % ARRAY_SIZE(interesting)] : (x >> 8) % n_words;

        words[at] = x & 4 ? words[at] + (x >> 60) : x * UINT64_C(0x2545f4914f6cdd1d);
        if (i % 64 == 0) {
            channel_ring(ring->doorbell_fd);
        }
    }
    _exit(0);
}

static void test_queues_full_of_nonsense(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *honest = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(honest, 2 * MIB);
    uint64_t job = ring_client_open_copy(honest, "");

    for (unsigned round = 0; round < 30; round++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        struct ring_client *hostile = ring_client_open(wire, MIB);
        uint64_t its_job = ring_client_open_copy(wire, ", window: 64");
        struct ring_desc desc = ring_client_copy(its_job, 0, MIB / 2, 16);

        ring_client_submit(hostile, &desc, 1);
        pid_t mutator = start_mutator(hostile, random_u64());
        ring_client_check_works(ring, job);
        usleep(random_below(20000));
        kill(mutator, SIGKILL);
        CHECK_EQ(waitpid(mutator, NULL, 0), mutator);
        wire_call(wire, "ping", "[]"); /* its connection lives, whatever became of the ring */
        ring_client_check_works(ring, job);
        wire_close(wire);
    }
    CHECK_GT(stat_of(honest, "rings_broken"), 0);
    ring_client_close(ring);
    wire_call(honest, "job.close", "[%lu]", job);
    wire_notification(honest, "job.done");
    await_nothing_left(honest);
}

/* A process that flips bits of any field of descriptors: so many for good before they are shown to
 * the daemon, and others, and back again, for as long as they are there.  The indices it leaves. */
struct flipper {
    uint32_t next;                /* the first entry that is in question */
    uint32_t n_wanted, n_flipped; /* for good */
    pid_t pid;
};

/* Of the words of a descriptor.  Two that are pointed at one place race there, which spoils it for
 * their client and nobody else; but ThreadSanitizer would tell of it, so there they are refused. */
#if defined(__SANITIZE_THREAD__)
static const uint64_t may_flip[8] = {
    [0] = 0xffffff00ffffffff,                           /* records: too many, if not 1 */
    [1] = UINT64_MAX,         [2] = 0xffffffffffffc000, /* in[0], out[0]: outside 1 MiB */
    [3] = UINT64_MAX,         [4] = 0xffffffffffffc000, [5] = UINT64_MAX,
    [6] = UINT64_MAX,         [7] = UINT64_MAX,
};
#else
static const uint64_t may_flip[8] = {[0 ... 7] = UINT64_MAX};
#endif

static void flip(struct flipper *flipper, uint64_t *entries, uint64_t x)
{
    uint32_t entry = (__atomic_load_n(&flipper->next, __ATOMIC_ACQUIRE) + x % 64) % RING_ENTRIES;
    unsigned which = (x >> 8) % 8;
    uint64_t *word = &entries[entry * 8 + which];
    uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
    uint64_t bits = x >> 63 ? UINT64_C(1) << (x >> 16) % 64 : x * UINT64_C(0x2545f4914f6cdd1d);
    bool is_for_good = flipper->n_flipped != __atomic_load_n(&flipper->n_wanted, __ATOMIC_ACQUIRE);

    __atomic_store_n(word, before ^ (bits & may_flip[which]), __ATOMIC_RELAXED);
    if (is_for_good) {
        __atomic_store_n(&flipper->n_flipped, flipper->n_flipped + 1, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(word, before, __ATOMIC_RELAXED);
    }
}

static void stop_flipper(void *arg)
{
    struct flipper *flipper = arg;

    kill(flipper->pid, SIGKILL);
    waitpid(flipper->pid, NULL, 0);
    munmap(flipper, sizeof(*flipper));
}

static struct flipper *start_flipper(const struct ring_client *ring)
{
    struct flipper *flipper =
        mmap(NULL, sizeof(*flipper), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = random_u64() | 1;

    CHECK(flipper != MAP_FAILED);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            flip(flipper, (void *)((uint8_t *)ring->shared + ring->sq + 64), random_next(&seed));
        }
    }
    flipper->pid = pid; /* by this process alone: they share it */
    check_at_end(stop_flipper, flipper);
    return flipper;
}

/* What it was asked for, is refused, or ended by what it said itself. */
static bool may_be(enum status status)
{
    const enum status all[] = {
        STATUS_OK,        STATUS_NOT_FOUND, STATUS_RANGE,    STATUS_TOO_BIG, STATUS_INVALID_PARAM,
        STATUS_NO_CREDIT, STATUS_SEQ,       STATUS_DEADLINE,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        if (all[i] == status) {
            return true;
        }
    }
    return false;
}

/* A job of 64 descriptors that change while they are taken; adds up those that were done. */
static void push_flipped(struct ring_client *ring, struct flipper *flipper, unsigned *n_done)
{
    enum { N = 64, N_FLIPS = 16 };
    uint64_t job = ring_client_open_copy(ring->wire, ", window: 64");

    for (uint32_t i = 0; i < N; i++) {
        struct ring_desc desc = ring_client_copy(job, i * BLOCK, MIB / 2 + i * BLOCK, 1);

        ring_submit(ring->queues, &desc);
    }
    __atomic_fetch_add(&flipper->n_wanted, N_FLIPS, __ATOMIC_RELEASE);
    while (__atomic_load_n(&flipper->n_flipped, __ATOMIC_ACQUIRE) != flipper->n_wanted) {
        sched_yield();
    }
    ring_client_submit(ring, NULL, 0); /* which shows them */
    for (uint32_t i = 0; i < N; i++) {
        enum status status = ring_client_reap(ring).status;

        CHECK(may_be(status));
        *n_done += status == STATUS_OK;
    }
    ring_client_is_empty(ring);
    __atomic_fetch_add(&flipper->next, N, __ATOMIC_RELEASE);
    wire_response(ring->wire, wire_send(ring->wire, "job.close", "[%lu]", job)); /* or it is over */
    CHECK_EQ(wire_number(wire_notification(ring->wire, "job.done"), "0"), job);
}

/* Each is copied once and then checked: what it says later counts nowhere, least of all in memory
 * that is not its client's. */
static void test_descriptors_that_change_while_they_are_taken(void)
{
    enum { ROUNDS = 200 };
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *honest = wire_connect(harness_socket(daemon));
    struct ring_client *hostile = ring_client_open(wire, MIB);
    struct ring_client *ring = ring_client_open(honest, 2 * MIB);
    uint64_t job = ring_client_open_copy(honest, "");
    struct flipper *flipper = start_flipper(hostile);
    unsigned n_done = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        push_flipped(hostile, flipper, &n_done);
        if (round % 8 == 0) {
            ring_client_check_works(ring, job);
        }
    }
    printf("# %u of %u were done\n", n_done, ROUNDS * 64);
    CHECK_GT(n_done, 0);
    CHECK_LT(n_done, ROUNDS * 64);
    CHECK_EQ(stat_of(honest, "rings_broken"), 0);
    CHECK_EQ(stat_of(honest, "worker_deaths"), 0);
    wire_check_works(wire);
}

static void test_a_broken_ring_says_why_and_fails_its_jobs(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 64 * MIB);
    uint64_t job = ring_client_open_copy(wire, ""), other = ring_client_open_copy(wire, "");
    struct ring_desc desc = ring_client_copy(job, 0, 32 * MIB, 32 * MIB / BLOCK);
    const msgpack_object *params;

    harness_pause(harness_worker(daemon));
    ring_client_submit(ring, &desc, 1);
    HARNESS_WAIT(stat_of(wire, "pushes_total") == 1);
    __atomic_store_n((uint32_t *)((uint8_t *)ring->shared + ring->sq), 1 << 20, __ATOMIC_SEQ_CST);
    channel_ring(ring->doorbell_fd);
    params = wire_notification(wire, "ring.closed");
    CHECK_EQ(wire_number(params, "0"), ring->id);
    CHECK_STR(wire_error(wire_find(params, "1.error")).name, "RING");
    kill(harness_worker(daemon), SIGCONT);
    params = wire_notification(wire, "job.done");
    CHECK_EQ(wire_number(params, "0"), job);
    CHECK_STR(wire_text(params, "1.state"), "failed");
    CHECK_STR(wire_error(wire_find(params, "1.error")).name, "RING");
    wire_refused(wire, "NOT_FOUND", "or it is closed", "ring.close", "[%lu]", ring->id);
    ring_client_check_works(ring_client_open(wire, MIB), other);
}

/* Its pushes have memory of the pool, which a descriptor must not take the place of. */
static void test_a_descriptor_for_a_job_without_rings(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    const msgpack_object *opened =
        wire_call(wire, "job.open", "['copy', {size: 4096}, {window: 4}]");
    uint64_t job = (uint64_t)wire_number(opened, "job");
    struct ring_desc desc = ring_client_copy(job, 0, MIB / 2, 2);
    uint8_t bytes[2 * BLOCK];

    random_bytes(bytes, sizeof(bytes));
    for (unsigned i = 0; i < 8; i++) { /* more than it has pushes */
        ring_client_submit(ring, &desc, 1);
        struct ring_completion completion = ring_client_reap(ring);
        CHECK_STR(status_name(completion.status), status_name(STATUS_INVALID_PARAM));
    }
    for (uint64_t seq = 0; seq < 8; seq++) {
        wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes, sizeof(bytes));
        CHECK_MEM(wire_output(wire_find(wire_notification(wire, "job.result"), "2"), sizeof(bytes)),
                  bytes, sizeof(bytes));
    }
    wire_call(wire, "job.close", "[%lu]", job);
    wire_notification(wire, "job.done");
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
}

static void test_more_than_the_entries_at_once(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);
    struct ring_desc *places = (void *)((uint8_t *)ring->shared + ring->sq + 64);

    for (uint32_t i = 0; i < RING_ENTRIES; i++) { /* to no job, so each is answered at once */
        places[i] = ring_client_copy(0, 0, MIB / 2, 1);
    }
    for (uint32_t n = RING_ENTRIES; n <= 2 * RING_ENTRIES; n += RING_ENTRIES) { /* never reaped */
        __atomic_store_n((uint32_t *)((uint8_t *)ring->shared + ring->sq), n, __ATOMIC_SEQ_CST);
        channel_ring(ring->doorbell_fd);
        HARNESS_WAIT(stat_of(wire, "errors_total") >= RING_ENTRIES);
    }
    CHECK_HAS(wire_error(wire_find(wire_notification(wire, "ring.closed"), "1.error")).message,
              "reap first");
    wire_check_works(wire);
}

static void ring_for_nothing(const struct ring_client *ring, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        channel_ring(ring->doorbell_fd);
    }
}

/* A wake costs more than a packet, so the daemon's work is bounded by counting wakes. */
static void test_a_storm_of_doorbells(void)
{
    enum { N = 1000000, ROUNDS = 50, IDLE_WAKES = 64, QUIET_MS = 5 }; /* as daemon/ring_link.c */
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *honest = wire_connect(harness_socket(daemon));
    struct ring_client *stormy = ring_client_open(wire, MIB);
    struct ring_client *ring = ring_client_open(honest, 2 * MIB);
    uint64_t job = ring_client_open_copy(honest, ""), start_ns = now_ns();
    uint64_t wakes = stat_of(honest, "ring_wakes");
    unsigned n_honest = 0;
    pid_t storm = fork();

    if (storm == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ring_for_nothing(stormy, N);
        _exit(0);
    }
    while (n_honest < ROUNDS || waitpid(storm, NULL, WNOHANG) == 0) {
        ring_client_check_works(ring, job);
        n_honest++;
    }
    wakes = stat_of(honest, "ring_wakes") - wakes;
    CHECK_LE(wakes, n_honest + IDLE_WAKES + 1 + 2 * (now_ns() - start_ns) / (QUIET_MS * 1000000));
    ring_client_is_empty(stormy);
    ring_client_check_works(
        stormy, ring_client_open_copy(wire, "")); /* it has hurt nobody, itself included */
}

/* The daemon does not listen all the time to a doorbell that rings for nothing. */
static void test_a_ring_that_rang_for_nothing_works_and_ends(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = ring_client_open_copy(wire, "");

    for (unsigned i = 0; i < 3; i++) {
        struct ring_client *ring = ring_client_open(wire, MIB);
        uint64_t wakes = stat_of(wire, "ring_wakes");

        while (stat_of(wire, "ring_wakes") < wakes + 70) {
            ring_for_nothing(ring, 1);
        }
        if (i == 0) {
            ring_client_check_works(ring, job);
            ring_client_check_works(ring, job);
            ring_client_close(ring);
        } else if (i == 1) {
            ring_client_close(ring);
        } else {
            shutdown(ring->doorbell_fd, SHUT_RDWR);
            CHECK_EQ(wire_number(wire_notification(wire, "ring.closed"), "0"), ring->id);
        }
    }
    CHECK_EQ(stat_of(wire, "rings"), 0);
}

static void test_a_doorbell_that_is_closed(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, MIB);

    shutdown(ring->doorbell_fd, SHUT_RDWR);
    CHECK_HAS(wire_error(wire_find(wire_notification(wire, "ring.closed"), "1.error")).message,
              "doorbell");
    wire_check_works(wire);
}

/* ---- the data -------------------------------------------------------------------------------- */

/*
 * Pages go while chunks are read from and written to them.  A GPU keeps those it has registered, so
 * the ring is spoiled: for its connection, and for no other of the same user.
 */
static void test_holes_under_a_running_job(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *honest = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 32 * MIB);
    uint64_t job = ring_client_open_copy(wire, ", window: 4");

    for (unsigned round = 0; round < 10; round++) {
        struct ring_desc desc = ring_client_copy(job, 0, 16 * MIB, 16 * MIB / BLOCK);

        random_bytes(ring->data, 16 * MIB);
        ring_client_submit(ring, &desc, 1);
        for (unsigned i = 0; i < 200; i++) {
            off_t at = (off_t)random_below(32 * MIB / BLOCK) * BLOCK;

            CHECK_EQ(fallocate(ring->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
                               16 * BLOCK),
                     0);
            madvise(ring->data + random_below(31 * MIB / BLOCK) * BLOCK, BLOCK, MADV_REMOVE);
        }
        struct ring_completion completion = ring_client_reap(ring);
        CHECK_STR(status_name(completion.status), status_name(STATUS_OK));
    }
    ring_client_close(ring);
    ring_client_check_works(ring_client_open(honest, 32 * MIB), ring_client_open_copy(honest, ""));
    CHECK_EQ(stat_of(wire, "worker_deaths"), 0);
}

/* The client has the data no more: neither mapped nor, with its descriptor, at all. */
static void let_go_of_data(struct ring_client *ring)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHECK_EQ(
        mmap(ring->data, ring->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        ring->data);
    CHECK_EQ(dup3(nothing, ring->data_fd, O_CLOEXEC), ring->data_fd);
    close(nothing);
}

/* It tries to cut off what the devices read and write, and then it is gone from the client. */
static void test_cut_and_unmapped_under_a_running_job(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 32 * MIB);
    uint64_t job = ring_client_open_copy(wire, ", window: 4");
    int spare_fd = fcntl(ring->data_fd, F_DUPFD_CLOEXEC, 0);
    uint8_t *want = random_new(16 * MIB);

    memcpy(ring->data, want, 16 * MIB);
    harness_pause(harness_worker(daemon));
    for (uint32_t i = 0; i < 4; i++) {
        struct ring_desc desc =
            ring_client_copy(job, i * 4 * MIB, (16 + i * 4) * MIB, 4 * MIB / BLOCK);

        ring_client_submit(ring, &desc, 1);
    }
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") > 0);
    kill(harness_worker(daemon), SIGCONT);
    CHECK_LT(ftruncate(ring->data_fd, BLOCK), 0);
    CHECK_EQ(errno, EPERM);
    let_go_of_data(ring);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_STR(status_name(ring_client_reap(ring).status), status_name(STATUS_OK));
    }
    uint8_t *out = mmap(NULL, 16 * MIB, PROT_READ, MAP_SHARED, spare_fd, 16 * MIB);
    CHECK(out != MAP_FAILED);
    CHECK_MEM(out, want, 16 * MIB);
    munmap(out, 16 * MIB);
    close(spare_fd);
    ring_client_close(ring); /* nobody has it but the daemon and its workers */
    CHECK_EQ(stat_of(wire, "worker_deaths"), 0);
    ring_client_check_works(ring_client_open(wire, 32 * MIB), job);
}

/* Inputs that change all the time, of an op that follows what they say. */
static void test_ends_that_change_while_they_are_read(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring = ring_client_open(wire, 4 * MIB);
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['minhash', {permutations: 16}, {inline: false}]"), "job");
    enum { N = 1000, TEXT = 512 << 10 };
    uint32_t *ends = (void *)ring->data;
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t x = random_u64() | 1, i = 0; i < UINT64_C(2000000000); i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            __atomic_store_n(&ends[x % N], (uint32_t)(x >> 32), __ATOMIC_RELAXED);
        }
        _exit(0);
    }
    random_bytes(ring->data + MIB, TEXT);
    for (unsigned round = 0; round < 30; round++) {
        struct ring_desc desc = ring_client_copy(job, 0, 3 * MIB, N);

        desc.in[1] = MIB / RING_ALIGN;
        desc.varying_size = TEXT;
        ring_client_submit(ring, &desc, 1);
        struct ring_completion completion = ring_client_reap(ring);
        CHECK_STR(status_name(completion.status), status_name(STATUS_OK));
    }
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(stat_of(wire, "worker_deaths"), 0);
}

/* Descriptors on their way keep queues alive that no share counts, and stand in everybody's way. */
static void test_replies_with_descriptors_that_nobody_reads(void)
{
    enum { N = 100 };
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    struct ring_client *first = ring_client_open(wire, MIB); /* so that its memory is at hand */
    uint32_t opens[N];
    unsigned n_opened = 0;

    ring_client_close(first);
    for (uint64_t i = 0; i < N; i++) { /* numbers of rings go up by one */
        msgpack_sbuffer both;

        msgpack_sbuffer_init(&both);
        opens[i] = wire_pack(wire, &both, "ring.open", "[1048576]");
        wire_pack(wire, &both, "ring.close", "[%lu]", first->id + 1 + i);
        CHECK_EQ(send(wire_fd(wire), both.data, both.size, MSG_NOSIGNAL), both.size);
        msgpack_sbuffer_destroy(&both);
        wire_call(other, "ping", "[]");
    }
    HARNESS_WAIT(stat_of(other, "rings") == 0);
    n_opened = (unsigned)stat_of(other, "rings_total") - 1;
    CHECK_LE(n_opened, 16);
    CHECK_GT(n_opened, 0);
    for (uint64_t i = 0; i < N; i++) {
        const msgpack_object *response = wire_response(wire, opens[i]);

        if (i < n_opened) {
            CHECK_EQ(wire_number(response, "3.ring"), first->id + 1 + i);
            for (unsigned k = 0; k < 3; k++) {
                close(wire_take_fd(wire));
            }
        } else {
            CHECK_STR(wire_error(wire_find(response, "2")).name, "BUSY");
        }
    }
    ring_client_open(wire, MIB); /* it has read now */
}

/* ---- clients that go ------------------------------------------------------------------------- */

/* Killed at any moment between connecting and reaping. */
static void test_clients_that_are_killed(void)
{
    struct harness *daemon = harness_start("--log-level", "warning");
    struct wire *honest = wire_connect(harness_socket(daemon));

    for (unsigned round = 0; round < 60; round++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            struct wire *wire = wire_connect(harness_socket(daemon));
            struct ring_client *ring = ring_client_open(wire, 8 * MIB);
            uint64_t job = ring_client_open_copy(wire, ", window: 4");

            for (;;) {
                struct ring_desc desc = ring_client_copy(job, 0, 4 * MIB, 4 * MIB / BLOCK);

                ring_client_submit(ring, &desc, 1);
                ring_client_reap(ring);
            }
        }
        usleep(random_below(30000));
        kill(pid, SIGKILL);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
    }
    await_nothing_left(honest);
    wire_check_works(honest);
}

CHECK_MAIN(CHECK_TEST(test_queues_full_of_nonsense),
           CHECK_TEST(test_descriptors_that_change_while_they_are_taken),
           CHECK_TEST(test_a_broken_ring_says_why_and_fails_its_jobs),
           CHECK_TEST(test_a_descriptor_for_a_job_without_rings),
           CHECK_TEST(test_more_than_the_entries_at_once), CHECK_TEST(test_a_storm_of_doorbells),
           CHECK_TEST(test_a_ring_that_rang_for_nothing_works_and_ends),
           CHECK_TEST(test_a_doorbell_that_is_closed), CHECK_TEST(test_holes_under_a_running_job),
           CHECK_TEST(test_cut_and_unmapped_under_a_running_job),
           CHECK_TEST(test_ends_that_change_while_they_are_read),
           CHECK_TEST(test_replies_with_descriptors_that_nobody_reads),
           CHECK_TEST(test_clients_that_are_killed))
