/*
 * Every op on the CPU worker and on the CUDA worker, over the same random data: the same answers
 * and the same bytes, also behind the outputs, where nothing may have changed.  What the ops must
 * give is tested against independent references elsewhere (tests/ops); here only that both give it,
 * but for sincos, where both may differ.
 *
 * GPUPIPE_WORKER_CPU and GPUPIPE_WORKER_CUDA are the programs.  GPUPIPE_TEST_BYTES=N in the
 * environment keeps arrays below N bytes, for a GPU worker that compute-sanitizer makes slow.
 */
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/sincos_reference.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#include <math.h>

enum { CPU, CUDA, N_BACKENDS };

#define IN_0         0u /* segments, in both workers */
#define IN_1         1u
#define OUT          2u
#define CONSTS       3u
#define SEGMENT_SIZE (20u << 20)
#define SLACK        4096u /* looked at behind an output */
#define CONST_ROOM   8192u /* for one constant of one job */

static struct front fronts[N_BACKENDS]; /* of the running test */

static void start(void)
{
    front_start_ready(&fronts[CUDA], "GPUPIPE_WORKER_CUDA", 0);
    front_start_ready(&fronts[CPU], "GPUPIPE_WORKER_CPU", 0);
    for (uint32_t b = 0; b < N_BACKENDS; b++) {
        front_add_segment(&fronts[b], IN_0, SEGMENT_SIZE);
        front_add_segment(&fronts[b], IN_1, SEGMENT_SIZE);
        front_add_segment(&fronts[b], OUT, SEGMENT_SIZE);
        front_add_segment(&fronts[b], CONSTS, FRONT_JOBS * LIMIT_CONSTS * CONST_ROOM);
    }
}

/* Both end by themselves, having found nothing to complain about. */
static void stop(void)
{
    const struct control_message message = {.type = CONTROL_STOP, .abi = WORKER_ABI};

    for (uint32_t b = 0; b < N_BACKENDS; b++) {
        front_send(&fronts[b], &message, NULL, 0);
        front_expect_exit(&fronts[b], 0);
    }
}

/* Of the largest array of an entry. */
static uint64_t max_bytes(void)
{
    const char *text = getenv("GPUPIPE_TEST_BYTES");

    return text != NULL ? strtoull(text, NULL, 0) : SEGMENT_SIZE - SLACK;
}

static uint8_t *bytes_of(uint32_t backend, uint32_t segment)
{
    return fronts[backend].segments[segment].base;
}

/* The same fresh bytes in both workers. */
static void fill(uint32_t segment, size_t offset, size_t size, bool is_finite)
{
    uint8_t *bytes = bytes_of(CPU, segment) + offset;

    if (is_finite) {
        random_floats((float *)(void *)bytes, size / sizeof(float));
    } else {
        random_bytes(bytes, size);
    }
    memcpy(bytes_of(CUDA, segment) + offset, bytes, size);
}

static void compare_bytes(uint32_t segment, size_t offset, size_t size)
{
    const uint8_t *want = bytes_of(CPU, segment) + offset;
    const uint8_t *got = bytes_of(CUDA, segment) + offset;

    if (memcmp(want, got, size) != 0) {
        CHECK_MEM(got, want, size);
    }
}

/* Any NaN equals any NaN.  An op with a tolerance adds terms up to 1, which may cancel. */
static bool are_same(float a, float b, double tolerance)
{
    const double ulp = nextafterf(fmaxf(fabsf(a), fabsf(b)), INFINITY) - fmaxf(fabsf(a), fabsf(b));

    if (tolerance > 0 && fabs((double)a - (double)b) <= fmax(tolerance * ulp, 0x1p-49)) {
        return true;
    }
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* What the op has put out: the same bits, or floats within the op's tolerance. */
static void compare(size_t offset, size_t size, const struct manifest_op *op)
{
    const uint8_t *want = bytes_of(CPU, OUT) + offset;
    const uint8_t *got = bytes_of(CUDA, OUT) + offset;

    if (op->out[0].dtype != DTYPE_F32) {
        compare_bytes(OUT, offset, size);
        return;
    }
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
        float a, b;

        memcpy(&a, want + i, sizeof(a));
        memcpy(&b, got + i, sizeof(b));
        if (!are_same(a, b, op->tolerance)) {
            CHECK_FAIL("float %zu of %s is %a on the CPU and %a on the GPU", i / sizeof(float),
                       op->name, (double)a, (double)b);
        }
    }
}

