/*
 * The queues of a ring, one step at a time: nothing is lost or there twice, what cannot be is told,
 * and neither side takes the other's word for anything.
 */
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/ring_bench.h"

#include <fcntl.h>
#include <sys/mman.h>

#define FAR (UINT32_C(1) << 31)

static struct ring_desc random_desc(void)
{
    struct ring_desc desc;

    random_bytes(&desc, sizeof(desc));
    return desc;
}

static struct ring_completion random_completion(void)
{
    struct ring_completion completion;

    random_bytes(&completion, sizeof(completion));
    return completion;
}

static void submit(struct ring_bench *bench, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ring_desc desc = random_desc();

        ring_submit(bench->client, &desc);
    }
    ring_submit_publish(bench->client);
}

static void take(struct ring_bench *bench, uint32_t n)
{
    static struct ring_desc descs[RING_ENTRIES];

    CHECK_EQ(ring_take(bench->front, descs, n), n);
}

static void complete(struct ring_bench *bench, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ring_completion completion = random_completion();

        ring_complete(bench->front, &completion, 1);
    }
    ring_publish(bench->front);
}

static void reap(struct ring_bench *bench, uint32_t n)
{
    static struct ring_completion completions[RING_ENTRIES];

    CHECK_EQ(ring_reap(bench->client, completions, n), n);
}

/* ---- what each side may rely on ------------------------------------------------------------- */

/* Random batches in both directions. */
static void pass_through(uint32_t first_index, uint32_t n_total)
{
    struct ring_bench *bench = ring_bench_new(first_index);
    struct ring_desc *sent = random_new(n_total * sizeof(*sent));
    struct ring_completion *answers = random_new(n_total * sizeof(*answers));
    uint32_t n_sent = 0, n_taken = 0, n_reaped = 0;

    while (n_reaped < n_total) {
        struct ring_desc descs[64];
        struct ring_completion completions[64];
        uint32_t n = MIN((uint32_t)random_below(64), ring_submit_room(bench->client));
        int got;

        n = MIN(n, n_total - n_sent);
        for (uint32_t i = 0; i < n; i++) {
            ring_submit(bench->client, &sent[n_sent++]);
        }
        ring_submit_publish(bench->client);
        got = ring_take(bench->front, descs, (uint32_t)random_below(64));
        CHECK_GE(got, 0);
        CHECK_GE(ring_room(bench->front), got);
        CHECK_MEM(descs, &sent[n_taken], (size_t)got * sizeof(*descs));
        for (int i = 0; i < got; i++) {
            ring_complete(bench->front, &answers[n_taken++], 1);
        }
        ring_publish(bench->front);
        got = ring_reap(bench->client, completions, (uint32_t)random_below(64));
        CHECK_GE(got, 0);
        CHECK_MEM(completions, &answers[n_reaped], (size_t)got * sizeof(*completions));
        n_reaped += (uint32_t)got;
    }
    CHECK_EQ(n_taken, n_total);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
}

static void test_nothing_is_lost_where_indices_wrap(void)
{
    pass_through(0, 3 * RING_ENTRIES);
    pass_through(UINT32_MAX - 2 * RING_ENTRIES, 5 * RING_ENTRIES);
    pass_through(UINT32_MAX, 3 * RING_ENTRIES);
    pass_through(FAR - 3, 3 * RING_ENTRIES);
}

/* All entries of both queues, across the wrap, and what is shown of them when. */
static void test_full_queues(void)
{
    struct ring_bench *bench = ring_bench_new(UINT32_MAX - 9);
    struct ring_desc *sent = random_new(RING_ENTRIES * sizeof(*sent));
    struct ring_desc *taken = random_new(RING_ENTRIES * sizeof(*taken));
    struct ring_completion *answers = random_new(RING_ENTRIES * sizeof(*answers));
    struct ring_completion *reaped = random_new(RING_ENTRIES * sizeof(*reaped));

    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - i);
        ring_submit(bench->client, &sent[i]);
    }
    CHECK_EQ(ring_submit_room(bench->client), 0);
    CHECK_EQ(ring_take(bench->front, taken, RING_ENTRIES), 0);
    ring_submit_publish(bench->client);
    CHECK_EQ(ring_take(bench->front, taken, RING_ENTRIES), RING_ENTRIES);
    CHECK_MEM(taken, sent, RING_ENTRIES * sizeof(*sent));
    CHECK_EQ(ring_take(bench->front, taken, RING_ENTRIES), 0);
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        CHECK_EQ(ring_room(bench->front), RING_ENTRIES - i);
        ring_complete(bench->front, &answers[i], 1);
    }
    CHECK_EQ(ring_room(bench->front), 0);
    CHECK_EQ(ring_reap(bench->client, reaped, RING_ENTRIES), 0);
    ring_publish(bench->front);
    CHECK_EQ(ring_reap(bench->client, reaped, RING_ENTRIES), RING_ENTRIES);
    CHECK_MEM(reaped, answers, RING_ENTRIES * sizeof(*answers));
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
}

