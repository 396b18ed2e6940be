/*
 * rs16: Reed-Solomon over GF(2^16), the field of PAR2: polynomials over GF(2) modulo
 *     x^16 + x^12 + x^3 + x + 1   (0x1100b)
 * A record is k slices of n words; output j is the sum of all slices, slice l times word (j, l) of
 * a constant matrix.  The same op makes recovery slices and, with the inverted matrix, restores.
 *
 * A product is bit-sliced: of 2^b times the constant, for each bit b that the word has.  Those 16
 * multiples are made once for a tile of many words, and each mask made from a bit of a word serves
 * the 8 outputs that are computed together (for fewer the rest are computed as well).
 *
 * A number of 32 bits holds two words: one of the first half of the tile, and its neighbour of the
 * second half.
 */
#include "cuda/lane.h"
#include "cuda/op.h"

#define RS16_OUTS 8 /* outputs computed together */
#define RS16_INS  8 /* slices whose multiples are ready at once */
#ifdef __CUDACC__
#define RS16_NUMBERS 128 /* lane numbers of a tile */
#define RS16_WIDE    4   /* of those, how many a thread takes at once */
#else
#define RS16_NUMBERS (1024 / GP_LANES)
#define RS16_WIDE    1
#endif
#define RS16_HALF  (RS16_NUMBERS * GP_LANES) /* words */
#define RS16_WORDS (2 * RS16_HALF)

struct rs16_params {
    uint32_t k, m, n;
};

/* Of one slice, the multiples by 2^b of its constant for each output, in both halves. */
typedef uint32_t rs16_multiples[16][RS16_OUTS];

#ifdef __CUDACC__

/* Words first .. of the n that there are; 0 behind them. */
GP_INLINE lane_u32 rs16_load(const uint16_t *in, uint32_t first, uint32_t n)
{
    return first < n ? in[first] : 0;
}

GP_INLINE void rs16_store(uint16_t *out, uint32_t first, uint32_t n, lane_u32 x)
{
    if (first < n) {
        out[first] = (uint16_t)x;
    }
}

/* Each half all ones where its top bit is set: two bytes' signs, each twice. */
GP_INLINE lane_u32 rs16_mask(lane_u32 x)
{
    uint32_t mask;

    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(x));
    return mask;
}

#else

typedef uint16_t rs16_words __attribute__((vector_size(2 * GP_LANES)));
typedef int16_t rs16_signs __attribute__((vector_size(4 * GP_LANES)));

GP_INLINE lane_u32 rs16_load(const uint16_t *in, uint32_t first, uint32_t n)
{
    const uint32_t n_left = first < n ? n - first : 0;
    rs16_words words = {0};

    memcpy(&words, in + first, n_left < GP_LANES ? 2 * (size_t)n_left : sizeof(words));
    return __builtin_convertvector(words, lane_u32);
}

GP_INLINE void rs16_store(uint16_t *out, uint32_t first, uint32_t n, lane_u32 x)
{
    const uint32_t n_left = first < n ? n - first : 0;
    const rs16_words words = __builtin_convertvector(x, rs16_words);

    memcpy(out + first, &words, n_left < GP_LANES ? 2 * (size_t)n_left : sizeof(words));
}

GP_INLINE lane_u32 rs16_mask(lane_u32 x)
{
    return (lane_u32)((rs16_signs)x >> 15);
}

#endif

GP_INLINE uint32_t rs16_double(uint32_t x)
{
    return (x << 1 & 0xffff) ^ ((x >> 15) * 0x100bu);
}

/* The multiples for n_ins slices from the first on, and outputs first_out .. */
GP_INLINE void rs16_prepare(const struct rs16_params *params, const uint16_t *matrix,
                            uint32_t first_in, uint32_t n_ins, uint32_t first_out,
                            rs16_multiples *multiples)
{
    for (uint32_t u = GP_THREAD; u < n_ins * RS16_OUTS; u += GP_THREADS) {
        const uint32_t l = u / RS16_OUTS, j = u % RS16_OUTS;
        uint32_t x = 0;

        if (first_out + j < params->m) {
            x = matrix[(size_t)(first_out + j) * params->k + first_in + l];
        }
        for (uint32_t b = 0; b < 16; b++) {
            multiples[l][b][j] = x * 0x10001u;
            x = rs16_double(x);
        }
    }
}

/* Add one slice's products, for RS16_WIDE of the numbers, stride apart. */
GP_INLINE void rs16_add(const rs16_multiples multiples, const uint16_t *in, uint32_t n_words,
                        uint32_t number, uint32_t stride, lane_u32 (*sums)[RS16_NUMBERS])
{
    lane_u32 x[RS16_WIDE], products[RS16_OUTS][RS16_WIDE];

    for (uint32_t w = 0; w < RS16_WIDE; w++) {
        const uint32_t first = (number + w * stride) * GP_LANES;

        x[w] = rs16_load(in, first, n_words) | rs16_load(in, RS16_HALF + first, n_words) << 16;
        for (uint32_t j = 0; j < RS16_OUTS; j++) {
            products[j][w] = lane_all(0);
        }
    }
    /* From the top bit: one that moves into the upper half comes there too late to count. */
    for (uint32_t b = 16; b-- > 0;) {
        GP_UNROLL
        for (uint32_t w = 0; w < RS16_WIDE; w++) {
            const lane_u32 mask = rs16_mask(x[w]);

            x[w] <<= 1;
            GP_UNROLL
            for (uint32_t j = 0; j < RS16_OUTS; j++) {
                products[j][w] ^= mask & multiples[b][j];
            }
        }
    }
    for (uint32_t j = 0; j < RS16_OUTS; j++) {
        for (uint32_t w = 0; w < RS16_WIDE; w++) {
            lane_gather_xor(&sums[j][number + w * stride], products[j][w]);
        }
    }
}

