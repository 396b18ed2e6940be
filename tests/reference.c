/*
 * Reference: plain loops, long double, and a stranger's sha256.
 */
#include "tests/reference.h"

#include "tests/check.h"

#include <math.h>

void reference_saxpy(float a, const float *x, const float *y, float *ret_out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        volatile float product = a * x[i]; /* a fused multiply-add would round once */

        ret_out[i] = product + y[i];
    }
}

void reference_check_floats(const void *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value;

        memcpy(&value, (const char *)got + i * sizeof(value), sizeof(value));
        if (memcmp(&value, &want[i], sizeof(value)) != 0 && !(isnan(value) && isnan(want[i]))) {
            CHECK_FAIL("float %zu of %zu is %a, not %a", i, n, (double)value, (double)want[i]);
        }
    }
}

void reference_check_sum(double got, const float *x, size_t n)
{
    long double exact = 0, magnitude = 0, error;

    for (size_t i = 0; i < n; i++) {
        exact += x[i];
        magnitude += fabsl(x[i]);
    }
    error = fabsl((long double)got - exact);
    if (!(error <= 64 * 0x1p-53L * magnitude)) {
        CHECK_FAIL("the sum of %zu floats is %a, not %a", n, got, (double)exact);
    }
}

const uint8_t *reference_sha256(struct harness *harness, const void *bytes, size_t size,
                                size_t block)
{
    struct harness_output output;
    size_t digests_size;
    const uint8_t *digests;

    harness_write(harness, "reference.in", bytes, size);
    harness_shell(harness, &output,
                  "/usr/bin/python3 -c \"\nimport hashlib\n"
                  "data = open('reference.in', 'rb').read()\n"
                  "with open('reference.out', 'wb') as out:\n"
                  "    for at in range(0, len(data), %zu):\n"
                  "        out.write(hashlib.sha256(data[at:at + %zu]).digest())\n\"",
                  block, block);
    if (output.code != 0) {
        CHECK_FAIL("the reference failed: %s", output.err);
    }
    digests = harness_read(harness, "reference.out", &digests_size);
    CHECK_EQ(digests_size, (size + block - 1) / block * 32);
    return digests;
}
