/*
 * Must: calls of the CUDA runtime that a benchmark cannot do without.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "tests/bench/bench.h"

/* `MUST(cudaMalloc(&memory, size))`: the program ends with the error, the call and the place. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        struct cuda_trouble must_trouble;                                                          \
        if (CUDA_CHECK(call, &must_trouble) < 0) {                                                 \
            bench_fail("%s", must_trouble.failure.message);                                        \
        }                                                                                          \
    } while (0)
