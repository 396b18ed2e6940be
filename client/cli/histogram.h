/*
 * Histogram: how often which value came, in memory that does not grow.
 *
 * Values below 2048 are counted one by one; above, each power of two has 1024 buckets of the same
 * width.  So what is told of a value is at most 1/1024 above it, and never below: three significant
 * digits.  Least, greatest and mean are exact.  Values from HISTOGRAM_LIMIT on are counted in the
 * last bucket, and as greatest value with what they are.
 *
 * Threads: one at a time.
 */
#pragma once

#include <stdint.h>

#define HISTOGRAM_SUB_BITS   10u /* 1024 buckets for each power of two */
#define HISTOGRAM_VALUE_BITS 44u /* nanoseconds of 4.8 hours */
#define HISTOGRAM_LIMIT      ((uint64_t)1 << HISTOGRAM_VALUE_BITS)
#define HISTOGRAM_SIZE       ((HISTOGRAM_VALUE_BITS - HISTOGRAM_SUB_BITS + 1u) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t n;
    uint64_t least, greatest; /* of no meaning while n is 0 */
    double sum;
    uint64_t counts[HISTOGRAM_SIZE];
};

/* What is all zeros is an empty histogram. */
void histogram_clear(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);

/* A value that part of all values do not exceed (0 <= part <= 1), by 1/1024 too large at most; 0 of
 * an empty histogram. */
uint64_t histogram_value_at(const struct histogram *histogram, double part);
/* How many values are in the buckets up to that of this value. */
uint64_t histogram_count_to(const struct histogram *histogram, uint64_t value);
double histogram_mean(const struct histogram *histogram);
/* From the middles of the buckets. */
double histogram_deviation(const struct histogram *histogram);

/*
 * The parts that a curve over percentiles has points at, beginning with 0: five on the way to each
 * half of what is left, so that 0.9, 0.99, 0.999 are as far apart as they are on paper.
 */
double histogram_next_part(double part);
