/*
 * bench_compare: several builds of the daemon against each other, the first being the measure.
 *
 *     bench_compare old/daemon/gpupiped build/daemon/gpupiped
 *
 * Cases: streams of copy with pushes of four sizes, and runs of a 1 KiB copy, 64 at a time and one
 * at a time.  In each round all daemons do the same, in random order.  Give the same path twice to
 * see what the machine's noise is: a difference below that is none.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/calls.h"
#include "tests/bench/stream.h"

#include <string.h>

#define DAEMONS_MAX 8u
#define ROUNDS_MAX  999u
#define RECORD_SIZE 4096u
#define RUN_SIZE    1024u
#define RUNS        10000u

struct options {
    const char *json;
    size_t size;
    uint32_t n_rounds;
};

/* One daemon, and what it took in each round of the case under way. */
struct subject {
    struct bench_daemon daemon;
    struct calls calls;
    double seconds[ROUNDS_MAX];
    double client_cpu_s[ROUNDS_MAX];
    double front_end_cpu_s[ROUNDS_MAX];
    double worker_cpu_s[ROUNDS_MAX];
};

struct bench {
    const struct options *options;
    struct bench_report *report;
    struct subject *subjects;
    uint32_t n_subjects;
    uint8_t *in;
    uint8_t *out;
};

struct test {
    const char *name;
    size_t push_size; /* 0: runs */
    uint32_t depth;   /* of runs */
};

static const struct test tests[] = {
    {"push 64K", .push_size = 64u << 10},
    {"push 256K", .push_size = 256u << 10},
    {"push 1M", .push_size = 1u << 20},
    {"push 4M", .push_size = 4u << 20},
    {"run x64", .depth = 64},
    {"run x1", .depth = 1},
};

static size_t test_size(const struct bench *bench, const struct test *test)
{
    return test->push_size != 0 ? bench->options->size : (size_t)RUNS * RUN_SIZE;
}

static void run_stream(const struct bench *bench, const struct subject *subject,
                       const struct test *test)
{
    const struct stream stream = {
        .op = {.name = "copy",
               .n_values = 1,
               .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD_SIZE}}},
        .priority = PRIORITY_BULK,
        .in = bench->in,
        .out = bench->out,
        .in_size = bench->options->size,
        .push_size = test->push_size,
        .in_record = RECORD_SIZE,
        .out_record = RECORD_SIZE,
    };

    stream_run(subject->daemon.socket_path, &stream);
}

static void run_test(const struct bench *bench, struct subject *subject, const struct test *test)
{
    if (test->push_size != 0) {
        run_stream(bench, subject, test);
    } else {
        calls_run(&subject->calls, bench->in, bench->out, RUN_SIZE, RUNS, test->depth);
    }
}

static void time_test(const struct bench *bench, struct subject *subject, const struct test *test,
                      size_t round)
{
    size_t size = test_size(bench, test);

    bench_poison(bench->out, size);
    struct bench_usage client = bench_usage(0);
    struct bench_usage front_end = bench_usage(subject->daemon.pid);
    struct bench_usage worker = bench_usage(subject->daemon.worker);
    uint64_t start_ns = now_ns();
    run_test(bench, subject, test);
    subject->seconds[round] = (double)(now_ns() - start_ns) * 1e-9;
    subject->client_cpu_s[round] = bench_usage_since(0, &client).cpu_s;
    subject->front_end_cpu_s[round] = bench_usage_since(subject->daemon.pid, &front_end).cpu_s;
    subject->worker_cpu_s[round] = bench_usage_since(subject->daemon.worker, &worker).cpu_s;
    bench_check_same(test->name, bench->out, bench->in, size);
}

/* The ratios of all rounds; before medians sort the times. */
static double speed(const struct bench *bench, uint32_t i)
{
    double ratios[ROUNDS_MAX];

    for (size_t round = 0; round < bench->options->n_rounds; round++) {
        ratios[round] = bench->subjects[0].seconds[round] / bench->subjects[i].seconds[round];
    }
    return bench_median(ratios, bench->options->n_rounds);
}

