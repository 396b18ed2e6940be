/*
 * The queues of a ring: nothing lost, nothing twice, and neither side ever trusts the other.
 */
#include "proto/channel.h"
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct ring *daemon_side, *client_side;

static void destroy(void *arg)
{
    (void)arg;
    ring_destroy(STEAL(client_side));
    ring_destroy(STEAL(daemon_side));
}

static void make(uint32_t first_index)
{
    CHECK_EQ(ring_create_at(first_index, &daemon_side), 0);
    CHECK_EQ(ring_attach(ring_fd(daemon_side), &client_side), 0);
    check_at_end(destroy, NULL);
}

/* The words of the queues as a hostile client has them: mapped once more. */
static uint64_t *map_words(size_t *ret_n)
{
    void *words =
        mmap(NULL, ring_size(), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd(daemon_side), 0);

    CHECK(words != MAP_FAILED);
    *ret_n = ring_size() / sizeof(uint64_t);
    return words;
}

static uint32_t *sq_tail(uint64_t *words)
{
    return (uint32_t *)((uint8_t *)words + ring_sq_offset());
}

static uint32_t *cq_tail(uint64_t *words)
{
    return (uint32_t *)((uint8_t *)words + ring_cq_offset());
}

static struct ring_desc random_desc(void)
{
    struct ring_desc desc;

    random_bytes(&desc, sizeof(desc));
    return desc;
}

/* ---- one thread ----------------------------------------------------------------------------- */

/* Random batches in both directions, over the wrap of the indices. */
static void test_nothing_is_lost_where_indices_wrap(void)
{
    enum { N = 5 * RING_ENTRIES };
    static struct ring_desc sent[N];
    static struct ring_completion answers[N];
    uint32_t n_sent = 0, n_taken = 0, n_reaped = 0;

    make(UINT32_MAX - 2 * RING_ENTRIES);
    while (n_reaped < N) {
        struct ring_desc descs[64];
        struct ring_completion completions[64];
        uint32_t room = ring_submit_room(client_side);
        uint32_t n = MIN((uint32_t)random_below(64), room);

        n = MIN(n, N - n_sent);

        for (uint32_t i = 0; i < n; i++) {
            sent[n_sent] = random_desc();
            ring_submit(client_side, &sent[n_sent++]);
        }
        ring_submit_publish(client_side);
        int taken = ring_take(daemon_side, descs, (uint32_t)random_below(64));
        CHECK_GE(taken, 0);
        CHECK_GE(ring_room(daemon_side), taken);
        for (int i = 0; i < taken; i++) {
            CHECK_MEM(&descs[i], &sent[n_taken], sizeof(descs[i]));
            random_bytes(&answers[n_taken], sizeof(answers[n_taken]));
            ring_complete(daemon_side, &answers[n_taken++]);
        }
        ring_publish(daemon_side);
        int reaped = ring_reap(client_side, completions, (uint32_t)random_below(64));
        CHECK_GE(reaped, 0);
        for (int i = 0; i < reaped; i++) {
            CHECK_MEM(&completions[i], &answers[n_reaped++], sizeof(completions[i]));
        }
    }
}

static void test_the_room_counts_what_is_not_reaped(void)
{
    struct ring_desc desc = random_desc(), taken[RING_ENTRIES];
    struct ring_completion completion = {.tag = 7};

    make(0);
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        CHECK_EQ(ring_submit_room(client_side), RING_ENTRIES - i);
        ring_submit(client_side, &desc);
    }
    CHECK_EQ(ring_submit_room(client_side), 0);
    CHECK_EQ(ring_take(daemon_side, taken, RING_ENTRIES), 0); /* not shown yet */
    ring_submit_publish(client_side);
    CHECK_EQ(ring_take(daemon_side, taken, RING_ENTRIES), RING_ENTRIES);
    CHECK_EQ(ring_submit_room(client_side), 0);
    CHECK_EQ(ring_room(daemon_side), RING_ENTRIES);
    ring_complete(daemon_side, &completion);
    CHECK_EQ(ring_room(daemon_side), RING_ENTRIES - 1);
    CHECK_EQ(ring_reap(client_side, &completion, 1), 0);
    ring_publish(daemon_side);
    CHECK_EQ(ring_reap(client_side, &completion, 1), 1);
    CHECK_EQ(ring_submit_room(client_side), 1);
    CHECK_EQ(ring_room(daemon_side), RING_ENTRIES);
}

