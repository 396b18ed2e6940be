/*
 * Fake link: a worker in the daemon's own process, in place of daemon/worker_link.c.  It has two
 * ops of u8[4] records, "copy" and the reduce op "sum", whose result is of no meaning, and does as
 * much as it is let.
 *
 * Threads: any; the worker itself is the front end's loop's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_RECORD 4

/* The worker may do n more chunks; from here on the oldest first, or the newest. */
void fake_link_let(uint32_t n, bool is_backwards);
/* From here on it stands still, or does whatever comes. */
void fake_link_hold(bool is_held);
/* The next chunk that it does fails. */
void fake_link_fail_next(void);
/* It has died with all that is in flight, and the next one is there already. */
void fake_link_die(void);
