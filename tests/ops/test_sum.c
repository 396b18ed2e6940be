/*
 * sum, against exact arithmetic: a fixed-point number wide enough for any sum of f32.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"

#include <math.h>

#define EXACT_DIGITS   14   /* 128 + 160 bits for one value, the rest for their number */
#define EXACT_EXPONENT -160 /* of digit 0's lowest bit, below that of every f32 */
#define PARTIAL_MAX    (MANIFEST_PARTIAL_SIZE / sizeof(uint64_t))

extern const struct op_code op_sum;

/* The sum of digits[k] * 2^(32 k + EXACT_EXPONENT). */
struct exact {
    int64_t digits[EXACT_DIGITS];
};

/* Add x, a finite f32 or a rounded sum of them.  At most 2^30 of them: digits are not carried. */
static void exact_add(struct exact *exact, double x)
{
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(fabs(x), &exponent), 53);
    const int n_zeros = mantissa == 0 ? 0 : __builtin_ctzll(mantissa);
    const int shift = exponent - 53 + n_zeros - EXACT_EXPONENT;
    unsigned __int128 bits;

    if (mantissa == 0) {
        return;
    }
    CHECK_GE(shift, 0);
    bits = (unsigned __int128)(mantissa >> n_zeros) << shift % 32;
    for (int k = shift / 32; bits != 0; k++) {
        CHECK_LT(k, EXACT_DIGITS);
        exact->digits[k] += signbit(x) ? -(int64_t)(uint32_t)bits : (int64_t)(uint32_t)bits;
        bits >>= 32;
    }
}

static void exact_carry(struct exact *exact)
{
    for (int k = 0; k < EXACT_DIGITS - 1; k++) {
        const int64_t carry = exact->digits[k] >> 32;

        exact->digits[k] -= carry * (INT64_C(1) << 32);
        exact->digits[k + 1] += carry;
    }
}

static long double exact_magnitude(struct exact exact)
{
    long double magnitude = 0;

    exact_carry(&exact);
    if (exact.digits[EXACT_DIGITS - 1] < 0) {
        for (int k = 0; k < EXACT_DIGITS; k++) {
            exact.digits[k] = -exact.digits[k];
        }
        exact_carry(&exact);
    }
    for (int k = EXACT_DIGITS - 1; k >= 0; k--) {
        magnitude += ldexpl((long double)exact.digits[k], 32 * k + EXACT_EXPONENT);
    }
    return magnitude;
}

static long double exact_error(const float *x, uint32_t n, double result)
{
    struct exact exact = {0};

    for (uint32_t i = 0; i < n; i++) {
        exact_add(&exact, x[i]);
    }
    exact_add(&exact, -result);
    return exact_magnitude(exact);
}

/* What sum.cu promises. */
static long double error_bound(const float *x, uint32_t n)
{
    struct exact exact = {0};

    for (uint32_t i = 0; i < n; i++) {
        exact_add(&exact, fabsf(x[i]));
    }
    return 65 * 0x1p-53L * exact_magnitude(exact);
}

static uint32_t n_leaves(uint32_t n)
{
    return (uint32_t)div_round_up(n, op_sum.manifest->leaf);
}

/* Partials of x, from chunks of 1 to max_leaves leaves; every second chunk first, then the rest. */
static void make_partials(const float *x, uint32_t n, uint32_t max_leaves, uint8_t *ret_partials)
{
    const uint32_t leaf = op_sum.manifest->leaf;
    struct op_chunk chunks[64];
    uint32_t n_chunks = 0;

    for (uint32_t first = 0; first < n; n_chunks++) {
        const uint32_t wanted = (1 + random_below(max_leaves)) * leaf;

        CHECK_LT(n_chunks, ARRAY_SIZE(chunks));
        chunks[n_chunks] = (struct op_chunk){
            .in = {x + first},
            .out = {ret_partials + (size_t)(first / leaf) * op_sum.manifest->partial_size},
            .n_records = MIN(wanted, n - first),
        };
        first += chunks[n_chunks].n_records;
    }
    for (uint32_t c = 1; c < n_chunks; c += 2) {
        op_sum.leaves(NULL, &chunks[c]);
    }
    for (uint32_t c = 0; c < n_chunks; c += 2) {
        op_sum.leaves(NULL, &chunks[c]);
    }
}

/* The whole op: leaves, then merges of 1 to max_leaves partials, then the result. */
static double sum(const float *x, uint32_t n, uint32_t max_leaves)
{
    const uint32_t size = op_sum.manifest->partial_size;
    uint8_t *partials = buffer_create((size_t)n_leaves(n) * size);
    uint64_t folds[2][PARTIAL_MAX];
    double *result = buffer_create(sizeof(*result));
    void *const out[LIMIT_OUT] = {result};
    uint32_t turn = 0;

    make_partials(x, n, max_leaves, partials);
    op_sum.merge(NULL, NULL, NULL, 0, folds[0]);
    for (uint32_t k = 0; k < n_leaves(n); turn++) {
        const uint32_t wanted = 1 + random_below(max_leaves), count = MIN(wanted, n_leaves(n) - k);

        op_sum.merge(NULL, k == 0 ? NULL : folds[turn % 2], partials + (size_t)k * size, count,
                     folds[(turn + 1) % 2]);
        k += count;
    }
    op_sum.finish(NULL, folds[turn % 2], out);
    buffer_check_guards();
    return *result;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(x));
    return bits;
}