static struct work_result run_both(enum priority priority, struct work_entry entry)
{
    struct work_result want = front_run(&fronts[CPU], priority, entry);
    struct work_result got = front_run(&fronts[CUDA], priority, entry);

    CHECK_EQ(got.status, want.status);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        CHECK_EQ(got.out_size[i], want.out_size[i]);
    }
    return got;
}

/* ---- map ops ------------------------------------------------------------------------------- */

/* Parameters of an image, and of what it is resized to. */
#define IMAGE(w, h, n_channels, bytes)                                                             \
    {.name = "width", .i = (w)}, {.name = "height", .i = (h)},                                     \
        {.name = "channels", .i = (n_channels)},                                                   \
    {                                                                                              \
        .name = "pitch", .i = (bytes)                                                              \
    }
#define RESULT(w, h, word)                                                                         \
    {.name = "out_width", .i = (w)}, {.name = "out_height", .i = (h)},                             \
    {                                                                                              \
        .name = "filter", .kind = VALUE_STRING, .s = (word)                                        \
    }

/* Of rs16. */
#define SLICES(n_in, n_out, n_words)                                                               \
    {.name = "k", .i = (n_in)}, {.name = "m", .i = (n_out)},                                       \
    {                                                                                              \
        .name = "n", .i = (n_words)                                                                \
    }

static const struct row {
    const char *op;
    struct value params[8]; /* up to the first without a name */
    bool has_tail;
} rows[] = {
    {"align_score", {{.name = "length", .i = 1}}, false},
    {"align_score", {{.name = "length", .i = 100}}, false},
    {"align_score", {{.name = "length", .i = 512}, {.name = "band", .i = 50}}, false},
    {"copy", {{.name = "size", .i = 1}}, false},
    {"copy", {{.name = "size", .i = 3}}, false},
    {"copy", {{.name = "size", .i = 4096}}, false},
    {"copy", {{.name = "size", .i = 4 << 20}}, false},
    {"copy", {{.name = "size", .i = LIMIT_RECORD}}, false},
    {"dhash", {IMAGE(1, 1, 1, 1)}, false},
    {"dhash", {IMAGE(250, 40, 3, 757)}, false},
    {"dhash", {IMAGE(1000, 700, 1, 1024)}, false},
    {"gray", {{.name = ""}}, false},
    {"iterate", {{.name = "n", .i = 0}}, false},
    {"iterate", {{.name = "n", .i = 1}}, false},
    {"iterate", {{.name = "n", .i = 30}}, false},
    {"minhash", {{.name = "permutations", .i = 1}}, false},
    {"minhash", {{.name = "permutations", .i = 128}, {.name = "ngram", .i = 9}}, false},
    {"minhash", {{.name = "permutations", .i = 300}, {.name = "seed", .i = UINT32_MAX}}, false},
    {"resize", {IMAGE(5, 3, 1, 7), RESULT(9, 8, "nearest")}, false},
    {"resize", {IMAGE(130, 40, 3, 391), RESULT(20, 31, "box")}, false},
    {"resize", {IMAGE(130, 40, 4, 520), RESULT(20, 61, "bilinear")}, false},
    {"resize", {IMAGE(1500, 300, 2, 3000), RESULT(7, 3, "bilinear")}, false},
    {"rs16", {SLICES(1, 1, 16)}, false},
    {"rs16", {SLICES(10, 9, 257)}, false},
    {"rs16", {SLICES(16, 8, 4096)}, false},
    {"rs16", {SLICES(300, 3, 3)}, false},
    {"rs16", {SLICES(100, 20, 5000)}, false},
    {"saxpy", {{.name = "a", .kind = VALUE_FLOAT, .f = 2.5}}, false},
    {"saxpy", {{.name = "a", .kind = VALUE_FLOAT, .f = -1e-30}}, false},
    {"sha256", {{.name = "block", .i = 1}}, true},
    {"sha256", {{.name = "block", .i = 55}}, true},
    {"sha256", {{.name = "block", .i = 64}}, true},
    {"sha256", {{.name = "block", .i = 65}}, true},
    {"sha256", {{.name = "block", .i = 4096}}, true},
    {"sha256", {{.name = "block", .i = 65536}}, true},
    {"sincos", {{.name = ""}}, false},
};

