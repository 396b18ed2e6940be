/*
 * copy: the bytes as they are.  An op that costs nothing measures everything around it.
 */
#include "cuda/op.h"

struct copy_params {
    uint32_t size; /* bytes of a record */
};

/* Bytes of a step.  On a CPU one: compilers know that loop, and clang does not vectorise others. */
#ifdef __CUDACC__
#define COPY_WORD 4
#else
#define COPY_WORD 1
#endif

GP_INLINE size_t copy_n_bytes(const struct copy_params *params, const struct op_chunk *chunk)
{
    return (size_t)chunk->n_records * params->size;
}

GP_INLINE size_t copy_n_words(const struct copy_params *params, const struct op_chunk *chunk)
{
    return copy_n_bytes(params, chunk) / COPY_WORD;
}

GP_INLINE void copy_word(uint8_t *out, const uint8_t *in)
{
#ifdef __CUDACC__
    if (((uintptr_t)out | (uintptr_t)in) % COPY_WORD == 0) {
        *(uint32_t *)out = *(const uint32_t *)in;
        return;
    }
#endif
    memcpy(out, in, COPY_WORD);
}

/*
 * Records lie end to end, so steps go through the bytes of the chunk: words, then what is left.
 * Threads of a warp read neighbours: a line of the host's memory at once, where it lies there.
 */
GP_MAP(copy, copy_n_words(params, chunk) + copy_n_bytes(params, chunk) % COPY_WORD)
{
    const size_t n_words = copy_n_words(params, chunk);

    if (i < n_words) {
        copy_word(GP_OUT(0, uint8_t) + i * COPY_WORD, GP_IN(0, uint8_t) + i * COPY_WORD);
    } else {
        const size_t at = n_words * COPY_WORD + (i - n_words);

        GP_OUT(0, uint8_t)[at] = GP_IN(0, uint8_t)[at];
    }
}

#ifdef GP_HOST

static const struct manifest_op copy_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "copy",
    .doc = "the input, unchanged",
    .n_in = 1,
    .n_out = 1,
    .n_params = 1,
    .params_size = sizeof(struct copy_params),
    .in = {{.name = "in", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .out = {{.name = "out", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "size"}}}},
    .params = {{.name = "size",
                .type = PARAM_U32,
                .offset = offsetof(struct copy_params, size),
                .i_default = 1,
                .i_min = 1,
                .i_max = LIMIT_RECORD}},
    .tails = TAIL_BIT(TAIL_ZERO),
    .min_parallel = 1,
};

GP_CODE(copy, .map = copy_map, .is_streaming = true);

#endif
