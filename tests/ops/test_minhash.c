/*
 * minhash, against its definition, word for word and one document at a time: 128-bit arithmetic,
 * and a hash and a generator of the test's own, which published values check first.  Every width
 * of vector is tested.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/lanes.h"

extern const struct op_code op_minhash;

#define P    ((UINT64_C(1) << 61) - 1)
#define MOST 1024 /* permutations */

struct params {
    uint32_t ngram, permutations, seed;
};

/* ---- the reference ------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t x, int n)
{
    return (x << n) | (x >> (32 - n));
}

/* MurmurHash3_x86_32 with seed 0. */
static uint32_t murmur(const uint8_t *bytes, size_t size)
{
    uint32_t hash = 0;

    for (size_t at = 0; at < size; at += 4) {
        uint32_t word = 0;

        memcpy(&word, bytes + at, MIN(size - at, (size_t)4));
        hash ^= rotate(word * 0xcc9e2d51, 15) * 0x1b873593;
        if (size - at >= 4) {
            hash = rotate(hash, 13) * 5 + 0xe6546b64;
        }
    }
    hash ^= (uint32_t)size;
    hash ^= hash >> 16;
    hash *= 0x85ebca6b;
    hash ^= hash >> 13;
    hash *= 0xc2b2ae35;
    return hash ^ (hash >> 16);
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z;

    *state += 0x9e3779b97f4a7c15;
    z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* The signature of one document. */
static void reference(const struct params *params, const uint8_t *text, uint32_t size,
                      uint32_t ret_signature[MOST])
{
    const uint32_t n = size == 0 ? 0 : size < params->ngram ? 1 : size - params->ngram + 1;
    uint64_t state = params->seed;

    for (uint32_t i = 0; i < params->permutations; i++) {
        const uint64_t drawn = splitmix(&state) % P, a = MAX(drawn, UINT64_C(1));
        const uint64_t b = splitmix(&state) % P;

        ret_signature[i] = UINT32_MAX;
        for (uint32_t k = 0; k < n; k++) {
            const unsigned __int128 x = murmur(text + k, MIN(size, params->ngram));
            const uint32_t value = (uint32_t)((a * x + b) % P);

            ret_signature[i] = MIN(ret_signature[i], value);
        }
    }
}

static void test_the_reference(void)
{
    static const uint64_t drawn[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431)};
    uint64_t state = 1234567;

    CHECK_EQ(murmur(NULL, 0), 0u);
    CHECK_EQ(murmur((const uint8_t *)"test", 4), 0xba6bd213u);
    CHECK_EQ(murmur((const uint8_t *)"Hello, world!", 13), 0xc0363e43u);
    CHECK_EQ(murmur((const uint8_t *)"The quick brown fox jumps over the lazy dog", 43),
             0x2e4ff723u);
    for (uint32_t k = 0; k < ARRAY_SIZE(drawn); k++) {
        CHECK_EQ(splitmix(&state), drawn[k]);
    }
}

/* ---- documents ----------------------------------------------------------------------------- */

/* A chunk of documents of these sizes, of random bytes or, to have shingles in common, letters. */
static struct op_chunk make_chunk(const uint32_t *sizes, uint32_t n, const struct params *params)
{
    uint32_t *ends = buffer_create(n * sizeof(*ends)), size = 0;
    struct op_chunk chunk = {.in = {ends}, .n_records = n};
    uint8_t *text;

    for (uint32_t i = 0; i < n; i++) {
        ends[i] = size += sizes[i];
    }
    text = buffer_create(size);
    random_fill(text, size);
    for (uint32_t k = 0; k < size && n % 2 == 0; k++) {
        text[k] = "ab"[text[k] % 2];
    }
    chunk.in[1] = text;
    chunk.varying_size = size;
    chunk.out[0] = buffer_create((size_t)n * params->permutations * sizeof(uint32_t));
    return chunk;
}

/* What the documents are if nothing that the ends say may be believed. */
static void check_chunk(const struct params *params, const struct op_chunk *chunk)
{
    const uint32_t *ends = chunk->in[0], *signatures = chunk->out[0];

    for (uint32_t i = 0; i < chunk->n_records; i++) {
        const uint32_t first = MIN(i > 0 ? ends[i - 1] : 0, chunk->varying_size);
        const uint32_t end = MIN(ends[i], chunk->varying_size);
        uint32_t expected[MOST];

        reference(params, (const uint8_t *)chunk->in[1] + first, end > first ? end - first : 0,
                  expected);
        CHECK_MEM(signatures + (size_t)i * params->permutations, expected,
                  params->permutations * sizeof(uint32_t));
    }
}

