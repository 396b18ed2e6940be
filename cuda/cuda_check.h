/*
 * CUDA check: every call of the CUDA runtime goes through CUDA_CHECK, which turns what it returns
 * into a trouble: the error, and a failure that says the call, the error's name and the place.
 *
 * A trouble is *fatal* when the context is lost with it: then every later call fails as well, and
 * only a new process recovers.  What is not known to be harmless counts as fatal.
 *
 * Threads: plain functions; CUDA's own last error is one for each thread.
 */
#pragma once

#include "proto/status.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct cuda_trouble {
    cudaError_t error;
    struct failure failure;
};

/* `CUDA_CHECK(cudaMalloc(&memory, size), ret_trouble)`: 0, or a negative status. */
#define CUDA_CHECK(call, ret_trouble) cuda_check((call), #call, __FILE__, __LINE__, (ret_trouble))

/* Use the macro.  Leaves no last error behind. */
int cuda_check(cudaError_t error, const char *call, const char *file, int line,
               struct cuda_trouble *ret_trouble);

/* A trouble that CUDA does not know of; returns -status. */
__attribute__((format(printf, 3, 4))) int cuda_trouble(struct cuda_trouble *ret_trouble,
                                                       enum status status, const char *format, ...);

/* Add to a NO_MEMORY how much was wanted, and what the device has left.  Returns error. */
int cuda_explain_memory(int error, uint64_t wanted, struct cuda_trouble *trouble);

bool cuda_is_fatal(const struct cuda_trouble *trouble);
