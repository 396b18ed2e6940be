/*
 * CUDA kernels: the ops' kernels, out of the fatbins that this program carries.
 *
 * Threads: create and destroy on the control thread, launch on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/launch.h"
#include "proto/worker_abi.h"

struct cuda_kernels;

/* One launch; see launch.h.  Pointers in chunks are the device's; the table is the host's as well.
 */
struct cuda_launch {
    uint32_t op; /* its index in op_codes[] */
    enum work_kind kind;
    uint64_t n_bytes; /* of the largest array of any chunk */
    struct op_launch arguments;
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

/* Do kernels find the host's memory, once it is registered, where the host does? */
bool cuda_kernels_see_host(const struct cuda_kernels *kernels);

/* The op `copy`, with records of bytes: it moves what other ops do not read where it lies. */
uint32_t cuda_kernels_copy(const struct cuda_kernels *kernels);

/* Records that a table of this op should hold so that the device is filled. */
uint64_t cuda_kernels_parallel(const struct cuda_kernels *kernels, uint32_t op);
