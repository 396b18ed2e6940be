/*
 * Both sides of a ring at once, with real doorbells, as threads and as processes.
 */
#include "proto/channel.h"
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/ring_bench.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#define BATCH       32
#define PATIENCE_MS 20000 /* a lost wake-up shows as this much silence */

struct side {
    struct ring *ring;
    int doorbell_fd;
    uint32_t n_total;
    uint32_t window; /* descriptors that the client has outstanding at most */
    uint64_t seed;
    const char *failure; /* of the front end, which may not longjmp */
    bool is_over;        /* the client has failed: the front end ends as well */
    pthread_t thread;
    bool is_joined;
};

static struct ring_desc make_desc(uint64_t *seed, uint32_t n)
{
    uint64_t words[sizeof(struct ring_desc) / sizeof(uint64_t)];
    struct ring_desc desc;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        words[i] = random_next(seed);
    }
    memcpy(&desc, words, sizeof(desc));
    desc.tag = n;
    return desc;
}

/* Depends on every word of the descriptor. */
static struct ring_completion answer(const struct ring_desc *desc)
{
    uint64_t words[sizeof(*desc) / sizeof(uint64_t)], sum = 1;
    struct ring_completion completion;

    memcpy(words, desc, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        words[i] = random_next(&sum);
    }
    memcpy(&completion, words, sizeof(completion));
    completion.tag = desc->tag;
    return completion;
}

/* False: nobody rang. */
static bool wait_for_ring(int doorbell_fd)
{
    struct pollfd pollfd = {.fd = doorbell_fd, .events = POLLIN};
    bool has_rung = poll(&pollfd, 1, PATIENCE_MS) > 0;

    channel_drain(doorbell_fd, NULL);
    return has_rung;
}

/* ---- the front end's side ------------------------------------------------------------------- */

/* What was taken and is not completed: never more than the client has room for. */
struct backlog {
    struct ring_desc descs[RING_ENTRIES];
    uint32_t n_taken, n_completed;
};

static uint32_t backlog_size(const struct backlog *backlog)
{
    return backlog->n_taken - backlog->n_completed;
}

/* Returns how many came, or -1. */
static int take_some(struct side *side, struct backlog *backlog)
{
    struct ring_desc descs[BATCH];
    int n = ring_take(side->ring, descs, 1 + (uint32_t)(random_next(&side->seed) % BATCH));
    int room = ring_room(side->ring);

    if (n < 0 || room < 0) {
        side->failure = "broken";
        return -1;
    }
    if (backlog_size(backlog) + (uint32_t)n > (uint32_t)room) {
        side->failure = "an honest client has no room";
        return -1;
    }
    for (int i = 0; i < n; i++) {
        backlog->descs[backlog->n_taken++ % RING_ENTRIES] = descs[i];
    }
    return n;
}

static void complete_some(struct side *side, struct backlog *backlog, uint32_t n)
{
    for (; n > 0; n--) {
        const struct ring_completion completion =
            answer(&backlog->descs[backlog->n_completed++ % RING_ENTRIES]);

        ring_complete(side->ring, &completion, 1);
    }
    if (ring_publish(side->ring)) {
        channel_ring(side->doorbell_fd);
    }
}

/* Take and complete, now some, now all of it, until n_total are completed. */
static void *be_front_end(void *arg)
{
    struct side *side = arg;
    static struct backlog backlog;

    backlog.n_taken = backlog.n_completed = 0;
    while (backlog.n_completed < side->n_total && side->failure == NULL &&
           !__atomic_load_n(&side->is_over, __ATOMIC_RELAXED)) {
        int n = take_some(side, &backlog);
        uint32_t n_waiting = backlog_size(&backlog);

        if (n > 0) {
            complete_some(side, &backlog, (uint32_t)(random_next(&side->seed) % (n_waiting + 1)));
        } else if (n == 0 && n_waiting > 0) {
            complete_some(side, &backlog, n_waiting);
        } else if (n == 0) {
            if (ring_sleep(side->ring) && !wait_for_ring(side->doorbell_fd)) {
                side->failure = "the front end was not woken";
            }
            ring_awake(side->ring);
        }
    }
    return NULL;
}

/* ---- the client's --------------------------------------------------------------------------- */

