/* Rings through libgpupipe, with a real daemon. */
#include "client/gpupipe.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB   ((uint64_t)1 << 20)
#define BLOCK 4096

static struct harness *daemon_;
static struct gpupipe *gpupipe;

static void close_it(void *arg)
{
    (void)arg;
    gpupipe_close(gpupipe);
}

static void check_ok(int rc)
{
    if (rc < 0) {
        CHECK_FAIL("%s: %s", gpupipe_last_error(gpupipe)->name,
                   gpupipe_last_error(gpupipe)->message);
    }
}

static void start(const char *ring_pool)
{
    daemon_ = harness_start("--ring-pool", ring_pool);
    check_at_end(close_it, NULL);
    check_ok(gpupipe_open(&gpupipe, harness_socket(daemon_), "test"));
}

static struct gpupipe_ring *open_ring(uint64_t size)
{
    struct gpupipe_ring *ring;

    check_ok(gpupipe_ring_open(&ring, gpupipe, size, NULL));
    return ring;
}

static void *take(struct gpupipe_ring *ring, uint64_t size)
{
    void *data = gpupipe_ring_alloc(ring, size);

    check_ok(data == NULL ? -1 : 0);
    return data;
}

static struct gpupipe_job *open_job(struct gpupipe_ring *ring, const char *op,
                                    const struct gpupipe_value *values, uint32_t n_values,
                                    enum gpupipe_tail tail, int is_unordered)
{
    struct gpupipe_job *job;
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.ring = ring;
    opts.tail = tail;
    opts.is_unordered = is_unordered;
    opts.window = 8;
    opts.wants_timing = 1;
    check_ok(gpupipe_job_open(&job, gpupipe, op, values, n_values, &opts));
    return job;
}

static struct gpupipe_completion await_one(void)
{
    struct gpupipe_completion completion;
    int n;

    GPUPIPE_INIT(&completion);
    while ((n = gpupipe_reap(gpupipe, &completion, 1)) == 0) {
        check_ok(gpupipe_wait(gpupipe, -1));
    }
    check_ok(n);
    if (completion.error != NULL) {
        CHECK_FAIL("%s", completion.error->message);
    }
    return completion;
}

static struct gpupipe_outcome await_end(struct gpupipe_job *job)
{
    struct gpupipe_outcome outcome;

    GPUPIPE_INIT(&outcome);
    check_ok(gpupipe_job_end(job));
    while (gpupipe_job_result(job, &outcome) == 0) {
        check_ok(gpupipe_wait(gpupipe, -1));
    }
    if (outcome.error != NULL) {
        CHECK_FAIL("%s", outcome.error->message);
    }
    return outcome;
}

static void submit(const struct gpupipe_desc *desc)
{
    int n = gpupipe_submit(gpupipe, desc, 1);

    check_ok(n);
    CHECK_EQ(n, 1);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* One push that is late, one that is not, and a program built before there were any. */
static void check_deadlines(struct gpupipe_ring *ring)
{
    struct gpupipe_value size = {"size", GPUPIPE_INT, BLOCK, 0, NULL};
    struct gpupipe_job *job = open_job(ring, "copy", &size, 1, GPUPIPE_TAIL_ERROR, 0);
    uint8_t *in = ring != NULL ? take(ring, BLOCK) : random_new(BLOCK);
    uint8_t *out = ring != NULL ? take(ring, BLOCK) : random_new(BLOCK);
    struct gpupipe_completion completion;
    struct gpupipe_outcome outcome;
    struct gpupipe_desc desc;

    random_bytes(in, BLOCK);
    memset(out, 0xa5, BLOCK);
    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.tag = 1;
    desc.n_records = 1;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){in, BLOCK};
    desc.out[0] = (struct gpupipe_room){out, BLOCK};
    desc.deadline_ns = 1;
    submit(&desc);
    GPUPIPE_INIT(&completion);
    while (gpupipe_reap(gpupipe, &completion, 1) == 0) {
        check_ok(gpupipe_wait(gpupipe, -1));
    }
    CHECK_EQ(completion.tag, 1);
    CHECK_EQ(completion.status, GPUPIPE_ERROR_DEADLINE);
    CHECK_STR(completion.error->name, "DEADLINE");
    CHECK_EQ(completion.n_records, 0);
    CHECK_EQ(completion.out_size[0], 0);
    for (unsigned i = 0; i < BLOCK; i++) {
        CHECK_EQ(out[i], 0xa5);
    }
    desc.deadline_ns = UINT64_C(3600000000000);
    submit(&desc);
    CHECK_EQ(await_one().n_records, 1);
    CHECK_MEM(out, in, BLOCK);
    desc.deadline_ns = 1;
    desc.size = offsetof(struct gpupipe_desc, deadline_ns);
    submit(&desc);
    CHECK_EQ(await_one().n_records, 1);
    outcome = await_end(job);
    CHECK_EQ(outcome.n_pushes, 3);
    CHECK_EQ(outcome.n_records, 2);
    gpupipe_job_free(job);
}

