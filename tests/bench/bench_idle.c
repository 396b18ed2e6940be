/*
 * bench_idle: how often an idle daemon wakes up, with a client that has a ring open and has just
 * had an urgent job in it.  The watchdog's wake-ups are none here: no service manager asks for
 * them.
 *
 * Wake-ups are context switches of the threads of the front end and its children, and the CPU time
 * of all of them is stated.  Threads that we have not made are counted apart: CUDA's event handler
 * wakes up ten times a second, in every process that has a context, whatever it does.  On a GPU
 * such a process stands beside ours.
 */
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_options.h"
#include "tests/bench/own.h"
#include "tests/bench/ring_stream.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define RECORD        4096u
#define RING_SIZE     (1u << 20)
#define PROCESSES_MAX 8u
#define US_PER_MS     1000u

struct options {
    const char *backend;
    const char *json;
    uint32_t quiet_ms;
    uint32_t idle_ms;
};

struct process {
    pid_t pid;
    char name[32];
    uint64_t n_switches;       /* of the first thread, and those that have the names we gave */
    uint64_t n_other_switches; /* of others: the driver's */
    struct bench_usage usage;
};

/* ---- what the kernel counts ----------------------------------------------------------------- */

/* The first line of a file in /proc/PID, "" without one. */
static void read_line(pid_t pid, const char *name, char *ret_line, size_t size)
{
    char path[96];
    FILE *file;

    ret_line[0] = '\0';
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    if (file != NULL && fgets(ret_line, (int)size, file) != NULL) {
        ret_line[strcspn(ret_line, "\n")] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static bool is_ours(pid_t pid, const char *thread)
{
    char path[64], name[32];

    snprintf(path, sizeof(path), "task/%.20s/comm", thread);
    read_line(pid, path, name, sizeof(name));
    return atoi(thread) == pid || strcmp(name, "data") == 0 || strncmp(name, "compute-", 8) == 0;
}

static uint64_t switches_of_thread(pid_t pid, const char *thread)
{
    uint64_t n = 0;
    char path[96], line[256];
    unsigned long long value;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, thread);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &value) == 1 ||
            sscanf(line, "nonvoluntary_ctxt_switches: %llu", &value) == 1) {
            n += value;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

/* Of all its threads since it was last asked. */
static void count_switches(struct process *process)
{
    const struct dirent *entry;
    uint64_t n[2] = {0, 0};
    char path[64];
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)process->pid);
    folder = opendir(path);
    if (folder == NULL) {
        bench_fail("process %d ended", (int)process->pid);
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            n[is_ours(process->pid, entry->d_name)] +=
                switches_of_thread(process->pid, entry->d_name);
        }
    }
    closedir(folder);
    process->n_switches = n[true] - process->n_switches;
    process->n_other_switches = n[false] - process->n_other_switches;
}

/* The front end and its children; returns how many. */
static uint32_t find_processes(pid_t daemon, struct process *ret_processes)
{
    uint32_t n = 1;
    char path[64];
    FILE *file;

    ret_processes[0].pid = daemon;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
    file = fopen(path, "re");
    while (file != NULL && n < PROCESSES_MAX && fscanf(file, "%d", &ret_processes[n].pid) == 1) {
        n++;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

/* ---- the idle time -------------------------------------------------------------------------- */

static void measure(struct process *processes, uint32_t n, uint32_t idle_ms)
{
    for (uint32_t i = 0; i < n; i++) {
        read_line(processes[i].pid, "comm", processes[i].name, sizeof(processes[i].name));
        count_switches(&processes[i]);
        processes[i].usage = bench_usage(processes[i].pid);
    }
    usleep(idle_ms * US_PER_MS);
    for (uint32_t i = 0; i < n; i++) {
        count_switches(&processes[i]);
        processes[i].usage = bench_usage_since(processes[i].pid, &processes[i].usage);
    }
}

/* n of them are the daemon's; the one behind them, if any, is not. */
static void report(const struct options *options, const struct process *processes, uint32_t n,
                   bool has_other)
{
    struct bench_report *report = bench_report_create("idle", options->json);
    uint64_t n_switches = 0, n_other_switches = 0;

    bench_report_table(report, "idle", "wake-ups of our threads and others', CPU milliseconds");
    for (uint32_t i = 0; i < n + has_other; i++) {
        const struct bench_cell row[] = {
            {"process         ", processes[i].name, 0, 0},
            {"wake_ups", NULL, (double)processes[i].n_switches, 0},
            {"others", NULL, (double)processes[i].n_other_switches, 0},
            {"cpu_ms", NULL, processes[i].usage.cpu_s * 1e3, 3},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
        n_switches += i < n ? processes[i].n_switches : 0;
        n_other_switches += i < n ? processes[i].n_other_switches : 0;
    }
    bench_report_table(report, "limits", "all processes of the daemon");
    bench_report_limit(report, "wake-ups of an idle daemon", (double)n_switches, 0);
    bench_report_limit(report, "wake-ups of the driver's threads", (double)n_other_switches, NAN);
    if (has_other) {
        bench_report_limit(report, "wake-ups of a bare process",
                           (double)(processes[n].n_switches + processes[n].n_other_switches), NAN);
    }
    bench_report_destroy(report);
}

static void run_urgent(struct ring_stream *stream)
{
    const struct msg_op copy = {.name = "copy",
                                .n_values = 1,
                                .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}}};
    struct ring_stream_job job;

    bench_fill(stream->in, RECORD);
    bench_poison(stream->out, RECORD);
    ring_stream_prepare(stream, &copy, PRIORITY_URGENT, 0, &job);
    ring_stream_shot(stream, &job, 0, RECORD, 0);
    bench_check_same("ring", stream->out, stream->in, RECORD);
}

int main(int argc, char **argv)
{
    static struct options options;
    static const struct bench_option table[] = {
        {"backend", "B", "cpu or cuda", "cpu", .text = &options.backend},
        {"quiet", "MS", "between the urgent job and the idle time", "3000", 0, 60000,
         .count = &options.quiet_ms},
        {"idle", "MS", "the idle time", "10000", 1, 600000, .count = &options.idle_ms},
        {"json", "FILE", "write the figures there as well", .text = &options.json},
    };
    static struct process processes[PROCESSES_MAX + 1];
    struct bench_daemon daemon = {0};
    struct own own;
    bool is_cuda;
    struct ring_stream stream;
    uint32_t n;

    bench_options_read(argc, argv, table, ARRAY_SIZE(table), NULL,
                       "How often an idle daemon wakes up.");
    bench_need_backend(options.backend);
    bench_daemon_start(&daemon, NULL, options.backend);
    ring_stream_open(&stream, daemon.socket_path, RING_SIZE);
    is_cuda = strcmp(options.backend, "cuda") == 0;
    if (is_cuda) {
        own_start_holder(&own, 0);
    }
    run_urgent(&stream);
    usleep(options.quiet_ms * US_PER_MS);
    n = find_processes(daemon.pid, processes);
    if (is_cuda) {
        processes[n].pid = own.pid;
    }
    measure(processes, n + is_cuda, options.idle_ms);
    report(&options, processes, n, is_cuda);
    if (is_cuda) {
        own_stop(&own);
    }
    ring_stream_close(&stream);
    bench_daemon_stop(&daemon);
    return EXIT_SUCCESS;
}
