/*
 * Bench report: what a benchmark found, as text, JSON, a percentile log, or a picture.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/bench_args.h"
#include "client/cli/output.h"

/* Chunks from 64 KiB to 16 MiB, or windows from 1 to 64: by powers of two. */
#define BENCH_POINTS_MOST 9

/* Nanoseconds. */
struct bench_spread {
    uint64_t least, p50, p90, p99, p999, p9999, greatest;
    double mean;
};

struct bench_point {
    uint64_t size;
    uint32_t window;
    bool is_behind;
    uint64_t n_pushes;
    uint64_t in_size, out_size;
    uint64_t timed_ns;
    struct bench_spread latency, delay;
};

struct bench_report {
    const struct bench_args *args;
    bool is_interrupted;
    struct load_result *last; /* the last point's, with its histogram, and by what it was done */
    uint32_t n_points;
    struct bench_point points[BENCH_POINTS_MOST];
};

/* Take in report->last as one more point; one that nothing came back of is none. */
void bench_report_add(struct bench_report *report, uint64_t size);
/* On stdout, in the format of the arguments. */
int bench_report_print(const struct bench_report *report);
/* As a picture. */
int bench_report_draw(const struct bench_report *report, struct output *output);
