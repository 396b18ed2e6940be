/*
 * minhash: a signature of each document, for finding those that are nearly the same: the share of
 * equal numbers in two signatures estimates the share of shingles that both documents have.
 *
 * The shingles of a document are its runs of `ngram` bytes, one from each byte on; a shorter
 * document is one shingle, an empty one has none.  With x a shingle's MurmurHash3_x86_32 (seed 0),
 * number i is the least, over all shingles, of
 *     ((a[i] * x + b[i]) mod p) mod 2^32,    p = 2^61 - 1
 * and 2^32 - 1 without any.  This is the scheme of datasketch's MinHash, whose sums wrap at 2^64.
 * a and b are what splitmix64, started with `seed`, gives mod p: first a[0], then b[0], a[1] and
 * so on; an a that would be 0 is 1.
 */
#include "cuda/lane.h"
#include "cuda/op.h"

#define MINHASH_P    ((UINT64_C(1) << 61) - 1)
#define MINHASH_MOST 1024 /* permutations */
#define MINHASH_TILE 1024 /* shingles hashed ahead; not tuned */

struct minhash_params {
    uint32_t ngram;
    uint32_t permutations;
    uint32_t seed;
};

GP_INLINE uint32_t minhash_rotate(uint32_t x, uint32_t n)
{
    return x << n | x >> (32 - n);
}

GP_INLINE uint32_t minhash_scramble(uint32_t word)
{
    return minhash_rotate(word * 0xcc9e2d51u, 15) * 0x1b873593u;
}