/* The daemon knows how long it takes, so it says no at once, and how long. */
static void test_what_is_not_admitted(void)
{
    static uint8_t in[8 << 20], out[8 << 20]; /* 2 Mi numbers, which take long */
    struct gpupipe_value n = {"n", GPUPIPE_INT, 50000, 0, NULL};
    struct gpupipe_job_opts opts;
    struct gpupipe_desc desc;
    struct gpupipe_job *job;

    start("64M");
    GPUPIPE_INIT(&opts);
    GPUPIPE_INIT(&desc);
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){in, BLOCK};
    desc.out[0] = (struct gpupipe_room){out, BLOCK};
    opts.deadline_ns = UINT64_C(3600000000000);
    opts.admit = 1; /* nobody has measured it yet */
    check_ok(gpupipe_run(gpupipe, "iterate", &n, 1, &opts, &desc, NULL));
    opts.deadline_ns = MIB;
    desc.in[0].size = desc.out[0].size = sizeof(in);
    CHECK_EQ(gpupipe_run(gpupipe, "iterate", &n, 1, &opts, &desc, NULL), GPUPIPE_ERROR_DEADLINE);
    CHECK_STR(gpupipe_last_error(gpupipe)->field, "admit");
    CHECK_GT(gpupipe_last_error(gpupipe)->predicted_ns, MIB);
    opts.total_size = sizeof(in);
    CHECK_EQ(gpupipe_job_open(&job, gpupipe, "iterate", &n, 1, &opts), GPUPIPE_ERROR_DEADLINE);
    CHECK_GT(gpupipe_last_error(gpupipe)->predicted_ns, MIB);
    opts.deadline_ns = UINT64_C(3600000000000);
    check_ok(gpupipe_job_open(&job, gpupipe, "iterate", &n, 1, &opts));
    gpupipe_job_free(job);
}

static void test_a_push_has_a_deadline_of_its_own(void)
{
    start("64M");
    check_deadlines(open_ring(MIB));
    check_deadlines(NULL);
}

/* ---- pushes whose memory comes and goes ----------------------------------------------------- */

enum { N_WORKS = 8 };

struct work {
    struct gpupipe_ring *ring;
    float *x, *y, *out;
    uint64_t n; /* 0: not under way */
};

static const struct gpupipe_value a = {"a", GPUPIPE_FLOAT, 0, 2.5, NULL};

