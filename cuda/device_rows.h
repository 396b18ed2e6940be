/*
 * Device rows: a work as the chunks that op code takes, one for each of its rows, or the one that
 * it is itself.
 *
 * Threads: any.
 */
#pragma once

#include "cuda/device.h"

static inline uint32_t device_n_rows(const struct device_work *work)
{
    return work->rows != NULL ? work->n_rows : 1;
}

/* Row i of the work: its arrays as a CPU sees them, its constants likewise. */
struct op_chunk device_row(const struct device_work *work, uint32_t i);
/*
 * All rows of the work: chunks like `first`, which is row 0, but for what a table's row has of its
 * own.  Array by array: a chunk that is copied as soon as its words are written, two at a time,
 * waits for them, a tenth of what a row of a full launch cost.
 */
void device_rows(const struct device_work *work, const struct op_chunk *first,
                 struct op_chunk *chunks);

/* Bytes that row i has of this array, which is one of the work's own. */
static inline uint64_t device_row_size(const struct device_work *work, uint32_t i,
                                       const struct device_array *array)
{
    /* A table has no tails, so all of its records are of one size. */
    return work->rows == NULL ? array->size
                              : array->size / work->n_records * work->rows[i].n_records;
}
