/*
 * bench_inline: data through the daemon's socket, against the same work without a daemon.
 *
 * One streaming job at a time, copy and sha256, pushes of four sizes.  In each round the same fresh
 * random bytes go, in random order,
 *
 *     daemon    through gpupiped: socket, pool, worker, socket
 *     process   through the same op code over the same chunks, on as many threads, in this process
 *     echo      through a socket to a process that only sends back as many bytes as the op would
 *     openssl   through OpenSSL's SHA-256 on one core (sha256, where built with it)
 *
 * Every byte of every output is checked: copies against the input, digests against OpenSSL's.
 * Built without OpenSSL it measures copy alone.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/echo.h"
#include "tests/bench/stream.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#ifdef HAVE_OPENSSL
#include <openssl/evp.h>
#define CAN_CHECK_SHA256 true
#define OPS              "copy,sha256"
#else
#define CAN_CHECK_SHA256 false
#define OPS              "copy"
#endif

#define BLOCK       4096u
#define CHUNK_SIZE  (1u << 20) /* the CPU worker's */
#define ROUNDS_MAX  99u
#define THREADS_MAX 64u

static const size_t push_sizes[] = {64u << 10, 256u << 10, 1u << 20, 4u << 20};

struct options {
    const char *daemon;
    const char *backend;
    const char *ops;
    const char *json;
    size_t size;
    uint32_t n_rounds;
    bool has_copy;
    bool has_sha256;
};

/* An op as this benchmark uses it: records of BLOCK bytes. */
struct subject {
    const char *name;
    const char *param; /* the op's only one: the size of a record */
    size_t out_record;
};

static const struct subject copy = {"copy", "size", BLOCK};
static const struct subject sha256 = {"sha256", "block", 32};

enum variant { VARIANT_DAEMON, VARIANT_PROCESS, VARIANT_ECHO, VARIANT_OPENSSL, VARIANT_COUNT };

/* What every variant works on. */
struct bench {
    struct bench_daemon daemon;
    struct echo echo;
    size_t n_rounds;
    size_t size;
    uint8_t *in;
    uint8_t *out;
    uint8_t *want; /* sha256: the digests */
    size_t n_threads;
};

/* One case: an op with a push size. */
struct test {
    struct bench *bench;
    const struct subject *subject;
    size_t push_size;
    bool is_used[VARIANT_COUNT];
    double seconds[VARIANT_COUNT][ROUNDS_MAX];
    struct bench_usage own[VARIANT_COUNT]; /* summed over the rounds */
    struct bench_usage front_end;
    struct bench_usage worker;
    struct bench_usage echo;
};

/* ---- the variants --------------------------------------------------------------------------- */

static void run_daemon(struct test *test)
{
    const struct bench *bench = test->bench;
    struct stream stream = {
        .op = {.n_values = 1, .values = {{.kind = VALUE_INT, .i = BLOCK}}},
        .priority = PRIORITY_BULK,
        .in = bench->in,
        .out = bench->out,
        .in_size = bench->size,
        .push_size = test->push_size,
        .in_record = BLOCK,
        .out_record = test->subject->out_record,
    };

    snprintf(stream.op.name, sizeof(stream.op.name), "%s", test->subject->name);
    snprintf(stream.op.values[0].name, sizeof(stream.op.values[0].name), "%s",
             test->subject->param);
    stream_run(bench->daemon.socket_path, &stream);
}

struct crew {
    const struct test *test;
    const struct op_code *code;
    size_t chunk_size;
    atomic_size_t next; /* offset of the next chunk */
};

