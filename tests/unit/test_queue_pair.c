/*
 * Both sides of the queues at once, with real doorbells, as threads and as processes; and the sleep
 * protocol where it is narrowest.
 */
#include "proto/channel.h"
#include "proto/queue.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#define BATCH       32
#define PATIENCE_MS 20000 /* a lost wake-up shows as this much silence */

static struct work_entry random_entry(uint64_t *state)
{
    struct work_entry entry;
    uint64_t words[sizeof(entry) / sizeof(uint64_t)];

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        words[i] = random_next(state);
    }
    memcpy(&entry, words, sizeof(entry));
    return entry;
}

/* Something that depends on every word of an entry. */
static uint64_t fingerprint(const struct work_entry *entry)
{
    uint64_t words[sizeof(*entry) / sizeof(uint64_t)], sum = 1;

    memcpy(words, entry, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return sum;
}

static void destroy(void *queue)
{
    queue_destroy(queue);
}

static void make_pair(uint32_t first_index, struct queue **ret_front, struct queue **ret_worker)
{
    CHECK_EQ(queue_create_at(7, first_index, ret_front), 0);
    check_at_end(destroy, *ret_front);
    CHECK_EQ(queue_attach(queue_fd(*ret_front), ret_worker), 0);
    check_at_end(destroy, *ret_worker);
}

struct side {
    struct queue *queue;
    int doorbell_fd;
    uint32_t n_total;
    uint32_t window; /* entries that the front end has outstanding at most */
    uint64_t seed;
    bool has_failed; /* of the side that may not longjmp */
};

/* False: nobody rang. */
static bool wait_for_ring(int doorbell_fd)
{
    struct pollfd pollfd = {.fd = doorbell_fd, .events = POLLIN};
    bool has_rung = poll(&pollfd, 1, PATIENCE_MS) > 0;

    channel_drain(doorbell_fd, NULL);
    return has_rung;
}

/* Take, answer in random order, announce one by one or in ranges; until n_total are answered. */
static void *be_worker(void *arg)
{
    struct side *side = arg;
    struct work_entry entries[BATCH];
    uint32_t indices[BATCH];
    uint32_t n_answered = 0;

    while (n_answered < side->n_total && !side->has_failed) {
        uint32_t n_taken = 0;

        for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
            uint32_t max = 1 + (uint32_t)(random_next(&side->seed) % BATCH);
            int n = queue_work_take(side->queue, priority, entries, indices, max);
            bool is_backwards = random_next(&side->seed) % 2;

            if (n < 0) {
                side->has_failed = true;
                return NULL;
            }
            for (int i = 0; i < n; i++) {
                int at = is_backwards ? n - 1 - i : i;
                struct work_result result = {.compute_ns = fingerprint(&entries[at])};
                struct done_entry done = {.queue = priority, .first = indices[at], .count = 1};

                queue_result_issued(side->queue, priority, indices[at], 1);
                queue_result_done(side->queue, priority, indices[at], &result);
                side->has_failed |= queue_done_put(side->queue, &done) < 0;
            }
            if (n > 0 && queue_done_publish(side->queue)) {
                channel_ring(side->doorbell_fd);
            }
            n_taken += (uint32_t)n;
        }
        n_answered += n_taken;
        if (n_taken == 0) {
            side->has_failed |= queue_work_sleep(side->queue) && !wait_for_ring(side->doorbell_fd);
            queue_work_awake(side->queue);
        }
    }
    return NULL;
}

static uint32_t place_some(struct side *side, uint32_t max)
{
    enum priority priority = random_next(&side->seed) % PRIORITY_COUNT;
    uint32_t n = (uint32_t)(random_next(&side->seed) % (2 * BATCH));
    uint32_t n_placed = 0, index;

    while (n_placed < MIN(n, max)) {
        struct work_entry entry = random_entry(&side->seed);

        if (queue_work_put(side->queue, priority, &entry, &index) < 0) {
            break;
        }
        n_placed++;
    }
    if (queue_work_publish(side->queue, priority)) {
        channel_ring(side->doorbell_fd);
    }
    return n_placed;
}

static uint32_t reap_some(struct side *side)
{
    struct done_entry done[BATCH];
    struct work_entry entry;
    struct work_result result;
    uint32_t n_reaped = 0;
    int n = queue_done_take(side->queue, done, BATCH);

    CHECK_GE(n, 0);
    for (int i = 0; i < n; i++) {
        for (uint32_t k = 0; k < done[i].count; k++, n_reaped++) {
            queue_work_read(side->queue, done[i].queue, done[i].first + k, &entry, &result);
            CHECK_EQ(result.state, RESULT_DONE);
            CHECK_EQ(result.compute_ns, fingerprint(&entry));
            queue_work_release(side->queue, done[i].queue, done[i].first + k);
        }
    }
    return n_reaped;
}

static void be_front_end(struct side *side)
{
    uint32_t n_placed = 0, n_reaped = 0;

    while (n_reaped < side->n_total) {
        uint32_t n_room = side->window - (n_placed - n_reaped);
        uint32_t n_new = place_some(side, MIN(n_room, side->n_total - n_placed));
        uint32_t n_done = reap_some(side);

        n_placed += n_new;
        n_reaped += n_done;
        if (n_done == 0 && n_placed > n_reaped) {
            if (queue_done_sleep(side->queue)) {
                CHECK(wait_for_ring(side->doorbell_fd));
            }
            queue_done_awake(side->queue);
        }
    }
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        CHECK_EQ(queue_work_in_flight(side->queue, priority), 0);
    }
}

