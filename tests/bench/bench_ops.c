/*
 * bench_ops: how fast each op is, its data at hand: no daemon, no socket.
 *
 *     core       the op's code called directly, one thread
 *     library    the best library on one core, where one is at hand: OpenSSL for sha256, parasail
 *                for align_score
 *     cpu        the CPU worker, chunks of its own size, all of them in its queue
 *     gpu        the GPU worker's kernel, all data in one launch, without the copies: the worker's
 *                own clock; only where there is a device
 *     gpu_chunk  likewise, one chunk of the worker's own size after the other
 *
 * Rounds in random order, fresh random data; every output is compared with the core's, and the
 * core's with the library's.
 */
#include "cuda/registry.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/library.h"
#include "tests/bench/rig.h"

#include <limits.h>
#include <math.h>

#define SIZE_UNIT (1u << 20)
#define ENTRIES   64u /* in a worker's queue at once; a record more than fits makes it twice that */

/* Segments of every worker: the inputs, the output, the op's constant. */
#define SEGMENT_OUT   LIMIT_IN
#define SEGMENT_CONST (LIMIT_IN + 1u)
#define N_SEGMENTS    (LIMIT_IN + 2u)

enum variant { CORE, LIBRARY, CPU, GPU, GPU_CHUNK, N_VARIANTS };