static void test_impossible_indices_break_it(void)
{
    struct ring_desc desc;
    struct ring_completion completion = {0};
    uint64_t *words;
    size_t n;

    make(100);
    words = map_words(&n);
    *sq_tail(words) = 100 + RING_ENTRIES;
    CHECK_EQ(ring_take(daemon_side, &desc, 1), 1); /* nonsense, but possible */
    *sq_tail(words) = 100 + 1 + RING_ENTRIES + 1;
    CHECK_EQ(ring_take(daemon_side, &desc, 1), RING_BROKEN);
    *sq_tail(words) = 100; /* behind what was taken */
    CHECK_EQ(ring_take(daemon_side, &desc, 1), RING_BROKEN);
    CHECK_EQ(ring_room(daemon_side), RING_ENTRIES);
    cq_tail(words)[16] = 101; /* the client's head: nothing was ever completed */
    CHECK_EQ(ring_room(daemon_side), RING_BROKEN);
    cq_tail(words)[16] = 100;
    *cq_tail(words) = 101; /* the other way: a completion of nothing */
    CHECK_EQ(ring_reap(client_side, &completion, 1), RING_BROKEN);
    munmap(words, n * sizeof(*words));
}

static void test_a_wrong_memory_is_not_attached(void)
{
    uint64_t *words;
    size_t n;
    struct ring *other;

    make(0);
    words = map_words(&n);
    for (unsigned i = 0; i < 3; i++) { /* magic and layout; entries; offsets */
        uint64_t was = words[i];

        words[i] ^= UINT64_C(1) << (i == 1 ? 40 : 3);
        CHECK_EQ(ring_attach(ring_fd(daemon_side), &other), -EINVAL);
        words[i] = was;
    }
    int fd = memfd_create("test", MFD_CLOEXEC);
    CHECK_EQ(ring_attach(fd, &other), -EINVAL);
    close(fd);
    munmap(words, n * sizeof(*words));
}

static void test_a_publisher_rings_for_a_sleeper_once(void)
{
    struct ring_desc desc = random_desc();
    struct ring_completion completion = {0};

    make(0);
    ring_submit(client_side, &desc);
    CHECK(!ring_has_work(daemon_side));       /* not shown yet */
    CHECK(!ring_submit_publish(client_side)); /* nobody sleeps */
    CHECK(ring_has_work(daemon_side));
    CHECK(!ring_sleep(daemon_side)); /* there is something */
    CHECK_EQ(ring_take(daemon_side, &desc, 1), 1);
    CHECK(!ring_has_work(daemon_side));
    CHECK(ring_sleep(daemon_side));
    ring_submit(client_side, &desc);
    CHECK(ring_submit_publish(client_side));
    CHECK(!ring_submit_publish(client_side)); /* nothing new */
    ring_submit(client_side, &desc);
    CHECK(!ring_submit_publish(client_side)); /* it was woken already */

    CHECK(ring_client_sleep(client_side));
    ring_complete(daemon_side, &completion);
    CHECK(ring_publish(daemon_side));
    CHECK(!ring_client_sleep(client_side));
    CHECK_EQ(ring_reap(client_side, &completion, 1), 1);
    CHECK(ring_client_sleep(client_side));
    ring_client_awake(client_side);
    ring_complete(daemon_side, &completion);
    CHECK(!ring_publish(daemon_side));
}

/* ---- two sides at once ---------------------------------------------------------------------- */

enum { N_PASSED = 200000 };
static int bells[2]; /* the daemon's end, the client's */

static void wait_for_bell(int fd)
{
    struct pollfd bell = {.fd = fd, .events = POLLIN};

    if (poll(&bell, 1, 20000) == 0) {
        CHECK_FAIL("a wake-up was lost");
    }
    channel_drain(fd, NULL);
}

/* The daemon's side: answers each descriptor with its tag, sleeping whenever there is none. */
static void *answer_all(void *arg)
{
    uint32_t n_answered = 0;

    (void)arg;
    while (n_answered < N_PASSED) {
        struct ring_desc descs[32];
        int n = ring_take(daemon_side, descs, 32);

        if (n == 0 && ring_sleep(daemon_side)) {
            wait_for_bell(bells[0]);
            ring_awake(daemon_side);
        }
        CHECK_GE(n, 0);
        for (int i = 0; i < n; i++) {
            struct ring_completion completion = {.tag = descs[i].tag, .job = descs[i].job};

            ring_complete(daemon_side, &completion);
        }
        n_answered += (uint32_t)n;
        if (ring_publish(daemon_side)) {
            channel_ring(bells[0]);
        }
    }
    return NULL;
}

static void submit_and_reap_all(void)
{
    uint32_t n_sent = 0, n_reaped = 0;

    while (n_reaped < N_PASSED) {
        struct ring_completion completions[32];
        uint32_t room = ring_submit_room(client_side);
        uint32_t n = MIN(room, (uint32_t)random_below(40));

        n = MIN(n, N_PASSED - n_sent);

        for (uint32_t i = 0; i < n; i++, n_sent++) {
            ring_submit(
                client_side,
                &(struct ring_desc){.tag = n_sent * UINT64_C(0x9e3779b97f4a7c15), .job = n_sent});
        }
        if (ring_submit_publish(client_side)) {
            channel_ring(bells[1]);
        }
        int got = ring_reap(client_side, completions, 32);
        if (got == 0 && n_sent > n_reaped && ring_client_sleep(client_side)) {
            wait_for_bell(bells[1]);
            ring_client_awake(client_side);
        }
        CHECK_GE(got, 0);
        for (int i = 0; i < got; i++, n_reaped++) {
            CHECK_EQ(completions[i].job, n_reaped);
            CHECK_EQ(completions[i].tag, n_reaped * UINT64_C(0x9e3779b97f4a7c15));
        }
    }
}

