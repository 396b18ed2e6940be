/*
 * Op, as loops: what GP_MAP and its kin are under a C compiler.  Included by op.h.
 *
 * Parameters and chunk are copied into locals, whose fields gcc keeps in registers; seen through
 * a pointer they might change with every store to an output, and no loop would vectorise.
 */
#pragma once

#define GP_MAP(name, n_steps)                                                                      \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i);        \
    static void name##_map(const void *block, const struct op_chunk *chunks, uint32_t n_chunks)    \
    {                                                                                              \
        const struct name##_params local_params = *(const struct name##_params *)block;            \
        const struct name##_params *params = &local_params;                                        \
        for (uint32_t c = 0; c < n_chunks; c++) {                                                  \
            const struct op_chunk local_chunk = chunks[c];                                         \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = 0; i < n; i++) {                                                       \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, GP_UNUSED size_t i)

/* A team is one thread. */
#define GP_TEAM                    1u
#define GP_MAP_TEAM(name, n_steps) GP_MAP(name, n_steps)

GP_UNUSED GP_INLINE uint32_t gp_member(void)
{
    return 0;
}

GP_UNUSED GP_INLINE uint32_t gp_team_sum(uint32_t x)
{
    return x;
}

GP_UNUSED GP_INLINE uint32_t gp_team_max(uint32_t x, uint32_t part)
{
    (void)part;
    return x;
}

GP_UNUSED GP_INLINE uint32_t gp_team_before(uint32_t x, uint32_t part)
{
    (void)part;
    return x;
}

/*
 * The body always gets n_lanes records to read: those from n_records on repeat the first one, and
 * it writes nothing for them.  Lanes are filled across the borders of chunks.
 */
#define GP_MAP_LANES(name, n_lanes)                                                                \
    static void name##_lanes(const struct name##_params *params, const struct op_record *records,  \
                             uint32_t n_records);                                                  \
    GP_LANES_MAP(name, GP_LANES);                                                                  \
    GP_LANES_MAP(name, GP_LANES)                                                                   \
    {                                                                                              \
        const struct name##_params local_params = *(const struct name##_params *)block;            \
        struct op_record records[n_lanes];                                                         \
        uint32_t n = 0;                                                                            \
        for (uint32_t c = 0; c < n_chunks; c++) {                                                  \
            for (uint32_t i = 0; i < chunks[c].n_records; i++) {                                   \
                records[n].chunk = &chunks[c];                                                     \
                records[n++].i = i;                                                                \
                if (n == (n_lanes)) {                                                              \
                    name##_lanes(&local_params, records, n);                                       \
                    n = 0;                                                                         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        if (n > 0) {                                                                               \
            for (uint32_t spare = n; spare < (n_lanes); spare++) {                                 \
                records[spare] = records[0];                                                       \
            }                                                                                      \
            name##_lanes(&local_params, records, n);                                               \
        }                                                                                          \
    }                                                                                              \
    GP_LANES_PICK(name)                                                                            \
    static void name##_lanes(const struct name##_params *params, const struct op_record *records,  \
                             uint32_t n_records)

/* A block is one thread. */
#define GP_THREADS 1u
#define GP_THREAD  0u
#define GP_SHARED
#define GP_SYNC() ((void)0)

#define GP_MAP_BLOCKS(name, n_steps)                                                               \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, size_t i);                  \
    GP_LANES_MAP(name, GP_LANES);                                                                  \
    GP_LANES_MAP(name, GP_LANES)                                                                   \
    {                                                                                              \
        const struct name##_params local_params = *(const struct name##_params *)block;            \
        const struct name##_params *params = &local_params;                                        \
        for (uint32_t c = 0; c < n_chunks; c++) {                                                  \
            const struct op_chunk local_chunk = chunks[c];                                         \
            const struct op_chunk *chunk = &local_chunk;                                           \
            const size_t n = (n_steps);                                                            \
            for (size_t i = 0; i < n; i++) {                                                       \
                name##_step(params, chunk, i);                                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    GP_LANES_PICK(name)                                                                            \
    GP_INLINE void name##_step(GP_UNUSED const struct name##_params *params,                       \
                               GP_UNUSED const struct op_chunk *chunk, size_t i)

/* The map function that is built for this many lanes. */
#define GP_LANES_MAP(name, n_lanes)                                                                \
    void GP_PASTE(op_##name##_map_x, n_lanes)(const void *block, const struct op_chunk *chunks,    \
                                              uint32_t n_chunks)

/* The widest that this processor runs: two loads a call, so nothing is kept from call to call. */
#if defined(GP_HOST) && defined(__x86_64__)
#define GP_LANES_PICK(name)                                                                        \
    GP_LANES_MAP(name, 8);                                                                         \
    GP_LANES_MAP(name, 16);                                                                        \
    static void name##_map(const void *block, const struct op_chunk *chunks, uint32_t n_chunks)    \
    {                                                                                              \
        if (__builtin_cpu_supports("avx512bw")) {                                                  \
            op_##name##_map_x16(block, chunks, n_chunks);                                          \
        } else if (__builtin_cpu_supports("avx2")) {                                               \
            op_##name##_map_x8(block, chunks, n_chunks);                                           \
        } else {                                                                                   \
            op_##name##_map_x4(block, chunks, n_chunks);                                           \
        }                                                                                          \
    }
#elif defined(GP_HOST)
#define GP_LANES_PICK(name)                                                                        \
    static void name##_map(const void *block, const struct op_chunk *chunks, uint32_t n_chunks)    \
    {                                                                                              \
        op_##name##_map_x4(block, chunks, n_chunks);                                               \
    }
#else
#define GP_LANES_PICK(name)
#endif

#define GP_REDUCE(name, leaf, n_lanes)                                                             \
    GP_FOLD(name)                                                                                  \
    static struct name##_partial name##_leaf(const struct name##_params *params,                   \
                                             const struct op_chunk *chunk, size_t first, size_t n) \
    {                                                                                              \
        struct name##_lane lanes[n_lanes];                                                         \
        struct name##_partial partials[n_lanes];                                                   \
        size_t row = 0;                                                                            \
        memset(lanes, 0, sizeof(lanes));                                                           \
        for (; n - row >= (n_lanes); row += (n_lanes)) {                                           \
            for (size_t i = 0; i < (n_lanes); i++) {                                               \
                name##_step(params, &lanes[i], chunk, first + row + i);                            \
            }                                                                                      \
        }                                                                                          \
        for (size_t i = 0; i < n - row; i++) {                                                     \
            name##_step(params, &lanes[i], chunk, first + row + i);                                \
        }                                                                                          \
        for (size_t i = 0; i < (n_lanes); i++) {                                                   \
            partials[i] = name##_close(&lanes[i]);                                                 \
        }                                                                                          \
        for (size_t half = (n_lanes) / 2; half > 0; half /= 2) {                                   \
            for (size_t i = 0; i < half; i++) {                                                    \
                partials[i] = name##_add(partials[i], partials[i + half]);                         \
            }                                                                                      \
        }                                                                                          \
        return partials[0];                                                                        \
    }                                                                                              \
    static void name##_leaves(const void *params, const struct op_chunk *chunk)                    \
    {                                                                                              \
        const struct op_chunk local_chunk = *chunk;                                                \
        struct name##_partial *out = GP_OUT(0, struct name##_partial);                             \
        const size_t n_records = chunk->n_records;                                                 \
        for (size_t k = 0; k * (leaf) < n_records; k++) {                                          \
            const size_t left = n_records - k * (leaf), n = left < (leaf) ? left : (leaf);         \
            out[k] =                                                                               \
                name##_leaf((const struct name##_params *)params, &local_chunk, k * (leaf), n);    \
        }                                                                                          \
    }                                                                                              \
    static void name##_merge(const void *params, const void *fold, const void *partials,           \
                             uint32_t n, void *ret_fold)                                           \
    {                                                                                              \
        (void)params;                                                                              \
        name##_fold((const struct name##_partial *)fold, (const struct name##_partial *)partials,  \
                    n, (struct name##_partial *)ret_fold);                                         \
    }                                                                                              \
    static void name##_finish(const void *params, const void *fold, void *const out[LIMIT_OUT])    \
    {                                                                                              \
        name##_write((const struct name##_params *)params, (const struct name##_partial *)fold,    \
                     out);                                                                         \
    }