/* A row in both workers, as job slot 0 .. */
struct job {
    const struct manifest_op *op;
    uint32_t slot;
    uint32_t in_size[LIMIT_IN]; /* of a record */
    uint32_t out_size;
    uint32_t largest;
    bool has_tail;
};

/* Fresh constants for the job that slot is set to. */
static void set_consts(const struct manifest_op *op, uint32_t slot, const uint8_t *params)
{
    static uint64_t last_id;
    struct failure failure;
    uint32_t size;

    for (uint32_t i = 0; i < op->n_consts; i++) {
        const size_t offset = (slot * LIMIT_CONSTS + i) * CONST_ROOM;
        const struct job_const constant = {.ref = WORK_REF(CONSTS, offset), .id = ++last_id};

        CHECK_EQ(manifest_record_size(op, &op->consts[i], params, &size, &failure), 0);
        CHECK_LE(size, CONST_ROOM);
        fill(CONSTS, offset, size, false);
        fronts[CPU].jobs[slot].consts[i] = constant;
        fronts[CUDA].jobs[slot].consts[i] = constant;
    }
}

static struct job open_job(const struct row *row, uint32_t slot)
{
    uint32_t index = front_op(&fronts[CPU], row->op);
    struct job job = {.op = &fronts[CPU].ops[index], .slot = slot, .has_tail = row->has_tail};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    uint32_t n_params = 0;

    while (row->params[n_params].name[0] != '\0') {
        n_params++;
    }
    CHECK_EQ(front_op(&fronts[CUDA], row->op), index);
    CHECK_EQ(manifest_pack(job.op, row->params, n_params, params, &failure), 0);
    front_set_job(&fronts[CPU], slot, index, params, sizeof(params));
    front_set_job(&fronts[CUDA], slot, index, params, sizeof(params));
    set_consts(job.op, slot, params);
    CHECK_EQ(job.op->n_out, 1);
    for (uint32_t i = 0; i < job.op->n_in; i++) {
        CHECK_EQ(manifest_record_size(job.op, &job.op->in[i], params, &job.in_size[i], &failure),
                 0);
        job.largest = MAX(job.largest, job.in_size[i]);
    }
    CHECK_EQ(manifest_record_size(job.op, &job.op->out[0], params, &job.out_size, &failure), 0);
    job.largest = MAX(job.largest, job.out_size);
    return job;
}

/* Inputs at in_offset of their segments, the output at out_offset. */
static struct work_entry map_entry(const struct job *job, uint32_t n_records, size_t in_offset,
                                   size_t out_offset)
{
    struct work_entry entry = {.job_slot = job->slot, .n_records = n_records};

    for (uint32_t i = 0; i < job->op->n_in; i++) {
        entry.ref[i] = WORK_REF(i == 0 ? IN_0 : IN_1, in_offset);
    }
    entry.ref[job->op->n_in] = WORK_REF(OUT, out_offset);
    return entry;
}

/*
 * The varying input of these records, input 1, and its ends, input 0: records of about 60 bytes,
 * some of none, few of them longer.  Returns its size.
 */
