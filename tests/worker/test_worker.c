/*
 * The worker program, with the test as its front end and no daemon: the command line,
 * the greeting and work of every kind.
 *
 * GPUPIPE_WORKER is the program, whatever its backend; GPUPIPE_BACKEND says which that is.  A
 * backend that finds no device says so in place of its greeting, and the test is skipped.
 */
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#include <fcntl.h>
#include <sys/mman.h>

#define REAL         "GPUPIPE_WORKER"
#define SEGMENT_SIZE (1u << 20)

static struct front front; /* of the running test */

/* What is peculiar to each backend. */
static const struct backend {
    const char *name;
    const char *chunk_size;
    bool has_threads;
} backends[] = {
    {"cpu", "\nchunk_size=1048576\n", true},
    {"cuda", "\nchunk_size=8388608\n", false},
};

static const struct backend *backend(void)
{
    const char *name = getenv("GPUPIPE_BACKEND");

    for (uint32_t i = 0; i < ARRAY_SIZE(backends); i++) {
        if (name != NULL && strcmp(backends[i].name, name) == 0) {
            return &backends[i];
        }
    }
    CHECK_FAIL("GPUPIPE_BACKEND names no backend");
}

/* ---- the command line ---------------------------------------------------------------------- */

/* Output and exit status of the worker, run by hand. */
static int run_by_hand(const char *arguments, char *ret_output, size_t size)
{
    char command[512];
    FILE *pipe;
    size_t n;

    snprintf(command, sizeof(command), "'%s' %s 2>&1 3<&-", getenv(REAL), arguments);
    pipe = popen(command, "re");
    CHECK(pipe != NULL);
    n = fread(ret_output, 1, size - 1, pipe);
    ret_output[n] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void test_probe(void)
{
    char output[4096], words[128];
    int code = run_by_hand("--probe", output, sizeof(output));

    if (code == EXIT_FAILURE && strstr(output, "NO_DEVICE: ") != NULL) {
        output[strcspn(output, "\n")] = '\0';
        CHECK_SKIP("%.200s", output);
    }
    CHECK_EQ(code, 0);
    snprintf(words, sizeof(words), "backend=%s\ndevices=", backend()->name);
    CHECK_HAS(output, words);
    CHECK_HAS(output, "\nmemory=");
    CHECK_HAS(output, backend()->chunk_size);
    CHECK_HAS(output, "\nbulk_chunks=");
    CHECK_HAS(output, "\nbulk_bytes=");
    CHECK_HAS(output, "\nthreads=");
    CHECK_HAS(output, "\nops=align_score,copy,dhash,gray,iterate,minhash,resize,rs16,saxpy,sha256,"
                      "sincos,sum\n");
}

static void test_command_line(void)
{
    char output[4096], version[128];

    CHECK_EQ(run_by_hand("--version", output, sizeof(output)), 0);
    snprintf(version, sizeof(version), "gpupipe-worker-%s %s\n", backend()->name, GPUPIPE_VERSION);
    CHECK_STR(output, version);
    CHECK_EQ(run_by_hand("--help", output, sizeof(output)), 0);
    CHECK_HAS(output, "--probe");
    CHECK_EQ(run_by_hand("", output, sizeof(output)), 2);
    CHECK_HAS(output, "no control socket");
    CHECK_EQ(run_by_hand("3</dev/null", output, sizeof(output)), 2);
    CHECK_HAS(output, "no control socket");
    CHECK_EQ(run_by_hand("--nonsense", output, sizeof(output)), 2);
    CHECK_HAS(output, "--help");
    CHECK_EQ(run_by_hand("--probe --probe", output, sizeof(output)), 2);
}

/* ---- the greeting -------------------------------------------------------------------------- */

static void test_greeting(void)
{
    struct failure failure;

    front_start_ready(&front, REAL, 0);
    CHECK_STR(front.caps.backend, backend()->name);
    CHECK_GE(front.caps.n_devices, 1);
    CHECK_EQ(front.caps.n_threads > 0, backend()->has_threads);
    CHECK_GE(front.caps.bulk_chunks, 2);
    CHECK_EQ(front.caps.n_ops, 12);
    for (uint32_t i = 0; i < front.caps.n_ops; i++) {
        CHECK_EQ(manifest_check(&front.ops[i], &failure), 0);
    }
    CHECK_STR(front.ops[0].name, "align_score");
}

static void test_process_settings(void)
{
    char path[64], score[16] = "";
    int fd;

    front_start(&front, REAL);
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", front.pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_GT(read(fd, score, sizeof(score) - 1), 0);
    close(fd);
    CHECK_GE(atoi(score), 500);
}

/* ---- work ---------------------------------------------------------------------------------- */

/* y = a x + y, each array in a segment of its own, in chunks whose answers may come in any order.
 */
static void test_map_over_several_segments(void)
{
    enum { N_RECORDS = 200000, N_CHUNKS = 40, CHUNK = N_RECORDS / N_CHUNKS };
    struct front_answer answers[N_CHUNKS];
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 2.5};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    float *x, *y, *z;
    uint32_t op;

    front_start_ready(&front, REAL, UINT32_MAX - 20);
    op = front_op(&front, "saxpy");
    CHECK_EQ(manifest_pack(&front.ops[op], &a, 1, params, &failure), 0);
    front_set_job(&front, 3, op, params, sizeof(params));
    x = front_add_segment(&front, 1, SEGMENT_SIZE);
    y = front_add_segment(&front, 5, SEGMENT_SIZE);
    z = front_add_segment(&front, 2, SEGMENT_SIZE);
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        x[i] = (float)(int32_t)random_u64() / 1024;
        y[i] = (float)(int32_t)random_u64() / 4096;
    }
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        size_t offset = i * CHUNK * sizeof(float);
        front_submit(&front, i % PRIORITY_COUNT,
                     (struct work_entry){
                         .job_slot = 3,
                         .n_records = CHUNK,
                         .ref = {WORK_REF(1, offset), WORK_REF(5, offset), WORK_REF(2, offset)}});
    }
    front_await(&front, answers, N_CHUNKS);
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        CHECK_EQ(answers[i].result.status, STATUS_OK);
        CHECK_EQ(answers[i].result.out_size[0], CHUNK * sizeof(float));
        uint64_t offset = WORK_REF_OFFSET(answers[i].entry.ref[0]);
        CHECK_EQ(offset / (CHUNK * sizeof(float)) % PRIORITY_COUNT, answers[i].priority);
    }
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        volatile float product = 2.5f * x[i]; /* rounded twice, never fused */
        float expected = product + y[i];
        CHECK_MEM(&z[i], &expected, sizeof(expected));
    }
    CHECK_EQ(((uint32_t *)z)[N_RECORDS], 0xa5a5a5a5u);
}

