/*
 * Mapped: a rival for small jobs.  One kernel reads pinned memory of the host and writes it, with
 * no copy before or behind it, and its last block writes a sequence number there, which is polled.
 *
 * Thread: its caller's, after direct_open(), which has registered the memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MAPPED_UNIT 16u /* sizes and places are multiples of it */

struct mapped;

void mapped_open(uint8_t *in, uint8_t *out, struct mapped **ret_mapped);
void mapped_close(struct mapped *mapped);

/* The bytes [at, at + size) of in to the same of out, until they are there. */
void mapped_step(struct mapped *mapped, size_t at, size_t size);

/* The same without waiting: any number may be under way, and they are done in their order. */
void mapped_send(struct mapped *mapped, size_t at, size_t size);
/* How many of all that were sent are done. */
uint32_t mapped_n_done(struct mapped *mapped);