static uint64_t fill_varying(uint32_t n_records)
{
    const uint64_t size = MIN((uint64_t)n_records * 60 + 5000, max_bytes());
    uint32_t *ends = (void *)bytes_of(CPU, IN_0);
    uint64_t end = 0;

    fill(IN_1, 0, size, false);
    for (uint32_t i = 0; i < n_records; i++) {
        end = i == n_records - 1 ? size : end + random_below(2 * (size - end) / (n_records - i));
        ends[i] = (uint32_t)end;
    }
    memcpy(bytes_of(CUDA, IN_0), ends, n_records * sizeof(*ends));
    return size;
}

static void check_map(const struct job *job, uint32_t n_records, uint32_t tail_size)
{
    struct work_entry entry = map_entry(job, n_records, 0, 0);
    size_t out_size = (size_t)n_records * job->out_size;
    struct work_result result;

    entry.tail_size = tail_size;
    for (uint32_t i = 0; i < job->op->n_in; i++) {
        fill(i == 0 ? IN_0 : IN_1, 0, (size_t)n_records * job->in_size[i], false);
    }
    if (manifest_varying(job->op) != 0) {
        entry.varying_size = fill_varying(n_records);
    }
    fill(OUT, 0, out_size + SLACK, false);
    result = run_both((enum priority)random_below(PRIORITY_COUNT), entry);
    CHECK_EQ(result.status, n_records == 0 ? STATUS_RANGE : STATUS_OK);
    compare(0, out_size, job->op);
    compare_bytes(OUT, out_size, SLACK);
}

static void check_map_counts(const struct job *job)
{
    uint64_t chunk_size = MIN(fronts[CUDA].caps.chunk_size, max_bytes() / 2);
    uint32_t n_chunk = (uint32_t)chunk_size / job->largest;
    const uint32_t counts[] = {0,   1,   2,    3,           31,      32,         33,
                               255, 256, 4097, n_chunk - 1, n_chunk, n_chunk + 1};

    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
        if ((uint64_t)counts[i] * job->largest <= max_bytes()) {
            check_map(job, counts[i], 0);
        }
    }
}

static void test_map_ops(void)
{
    start();
    for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct job job = open_job(&rows[i], 0);

        printf("# row %u: %s\n", i, rows[i].op);
        check_map_counts(&job);
        if (job.has_tail && job.in_size[0] > 1) {
            check_map(&job, 1, 1);
            check_map(&job, 33, job.in_size[0] - 1);
            check_map(&job, 2, 1 + (uint32_t)random_below(job.in_size[0] - 1));
        }
    }
    stop();
}

static void check_sincos(size_t n)
{
    const float *a = (const void *)bytes_of(CUDA, IN_0), *b = (const void *)bytes_of(CUDA, IN_1);
    const float *out = (const void *)bytes_of(CUDA, OUT);

    for (size_t i = 0; i < n; i++) {
        sincos_check(a[i], b[i], out[i]);
    }
}

/* Random bits, then numbers of common sizes. */
static void test_sincos(void)
{
    const struct row row = {"sincos", {{.name = ""}}, false};
    const uint32_t n = 50000;
    struct job job;

    start();
    job = open_job(&row, 0);
    check_map(&job, n, 0);
    check_sincos(n);
    fill(IN_0, 0, n * sizeof(float), true);
    fill(IN_1, 0, n * sizeof(float), true);
    CHECK_EQ(run_both(PRIORITY_NORMAL, map_entry(&job, n, 0, 0)).status, STATUS_OK);
    check_sincos(n);
    stop();
}