static void *work(void *arg)
{
    struct crew *crew = arg;
    const struct bench *bench = crew->test->bench;
    const uint32_t params[LIMIT_PARAM_BYTES / sizeof(uint32_t)] = {BLOCK};
    size_t at;

    while ((at = atomic_fetch_add(&crew->next, crew->chunk_size)) < bench->size) {
        size_t out_at = at / BLOCK * crew->test->subject->out_record;
        const struct op_chunk chunk = {
            .in = {bench->in + at},
            .out = {bench->out + out_at},
            .n_records = (uint32_t)(MIN(crew->chunk_size, bench->size - at) / BLOCK),
        };

        crew->code->map(params, &chunk, 1);
    }
    return NULL;
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

static void run_process(struct test *test)
{
    struct crew crew = {
        .test = test,
        .code = find_op(test->subject->name),
        .chunk_size = MIN(test->push_size, (size_t)CHUNK_SIZE),
    };
    pthread_t threads[THREADS_MAX];

    for (size_t i = 0; i < test->bench->n_threads; i++) {
        if (pthread_create(&threads[i], NULL, work, &crew) != 0) {
            bench_fail("cannot start a thread");
        }
    }
    for (size_t i = 0; i < test->bench->n_threads; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void run_echo(struct test *test)
{
    const struct bench *bench = test->bench;
    const struct echo_shape shape = {
        .in_size = bench->size,
        .push_size = test->push_size,
        .in_record = BLOCK,
        .out_record = test->subject->out_record,
    };

    echo_run(&bench->echo, &shape, bench->in, bench->out);
}

/* One context for all blocks: the fastest use of its plain interface. */
static void run_openssl(struct test *test)
{
#ifdef HAVE_OPENSSL
    const struct bench *bench = test->bench;
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    for (size_t i = 0; i < bench->size / BLOCK; i++) {
        if (EVP_DigestInit_ex(context, i == 0 ? EVP_sha256() : NULL, NULL) != 1 ||
            EVP_DigestUpdate(context, bench->in + i * BLOCK, BLOCK) != 1 ||
            EVP_DigestFinal_ex(context, bench->out + i * 32, NULL) != 1) {
            bench_fail("OpenSSL failed");
        }
    }
    EVP_MD_CTX_free(context);
#else
    (void)test;
#endif
}

/* ---- checking ------------------------------------------------------------------------------- */

static size_t out_size(const struct test *test)
{
    return test->bench->size / BLOCK * test->subject->out_record;
}

static void check_echo(const struct test *test)
{
    const struct bench *bench = test->bench;
    size_t out_push = test->push_size / BLOCK * test->subject->out_record;

    for (size_t i = 0; i < bench->size / test->push_size; i++) {
        bench_check_same("echo", bench->out + i * out_push, bench->in + i * test->push_size,
                         out_push);
    }
}

static void check(const struct test *test, enum variant variant)
{
    const struct bench *bench = test->bench;

    if (variant == VARIANT_ECHO) {
        check_echo(test);
    } else if (test->subject == &copy) {
        bench_check_same("copy", bench->out, bench->in, bench->size);
    } else {
        bench_check_same("sha256", bench->out, bench->want, out_size(test));
    }
}

static void prepare_digests(struct test *test)
{
    if (test->subject == &sha256) {
        run_openssl(test);
        memcpy(test->bench->want, test->bench->out, out_size(test));
    }
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void (*const run_variant[VARIANT_COUNT])(struct test *test) = {
    [VARIANT_DAEMON] = run_daemon,
    [VARIANT_PROCESS] = run_process,
    [VARIANT_ECHO] = run_echo,
    [VARIANT_OPENSSL] = run_openssl,
};

static void add_usage(struct bench_usage *sum, pid_t pid, const struct bench_usage *start)
{
    struct bench_usage used = bench_usage_since(pid, start);

    sum->cpu_s += used.cpu_s;
    sum->system_s += used.system_s;
}

static void run_one(struct test *test, enum variant variant, size_t round)
{
    const struct bench *bench = test->bench;
    struct bench_usage own, front_end, worker, echo;

    bench_poison(bench->out, out_size(test));
    own = bench_usage(0);
    front_end = bench_usage(bench->daemon.pid);
    worker = bench_usage(bench->daemon.worker);
    echo = bench_usage(bench->echo.pid);
    uint64_t start_ns = now_ns();
    run_variant[variant](test);
    test->seconds[variant][round] = (double)(now_ns() - start_ns) * 1e-9;
    add_usage(&test->own[variant], 0, &own);
    if (variant == VARIANT_DAEMON) {
        add_usage(&test->front_end, bench->daemon.pid, &front_end);
        add_usage(&test->worker, bench->daemon.worker, &worker);
    } else if (variant == VARIANT_ECHO) {
        add_usage(&test->echo, bench->echo.pid, &echo);
    }
    check(test, variant);
}

static void run_rounds(struct test *test)
{
    run_daemon(test); /* not counted: brings in the pool's pages and the worker */
    for (size_t round = 0; round < test->bench->n_rounds; round++) {
        uint32_t order[VARIANT_COUNT];

        bench_fill(test->bench->in, test->bench->size);
        prepare_digests(test);
        bench_shuffle(order, VARIANT_COUNT);
        for (size_t turn = 0; turn < VARIANT_COUNT; turn++) {
            if (test->is_used[order[turn]]) {
                run_one(test, order[turn], round);
            }
        }
    }
}

/* ---- results -------------------------------------------------------------------------------- */

static double gigabytes_per_s(const struct test *test, enum variant variant)
{
    double seconds[ROUNDS_MAX];

    memcpy(seconds, test->seconds[variant], sizeof(seconds));
    return (double)test->bench->size * 1e-9 / bench_median(seconds, test->bench->n_rounds);
}

/* How many times as fast as this variant the daemon is: the median of the rounds. */
static double ratio(const struct test *test, enum variant variant)
{
    double ratios[ROUNDS_MAX];

    for (size_t i = 0; i < test->bench->n_rounds; i++) {
        ratios[i] = test->seconds[variant][i] / test->seconds[VARIANT_DAEMON][i];
    }
    return bench_median(ratios, test->bench->n_rounds);
}

static void add_speed_row(struct bench_report *report, const struct test *test)
{
    bool has_openssl = test->is_used[VARIANT_OPENSSL];
    struct bench_cell row[] = {
        {"op", test->subject->name, 0, 0},
        {"push_kib", NULL, (double)(test->push_size >> 10), 0},
        {"daemon", NULL, gigabytes_per_s(test, VARIANT_DAEMON), 2},
        {"process", NULL, gigabytes_per_s(test, VARIANT_PROCESS), 2},
        {"echo", NULL, gigabytes_per_s(test, VARIANT_ECHO), 2},
        {"openssl_1core", NULL, has_openssl ? gigabytes_per_s(test, VARIANT_OPENSSL) : NAN, 2},
        {"of_process", NULL, ratio(test, VARIANT_PROCESS), 2},
        {"of_echo", NULL, ratio(test, VARIANT_ECHO), 2},
        {"of_openssl", NULL, has_openssl ? ratio(test, VARIANT_OPENSSL) : NAN, 2},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static double percent_system(const struct bench_usage *usage)
{
    return usage->cpu_s > 0 ? MIN(100 * usage->system_s / usage->cpu_s, 100.0) : 0;
}

static void add_cpu_row(struct bench_report *report, const struct test *test)
{
    double gigabytes = (double)(test->bench->size * test->bench->n_rounds) * 1e-9;
    const struct bench_usage *client = &test->own[VARIANT_DAEMON];
    struct bench_cell row[] = {
        {"op", test->subject->name, 0, 0},
        {"push_kib", NULL, (double)(test->push_size >> 10), 0},
        {"client", NULL, client->cpu_s / gigabytes, 3},
        {"front_end", NULL, test->front_end.cpu_s / gigabytes, 3},
        {"worker", NULL, test->worker.cpu_s / gigabytes, 3},
        {"process", NULL, test->own[VARIANT_PROCESS].cpu_s / gigabytes, 3},
        {"echo_client", NULL, test->own[VARIANT_ECHO].cpu_s / gigabytes, 3},
        {"echo_server", NULL, test->echo.cpu_s / gigabytes, 3},
        {"client_sys%", NULL, percent_system(client), 0},
        {"front_end_sys%", NULL, percent_system(&test->front_end), 0},
        {"worker_sys%", NULL, percent_system(&test->worker), 0},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void measure(struct bench *bench, const struct options *options)
{
    static struct test tests[2 * ARRAY_SIZE(push_sizes)];
    struct bench_report *report = bench_report_create("inline", options->json);
    size_t n = 0;

    bench_report_table(report, "throughput",
                       "GB of input a second, and how many times as fast as each the daemon is");
    for (size_t i = 0; i < 2 * ARRAY_SIZE(push_sizes); i++) {
        const struct subject *subject = i < ARRAY_SIZE(push_sizes) ? &copy : &sha256;
        struct test *test = &tests[n];

        if (subject == &copy ? !options->has_copy : !options->has_sha256) {
            continue;
        }
        *test = (struct test){
            .bench = bench,
            .subject = subject,
            .push_size = push_sizes[i % ARRAY_SIZE(push_sizes)],
            .is_used = {[VARIANT_DAEMON] = true,
                        [VARIANT_PROCESS] = true,
                        [VARIANT_ECHO] = true,
                        [VARIANT_OPENSSL] = subject == &sha256},
        };
        run_rounds(test);
        add_speed_row(report, test);
        n++;
    }
    bench_report_table(report, "cpu", "CPU seconds for each GB of input, and the kernel's share");
    for (size_t i = 0; i < n; i++) {
        add_cpu_row(report, &tests[i]);
    }
    bench_report_destroy(report);
}

/* ---- options -------------------------------------------------------------------------------- */

static void read_ops(struct options *options)
{
    const char *ops = options->ops;

    options->has_copy = strcmp(ops, "copy") == 0 || strcmp(ops, "copy,sha256") == 0;
    options->has_sha256 = strcmp(ops, "sha256") == 0 || strcmp(ops, "copy,sha256") == 0;
    if (!options->has_copy && !options->has_sha256) {
        bench_options_refuse("--ops takes copy, sha256 or copy,sha256, not \"%s\"", ops);
    }
    if (options->has_sha256 && !CAN_CHECK_SHA256) {
        bench_options_refuse("this was built without OpenSSL, which sha256 is checked against");
    }
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"daemon", "PATH", "the daemon (default: of this build)", .text = &options.daemon},
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"size", "SIZE", "bytes of one round", "256M", 4u << 20, UINT64_C(1) << 36,
         .size = &options.size},
        {"rounds", "N", "rounds of each case", "7", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"ops", "LIST", "copy, sha256 or copy,sha256", OPS, .text = &options.ops},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    struct bench bench = {0};
    cpu_set_t cpus;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Data through a private gpupiped against the same work without one.");
    read_ops(&options);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    bench.n_threads = MIN((size_t)CPU_COUNT(&cpus), (size_t)THREADS_MAX);
    bench.n_rounds = options.n_rounds;
    bench.size = options.size;
    echo_start(&bench.echo);
    bench_daemon_start(&bench.daemon, options.daemon, options.backend);
    bench.in = bench_allocate(bench.size);
    bench.out = bench_allocate(bench.size);
    bench.want = bench_allocate(bench.size / BLOCK * 32);
    measure(&bench, &options);
    free(bench.in);
    free(bench.out);
    free(bench.want);
    bench_daemon_stop(&bench.daemon);
    echo_stop(&bench.echo);
    return EXIT_SUCCESS;
}
