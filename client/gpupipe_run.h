/*
 * Runs through a ring of the library's own.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_connection.h"
#include "proto/message.h"

struct flight;

/* Bytes of inputs and outputs from which on a ring pays. */
#define RUN_RING_LEAST ((uint64_t)1 << 20)

/*
 * 1 with what came of it, a negative status, or 0: nothing was done, it is one for a message (too
 * small for a ring, not plain, or there is no ring).
 */
int run_in_ring(struct gpupipe *gpupipe, const struct msg_run *msg, const struct gpupipe_desc *desc,
                struct flight **ret_flight, struct failure *ret_failure);
