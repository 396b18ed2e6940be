/*
 * Lanes: the tests of a map op that is built for several widths of vector.
 *
 * LANES_TESTS(op, check) makes test_4_lanes(), test_8_lanes() and test_16_lanes(): each gives
 * check() the function of that width, whichever the op picks on this processor, or is skipped where
 * the processor cannot run it.
 */
#pragma once

#include "cuda/registry.h"
#include "tests/check.h"

typedef void map_function(const void *params, const struct op_chunk *chunks, uint32_t n_chunks);

#ifdef __x86_64__
#define LANES_WIDER_TEST(name, map, feature, check)                                                \
    map_function map;                                                                              \
                                                                                                   \
    static void name(void)                                                                         \
    {                                                                                              \
        if (!__builtin_cpu_supports(feature)) {                                                    \
            CHECK_SKIP("this processor has no " feature);                                          \
        }                                                                                          \
        check(map);                                                                                \
    }
#else
#define LANES_WIDER_TEST(name, map, feature, check)                                                \
    static void name(void)                                                                         \
    {                                                                                              \
        CHECK_SKIP("this processor has no " feature);                                              \
    }
#endif

#define LANES_TESTS(op, check)                                                                     \
    map_function op##_map_x4;                                                                      \
                                                                                                   \
    static void test_4_lanes(void)                                                                 \
    {                                                                                              \
        check(op##_map_x4);                                                                        \
    }                                                                                              \
                                                                                                   \
    LANES_WIDER_TEST(test_8_lanes, op##_map_x8, "avx2", check)                                     \
    LANES_WIDER_TEST(test_16_lanes, op##_map_x16, "avx512bw", check)