static void test_two_threads(void)
{
    pthread_t thread;

    make(UINT32_MAX - N_PASSED / 2);
    CHECK_EQ(channel_pair(true, bells), 0);
    CHECK_EQ(pthread_create(&thread, NULL, answer_all, NULL), 0);
    submit_and_reap_all();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close(bells[0]);
    close(bells[1]);
}

static void test_two_processes(void)
{
    pid_t pid;
    int status;

    make(0);
    CHECK_EQ(channel_pair(true, bells), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer_all(NULL);
        _exit(0);
    }
    submit_and_reap_all();
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    close(bells[0]);
    close(bells[1]);
}

/* ---- a hostile client ----------------------------------------------------------------------- */

struct mutator {
    uint64_t *words;
    size_t n_words;
    uint32_t seed;
    bool is_over;
};

/* Overwrites any word at any time, the indices far more often than the rest. */
static void *mutate(void *arg)
{
    struct mutator *mutator = arg;
    uint64_t x = mutator->seed | 1;
    const size_t cq_tail_at = ring_cq_offset() / 8; /* the daemon's own, which tells where it is */
    const size_t interesting[] = {8 * 1, 8 * 2, ring_sq_offset() / 8, cq_tail_at + 8};

    while (!__atomic_load_n(&mutator->is_over, __ATOMIC_RELAXED)) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bool is_index = (x & 3) == 0;
        size_t at = is_index ? interesting[(x >> 8) % ARRAY_SIZE(interesting)]
                             : (x >> 8) % mutator->n_words;
        uint64_t value = x * UINT64_C(0x2545f4914f6cdd1d);

        if (is_index && (x & 28) != 0) { /* mostly a likely one */
            value = (uint32_t)(__atomic_load_n(&mutator->words[cq_tail_at], __ATOMIC_RELAXED) +
                               (at == cq_tail_at + 8 ? -(x >> 60) : x >> 60));
        }
        if (at == cq_tail_at) {
            continue;
        }
        __atomic_store_n(&mutator->words[at], value, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* A front end that takes and answers whatever comes; its memory is as it was, under a sanitizer. */
static void serve_hostile(unsigned n_steps)
{
    unsigned n_broken = 0, n_taken = 0;

    for (unsigned i = 0; i < n_steps || n_broken == 0 || n_taken == 0; i++) {
        struct ring_desc descs[16];
        int room = ring_room(daemon_side);
        int n = ring_take(daemon_side, descs, 16);

        CHECK_GE(room, RING_BROKEN);
        CHECK_LE(room, (int)RING_ENTRIES);
        CHECK_LE(n, 16);
        for (int k = 0; k < n; k++) { /* a copy: it reads the same twice */
            struct ring_desc again = descs[k];

            CHECK_MEM(&again, &descs[k], sizeof(again));
            ring_complete(daemon_side, &(struct ring_completion){.tag = again.tag});
        }
        n_broken += room < 0 || n < 0;
        n_taken += n > 0 ? (unsigned)n : 0;
        ring_publish(daemon_side);
        if (!ring_sleep(daemon_side)) {
            ring_awake(daemon_side);
        }
    }
    printf("# %u descriptors taken, broken %u times\n", n_taken, n_broken);
}

static void test_a_mutator_thread(void)
{
    struct mutator mutator = {.seed = (uint32_t)random_u64()};
    pthread_t thread;

    make(0);
    mutator.words = map_words(&mutator.n_words);
    CHECK_EQ(pthread_create(&thread, NULL, mutate, &mutator), 0);
    serve_hostile(200000);
    __atomic_store_n(&mutator.is_over, true, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    munmap(mutator.words, mutator.n_words * sizeof(uint64_t));
}

static void test_a_mutator_process(void)
{
    struct mutator mutator = {.seed = (uint32_t)random_u64()};
    pid_t pid;

    make(0);
    mutator.words = map_words(&mutator.n_words);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        mutate(&mutator);
        _exit(0);
    }
    serve_hostile(200000);
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    munmap(mutator.words, mutator.n_words * sizeof(uint64_t));
}

CHECK_MAIN(CHECK_TEST(test_nothing_is_lost_where_indices_wrap),
           CHECK_TEST(test_the_room_counts_what_is_not_reaped),
           CHECK_TEST(test_impossible_indices_break_it),
           CHECK_TEST(test_a_wrong_memory_is_not_attached),
           CHECK_TEST(test_a_publisher_rings_for_a_sleeper_once), CHECK_TEST(test_two_threads),
           CHECK_TEST(test_two_processes), CHECK_TEST(test_a_mutator_thread),
           CHECK_TEST(test_a_mutator_process))
