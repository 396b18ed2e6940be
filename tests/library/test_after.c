/* Jobs after jobs through libgpupipe, with a real daemon. */
#include "client/gpupipe.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { BLOCK = 4096, SIZE = 64 * BLOCK };

static const struct gpupipe_value size = {"size", GPUPIPE_INT, BLOCK, 0, NULL};

static struct gpupipe *connections[2];

static void close_all(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 2; i++) {
        gpupipe_close(connections[i]);
        connections[i] = NULL;
    }
}

static void check_ok(struct gpupipe *gpupipe, int rc)
{
    if (rc < 0) {
        CHECK_FAIL("%s: %s", gpupipe_last_error(gpupipe)->name,
                   gpupipe_last_error(gpupipe)->message);
    }
}

static void start(void)
{
    struct harness *daemon = harness_start("--ring-pool", "256M");

    check_at_end(close_all, NULL);
    for (unsigned i = 0; i < 2; i++) {
        check_ok(connections[i], gpupipe_open(&connections[i], harness_socket(daemon), "test"));
    }
}

static struct gpupipe_job_opts opts_after(const char *const *tokens, uint32_t n)
{
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.window = 2;
    opts.max_push = SIZE;
    opts.after = tokens;
    opts.n_after = n;
    return opts;
}

static struct gpupipe_job *open_job(struct gpupipe *gpupipe, struct gpupipe_ring *ring,
                                    const char *after)
{
    struct gpupipe_job_opts opts = opts_after(&after, after != NULL ? 1 : 0);
    struct gpupipe_job *job;

    opts.ring = ring;
    check_ok(gpupipe, gpupipe_job_open(&job, gpupipe, "copy", &size, 1, &opts));
    return job;
}

static struct gpupipe_desc copy(struct gpupipe_job *job, const void *in, void *out)
{
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_records = SIZE / BLOCK;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){in, SIZE};
    desc.out[0] = (struct gpupipe_room){out, SIZE};
    return desc;
}

static void submit(struct gpupipe *gpupipe, struct gpupipe_job *job, const void *in, void *out)
{
    struct gpupipe_desc desc = copy(job, in, out);

    CHECK_EQ(gpupipe_submit(gpupipe, &desc, 1), 1);
}

static int reap_one(struct gpupipe *gpupipe)
{
    struct gpupipe_completion completion;
    int n;

    GPUPIPE_INIT(&completion);
    while ((n = gpupipe_reap(gpupipe, &completion, 1)) == 0) {
        check_ok(gpupipe, gpupipe_wait(gpupipe, -1));
    }
    check_ok(gpupipe, n);
    return completion.status;
}

static int await_end(struct gpupipe *gpupipe, struct gpupipe_job *job)
{
    struct gpupipe_outcome outcome;
    int rc;

    GPUPIPE_INIT(&outcome);
    while ((rc = gpupipe_job_result(job, &outcome)) == 0) {
        check_ok(gpupipe, gpupipe_wait(gpupipe, -1));
    }
    check_ok(gpupipe, rc);
    return outcome.status;
}

/* The second step is submitted before the first, in one ring. */
static void test_two_steps_in_a_ring(void)
{
    struct gpupipe_ring *ring;

    start();
    check_ok(connections[0], gpupipe_ring_open(&ring, connections[0], 8 * SIZE, NULL));
    uint8_t *in = gpupipe_ring_alloc(ring, SIZE), *middle = gpupipe_ring_alloc(ring, SIZE);
    uint8_t *out = gpupipe_ring_alloc(ring, SIZE);
    struct gpupipe_job *first = open_job(connections[0], ring, NULL);
    struct gpupipe_job *second = open_job(connections[0], ring, gpupipe_job_token(first));

    random_bytes(in, SIZE);
    memset(middle, 0xa5, SIZE);
    memset(out, 0x5a, SIZE);
    submit(connections[0], second, middle, out);
    submit(connections[0], first, in, middle);
    CHECK_EQ(reap_one(connections[0]), GPUPIPE_OK);
    CHECK_MEM(middle, in, SIZE);
    CHECK_EQ(out[random_below(SIZE)], 0x5a);
    check_ok(connections[0], gpupipe_job_end(first));
    CHECK_EQ(reap_one(connections[0]), GPUPIPE_OK);
    CHECK_MEM(out, in, SIZE);
    check_ok(connections[0], gpupipe_job_end(second));
    CHECK_EQ(await_end(connections[0], second), GPUPIPE_OK);
    gpupipe_job_free(first);
    gpupipe_job_free(second);
    gpupipe_ring_close(ring);
}

