/*
 * Op: what the file of an op is written with (to be installed as <gpupipe/op.h>).
 *
 * How to add an op.  Write cuda/ops/NAME.cu in the C that nvcc takes as well (cast every void
 * pointer, no VLAs, no compound literals in device code): a `struct NAME_params`, one of the five
 * bodies below, and, under GP_HOST, a `static const struct manifest_op NAME_manifest` and GP_CODE.
 * Add a line to cuda/ops/ops.list, and tests/ops/test_NAME.c, with a row in the meson.build beside
 * it, against a reference that shares no code with the op.  From the one file come the loop of the
 * CPU backend and the kernels of the GPU.
 *
 *   GP_MAP(NAME, n_steps) { .. }        One step of a loop; sees params, chunk and the step's
 *                                       number i.  n_steps is an expression of params and chunk,
 *                                       often chunk->n_records.  Keep it simple and gcc vectorises
 *                                       it.
 *   GP_MAP_LANES(NAME, n_lanes) { .. }  GP_LANES or GP_LANES_16 records at once, written over
 *                                       lane.h's lane_u32 or lane_i16, for what gcc cannot
 *                                       vectorise; sees params, records and n_records.  Built
 *                                       once for each width the processor family has.
 *   GP_MAP_TEAM(NAME, n_steps) { .. }   A step of GP_MAP by a team, for steps that are few and
 *                                       long: a warp on a GPU, one thread on a CPU.  Member
 *                                       gp_member() of GP_TEAM takes its share of a loop; all of
 *                                       them come to each gp_team_sum(), _max() and _before(); the
 *                                       last two work in parts of the team, each of so many members
 *                                       (a power of two).
 *   GP_MAP_BLOCKS(NAME, n_steps) { .. } A step of GP_MAP by a block of a GPU: thread GP_THREAD of
 *                                       GP_THREADS takes its part of each loop, they share what is
 *                                       GP_SHARED, and all come to each GP_SYNC().  In C it is one
 *                                       thread, which has lane.h's vectors in each width as well.
 *   GP_REDUCE(NAME, leaf, n_lanes)      Anything that adds up; its functions are named below.
 *
 * An op for which lanes are best on a CPU and a team on a GPU has both bodies, under #ifdef
 * __CUDACC__, and says to GP_CODE with .n_members how many members a record takes.
 *
 * Constants (GP_CONST_IN) are the same for all records of a call.  Record i of a varying input is
 * what GP_SPAN says.
 *
 * The same bits everywhere: both compilers build ops without contraction (-ffp-contract=off,
 * -fmad=false), so a floating-point expression means what it says.  NaNs differ in their bits.
 *
 * Bytes that a client may rewrite while the op runs decide no address unchecked: read an offset or
 * a length once with GP_LOAD, then clamp it.
 *
 * Threads: the bodies are pure over their arguments.
 *
 * Kernels, all extern "C", take one argument by value, a struct op_launch (launch.h).  Every
 * pointer in it is visible to the device.
 *   gp_NAME_map      grid (x, y) of any size, 1-D blocks of whole warps: y strides over chunks,
 *                    x over the steps of a chunk (GP_MAP_BLOCKS: a block for each of them)
 *   gp_NAME_leaves   the same, with blocks of exactly n_lanes threads: y strides over chunks,
 *                    x over the leaves of a chunk
 *   gp_NAME_merge    one thread, one chunk: in[0] the fold or NULL, in[1] partials, out[0]
 *   gp_NAME_finish   one thread, one chunk: in[0] the fold, out as in struct op_code
 */
#pragma once

#include "cuda/registry.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Lanes of this object: the build says so, and GP_HOST is where an op is described, once. */
#ifdef __CUDACC__
#define GP_LANES 1
#elif !defined(GP_LANES)
#define GP_LANES 4
#define GP_HOST
#endif

/* Lanes of 16 bits: a vector has twice as many, a thread of a GPU works on one record. */
#ifdef __CUDACC__
#define GP_LANES_16 1
#else
#define GP_LANES_16 (2 * GP_LANES)
#endif

/* For the functions and tables of an op that its body uses. */
#ifdef __CUDACC__
#define GP_INLINE static __device__ __forceinline__
#define GP_CONST  static __constant__ const
#else
#define GP_INLINE static inline __attribute__((always_inline))
#define GP_CONST  static const
#endif

