/*
 * Buffer: memory and chunks for the tests of ops.
 *
 * A buffer ends where an unreadable page begins, so that an op that reads or writes behind an array
 * crashes; in front lie guard bytes.  Outputs come filled with a pattern that is no zero.
 *
 * Threads: none; the seed and the list of buffers are global.
 */
#pragma once

#include "cuda/registry.h"

#include <stddef.h>
#include <stdint.h>

/* Random numbers, seeded afresh by each process, which prints the seed; GPUPIPE_SEED=n repeats. */
uint64_t random_u64(void);
uint32_t random_below(uint32_t n);
void random_fill(void *bytes, size_t size);

/* Poisoned; freed at the end of the test, or by buffer_free_all(). */
void *buffer_create(size_t size);
void buffer_free_all(void);
/* Fails the test if anything in front of any buffer was written. */
void buffer_check_guards(void);

/*
 * A table of up to max_chunks chunks of random widths, together n_records records.  Each array of
 * each chunk is a buffer of its own; inputs are random bytes.  Sizes are of records, in order.
 */
struct table {
    struct op_chunk chunks[64];
    uint32_t n_chunks;
};
void table_create(struct table *ret_table, uint32_t n_records, uint32_t max_chunks,
                  const uint32_t *in_sizes, uint32_t n_in, uint32_t out_size);
