/*
 * A client that writes anywhere in the queues at any time, as a thread and as a process, while the
 * front end serves it: what it takes is no more than it asked for, and is copies of whole words.
 * What else goes wrong a sanitizer sees.
 */
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/ring_bench.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define N_ROUNDS  200
#define N_STEPS   100  /* of the front end in each round ... */
#define N_STROKES 2000 /* ... which begins when the mutator has written so often since the last */
#define TAKE_MAX  16

/* What the two sides tell each other beside the ring, in memory that a fork shares. */
struct mutator {
    uint8_t *words; /* of the queues */
    size_t n_words;
    size_t sq_tail, cq_head; /* which words those are */
    uint64_t seed;
    uint32_t n_strokes;
    uint32_t front_head, front_tail; /* how far the front end is, so that nonsense may be likely */
    bool is_over;
    pthread_t thread;
    pid_t pid; /* or it is a process */
};

/* Half of a word tells the other: one that was torn shows. */
static uint64_t make_word(uint32_t low)
{
    return low | (uint64_t)(low * UINT32_C(0x9e3779b1) ^ UINT32_C(0x5bd1e995)) << 32;
}

static bool is_whole(uint64_t word)
{
    return word == 0 || word == make_word((uint32_t)word);
}

/* ---- the mutator ---------------------------------------------------------------------------- */

/* One word, any at random; or an index, most times near to where it can be. */
static void strike(struct mutator *mutator, uint64_t random)
{
    uint32_t near =
        random >> 62 == 0 ? (uint32_t)(random >> 8) : (uint32_t)(random >> 40) % (RING_ENTRIES + 2);
    size_t at = (random >> 8 & 0xffffffff) % mutator->n_words;
    uint32_t low = (uint32_t)(random * UINT64_C(0x2545f4914f6cdd1d) >> 32);

    switch (random & 7) {
    case 0:
    case 1:
        at = mutator->sq_tail;
        low = __atomic_load_n(&mutator->front_head, __ATOMIC_RELAXED) + near;
        break;
    case 2:
        at = mutator->cq_head;
        low = __atomic_load_n(&mutator->front_tail, __ATOMIC_RELAXED) - near;
        break;
    default:
        break;
    }
    __atomic_store_n((uint64_t *)mutator->words + at, make_word(low), __ATOMIC_RELAXED);
}

