/*
 * A worker that writes nonsense where it tells the front end what it has done: the done queue and
 * the table of what is in flight.  It is not believed any more, ended, and replaced; what it had is
 * answered, once, and everybody else goes on.
 *
 * The worker is a real one.  What it would write is written by the test, into the daemon's memory.
 */
#include "proto/status.h"
#include "proto/util.h"
#include "proto/worker_abi.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIZE = 4096, N_BULK = 64 };

/* proto/queue.c: lines, then the work queues, each a line, its entries, results, errors and rows.
 */
enum {
    LINE = 64,
    RESULTS = LINE + WORK_ENTRIES * sizeof(struct work_entry),
    WORK = LINE + WORK_ENTRIES * (sizeof(struct work_entry) + sizeof(struct work_result) +
                                  sizeof(struct work_error) + WORK_ROWS * sizeof(struct work_row)),
    DONE_TAIL = 3 * LINE + PRIORITY_COUNT * WORK,
    DONE = DONE_TAIL + 2 * LINE,
};

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* ---- the queues of the worker that there is now -----------------------------------------------
 */

static struct poked {
    uint8_t *base;
    size_t size;
} poked;

static void unmap(void *arg)
{
    (void)arg;
    if (poked.base != NULL) {
        munmap(poked.base, poked.size);
    }
    poked.base = NULL;
}

static int open_queues(const struct harness *daemon)
{
    char path[64], target[64];

    for (unsigned fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)harness_pid(daemon), fd);
        ssize_t size = readlink(path, target, sizeof(target) - 1);

        target[MAX(size, 0)] = '\0';
        if (strstr(target, "gpupipe-queues") != NULL) {
            return open(path, O_RDWR | O_CLOEXEC);
        }
    }
    return -1;
}

static void map_queues(const struct harness *daemon)
{
    struct stat stat;
    int fd = open_queues(daemon);

    if (fd < 0 && errno == EACCES) {
        CHECK_SKIP("the daemon's memory is not this user's to see");
    }
    CHECK_GE(fd, 0);
    CHECK_EQ(fstat(fd, &stat), 0);
    unmap(NULL);
    poked.size = (size_t)stat.st_size;
    poked.base = mmap(NULL, poked.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(poked.base != MAP_FAILED);
    close(fd);
}

/* What the worker would announce next. */
static void announce(struct done_entry entry, uint32_t n)
{
    uint32_t *tail = (uint32_t *)(poked.base + DONE_TAIL);

    memcpy(poked.base + DONE + *tail % DONE_ENTRIES * sizeof(entry), &entry, sizeof(entry));
    __atomic_store_n(tail, *tail + n, __ATOMIC_RELEASE);
}

static struct work_result *result_slot(enum priority priority, uint32_t index)
{
    return (struct work_result *)(poked.base + 3 * LINE + priority * WORK + RESULTS) +
           index % WORK_ENTRIES;
}

/* ---- stories --------------------------------------------------------------------------------- */

static struct harness *daemon_;
static struct wire *wire;

static void start(void)
{
    daemon_ = harness_start("--log-level", "warning");
    wire = wire_connect(harness_socket(daemon_));
    check_at_end(unmap, NULL);
    map_queues(daemon_);
}

/* A run that the worker, which stands still, has not begun.  It is the first entry: index 0. */
static uint32_t send_run(void)
{
    uint32_t run;

    harness_pause(harness_worker(daemon_));
    run = wire_send(wire, "run", "['copy', {}, {}, [%b]]", random_new(SIZE), (size_t)SIZE);
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 1);
    return run;
}

static void await_next_worker(pid_t worker)
{
    harness_await_worker(daemon_, worker);
    wire_check_works(wire);
    CHECK_EQ(stat_of(wire, "worker_deaths"), 1);
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 0 && stat_of(wire, "pool_used") == 0);
}