/* Random bytes are pairs of whole records without much in common: here copies with changes. */
static void check_copies(uint32_t length, uint32_t band)
{
    const struct row row = {
        "align_score", {{.name = "length", .i = length}, {.name = "band", .i = band}}, false};
    const uint32_t n = (uint32_t)MIN(360000, max_bytes()) / length;
    const uint32_t lengths_offset = (uint32_t)div_round_up(n * length, 4) * 4;
    const struct job job = open_job(&row, 0);
    struct work_entry entry = map_entry(&job, n, 0, 0);
    uint8_t *a = bytes_of(CPU, IN_0), *b = bytes_of(CPU, IN_1), *lengths = b + lengths_offset;

    entry.ref[2] = WORK_REF(IN_1, lengths_offset);
    for (uint32_t i = 0; i < n * length; i++) {
        a[i] = "ACGT"[random_below(4)];
        b[i] = random_below(10) == 0 ? 'A' : a[i - random_below(2) * (i % length > 40)];
    }
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t true_length = (uint32_t)random_below(length + 20);

        memcpy(lengths + i * sizeof(true_length), &true_length, sizeof(true_length));
    }
    memcpy(bytes_of(CUDA, IN_0), a, n * length);
    memcpy(bytes_of(CUDA, IN_1), b, lengths_offset + 2 * n * sizeof(uint32_t));
    CHECK_EQ(run_both(PRIORITY_NORMAL, entry).status, STATUS_OK);
    compare_bytes(OUT, 0, n * sizeof(int32_t));
}

/* A GPU gives a pair 1 to 32 threads, as many as length and band ask for. */
static void test_align_score(void)
{
    static const uint32_t bands[] = {0, 1, 8, 9, 25, 26, 59, 60, 127, 128, 512};
    static const uint32_t lengths[] = {16, 17, 120, 256, 257, 511, 512};

    start();
    for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        for (uint32_t k = 0; k < ARRAY_SIZE(bands); k++) {
            check_copies(lengths[i], bands[k]);
        }
    }
    stop();
}

/* ---- reduce ops ---------------------------------------------------------------------------- */

#define FOLDS_OFFSET  0u /* of the OUT segment */
#define RESULT_OFFSET 1024u
#define PARTIALS      4096u

/* LEAVES, MERGE in two steps, FINISH over n random floats. */
static void check_sum(const struct manifest_op *op, uint32_t n_records, bool is_finite)
{
    uint32_t n_leaves = (uint32_t)div_round_up(n_records, op->leaf);
    uint32_t n_first = (uint32_t)random_below(n_leaves + 1);
    size_t partials_size = (size_t)n_leaves * op->partial_size;

    fill(IN_0, 0, n_records * sizeof(float), is_finite);
    fill(OUT, 0, PARTIALS + partials_size + SLACK, false);
    run_both(PRIORITY_BULK,
             (struct work_entry){.kind = WORK_LEAVES,
                                 .n_records = n_records,
                                 .ref = {WORK_REF(IN_0, 0), WORK_REF(OUT, PARTIALS)}});
    if (is_finite) {
        compare_bytes(OUT, PARTIALS, partials_size);
    }
    compare_bytes(OUT, PARTIALS + partials_size, SLACK);
    run_both(PRIORITY_NORMAL,
             (struct work_entry){.kind = WORK_MERGE,
                                 .n_records = n_first,
                                 .ref = {WORK_REF_NONE,
                                         n_first > 0 ? WORK_REF(OUT, PARTIALS) : WORK_REF_NONE,
                                         WORK_REF(OUT, FOLDS_OFFSET)}});
    run_both(PRIORITY_NORMAL,
             (struct work_entry){.kind = WORK_MERGE,
                                 .n_records = n_leaves - n_first,
                                 .ref = {WORK_REF(OUT, FOLDS_OFFSET),
                                         WORK_REF(OUT, PARTIALS + n_first * op->partial_size),
                                         WORK_REF(OUT, FOLDS_OFFSET + 512)}});
    run_both(PRIORITY_URGENT, (struct work_entry){.kind = WORK_FINISH,
                                                  .n_records = 1,
                                                  .ref = {WORK_REF(OUT, FOLDS_OFFSET + 512),
                                                          WORK_REF(OUT, RESULT_OFFSET)}});
}