static void make_sides(uint32_t n_total, uint32_t window, struct side *ret_front,
                       struct side *ret_worker)
{
    int fds[2];

    make_pair(UINT32_MAX - 1000, &ret_front->queue, &ret_worker->queue);
    CHECK_EQ(channel_pair(true, fds), 0);
    ret_front->doorbell_fd = fds[0];
    ret_worker->doorbell_fd = fds[1];
    ret_front->n_total = ret_worker->n_total = n_total;
    ret_front->window = window;
    ret_front->seed = random_u64() | 1;
    ret_worker->seed = random_u64() | 1;
}

static void run_two_threads(uint32_t n_total, uint32_t window)
{
    struct side front = {0}, worker = {0};
    pthread_t thread;

    make_sides(n_total, window, &front, &worker);
    CHECK_EQ(pthread_create(&thread, NULL, be_worker, &worker), 0);
    be_front_end(&front);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(!worker.has_failed);
    close(front.doorbell_fd);
    close(worker.doorbell_fd);
}

static void test_two_threads(void)
{
    run_two_threads(1000000, UINT32_MAX);
}

/* One entry at a time: each side goes to sleep just when the other publishes. */
static void test_two_threads_in_lockstep(void)
{
    run_two_threads(50000, 1);
}

/*
 * A publisher and a sleeper at the same moment, again and again: the sleeper stays awake or the
 * publisher rings, or both; never neither.  Without a full fence in between this fails on x86 too.
 */
#define N_MEETINGS 100000u

static struct {
    struct queue *front, *worker;
    uint32_t n_at_barrier;
    bool has_rung[N_MEETINGS], has_slept[N_MEETINGS];
} meeting;

/* Both sides leave their nth barrier at once, but for a delay that sweeps over all small shifts. */
static void meet(uint32_t n, uint32_t delay)
{
    __atomic_add_fetch(&meeting.n_at_barrier, 1, __ATOMIC_SEQ_CST);
    for (uint32_t i = 1; __atomic_load_n(&meeting.n_at_barrier, __ATOMIC_SEQ_CST) < 2 * n; i++) {
        if (i % 1000 == 0) {
            sched_yield();
        }
    }
    for (volatile uint32_t i = 0; i < delay; i++) {
        continue;
    }
}

/* Onto the nth CPU of those that we may use; the threads would take turns on a single one. */
static void pin(const cpu_set_t *cpus, int n)
{
    cpu_set_t one;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, cpus) && n-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        }
    }
}

static void *sleep_at_each_meeting(void *arg)
{
    struct work_entry entry;
    uint32_t index;

    pin(arg, 1);
    for (uint32_t i = 0; i < N_MEETINGS; i++) {
        meet(2 * i + 1, i / 100 % 100);
        meeting.has_slept[i] = queue_work_sleep(meeting.worker);
        meet(2 * i + 2, 0);
        queue_work_awake(meeting.worker);
        queue_work_take(meeting.worker, PRIORITY_NORMAL, &entry, &index, 1);
    }
    return NULL;
}

static void test_sleep_meets_publish(void)
{
    struct work_entry entry = {0};
    pthread_t thread;
    uint32_t index, n_slept = 0;
    cpu_set_t cpus;

    CHECK_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    if (CPU_COUNT(&cpus) < 2) {
        CHECK_SKIP("needs two CPUs");
    }
    meeting.n_at_barrier = 0;
    make_pair(0, &meeting.front, &meeting.worker);
    CHECK_EQ(pthread_create(&thread, NULL, sleep_at_each_meeting, &cpus), 0);
    pin(&cpus, 0);
    for (uint32_t i = 0; i < N_MEETINGS; i++) {
        queue_work_put(meeting.front, PRIORITY_NORMAL, &entry, &index);
        meet(2 * i + 1, i % 100);
        meeting.has_rung[i] = queue_work_publish(meeting.front, PRIORITY_NORMAL);
        meet(2 * i + 2, 0);
        queue_work_release(meeting.front, PRIORITY_NORMAL, index);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
    for (uint32_t i = 0; i < N_MEETINGS; i++) {
        CHECK(meeting.has_rung[i] || !meeting.has_slept[i]);
        n_slept += meeting.has_slept[i];
    }
    printf("# the sleeper was first in %u of %u\n", n_slept, N_MEETINGS);
}

static void test_two_processes(void)
{
    struct side front = {0}, worker = {0};
    int status;
    pid_t pid;

    make_sides(200000, 100, &front, &worker);
    pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        be_worker(&worker);
        _exit(worker.has_failed);
    }
    be_front_end(&front);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    close(front.doorbell_fd);
    close(worker.doorbell_fd);
}

CHECK_MAIN(CHECK_TEST(test_two_threads), CHECK_TEST(test_two_threads_in_lockstep),
           CHECK_TEST(test_sleep_meets_publish), CHECK_TEST(test_two_processes))
