/*
 * Launch: what every kernel of an op is called with, by value: it lies with the kernel's arguments,
 * so a launch of one chunk needs nothing else in memory.  op.h says what the kernels are.
 */
#pragma once

#include "cuda/registry.h"
#include "proto/limits.h"

#include <stdint.h>

struct op_launch {
    uint32_t n_chunks;
    uint32_t number;              /* see ended */
    const struct op_chunk *table; /* of n_chunks; if that is 1, it is `chunk` and this is unused */
    uint32_t *ended;   /* in the host's memory; gets `number` when all that the kernel has written
                        * there can be seen.  NULL: nobody looks */
    uint32_t *n_ended; /* on the device: blocks that have ended; 0 before and after.  With ended */
    struct op_chunk chunk;
#ifdef __CUDACC__
    __align__(16)
#else
    _Alignas(16)
#endif
        uint8_t params[LIMIT_PARAM_BYTES];
};