/* A body need not use all that it sees. */
#define GP_UNUSED __attribute__((unused))

/* Before a loop of up to 16 turns that must leave no loop behind. */
#if defined(__CUDACC__) || defined(__clang__)
#define GP_UNROLL _Pragma("unroll")
#else
#define GP_UNROLL _Pragma("GCC unroll 16")
#endif

/* Before a loop that nvcc is to leave one: it unrolls what surrounds much code, for nothing. */
#ifdef __CUDACC__
#define GP_ROLLED _Pragma("unroll 1")
#else
#define GP_ROLLED
#endif

/* Array number k of the chunk, aligned for its dtype and no more. */
#define GP_IN(k, type)  ((const type *)chunk->in[k])
#define GP_OUT(k, type) ((type *)chunk->out[k])

/* Constant number k of the job. */
#define GP_CONST_IN(k, type) ((const type *)chunk->consts[k])

/* Read a number of at most 8 bytes, aligned, exactly once: one that a client may rewrite.  Not one
 * of params, which nobody can, and for which nvcc 13 makes an address of this that is none. */
#define GP_LOAD(number) (*(const volatile __typeof__(number) *)&(number))

/*
 * Record i of the varying input: n elements of this type from number `first` on, `ends` being the
 * input that says so.  They lie within the input, whatever stands in ends.
 */
#define GP_SPAN(ends, type, i) gp_span(chunk->varying_size / (uint32_t)sizeof(type), (ends), (i))

struct op_span {
    uint32_t first, n;
};

GP_UNUSED GP_INLINE struct op_span gp_span(uint32_t n_elements, const uint32_t *ends, size_t i)
{
    const uint32_t from = i > 0 ? GP_LOAD(ends[i - 1]) : 0, to = GP_LOAD(ends[i]);
    const uint32_t first = from < n_elements ? from : n_elements;
    const uint32_t end = to < n_elements ? to : n_elements;
    const struct op_span span = {first, end > first ? end - first : 0};

    return span;
}

/* Record i of a chunk: what a lane works on. */
struct op_record {
    const struct op_chunk *chunk;
    uint32_t i;
};

#define GP_PASTE_(a, b) a##b
#define GP_PASTE(a, b)  GP_PASTE_(a, b)

/*
 * GP_REDUCE(NAME, leaf, n_lanes) stands behind these, all GP_INLINE:
 *     struct NAME_params, NAME_lane, NAME_partial      the last two: all bytes zero = nothing yet
 *     void NAME_step(params, lane *, chunk, size_t i)  take record i into a lane
 *     struct NAME_partial NAME_close(const lane *)     what a lane has gathered
 *     struct NAME_partial NAME_add(partial a, partial b)
 *     void NAME_write(params, const partial *fold, void *const *out)
 *
 * Record i of a leaf goes to lane i % n_lanes, lanes take their records in order, their partials
 * are added as a tree (lane k and k + n_lanes / 2, then halves of that), leaves in order: one fixed
 * tree of additions, whoever walks it.  n_lanes is a power of two, at most 1024.
 */
#define GP_FOLD(name)                                                                              \
    GP_INLINE void name##_fold(const struct name##_partial *fold,                                  \
                               const struct name##_partial *partials, uint32_t n,                  \
                               struct name##_partial *ret_fold)                                    \
    {                                                                                              \
        struct name##_partial sum;                                                                 \
                                                                                                   \
        memset(&sum, 0, sizeof(sum));                                                              \
        if (fold != NULL) {                                                                        \
            sum = *fold;                                                                           \
        }                                                                                          \
        for (uint32_t k = 0; k < n; k++) {                                                         \
            sum = name##_add(sum, partials[k]);                                                    \
        }                                                                                          \
        *ret_fold = sum;                                                                           \
    }

/* The entry that the registry lists: `GP_CODE(copy, .map = copy_map);`, under GP_HOST. */
#define GP_CODE(name, ...)                                                                         \
    extern const struct op_code op_##name;                                                         \
    const struct op_code op_##name = {.manifest = &name##_manifest, __VA_ARGS__}

#ifdef __CUDACC__
#include "cuda/op_cuda.h"
#else
#include "cuda/op_cpu.h"
#endif