/* LEAVES over chunks that are multiples of the leaf, MERGE twice, FINISH; whole numbers are exact.
 */
static void test_reduce(void)
{
    enum { N_RECORDS = 200000 };
    struct work_result result;
    const struct manifest_op *op;
    uint32_t split, n_leaves, n_first;
    double expected = 0, got;
    float *x;
    void *out;

    front_start_ready(&front, REAL, 0);
    op = &front.ops[front_op(&front, "sum")];
    front_set_job(&front, 0, front_op(&front, "sum"), NULL, 0);
    x = front_add_segment(&front, 0, SEGMENT_SIZE);
    out = front_add_segment(&front, 1, SEGMENT_SIZE);
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        int32_t whole = (int32_t)random_u64() / 256;
        x[i] = (float)whole;
        expected += (double)x[i];
    }
    n_leaves = (uint32_t)div_round_up(N_RECORDS, op->leaf);
    n_first = n_leaves / 2;
    split = n_first * op->leaf;
    /* Partials from 4096 on, folds at 0 and 1024, the result at 2048. */
    result = front_run(&front, PRIORITY_BULK,
                       (struct work_entry){.kind = WORK_LEAVES,
                                           .n_records = split,
                                           .ref = {WORK_REF(0, 0), WORK_REF(1, 4096)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(result.out_size[0], n_first * op->partial_size);
    result =
        front_run(&front, PRIORITY_BULK,
                  (struct work_entry){.kind = WORK_LEAVES,
                                      .n_records = N_RECORDS - split,
                                      .ref = {WORK_REF(0, split * sizeof(float)),
                                              WORK_REF(1, 4096 + n_first * op->partial_size)}});
    CHECK_EQ(result.status, STATUS_OK);
    result =
        front_run(&front, PRIORITY_NORMAL,
                  (struct work_entry){.kind = WORK_MERGE,
                                      .n_records = n_first,
                                      .ref = {WORK_REF_NONE, WORK_REF(1, 4096), WORK_REF(1, 0)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(result.out_size[0], op->partial_size);
    result = front_run(
        &front, PRIORITY_NORMAL,
        (struct work_entry){.kind = WORK_MERGE,
                            .n_records = n_leaves - n_first,
                            .ref = {WORK_REF(1, 0), WORK_REF(1, 4096 + n_first * op->partial_size),
                                    WORK_REF(1, 1024)}});
    CHECK_EQ(result.status, STATUS_OK);
    result = front_run(&front, PRIORITY_URGENT,
                       (struct work_entry){.kind = WORK_FINISH,
                                           .n_records = 1,
                                           .ref = {WORK_REF(1, 1024), WORK_REF(1, 2048)}});
    CHECK_EQ(result.status, STATUS_OK);
    memcpy(&got, (char *)out + 2048, sizeof(got));
    CHECK(got == expected);
}

/* No records at all: an empty fold, made of nothing, is still a result. */
static void test_reduce_of_nothing(void)
{
    struct work_result result;
    double *out;

    front_start_ready(&front, REAL, 0);
    front_set_job(&front, 0, front_op(&front, "sum"), NULL, 0);
    out = front_add_segment(&front, 1, 4096);
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.kind = WORK_MERGE,
                                           .ref = {WORK_REF_NONE, WORK_REF_NONE, WORK_REF(1, 0)}});
    CHECK_EQ(result.status, STATUS_OK);
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.kind = WORK_FINISH,
                                           .n_records = 1,
                                           .ref = {WORK_REF(1, 0), WORK_REF(1, 1024)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK(out[128] == 0.0);
}

/* ---- segments that come and go -------------------------------------------------------------- */

/* A whole segment, doubled into another, or into the k-th part of a larger one. */
static struct work_entry doubling_to_part(uint32_t from, uint32_t to, uint32_t k)
{
    return (struct work_entry){
        .n_records = SEGMENT_SIZE / sizeof(float),
        .ref = {WORK_REF(from, 0), WORK_REF(from, 0), WORK_REF(to, k * SEGMENT_SIZE)}};
}

static struct work_entry doubling(uint32_t from, uint32_t to)
{
    return doubling_to_part(from, to, 0);
}

static void check_doubled(const float *x, const float *z)
{
    for (uint32_t i = 0; i < SEGMENT_SIZE / sizeof(float); i++) {
        CHECK(z[i] == 2 * x[i]); /* exact */
    }
}

/* y = x + x */
static void start_doubling(void)
{
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 1};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    uint32_t op;

    front_start_ready(&front, REAL, 0);
    op = front_op(&front, "saxpy");
    CHECK_EQ(manifest_pack(&front.ops[op], &a, 1, params, &failure), 0);
    front_set_job(&front, 0, op, params, sizeof(params));
}

/* While work that names others is in flight, again and again under the same id. */
static void test_segments_come_and_go(void)
{
    enum { N_TIMES = 20, N_BEHIND = 4 };
    struct front_answer answers[N_BEHIND];
    float *x, *z;

    start_doubling();
    x = front_add_segment(&front, 1, SEGMENT_SIZE);
    z = front_add_segment(&front, 2, N_BEHIND * SEGMENT_SIZE); /* each writes to its own part */
    random_floats(x, SEGMENT_SIZE / sizeof(float));
    for (uint32_t i = 0; i < N_TIMES; i++) {
        float *come;

        for (uint32_t k = 0; k < N_BEHIND; k++) {
            front_submit(&front, PRIORITY_BULK, doubling_to_part(1, 2, k));
        }
        come = front_add_segment(&front, 3, SEGMENT_SIZE << (i % 3));
        front_await(&front, answers, N_BEHIND);
        CHECK_EQ(front_run(&front, PRIORITY_NORMAL, doubling(1, 3)).status, STATUS_OK);
        check_doubled(x, come);
        for (uint32_t k = 0; k < N_BEHIND; k++) {
            front_submit(&front, PRIORITY_BULK, doubling_to_part(1, 2, k));
        }
        front_drop_segment(&front, 3);
        front_await(&front, answers, N_BEHIND);
        CHECK_EQ(answers[N_BEHIND - 1].result.status, STATUS_OK);
        shm_unmap(front.segments[3].base, front.segments[3].size);
        front.segments[3].base = NULL;
    }
    for (uint32_t k = 0; k < N_BEHIND; k++) {
        check_doubled(x, z + k * (SEGMENT_SIZE / sizeof(float)));
    }
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL, doubling(1, 3)).status, STATUS_RANGE);
}

/* A descriptor that is no memfd, one that may shrink, more bytes than it has: each is refused. */
static void test_segments_that_it_cannot_have(void)
{
    int loose_fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = shm_create("segment", SEGMENT_SIZE);
    float *x, *z;

    CHECK_GE(fd, 0);
    CHECK_EQ(ftruncate(loose_fd, SEGMENT_SIZE), 0);
    start_doubling();
    x = front_add_segment(&front, 1, SEGMENT_SIZE);
    random_floats(x, SEGMENT_SIZE / sizeof(float));
    front_expect_refusal(&front, 2, front.doorbell_fd, SEGMENT_SIZE, "segment 2");
    front_expect_refusal(&front, 2, loose_fd, SEGMENT_SIZE, "1048576 bytes");
    front_expect_refusal(&front, 2, fd, 2 * SEGMENT_SIZE, "2097152 bytes");
    front_expect_refusal(&front, 2, fd, 0, "0 bytes");
    close(loose_fd);
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL, doubling(1, 2)).status, STATUS_RANGE);
    z = front_lend_segment(&front, 2, fd, SEGMENT_SIZE);
    close(fd);
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL, doubling(1, 2)).status, STATUS_OK);
    check_doubled(x, z);
}

