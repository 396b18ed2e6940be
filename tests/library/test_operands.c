/*
 * Operands through libgpupipe: constants, and an input whose records differ in length.  The
 * daemon's worker has the ops of tests/operands.
 */
#include "client/gpupipe.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"

enum { WIDTH = 29, CHANNELS = 3, PITCH = 100, N_COLORS = 200, N_ROWS = 3000, N_TEXTS = 500 };

static const struct gpupipe_value palette_values[] = {
    {"width", GPUPIPE_INT, WIDTH, 0, NULL},
    {"channels", GPUPIPE_INT, CHANNELS, 0, NULL},
    {"pitch", GPUPIPE_INT, PITCH, 0, NULL},
    {"colors", GPUPIPE_INT, N_COLORS, 0, NULL},
};
#define N_VALUES (sizeof(palette_values) / sizeof(palette_values[0]))

static struct harness *harness;
static struct gpupipe *gpupipe;

static void close_it(void *arg)
{
    (void)arg;
    gpupipe_close(gpupipe);
}

static void start(void)
{
    static const char *const options[] = {"--backend",     "cpu", "--devices", "cpu0",
                                          "--pinned-pool", "64M", NULL};

    harness = harness_create();
    harness_place_worker(harness, "cpu", getenv("OPERANDS_WORKER"));
    harness_launch(harness, options);
    check_at_end(close_it, NULL);
    if (gpupipe_open(&gpupipe, harness_socket(harness), "test") < 0) {
        CHECK_FAIL("%s", gpupipe_last_error(gpupipe)->message);
    }
}

static void check_ok(int rc)
{
    if (rc < 0) {
        CHECK_FAIL("%s: %s", gpupipe_last_error(gpupipe)->name,
                   gpupipe_last_error(gpupipe)->message);
    }
}

/* ---- palette: 3 * sum + the color of each byte of a row ------------------------------------- */

static uint32_t colors[N_COLORS];
static uint64_t first;
static uint8_t rows[N_ROWS * PITCH];
static uint64_t sums[N_ROWS];

static void check_sums(void)
{
    for (int i = 0; i < N_ROWS; i++) {
        uint64_t expected = first;

        for (int x = 0; x < WIDTH * CHANNELS; x++) {
            expected = 3 * expected + colors[rows[i * PITCH + x] % N_COLORS];
        }
        CHECK_EQ(sums[i], expected);
    }
}

static void check_sha256(const char *sha256, const void *bytes, size_t size)
{
    struct harness_output output;

    harness_write(harness, "bytes", bytes, size);
    harness_shell(harness, &output, "sha256sum <bytes");
    output.out[strcspn(output.out, " ")] = '\0';
    CHECK_STR(sha256, output.out);
}

static struct gpupipe_desc describe_rows(void)
{
    struct gpupipe_desc desc;

    random_bytes(rows, sizeof(rows));
    random_bytes(sums, sizeof(sums));
    GPUPIPE_INIT(&desc);
    desc.n_records = N_ROWS;
    desc.n_in = 1;
    desc.in[0] = (struct gpupipe_span){rows, sizeof(rows)};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){sums, sizeof(sums)};
    return desc;
}

