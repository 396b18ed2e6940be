/*
 * Lane: several numbers at once, for ops that use GP_MAP_LANES() or GP_MAP_BLOCKS().
 *
 * lane_u32 is a plain uint32_t in a kernel and a vector in C, of 4 lanes (every processor), 8
 * (AVX2) or 16 (AVX-512): GP_LANES.  + & | ^ ~ and shifts by constants work on both.  lane_u64 is
 * likewise GP_LANES_64 numbers of 64 bits.  lane_i16 is a number that fits 16 bits, with its sign:
 * an int in a kernel, GP_LANES_16 lanes in C.  + and - work on both.  Little-endian only.
 */
#pragma once

#include "cuda/op.h"

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

#ifdef __CUDACC__
#define GP_LANES_64 1
typedef uint32_t lane_u32;
typedef uint64_t lane_u64;
typedef int lane_i16;
#else
#define GP_LANES_64 (GP_LANES / 2)
typedef uint32_t lane_u32 __attribute__((vector_size(4 * GP_LANES)));
typedef uint64_t lane_u64 __attribute__((vector_size(4 * GP_LANES)));
typedef int16_t lane_i16 __attribute__((vector_size(2 * GP_LANES_16)));
#endif

/* gcc 12 makes one AVX-512 instruction of a rotation, and of any logic of three operands. */
GP_INLINE lane_u32 lane_ror(lane_u32 x, uint32_t n)
{
    return x >> n | x << (32 - n);
}

GP_INLINE lane_u32 lane_swap_bytes(lane_u32 x)
{
    return (lane_ror(x, 8) & 0xff00ff00u) | (lane_ror(x, 24) & 0x00ff00ffu);
}

#ifdef __CUDACC__

GP_INLINE lane_u32 lane_all(uint32_t x)
{
    return x;
}

GP_INLINE uint32_t lane_get(lane_u32 x, uint32_t lane)
{
    (void)lane;
    return x;
}

GP_INLINE lane_u64 lane_all_64(uint64_t x)
{
    return x;
}

GP_INLINE lane_u64 lane_load_64(const uint64_t numbers[GP_LANES_64])
{
    return numbers[0];
}

/* The products of the lower halves; by name, or the compiler forgets that the others are 0. */
GP_INLINE lane_u64 lane_mul_64(lane_u64 x, lane_u64 y)
{
    uint64_t product;

    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"((uint32_t)x), "r"((uint32_t)y));
    return product;
}

/* The lower halves of GP_LANES_64 numbers, and one of those. */
GP_INLINE lane_u32 lane_low(lane_u64 x)
{
    return (uint32_t)x;
}

GP_INLINE uint32_t lane_get_low(lane_u32 x, uint32_t lane)
{
    (void)lane;
    return x;
}

GP_INLINE lane_u32 lane_min(lane_u32 x, lane_u32 y)
{
    return min(x, y);
}

/* What threads of a block gather in GP_SHARED memory, several at once. */
GP_INLINE void lane_gather_min(lane_u32 *shared, lane_u32 x)
{
    atomicMin(shared, x);
}

GP_INLINE void lane_gather_xor(lane_u32 *shared, lane_u32 x)
{
    atomicXor(shared, x);
}

GP_INLINE lane_i16 lane_all_16(int16_t x)
{
    return x;
}

GP_INLINE int16_t lane_get_16(lane_i16 x, uint32_t lane)
{
    (void)lane;
    return (int16_t)x;
}

GP_INLINE void lane_set_16(lane_i16 *x, uint32_t lane, int16_t value)
{
    (void)lane;
    *x = value;
}

GP_INLINE lane_i16 lane_max_16(lane_i16 x, lane_i16 y)
{
    return max(x, y);
}

/* max(x + plus, y): one instruction since Hopper. */
GP_INLINE lane_i16 lane_add_max_16(lane_i16 x, lane_i16 plus, lane_i16 y)
{
    return __viaddmax_s32(x, plus, y);
}

/* Where x equals y, a; else 0. */
GP_INLINE lane_i16 lane_if_same_16(lane_i16 x, lane_i16 y, lane_i16 a)
{
    return x == y ? a : 0;
}

GP_INLINE void lane_load_16(const uint8_t *const at[GP_LANES], lane_u32 ret_words[16])
{
    const bool is_aligned = (uintptr_t)at[0] % sizeof(uint32_t) == 0;

    GP_UNROLL
    for (uint32_t t = 0; t < 16; t++) {
        const uint8_t *byte = at[0] + 4 * t;

        ret_words[t] = is_aligned ? *(const uint32_t *)byte
                                  : byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 |
                                        (uint32_t)byte[3] << 24;
    }
}

#else

GP_INLINE lane_u32 lane_all(uint32_t x)
{
    return x + (lane_u32){0};
}

GP_INLINE uint32_t lane_get(lane_u32 x, uint32_t lane)
{
    return x[lane];
}

GP_INLINE lane_u64 lane_all_64(uint64_t x)
{
    return x + (lane_u64){0};
}

GP_INLINE lane_u64 lane_load_64(const uint64_t numbers[GP_LANES_64])
{
    lane_u64 x;

    memcpy(&x, numbers, sizeof(x));
    return x;
}