/* MurmurHash3_x86_32, seed 0. */
GP_INLINE uint32_t minhash_hash(const uint8_t *bytes, uint32_t size)
{
    const uint8_t *end = bytes + (size & ~3u);
    uint32_t hash = 0, rest = 0;

    for (; bytes < end; bytes += 4) {
        const uint32_t word = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24;

        hash = minhash_rotate(hash ^ minhash_scramble(word), 13) * 5 + 0xe6546b64u;
    }
    for (uint32_t k = 0; k < size % 4; k++) {
        rest |= (uint32_t)bytes[k] << 8 * k;
    }
    hash ^= minhash_scramble(rest) ^ size;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

/* Number n of splitmix64, counted from 1, mod p. */
GP_INLINE uint64_t minhash_draw(uint32_t seed, uint32_t n)
{
    uint64_t x = seed + n * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    x = (x & MINHASH_P) + (x >> 61);
    return x >= MINHASH_P ? x - MINHASH_P : x;
}

/* As many permutations as there are lanes; a = 2^29 * a_high + a_low. */
struct minhash_group {
    lane_u64 a_low, a_high, b;
};

GP_INLINE struct minhash_group minhash_group(uint32_t seed, uint32_t first)
{
    uint64_t a_low[GP_LANES_64], a_high[GP_LANES_64], b[GP_LANES_64];
    struct minhash_group group;

    for (uint32_t lane = 0; lane < GP_LANES_64; lane++) {
        const uint64_t drawn = minhash_draw(seed, 2 * (first + lane) + 1);
        const uint64_t a = drawn == 0 ? 1 : drawn;

        a_low[lane] = a & ((1u << 29) - 1);
        a_high[lane] = a >> 29;
        b[lane] = minhash_draw(seed, 2 * (first + lane) + 2);
    }
    group.a_low = lane_load_64(a_low);
    group.a_high = lane_load_64(a_high);
    group.b = lane_load_64(b);
    return group;
}

/*
 * As 2^61 mod p is 1, what lies from bit 61 on is added at the bottom: of 2^29 * high first, then
 * of the sum, which stays below 2^63, and leaves at most p + 3.  To subtract p from that is to add
 * 1, as far as the lower 32 bits go.
 */
GP_INLINE lane_u32 minhash_permute(const struct minhash_group *group, uint32_t x)
{
    const lane_u64 word = lane_all_64(x);
    const lane_u64 high = lane_mul_64(group->a_high, word);
    const lane_u64 sum =
        lane_mul_64(group->a_low, word) + group->b + (high >> 32) + (high << 32 >> 3);
    const lane_u64 rest = (sum & MINHASH_P) + (sum >> 61);

    return lane_low(rest + ((rest + 1) >> 61));
}

/* Take these hashes into every least number; a thread has a group and a share of the hashes. */
GP_INLINE void minhash_gather(uint32_t seed, uint32_t n_groups, const uint32_t *hashes,
                              uint32_t n_hashes, lane_u32 *least)
{
    const uint32_t n_shares = GP_THREADS > n_groups ? GP_THREADS / n_groups : 1;

    for (uint32_t k = GP_THREAD; k < n_groups * n_shares; k += GP_THREADS) {
        const uint32_t number = k % n_groups;
        const struct minhash_group group = minhash_group(seed, number * GP_LANES_64);
        lane_u32 least_here = lane_all(UINT32_MAX);

        for (uint32_t h = k / n_groups; h < n_hashes; h += n_shares) {
            least_here = lane_min(least_here, minhash_permute(&group, hashes[h]));
        }
        lane_gather_min(&least[number], least_here);
    }
}

GP_MAP_BLOCKS(minhash, chunk->n_records)
{
    GP_SHARED uint32_t hashes[MINHASH_TILE];
    GP_SHARED lane_u32 least[MINHASH_MOST / GP_LANES_64];
    GP_SHARED struct op_span span; /* read once: threads that disagree would wait for ever */
    const uint32_t n_groups = (params->permutations + GP_LANES_64 - 1) / GP_LANES_64;
    uint32_t *out = GP_OUT(0, uint32_t) + i * params->permutations;
    uint32_t size, n_shingles;

    if (GP_THREAD == 0) {
        span = GP_SPAN(GP_IN(0, uint32_t), uint8_t, i);
    }
    for (uint32_t k = GP_THREAD; k < n_groups; k += GP_THREADS) {
        least[k] = lane_all(UINT32_MAX);
    }
    GP_SYNC();
    size = span.n < params->ngram ? span.n : params->ngram;
    n_shingles = size > 0 ? span.n - size + 1 : 0;
    for (uint32_t first = 0; first < n_shingles; first += MINHASH_TILE) {
        const uint32_t n_left = n_shingles - first;
        const uint32_t n_hashes = n_left < MINHASH_TILE ? n_left : MINHASH_TILE;
        const uint8_t *text = GP_IN(1, uint8_t) + span.first + first;

        for (uint32_t k = GP_THREAD; k < n_hashes; k += GP_THREADS) {
            hashes[k] = minhash_hash(text + k, size);
        }
        GP_SYNC();
        minhash_gather(params->seed, n_groups, hashes, n_hashes, least);
        GP_SYNC();
    }
    for (uint32_t k = GP_THREAD; k < params->permutations; k += GP_THREADS) {
        out[k] = lane_get_low(least[k / GP_LANES_64], k % GP_LANES_64);
    }
}

#ifdef GP_HOST

static const struct manifest_op minhash_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "minhash",
    .doc = "the least of each permutation of the hashes of a document's shingles of ngram bytes",
    .n_in = 2,
    .n_out = 1,
    .n_params = 3,
    .params_size = sizeof(struct minhash_params),
    .in = {{.name = "ends", .dtype = DTYPE_U32, .is_ends = 1},
           {.name = "text", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = MANIFEST_VARYING}}}},
    .out = {{.name = "out", .dtype = DTYPE_U32, .n_dims = 1, .dims = {{.param = "permutations"}}}},
    .params = {{.name = "ngram",
                .type = PARAM_U32,
                .offset = offsetof(struct minhash_params, ngram),
                .i_default = 5,
                .i_min = 1,
                .i_max = 64},
               {.name = "permutations",
                .type = PARAM_U32,
                .offset = offsetof(struct minhash_params, permutations),
                .i_default = 128,
                .i_min = 1,
                .i_max = MINHASH_MOST},
               {.name = "seed",
                .type = PARAM_U32,
                .offset = offsetof(struct minhash_params, seed),
                .i_default = 1,
                .i_min = 0,
                .i_max = UINT32_MAX}},
    .min_parallel = 1, /* a GPU's block works on one: it wants hundreds all the same */
};

GP_CODE(minhash, .map = minhash_map);

#endif
