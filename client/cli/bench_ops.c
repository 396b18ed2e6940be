/*
 * The ops that a benchmark can check.
 *
 * Data are made and checked in tiles that stay in the cache.  Random numbers come from a few
 * generators side by side, which a compiler makes vectors of: they must be about as quick as
 * memory, or a benchmark spends its time on them.
 *
 * Threads: pure functions.
 */
#include "client/cli/bench_ops.h"

#include "proto/util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TILE_SIZE 16384u /* not tuned: two inputs and an output stay in the L1 and L2 caches */
#define N_LANES   8u
#define N_IN_MAX  2u /* inputs of an op in the list */
#define BLOCK     (N_LANES * sizeof(uint64_t))

_Static_assert(TILE_SIZE % BLOCK == 0, "tiles are made of whole blocks");

/* ---- random input -------------------------------------------------------------------------- */

struct source {
    uint64_t lanes[N_LANES]; /* xorshift: never 0 */
};

/* splitmix64 */
static uint64_t mix(uint64_t state)
{
    state = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    state = (state ^ (state >> 27)) * UINT64_C(0x94d049bb133111eb);
    return state ^ (state >> 31);
}

/* Of one input of a push. */
static void source_init(struct source *source, uint64_t seed, uint32_t input)
{
    uint64_t state = mix(seed) + input;

    for (uint32_t lane = 0; lane < N_LANES; lane++) {
        state += UINT64_C(0x9e3779b97f4a7c15);
        source->lanes[lane] = mix(state) | 1;
    }
}

/* ret_words has room for whole blocks. */
static void source_fill(struct source *source, uint64_t *ret_words, size_t size)
{
    uint64_t lanes[N_LANES];

    memcpy(lanes, source->lanes, sizeof(lanes));
    for (size_t at = 0; at < size; at += BLOCK, ret_words += N_LANES) {
        for (uint32_t lane = 0; lane < N_LANES; lane++) {
            lanes[lane] ^= lanes[lane] << 13;
            lanes[lane] ^= lanes[lane] >> 7;
            lanes[lane] ^= lanes[lane] << 17;
            ret_words[lane] = lanes[lane];
        }
    }
    memcpy(source->lanes, lanes, sizeof(lanes));
}

/* Any sign and mantissa, and exponents from -31 to 32: finite, and different enough that sums are
 * rounded. */
static void make_floats(uint32_t *words, size_t size)
{
    for (size_t i = 0; i < size / sizeof(*words); i++) {
        uint32_t exponent = 96 + (words[i] >> 23 & 63);

        words[i] = (words[i] & 0x807fffff) | exponent << 23;
    }
}

static void fill_tile(const struct bench_op *op, struct source *source, uint64_t *ret_words,
                      size_t size)
{
    source_fill(source, ret_words, size);
    if (op->is_float) {
        make_floats((uint32_t *)ret_words, size);
    }
}

/* ---- what comes out ------------------------------------------------------------------------ */

static void expect_copy(const struct gpupipe_value *value, const void *const *in, void *out,
                        size_t n_bytes)
{
    (void)value;
    memcpy(out, in[0], n_bytes);
}

/* A product of two floats is exact in a double, and a sum of two is, rounded twice, what it is
 * rounded once: no compiler's fused multiply-add can change these. */
static void expect_saxpy(const struct gpupipe_value *value, const void *const *in, void *out,
                         size_t n_bytes)
{
    const float a = (float)value->f, *x = in[0], *y = in[1];
    float *sums = out;

    for (size_t i = 0; i < n_bytes / sizeof(float); i++) {
        float product = (float)((double)a * (double)x[i]);

        sums[i] = (float)((double)product + (double)y[i]);
    }
}

/* After so many steps v is 2, whatever it was: the distance to 2 is halved each time, from 2^33 to
 * less than a float near 2 can tell, and the last bit is rounded to even. */
#define ITERATE_SETTLED 64

static void expect_iterate(const struct gpupipe_value *value, const void *const *in, void *out,
                           size_t n_bytes)
{
    const float *x = in[0];
    float *sums = out;

    for (size_t i = 0; i < n_bytes / sizeof(float); i++) {
        float v = 2;

        if (value->i < ITERATE_SETTLED) {
            v = x[i];
            for (int64_t turn = 0; turn < value->i; turn++) {
                v = v / 2 + 1;
            }
        }
        sums[i] = x[i] + v;
    }
}

