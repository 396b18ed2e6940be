/*
 * How often which value came.
 *
 * A bucket's number is made of the value's highest SUB_BITS + 1 bits, the first of which is 1, and
 * of how far they were shifted: numbers go up with values, without a gap.
 *
 * Threads: one at a time.
 */
#include "client/cli/histogram.h"

#include "proto/util.h"

#include <math.h>
#include <string.h>

#define SUBS          (1u << HISTOGRAM_SUB_BITS)
#define STEPS_TO_HALF 5 /* as HdrHistogram's own logs have */

static uint32_t shift_of(uint64_t value)
{
    uint32_t n_bits = 64u - (uint32_t)__builtin_clzll(value | 1);

    return n_bits <= HISTOGRAM_SUB_BITS + 1 ? 0 : n_bits - (HISTOGRAM_SUB_BITS + 1);
}

static uint32_t bucket_of(uint64_t value)
{
    uint64_t counted = MIN(value, HISTOGRAM_LIMIT - 1);
    uint32_t shift = shift_of(counted);

    return shift * SUBS + (uint32_t)(counted >> shift);
}

/* The least value of a bucket; of the one behind the last, HISTOGRAM_LIMIT. */
static uint64_t bucket_start(uint32_t bucket)
{
    uint32_t shift = bucket < 2 * SUBS ? 0 : bucket / SUBS - 1;

    return (uint64_t)(bucket - shift * SUBS) << shift;
}

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->least = histogram->n == 0 ? value : MIN(histogram->least, value);
    histogram->greatest = MAX(histogram->greatest, value);
    histogram->sum += (double)value;
    histogram->n++;
    histogram->counts[bucket_of(value)]++;
}

uint64_t histogram_value_at(const struct histogram *histogram, double part)
{
    /* The 7th of 100 values is at 0.07, though 0.07 * 100 is a little more than 7. */
    double rank = ceil(part * (double)histogram->n * (1 - 0x1p-50));
    uint64_t wanted = MAX((uint64_t)rank, 1u), n = 0;

    if (histogram->n == 0) {
        return 0;
    }
    for (uint32_t bucket = 0; bucket < HISTOGRAM_SIZE - 1; bucket++) {
        n += histogram->counts[bucket];
        if (n >= wanted) {
            return MIN(bucket_start(bucket + 1) - 1, histogram->greatest);
        }
    }
    return histogram->greatest;
}

uint64_t histogram_count_to(const struct histogram *histogram, uint64_t value)
{
    uint64_t n = 0;

    for (uint32_t bucket = 0; bucket <= bucket_of(value); bucket++) {
        n += histogram->counts[bucket];
    }
    return n;
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->n == 0 ? 0 : histogram->sum / (double)histogram->n;
}

double histogram_deviation(const struct histogram *histogram)
{
    double mean = histogram_mean(histogram), squares = 0;

    for (uint32_t bucket = 0; bucket < HISTOGRAM_SIZE; bucket++) {
        double middle = (double)(bucket_start(bucket) + bucket_start(bucket + 1) - 1) / 2;

        squares += (double)histogram->counts[bucket] * (middle - mean) * (middle - mean);
    }
    return histogram->n == 0 ? 0 : sqrt(squares / (double)histogram->n);
}

double histogram_next_part(double part)
{
    double half = 1;

    /* The half that part lies in: [1 - half, 1 - half / 2). */
    while (1 - half / 2 <= part) {
        half /= 2;
    }
    return part + half / 2 / STEPS_TO_HALF;
}
