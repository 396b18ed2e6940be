/*
 * Resolve: turn a work entry, as it came out of the queue, into work that a device can be given.
 *
 * Threads: pure over its arguments, but for the lock inside segments.
 */
#pragma once

#include "cuda/device.h"
#include "cuda/segments.h"

/* The job block as the worker has it mapped. */
struct job_table {
    const struct job_block *blocks;
    uint32_t n_blocks;
};

/*
 * index: the entry's; rows: WORK_ROWS of a TABLE, which stay where they are as long as ret_work is
 * in use.
 *
 * Fill ret_work from the entry and its job's parameters and constants; cookies, issue_ns and
 * priority are left to the caller.  0, or why the entry cannot be run: RANGE where an array does
 * not lie in its segment, is not aligned to its elements, or a count is out of bounds; INTERNAL
 * where the entry names a job, op or kind that does not exist or does not fit the op, or is after
 * what is no earlier entry.
 */
int resolve_entry(const struct work_entry *entry, uint32_t index, const struct work_row *rows,
                  const struct job_table *jobs, struct segments *segments,
                  struct device_work *ret_work, struct failure *ret_failure);