/* ---- parameters that are wrong --------------------------------------------------------------- */

/* Parameters that no front end packs: a record of nothing, and one larger than a segment may be. */
static void test_bad_parameters(void)
{
    static const uint32_t blocks[] = {0, LIMIT_RECORD + 1, UINT32_MAX};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct work_result result;
    struct failure failure;
    uint32_t op;

    front_start_ready(&front, REAL, 0);
    front_add_segment(&front, 0, SEGMENT_SIZE);
    op = front_op(&front, "sha256");
    CHECK_STR(front.ops[op].params[0].name, "block");
    CHECK_EQ(manifest_pack(&front.ops[op], NULL, 0, params, &failure), 0);
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
        memcpy(params + front.ops[op].params[0].offset, &blocks[i], sizeof(blocks[i]));
        front_set_job(&front, 0, op, params, sizeof(params));
        result = front_run(&front, PRIORITY_NORMAL,
                           (struct work_entry){.n_records = 1, .ref = {0, 65536}});
        CHECK_EQ(result.status, STATUS_RANGE);
        CHECK_HAS(front.error.text, "sha256");
    }
}

CHECK_MAIN(CHECK_TEST(test_probe), CHECK_TEST(test_command_line), CHECK_TEST(test_greeting),
           CHECK_TEST(test_process_settings), CHECK_TEST(test_map_over_several_segments),
           CHECK_TEST(test_reduce), CHECK_TEST(test_reduce_of_nothing),
           CHECK_TEST(test_segments_come_and_go), CHECK_TEST(test_segments_that_it_cannot_have),
           CHECK_TEST(test_bad_parameters))