static void test_impossible_announcements(void)
{
    static const struct {
        struct done_entry entry;
        uint32_t n;
    } rows[] = {
        {{.queue = PRIORITY_COUNT, .first = 0, .count = 1}, 1},
        {{.queue = UINT32_MAX, .first = 0, .count = 1}, 1},
        {{.queue = PRIORITY_URGENT, .first = 0, .count = 1}, 1},
        {{.queue = PRIORITY_NORMAL, .first = 1, .count = 1}, 1},
        {{.queue = PRIORITY_NORMAL, .first = 0, .count = 2}, 1},
        {{.queue = PRIORITY_NORMAL, .first = 0, .count = UINT32_MAX}, 1},
        {{.queue = PRIORITY_NORMAL, .first = WORK_ENTRIES, .count = 1}, 1},
        {{.queue = PRIORITY_NORMAL, .first = 0, .count = 1}, DONE_ENTRIES + 1},
        {{.queue = PRIORITY_NORMAL, .first = 0, .count = 1}, UINT32_MAX},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        printf("# announcement %u\n", i);
        start();
        pid_t worker = harness_worker(daemon_);
        uint32_t run = send_run();
        announce(rows[i].entry, rows[i].n);
        wire_error_is(wire, run, "DEVICE_LOST", "it broke the rules of its queue");
        await_next_worker(worker);
        wire_close(wire);
    }
}

/*
 * It puts right what it said, before it is gone: nothing of what it says counts any more.  Its exit
 * cannot be seen while it is traced.
 */
static void test_announcements_that_come_too_late(void)
{
    start();
    pid_t worker = harness_worker(daemon_);
    uint32_t run = send_run();

    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) < 0) {
        CHECK_SKIP("processes cannot be traced here: %s", strerror(errno));
    }
    announce((struct done_entry){.queue = PRIORITY_NORMAL, .first = 7, .count = 1}, 1);
    HARNESS_WAIT(stat_of(wire, "worker_deaths") == 1);
    *result_slot(PRIORITY_NORMAL, 0) =
        (struct work_result){.state = RESULT_DONE, .out_size = {SIZE}};
    memcpy(poked.base + DONE, &(struct done_entry){.queue = PRIORITY_NORMAL, .count = 1},
           sizeof(struct done_entry));
    CHECK_EQ(waitpid(worker, NULL, 0), worker); /* as its tracer */
    wire_error_is(wire, run, "DEVICE_LOST", "it broke the rules of its queue");
    await_next_worker(worker);
}

/* Announced as it should be; but what became of it is nonsense, or was never said. */
static void test_results_that_cannot_be(void)
{
    static const struct work_result rows[] = {
        {.state = RESULT_EMPTY},
        {.state = RESULT_ISSUED, .out_size = {SIZE}},
        {.state = RESULT_DONE + 1, .out_size = {SIZE}},
        {.state = UINT32_MAX, .status = STATUS_OK, .out_size = {SIZE}},
        {.state = RESULT_DONE, .status = STATUS_COUNT, .out_size = {SIZE}},
        {.state = RESULT_DONE, .status = -1, .out_size = {SIZE}},
        {.state = RESULT_DONE, .status = INT32_MIN, .out_size = {SIZE}},
        {.state = RESULT_DONE, .status = STATUS_OK, .out_size = {SIZE - 1}},
        {.state = RESULT_DONE, .status = STATUS_OK, .out_size = {UINT32_MAX}},
    };
    char where[64];

    snprintf(where, sizeof(where), "op copy on device %s0", harness_backend());
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        printf("# result %u\n", i);
        start();
        pid_t worker = harness_worker(daemon_);
        uint32_t run = send_run();
        *result_slot(PRIORITY_NORMAL, 0) = rows[i];
        announce((struct done_entry){.queue = PRIORITY_NORMAL, .first = 0, .count = 1}, 1);
        wire_error_is(wire, run, "INTERNAL", where);
        kill(worker, SIGCONT); /* it does the work, and is the second to say so */
        kill(worker, SIGKILL);
        await_next_worker(worker);
        wire_close(wire);
    }
}

/*
 * One of many pushes in no order fails, of those that the worker has: those that wait behind it
 * are answered at once, though nothing more becomes of what it has.
 */
