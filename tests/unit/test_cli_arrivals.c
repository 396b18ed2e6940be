/* Arrivals: they keep to the rate, and poisson ones know nothing of each other. */
#include "client/cli/arrivals.h"
#include "tests/check.h"
#include "tests/random.h"

#include <math.h>

#define N 100000

static void test_constant_arrivals_do_not_drift(void)
{
    struct arrivals arrivals;
    double rate = 3 + (double)random_below(1000000) / 7;

    arrivals_init(&arrivals, ARRIVALS_CONSTANT, rate, random_u64());
    for (uint64_t i = 0; i < N; i++) {
        double due_ns = (double)i * 1e9 / rate;

        CHECK(fabs((double)arrivals_next(&arrivals) - due_ns) <= 2);
    }
}

/* The count within a time: mean and variance are the same, and what a gap was tells nothing of the
 * next one.  Bounds are 6 deviations and more: once in 500 million runs. */
static void test_poisson_arrivals(void)
{
    const double rate = 10 + (double)random_below(100000), mean_ns = 1e9 / rate;
    double sum = 0, squares = 0, products = 0, before = 0;
    struct arrivals arrivals;
    uint64_t last_ns = 0;
    uint32_t n_over_mean = 0;

    arrivals_init(&arrivals, ARRIVALS_POISSON, rate, random_u64());
    for (uint32_t i = 0; i < N; i++) {
        uint64_t due_ns = arrivals_next(&arrivals);
        double gap;

        CHECK_GE(due_ns, last_ns);
        gap = (double)(due_ns - last_ns) / mean_ns;
        last_ns = due_ns;
        sum += gap;
        squares += (gap - 1) * (gap - 1);
        products += i == 0 ? 0 : (gap - 1) * (before - 1);
        n_over_mean += gap > 1;
        before = gap;
    }
    CHECK(fabs(sum / N - 1) < 6 / sqrt(N));
    CHECK(fabs(squares / N - 1) < 6 * sqrt(8.0 / N));
    CHECK(fabs(products / N) < 6 / sqrt(N));
    CHECK(fabs((double)n_over_mean / N - exp(-1)) < 6 * 0.5 / sqrt(N));
}

static void test_a_seed_is_all_that_chance_has(void)
{
    const uint64_t seed = random_u64();
    struct arrivals first, second, other;
    uint32_t n_same = 0;

    arrivals_init(&first, ARRIVALS_POISSON, 1000, seed);
    arrivals_init(&second, ARRIVALS_POISSON, 1000, seed);
    arrivals_init(&other, ARRIVALS_POISSON, 1000, seed + 1);
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t due_ns = arrivals_next(&first);

        CHECK_EQ(due_ns, arrivals_next(&second));
        n_same += due_ns == arrivals_next(&other);
    }
    CHECK_LT(n_same, 10);
}

CHECK_MAIN(CHECK_TEST(test_constant_arrivals_do_not_drift), CHECK_TEST(test_poisson_arrivals),
           CHECK_TEST(test_a_seed_is_all_that_chance_has))