/* What was submitted needs room until it is reaped, taken or not, completed or not. */
static void test_room(void)
{
    struct ring_bench *bench = ring_bench_new(UINT32_MAX);

    submit(bench, 10);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - 10);
    take(bench, 7);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - 10);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
    complete(bench, 4);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - 10);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES - 4);
    reap(bench, 3);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - 7);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES - 1);
    reap(bench, 1);
    take(bench, 3);
    complete(bench, 6);
    reap(bench, 6);
    CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES);
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
}

/* The client may reap and submit at any moment: what was asked before a take may be too little. */
static void test_room_after_a_take_is_enough(void)
{
    struct ring_bench *bench = ring_bench_new(0);
    int room_before;

    submit(bench, RING_ENTRIES);
    take(bench, RING_ENTRIES);
    complete(bench, 1);
    room_before = ring_room(bench->front);
    reap(bench, 1);
    submit(bench, 1);
    take(bench, 1);
    CHECK_LT(room_before, RING_ENTRIES); /* as many as are to be completed now */
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
}

static void test_a_publisher_rings_for_a_sleeper_once(void)
{
    struct ring_bench *bench = ring_bench_new(0);
    const struct ring_desc desc = random_desc();
    const struct ring_completion completion = random_completion();

    ring_submit(bench->client, &desc);
    CHECK(!ring_submit_publish(bench->client)); /* nobody sleeps */
    CHECK(!ring_sleep(bench->front));           /* there is something */
    take(bench, 1);
    CHECK(ring_sleep(bench->front));
    CHECK(!ring_submit_publish(bench->client)); /* nothing new */
    ring_submit(bench->client, &desc);
    CHECK(ring_submit_publish(bench->client));
    ring_submit(bench->client, &desc);
    CHECK(!ring_submit_publish(bench->client)); /* one sleep costs one ring */
    take(bench, 2);
    CHECK(ring_sleep(bench->front));
    ring_awake(bench->front);
    ring_submit(bench->client, &desc);
    CHECK(!ring_submit_publish(bench->client)); /* it is awake for another reason */

    CHECK(ring_client_sleep(bench->client));
    CHECK(!ring_publish(bench->front)); /* nothing new */
    ring_complete(bench->front, &completion, 1);
    CHECK(ring_publish(bench->front));
    CHECK(!ring_client_sleep(bench->client)); /* there is something */
    ring_complete(bench->front, &completion, 1);
    CHECK(!ring_publish(bench->front)); /* not asleep, then */
    reap(bench, 2);
    CHECK(ring_client_sleep(bench->client));
    ring_client_awake(bench->client);
    ring_complete(bench->front, &completion, 1);
    CHECK(!ring_publish(bench->front));
}

/* ---- what cannot be ------------------------------------------------------------------------- */

/* Distances of an index from where a side has come, that are out of reach both ways. */
static const uint32_t unreachable[] = {
    RING_ENTRIES + 1, RING_ENTRIES + 2, 2 * RING_ENTRIES, FAR - 1, FAR, FAR + 1, UINT32_MAX,
};

/* Where indices of a bench start: they break in the same way before, at and after the wrap. */
static const uint32_t starts[] = {0, 100, FAR, UINT32_MAX - 20, UINT32_MAX - 3};

/* Of a ring with 20 submitted, 10 taken, 6 completed and 3 reaped. */
static struct ring_bench *make_used(uint32_t first_index)
{
    struct ring_bench *bench = ring_bench_new(first_index);

    submit(bench, 20);
    take(bench, 10);
    complete(bench, 6);
    reap(bench, 3);
    return bench;
}

static void test_a_submission_tail_that_cannot_be(void)
{
    struct ring_desc descs[4];
    const struct ring_desc poison = random_desc();

    for (size_t i = 0; i < ARRAY_SIZE(starts) * ARRAY_SIZE(unreachable); i++) {
        const uint32_t start = starts[i / ARRAY_SIZE(unreachable)];
        const uint32_t distance = unreachable[i % ARRAY_SIZE(unreachable)];
        struct ring_bench *bench = make_used(start);
        const size_t tail = ring_bench_sq(bench, RING_SQ_TAIL);

        printf("# %u entries from %u\n", distance, start + 10);
        ring_bench_set(bench, tail, start + 10 + distance);
        descs[0] = poison;
        CHECK_EQ(ring_take(bench->front, descs, 4), RING_BROKEN);
        CHECK_EQ(ring_take(bench->front, descs, 0), RING_BROKEN);
        CHECK_EQ(ring_take(bench->front, descs, 4), RING_BROKEN);
        CHECK_MEM(descs, &poison, sizeof(poison));
        CHECK(!ring_sleep(bench->front));
        CHECK_EQ(ring_room(bench->front), RING_ENTRIES - 3);
        /* The furthest that can be: nonsense, but within the queue. */
        ring_bench_set(bench, tail, start + 10 + RING_ENTRIES);
        take(bench, RING_ENTRIES);
        CHECK_EQ(ring_take(bench->front, descs, 4), 0);
    }
}

