/*
 * Subject: what the ops compute, said in another way.  See subject.h.
 */
#include "tests/bench/subject.h"

#include "tests/bench/bench.h"

#include <string.h>

/* The exponent's upper bit: without it a float is finite. */
#define FINITE_MASK UINT64_C(0xbfffffffbfffffff)

void subject_fill(void *in, size_t size)
{
    uint64_t *words = in;

    bench_fill(in, size);
    for (size_t i = 0; i < size / sizeof(*words); i++) {
        words[i] &= FINITE_MASK;
    }
}

/* Compared as bits, so that a poisoned NaN is a difference as well. */
static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

size_t subject_count_wrong(const void *out, const void *in, size_t size)
{
    const float *x = in, *got = out;
    size_t n = 0;

    for (size_t i = 0; i < size / sizeof(*x); i++) {
        n += bits_of(got[i]) != bits_of(x[i] + 2.0f);
    }
    return n * sizeof(*x);
}

static void check_iterate(const char *what, const void *out, const void *in, size_t size)
{
    size_t n_wrong = subject_count_wrong(out, in, size);

    if (n_wrong > 0) {
        bench_fail("%s: wrong result: %zu of %zu bytes", what, n_wrong, size);
    }
}

const struct subject subject_copy = {
    .op = "copy",
    .param = "size",
    .value = 4096,
    .record_size = 4096,
    .check = bench_check_same,
};

/* Once: v is x / 2 + 1, which is exact but for its own rounding. */
static void check_iterate_once(const char *what, const void *out, const void *in, size_t size)
{
    const float *x = in, *got = out;
    size_t n = 0;

    for (size_t i = 0; i < size / sizeof(*x); i++) {
        n += bits_of(got[i]) != bits_of(x[i] + (x[i] / 2.0f + 1.0f));
    }
    if (n > 0) {
        bench_fail("%s: wrong result: %zu of %zu floats", what, n, size / sizeof(*x));
    }
}

const struct subject subject_iterate_once = {
    .op = "iterate",
    .param = "n",
    .value = 1,
    .record_size = sizeof(float),
    .check = check_iterate_once,
};

const struct subject subject_iterate = {
    .op = "iterate",
    .param = "n",
    .value = 1000,
    .record_size = sizeof(float),
    .check = check_iterate,
};

const struct subject subject_iterate_long = {
    .op = "iterate",
    .param = "n",
    .value = 20000,
    .record_size = sizeof(float),
    .check = check_iterate,
};
