/*
 * Kernel: a map kernel of an op out of the fatbin that the worker carries as well, launched by hand
 * over one chunk.
 *
 * Its arguments lie on the device, in a header of KERNEL_HEADER_SIZE bytes that is written once.
 *
 * Thread: its caller's; whatever CUDA refuses ends the program.
 */
#pragma once

#include "tests/bench/subject.h"

#include <cuda_runtime_api.h>

#define KERNEL_HEADER_SIZE 4096u

struct kernel {
    cudaLibrary_t library;
    cudaKernel_t handle;
};

void kernel_load(const struct subject *subject, struct kernel *ret_kernel);
void kernel_unload(struct kernel *kernel);

/* The chunk is size bytes at in and as many at out, both on the device. */
void kernel_write_header(void *header, const struct subject *subject, const void *in, void *out,
                         size_t size);
/* size as in the header. */
void kernel_launch(const struct kernel *kernel, const void *header, size_t size,
                   cudaStream_t stream);
