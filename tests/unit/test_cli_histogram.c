/* Histogram: held against the values themselves, sorted. */
#include "client/cli/histogram.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <math.h>

#define N 20000

static struct histogram *make(void)
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));

    CHECK(histogram != NULL);
    check_at_end(free, histogram);
    return histogram;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* As far as a bucket is wide. */
static void check_near(uint64_t told, uint64_t value)
{
    CHECK_GE(told, value);
    CHECK_LE(told - value, value / 1024);
}

/* Values of all sizes, n_bits at most. */
static uint64_t *add_random(struct histogram *histogram, uint32_t n, uint32_t n_bits)
{
    uint64_t *values = malloc(n * sizeof(*values));

    check_at_end(free, values);
    for (uint32_t i = 0; i < n; i++) {
        values[i] = random_u64() >> (64 - n_bits + random_below(n_bits));
        histogram_add(histogram, values[i]);
    }
    qsort(values, n, sizeof(*values), compare);
    return values;
}

static void test_percentiles_are_those_of_the_sorted_values(void)
{
    static const uint64_t millionths[] = {1,      1000,   250000, 500000, 900000,
                                          990000, 999000, 999900, 1000000};
    struct histogram *histogram = make();
    const uint64_t *values = add_random(histogram, N, HISTOGRAM_VALUE_BITS);
    double sum = 0, squares = 0;

    CHECK_EQ(histogram->n, N);
    CHECK_EQ(histogram->least, values[0]);
    CHECK_EQ(histogram->greatest, values[N - 1]);
    for (size_t i = 0; i < ARRAY_SIZE(millionths); i++) {
        uint64_t rank = div_round_up(millionths[i] * N, 1000000);

        check_near(histogram_value_at(histogram, (double)millionths[i] / 1e6), values[rank - 1]);
    }
    CHECK_EQ(histogram_value_at(histogram, 1), values[N - 1]);
    for (uint32_t i = 0; i < N; i++) {
        sum += (double)values[i];
    }
    for (uint32_t i = 0; i < N; i++) {
        squares += ((double)values[i] - sum / N) * ((double)values[i] - sum / N);
    }
    CHECK(fabs(histogram_mean(histogram) - sum / N) < sum / N * 1e-9);
    CHECK(fabs(histogram_deviation(histogram) - sqrt(squares / N)) < sqrt(squares / N) / 1000);
}

static void test_small_values_are_exact(void)
{
    struct histogram *histogram = make();
    const uint64_t *values = add_random(histogram, N, 11);

    for (uint32_t rank = 1; rank <= N; rank++) {
        CHECK_EQ(histogram_value_at(histogram, (double)rank / N), values[rank - 1]);
    }
}

/* Each power of two and its neighbours: where numbers of buckets could have a gap or overlap. */
static void test_edges_of_buckets(void)
{
    struct histogram *histogram = make();

    for (uint32_t bit = 1; bit < HISTOGRAM_VALUE_BITS; bit++) {
        for (int offset = -1; offset <= 1; offset++) {
            uint64_t value = ((uint64_t)1 << bit) + (uint64_t)offset;

            histogram_clear(histogram);
            histogram_add(histogram, value);
            histogram_add(histogram, HISTOGRAM_LIMIT - 1);
            check_near(histogram_value_at(histogram, 0.5), value);
            CHECK_EQ(histogram_count_to(histogram, value), 1);
            /* A power of two is the first of its bucket. */
            CHECK(offset != 0 || histogram_count_to(histogram, value - 1) == 0);
        }
    }
}

static void test_counts_below_a_value(void)
{
    struct histogram *histogram = make();
    const uint64_t *values = add_random(histogram, N, 40);

    for (uint32_t i = 0; i < N; i += 131) {
        uint64_t count = histogram_count_to(histogram, values[i]);

        CHECK_GT(count, i);
        CHECK(count == N || values[count] > values[i]);
        CHECK(values[count - 1] - values[i] <= values[i] / 1024);
    }
    CHECK_EQ(histogram_count_to(histogram, UINT64_MAX), N);
}

static void test_values_beyond_the_limit(void)
{
    struct histogram *histogram = make();

    histogram_add(histogram, HISTOGRAM_LIMIT);
    histogram_add(histogram, UINT64_MAX);
    CHECK_EQ(histogram->n, 2);
    CHECK_EQ(histogram_value_at(histogram, 0.5), UINT64_MAX);
    CHECK_EQ(histogram->greatest, UINT64_MAX);
    CHECK_EQ(histogram->least, HISTOGRAM_LIMIT);
}

static void test_nothing_was_added(void)
{
    struct histogram *histogram = make();

    CHECK_EQ(histogram_value_at(histogram, 0.5), 0);
    CHECK_EQ(histogram_count_to(histogram, 1000), 0);
    CHECK(histogram_mean(histogram) == 0 && histogram_deviation(histogram) == 0);
}

/* Five steps to a half, five to three quarters, and so on. */
static void test_parts_of_a_curve(void)
{
    double part = 0, half = 1;

    for (int i = 0; i < 30; i++) {
        for (int step = 0; step < 5; step++) {
            double next = histogram_next_part(part);

            CHECK(next > part && next < 1);
            part = next;
        }
        half /= 2;
        CHECK(fabs(1 - half - part) < half / 1000);
    }
}

CHECK_MAIN(CHECK_TEST(test_percentiles_are_those_of_the_sorted_values),
           CHECK_TEST(test_small_values_are_exact), CHECK_TEST(test_edges_of_buckets),
           CHECK_TEST(test_counts_below_a_value), CHECK_TEST(test_values_beyond_the_limit),
           CHECK_TEST(test_nothing_was_added), CHECK_TEST(test_parts_of_a_curve))
