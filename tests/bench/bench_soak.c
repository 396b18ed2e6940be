/*
 * bench_soak: many small descriptors through one ring, and what memory and descriptors the daemon
 * and its worker have meanwhile: the README says that they stay as they are.
 *
 * Rounds of fresh random data, every byte of which is checked.  Further jobs may be open meanwhile,
 * to see what they cost: the front end's CPU time is there as well.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/ring_stream.h"

#include <dirent.h>
#include <string.h>

#define RECORD 64u
#define PUSH   256u /* bytes: the smaller, the more descriptors a second */
#define WINDOW 64u
#define ROUND  (1u << 20) /* bytes; 4096 descriptors */

#define JOBS_MAX (11 * LIMIT_JOBS) /* and this one's: what one user may have */

static const double shares[] = {0.1, 0.5, 1.0}; /* of the work, where it is looked at */

static double n_fds_of(pid_t pid)
{
    char path[64];
    double n = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    if (folder == NULL) {
        bench_fail("%s cannot be read", path);
    }
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n - 2; /* "." and ".." */
}

static void report_row(struct bench_report *report, const struct bench_daemon *daemon,
                       uint64_t n_done)
{
    const struct bench_cell row[] = {
        {"descriptors", NULL, (double)n_done, 0},
        {"daemon_ns", NULL, bench_usage(daemon->pid).cpu_s * 1e9 / (double)n_done, 0},
        {"daemon_kib", NULL, bench_rss_kib(daemon->pid), 0},
        {"daemon_fds", NULL, n_fds_of(daemon->pid), 0},
        {"worker_kib", NULL, bench_rss_kib(daemon->worker), 0},
        {"worker_fds", NULL, n_fds_of(daemon->worker), 0},
    };

    bench_report_row(report, row, ARRAY_SIZE(row));
}

static void run_round(struct ring_stream *stream, const struct ring_stream_job *job, uint8_t *want,
                      size_t size)
{
    bench_fill(want, size);
    memcpy(stream->in, want, size);
    bench_poison(stream->out, size);
    ring_stream_run(stream, job, size, PUSH);
    bench_check_same("ring", stream->out, want, size);
}

static void run_all(struct ring_stream *stream, const struct ring_stream_job *job,
                    const struct bench_daemon *daemon, uint64_t n, struct bench_report *report)
{
    uint8_t *want = bench_allocate(ROUND);
    uint64_t n_done = 0;

    for (uint32_t i = 0; i < ARRAY_SIZE(shares); i++) {
        while (n_done < (uint64_t)((double)n * shares[i])) {
            uint64_t n_now = MIN(n - n_done, (uint64_t)ROUND / PUSH);

            run_round(stream, job, want, n_now * PUSH);
            n_done += n_now;
        }
        report_row(report, daemon, n_done);
    }
    free(want);
}

/* As many on each connection as it may have. */
static void open_jobs(struct ring_stream *others, const char *socket_path, const struct msg_op *op,
                      uint32_t n)
{
    struct ring_stream_job idle;

    for (uint32_t i = 0; i < n; i++) {
        if (i % LIMIT_JOBS == 0) {
            ring_stream_open(&others[i / LIMIT_JOBS], socket_path, 1);
        }
        ring_stream_prepare(&others[i / LIMIT_JOBS], op, PRIORITY_NORMAL, 1, &idle);
    }
}

int main(int argc, char **argv)
{
    static const char *backend, *json;
    static uint32_t n, n_jobs;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &backend},
        {"count", "N", "descriptors", "10000000", 1000, UINT32_MAX, .count = &n},
        {"jobs", "N", "jobs that others have open", "0", 0, JOBS_MAX, .count = &n_jobs},
        {"json", "FILE", "write the figures there as well", .text = &json},
    };
    static const struct msg_op copy = {
        .name = "copy",
        .n_values = 1,
        .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}},
    };
    static struct bench_daemon daemon;
    static struct ring_stream stream, others[JOBS_MAX / LIMIT_JOBS];
    struct ring_stream_job job;
    struct bench_report *report;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "Memory of a private gpupiped over many descriptors in a ring.");
    bench_daemon_start(&daemon, NULL, backend);
    ring_stream_open(&stream, daemon.socket_path, 2 * ROUND);
    ring_stream_prepare(&stream, &copy, PRIORITY_NORMAL, WINDOW, &job);
    open_jobs(others, daemon.socket_path, &copy, n_jobs);
    report = bench_report_create("soak", json);
    bench_report_table(report, "memory",
                       "CPU time of each, resident KiB and open descriptors, after so many pushes");
    run_all(&stream, &job, &daemon, n, report);
    bench_report_destroy(report);
    for (uint32_t i = 0; i < div_round_up(n_jobs, LIMIT_JOBS); i++) {
        ring_stream_close(&others[i]);
    }
    ring_stream_close(&stream);
    bench_daemon_stop(&daemon);
    return EXIT_SUCCESS;
}