static void test_constants(void)
{
    struct gpupipe_completion completion;
    struct gpupipe_job_opts opts;
    struct gpupipe_desc desc;
    struct gpupipe_job *job;
    char sha256[GPUPIPE_SHA256_SIZE];
    uint64_t ids[2];

    start();
    random_bytes(colors, sizeof(colors));
    random_bytes(&first, sizeof(first));
    check_ok(gpupipe_const_put(gpupipe, colors, sizeof(colors), &ids[0], sha256));
    check_sha256(sha256, colors, sizeof(colors));
    check_ok(gpupipe_const_put(gpupipe, &first, sizeof(first), &ids[1], NULL));
    GPUPIPE_INIT(&opts);
    opts.consts = ids;
    opts.n_consts = 2;
    desc = describe_rows();
    check_ok(gpupipe_run(gpupipe, "palette", palette_values, N_VALUES, &opts, &desc, NULL));
    check_sums();

    check_ok(gpupipe_job_open(&job, gpupipe, "palette", palette_values, N_VALUES, &opts));
    check_ok(gpupipe_const_drop(gpupipe, ids[0]));
    check_ok(gpupipe_const_drop(gpupipe, ids[1]));
    desc = describe_rows();
    desc.job = job;
    CHECK_EQ(gpupipe_submit(gpupipe, &desc, 1), 1);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    GPUPIPE_INIT(&completion);
    CHECK_EQ(gpupipe_reap(gpupipe, &completion, 1), 1);
    CHECK_EQ(completion.status, GPUPIPE_OK);
    check_sums();
    CHECK_EQ(gpupipe_const_drop(gpupipe, ids[0]), GPUPIPE_ERROR_NOT_FOUND);
    CHECK_EQ(gpupipe_run(gpupipe, "palette", palette_values, N_VALUES, &opts, &desc, NULL),
             GPUPIPE_ERROR_NOT_FOUND);
}

/* More than the limit, and more than a message: both leave the connection as it was. */
static void test_a_constant_that_is_too_big(void)
{
    size_t size = 17 << 20;
    void *bytes = random_new(size);
    uint64_t id = 77;

    start();
    CHECK_LT(gpupipe_limit(gpupipe, "const_size"), size);
    CHECK_EQ(gpupipe_const_put(gpupipe, bytes, size, &id, NULL), GPUPIPE_ERROR_TOO_BIG);
    CHECK_EQ(gpupipe_const_put(gpupipe, bytes, UINT64_C(1) << 40, &id, NULL),
             GPUPIPE_ERROR_TOO_BIG);
    CHECK_EQ(id, 77);
    check_ok(gpupipe_const_put(gpupipe, bytes, 1 << 20, &id, NULL));
}

/* ---- spans: a hash of each text -------------------------------------------------------------- */

static uint32_t ends[N_TEXTS];
static uint16_t texts[N_TEXTS * 20];
static uint64_t hashes[N_TEXTS];

static void check_hashes(void)
{
    for (int i = 0; i < N_TEXTS; i++) {
        uint32_t begin = i == 0 ? 0 : ends[i - 1];
        uint64_t expected = ends[i] - begin;

        for (uint32_t k = begin; k < ends[i]; k++) {
            expected = expected * 31 + texts[k];
        }
        CHECK_EQ(hashes[i], expected);
    }
}

static void test_records_of_any_length(void)
{
    struct gpupipe_completion completion;
    struct gpupipe_desc desc;
    struct gpupipe_job *job;

    start();
    random_bytes(texts, sizeof(texts));
    random_bytes(hashes, sizeof(hashes));
    for (int i = 0; i < N_TEXTS; i++) {
        ends[i] = (i == 0 ? 0 : ends[i - 1]) + (uint32_t)random_below(21);
    }
    check_ok(gpupipe_job_open(&job, gpupipe, "spans", NULL, 0, NULL));
    CHECK_EQ(gpupipe_record_size(job, 0, 0), sizeof(ends[0]));
    CHECK_EQ(gpupipe_record_size(job, 0, 1), sizeof(texts[0]));
    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_records = N_TEXTS;
    desc.n_in = 2;
    desc.in[0] = (struct gpupipe_span){ends, sizeof(ends)};
    desc.in[1] = (struct gpupipe_span){texts, ends[N_TEXTS - 1] * sizeof(texts[0])};
    desc.n_out = 1;
    desc.out[0] = (struct gpupipe_room){hashes, sizeof(hashes)};
    CHECK_EQ(gpupipe_submit(gpupipe, &desc, 1), 1);
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    GPUPIPE_INIT(&completion);
    CHECK_EQ(gpupipe_reap(gpupipe, &completion, 1), 1);
    CHECK_EQ(completion.status, GPUPIPE_OK);
    check_hashes();
}

CHECK_MAIN(CHECK_TEST(test_constants), CHECK_TEST(test_a_constant_that_is_too_big),
           CHECK_TEST(test_records_of_any_length))