/* Within the bound, and the same bits in four other cuts. */
static double check_sum(const float *x, uint32_t n)
{
    const double result = sum(x, n, n_leaves(n) + 1);
    const long double error = exact_error(x, n, result), bound = error_bound(x, n);

    if (error > bound) {
        CHECK_FAIL("the error of %u values is %Lg, over the bound %Lg", n, error, bound);
    }
    for (uint32_t k = 0; k < 4; k++) {
        CHECK_EQ(bits_of(sum(x, n, 1 + n_leaves(n) / 40 + k)), bits_of(result));
    }
    return result;
}

static float random_unit(void)
{
    return (float)(int32_t)random_u64() / 0x1p31f;
}

static float random_finite(void)
{
    for (;;) {
        const uint32_t bits = (uint32_t)random_u64();
        float x;

        memcpy(&x, &bits, sizeof(x));
        if (isfinite(x)) {
            return x;
        }
    }
}

static float random_wide(void)
{
    return ldexpf(1 + fabsf(random_unit()), (int)random_below(80) - 40);
}

static const uint32_t counts[] = {0,   1,    2,     3,     63,    64,    65,    255,   256,     257,
                                  511, 1000, 16383, 16384, 16385, 32768, 65537, 99999, 1u << 19};

static void check_counts(float (*draw)(void))
{
    for (uint32_t k = 0; k < ARRAY_SIZE(counts); k++) {
        float *x = buffer_create(counts[k] * sizeof(*x));

        for (uint32_t i = 0; i < counts[k]; i++) {
            x[i] = draw();
        }
        check_sum(x, counts[k]);
        buffer_free_all();
    }
}

static void test_like_sizes(void)
{
    check_counts(random_unit);
}

static void test_any_finite_values(void)
{
    check_counts(random_finite);
}

static void test_wide_range(void)
{
    check_counts(random_wide);
}

/* Every value comes with its negative, far away: the exact sum is that of the small rest. */
static void test_cancellation(void)
{
    const uint32_t n = 100001;
    float *x = buffer_create(n * sizeof(*x));

    for (uint32_t i = 0; i < n / 2; i++) {
        x[i] = random_wide();
        x[n - 1 - i] = -x[i];
    }
    x[n / 2] = 0x1p-140f;
    check_sum(x, n);
}

static double naive(const float *x, uint32_t n)
{
    double result = 0;

    for (uint32_t i = 0; i < n; i++) {
        result += (double)x[i];
    }
    return result;
}

static void test_better_than_a_plain_loop(void)
{
    const uint32_t n = 1u << 20;
    float *x = buffer_create(n * sizeof(*x));
    double result;

    for (uint32_t i = 0; i < n; i++) {
        x[i] = random_wide();
    }
    result = check_sum(x, n);
    CHECK(4 * exact_error(x, n, result) < exact_error(x, n, naive(x, n)));

    /* A plain loop loses every 1 beside 2^100, this one only those that share its lane. */
    for (uint32_t i = 0; i < n; i++) {
        x[i] = 1;
    }
    x[0] = 0x1p100f;
    x[n - 1] = -0x1p100f;
    CHECK(naive(x, n) == 0);
    CHECK(exact_error(x, n, sum(x, n, 3)) <= 2 * 64);
}

static void test_no_overflow(void)
{
    const uint32_t n = 70000;
    float *x = buffer_create(n * sizeof(*x));

    for (uint32_t i = 0; i < n; i++) {
        x[i] = 0x1.fffffep127f;
    }
    CHECK(check_sum(x, n) == n * 0x1.fffffep127);
}

static void test_zeros(void)
{
    float *x = buffer_create(20000 * sizeof(*x));

    CHECK_EQ(bits_of(sum(x, 0, 1)), 0u);
    for (uint32_t i = 0; i < 20000; i++) {
        x[i] = -0.0f;
    }
    CHECK_EQ(bits_of(sum(x, 20000, 1)), 0u);
}

/* Two special values at all distances: one lane, two lanes, two leaves. */
static void test_infinities_and_nan(void)
{
    static const struct {
        float a, b;
        double expected;
    } rows[] = {
        {INFINITY, 1, INFINITY},
        {-INFINITY, 1, -INFINITY},
        {INFINITY, INFINITY, INFINITY},
        {-INFINITY, -INFINITY, -INFINITY},
        {INFINITY, -INFINITY, NAN},
        {-INFINITY, INFINITY, NAN},
        {NAN, 1, NAN},
        {NAN, INFINITY, NAN},
        {-INFINITY, NAN, NAN},
    };
    static const uint32_t places[][2] = {{0, 1}, {0, 256}, {5, 16383}, {16383, 16384}, {3, 59999}};
    const uint32_t n = 60000;
    float *x = buffer_create(n * sizeof(*x));

    for (uint32_t r = 0; r < ARRAY_SIZE(rows); r++) {
        for (uint32_t p = 0; p < ARRAY_SIZE(places); p++) {
            double result;

            for (uint32_t i = 0; i < n; i++) {
                x[i] = random_unit();
            }
            x[places[p][0]] = rows[r].a;
            x[places[p][1]] = rows[r].b;
            result = sum(x, n, 2);
            CHECK(isnan(rows[r].expected) ? isnan(result) : result == rows[r].expected);
        }
    }
}

CHECK_MAIN(CHECK_TEST(test_like_sizes), CHECK_TEST(test_any_finite_values),
           CHECK_TEST(test_wide_range), CHECK_TEST(test_cancellation),
           CHECK_TEST(test_better_than_a_plain_loop), CHECK_TEST(test_no_overflow),
           CHECK_TEST(test_zeros), CHECK_TEST(test_infinities_and_nan))