static struct ring_completion expected[RING_ENTRIES];

static uint32_t submit_some(struct side *side, uint32_t n_sent, uint32_t max)
{
    uint32_t n = MIN((uint32_t)(random_next(&side->seed) % (2 * BATCH)), max);

    n = MIN(n, ring_submit_room(side->ring));
    for (uint32_t i = 0; i < n; i++) {
        const struct ring_desc desc = make_desc(&side->seed, n_sent + i);

        expected[(n_sent + i) % RING_ENTRIES] = answer(&desc);
        ring_submit(side->ring, &desc);
    }
    if (ring_submit_publish(side->ring)) {
        channel_ring(side->doorbell_fd);
    }
    return n;
}

static uint32_t reap_some(struct side *side, uint32_t n_reaped)
{
    struct ring_completion completions[BATCH];
    int n = ring_reap(side->ring, completions, 1 + (uint32_t)(random_next(&side->seed) % BATCH));

    CHECK_GE(n, 0);
    for (int i = 0; i < n; i++) {
        CHECK_MEM(&completions[i], &expected[(n_reaped + (uint32_t)i) % RING_ENTRIES],
                  sizeof(completions[i]));
    }
    return (uint32_t)n;
}

static void be_client(struct side *side)
{
    uint32_t n_sent = 0, n_reaped = 0;

    while (n_reaped < side->n_total) {
        uint32_t n_room = side->window - (n_sent - n_reaped);
        uint32_t n_new = submit_some(side, n_sent, MIN(n_room, side->n_total - n_sent));
        uint32_t n_done = reap_some(side, n_reaped);

        n_sent += n_new;
        n_reaped += n_done;
        if (n_done == 0 && n_sent > n_reaped) {
            if (ring_client_sleep(side->ring)) {
                CHECK(wait_for_ring(side->doorbell_fd));
            }
            ring_client_awake(side->ring);
        }
    }
    CHECK_EQ(n_sent, side->n_total);
    CHECK_EQ(ring_submit_room(side->ring), RING_ENTRIES);
}

/* ---- both ----------------------------------------------------------------------------------- */

static void close_doorbell(void *arg)
{
    close(((struct side *)arg)->doorbell_fd);
}

static void make_sides(uint32_t n_total, uint32_t window, struct side *ret_front,
                       struct side *ret_client)
{
    struct ring_bench *bench = ring_bench_new(UINT32_MAX - n_total / 2);
    int fds[2];

    CHECK_EQ(channel_pair(true, fds), 0);
    *ret_front = (struct side){bench->front, fds[0], n_total, window, random_u64() | 1};
    *ret_client = (struct side){bench->client, fds[1], n_total, window, random_u64() | 1};
    check_at_end(close_doorbell, ret_front);
    check_at_end(close_doorbell, ret_client);
}

/* Before what it uses goes, whatever the client has come to. */
static void join(void *arg)
{
    struct side *front = arg;

    if (!front->is_joined) {
        __atomic_store_n(&front->is_over, true, __ATOMIC_RELAXED);
        pthread_join(front->thread, NULL);
    }
}

static void run_two_threads(uint32_t n_total, uint32_t window)
{
    static struct side front, client;

    make_sides(n_total, window, &front, &client);
    CHECK_EQ(pthread_create(&front.thread, NULL, be_front_end, &front), 0);
    check_at_end(join, &front);
    be_client(&client);
    CHECK_EQ(pthread_join(front.thread, NULL), 0);
    front.is_joined = true;
    CHECK_STR(front.failure == NULL ? "" : front.failure, "");
}

static void test_two_threads(void)
{
    run_two_threads(1000000, RING_ENTRIES);
}

/* One descriptor at a time: each side goes to sleep just when the other publishes. */
static void test_two_threads_in_lockstep(void)
{
    run_two_threads(50000, 1);
}

static void test_two_processes(void)
{
    static struct side front, client;
    int status;
    pid_t pid;

    make_sides(1000000, RING_ENTRIES, &front, &client);
    pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_front_end(&front);
        _exit(front.failure != NULL);
    }
    be_client(&client);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

CHECK_MAIN(CHECK_TEST(test_two_threads), CHECK_TEST(test_two_threads_in_lockstep),
           CHECK_TEST(test_two_processes))
