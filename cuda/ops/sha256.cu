/*
 * sha256: the SHA-256 of each record (FIPS 180-4), as many records side by side as there are lanes.
 *
 * Lanes may end at different blocks (a short last record beside whole ones): a lane writes its
 * digest after its own last block, and what it computes after that is thrown away.
 */
#include "cuda/lane.h"
#include "cuda/op.h"

struct sha256_params {
    uint32_t block; /* bytes of a record */
};

/* A record on its way through the hash. */
struct sha256_message {
    const uint8_t *bytes;
    uint8_t *digest;
    uint32_t n_whole;  /* blocks of 64 bytes that lie in bytes */
    uint32_t n_blocks; /* with those in end */
    union {
        uint8_t end[128]; /* the remaining bytes, the end mark, zeros, the length in bits */
        uint32_t align;
    };
};

GP_CONST uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

GP_CONST uint32_t sha256_start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

GP_INLINE void sha256_open(const struct sha256_params *params, const struct op_record *record,
                           struct sha256_message *ret_message)
{
    const struct op_chunk *chunk = record->chunk;
    const bool is_short = chunk->tail_size != 0 && record->i == chunk->n_records - 1;
    const uint32_t size = is_short ? chunk->tail_size : params->block;
    const uint32_t n_whole = size / 64, n_left = size % 64;
    const uint32_t n_end = n_left < 56 ? 1 : 2;
    const uint64_t n_bits = (uint64_t)size * 8;

    ret_message->bytes = GP_IN(0, uint8_t) + (size_t)record->i * params->block;
    ret_message->digest = GP_OUT(0, uint8_t) + (size_t)record->i * 32;
    ret_message->n_whole = n_whole;
    ret_message->n_blocks = n_whole + n_end;
    memset(ret_message->end, 0, sizeof(ret_message->end));
    memcpy(ret_message->end, ret_message->bytes + (size_t)n_whole * 64, n_left);
    ret_message->end[n_left] = 0x80;
    for (uint32_t k = 0; k < 8; k++) {
        ret_message->end[64 * n_end - 1 - k] = (uint8_t)(n_bits >> 8 * k);
    }
}

/* Block b; for a message that has ended, any 64 bytes. */
GP_INLINE const uint8_t *sha256_block(const struct sha256_message *message, uint32_t b)
{
    if (b < message->n_whole) {
        return message->bytes + (size_t)b * 64;
    }
    return message->end + (b == message->n_whole + 1 ? 64 : 0);
}

GP_INLINE lane_u32 sha256_big(lane_u32 x, uint32_t r0, uint32_t r1, uint32_t r2)
{
    return lane_ror(x, r0) ^ lane_ror(x, r1) ^ lane_ror(x, r2);
}

GP_INLINE lane_u32 sha256_small(lane_u32 x, uint32_t r0, uint32_t r1, uint32_t shift)
{
    return lane_ror(x, r0) ^ lane_ror(x, r1) ^ (x >> shift);
}

GP_INLINE void sha256_compress(lane_u32 state[8], const uint8_t *const at[GP_LANES])
{
    lane_u32 a = state[0], b = state[1], c = state[2], d = state[3];
    lane_u32 e = state[4], f = state[5], g = state[6], h = state[7];
    lane_u32 w[16];

    lane_load_16(at, w);
    for (uint32_t first = 0; first < 64; first += 16) {
        GP_UNROLL
        for (uint32_t t = 0; t < 16; t++) {
            if (first == 0) {
                w[t] = lane_swap_bytes(w[t]);
            } else {
                w[t] += sha256_small(w[(t + 1) % 16], 7, 18, 3) + w[(t + 9) % 16] +
                        sha256_small(w[(t + 14) % 16], 17, 19, 10);
            }
            const lane_u32 choice = g ^ (e & (f ^ g)), majority = (a & b) | (c & (a | b));
            const lane_u32 t1 = h + sha256_big(e, 6, 11, 25) + choice + sha256_k[first + t] + w[t];
            const lane_u32 t2 = sha256_big(a, 2, 13, 22) + majority;

            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

GP_INLINE void sha256_write(const lane_u32 state[8], uint32_t lane, uint8_t *digest)
{
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t word = lane_get(state[k], lane);

        for (uint32_t byte = 0; byte < 4; byte++) {
            digest[4 * k + byte] = (uint8_t)(word >> (24 - 8 * byte));
        }
    }
}

GP_MAP_LANES(sha256, GP_LANES)
{
    struct sha256_message messages[GP_LANES];
    const uint8_t *at[GP_LANES];
    lane_u32 state[8];
    uint32_t n_blocks = 0;

    for (uint32_t lane = 0; lane < GP_LANES; lane++) {
        sha256_open(params, &records[lane], &messages[lane]);
        n_blocks = messages[lane].n_blocks > n_blocks ? messages[lane].n_blocks : n_blocks;
    }
    for (uint32_t k = 0; k < 8; k++) {
        state[k] = lane_all(sha256_start[k]);
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t lane = 0; lane < GP_LANES; lane++) {
            at[lane] = sha256_block(&messages[lane], b);
        }
        sha256_compress(state, at);
        for (uint32_t lane = 0; lane < n_records; lane++) {
            if (messages[lane].n_blocks == b + 1) {
                sha256_write(state, lane, messages[lane].digest);
            }
        }
    }
}

#ifdef GP_HOST

static const struct manifest_op sha256_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "sha256",
    .doc = "the SHA-256 of each block of bytes",
    .n_in = 1,
    .n_out = 1,
    .n_params = 1,
    .params_size = sizeof(struct sha256_params),
    .in = {{.name = "in", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "block"}}}},
    .out = {{.name = "out", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = 32}}}},
    .params = {{.name = "block",
                .type = PARAM_U32,
                .offset = offsetof(struct sha256_params, block),
                .i_default = 4096,
                .i_min = 1,
                .i_max = LIMIT_RECORD}},
    .tails = TAIL_BIT(TAIL_ZERO) | TAIL_BIT(TAIL_SHORT),
    .min_parallel = 16, /* the widest lanes of a CPU; a GPU wants thousands */
};

GP_CODE(sha256, .map = sha256_map);

#endif
