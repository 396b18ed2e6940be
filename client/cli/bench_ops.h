/*
 * Bench ops: the ops that a benchmark can check, and their data.
 *
 * The reference shares no code with the op, and is quick: it must keep up with a device.  So this
 * is a short list, and an op that is not in it is not benchmarked.
 *
 * A push's input is made from a number, its seed: what came out is held against input that is made
 * once more, so that nothing that the daemon could have written takes part.
 *
 * Threads: pure functions, but for the messages on stderr (see cli.h).
 */
#pragma once

#include "client/cli/cli.h"

#include <stdint.h>

struct bench_op {
    const char *name;
    uint32_t n_in; /* arrays of the same size; there is one output, of that size as well */
    uint32_t element_size;
    bool is_float;              /* elements are f32 */
    struct gpupipe_value value; /* its parameter, with a default; name NULL: it has none */
    double least, most;         /* of the parameter */
    /* What the op makes of n_bytes of each input. */
    void (*expect)(const struct gpupipe_value *value, const void *const *in, void *out,
                   size_t n_bytes);
};

/* *ret_op is a copy, whose parameter can be set: text is "NAME=VALUE". */
int bench_op_find(const char *name, struct bench_op *ret_op);
int bench_op_set(struct bench_op *op, const char *text);

/*
 * size: a multiple of the element's.  The output is poisoned: each byte is other than what the op
 * will make of the input.
 */
void bench_op_prepare(const struct bench_op *op, uint64_t seed, uint64_t size, uint8_t *const *in,
                      uint8_t *out);
/* The first byte of out that is wrong; size: none is. */
uint64_t bench_op_check(const struct bench_op *op, uint64_t seed, uint64_t size,
                        const uint8_t *out);
