/*
 * Bench args: the command line of gpupipe-cli bench.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/bench_load.h"

enum bench_kind { BENCH_THROUGHPUT, BENCH_LATENCY, BENCH_CHUNKS, BENCH_STREAMS, BENCH_COUNT };
enum bench_format { BENCH_TEXT, BENCH_JSON, BENCH_HGRM, BENCH_FORMAT_COUNT };

extern const char *const bench_names[BENCH_COUNT];
extern const char *const bench_priorities[3]; /* by enum gpupipe_priority */

/* The histogram tells latencies up to 4.8 hours, and an open loop may take twice its duration. */
#define BENCH_DURATION_MOST_NS UINT64_C(3600000000000)
/* Some times what one connection was seen to do: more tells nothing. */
#define BENCH_RATE_MOST 1e6

struct bench_args {
    enum bench_kind kind;
    struct load_plan plan; /* of the sweeps, but for what they sweep */
    bool is_inline;
    enum bench_format format;
    const char *svg_path; /* NULL: none */
    bool is_forced;
};

/* With cli->wants_help set, nothing is checked. */
int bench_args_parse(struct cli *cli, int argc, char **argv, struct bench_args *ret_args);