static const struct bench_op ops[] = {
    {.name = "copy", .n_in = 1, .element_size = 1, .expect = expect_copy},
    {
        .name = "saxpy",
        .n_in = 2,
        .element_size = sizeof(float),
        .is_float = true,
        .value = {"a", GPUPIPE_FLOAT, 0, 2.5, NULL},
        .least = -1e9, /* with inputs below 2^33, no infinity comes out */
        .most = 1e9,
        .expect = expect_saxpy,
    },
    {
        .name = "iterate",
        .n_in = 1,
        .element_size = sizeof(float),
        .is_float = true,
        .value = {"n", GPUPIPE_INT, 1000, 0, NULL},
        .least = 0,
        .most = 100000, /* the op's own limit */
        .expect = expect_iterate,
    },
};

/* ---- the command line's -------------------------------------------------------------------- */

int bench_op_find(const char *name, struct bench_op *ret_op)
{
    char all[128] = "";

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        if (strcmp(ops[i].name, name) == 0) {
            *ret_op = ops[i];
            return CLI_OK;
        }
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i == 0 ? "" : ", ",
                 ops[i].name);
    }
    return cli_usage("bench: the results of '%s' cannot be checked here; may be %s", name, all);
}

int bench_op_set(struct bench_op *op, const char *text)
{
    const char *equals = strchr(text, '=');
    struct gpupipe_value *value = &op->value;
    char *end;
    double number;

    if (value->name == NULL) {
        return cli_usage("-p %s: %s needs no parameter here", text, op->name);
    }
    if (equals == NULL || strlen(value->name) != (size_t)(equals - text) ||
        memcmp(value->name, text, (size_t)(equals - text)) != 0) {
        return cli_usage("-p %s: the parameter of %s is %s=VALUE", text, op->name, value->name);
    }
    number = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != '\0' || !(number >= op->least && number <= op->most) ||
        (value->kind == GPUPIPE_INT && number != floor(number))) {
        return cli_usage("-p %s: expected a number from %g to %g", text, op->least, op->most);
    }
    value->i = (int64_t)number;
    value->f = number;
    return CLI_OK;
}

/* ---- prepared, and checked ----------------------------------------------------------------- */

/* Room for a tile of each input and of the output. */
struct tile {
    uint64_t in[N_IN_MAX][TILE_SIZE / sizeof(uint64_t)];
    uint64_t out[TILE_SIZE / sizeof(uint64_t)];
};

static void make_tile(const struct bench_op *op, struct source *sources, size_t size,
                      struct tile *ret_tile)
{
    const void *in[N_IN_MAX];

    for (uint32_t i = 0; i < op->n_in; i++) {
        fill_tile(op, &sources[i], ret_tile->in[i], size);
        in[i] = ret_tile->in[i];
    }
    op->expect(&op->value, in, ret_tile->out, size);
}

static void init_sources(const struct bench_op *op, uint64_t seed, struct source *ret_sources)
{
    for (uint32_t i = 0; i < op->n_in; i++) {
        source_init(&ret_sources[i], seed, i);
    }
}

void bench_op_prepare(const struct bench_op *op, uint64_t seed, uint64_t size, uint8_t *const *in,
                      uint8_t *out)
{
    struct source sources[N_IN_MAX];
    struct tile tile;

    init_sources(op, seed, sources);
    for (uint64_t at = 0; at < size; at += TILE_SIZE) {
        size_t n = MIN(size - at, TILE_SIZE);

        make_tile(op, sources, n, &tile);
        for (size_t i = 0; i < div_round_up(n, sizeof(*tile.out)); i++) {
            tile.out[i] = ~tile.out[i];
        }
        for (uint32_t i = 0; i < op->n_in; i++) {
            memcpy(in[i] + at, tile.in[i], n);
        }
        memcpy(out + at, tile.out, n);
    }
}

static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t size)
{
    size_t i = 0;

    while (i < size && a[i] == b[i]) {
        i++;
    }
    return i;
}

uint64_t bench_op_check(const struct bench_op *op, uint64_t seed, uint64_t size, const uint8_t *out)
{
    struct source sources[N_IN_MAX];
    struct tile tile;

    init_sources(op, seed, sources);
    for (uint64_t at = 0; at < size; at += TILE_SIZE) {
        size_t n = MIN(size - at, TILE_SIZE);

        make_tile(op, sources, n, &tile);
        if (memcmp(out + at, tile.out, n) != 0) {
            return at + first_difference(out + at, (const uint8_t *)tile.out, n);
        }
    }
    return size;
}