static void add_row(const struct bench *bench, const struct test *test, uint32_t i, double ratio)
{
    struct subject *subject = &bench->subjects[i];
    size_t n_rounds = bench->options->n_rounds;
    bool is_stream = test->push_size != 0;
    /* Streams by the gigabyte, runs by the microsecond. */
    double unit = is_stream ? (double)bench->options->size * 1e-9 : RUNS * 1e-6;
    double seconds = bench_median(subject->seconds, n_rounds);
    const struct bench_cell row[] = {
        {"test     ", test->name, 0, 0},
        {"daemon", NULL, i + 1, 0},
        {"rate", NULL, is_stream ? unit / seconds : RUNS / seconds, is_stream ? 2 : 0},
        {"speed", NULL, ratio, 2},
        {"client", NULL, bench_median(subject->client_cpu_s, n_rounds) / unit, 3},
        {"front_end", NULL, bench_median(subject->front_end_cpu_s, n_rounds) / unit, 3},
        {"worker", NULL, bench_median(subject->worker_cpu_s, n_rounds) / unit, 3},
    };

    bench_report_row(bench->report, row, ARRAY_SIZE(row));
}

static void measure(struct bench *bench, const struct test *test)
{
    double ratios[DAEMONS_MAX];

    for (uint32_t i = 0; i < bench->n_subjects; i++) {
        run_test(bench, &bench->subjects[i], test); /* not counted */
    }
    for (size_t round = 0; round < bench->options->n_rounds; round++) {
        uint32_t order[DAEMONS_MAX];

        bench_fill(bench->in, test_size(bench, test));
        bench_shuffle(order, bench->n_subjects);
        for (uint32_t turn = 0; turn < bench->n_subjects; turn++) {
            time_test(bench, &bench->subjects[order[turn]], test, round);
        }
    }
    for (uint32_t i = 0; i < bench->n_subjects; i++) {
        ratios[i] = speed(bench, i);
    }
    for (uint32_t i = 0; i < bench->n_subjects; i++) {
        add_row(bench, test, i, ratios[i]);
    }
}

static void start(struct subject *subject, const char *path)
{
    const struct msg_run run = {
        .op = {.name = "copy",
               .n_values = 1,
               .values = {{.name = "size", .kind = VALUE_INT, .i = RUN_SIZE}}},
        .options = {.priority = PRIORITY_NORMAL},
        .n_data = 1,
    };

    bench_daemon_start(&subject->daemon, path, "cpu");
    calls_open(&subject->calls, subject->daemon.socket_path);
    calls_prepare_run(&subject->calls, &run);
}

static void compare(struct bench *bench, char **paths)
{
    size_t size = MAX(bench->options->size, (size_t)RUNS * RUN_SIZE);

    bench->subjects = bench_allocate(bench->n_subjects * sizeof(*bench->subjects));
    for (uint32_t i = 0; i < bench->n_subjects; i++) {
        start(&bench->subjects[i], paths[i]);
    }
    bench->in = bench_allocate(size);
    bench->out = bench_allocate(size);
    bench->report = bench_report_create("compare", bench->options->json);
    bench_report_table(bench->report, "compare",
                       "GB/s or runs/s, how many times as fast as the first daemon, and CPU "
                       "seconds for each GB or microseconds for each run");
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        measure(bench, &tests[i]);
    }
    bench_report_destroy(bench->report);
    for (uint32_t i = 0; i < bench->n_subjects; i++) {
        calls_close(&bench->subjects[i].calls);
        bench_daemon_stop(&bench->subjects[i].daemon);
    }
    free(bench->subjects);
    free(bench->in);
    free(bench->out);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"size", "SIZE", "bytes of one round", "32M", 4u << 20, UINT64_C(1) << 36,
         .size = &options.size},
        {"rounds", "N", "rounds of each case", "31", 1, ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    struct bench bench = {.options = &options};
    int first =
        bench_options_read(argc, argv, table, ARRAY_SIZE(table), "DAEMON DAEMON...",
                           "Builds of gpupiped against each other; the first is the measure.");

    bench.n_subjects = (uint32_t)(argc - first);
    if (bench.n_subjects == 0 || bench.n_subjects > DAEMONS_MAX) {
        bench_options_refuse("give one to %u daemons", DAEMONS_MAX);
    }
    compare(&bench, argv + first);
    return EXIT_SUCCESS;
}
