/*
 * Kernel: a map kernel of an op out of the fatbin that the worker carries as well, launched by hand
 * over one chunk.
 *
 * Thread: its caller's; whatever CUDA refuses ends the program.
 */
#pragma once

#include "tests/bench/subject.h"

#include <cuda_runtime_api.h>

struct kernel {
    cudaLibrary_t library;
    cudaKernel_t handle;
};

void kernel_load(const struct subject *subject, struct kernel *ret_kernel);
void kernel_unload(struct kernel *kernel);

/* The chunk is size bytes at in and as many at out, both visible to the device. */
void kernel_launch(const struct kernel *kernel, const struct subject *subject, const void *in,
                   void *out, size_t size, cudaStream_t stream);
