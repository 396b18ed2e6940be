/*
 * Described: a push whose data lie in a ring, as its descriptor or its Refs say: whether it may be,
 * and what becomes of it.
 *
 * What a descriptor says was copied out of the ring once, so what is checked here is what is used.
 * Places are in units of RING_ALIGN.  Checks return 0, or a negative status with a failure that
 * names the limit; nothing is changed by them.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/job.h"

/* A push as it was described, by descriptor or by Refs. */
struct described {
    struct ring_link *link; /* where it lies */
    uint64_t n_records;
    uint64_t deadline_at_ns;  /* CLOCK_MONOTONIC; 0: none */
    uint32_t varying_size;    /* bytes */
    uint32_t tail_size;       /* bytes of a short last record; 0: none */
    const uint32_t *in, *out; /* as struct work_row has them: as many as the op has count */
};

/* Arrays of a push of the job's that lie in a ring: not a reduce op's output, which is the job's.
 */
uint32_t described_n_arrays(const struct job *job);
/* Of one of them; *ret_kind: "input" or "output". */
const char *described_name(const struct job *job, uint32_t array, const char **ret_kind);

/* May it be, of a job that takes input?  RANGE, TOO_BIG, or why it has no credit or is not
 * admitted.
 */
int described_check(const struct job *job, const struct described *described,
                    struct failure *ret_failure);
/* The part of it that depends on places: all arrays are in the ring, and no output over another. */
bool described_is_in_place(const struct job *job, const struct described *described);

/* For what was checked: the next row of this push borrows its places ... */
struct push_row *described_add_row(struct job *job, struct push *push,
                                   const struct described *described);
/* ... or it becomes a push of its own, ACCEPTED, that holds its ring. */
struct push *described_accept(struct job *job, const struct described *described);
