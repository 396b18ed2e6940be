/*
 * Fake server: a child process that speaks the daemon's side of the protocol over a socketpair, as
 * a script of oddities says.  One job at a time; the op's output is its input 0, each byte xor
 * FAKE_XOR; a reduce op's output is the xor of all input bytes, at its first byte.
 *
 * A run is a push of number 0, and must be urgent.
 *
 * Rings (fake_ring.h): their descriptors are numbered as pushes are, over all rings.
 *
 * It sends blocking, and reads nothing meanwhile: a client that does not read while it writes would
 * hang, and the test's time limit would tell.
 */
#pragma once

#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_XOR 0x5a

/* A constant's id is its bytes as digits of this base, modulo the number of ids.  It knows one. */
#define FAKE_CONST     31
#define FAKE_CONST_IDS 1000003

struct fake_script {
    uint32_t record_size; /* of input 0 and output 0 */
    uint32_t n_in;        /* further inputs are only received; 0 means 1 */
    uint32_t credit;
    uint64_t max_push;
    bool is_reduce;
    uint32_t n_busy; /* refuse job.open as BUSY this many times */

    uint32_t batch;         /* answer so many pushes together, last first; 0 means 1 */
    bool is_result_first;   /* the result goes before the answer of its job.push */
    int64_t refuse_seq;     /* answer the first job.push of this number with RANGE; -1 none */
    int64_t fail_seq;       /* its result is KERNEL_FAULT, and the job failed; -1 none */
    int64_t oversize_seq;   /* its output has a record more than it should; -1 none */
    int64_t die_seq;        /* exit when this push has arrived; -1 none ... */
    bool empties_ring;      /* ... with all of its ring's queues zero */
    int64_t die_within_seq; /* exit half way through sending this result; -1 none */
    bool has_no_rings;      /* ring.open is no method */
    uint32_t n_busy_rings;  /* refuse ring.open as BUSY this many times */
    bool is_done_first;     /* job.done goes before a ring's last completions */
    int64_t break_seq;      /* close its ring when this descriptor has come; -1 none */
    bool is_done_late;  /* and that was the last: job.done comes behind NOT_FOUND for job.close */
    int64_t lie_seq;    /* complete a push that does not exist instead; -1 none */
    bool is_bell_eager; /* ring after every completion, whether the client sleeps or not */
    bool is_awake;      /* urgent pushes in rings keep it from sleeping, it says */
    uint32_t nap_us;    /* before it answers what it holds of rings */
    bool is_nonsense;   /* answer hello with bytes that are no message */
    bool is_too_new;    /* api_compatible is beyond ours */

    /* After job.close: answer the request that comes next, before it does, and exit. */
    bool opens_job_and_dies;
    bool opens_ring_and_dies;
};

#define FAKE_SCRIPT                                                                                \
    .record_size = 4, .credit = 3, .max_push = 1 << 20, .refuse_seq = -1, .fail_seq = -1,          \
    .oversize_seq = -1, .die_seq = -1, .die_within_seq = -1, .break_seq = -1, .lie_seq = -1

/* Starts it; the test must call fake_server_end().  *ret_fd is the client's end. */
pid_t fake_server_start(const struct fake_script *script, int *ret_fd);
/* Waits for it to end (close the connection first): 0, or what it found wrong with the client. */
int fake_server_end(pid_t pid);