static void test_a_completion_head_that_cannot_be(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(starts) * ARRAY_SIZE(unreachable); i++) {
        const uint32_t start = starts[i / ARRAY_SIZE(unreachable)];
        const uint32_t distance = unreachable[i % ARRAY_SIZE(unreachable)];
        struct ring_bench *bench = make_used(start);
        const size_t head = ring_bench_cq(bench, RING_CQ_HEAD);

        printf("# %u entries before %u\n", distance, start + 6);
        ring_bench_set(bench, head, start + 6 - distance);
        CHECK_EQ(ring_room(bench->front), RING_BROKEN);
        take(bench, 10); /* the other queue is as it was */
        ring_bench_set(bench, head, start + 6 - RING_ENTRIES);
        CHECK_EQ(ring_room(bench->front), 0);
        ring_bench_set(bench, head, start + 6);
        CHECK_EQ(ring_room(bench->front), RING_ENTRIES);
    }
}

/* A client knows better: of 20 submitted and 3 reaped, 17 can be completed and no more. */
static void test_a_completion_tail_that_cannot_be(void)
{
    const struct ring_completion poison = random_completion();
    struct ring_completion completions[4];

    for (size_t i = 0; i < ARRAY_SIZE(starts) * (1 + ARRAY_SIZE(unreachable)); i++) {
        const uint32_t start = starts[i / (1 + ARRAY_SIZE(unreachable))];
        const size_t which = i % (1 + ARRAY_SIZE(unreachable));
        const uint32_t distance = which == 0 ? 18 : unreachable[which - 1];
        struct ring_bench *bench = make_used(start);
        const size_t tail = ring_bench_cq(bench, RING_CQ_TAIL);

        printf("# %u entries from %u\n", distance, start + 3);
        ring_bench_set(bench, tail, start + 3 + distance);
        completions[0] = poison;
        CHECK_EQ(ring_reap(bench->client, completions, 4), RING_BROKEN);
        CHECK_EQ(ring_reap(bench->client, completions, 0), RING_BROKEN);
        CHECK_MEM(completions, &poison, sizeof(poison));
        CHECK(!ring_client_sleep(bench->client));
        CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES - 17);
        ring_bench_set(bench, tail, start + 3 + 17);
        reap(bench, 17);
        CHECK_EQ(ring_submit_room(bench->client), RING_ENTRIES);
    }
}

/* The front end has let go of it: neither what it has shown nor the zeros in its place count. */
static void test_what_a_cleared_ring_has_is_no_completion(void)
{
    const struct ring_completion completion = random_completion();
    struct ring_completion completions[4];

    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        struct ring_bench *bench = make_used(starts[i]);

        ring_complete(bench->front, &completion, 1);
        ring_publish(bench->front);
        ring_bench_set(bench, 0, 0); /* its first word is the first to be zero */
        CHECK_EQ(ring_reap(bench->client, completions, 4), RING_CLEARED);
        ring_clear(bench->front);
        CHECK_LE(ring_reap(bench->client, completions, 4), 0); /* none, if the indices are alike */
    }
}

/* How far a side has come itself it does not read from the memory: whatever stands there. */
static void test_own_indices_are_not_read_back(void)
{
    struct ring_bench *bench = make_used(UINT32_MAX - 8);
    const size_t mine[] = {ring_bench_cq(bench, RING_CQ_TAIL), ring_bench_sq(bench, RING_SQ_TAIL),
                           ring_bench_cq(bench, RING_CQ_HEAD)};

    ring_bench_set(bench, mine[0], (uint32_t)random_u64());
    CHECK_EQ(ring_room(bench->front), RING_ENTRIES - 3);
    complete(bench, 1);
    CHECK_EQ(ring_bench_get(bench, mine[0]), UINT32_MAX - 8 + 7);
    ring_bench_set(bench, mine[1], (uint32_t)random_u64());
    submit(bench, 1);
    CHECK_EQ(ring_bench_get(bench, mine[1]), UINT32_MAX - 8 + 21);
    ring_bench_set(bench, mine[2], (uint32_t)random_u64());
    reap(bench, 1);
    CHECK_EQ(ring_bench_get(bench, mine[2]), UINT32_MAX - 8 + 4);
    take(bench, 11);
}

