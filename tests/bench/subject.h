/*
 * Subject: an op as the benchmarks of the GPU use it, and the check of its output by a formula of
 * its own.  Each has one input, one output as large, and one u32 parameter.
 *
 * Data are random floats of magnitude below 2: any bytes will do for `copy`, and for `iterate` with
 * n = 1, or n >= 152, whose v has then become 2 for every finite x.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct subject {
    const char *op;
    const char *param;
    uint32_t value;
    uint32_t record_size;
    /* Ends the program where out is not the op's result of in. */
    void (*check)(const char *what, const void *out, const void *in, size_t size);
};

extern const struct subject subject_copy;
extern const struct subject subject_iterate_once; /* n=1: as copy, but computed */
extern const struct subject subject_iterate;      /* n=1000: copies and kernels take their turn */
extern const struct subject subject_iterate_long; /* n=20000: the kernel is nearly all of it */

/* Fresh data. */
void subject_fill(void *in, size_t size);
/* How many bytes of out are not the result of x + 2; size is in floats' bytes. */
size_t subject_count_wrong(const void *out, const void *in, size_t size);
