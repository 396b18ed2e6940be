/*
 * Rates: a table without chains.
 */
#include "daemon/rates.h"

#include "proto/limits.h"
#include "proto/util.h"

#include <string.h>
#include <sys/random.h>

void rates_init(struct rates *rates)
{
    memset(rates, 0, sizeof(*rates));
    if (getrandom(&rates->salt, sizeof(rates->salt), 0) != sizeof(rates->salt)) {
        rates->salt = now_ns();
    }
}

/* FNV-1a of the salt, the op and the parameters. */
static uint64_t hash(uint64_t sum, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

uint64_t rates_key(const struct rates *rates, uint32_t op, const uint8_t *params)
{
    uint64_t key = hash(hash(rates->salt, &op, sizeof(op)), params, LIMIT_PARAM_BYTES);

    return key != 0 ? key : 1;
}

struct scheduler_rate rates_recall(const struct rates *rates, uint64_t key)
{
    if (rates->all[key % RATES].key != key) {
        return (struct scheduler_rate){0};
    }
    return rates->all[key % RATES].rate;
}

void rates_remember(struct rates *rates, uint64_t key, const struct scheduler_rate *rate)
{
    if (rate->is_known) {
        rates->all[key % RATES].key = key;
        rates->all[key % RATES].rate = *rate;
    }
}
