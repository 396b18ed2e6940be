/*
 * Runs through a ring of the library's own.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_connection.h"
#include "proto/message.h"

struct flight;

/*
 * Bytes of inputs and outputs from which on a ring is used.  `copy` on the CPU backend, two cores:
 * 1.3 times as quick as a message at 0.5 MiB, 1.7 at 1 MiB, 2.8 at 4 MiB, 3.3 at 32 MiB; but the
 * first such run has the ring to open, which takes as long as some of the small ones gain.
 */
#define RUN_RING_LEAST ((uint64_t)1 << 20)

/*
 * 1 with what came of it, a negative status, or 0: it is one for a message (too small for a ring,
 * not plain, or there is no ring), and as if nothing had been done.
 */
int run_in_ring(struct gpupipe *gpupipe, const struct msg_run *msg, const struct gpupipe_desc *desc,
                struct flight **ret_flight, struct failure *ret_failure);
