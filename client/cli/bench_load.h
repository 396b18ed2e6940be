/*
 * Bench load: sends pushes of a job, tells how long each took, and checks every byte that came out.
 *
 * It goes in rounds.  Fresh input is made for as many pushes as the memory holds, and their outputs
 * are poisoned; they are sent and come back, which is timed; then all outputs are checked, and the
 * next round begins.  So nothing but sending and receiving happens while time is taken.
 *
 * Closed loop: `window` pushes are under way, the next is sent when one is back; its latency counts
 * from when it is sent.  What is timed of a round goes from its first push's leaving to its last
 * one's return.  Rounds follow until the duration has passed, making and checking included.
 *
 * Open loop: pushes are due at a rate, whatever the daemon does.  Latency counts *from when a push
 * was due*, so that one that could not leave in time, because so many others were under way or
 * because this process was late, is told of in full.  The clock of the schedule stands still from a
 * round's last push's leaving to the next round's begin; what was overdue then still is.  The
 * duration is the schedule's: all that is due within it is sent, unless that takes twice as long.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/arrivals.h"
#include "client/cli/bench_memory.h"
#include "client/cli/bench_ops.h"
#include "client/cli/histogram.h"

#include <stdint.h>

struct load_plan {
    struct bench_op op;
    uint64_t size;   /* bytes of each array of a push */
    uint32_t window; /* under way at once; in an open loop, at most */
    double rate;     /* pushes a second; 0: closed loop */
    enum arrivals_kind kind;
    uint64_t duration_ns;
    uint64_t warmup_ns; /* of the same load, not counted; 0: none */
    enum gpupipe_priority priority;
    enum gpupipe_require require;
    const char *device; /* NULL: any */
};

struct load_result {
    bool is_refused; /* the daemon has no room for so much at once: nothing else counts */
    bool is_behind;  /* open loop: given up, with pushes not sent that were due */
    uint32_t window; /* as granted */
    uint64_t timed_ns;
    uint64_t in_size, out_size; /* of all pushes */
    char backend[32], device[64], path[16];
    struct histogram latency; /* of each push that is back, in nanoseconds */
    struct histogram delay;   /* of that, what it was sent too late by */
};

/* Bytes of memory that a push takes. */
uint64_t load_push_size(const struct load_plan *plan);

/*
 * CLI_INTERRUPTED: *ret_result has what there was until then, all of it checked.  Whatever is not
 * CLI_OK may leave pushes under way: the connection is of no further use then.
 */
int load_run(struct gpupipe *gpupipe, const struct bench_memory *memory,
             const struct load_plan *plan, struct load_result *ret_result);
