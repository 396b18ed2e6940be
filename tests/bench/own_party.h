/*
 * Own party: a rival that has a CUDA context of its own; a party to a measurement (party.h).
 *
 *     bulk         the best pipeline that one process can be given by hand (direct.h): chunks of
 *                  4 MiB, 4 in flight; or all of 8 or 16 chunks of 64 MiB queued at once
 *     mapped       small jobs in an open loop (pace.h): one kernel on a stream of the highest
 *                  priority, which works in the host's memory
 *     copies       likewise: copy-in, kernel, copy-out and an event, on such streams
 *     one by one   in either way, each as soon as the one before is done: every byte is written
 *                  before it, and read after it
 *
 * Bulk has a thread of its own beside small jobs, in the same context.
 *
 * Threads: this.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum own_small { OWN_NO_SMALL, OWN_MAPPED, OWN_COPIES, OWN_ONE_MAPPED, OWN_ONE_COPIES };
enum own_bulk { OWN_NO_BULK, OWN_PIPELINE, OWN_QUEUED_8, OWN_QUEUED_16, OWN_BULKS };

/* What an order asks for; rate and size are of the small jobs. */
#define OWN_WHAT(small, bulk) ((uint32_t)(small)*OWN_BULKS + (uint32_t)(bulk))

/* bulk_size: of its inputs, and of its outputs.  The rest is for party_join(). */
_Noreturn void own_party_serve(size_t bulk_size, const char *fd, const char *answer_fd);
