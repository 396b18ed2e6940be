/*
 * Op, as kernels: what GP_MAP and its kin are under nvcc.  Included by op.h, which has the shape of
 * each kernel's launch.
 */
#pragma once

#define GP_MAP(name, n_steps)                                                                      \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i);        \
    extern "C" __global__ void gp_##name##_map(const struct name##_params *params,                 \
                                               const struct op_chunk *table, uint32_t n_chunks)    \
    {                                                                                              \
        for (uint32_t c = blockIdx.y; c < n_chunks; c += gridDim.y) {                              \
            const struct op_chunk local_chunk = table[c];                                          \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;                  \
                 i += (size_t)gridDim.x * blockDim.x) {                                            \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
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
    extern "C" __global__ void gp_##name##_map(const struct name##_params *params,                 \
                                               const struct op_chunk *table, uint32_t n_chunks)    \
    {                                                                                              \
        for (uint32_t c = blockIdx.y; c < n_chunks; c += gridDim.y) {                              \
            const struct op_chunk local_chunk = table[c];                                          \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / GP_TEAM; i < n;      \
                 i += (size_t)gridDim.x * blockDim.x / GP_TEAM) {                                  \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i)

#define GP_MAP_LANES(name, n_lanes)                                                                \
    static __device__ void name##_lanes(const struct name##_params *params,                        \
                                        const struct op_record *records, uint32_t n_records);      \
    extern "C" __global__ void gp_##name##_map(const struct name##_params *params,                 \
                                               const struct op_chunk *table, uint32_t n_chunks)    \
    {                                                                                              \
        for (uint32_t c = blockIdx.y; c < n_chunks; c += gridDim.y) {                              \
            const uint32_t n = table[c].n_records;                                                 \
            for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;                  \
                 i += (size_t)gridDim.x * blockDim.x) {                                            \
                const struct op_record record = {&table[c], (uint32_t)i};                          \
                name##_lanes(params, &record, 1);                                                  \
            }                                                                                      \
        }                                                                                          \
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
    extern "C" __global__ void gp_##name##_map(const struct name##_params *params,                 \
                                               const struct op_chunk *table, uint32_t n_chunks)    \
    {                                                                                              \
        for (uint32_t c = blockIdx.y; c < n_chunks; c += gridDim.y) {                              \
            const struct op_chunk local_chunk = table[c];                                          \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = blockIdx.x; i < n; i += gridDim.x) {                                   \
                name##_step(params, chunk, i);                                                     \
                GP_SYNC(); /* nobody begins while another still reads what they share */           \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, size_t i)

#define GP_REDUCE(name, leaf, n_lanes)                                                             \
    GP_FOLD(name)                                                                                  \
    extern "C" __global__ void __launch_bounds__(n_lanes) gp_##name##_leaves(                      \
        const struct name##_params *params, const struct op_chunk *table, uint32_t n_chunks)       \
    {                                                                                              \
        __shared__ struct name##_partial partials[n_lanes];                                        \
        for (uint32_t c = blockIdx.y; c < n_chunks; c += gridDim.y) {                              \
            const struct op_chunk *chunk = &table[c];                                              \
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
    }                                                                                              \
    extern "C" __global__ void gp_##name##_merge(                                                  \
        const struct name##_params *, const struct name##_partial *fold,                           \
        const struct name##_partial *partials, uint32_t n, struct name##_partial *ret_fold)        \
    {                                                                                              \
        name##_fold(fold, partials, n, ret_fold);                                                  \
    }                                                                                              \
    extern "C" __global__ void gp_##name##_finish(                                                 \
        const struct name##_params *params, const struct name##_partial *fold, void *const *out)   \
    {                                                                                              \
        name##_write(params, fold, out);                                                           \
    }