/* False where the ring has no room for one of this size now. */
static bool begin_saxpy(struct work *work, struct gpupipe_job *job, uint64_t tag)
{
    uint64_t n = 1 + random_below((uint64_t)1 << (1 + random_below(17)));
    uint64_t size = n * sizeof(float);
    struct gpupipe_desc desc;

    work->x = gpupipe_ring_alloc(work->ring, size);
    work->y = gpupipe_ring_alloc(work->ring, size);
    work->out = gpupipe_ring_alloc(work->ring, size);
    if (work->x == NULL || work->y == NULL || work->out == NULL) {
        gpupipe_ring_free(work->ring, work->x);
        gpupipe_ring_free(work->ring, work->y);
        gpupipe_ring_free(work->ring, work->out);
        return false;
    }
    for (uint64_t i = 0; i < n; i++) {
        work->x[i] = (float)random_below(1 << 24) / 1024;
        work->y[i] = (float)random_below(1 << 24) / 1024;
    }
    memset(work->out, 0xee, size);
    work->n = n;
    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.tag = tag;
    desc.n_records = n;
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){work->x, size};
    desc.in[1] = (struct gpupipe_span){work->y, size};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){work->out, size};
    submit(&desc);
    return true;
}

static void end_saxpy(struct work *work)
{
    float *wanted = malloc(work->n * sizeof(float));

    reference_saxpy(2.5f, work->x, work->y, wanted, work->n);
    reference_check_floats(work->out, wanted, work->n);
    free(wanted);
    gpupipe_ring_free(work->ring, work->x);
    gpupipe_ring_free(work->ring, work->y);
    gpupipe_ring_free(work->ring, work->out);
    work->n = 0;
}

/* Two rings, a job in each, one of them unordered; all pieces of memory are new for each push. */
static void test_pushes_in_two_rings(void)
{
    struct work works[N_WORKS] = {0};
    struct gpupipe_job *jobs[2];
    struct gpupipe_ring *rings[2];
    int n_begun = 0, n_back = 0;

    start("256M");
    for (int i = 0; i < 2; i++) {
        rings[i] = open_ring(2 * MIB);
        jobs[i] = open_job(rings[i], "saxpy", &a, 1, GPUPIPE_TAIL_ERROR, i);
    }
    while (n_back < 1500) {
        struct work *work = &works[random_below(N_WORKS)];
        int which = (int)random_below(2);

        if (work->n == 0 && n_begun < 1500) {
            work->ring = rings[which];
            n_begun += begin_saxpy(work, jobs[which], (uint64_t)(work - works));
        }
        if (n_begun - n_back > N_WORKS / 2 || n_begun == 1500) {
            struct gpupipe_completion completion = await_one();

            CHECK_STR(completion.path, "ring");
            CHECK_STR(completion.backend, harness_backend());
            CHECK_HAS(completion.device, harness_backend());
            CHECK_GT(completion.timing->compute_ns, 0);
            CHECK_EQ(completion.n_records, works[completion.tag].n);
            CHECK_EQ(completion.out_size[0], works[completion.tag].n * sizeof(float));
            end_saxpy(&works[completion.tag]);
            n_back++;
        }
    }
    CHECK_EQ(await_end(jobs[0]).n_pushes + await_end(jobs[1]).n_pushes, 1500);
    for (int i = 0; i < 2; i++) {
        gpupipe_ring_free(rings[i], take(rings[i], 2 * MIB)); /* all of it is free again */
        gpupipe_ring_close(rings[i]);
    }
}

