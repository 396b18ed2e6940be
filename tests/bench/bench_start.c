/*
 * bench_start: a copy of 4 KiB by a program that starts for it, from fork() to waitpid().
 *
 *     gpupipe-cli   run copy, with a daemon that is there
 *     own context   the same work by a program that has to open the GPU first; only on a GPU
 *     cp            what starting a program and copying a file costs by itself
 *
 * Rounds in random order with fresh random data; every byte is checked.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/contest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SIZE     4096u
#define MS_PER_S 1e3

enum variant { CLI, CP, OWN_CONTEXT, N_VARIANTS };

static const char *const names[] = {
    [CLI] = "gpupipe-cli",
    [CP] = "cp",
    [OWN_CONTEXT] = "own context",
};

struct options {
    const char *backend;
    const char *json;
    uint32_t n_rounds;
};

struct bench {
    const struct options *options;
    struct bench_daemon daemon;
    uint32_t n_variants;
    uint8_t in[SIZE];
    char in_path[128];
    char out_path[128];
    char cli_path[PATH_MAX + 32];
    char own_path[PATH_MAX + 32];
    struct contest contest;
};

static _Noreturn void become(const struct bench *bench, enum variant variant)
{
    const char *socket_path = bench->daemon.socket_path;
    const char *in = bench->in_path, *out = bench->out_path;

    switch (variant) {
    case CLI:
        execl(bench->cli_path, "gpupipe-cli", "--socket", socket_path, "run", "copy", "-p",
              "size=4096", "-i", in, "-o", out, NULL);
        break;
    case OWN_CONTEXT:
        execl(bench->own_path, "own-context", "copy", in, out, NULL);
        break;
    default:
        execlp("cp", "cp", in, out, NULL);
    }
    fprintf(stderr, "%s: %s\n", names[variant], strerror(errno));
    _exit(127);
}

static void check_output(const struct bench *bench, enum variant variant)
{
    FILE *file = fopen(bench->out_path, "re");
    uint8_t out[SIZE + 1];
    size_t size = 0;

    bench_poison(out, sizeof(out));
    if (file != NULL) {
        size = fread(out, 1, sizeof(out), file);
        fclose(file);
    }
    if (size != SIZE) {
        bench_fail("%s: %zu bytes came", names[variant], size);
    }
    bench_check_same(names[variant], out, bench->in, SIZE);
}

static void begin_round(void *owner)
{
    struct bench *bench = owner;
    FILE *file = fopen(bench->in_path, "we");

    bench_fill(bench->in, SIZE);
    if (file == NULL || fwrite(bench->in, 1, SIZE, file) != SIZE || fclose(file) != 0) {
        bench_fail("%s: %s", bench->in_path, strerror(errno));
    }
}

static double run_variant(void *owner, uint32_t variant)
{
    const struct bench *bench = owner;
    int status = 0;
    uint64_t start_ns;
    double seconds;
    pid_t pid;

    unlink(bench->out_path);
    start_ns = now_ns();
    pid = bench_fork();
    if (pid == 0) {
        become(bench, variant);
    }
    waitpid(pid, &status, 0);
    seconds = (double)(now_ns() - start_ns) * 1e-9;
    if (status != 0) {
        bench_fail("%s ended with status %x", names[variant], (unsigned)status);
    }
    check_output(bench, variant);
    return seconds;
}

static void report(struct bench *bench)
{
    struct bench_report *report = bench_report_create("start", bench->options->json);

    bench_report_table(report, "start", "milliseconds from start to exit");
    for (uint32_t i = 0; i < bench->n_variants; i++) {
        double ratio = contest_ratio(&bench->contest, CLI, i);
        const struct bench_cell row[] = {
            {"program    ", names[i], 0, 0},
            {"median", NULL, contest_seconds(&bench->contest, i) * MS_PER_S, 2},
            {"of_cli", NULL, ratio, 2},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
    if (bench->n_variants > OWN_CONTEXT) {
        bench_report_table(report, "reach", "how many times as long as gpupipe-cli");
        bench_report_claim(report, "an own context against gpupipe-cli",
                           contest_ratio(&bench->contest, CLI, OWN_CONTEXT), 40);
    }
    bench_report_destroy(report);
}

static void start(struct bench *bench)
{
    bool is_cuda = strcmp(bench->options->backend, "cuda") == 0;

    bench->n_variants = is_cuda ? N_VARIANTS : OWN_CONTEXT;
    bench_find("client/gpupipe-cli", bench->cli_path, sizeof(bench->cli_path));
    if (is_cuda) {
        bench_find("tests/bench/own-context", bench->own_path, sizeof(bench->own_path));
    }
    bench_daemon_start(&bench->daemon, NULL, bench->options->backend);
    snprintf(bench->in_path, sizeof(bench->in_path), "%s/in", bench->daemon.folder);
    snprintf(bench->out_path, sizeof(bench->out_path), "%s/out", bench->daemon.folder);
}

static void stop(struct bench *bench)
{
    unlink(bench->in_path);
    unlink(bench->out_path);
    bench_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"rounds", "N", "rounds", "9", 1, CONTEST_ROUNDS_MAX, .count = &options.n_rounds},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct bench bench;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "A copy of 4 KiB by a program that starts for it.");
    bench_need_backend(options.backend);
    bench.options = &options;
    start(&bench);
    bench.contest = (struct contest){
        .n_variants = bench.n_variants,
        .n_rounds = options.n_rounds,
        .begin = begin_round,
        .run = run_variant,
        .owner = &bench,
    };
    contest_run(&bench.contest);
    report(&bench);
    stop(&bench);
    return EXIT_SUCCESS;
}
