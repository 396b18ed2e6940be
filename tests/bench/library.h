/*
 * Library: what one core does with the best library for an op, over the op's own records:
 *
 *     sha256        OpenSSL; one context for all blocks: the fastest use of its plain interface
 *     align_score   parasail, 16 bits; sequences of ACGT, as long as their records
 */
#pragma once

#include <stdint.h>

struct library_work {
    const void *params; /* as packed for the op */
    const void *in[2];
    void *out;
    uint32_t n_records;
};

/* The seconds that it took. */
typedef double library_function(const struct library_work *work);

/* NULL: there is none, or this was built without it. */
library_function *library_find(const char *op);