static void test_a_push_that_fails_takes_those_that_wait_with_it(void)
{
    struct ring_completion completion;
    bool has_answer[N_BULK] = {false};

    start();
    pid_t worker = harness_worker(daemon_);
    struct ring_client *ring = ring_client_open(wire, MIB);
    uint64_t job = ring_client_open_copy(wire, ", window: 64, priority: 'bulk', ordered: false");
    ring_client_check_works(ring, job); /* until its pace is known it has one chunk there */
    uint64_t n_chunks = stat_of(wire, "chunks_total"), n_pushes = stat_of(wire, "pushes_total");
    harness_pause(worker);
    for (uint32_t i = 0; i < N_BULK; i++) {
        struct ring_desc desc = ring_client_copy(job, 0, MIB / 2, 1);

        desc.tag = i;
        desc.deadline_ns = UINT64_C(3600000000000); /* of its own: it shares no chunk */
        ring_client_submit(ring, &desc, 1);
    }
    HARNESS_WAIT(stat_of(wire, "pushes_total") == n_pushes + N_BULK);
    uint64_t n_at_worker = stat_of(wire, "chunks_in_flight");
    CHECK_GT(n_at_worker, 1);
    const struct done_entry done = {
        .queue = PRIORITY_BULK, .first = (uint32_t)n_chunks + 1, .count = 1};
    *result_slot(PRIORITY_BULK, done.first) =
        (struct work_result){.state = RESULT_DONE, .status = STATUS_COUNT};
    announce(done, 1);
    for (uint64_t i = n_at_worker - 1; i < N_BULK; i++) {
        completion = ring_client_reap(ring);
        CHECK(completion.tag == 1 || completion.tag >= n_at_worker);
        CHECK_EQ(completion.status, completion.tag == 1 ? STATUS_INTERNAL : STATUS_CANCELLED);
        CHECK(!has_answer[completion.tag]);
        has_answer[completion.tag] = true;
    }
    ring_client_is_empty(ring);
    kill(worker, SIGKILL);
    for (uint64_t i = 1; i < n_at_worker; i++) {
        completion = ring_client_reap(ring);
        CHECK_LT(completion.tag, n_at_worker);
        CHECK(!has_answer[completion.tag]);
        has_answer[completion.tag] = true;
    }
    CHECK_STR(wire_text(wire_notification(wire, "job.done"), "1.state"), "failed");
    ring_client_is_empty(ring);
}

/* Random words for a while; then the worker ends, as it may wait for what was overwritten. */
static pid_t start_mutator(pid_t worker, uint64_t seed)
{
    uint64_t *words = (uint64_t *)poked.base;
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t state = seed | 1, n = random_next(&state) % 3000000; n > 0; n--) {
        uint64_t x = random_next(&state);
        size_t begin = (x & 3) == 0 ? LINE / 8 : DONE_TAIL / 8; /* what announces most of all */

        words[begin + (x >> 8) % (poked.size / 8 - begin)] = (x & 4) != 0 ? x >> 58 : x;
    }
    kill(worker, SIGKILL);
    _exit(0);
}

/* Whatever it says of them: pushes of jobs with data inline and in a ring are answered once. */
static void push_some(struct ring_client *ring)
{
    const uint8_t *bytes = random_new(SIZE);
    uint64_t job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['copy', {size: 64}, {window: 8}]"), "job");
    uint64_t ring_job = ring_client_open_copy(wire, ", window: 8");
    struct ring_desc desc = ring_client_copy(ring_job, 0, MIB / 2, 1);

    for (uint64_t seq = 0; seq < 8; seq++) {
        wire_notify(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, bytes, (size_t)SIZE);
        desc.tag = seq;
        ring_client_submit(ring, &desc, 1);
    }
    for (uint64_t seq = 0; seq < 8; seq++) {
        CHECK_EQ(ring_client_reap(ring).tag, seq);
    }
    ring_client_is_empty(ring);
    for (unsigned n_done = 0; n_done < 2; n_done++) {
        uint32_t close = wire_send(wire, "job.close", "[%lu]", n_done == 0 ? job : ring_job);

        wire_response(wire, close); /* it may have failed and ended */
        wire_notification(wire, "job.done");
    }
}

static void test_nonsense_all_over_the_queues(void)
{
    harness_deadline(240);
    start();
    struct ring_client *ring = ring_client_open(wire, MIB);

    for (unsigned round = 0; round < 20; round++) {
        pid_t worker = harness_worker(daemon_);

        map_queues(daemon_);
        pid_t mutator = start_mutator(worker, random_u64());
        push_some(ring);
        CHECK_EQ(waitpid(mutator, NULL, 0), mutator);
        harness_await_worker(daemon_, worker);
        wire_check_works(wire);
    }
    ring_client_check_works(ring, ring_client_open_copy(wire, ""));
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 0 && stat_of(wire, "pool_used") == 0);
}

CHECK_MAIN(CHECK_TEST(test_impossible_announcements),
           CHECK_TEST(test_announcements_that_come_too_late),
           CHECK_TEST(test_results_that_cannot_be),
           CHECK_TEST(test_a_push_that_fails_takes_those_that_wait_with_it),
           CHECK_TEST(test_nonsense_all_over_the_queues))