static void test_a_hundred_thousand_pushes(void)
{
    struct gpupipe_ring *ring;
    struct gpupipe_desc descs[8];
    uint64_t n_submitted = 0, n_back = 0;
    size_t used = 0;
    uint8_t *data;

    start("256M");
    ring = open_ring(MIB);
    data = take(ring, 16 * 64);
    for (int i = 0; i < 8; i++) {
        GPUPIPE_INIT(&descs[i]);
        descs[i].job =
            i == 0 ? open_job(ring, "copy", NULL, 0, GPUPIPE_TAIL_ERROR, 0) : descs[0].job;
        descs[i].n_records = 8;
        descs[i].n_in = descs[i].n_out = 1;
        descs[i].in[0] = (struct gpupipe_span){data + 128 * i, 8};
        descs[i].out[0] = (struct gpupipe_room){data + 128 * i + 64, 8};
    }
    while (n_back < 100000) {
        struct gpupipe_completion completions[8];
        uint64_t first = n_submitted % 8;
        int n;

        if (n_submitted < 100000) {
            memcpy(data + 128 * first, &n_submitted, sizeof(n_submitted));
            descs[first].tag = n_submitted;
            n = gpupipe_submit(gpupipe, &descs[first], 1);
            check_ok(n);
            n_submitted += (uint64_t)n;
        }
        if (n_submitted - n_back == 8 || n_submitted == 100000) {
            check_ok(gpupipe_wait(gpupipe, -1));
        }
        GPUPIPE_INIT(&completions[0]);
        n = gpupipe_reap(gpupipe, completions, 8);
        check_ok(n);
        for (int i = 0; i < n; i++, n_back++) {
            CHECK_EQ(completions[i].status, GPUPIPE_OK);
            CHECK_EQ(completions[i].tag, n_back);
            CHECK_MEM(data + 128 * (n_back % 8) + 64, &n_back, sizeof(n_back));
        }
        used = n_back < 1000 ? mallinfo2().uordblks : used;
    }
    CHECK_EQ(await_end(descs[0].job).n_records, 800000);
    if (HARNESS_SANITIZER_KIB == 0) {
        CHECK_LT(mallinfo2().uordblks, used + 16384);
    }
}

/* ---- what else a push may be ---------------------------------------------------------------- */

static void test_an_op_that_reduces(void)
{
    struct gpupipe_ring *ring;
    struct gpupipe_job *job;
    struct gpupipe_outcome outcome;
    struct gpupipe_desc desc;
    uint64_t multiple, n, done = 0;
    float *x, *in_ring;
    double sum;

    start("256M");
    ring = open_ring(16 * MIB);
    job = open_job(ring, "sum", NULL, 0, GPUPIPE_TAIL_ERROR, 0);
    multiple = gpupipe_push_multiple(job);
    n = 3 * multiple + 1 + random_below(multiple - 1);
    x = malloc(n * sizeof(float));
    in_ring = take(ring, n * sizeof(float));
    for (uint64_t i = 0; i < n; i++) {
        in_ring[i] = x[i] = (float)random_below(1 << 24) - (1 << 23);
    }
    while (done < n) {
        GPUPIPE_INIT(&desc);
        desc.job = job;
        desc.n_records = n - done < multiple ? n - done : multiple;
        desc.n_in = 1;
        desc.in[0] = (struct gpupipe_span){in_ring + done, desc.n_records * sizeof(float)};
        submit(&desc);
        done += desc.n_records;
        await_one();
    }
    outcome = await_end(job);
    CHECK_EQ(outcome.n_records, n);
    CHECK_EQ(outcome.out[0].size, sizeof(sum));
    memcpy(&sum, outcome.out[0].data, sizeof(sum));
    reference_check_sum(sum, x, n);
    free(x);
}

static void test_a_short_last_record(void)
{
    struct gpupipe_ring *ring;
    struct gpupipe_job *job;
    struct gpupipe_desc desc;
    uint64_t size = 100 * BLOCK + 1 + random_below(BLOCK - 1);
    uint8_t *in;
    const uint8_t *hashes;

    start("256M");
    ring = open_ring(2 * MIB);
    in = take(ring, 101 * BLOCK);
    random_bytes(in, 101 * BLOCK);
    GPUPIPE_INIT(&desc);
    desc.n_records = 101;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){in, size};
    desc.out[0] = (struct gpupipe_room){take(ring, 101 * 32), 101 * 32};
    job = desc.job = open_job(ring, "sha256", NULL, 0, GPUPIPE_TAIL_SHORT, 0);
    submit(&desc);
    CHECK_EQ(await_one().out_size[0], 101 * 32);
    hashes = reference_sha256(daemon_, in, size, BLOCK);
    CHECK_MEM(desc.out[0].data, hashes, 101 * 32);
    gpupipe_job_free(job);
    /* As if the record had been filled with zeros. */
    desc.job = open_job(ring, "sha256", NULL, 0, GPUPIPE_TAIL_ZERO, 0);
    submit(&desc);
    CHECK_EQ(await_one().out_size[0], 101 * 32);
    for (uint64_t i = size; i < 101 * BLOCK; i++) {
        CHECK_EQ(in[i], 0);
    }
    hashes = reference_sha256(daemon_, in, 101 * BLOCK, BLOCK);
    CHECK_MEM(desc.out[0].data, hashes, 101 * 32);
}