GP_INLINE lane_u64 lane_mul_64(lane_u64 x, lane_u64 y)
{
#if !defined(__x86_64__)
    return (x & UINT32_MAX) * (y & UINT32_MAX);
#elif GP_LANES == 4
    return (lane_u64)_mm_mul_epu32((__m128i)x, (__m128i)y);
#elif GP_LANES == 8
    return (lane_u64)_mm256_mul_epu32((__m256i)x, (__m256i)y);
#else
    return (lane_u64)_mm512_mul_epu32((__m512i)x, (__m512i)y);
#endif
}

GP_INLINE lane_u32 lane_low(lane_u64 x)
{
    return (lane_u32)x;
}

GP_INLINE uint32_t lane_get_low(lane_u32 x, uint32_t lane)
{
    return x[2 * lane];
}

GP_INLINE lane_u32 lane_min(lane_u32 x, lane_u32 y)
{
#if GP_LANES == 4
    const lane_u32 is_less = (lane_u32)(x < y);

    return (x & is_less) | (y & ~is_less);
#elif GP_LANES == 8
    return (lane_u32)_mm256_min_epu32((__m256i)x, (__m256i)y);
#else
    return (lane_u32)_mm512_min_epu32((__m512i)x, (__m512i)y);
#endif
}

GP_INLINE void lane_gather_min(lane_u32 *shared, lane_u32 x)
{
    *shared = lane_min(*shared, x);
}

GP_INLINE void lane_gather_xor(lane_u32 *shared, lane_u32 x)
{
    *shared ^= x;
}

GP_INLINE lane_i16 lane_all_16(int16_t x)
{
    return x + (lane_i16){0};
}

GP_INLINE int16_t lane_get_16(lane_i16 x, uint32_t lane)
{
    return x[lane];
}

GP_INLINE void lane_set_16(lane_i16 *x, uint32_t lane, int16_t value)
{
    (*x)[lane] = value;
}

GP_INLINE lane_i16 lane_max_16(lane_i16 x, lane_i16 y)
{
#if !defined(__x86_64__)
    const lane_i16 is_more = x > y;

    return (x & is_more) | (y & ~is_more);
#elif GP_LANES == 4
    return (lane_i16)_mm_max_epi16((__m128i)x, (__m128i)y);
#elif GP_LANES == 8
    return (lane_i16)_mm256_max_epi16((__m256i)x, (__m256i)y);
#else
    return (lane_i16)_mm512_max_epi16((__m512i)x, (__m512i)y);
#endif
}

GP_INLINE lane_i16 lane_add_max_16(lane_i16 x, lane_i16 plus, lane_i16 y)
{
    return lane_max_16(x + plus, y);
}

GP_INLINE lane_i16 lane_if_same_16(lane_i16 x, lane_i16 y, lane_i16 a)
{
    return (x == y) & a;
}

/*
 * One step of a transposition by halves: of each pair of vectors s apart, exchange the words of the
 * first whose number has bit s with the words of the second whose number has not.
 */
#define LANE_UPPER(s, j) ((j) & (s) ? GP_LANES + (j) - (s) : (j))
#define LANE_LOWER(s, j) ((j) & (s) ? GP_LANES + (j) : (j) + (s))
#define LANE_4(f, s, j)  f(s, j), f(s, (j) + 1), f(s, (j) + 2), f(s, (j) + 3)
#if GP_LANES == 4
#define LANE_INDICES(f, s) LANE_4(f, s, 0)
#elif GP_LANES == 8
#define LANE_INDICES(f, s) LANE_4(f, s, 0), LANE_4(f, s, 4)
#else
#define LANE_INDICES(f, s) LANE_4(f, s, 0), LANE_4(f, s, 4), LANE_4(f, s, 8), LANE_4(f, s, 12)
#endif
#define LANE_EXCHANGE(x, s)                                                                        \
    GP_UNROLL                                                                                      \
    for (uint32_t j = 0; j < GP_LANES; j++) {                                                      \
        if ((j & (s)) == 0) {                                                                      \
            const lane_u32 a = (x)[j], b = (x)[j + (s)];                                           \
            (x)[j] = __builtin_shufflevector(a, b, LANE_INDICES(LANE_UPPER, s));                   \
            (x)[j + (s)] = __builtin_shufflevector(a, b, LANE_INDICES(LANE_LOWER, s));             \
        }                                                                                          \
    }

/* x[j] word k becomes x[k] word j. */
GP_INLINE void lane_transpose(lane_u32 x[GP_LANES])
{
    LANE_EXCHANGE(x, 1)
    LANE_EXCHANGE(x, 2)
#if GP_LANES >= 8
    LANE_EXCHANGE(x, 4)
#endif
#if GP_LANES >= 16
    LANE_EXCHANGE(x, 8)
#endif
}

/* The 16 words at each lane's place, of any alignment: ret_words[t] has word t of every lane. */
GP_INLINE void lane_load_16(const uint8_t *const at[GP_LANES], lane_u32 ret_words[16])
{
    GP_UNROLL
    for (uint32_t first = 0; first < 16; first += GP_LANES) {
        GP_UNROLL
        for (uint32_t lane = 0; lane < GP_LANES; lane++) {
            memcpy(&ret_words[first + lane], at[lane] + 4 * first, sizeof(lane_u32));
        }
        lane_transpose(&ret_words[first]);
    }
}

#endif
