/*
 * Bench memory: where the data of a benchmark's pushes lie, one piece in a ring, or of this process
 * for pushes through the socket.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/cli.h"

#include <stdint.h>

#define BENCH_ALIGN 64u /* as rings want it */

/* Of less a round is over before it is in its stride; a daemon keeps so much ready for a ring. */
#define BENCH_MEMORY_LEAST (UINT64_C(64) << 20)
/* The largest ring that one user can have of the default --ring-pool. */
#define BENCH_MEMORY_MOST (UINT64_C(512) << 20)

struct bench_memory {
    struct gpupipe_ring *ring; /* NULL: it is this process's */
    uint8_t *bytes;            /* NULL: nothing to close */
    uint64_t size;
};

/*
 * Of the wanted size, or less where a ring can have no more, but never less than `least`: both are
 * within BENCH_MEMORY_MOST.  device NULL: any.
 */
int bench_memory_open(struct gpupipe *gpupipe, bool is_inline, const char *device, uint64_t least,
                      uint64_t wanted, struct bench_memory *ret_memory);
/* What is this process's: after gpupipe_close(), so that nothing is under way in it.  The ring ends
 * with the connection, or before. */
void bench_memory_free(struct bench_memory *memory);