static void run(map_function *map, const struct params *params, const struct op_chunk *chunks,
                uint32_t n_chunks)
{
    map(params, chunks, n_chunks);
    for (uint32_t c = 0; c < n_chunks; c++) {
        check_chunk(params, &chunks[c]);
    }
    buffer_check_guards();
    buffer_free_all();
}

static struct params random_params(void)
{
    static const uint32_t ngrams[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 64};
    static const uint32_t counts[] = {1, 2, 3, 5, 8, 9, 16, 17, 64, 100, 128, 129};
    const struct params params = {.ngram = ngrams[random_below(ARRAY_SIZE(ngrams))],
                                  .permutations = counts[random_below(ARRAY_SIZE(counts))],
                                  .seed = (uint32_t)random_u64()};

    return params;
}

/* Every length around the shingle's, the empty document included, in one chunk. */
static void check_every_length(map_function *map)
{
    uint32_t sizes[70];

    for (uint32_t round = 0; round < 10; round++) {
        const struct params params = random_params();
        const uint32_t n = ARRAY_SIZE(sizes) - round % 2;
        struct op_chunk chunk;

        for (uint32_t k = 0; k < n; k++) {
            sizes[k] = round < 2 ? k : random_below(params.ngram + 3);
        }
        chunk = make_chunk(sizes, n, &params);
        run(map, &params, &chunk, 1);
    }
}

/* Documents of more shingles than are hashed at once, and several chunks. */
static void check_long_documents(map_function *map)
{
    static const uint32_t sizes[] = {1023, 1024, 1025, 1031, 2055, 0, 5000};
    struct op_chunk chunks[4];

    for (uint32_t round = 0; round < 3; round++) {
        struct params params = random_params();

        params.permutations = round == 0 ? 8 : 1 + random_below(40);
        params.ngram = round == 0 ? 8 : params.ngram;
        for (uint32_t c = 0; c < ARRAY_SIZE(chunks); c++) {
            const uint32_t first = random_below(ARRAY_SIZE(sizes));

            chunks[c] = make_chunk(sizes + first, c == 1 ? 0 : ARRAY_SIZE(sizes) - first, &params);
        }
        run(map, &params, chunks, ARRAY_SIZE(chunks));
    }
}

static void check_most_permutations(map_function *map)
{
    static const uint32_t sizes[] = {40, 3};
    const struct params params = {.ngram = 5, .permutations = MOST, .seed = UINT32_MAX};
    const struct op_chunk chunk = make_chunk(sizes, ARRAY_SIZE(sizes), &params);

    run(map, &params, &chunk, 1);
}

/* Ends that no front end lets through, and a client may write a moment later. */
static void check_hostile_ends(map_function *map)
{
    static const uint32_t sizes[] = {30, 30, 30, 30, 30, 30, 30};
    const struct params params = {.ngram = 3, .permutations = 20, .seed = 7};

    for (uint32_t round = 0; round < 50; round++) {
        const struct op_chunk chunk = make_chunk(sizes, ARRAY_SIZE(sizes), &params);
        uint32_t *ends = (uint32_t *)chunk.in[0];

        for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            ends[i] = random_below(3) == 0 ? (uint32_t)random_u64() : random_below(220);
        }
        run(map, &params, &chunk, 1);
    }
}

static void check_map(map_function *map)
{
    check_every_length(map);
    check_long_documents(map);
    check_most_permutations(map);
    check_hostile_ends(map);
}

LANES_TESTS(op_minhash, check_map)

static void test_the_width_that_is_picked(void)
{
    check_map(op_minhash.map);
}

/* What it is for: the share of equal numbers is about that of common shingles. */
static void test_it_estimates_likeness(void)
{
    static const uint32_t sizes[] = {2004, 2004};
    const struct params params = {.ngram = 5, .permutations = MOST, .seed = 1};
    struct op_chunk chunk = make_chunk(sizes, 2, &params);
    const uint32_t *signatures = chunk.out[0];
    uint8_t *text = (uint8_t *)chunk.in[1];
    uint32_t n_same = 0;

    random_fill(text, 4008);
    memcpy(text + 2004, text, 1004); /* 1000 of 2000 shingles each: a third of all that there are */
    op_minhash.map(&params, &chunk, 1);
    for (uint32_t k = 0; k < MOST; k++) {
        n_same += signatures[k] == signatures[MOST + k];
    }
    CHECK_GT(n_same, MOST / 3 - 100u); /* more than six standard deviations */
    CHECK_LT(n_same, MOST / 3 + 100u);
}

CHECK_MAIN(CHECK_TEST(test_the_reference), CHECK_TEST(test_4_lanes), CHECK_TEST(test_8_lanes),
           CHECK_TEST(test_16_lanes), CHECK_TEST(test_the_width_that_is_picked),
           CHECK_TEST(test_it_estimates_likeness))