struct options {
    const char *op;
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

/* What is measured of an op. */
struct example {
    const char *op;
    const char *what; /* for the table */
    struct value params[8];
    void (*fill)(void *bytes, size_t size, uint32_t input);
    uint32_t share;    /* of --size, where a byte costs much: this part of it */
    bool is_close;     /* both backends differ by their tolerance */
    uint32_t document; /* bytes of each record of a varying input */
};

struct bench {
    const struct options *options;
    struct front cpu, gpu;
    bool has_gpu;
    int fds[N_SEGMENTS];
    uint8_t *segments[N_SEGMENTS];
    uint8_t *want; /* the core's output of this round */
    struct contest contest;
};

/* One example that is being measured. */
struct test {
    struct bench *bench;
    const struct example *example;
    const struct op_code *code;
    uint8_t params[LIMIT_PARAM_BYTES];
    uint32_t in_sizes[LIMIT_IN]; /* of a record */
    uint32_t varying;            /* index of the input, or 0 */
    uint32_t const_size;         /* or 0 */
    uint32_t out_size;           /* of a record; a reduce op's: of a leaf's partial */
    uint32_t largest;            /* of the sizes of a record */
    uint32_t n_records;
    library_function *library;
    bool is_used[N_VARIANTS];
};

/* ---- examples ------------------------------------------------------------------------------- */

static void fill_bytes(void *bytes, size_t size, uint32_t input)
{
    (void)input;
    bench_fill(bytes, size);
}

static void fill_floats(void *bytes, size_t size, uint32_t input)
{
    (void)input;
    subject_fill(bytes, size);
}

/* Two sequences of four letters, and whole lengths. */
static void fill_pairs(void *bytes, size_t size, uint32_t input)
{
    uint8_t *letters = bytes;

    if (input == 2) {
        memset(bytes, 0xff, size);
        return;
    }
    bench_fill(bytes, size);
    for (size_t i = 0; i < size; i++) {
        letters[i] = (uint8_t) "ACGT"[letters[i] % 4];
    }
}

static const struct example examples[] = {
    {"align_score", "length=256", {{.name = "length", .i = 256}}, fill_pairs, 8, false},
    {"copy", "size=4096", {{.name = "size", .i = 4096}}, fill_bytes, 1, false},
    {"dhash",
     "512x512 RGB",
     {{.name = "width", .i = 512}, {.name = "height", .i = 512}, {.name = "pitch", .i = 1536}},
     fill_bytes,
     1,
     false},
    {"gray", "", {{.name = ""}}, fill_bytes, 1, false},
    {"iterate", "n=1000", {{.name = "n", .i = 1000}}, fill_floats, 8, false},
    {"minhash", "4 KiB documents, 128", {{.name = ""}}, fill_bytes, 16, false, .document = 4096},
    {"resize",
     "512x512 RGB to 224x224",
     {{.name = "width", .i = 512},
      {.name = "height", .i = 512},
      {.name = "pitch", .i = 1536},
      {.name = "out_width", .i = 224},
      {.name = "out_height", .i = 224}},
     fill_bytes,
     1,
     false},
    {"rs16",
     "k=32 n=4096 m=8",
     {{.name = "k", .i = 32}, {.name = "n", .i = 4096}, {.name = "m", .i = 8}},
     fill_bytes,
     2,
     false},
    {"saxpy", "a=2.5", {{.name = "a", .kind = VALUE_FLOAT, .f = 2.5}}, fill_floats, 1, false},
    {"sha256", "block=4096", {{.name = "block", .i = 4096}}, fill_bytes, 1, false},
    {"sincos", "", {{.name = ""}}, fill_floats, 1, true},
    {"sum", "", {{.name = ""}}, fill_floats, 1, false},
};

/* ---- the variants --------------------------------------------------------------------------- */

static bool is_reduce(const struct test *test)
{
    return test->code->manifest->kind == OP_REDUCE;
}

/* Outputs of this many records. */
static size_t out_bytes(const struct test *test, uint32_t n_records)
{
    size_t n = is_reduce(test) ? div_round_up(n_records, test->code->manifest->leaf) : n_records;

    return n * test->out_size;
}

static uint32_t varying_size(const struct test *test, uint32_t n_records)
{
    return test->varying != 0 ? n_records * test->example->document : 0;
}

/* The ends of the varying input's records, in chunks of n_each, each of which counts from its own
 * start. */
static void write_ends(const struct test *test, uint32_t n_each)
{
    const struct manifest_op *op = test->code->manifest;
    uint32_t *ends = (uint32_t *)test->bench->segments[manifest_ends(op)];

    for (uint32_t i = 0; test->varying != 0 && i < test->n_records; i++) {
        ends[i] = (i % n_each + 1) * test->example->document;
    }
}

static double run_core(const struct test *test)
{
    struct bench *bench = test->bench;
    struct op_chunk chunk = {.out = {bench->segments[SEGMENT_OUT]},
                             .consts = {bench->segments[SEGMENT_CONST]},
                             .varying_size = varying_size(test, test->n_records),
                             .n_records = test->n_records};
    uint64_t start_ns;

    write_ends(test, test->n_records);
    for (uint32_t k = 0; k < test->code->manifest->n_in; k++) {
        chunk.in[k] = bench->segments[k];
    }
    start_ns = now_ns();
    if (is_reduce(test)) {
        test->code->leaves(test->params, &chunk);
    } else {
        test->code->map(test->params, &chunk, 1);
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

static double run_library(const struct test *test)
{
    struct bench *bench = test->bench;
    const struct library_work work = {
        .params = test->params,
        .in = {bench->segments[0], bench->segments[1]},
        .out = bench->segments[SEGMENT_OUT],
        .n_records = test->n_records,
    };

    return test->library(&work);
}

static struct work_entry make_entry(const struct test *test, uint32_t first, uint32_t n_records)
{
    const struct manifest_op *op = test->code->manifest;
    struct work_entry entry = {
        .kind = is_reduce(test) ? WORK_LEAVES : WORK_MAP,
        .flags = WORK_TIMED,
        .n_records = n_records,
        .varying_size = varying_size(test, n_records),
    };

    for (uint32_t k = 0; k < op->n_in; k++) {
        entry.ref[k] = WORK_REF(k, (size_t)first * test->in_sizes[k]);
    }
    entry.ref[op->n_in] = WORK_REF(SEGMENT_OUT, out_bytes(test, first));
    return entry;
}

/* In whole leaves. */
static uint32_t records_of(const struct test *test, uint64_t size)
{
    const uint32_t unit = is_reduce(test) ? test->code->manifest->leaf : 1;
    const uint32_t n = (uint32_t)(size / test->largest) / unit * unit;

    return MAX(n, unit);
}

/* All chunks at once. */
static double run_cpu(const struct test *test)
{
    static struct front_answer answers[2 * ENTRIES];
    struct front *front = &test->bench->cpu;
    const size_t least = test->bench->options->size / ENTRIES;
    const uint32_t n_each = records_of(test, MAX((size_t)front->caps.chunk_size, least));
    uint64_t start_ns;
    uint32_t n = 0;

    write_ends(test, n_each);
    start_ns = now_ns();
    for (uint32_t first = 0; first < test->n_records; first += n_each) {
        struct work_entry entry = make_entry(test, first, MIN(n_each, test->n_records - first));

        entry.flags = 0;
        front_submit(front, PRIORITY_BULK, entry);
        n++;
    }
    front_await(front, answers, n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ(answers[i].result.status, STATUS_OK);
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

/* One after the other; the kernels' time alone. */
static double run_gpu(const struct test *test, uint32_t n_each)
{
    struct front *front = &test->bench->gpu;
    uint64_t compute_ns = 0;

    write_ends(test, n_each);
    for (uint32_t first = 0; first < test->n_records; first += n_each) {
        struct work_result result = front_run(
            front, PRIORITY_BULK, make_entry(test, first, MIN(n_each, test->n_records - first)));

        CHECK_EQ(result.status, STATUS_OK);
        compute_ns += result.compute_ns;
    }
    return (double)compute_ns * 1e-9;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Floats a unit of the last place or a cancelled rounding apart. */
static void check_close(const void *got, const void *want, size_t size)
{
    const float *a = got, *b = want;

    for (size_t i = 0; i < size / sizeof(*a); i++) {
        if (!(fabsf(a[i] - b[i]) <= fmaxf(fabsf(b[i]) * 0x1p-22f, 0x1p-49f))) {
            bench_fail("sincos: float %zu is %a, not %a", i, (double)a[i], (double)b[i]);
        }
    }
}

static void check(const struct test *test)
{
    struct bench *bench = test->bench;
    size_t size = out_bytes(test, test->n_records);

    if (test->example->is_close) {
        check_close(bench->segments[SEGMENT_OUT], bench->want, size);
    } else {
        bench_check_same(test->example->op, bench->segments[SEGMENT_OUT], bench->want, size);
    }
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void begin_round(void *owner)
{
    struct test *test = owner;
    struct bench *bench = test->bench;
    size_t size = out_bytes(test, test->n_records);

    for (uint32_t k = 0; k < test->code->manifest->n_in; k++) {
        test->example->fill(bench->segments[k], (size_t)test->n_records * test->in_sizes[k], k);
    }
    bench_poison(bench->segments[SEGMENT_OUT], size);
    run_core(test);
    memcpy(bench->want, bench->segments[SEGMENT_OUT], size);
}

static double run_variant(void *owner, uint32_t variant)
{
    struct test *test = owner;
    double seconds;

    if (!test->is_used[variant]) {
        return NAN;
    }
    bench_poison(test->bench->segments[SEGMENT_OUT], out_bytes(test, test->n_records));
    switch ((enum variant)variant) {
    case CORE:
        seconds = run_core(test);
        break;
    case LIBRARY:
        seconds = run_library(test);
        break;
    case CPU:
        seconds = run_cpu(test);
        break;
    case GPU:
        seconds = run_gpu(test, test->n_records);
        break;
    default:
        seconds = run_gpu(test, records_of(test, test->bench->gpu.caps.chunk_size));
    }
    check(test);
    return seconds;
}

static const struct op_code *find_op(const char *name)
{
    for (uint32_t i = 0; i < n_op_codes; i++) {
        if (strcmp(op_codes[i]->manifest->name, name) == 0) {
            return op_codes[i];
        }
    }
    bench_fail("there is no op %s", name);
}

static uint32_t record_size(const struct test *test, const struct manifest_array *array)
{
    struct failure failure;
    uint32_t size;

    if (manifest_record_size(test->code->manifest, array, test->params, &size, &failure) < 0) {
        bench_fail("%s", failure.message);
    }
    return size;
}

/* The job of either worker, with a constant of its own. */
static void set_job(const struct test *test, struct front *front)
{
    front_set_job(front, 0, front_op(front, test->example->op), test->params, sizeof(test->params));
    if (test->const_size > 0) {
        front->jobs[0].consts[0] = (struct job_const){
            .ref = WORK_REF(SEGMENT_CONST, 0), .id = 1 + (uint64_t)(test->example - examples)};
    }
}

static void open_test(struct bench *bench, const struct example *example, struct test *ret_test)
{
    struct test test = {.bench = bench, .example = example, .code = find_op(example->op)};
    const struct manifest_op *op = test.code->manifest;
    struct failure failure;
    uint32_t n_params = 0;

    while (example->params[n_params].name[0] != '\0') {
        n_params++;
    }
    if (manifest_pack(op, example->params, n_params, test.params, &failure) < 0) {
        bench_fail("%s", failure.message);
    }
    for (uint32_t k = 0; k < op->n_in; k++) {
        test.in_sizes[k] = record_size(&test, &op->in[k]);
        test.largest = MAX(test.largest, test.in_sizes[k]);
    }
    test.varying = manifest_varying(op);
    if (test.varying != 0) {
        test.in_sizes[test.varying] = example->document;
        test.largest = MAX(test.largest, example->document);
    }
    if (op->n_consts > 0) {
        test.const_size = record_size(&test, &op->consts[0]);
        bench_fill(bench->segments[SEGMENT_CONST], test.const_size);
    }
    test.out_size = is_reduce(&test) ? op->partial_size : record_size(&test, &op->out[0]);
    test.largest = is_reduce(&test) ? test.largest : MAX(test.largest, test.out_size);
    test.n_records = records_of(&test, bench->options->size / example->share);
    test.library = library_find(example->op);
    test.is_used[CORE] = test.is_used[CPU] = true;
    test.is_used[LIBRARY] = test.library != NULL;
    test.is_used[GPU] = test.is_used[GPU_CHUNK] = bench->has_gpu;
    set_job(&test, &bench->cpu);
    if (bench->has_gpu) {
        set_job(&test, &bench->gpu);
    }
    *ret_test = test;
}

/* ---- results -------------------------------------------------------------------------------- */

/* GB of input a second. */
static double rate(const struct test *test, enum variant variant)
{
    double gigabytes = 0;

    for (uint32_t k = 0; k < test->code->manifest->n_in; k++) {
        gigabytes += (double)test->n_records * test->in_sizes[k] * 1e-9;
    }
    return test->is_used[variant] ? gigabytes / contest_seconds(&test->bench->contest, variant)
                                  : NAN;
}

static double ratio(const struct test *test, enum variant variant, enum variant other)
{
    return test->is_used[variant] && test->is_used[other]
               ? contest_ratio(&test->bench->contest, variant, other)
               : NAN;
}

static void measure(struct bench *bench, const struct example *example, struct bench_report *report)
{
    struct test test;

    open_test(bench, example, &test);
    bench->contest.n_variants = N_VARIANTS;
    bench->contest.n_rounds = bench->options->n_rounds;
    bench->contest.begin = begin_round;
    bench->contest.run = run_variant;
    bench->contest.owner = &test;
    contest_run(&bench->contest);
    const struct bench_cell row[] = {
        {"op         ", example->op, 0, 0},
        {"of                    ", example->what, 0, 0},
        {"core", NULL, rate(&test, CORE), 3},
        {"library", NULL, rate(&test, LIBRARY), 3},
        {"cpu", NULL, rate(&test, CPU), 3},
        {"gpu", NULL, rate(&test, GPU), 2},
        {"gpu_chunk", NULL, rate(&test, GPU_CHUNK), 2},
        {"core/library", NULL, ratio(&test, CORE, LIBRARY), 2},
        {"cpu/core", NULL, ratio(&test, CPU, CORE), 2},
        {"gpu/core", NULL, ratio(&test, GPU, CORE), 1},
        {"gpu/library", NULL, ratio(&test, GPU, LIBRARY), 1},
    };
    bench_report_row(report, row, ARRAY_SIZE(row));
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start_worker(const struct bench *bench, const char *variable, const char *program,
                         struct front *ret_front)
{
    char path[PATH_MAX];

    bench_find(program, path, sizeof(path));
    setenv(variable, path, 0);
    front_start_ready(ret_front, variable, 0);
    for (uint32_t k = 0; k < N_SEGMENTS; k++) {
        front_lend_segment(ret_front, k, bench->fds[k], bench->options->size);
    }
}

/* Is there a worker for a GPU, and a GPU for it? */
static bool find_gpu(void)
{
#ifdef HAVE_CUDA
    char path[PATH_MAX];

    bench_find("cuda/gpupipe-worker-cuda", path, sizeof(path));
    setenv("GPUPIPE_WORKER_CUDA", path, 0);
    return system("\"$GPUPIPE_WORKER_CUDA\" --probe >/dev/null 2>&1") == 0;
#else
    return false;
#endif
}

static void start(struct bench *bench)
{
    for (uint32_t k = 0; k < N_SEGMENTS; k++) {
        void *base;

        bench->fds[k] = shm_create("segment", bench->options->size);
        if (bench->fds[k] < 0 || shm_map(bench->fds[k], bench->options->size, &base) < 0) {
            bench_fail("no shared memory of %zu bytes", bench->options->size);
        }
        bench->segments[k] = base;
    }
    bench->want = bench_allocate(bench->options->size);
    start_worker(bench, "GPUPIPE_WORKER_CPU", "cuda/gpupipe-worker-cpu", &bench->cpu);
    bench->has_gpu = find_gpu();
    if (bench->has_gpu) {
        start_worker(bench, "GPUPIPE_WORKER_CUDA", "cuda/gpupipe-worker-cuda", &bench->gpu);
    }
}

static void stop(struct bench *bench)
{
    front_finish(&bench->cpu);
    if (bench->has_gpu) {
        front_finish(&bench->gpu);
    }
    for (uint32_t k = 0; k < N_SEGMENTS; k++) {
        shm_unmap(bench->segments[k], bench->options->size);
        close(bench->fds[k]);
    }
    free(bench->want);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"op", "NAME", "this op alone", NULL, .text = &options.op},
        {"size", "SIZE", "bytes of an op's largest array", "64M", SIZE_UNIT, UINT64_C(1) << 31,
         .size = &options.size},
        {"rounds", "N", "rounds", "7", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench = {.options = &options};
    struct bench_report *report;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Each op with its data at hand: one core, a library, the workers.");
    RIG_GUARD();
    start(&bench);
    report = bench_report_create("ops", options.json);
    bench_report_table(report, "ops",
                       "GB of all inputs a second, and how many times as fast as each other");
    for (uint32_t i = 0; i < ARRAY_SIZE(examples); i++) {
        if (options.op == NULL || strcmp(options.op, examples[i].op) == 0) {
            measure(&bench, &examples[i], report);
        }
    }
    bench_report_destroy(report);
    stop(&bench);
    return EXIT_SUCCESS;
}
