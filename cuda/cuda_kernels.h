/*
 * CUDA kernels: the ops' kernels, out of the fatbins that this program carries.
 *
 * Threads: create and destroy on the control thread, launch on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/registry.h"
#include "proto/worker_abi.h"

struct cuda_kernels;

/* One launch; see op.h for what the kernels take.  Pointers in `chunks` are the device's. */
struct cuda_launch {
    uint32_t op; /* its index in op_codes[] */
    enum work_kind kind;
    const void *params;            /* on the device */
    const struct op_chunk *table;  /* on the device */
    const struct op_chunk *chunks; /* the same table, here */
    uint32_t n_chunks;
    uint64_t n_bytes; /* of the largest array of any chunk */
};

/*
 * Load every op's fatbin, look every kernel up, and launch what can be launched over no records:
 * nothing is loaded, compiled or found missing later.
 */
int cuda_kernels_create(struct cuda_kernels **ret_kernels, struct cuda_trouble *ret_trouble);
/* NULL is fine. */
void cuda_kernels_destroy(struct cuda_kernels *kernels);

int cuda_kernels_launch(const struct cuda_kernels *kernels, const struct cuda_launch *launch,
                        cudaStream_t stream, struct cuda_trouble *ret_trouble);

/* Records that a table of this op should hold so that the device is filled. */
uint64_t cuda_kernels_parallel(const struct cuda_kernels *kernels, uint32_t op);
