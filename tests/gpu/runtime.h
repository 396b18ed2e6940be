/*
 * Runtime: one of CUDA that needs no GPU, for tests of what is built on it.  Streams do nothing
 * until the test runs them; then copies copy and kernels are the ops' C.  Every call is written
 * down.  Of each program that links it these are wrapped as well: clock_gettime() tells
 * runtime.ns, and ppoll() does not wait.
 *
 * Threads: one.
 */
#pragma once

#include "cuda/cuda_parts.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

enum call_type {
    CALL_COPY,
    CALL_LAUNCH,
    CALL_RECORD,
    CALL_WAIT,
    CALL_ALLOCATE,
    CALL_FREE,
    CALL_ASK_EVENT,
    CALL_ASK_STREAM,
    CALL_SLEEP, /* a ppoll() that would wait */
};

struct call {
    enum call_type type;
    const struct CUstream_st *stream; /* NULL: none */
    uint32_t op;                      /* of a launch */
    enum work_kind kind;
    uint32_t n_chunks;
    uint32_t n_blocks;  /* for each chunk, ... */
    uint32_t n_threads; /* ... of so many */
    bool tells_end;
};

#define RUNTIME_CALLS 4096u

struct runtime {
    uint64_t ns;      /* what time it is */
    uint64_t task_ns; /* that a copy or a kernel takes, ... */
    uint64_t copy_ns; /* ... a copy for each KiB beside, ... */
    uint64_t host_ns; /* ... and a kernel for each Ki of records whose input the host has */
    uint64_t cold_ns; /* and, once, for the first of these */
    bool is_prompt;   /* streams do at once what they are given */
    struct call calls[RUNTIME_CALLS];
    uint32_t n_calls;

    /* Before a pipeline is created. */
    bool has_entry_points; /* of the driver, for green contexts */
    int n_processors;
    bool sees_host;
    int most_threads; /* of a block */

    /* What goes wrong. */
    cudaError_t allocate_error, record_error;
    cudaError_t launch_error, copy_error;    /* once, ... */
    uint32_t n_good_launches, n_good_copies; /* ... after so many */
    uint32_t bad_calls[2];                   /* the n-th since runtime_forget(), from 1 */
    bool faults; /* the next kernel that runs: from then on every answer is `fault` */
    cudaError_t fault;

    /* What is there now. */
    uint32_t n_allocated, n_events, n_streams, n_contexts;
};
extern struct runtime runtime;

/* As at the start, of a device like an H200. */
void runtime_reset(void);
/* Forget the calls so far. */
void runtime_forget(void);
/* Calls of this type since then. */
uint32_t runtime_count(enum call_type type);
/* The i-th of them, from 0. */
const struct call *runtime_call(enum call_type type, uint32_t i);

/* Do what the streams have been given, as far as events let them. */
void runtime_run(void);
/* One thing that one of them, by chance, was given; how many are left of all.  False: it waits, or
 * has none. */
bool runtime_step(uint64_t chance, uint32_t *ret_n_left);
/* Only that of this priority, as CUDA counts them. */
void runtime_run_priority(int priority);

cudaError_t runtime_create_stream(cudaStream_t *stream, enum cuda_part part, int priority);
enum cuda_part runtime_part(const struct CUstream_st *stream);
int runtime_priority(const struct CUstream_st *stream);
