/*
 * Op, as kernels: what GP_MAP and its kin are under nvcc.  Included by op.h, which has the shape of
 * each kernel's launch.
 */
#pragma once

#include "cuda/launch.h"

/* The kernel for one kind of work; in it `params` and GP_CHUNK(c) are those of the launch. */
#define GP_KERNEL(name, kind)                                                                      \
    extern "C" __global__ void gp_##name##_##kind(const __grid_constant__ struct op_launch launch)

#define GP_PARAMS(name)                                                                            \
    GP_UNUSED const struct name##_params *params = (const struct name##_params *)launch.params

/* A copy: the table lies in the host's memory, which is to be read once. */
#define GP_CHUNK(c) (launch.n_chunks == 1 ? launch.chunk : launch.table[c])

/*
 * Every kernel's end.  Each block's bytes can be seen by the host before the block is counted, so
 * all of them can before the number.
 */
GP_UNUSED GP_INLINE void gp_end(const struct op_launch *launch)
{
    const uint32_t last = gridDim.x * gridDim.y - 1;

    if (launch->ended == NULL) {
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        if (last > 0) {
            if (atomicInc(launch->n_ended, last) != last) {
                return;
            }
            __threadfence_system();
        }
        *(volatile uint32_t *)launch->ended = launch->number;
    }
}

#define GP_MAP(name, n_steps)                                                                      \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i);        \
    GP_KERNEL(name, map)                                                                           \
    {                                                                                              \
        GP_PARAMS(name);                                                                           \
        for (uint32_t c = blockIdx.y; c < launch.n_chunks; c += gridDim.y) {                       \
            const struct op_chunk local_chunk = GP_CHUNK(c);                                       \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;                  \
                 i += (size_t)gridDim.x * blockDim.x) {                                            \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i)

/* A team is a warp. */
#define GP_TEAM 32u

GP_UNUSED GP_INLINE uint32_t gp_member(void)
{
    return threadIdx.x % GP_TEAM;
}

/* Of x of all members, to all of them. */
GP_UNUSED GP_INLINE uint32_t gp_team_sum(uint32_t x)
{
    for (uint32_t half = GP_TEAM / 2; half > 0; half /= 2) {
        x += __shfl_xor_sync(UINT32_MAX, x, half);
    }
    return x;
}

/* The largest x of the part's members, to each of them. */
GP_UNUSED GP_INLINE uint32_t gp_team_max(uint32_t x, uint32_t part)
{
    for (uint32_t half = part / 2; half > 0; half /= 2) {
        x = max(x, __shfl_xor_sync(UINT32_MAX, x, half));
    }
    return x;
}

/* x of the member before; the part is a ring. */
GP_UNUSED GP_INLINE uint32_t gp_team_before(uint32_t x, uint32_t part)
{
    return __shfl_sync(UINT32_MAX, x, gp_member() - 1, part);
}

#define GP_MAP_TEAM(name, n_steps)                                                                 \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i);        \
    GP_KERNEL(name, map)                                                                           \
    {                                                                                              \
        GP_PARAMS(name);                                                                           \
        for (uint32_t c = blockIdx.y; c < launch.n_chunks; c += gridDim.y) {                       \
            const struct op_chunk local_chunk = GP_CHUNK(c);                                       \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / GP_TEAM; i < n;      \
                 i += (size_t)gridDim.x * blockDim.x / GP_TEAM) {                                  \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i)

#define GP_MAP_LANES(name, n_lanes)                                                                \
    static __device__ void name##_lanes(const struct name##_params *params,                        \
                                        const struct op_record *records, uint32_t n_records);      \
    GP_KERNEL(name, map)                                                                           \
    {                                                                                              \
        GP_PARAMS(name);                                                                           \
        for (uint32_t c = blockIdx.y; c < launch.n_chunks; c += gridDim.y) {                       \
            const struct op_chunk chunk = GP_CHUNK(c);                                             \
            const uint32_t n = chunk.n_records;                                                    \
            for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;                  \
                 i += (size_t)gridDim.x * blockDim.x) {                                            \
                const struct op_record record = {&chunk, (uint32_t)i};                             \
                name##_lanes(params, &record, 1);                                                  \
            }                                                                                      \
        }                                                                                          \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    static __device__ void name##_lanes(const struct name##_params *params,                        \
                                        const struct op_record *records, uint32_t n_records)