GP_INLINE void rs16_write(uint16_t *out, uint32_t n_words, uint32_t n_numbers, const lane_u32 *sums)
{
    for (uint32_t u = GP_THREAD; u < n_numbers; u += GP_THREADS) {
        rs16_store(out, u * GP_LANES, n_words, sums[u]);
        rs16_store(out, RS16_HALF + u * GP_LANES, n_words, sums[u] >> 16);
    }
}

GP_INLINE uint32_t rs16_tiles(const struct rs16_params *params)
{
    return (params->n + RS16_WORDS - 1) / RS16_WORDS;
}

GP_INLINE uint32_t rs16_groups(const struct rs16_params *params)
{
    return (params->m + RS16_OUTS - 1) / RS16_OUTS;
}

/* A step makes 8 outputs of a tile of a record; those of one tile follow each other. */
GP_MAP_BLOCKS(rs16, (uint64_t)rs16_tiles(params) * rs16_groups(params) * chunk->n_records)
{
    /* Aligned, so that a GPU loads them by fours. */
    GP_SHARED __attribute__((aligned(16))) rs16_multiples multiples[RS16_INS];
    GP_SHARED lane_u32 sums[RS16_OUTS][RS16_NUMBERS];
    const size_t k = params->k, m = params->m, n = params->n;
    const uint32_t n_groups = rs16_groups(params), n_tiles = rs16_tiles(params);
    const size_t record = i / n_groups / n_tiles, first = i / n_groups % n_tiles * RS16_WORDS;
    const uint32_t first_out = (uint32_t)(i % n_groups) * RS16_OUTS;
    const uint32_t n_words = n - first < RS16_WORDS ? (uint32_t)(n - first) : RS16_WORDS;
    const uint32_t n_half = n_words < RS16_HALF ? n_words : RS16_HALF;
    const uint32_t stride = (n_half + GP_LANES * RS16_WIDE - 1) / (GP_LANES * RS16_WIDE);
    const uint32_t n_numbers = stride * RS16_WIDE;
    const uint16_t *in = GP_IN(0, uint16_t) + record * k * n + first;
    uint16_t *out = GP_OUT(0, uint16_t) + (record * m + first_out) * n + first;

    for (uint32_t u = GP_THREAD; u < RS16_OUTS * n_numbers; u += GP_THREADS) {
        sums[u / n_numbers][u % n_numbers] = lane_all(0);
    }
    for (uint32_t l = 0; l < k; l += RS16_INS) {
        const uint32_t n_ins = k - l < RS16_INS ? (uint32_t)(k - l) : RS16_INS;

        rs16_prepare(params, GP_CONST_IN(0, uint16_t), l, n_ins, first_out, multiples);
        GP_SYNC();
        for (uint32_t u = GP_THREAD; u < n_ins * stride; u += GP_THREADS) {
            rs16_add(multiples[u / stride], in + (l + u / stride) * n, n_words, u % stride, stride,
                     sums);
        }
        GP_SYNC();
    }
    for (uint32_t j = 0; j < RS16_OUTS && first_out + j < m; j++) {
        rs16_write(out + j * n, n_words, n_numbers, sums[j]);
    }
}

#ifdef GP_HOST

#define RS16_PARAM(member, most)                                                                   \
    {                                                                                              \
        .name = #member, .type = PARAM_U32, .offset = offsetof(struct rs16_params, member),        \
        .is_required = 1, .i_min = 1, .i_max = (most)                                              \
    }

static const struct manifest_op rs16_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "rs16",
    .doc = "sums of k slices of n words, times an m x k matrix over GF(2^16) (0x1100b, as in PAR2)",
    .n_in = 1,
    .n_consts = 1,
    .n_out = 1,
    .n_params = 3,
    .params_size = sizeof(struct rs16_params),
    .in =
        {{.name = "in", .dtype = DTYPE_U16, .n_dims = 2, .dims = {{.param = "k"}, {.param = "n"}}}},
    .consts = {{.name = "matrix",
                .dtype = DTYPE_U16,
                .n_dims = 2,
                .dims = {{.param = "m"}, {.param = "k"}}}},
    .out = {{.name = "out",
             .dtype = DTYPE_U16,
             .n_dims = 2,
             .dims = {{.param = "m"}, {.param = "n"}}}},
    .params = {RS16_PARAM(k, 32768), RS16_PARAM(m, 32768), RS16_PARAM(n, LIMIT_RECORD / 2)},
    .min_parallel = 1, /* what fills a device is words, not records */
};

GP_CODE(rs16, .map = rs16_map);

#endif
