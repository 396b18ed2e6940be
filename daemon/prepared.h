/*
 * Prepared: what an op comes to under a client's parameters and options.
 *
 * It owns a slot of the job block, from which the workers read the parameters, and keeps the
 * constants that the slot names.  Jobs refer to it for as long as they live.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/constant.h"
#include "daemon/push.h"
#include "daemon/scheduler.h"
#include "proto/message.h"

struct prepared {
    struct server *server;
    uint32_t n_refs;
    const struct manifest_op *op;
    struct push_shape shape;
    uint32_t out_size[LIMIT_OUT]; /* bytes of an output's record */
    struct constant *consts[LIMIT_CONSTS];
    uint32_t slot;              /* in the job block */
    uint32_t chunk_most;        /* records of a chunk: what a device asks for ... */
    uint32_t chunk_least;       /* ... and what it needs */
    bool overlaps;              /* a device copies while it computes; see prepared_ramp() */
    uint32_t devices;           /* set of those that may run it */
    struct scheduler_rate rate; /* what its records take ... */
    uint64_t rate_key;          /* ... to be remembered as this */
    enum priority priority;
    enum tail tail;
    bool is_ordered;
    bool is_in_rings; /* its pushes have no memory of the pool: see job_ring.c */
    bool wants_timing;
    bool is_admitted; /* what cannot make its deadline is refused: see job_admit.c */
};

/*
 * Check op, parameters and options, with the constants that this connection has, and take a slot.
 * Errors name the parameter or option.
 */
int prepared_create(struct session *session, const struct msg_op *op,
                    const struct msg_options *options, struct prepared **ret_prepared,
                    struct failure *ret_failure);
/* Records of its next chunk, by how long one takes as far as that is known. */
uint64_t prepared_chunk_records(const struct prepared *prepared);
/*
 * So many records of n, for a chunk that others are to overlap with.  Copy-out begins when the
 * first chunk is computed, and beside the last one there is nothing to copy in: behind n_in_flight
 * chunks they grow from the least by doubling, and before the end of what is known, n_left records,
 * they shrink by halving.
 */
uint64_t prepared_ramp(const struct prepared *prepared, uint64_t n, uint32_t n_in_flight,
                       uint64_t n_left);
struct prepared *prepared_ref(struct prepared *prepared);
/* NULL is fine. */
void prepared_unref(struct prepared *prepared);
