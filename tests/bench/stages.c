/*
 * Stages: the client's stamps, and those of the worker that lie between them.
 */
#include "tests/bench/stages.h"

#include "proto/queue.h"
#include "proto/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(1000000000)

/* One job. */
struct stamps {
    uint64_t submit_ns;
    uint64_t reap_ns;
    uint64_t queue_ns; /* of a timed job: from the front end's intake to its beginning */
    struct work_result result;
    bool is_known; /* the result */
};

enum stage {
    STAGE_QUEUED,
    STAGE_INTAKE,
    STAGE_DISPATCH,
    STAGE_TAKEN,
    STAGE_RUNNING,
    STAGE_DEVICE,
    STAGE_ANSWER,
    STAGE_ALL,
    STAGES,
};

static const char *const stage_names[STAGES] = {
    [STAGE_QUEUED] = "submitted to taken by the worker",
    [STAGE_INTAKE] = "of it, to the front end's intake",
    [STAGE_DISPATCH] = "of it, from there on",
    [STAGE_TAKEN] = "taken to about to be issued",
    [STAGE_RUNNING] = "about to be issued to seen done",
    [STAGE_DEVICE] = "of it, as the device timed it",
    [STAGE_ANSWER] = "seen done to reaped",
    [STAGE_ALL] = "submitted to reaped",
};

/* NAN: not known. */
static double stage_ns(const struct stamps *stamps, bool is_timed, enum stage stage)
{
    const struct work_result *result = &stamps->result;
    const uint64_t intake_ns = result->start_ns - stamps->queue_ns;

    if (stage == STAGE_ALL) {
        return (double)(stamps->reap_ns - stamps->submit_ns);
    }
    if (!stamps->is_known) {
        return NAN;
    }
    switch (stage) {
    case STAGE_INTAKE:
        return is_timed ? (double)(intake_ns - stamps->submit_ns) : NAN;
    case STAGE_DISPATCH:
        return is_timed ? (double)(result->issue_ns - intake_ns) : NAN;
    case STAGE_QUEUED:
        return (double)(result->issue_ns - stamps->submit_ns);
    case STAGE_TAKEN:
        return (double)(result->start_ns - result->issue_ns);
    case STAGE_RUNNING:
        return (double)(result->end_ns - result->start_ns);
    case STAGE_DEVICE:
        return is_timed ? (double)(result->in_ns + result->compute_ns + result->out_ns) : NAN;
    default:
        return (double)(stamps->reap_ns - result->end_ns);
    }
}

/* ---- the worker's stamps -------------------------------------------------------------------- */

/* The daemon's queues as their worker has them; NULL: they are not for us. */
static struct queue *open_queues(pid_t daemon)
{
    char folder[64], path[96], name[64];
    struct queue *queue = NULL;
    struct dirent *entry;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)daemon);
    DIR *fds = opendir(folder);
    while (fds != NULL && queue == NULL && (entry = readdir(fds)) != NULL) {
        snprintf(path, sizeof(path), "%s/%.16s", folder, entry->d_name);
        ssize_t n = readlink(path, name, sizeof(name) - 1);

        name[MAX(n, (ssize_t)0)] = '\0';
        if (strstr(name, "memfd:gpupipe-queues") != NULL) {
            _cleanup_(close_fd) int fd = open(path, O_RDWR | O_CLOEXEC);

            if (fd < 0 || queue_attach(fd, &queue) < 0) {
                break;
            }
        }
    }
    if (fds != NULL) {
        closedir(fds);
    }
    return queue;
}

/* A job's result is the one that began while it was under way: there was no other. */
static void find_results(const struct stages_options *options, const struct queue *queue,
                         struct stamps *stamps)
{
    for (uint32_t place = 0; place < WORK_ENTRIES; place++) {
        struct work_entry entry;
        struct work_result result;

        queue_work_read(queue, options->priority, place, &entry, &result);
        for (uint32_t i = 0; i < options->n_jobs; i++) {
            if (result.state == RESULT_DONE && result.issue_ns >= stamps[i].submit_ns &&
                result.issue_ns <= stamps[i].reap_ns) {
                stamps[i].result = result;
                stamps[i].is_known = true;
            }
        }
    }
}

/* ---- the client's --------------------------------------------------------------------------- */

static void run_job(const struct stages_options *options, const struct ring_stream_job *job,
                    uint32_t i, struct stamps *stamps)
{
    struct ring_completion completion;

    *stamps = (struct stamps){.submit_ns = now_ns()};
    ring_stream_send(options->stream, job, i * options->size, options->size);
    while (ring_stream_take(options->stream, &completion, 1) == 0) {
        if (now_ns() - stamps->submit_ns >= options->spin_ns) {
            ring_stream_wait(options->stream, now_ns() + PATIENCE_NS);
        }
    }
    stamps->reap_ns = now_ns();
    stamps->queue_ns = completion.queue_ns;
    if (completion.status != STATUS_OK) {
        bench_fail("a push failed: %s", status_name(completion.status));
    }
}

/* Medians, one for each stage. */
static void measure(const struct stages_options *options, bool is_timed, double *ret_medians)
{
    const struct ring_stream_job *job = is_timed ? options->timed : options->plain;
    struct queue *queue = open_queues(options->daemon);
    struct stamps stamps[STAGES_JOBS];
    double values[STAGES_JOBS];

    for (uint32_t i = 0; i < options->n_jobs; i++) {
        run_job(options, job, i, &stamps[i]);
    }
    if (queue != NULL) {
        find_results(options, queue, stamps);
    }
    queue_destroy(queue);
    for (enum stage stage = 0; stage < STAGES; stage++) {
        uint32_t n = 0;

        for (uint32_t i = 1; i < options->n_jobs; i++) {
            double ns = stage_ns(&stamps[i], is_timed, stage);

            values[n] = ns;
            n += !isnan(ns);
        }
        ret_medians[stage] = n > 0 ? bench_median(values, n) : NAN;
    }
}

void stages_report(const struct stages_options *options, struct bench_report *report)
{
    double medians[2][STAGES];

    measure(options, false, medians[false]);
    measure(options, true, medians[true]);
    bench_report_table(report, "stages",
                       "one job at a time in the ring: medians; with `timing` the device's part is "
                       "another, and the front end says when it took the job");
    for (enum stage stage = 0; stage < STAGES; stage++) {
        const struct bench_cell row[] = {
            {"stage                           ", stage_names[stage], 0, 0},
            {"ns", NULL, medians[false][stage], 0},
            {"timed_ns", NULL, medians[true][stage], 0},
        };

        bench_report_row(report, row, ARRAY_SIZE(row));
    }
}