static void compare_result(void)
{
    double want, got;

    memcpy(&want, bytes_of(CPU, OUT) + RESULT_OFFSET, sizeof(want));
    memcpy(&got, bytes_of(CUDA, OUT) + RESULT_OFFSET, sizeof(got));
    if (memcmp(&want, &got, sizeof(want)) != 0 && !(isnan(want) && isnan(got))) {
        CHECK_FAIL("the sum is %a on the CPU and %a on the GPU", want, got);
    }
}

static void test_sum(void)
{
    const struct manifest_op *op;
    uint32_t index, n_chunk;

    start();
    index = front_op(&fronts[CPU], "sum");
    op = &fronts[CPU].ops[index];
    front_set_job(&fronts[CPU], 0, index, NULL, 0);
    front_set_job(&fronts[CUDA], 0, index, NULL, 0);
    n_chunk = (uint32_t)MIN(fronts[CUDA].caps.chunk_size, max_bytes() / 2) / sizeof(float);
    const uint32_t counts[] = {1,
                               2,
                               255,
                               257,
                               op->leaf - 1,
                               op->leaf,
                               op->leaf + 1,
                               3 * op->leaf + 1 + (uint32_t)random_below(op->leaf),
                               n_chunk - 1,
                               n_chunk,
                               n_chunk + 1};

    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
        check_sum(op, counts[i], true);
        compare_result();
        check_sum(op, counts[i], false); /* with infinities and NaN */
        compare_result();
    }
    stop();
}

/* ---- timing -------------------------------------------------------------------------------- */

/*
 * A GPU's stages follow each other between issue and completion; a CPU copies nothing.  The factor
 * is for two clocks that tick differently.
 */
static void check_stages(const struct work_result *cpu, const struct work_result *cuda)
{
    uint64_t stages_ns = cuda->in_ns + cuda->compute_ns + cuda->out_ns;

    printf("# of %" PRIu64 " ns: in %u, compute %" PRIu64 ", out %u\n",
           cuda->end_ns - cuda->start_ns, cuda->in_ns, cuda->compute_ns, cuda->out_ns);
    CHECK_GT(cuda->in_ns, 0);
    CHECK_GT(cuda->compute_ns, 0);
    CHECK_GT(cuda->out_ns, 0);
    CHECK_LE(stages_ns, 2 * (cuda->end_ns - cuda->start_ns));
    CHECK_EQ(cpu->in_ns, 0);
    CHECK_GT(cpu->compute_ns, 0);
    CHECK_EQ(cpu->out_ns, 0);
}

/* The same bytes with and without; no times but where asked for. */
static void test_timing(void)
{
    const struct row row = {"sha256", {{.name = "block", .i = 4096}}, true};
    struct job job;

    start();
    job = open_job(&row, 0);
    for (uint32_t round = 0; round < 6; round++) {
        struct work_entry entry = map_entry(&job, 1 + round * 50, 0, 0);
        struct work_result cpu, cuda;
        size_t out_size = (size_t)entry.n_records * job.out_size;

        fill(IN_0, 0, (size_t)entry.n_records * job.in_size[0], false);
        fill(OUT, 0, out_size + SLACK, false);
        entry.flags = round % 2 == 0 ? WORK_TIMED : 0;
        cpu = front_run(&fronts[CPU], PRIORITY_NORMAL, entry);
        cuda = front_run(&fronts[CUDA], PRIORITY_NORMAL, entry);
        CHECK_EQ(cpu.status, STATUS_OK);
        CHECK_EQ(cuda.status, STATUS_OK);
        compare_bytes(OUT, 0, out_size + SLACK);
        if (round % 2 == 0) {
            check_stages(&cpu, &cuda);
        } else {
            CHECK_EQ(cuda.in_ns + cuda.compute_ns + cuda.out_ns, 0);
        }
    }
    stop();
}

/* ---- all at once --------------------------------------------------------------------------- */

#define N_ENTRIES 150u

struct output {
    size_t offset, size;
    const struct manifest_op *op;
};