static void *be_mutator(void *arg)
{
    struct mutator *mutator = arg;

    for (size_t at = 0; at < mutator->n_words; at++) { /* each of them once, whatever comes */
        __atomic_store_n((uint64_t *)mutator->words + at,
                         make_word((uint32_t)random_next(&mutator->seed)), __ATOMIC_RELAXED);
    }
    while (!__atomic_load_n(&mutator->is_over, __ATOMIC_RELAXED)) {
        strike(mutator, random_next(&mutator->seed));
        __atomic_fetch_add(&mutator->n_strokes, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* ---- the front end -------------------------------------------------------------------------- */

struct served {
    unsigned n_broken, n_taken, n_completed;
    uint32_t head, tail;
    struct ring_desc descs[TAKE_MAX + 1], copies[TAKE_MAX + 1];
};

static void check_whole(const struct ring_desc *desc)
{
    uint64_t words[sizeof(*desc) / sizeof(uint64_t)];

    memcpy(words, desc, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        CHECK(is_whole(words[i]));
    }
}

/* All that was not to be written is as it was. */
static int take_some(struct ring *front, struct served *served)
{
    uint32_t max = (uint32_t)random_below(TAKE_MAX + 1);
    int n;

    random_bytes(served->descs, sizeof(served->descs));
    memcpy(served->copies, served->descs, sizeof(served->copies));
    n = ring_take(front, served->descs, max);
    CHECK_GE(n, RING_BROKEN);
    CHECK(n >= 0 || n == RING_BROKEN);
    CHECK_LE(n, (int)max);
    for (int i = TAKE_MAX; i >= MAX(n, 0); i--) {
        CHECK_MEM(&served->descs[i], &served->copies[i], sizeof(served->descs[i]));
    }
    for (int i = 0; i < n; i++) {
        check_whole(&served->descs[i]);
    }
    memcpy(served->copies, served->descs, sizeof(served->copies));
    return n;
}

static void complete_some(struct ring *front, struct served *served, int n)
{
    int room = ring_room(front);

    CHECK(room == RING_BROKEN || (room >= 0 && room <= (int)RING_ENTRIES));
    served->n_broken += room < 0;
    for (int i = 0; i < MIN(n, room); i++) {
        const struct ring_completion completion = {.tag = make_word(served->descs[i].job)};

        ring_complete(front, &completion, 1);
        served->tail++;
        served->n_completed++;
    }
}

static void step(struct ring *front, struct served *served, struct mutator *mutator)
{
    int n = take_some(front, served);

    served->n_broken += n < 0;
    served->n_taken += (uint32_t)MAX(n, 0);
    served->head += (uint32_t)MAX(n, 0);
    complete_some(front, served, n);
    __atomic_store_n(&mutator->front_head, served->head, __ATOMIC_RELAXED);
    __atomic_store_n(&mutator->front_tail, served->tail, __ATOMIC_RELAXED);
    ring_publish(front);
    ring_sleep(front);
    ring_awake(front);
    CHECK_MEM(served->descs, served->copies, sizeof(served->copies));
}

/* On a single CPU too, each round meets what was not there in the one before. */
static void serve(struct ring_bench *bench, struct mutator *mutator)
{
    struct served served = {.head = 0};
    uint32_t n_strokes = 0;

    for (unsigned round = 0; round < N_ROUNDS; round++) {
        while (__atomic_load_n(&mutator->n_strokes, __ATOMIC_RELAXED) - n_strokes < N_STROKES) {
            sched_yield();
        }
        n_strokes = __atomic_load_n(&mutator->n_strokes, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < N_STEPS; i++) {
            step(bench->front, &served, mutator);
        }
    }
    printf("# %u taken, %u completed, broken %u times, %u strokes\n", served.n_taken,
           served.n_completed, served.n_broken, n_strokes);
    CHECK_GT(served.n_broken, 0);
    CHECK_GT(served.n_taken, RING_ENTRIES); /* once around */
    CHECK_GT(served.n_completed, 0);
}

/* ---- both ----------------------------------------------------------------------------------- */

static struct mutator *new_mutator(const struct ring_bench *bench)
{
    struct mutator *mutator =
        mmap(NULL, sizeof(*mutator), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(mutator != MAP_FAILED);
    mutator->words = bench->shared;
    mutator->n_words = ring_size() / sizeof(uint64_t);
    mutator->sq_tail = ring_bench_sq(bench, RING_SQ_TAIL) / sizeof(uint64_t);
    mutator->cq_head = ring_bench_cq(bench, RING_CQ_HEAD) / sizeof(uint64_t);
    mutator->seed = random_u64() | 1;
    return mutator;
}

static void stop(void *arg)
{
    struct mutator *mutator = arg;

    if (mutator->pid > 0) {
        kill(mutator->pid, SIGKILL);
        waitpid(mutator->pid, NULL, 0);
    } else {
        __atomic_store_n(&mutator->is_over, true, __ATOMIC_RELAXED);
        pthread_join(mutator->thread, NULL);
    }
    munmap(mutator, sizeof(*mutator));
}

static void test_a_mutator_thread(void)
{
    struct ring_bench *bench = ring_bench_new(0);
    struct mutator *mutator = new_mutator(bench);

    CHECK_EQ(pthread_create(&mutator->thread, NULL, be_mutator, mutator), 0);
    check_at_end(stop, mutator);
    serve(bench, mutator);
}

static void test_a_mutator_process(void)
{
    struct ring_bench *bench = ring_bench_new(0);
    struct mutator *mutator = new_mutator(bench);
    pid_t pid = fork();

    CHECK_GE(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_mutator(mutator);
        _exit(0);
    }
    mutator->pid = pid;
    check_at_end(stop, mutator);
    serve(bench, mutator);
}

CHECK_MAIN(CHECK_TEST(test_a_mutator_thread), CHECK_TEST(test_a_mutator_process))
