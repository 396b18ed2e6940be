/*
 * CUDA calibration: up to how many bytes kernels move the arrays of a work no slower than the copy
 * engines do, on this device, behind this link.
 *
 * Threads: the control thread, before the data thread has the pipeline.
 */
#pragma once

#include "cuda/cuda_pipeline.h"

/* From issue until it is seen done: the best of a few. */
struct cuda_times {
    uint64_t kernel_ns;  /* a kernel reads and writes the arrays where the host has them */
    uint64_t engines_ns; /* they are copied to the device, and back */
};

/*
 * Time the op `copy`, whose index is given, through the pipeline: at CUDA_SMALL bytes of its two
 * arrays, at half as many, and so on.  *ret_small is the first of them at which the kernel is not
 * slower, for cuda_pipeline_set_small(), which is to be called again in any case; 0: there is none.
 * Takes at most 64 copies, one after the other.  0, or a negative status with the trouble.
 */
int cuda_calibrate(struct cuda_pipeline *pipeline, uint32_t copy, uint64_t *ret_small,
                   struct cuda_trouble *ret_trouble);

/* The same for one size, at most CUDA_SMALL: of the pinned memory's first half into its second. */
int cuda_calibrate_time(struct cuda_pipeline *pipeline, uint32_t copy, void *memory, uint64_t bytes,
                        struct cuda_times *ret_times, struct cuda_trouble *ret_trouble);
