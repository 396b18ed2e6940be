/*
 * Sincos reference: is this sin(a) + cos(b), as close as the op promises?  Told by the functions of
 * long double, which share no code with those of double.
 *
 * Threads: pure.
 */
#pragma once

#include "tests/check.h"

#include <float.h>
#include <math.h>

/* |out - exact| <= ulp(out) / 2 + 2^-50, or NaN where a or b is none or infinite. */
static inline void sincos_check(float a, float b, float out)
{
    const long double exact = sinl((long double)a) + cosl((long double)b);
    /* Half the distance to the next float away from 0: at a power of two the larger half. */
    const float next = nextafterf(fabsf(out), INFINITY);
    const long double bound = ((long double)next - (long double)fabsf(out)) / 2 + 0x1p-50L;

    if (isnan(exact) != isnan(out) || fabsl((long double)out - exact) > bound) {
        CHECK_FAIL("sin(%a) + cos(%a) is %a, not %La", (double)a, (double)b, (double)out, exact);
    }
}