#define GP_THREADS blockDim.x
#define GP_THREAD  threadIdx.x
#define GP_SHARED  __shared__
#define GP_SYNC()  __syncthreads()

#define GP_MAP_BLOCKS(name, n_steps)                                                               \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, size_t i);                  \
    GP_KERNEL(name, map)                                                                           \
    {                                                                                              \
        GP_PARAMS(name);                                                                           \
        for (uint32_t c = blockIdx.y; c < launch.n_chunks; c += gridDim.y) {                       \
            const struct op_chunk local_chunk = GP_CHUNK(c);                                       \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = blockIdx.x; i < n; i += gridDim.x) {                                   \
                name##_step(params, chunk, i);                                                     \
                GP_SYNC(); /* nobody begins while another still reads what they share */           \
            }                                                                                      \
        }                                                                                          \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, size_t i)

#define GP_REDUCE(name, leaf, n_lanes)                                                             \
    GP_FOLD(name)                                                                                  \
    extern "C" __global__ void __launch_bounds__(n_lanes)                                          \
        gp_##name##_leaves(const __grid_constant__ struct op_launch launch)                        \
    {                                                                                              \
        __shared__ struct name##_partial partials[n_lanes];                                        \
        GP_PARAMS(name);                                                                           \
        for (uint32_t c = blockIdx.y; c < launch.n_chunks; c += gridDim.y) {                       \
            const struct op_chunk local_chunk = GP_CHUNK(c);                                       \
            const struct op_chunk *chunk = &local_chunk;                                           \
            struct name##_partial *out = GP_OUT(0, struct name##_partial);                         \
            const size_t n_records = chunk->n_records;                                             \
            const size_t leaf_size = (leaf);                                                       \
            for (size_t k = blockIdx.x; k * leaf_size < n_records; k += gridDim.x) {               \
                const size_t first = k * leaf_size, left = n_records - first;                      \
                const size_t n = left < leaf_size ? left : leaf_size;                              \
                struct name##_lane lane;                                                           \
                memset(&lane, 0, sizeof(lane));                                                    \
                for (size_t i = threadIdx.x; i < n; i += (n_lanes)) {                              \
                    name##_step(params, &lane, chunk, first + i);                                  \
                }                                                                                  \
                partials[threadIdx.x] = name##_close(&lane);                                       \
                for (uint32_t half = (n_lanes) / 2; half > 0; half /= 2) {                         \
                    __syncthreads();                                                               \
                    if (threadIdx.x < half) {                                                      \
                        partials[threadIdx.x] =                                                    \
                            name##_add(partials[threadIdx.x], partials[threadIdx.x + half]);       \
                    }                                                                              \
                }                                                                                  \
                if (threadIdx.x == 0) {                                                            \
                    out[k] = partials[0];                                                          \
                }                                                                                  \
                __syncthreads();                                                                   \
            }                                                                                      \
        }                                                                                          \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    GP_KERNEL(name, merge)                                                                         \
    {                                                                                              \
        const struct op_chunk *chunk = &launch.chunk;                                              \
        name##_fold(GP_IN(0, struct name##_partial), GP_IN(1, struct name##_partial),              \
                    chunk->n_records, GP_OUT(0, struct name##_partial));                           \
        gp_end(&launch);                                                                           \
    }                                                                                              \
    GP_KERNEL(name, finish)                                                                        \
    {                                                                                              \
        const struct op_chunk *chunk = &launch.chunk;                                              \
        GP_PARAMS(name);                                                                           \
        name##_write(params, GP_IN(0, struct name##_partial), launch.chunk.out);                   \
        gp_end(&launch);                                                                           \
    }
