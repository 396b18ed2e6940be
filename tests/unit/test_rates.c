/* Rates: what is remembered is another's never. */
#include "daemon/rates.h"

#include "proto/limits.h"
#include "tests/check.h"
#include "tests/random.h"

static struct rates rates;

static struct scheduler_rate known(double record_ns)
{
    return (struct scheduler_rate){.is_known = true, .record_ns = record_ns};
}

static void test_what_was_measured_is_recalled(void)
{
    uint8_t params[LIMIT_PARAM_BYTES], others[LIMIT_PARAM_BYTES];
    struct scheduler_rate slow = known(1000), quick = known(1), unknown = {.record_ns = 5};
    uint64_t key;

    rates_init(&rates);
    random_bytes(params, sizeof(params));
    key = rates_key(&rates, 3, params);
    CHECK_EQ(rates_key(&rates, 3, params), key);
    CHECK(!rates_recall(&rates, key).is_known);
    rates_remember(&rates, key, &unknown);
    CHECK(!rates_recall(&rates, key).is_known);
    rates_remember(&rates, key, &slow);
    CHECK(rates_recall(&rates, key).record_ns == 1000);
    rates_remember(&rates, key, &quick);
    CHECK(rates_recall(&rates, key).record_ns == 1);
    CHECK(rates_key(&rates, 4, params) != key);
    for (unsigned i = 0; i < sizeof(params) * 8; i++) {
        memcpy(others, params, sizeof(params));
        others[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK(rates_key(&rates, 3, others) != key);
        CHECK(!rates_recall(&rates, rates_key(&rates, 3, others)).is_known);
    }
}

/* Far more than are kept: each is recalled as what it is, or not at all. */
static void test_places_are_shared_by_the_later(void)
{
    enum { N = 20 * RATES };
    uint8_t params[LIMIT_PARAM_BYTES] = {0};
    unsigned n_recalled = 0;

    rates_init(&rates);
    for (uint32_t i = 0; i < N; i++) {
        struct scheduler_rate rate = known(i + 1);

        memcpy(params, &i, sizeof(i));
        rates_remember(&rates, rates_key(&rates, 0, params), &rate);
    }
    for (uint32_t i = 0; i < N; i++) {
        struct scheduler_rate rate;

        memcpy(params, &i, sizeof(i));
        rate = rates_recall(&rates, rates_key(&rates, 0, params));
        CHECK(!rate.is_known || rate.record_ns == i + 1);
        n_recalled += rate.is_known;
    }
    CHECK_GT(n_recalled, RATES / 2);
    CHECK_LE(n_recalled, RATES);
}

/* Who knows which parameters meet in one daemon knows nothing of another. */
static void test_no_two_daemons_agree(void)
{
    uint8_t params[LIMIT_PARAM_BYTES] = {0};
    uint64_t key;

    rates_init(&rates);
    key = rates_key(&rates, 0, params);
    rates_init(&rates);
    CHECK(rates_key(&rates, 0, params) != key);
}

CHECK_MAIN(CHECK_TEST(test_what_was_measured_is_recalled),
           CHECK_TEST(test_places_are_shared_by_the_later), CHECK_TEST(test_no_two_daemons_agree))