/* Submit to both workers, as long as outputs fit their segment; returns how many. */
static uint32_t submit_many(const struct job *jobs, uint32_t first_job, struct output *ret_outputs)
{
    size_t offset = 0;

    for (uint32_t i = 0; i < N_ENTRIES; i++) {
        /* Runs of one job, so that some are launched as a table. */
        const struct job *job = &jobs[(first_job + i / 8) % ARRAY_SIZE(rows)];
        enum priority priority = (enum priority)random_below(PRIORITY_COUNT);
        struct work_entry entry;
        uint32_t n_records;

        if (job->largest > MIN(UINT64_C(65536), max_bytes())) {
            job = &jobs[0]; /* a few of those would fill the segment */
        }
        n_records = 1 + (uint32_t)random_below(MIN(UINT64_C(200000), max_bytes()) / job->largest);
        entry = map_entry(job, n_records, 4 * random_below(1 << 18), offset);
        entry.flags = random_below(2) == 0 ? WORK_TIMED : 0;
        /* Its ends are random: they point anywhere. */
        entry.varying_size = manifest_varying(job->op) != 0 ? random_below(5000) : 0;
        ret_outputs[i].offset = offset;
        ret_outputs[i].size = (size_t)n_records * job->out_size;
        ret_outputs[i].op = job->op;
        offset += ret_outputs[i].size + 64;
        offset -= offset % 64;
        if (offset > SEGMENT_SIZE) {
            return i;
        }
        front_submit(&fronts[CPU], priority, entry);
        front_submit(&fronts[CUDA], priority, entry);
    }
    return N_ENTRIES;
}

static void check_many(const struct job *jobs, uint32_t first_job)
{
    static struct front_answer answers[N_ENTRIES];
    struct output outputs[N_ENTRIES];
    uint32_t n;

    fill(IN_0, 0, SEGMENT_SIZE, false);
    fill(IN_1, 0, SEGMENT_SIZE, false);
    fill(OUT, 0, SEGMENT_SIZE, false);
    n = submit_many(jobs, first_job, outputs);
    CHECK_GT(n, 10);
    for (uint32_t b = 0; b < N_BACKENDS; b++) {
        front_await(&fronts[b], answers, n);
        for (uint32_t i = 0; i < n; i++) {
            CHECK_EQ(answers[i].result.status, STATUS_OK);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t end = outputs[i].offset + outputs[i].size;
        size_t next = i + 1 < n ? outputs[i + 1].offset : SEGMENT_SIZE;

        compare(outputs[i].offset, outputs[i].size, outputs[i].op);
        compare_bytes(OUT, end, next - end);
    }
}

/*
 * Many entries of all ops, sizes and priorities, all in the queues before the first answer is
 * looked at: launches of several streams overlap, narrow chunks are launched together.
 */
static void test_many_at_once(void)
{
    struct job jobs[ARRAY_SIZE(rows)];

    start();
    for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
        jobs[i] = open_job(&rows[i], i);
    }
    for (uint32_t round = 0; round < ARRAY_SIZE(rows); round++) {
        check_many(jobs, round);
    }
    stop();
}

/* ---- memory -------------------------------------------------------------------------------- */

static void test_a_segment_that_comes_again(void)
{
    const struct row row = {"copy", {{.name = "size", .i = 1}}, false};

    start();
    for (uint32_t round = 0; round < 3; round++) {
        struct job job = open_job(&row, 0);

        check_map(&job, 100000, 0);
        for (uint32_t b = 0; b < N_BACKENDS; b++) {
            front_drop_segment(&fronts[b], OUT);
            shm_unmap(fronts[b].segments[OUT].base, fronts[b].segments[OUT].size);
            front_add_segment(&fronts[b], OUT, SEGMENT_SIZE - (round << 16));
        }
    }
    stop();
}

CHECK_MAIN(CHECK_TEST(test_map_ops), CHECK_TEST(test_align_score), CHECK_TEST(test_sincos),
           CHECK_TEST(test_sum), CHECK_TEST(test_timing), CHECK_TEST(test_many_at_once),
           CHECK_TEST(test_a_segment_that_comes_again))
