/*
 * bench_ops: how fast each op is, its data at hand; and through a daemon's socket.
 *
 *     core       the op's code called directly, one thread
 *     library    the best library on one core, where one is at hand: OpenSSL for sha256, parasail
 *                for align_score
 *     cpu        the CPU worker, chunks of its own size, all of them in its queue
 *     gpu        the GPU worker's kernel, all data in one launch, without the copies: the worker's
 *                own clock; only where there is a device
 *     gpu_chunk  likewise, one chunk of the worker's own size after the other
 *     socket     a job of a program that has libgpupipe, on a daemon of this build: on the GPU
 * where there is one.  Of an op that reduces there is none to compare
 *
 * Rounds in random order, fresh random data; every output is compared with the core's, and the
 * core's with the library's.
 */
#include "client/gpupipe.h"
#include "cuda/registry.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"
#include "tests/bench/example.h"
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

/* A push's largest array. */
#define PUSH_SIZE (4u << 20)

enum variant { CORE, LIBRARY, CPU, GPU, GPU_CHUNK, SOCKET, N_VARIANTS };

struct options {
    const char *op;
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct front cpu, gpu;
    bool has_gpu;
    struct bench_daemon daemon;
    struct gpupipe *client;
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
    uint64_t const_id;           /* at the daemon */
    uint32_t out_size;           /* of a record; a reduce op's: of a leaf's partial */
    uint32_t largest;            /* of the sizes of a record */
    uint32_t n_records;
    library_function *library;
    bool is_used[N_VARIANTS];
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

static void must(const struct bench *bench, int result)
{
    if (result < 0) {
        bench_fail("%s", gpupipe_last_error(bench->client)->message);
    }
}

static struct gpupipe_job *open_job(const struct test *test)
{
    static const enum gpupipe_kind kinds[] = {
        [VALUE_INT] = GPUPIPE_INT, [VALUE_FLOAT] = GPUPIPE_FLOAT, [VALUE_STRING] = GPUPIPE_STRING};
    struct gpupipe_value values[ARRAY_SIZE(test->example->params)] = {0};
    struct gpupipe_job_opts opts;
    struct gpupipe_job *job;
    uint32_t n = 0;

    for (const struct value *value = test->example->params; value->name[0] != '\0'; value++) {
        values[n++] = (struct gpupipe_value){
            .name = value->name, .kind = kinds[value->kind], .i = value->i, .f = value->f};
    }
    GPUPIPE_INIT(&opts);
    opts.priority = GPUPIPE_BULK;
    opts.consts = &test->const_id;
    opts.n_consts = test->const_size > 0;
    must(test->bench,
         gpupipe_job_open(&job, test->bench->client, test->example->op, values, n, &opts));
    return job;
}

static struct gpupipe_desc make_push(const struct test *test, struct gpupipe_job *job,
                                     uint32_t first, uint32_t n_records)
{
    struct gpupipe_desc desc;

    GPUPIPE_INIT(&desc);
    desc.job = job;
    desc.n_records = n_records;
    desc.n_in = test->code->manifest->n_in;
    desc.n_out = 1;
    for (uint32_t k = 0; k < desc.n_in; k++) {
        desc.in[k].data = test->bench->segments[k] + (size_t)first * test->in_sizes[k];
        desc.in[k].size = (uint64_t)n_records * test->in_sizes[k];
    }
    desc.out[0].data = test->bench->segments[SEGMENT_OUT] + out_bytes(test, first);
    desc.out[0].size = out_bytes(test, n_records);
    return desc;
}

/* Returns how many pushes are back. */
static uint32_t reap(const struct bench *bench)
{
    struct gpupipe_completion completions[16];
    int n;

    completions[0].size = sizeof(completions[0]);
    n = gpupipe_reap(bench->client, completions, ARRAY_SIZE(completions));
    must(bench, n);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(completions[i].status, GPUPIPE_OK);
    }
    return (uint32_t)n;
}

static double run_socket(const struct test *test)
{
    const struct bench *bench = test->bench;
    struct gpupipe_job *job = open_job(test);
    const uint32_t n_each = MIN(records_of(test, PUSH_SIZE), (uint32_t)gpupipe_push_records(job));
    uint32_t first = 0, n_out = 0;
    uint64_t start_ns;
    double seconds;

    write_ends(test, n_each);
    start_ns = now_ns();
    while (first < test->n_records || n_out > 0) {
        const uint32_t n = MIN(n_each, test->n_records - first);
        const struct gpupipe_desc desc = make_push(test, job, first, n);
        const int taken = n > 0 ? gpupipe_submit(bench->client, &desc, 1) : 0;

        must(bench, taken);
        first += taken > 0 ? n : 0;
        n_out += (uint32_t)taken;
        if (taken == 0) {
            must(bench, gpupipe_wait(bench->client, -1));
        }
        n_out -= reap(bench);
    }
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    gpupipe_job_free(job);
    return seconds;
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
    case GPU_CHUNK:
        seconds = run_gpu(test, records_of(test, test->bench->gpu.caps.chunk_size));
        break;
    default:
        seconds = run_socket(test);
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
    test.is_used[SOCKET] = !is_reduce(&test);
    if (test.const_size > 0) {
        must(bench, gpupipe_const_put(bench->client, bench->segments[SEGMENT_CONST],
                                      test.const_size, &test.const_id, NULL));
    }
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
        {"socket", NULL, rate(&test, SOCKET), 3},
        {"core/library", NULL, ratio(&test, CORE, LIBRARY), 2},
        {"cpu/core", NULL, ratio(&test, CPU, CORE), 2},
        {"gpu/core", NULL, ratio(&test, GPU, CORE), 1},
        {"gpu/library", NULL, ratio(&test, GPU, LIBRARY), 1},
        {"socket/core", NULL, ratio(&test, SOCKET, CORE), 1},
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
    bench_daemon_start(&bench->daemon, NULL, bench->has_gpu ? "cuda" : "cpu");
    must(bench, gpupipe_open(&bench->client, bench->daemon.socket_path, "bench_ops"));
}

static void stop(struct bench *bench)
{
    gpupipe_close(bench->client);
    bench_daemon_stop(&bench->daemon);
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
    /* Not initialised: its zeros would lie in the program, hundreds of KiB. */
    static struct bench bench;
    struct bench_report *report;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Each op with its data at hand: one core, a library, the workers.");
    bench.options = &options;
    RIG_GUARD();
    start(&bench);
    report = bench_report_create("ops", options.json);
    bench_report_table(report, "ops",
                       "GB of all inputs a second, and how many times as fast as each other");
    for (uint32_t i = 0; i < n_examples; i++) {
        if (options.op == NULL || strcmp(options.op, examples[i].op) == 0) {
            measure(&bench, &examples[i], report);
        }
    }
    bench_report_destroy(report);
    stop(&bench);
    return EXIT_SUCCESS;
}