/* They had become zeros under the eyes of a program that had not read them yet. */
static void test_a_daemon_that_stops_leaves_the_results(void)
{
    struct gpupipe_ring *ring;
    struct gpupipe_desc desc;
    uint64_t size = MIB + random_below(MIB);
    uint8_t *bytes = random_new(size);

    start("256M");
    ring = open_ring(8 * MIB);
    GPUPIPE_INIT(&desc);
    desc.job = open_job(ring, "copy", NULL, 0, GPUPIPE_TAIL_ERROR, 0);
    desc.n_records = size;
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){memcpy(take(ring, size), bytes, size), size};
    desc.out[0] = (struct gpupipe_room){take(ring, size), size};
    submit(&desc);
    await_one();
    harness_stop(daemon_);
    CHECK_MEM(desc.out[0].data, bytes, size);
}

/* ---- texts, which differ in length, against themselves as a message ------------------------- */

enum { N_TEXTS = 300, PERMUTATIONS = 16 };
static uint32_t ends[N_TEXTS];
static uint8_t texts[N_TEXTS * 500];
static const struct gpupipe_value permutations = {"permutations", GPUPIPE_INT, PERMUTATIONS, 0,
                                                  NULL};

static struct gpupipe_desc describe_texts(void *out)
{
    struct gpupipe_desc desc;
    uint32_t end = 0;

    for (int i = 0; i < N_TEXTS; i++) {
        end += (uint32_t)random_below(500);
        ends[i] = end;
    }
    random_bytes(texts, sizeof(texts));
    GPUPIPE_INIT(&desc);
    desc.n_records = N_TEXTS;
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){ends, sizeof(ends)};
    desc.in[1] = (struct gpupipe_span){texts, end};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){out, N_TEXTS * PERMUTATIONS * 4};
    return desc;
}

static void test_an_input_whose_records_differ_in_length(void)
{
    static uint8_t wanted[N_TEXTS * PERMUTATIONS * 4];
    struct gpupipe_desc desc = describe_texts(wanted);
    struct gpupipe_ring *ring;

    start("256M");
    ring = open_ring(2 * MIB);
    check_ok(gpupipe_run(gpupipe, "minhash", &permutations, 1, NULL, &desc, NULL));
    desc.in[0].data = memcpy(take(ring, sizeof(ends)), ends, sizeof(ends));
    desc.in[1].data = memcpy(take(ring, sizeof(texts)), texts, desc.in[1].size);
    desc.out[0].data = take(ring, sizeof(wanted));
    desc.job = open_job(ring, "minhash", &permutations, 1, GPUPIPE_TAIL_ERROR, 0);
    submit(&desc);
    await_one();
    CHECK_MEM(desc.out[0].data, wanted, sizeof(wanted));
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct gpupipe_completion run(const char *op, const struct gpupipe_value *values,
                                     uint32_t n_values, enum gpupipe_tail tail,
                                     const struct gpupipe_desc *desc)
{
    struct gpupipe_completion completion;
    struct gpupipe_job_opts opts;

    GPUPIPE_INIT(&opts);
    opts.tail = tail;
    GPUPIPE_INIT(&completion);
    check_ok(gpupipe_run(gpupipe, op, values, n_values, &opts, desc, &completion));
    return completion;
}

static void check_saxpy_run(uint64_t n, const char *path)
{
    float *x = malloc(3 * n * sizeof(float)), *y = x + n, *wanted = y + n;
    float *out = malloc(n * sizeof(float));
    struct gpupipe_desc desc;

    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(random_below(1 << 24));
        y[i] = (float)i;
    }
    GPUPIPE_INIT(&desc);
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){x, n * sizeof(float)};
    desc.in[1] = (struct gpupipe_span){y, n * sizeof(float)};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){out, n * sizeof(float)};
    CHECK_STR(run("saxpy", &a, 1, GPUPIPE_TAIL_ERROR, &desc).path, path);
    reference_saxpy(2.5f, x, y, wanted, n);
    reference_check_floats(out, wanted, n);
    free(out);
    free(x);
}

