/*
 * Stages: where the time of small jobs goes that go through a ring one at a time.
 *
 * What the worker notes of a job stands in the queues that it shares with the front end, for as
 * long as no later job takes its place there: that is read when all jobs are done, so it costs them
 * nothing.  It takes the right to open the daemon's descriptors (root's, as a daemon is closed to
 * its own user); without it those stages are not known.
 *
 * Thread: its caller's.
 */
#pragma once

#include "tests/bench/bench.h"
#include "tests/bench/ring_stream.h"

#define STAGES_JOBS 200u /* at most: fewer than a work queue has places */

/* Jobs of the stream's first bytes, the first of them not counted; reports a table. */
struct stages_options {
    pid_t daemon;
    struct ring_stream *stream;
    const struct ring_stream_job *plain;
    const struct ring_stream_job *timed; /* opened with `timing`: its device's part is another */
    enum priority priority;
    size_t size;      /* of a job */
    uint32_t n_jobs;  /* whose data lie one after the other; at most STAGES_JOBS */
    uint64_t spin_ns; /* that the client looks for a completion before it sleeps */
};

void stages_report(const struct stages_options *options, struct bench_report *report);
