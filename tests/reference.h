/*
 * Reference: what ops must give, computed without any of the project's code.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "tests/harness.h"

#include <stddef.h>
#include <stdint.h>

/* a * x[i] + y[i], rounded twice. */
void reference_saxpy(float a, const float *x, const float *y, float *ret_out, size_t n);

/* The same bits, any NaN being equal to any NaN.  got may lie anywhere, as in a message. */
void reference_check_floats(const void *got, const float *want, size_t n);

/* Is got a sum of x with an error far below that of adding one by one? */
void reference_check_sum(double got, const float *x, size_t n);

/* sha256 of every block by Python's hashlib; a last short block as it is.  Freed at the test's end.
 */
const uint8_t *reference_sha256(struct harness *harness, const void *bytes, size_t size,
                                size_t block);