static void test_attach_refuses_what_is_no_ring(void)
{
    struct ring_bench *bench = ring_bench_new(0);
    struct ring *other = NULL;
    int fd;

    for (size_t at = 0; at < 24; at += sizeof(uint32_t)) {
        uint32_t was = ring_bench_get(bench, at);

        if (at != RING_AT_FIRST_INDEX) { /* any will do */
            ring_bench_set(bench, at, was ^ (UINT32_C(1) << random_below(32)));
            CHECK_EQ(ring_attach(ring_fd(bench->front), &other), -EINVAL);
            ring_bench_set(bench, at, was);
        }
    }
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ring_attach(fd, &other), -EINVAL); /* of another size */
    CHECK_EQ(ftruncate(fd, (off_t)ring_size()), 0);
    CHECK_LT(ring_attach(fd, &other), 0); /* may shrink under us */
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    CHECK_EQ(ring_attach(fd, &other), -EINVAL); /* all zero */
    CHECK_EQ(pwrite(fd, bench->shared, 24, 0), 24);
    CHECK_EQ(ring_attach(fd, &other), 0);
    ring_destroy(other);
    close(fd);
    CHECK_EQ(ring_attach(-1, &other), -EBADF);
}

/* ---- a client written from the document ----------------------------------------------------- */

/* Nothing of ring.h but its structs: what PROTOCOL.md says must be all there is to know. */
static void test_a_client_written_from_the_document(void)
{
    struct ring_bench *bench = ring_bench_new(UINT32_MAX - 1);
    const uint32_t entries = ring_bench_get(bench, RING_AT_ENTRIES);
    const size_t sq = ring_bench_get(bench, RING_AT_SQ), cq = ring_bench_get(bench, RING_AT_CQ);
    uint32_t tail = ring_bench_get(bench, RING_AT_FIRST_INDEX), head = tail;
    struct ring_completion answers[5];
    struct ring_desc taken[5];

    CHECK_MEM(bench->shared, "GPPR", 4);
    CHECK_EQ(entries, RING_ENTRIES);
    CHECK_EQ(sq, ring_sq_offset());
    CHECK_EQ(cq, ring_cq_offset());
    CHECK(ring_sleep(bench->front));
    for (uint32_t i = 0; i < ARRAY_SIZE(taken); i++) {
        const struct ring_desc desc = random_desc();

        memcpy(bench->shared + sq + RING_SQ_DESCS + tail++ % entries * 64, &desc, 64);
        ring_bench_set(bench, sq + RING_SQ_TAIL, tail);
        CHECK_EQ(ring_bench_get(bench, RING_AT_FRONT_END_SLEEP), i == 0);
        ring_bench_set(bench, RING_AT_FRONT_END_SLEEP, 0);
        CHECK_EQ(ring_take(bench->front, &taken[i], 1), 1);
        CHECK_MEM(&taken[i], &desc, sizeof(desc));
    }
    ring_bench_set(bench, RING_AT_CLIENT_SLEEP, 1);
    CHECK_EQ(ring_bench_get(bench, cq + RING_CQ_TAIL), head);
    for (uint32_t i = 0; i < ARRAY_SIZE(answers); i++) {
        answers[i] = random_completion();
        ring_complete(bench->front, &answers[i], 1);
    }
    CHECK(ring_publish(bench->front));
    CHECK_EQ(ring_bench_get(bench, RING_AT_CLIENT_SLEEP), 0);
    for (uint32_t i = 0; head != ring_bench_get(bench, cq + RING_CQ_TAIL); i++) {
        CHECK_MEM(bench->shared + cq + RING_CQ_COMPLETIONS + head++ % entries * 64, &answers[i],
                  64);
        ring_bench_set(bench, cq + RING_CQ_HEAD, head);
        CHECK_EQ(ring_room(bench->front), RING_ENTRIES - ARRAY_SIZE(answers) + i + 1);
    }
    CHECK_EQ(head, tail);
}

CHECK_MAIN(CHECK_TEST(test_nothing_is_lost_where_indices_wrap),
           CHECK_TEST(test_what_a_cleared_ring_has_is_no_completion), CHECK_TEST(test_full_queues),
           CHECK_TEST(test_room), CHECK_TEST(test_room_after_a_take_is_enough),
           CHECK_TEST(test_a_publisher_rings_for_a_sleeper_once),
           CHECK_TEST(test_a_submission_tail_that_cannot_be),
           CHECK_TEST(test_a_completion_head_that_cannot_be),
           CHECK_TEST(test_a_completion_tail_that_cannot_be),
           CHECK_TEST(test_own_indices_are_not_read_back),
           CHECK_TEST(test_attach_refuses_what_is_no_ring),
           CHECK_TEST(test_a_client_written_from_the_document))