/* A chain is sent as one, and nobody says more: the last push of each job ends it. */
static void test_a_chain_of_last_pushes(void)
{
    enum { N = 5 };
    struct gpupipe_job *jobs[N];
    struct gpupipe_desc descs[N];
    struct gpupipe_ring *ring;
    uint8_t *arrays[N + 1];

    start();
    check_ok(connections[0], gpupipe_ring_open(&ring, connections[0], 8 * SIZE, NULL));
    for (unsigned i = 0; i <= N; i++) {
        arrays[i] = gpupipe_ring_alloc(ring, SIZE);
        random_bytes(arrays[i], SIZE);
    }
    for (unsigned i = 0; i < N; i++) {
        jobs[i] = open_job(connections[0], ring, i > 0 ? gpupipe_job_token(jobs[i - 1]) : NULL);
        descs[i] = copy(jobs[i], arrays[i], arrays[i + 1]);
        descs[i].is_last = 1;
    }
    CHECK_EQ(gpupipe_submit(connections[0], descs, N), N);
    CHECK_EQ(gpupipe_submit(connections[0], descs, 1), GPUPIPE_ERROR_SEQ);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(reap_one(connections[0]), GPUPIPE_OK);
    }
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(await_end(connections[0], jobs[i]), GPUPIPE_OK);
        CHECK_MEM(arrays[i + 1], arrays[0], SIZE);
        check_ok(connections[0], gpupipe_job_end(jobs[i]));
        gpupipe_job_free(jobs[i]);
    }
    gpupipe_ring_close(ring);
}

/* It has a push that is taken and one that is refused, which was to be the last: the job ends. */
static void test_a_last_push_that_is_refused(void)
{
    struct gpupipe_ring *ring;

    start();
    check_ok(connections[0], gpupipe_ring_open(&ring, connections[0], 8 * SIZE, NULL));
    struct gpupipe_job *job = open_job(connections[0], ring, NULL);
    uint8_t *in = gpupipe_ring_alloc(ring, SIZE), *out = gpupipe_ring_alloc(ring, SIZE);
    struct gpupipe_desc desc = copy(job, in, out);

    submit(connections[0], job, in, out);
    CHECK_EQ(reap_one(connections[0]), GPUPIPE_OK);
    desc.is_last = 1;
    desc.deadline_ns = UINT64_MAX; /* further off than any may be */
    CHECK_EQ(gpupipe_submit(connections[0], &desc, 1), 1);
    CHECK_EQ(reap_one(connections[0]), GPUPIPE_ERROR_RANGE);
    CHECK_EQ(await_end(connections[0], job), GPUPIPE_OK);
    gpupipe_job_free(job);
    gpupipe_ring_close(ring);
}

/* The same as gpupipe_job_end() behind it. */
static void test_a_last_push_through_the_socket(void)
{
    static uint8_t in[SIZE], out[SIZE];

    start();
    struct gpupipe_job *job = open_job(connections[0], NULL, NULL);
    struct gpupipe_desc desc = copy(job, in, out);

    random_bytes(in, SIZE);
    desc.is_last = 1;
    CHECK_EQ(gpupipe_submit(connections[0], &desc, 1), 1);
    CHECK_EQ(gpupipe_submit(connections[0], &desc, 1), GPUPIPE_ERROR_SEQ);
    CHECK_EQ(reap_one(connections[0]), GPUPIPE_OK);
    CHECK_EQ(await_end(connections[0], job), GPUPIPE_OK);
    CHECK_MEM(out, in, SIZE);
    gpupipe_job_free(job);
}

