/*
 * Registry: the ops that are built into a worker, as code that a CPU thread calls.
 *
 * Each op is one file in cuda/ops/, listed in cuda/ops/ops.list; op.h turns that file into one
 * `struct op_code` for the CPU backend (and into kernels for the GPU).
 *
 * Threads: every function is pure over its arguments and may run on any number of threads at once.
 * Inputs lie in memory that their client may rewrite at any time: op code reads what decides an
 * address or a length once, through GP_LOAD, and clamps it.
 */
#pragma once

#include "proto/manifest.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * n_records records of every array, consecutive in each.  tail_size, if not 0, is the length in
 * bytes of the last record of input 0; what lies behind it in memory must not be read.  A varying
 * input has varying_size bytes.  Constants do not change, nor do they differ within one table.
 */
struct op_chunk {
    const void *in[LIMIT_IN];
    void *out[LIMIT_OUT];
    const void *consts[LIMIT_CONSTS];
    uint32_t n_records;
    uint32_t tail_size;
    uint32_t varying_size;
    uint32_t zero;
};

struct op_code {
    const struct manifest_op *manifest;

    /* Map ops: all records of several chunks as one table, so that narrow chunks fill the lanes. */
    void (*map)(const void *params, const struct op_chunk *chunks, uint32_t n_chunks);

    /* Reduce ops: out[0] gets one partial per started leaf of the chunk, which starts a leaf. */
    void (*leaves)(const void *params, const struct op_chunk *chunk);
    /* Fold n partials in order onto fold (NULL: onto the empty fold) and write ret_fold. */
    void (*merge)(const void *params, const void *fold, const void *partials, uint32_t n,
                  void *ret_fold);
    /* Turn a fold into record 0 of each output. */
    void (*finish)(const void *params, const void *fold, void *const out[LIMIT_OUT]);
    uint32_t n_lanes; /* reduce ops: threads that one block of the leaves kernel must have */

    uint32_t n_members; /* map ops of a min_parallel above 1: a GPU's threads for a record, at most;
                           0 is one */
    /* Each byte is read and written once, neighbours by neighbouring threads: the kernel may as
     * well work in the host's memory, where each access takes a microsecond and many overlap. */
    bool is_streaming;
};

extern const struct op_code *const op_codes[];
extern const uint32_t n_op_codes;