static void test_runs_go_through_a_ring(void)
{
    static uint8_t hashes[3000 * 32];
    uint64_t size = (uint64_t)2000 * BLOCK + 1 + random_below((uint64_t)999 * BLOCK);
    struct gpupipe_desc desc;
    uint8_t *bytes;

    start("256M");
    check_saxpy_run(100, "inline");
    check_saxpy_run(1000000 + random_below(1000000), "ring");
    check_saxpy_run(10000000, "ring"); /* more than a message, or the ring, holds */
    bytes = random_new(size);
    GPUPIPE_INIT(&desc);
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){bytes, size};
    desc.out[0] = (struct gpupipe_room){hashes, sizeof(hashes)};
    CHECK_STR(run("sha256", NULL, 0, GPUPIPE_TAIL_SHORT, &desc).path, "ring");
    CHECK_MEM(hashes, reference_sha256(daemon_, bytes, size, BLOCK),
              (size + BLOCK - 1) / BLOCK * 32);
}

static void test_a_run_that_reduces(void)
{
    uint64_t n = 3000000 + random_below(3000000);
    float *x = malloc(n * sizeof(float));
    struct gpupipe_desc desc;
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)random_below(1 << 24) - (1 << 23);
    }
    start("256M");
    GPUPIPE_INIT(&desc);
    desc.n_in = desc.n_out = 1;
    desc.in[0] = (struct gpupipe_span){x, n * sizeof(float)};
    desc.out[0] = (struct gpupipe_room){&sum, sizeof(sum)};
    CHECK_STR(run("sum", NULL, 0, GPUPIPE_TAIL_ERROR, &desc).path, "ring");
    reference_check_sum(sum, x, n);
    free(x);
}

/* The same words for the same fault, whichever way the data would have gone. */
static void test_runs_that_are_refused(void)
{
    static uint8_t bytes[2 << 20], out[2 << 20];
    const struct gpupipe_value wrong = {"size", GPUPIPE_INT, -1, 0, NULL};
    const struct {
        const char *op;
        uint64_t in_size, out_size;
        uint32_t n_in, n_values;
    } cases[] = {
        {"none", 2 << 20, 2 << 20, 1, 0}, {"sha256", (2 << 20) - 1, 2 << 20, 1, 0},
        {"sha256", 2 << 20, 100, 1, 0},   {"copy", 2 << 20, 2 << 20, 2, 0},
        {"copy", 2 << 20, 2 << 20, 1, 1}, {"copy", 2 << 20, (2 << 20) - 1, 1, 0},
    };

    start("256M");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gpupipe_job_opts opts;
        struct gpupipe_desc desc;
        char message[256];
        int status;

        GPUPIPE_INIT(&opts);
        GPUPIPE_INIT(&desc);
        desc.n_in = cases[i].n_in;
        desc.in[0] = desc.in[1] = (struct gpupipe_span){bytes, cases[i].in_size};
        desc.n_out = 1;
        desc.out[0] = (struct gpupipe_room){out, cases[i].out_size};
        status = gpupipe_run(gpupipe, cases[i].op, &wrong, cases[i].n_values, &opts, &desc, NULL);
        CHECK_LT(status, 0);
        snprintf(message, sizeof(message), "%s", gpupipe_last_error(gpupipe)->message);
        opts.no_ring = 1;
        CHECK_EQ(gpupipe_run(gpupipe, cases[i].op, &wrong, cases[i].n_values, &opts, &desc, NULL),
                 status);
        CHECK_STR(gpupipe_last_error(gpupipe)->message, message);
    }
    check_saxpy_run(500000, "ring");
}