/* Small runs are a message each, large ones a job in a ring of the library's own. */
static void test_runs_after_another_programs_job(void)
{
    const size_t n_bytes = 1 << 21;
    uint8_t *in = random_new(n_bytes), *out = random_new(n_bytes);

    start();
    struct gpupipe_job *job = open_job(connections[0], NULL, NULL);
    const char *const tokens[] = {gpupipe_job_token(job)};
    struct gpupipe_job_opts opts = opts_after(tokens, 1);
    struct gpupipe_desc desc = copy(NULL, in, out);

    CHECK_EQ(strlen(tokens[0]), 32);
    check_ok(connections[0], gpupipe_job_end(job));
    check_ok(connections[1], gpupipe_run(connections[1], "copy", &size, 1, &opts, &desc, NULL));
    CHECK_MEM(out, in, SIZE);
    memset(out, 0xa5, n_bytes);
    desc.in[0].size = desc.out[0].size = n_bytes;
    check_ok(connections[1], gpupipe_run(connections[1], "copy", &size, 1, &opts, &desc, NULL));
    CHECK_MEM(out, in, n_bytes);
    CHECK_EQ(await_end(connections[0], job), GPUPIPE_OK);
}

static void test_what_cannot_be(void)
{
    uint8_t *in = random_new(SIZE), *out = random_new(SIZE);
    const char *many[17], *wrong[] = {NULL, "", "00000000000000000000000000000000",
                                      "000000000000000000000000000000000"};
    const int statuses[] = {GPUPIPE_ERROR_MISUSE, GPUPIPE_ERROR_MISUSE, GPUPIPE_ERROR_NOT_FOUND,
                            GPUPIPE_ERROR_NOT_FOUND};
    struct gpupipe_job_opts opts;
    struct gpupipe_job *job;

    start();
    for (unsigned i = 0; i < 4; i++) {
        opts = opts_after(&wrong[i], 1);
        CHECK_EQ(gpupipe_job_open(&job, connections[0], "copy", &size, 1, &opts), statuses[i]);
        CHECK_STR(gpupipe_last_error(connections[0])->field, "after");
    }
    job = open_job(connections[0], NULL, NULL);
    for (unsigned i = 0; i < 17; i++) {
        many[i] = gpupipe_job_token(job);
    }
    opts = opts_after(many, 17);
    CHECK_EQ(gpupipe_job_open(&job, connections[0], "copy", &size, 1, &opts), GPUPIPE_ERROR_RANGE);

    /* A run for which its own thread would have to do something meanwhile. */
    struct gpupipe_desc desc = copy(NULL, in, out);
    opts = opts_after(many, 1);
    CHECK_EQ(gpupipe_run(connections[0], "copy", &size, 1, &opts, &desc, NULL),
             GPUPIPE_ERROR_MISUSE);
    CHECK_HAS(gpupipe_last_error(connections[0])->message, "gpupipe_job_end()");
    check_ok(connections[0], gpupipe_job_end(job));
    check_ok(connections[0], gpupipe_run(connections[0], "copy", &size, 1, &opts, &desc, NULL));
    CHECK_MEM(out, in, SIZE);
    gpupipe_job_free(job);
}

static void test_after_one_that_is_cancelled(void)
{
    uint8_t *in = random_new(SIZE), *out = random_new(SIZE);

    start();
    struct gpupipe_job *first = open_job(connections[0], NULL, NULL);
    struct gpupipe_job *second = open_job(connections[1], NULL, gpupipe_job_token(first));

    submit(connections[1], second, in, out);
    check_ok(connections[0], gpupipe_job_cancel(first));
    CHECK_EQ(reap_one(connections[1]), GPUPIPE_ERROR_CANCELLED);
    CHECK_EQ(await_end(connections[1], second), GPUPIPE_ERROR_CANCELLED);
    CHECK_EQ(await_end(connections[0], first), GPUPIPE_ERROR_CANCELLED);
}

CHECK_MAIN(CHECK_TEST(test_two_steps_in_a_ring), CHECK_TEST(test_a_chain_of_last_pushes),
           CHECK_TEST(test_a_last_push_that_is_refused),
           CHECK_TEST(test_a_last_push_through_the_socket),
           CHECK_TEST(test_runs_after_another_programs_job), CHECK_TEST(test_what_cannot_be),
           CHECK_TEST(test_after_one_that_is_cancelled))