static void test_a_daemon_without_rings(void)
{
    struct gpupipe_ring *ring;

    start("0");
    check_saxpy_run(500000, "inline");
    CHECK_LT(gpupipe_ring_open(&ring, gpupipe, MIB, NULL), 0);
    check_saxpy_run(500000, "inline");
}

/* Its rings, with work under way, go with the connection: that breaks no rule. */
static void test_a_closed_connection_breaks_no_ring(void)
{
    const uint64_t n_bytes = MIB;
    struct wire *wire;

    start("256M");
    wire = wire_connect(harness_socket(daemon_));
    for (int round = 0; round < 20; round++) {
        struct gpupipe_ring *ring = open_ring(4 * MIB);
        struct gpupipe_desc desc;

        GPUPIPE_INIT(&desc);
        desc.job = open_job(ring, "copy", NULL, 0, GPUPIPE_TAIL_ERROR, 0);
        desc.n_in = desc.n_out = 1;
        desc.n_records = n_bytes;
        desc.in[0] = (struct gpupipe_span){take(ring, n_bytes), n_bytes};
        desc.out[0] = (struct gpupipe_room){take(ring, n_bytes), n_bytes};
        CHECK_EQ(gpupipe_submit(gpupipe, &desc, 1), 1);
        gpupipe_close(gpupipe);
        check_ok(gpupipe_open(&gpupipe, harness_socket(daemon_), "test"));
    }
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "rings") == 0);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "rings_total"), 20);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "rings_broken"), 0);
}

static void restore_limit(void *limit)
{
    setrlimit(RLIMIT_NOFILE, limit);
    free(limit);
}

/* Of its three descriptors none, one or two arrive: the ring goes back, the connection lives. */
static void test_a_program_that_may_open_no_more_files(void)
{
    struct rlimit *usual = malloc(sizeof(*usual)), few;
    struct gpupipe_ring *ring;
    struct wire *wire;
    int n_fds;

    start("256M");
    wire = wire_connect(harness_socket(daemon_));
    check_saxpy_run(1000, "inline");
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, usual), 0);
    check_at_end(restore_limit, usual);
    n_fds = check_count_fds();
    for (rlim_t n_left = 0; n_left < 3; n_left++) {
        int free_fd = dup(STDIN_FILENO);

        CHECK_GT(free_fd, 0);
        close(free_fd);
        few = (struct rlimit){(rlim_t)free_fd + n_left, usual->rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        CHECK_EQ(gpupipe_ring_open(&ring, gpupipe, MIB, NULL), GPUPIPE_ERROR_OUT_OF_MEMORY);
        CHECK_HAS(gpupipe_last_error(gpupipe)->message, "this process has too many open");
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, usual), 0);
        check_saxpy_run(1000, "inline");
        HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "rings") == 0);
    }
    gpupipe_ring_close(open_ring(MIB));
    CHECK_EQ(check_count_fds(), n_fds);
}

CHECK_MAIN(CHECK_TEST(test_what_is_not_admitted), CHECK_TEST(test_a_push_has_a_deadline_of_its_own),
           CHECK_TEST(test_pushes_in_two_rings), CHECK_TEST(test_a_hundred_thousand_pushes),
           CHECK_TEST(test_an_op_that_reduces), CHECK_TEST(test_a_short_last_record),
           CHECK_TEST(test_a_daemon_that_stops_leaves_the_results),
           CHECK_TEST(test_an_input_whose_records_differ_in_length),
           CHECK_TEST(test_runs_go_through_a_ring), CHECK_TEST(test_a_run_that_reduces),
           CHECK_TEST(test_runs_that_are_refused), CHECK_TEST(test_a_daemon_without_rings),
           CHECK_TEST(test_a_closed_connection_breaks_no_ring),
           CHECK_TEST(test_a_program_that_may_open_no_more_files))
