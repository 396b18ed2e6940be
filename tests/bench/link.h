/*
 * Link: what the connection between host and device carries, with nothing to compute: copies of
 * all the memory to the device, from it, and both at once.
 *
 * Thread: its caller's, after direct_open().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum link_way { LINK_IN, LINK_OUT, LINK_BOTH };

struct link;

/* in and out are registered. */
void link_open(uint8_t *in, uint8_t *out, size_t size, struct link **ret_link);
void link_close(struct link *link);

/* New inputs: what LINK_OUT brings are these as well. */
void link_load(struct link *link);
/* Returns the seconds until all of it is there. */
double link_run(struct link *link, enum link_way way);
/* The program ends where a byte is wrong, on the device or in out. */
void link_check(struct link *link, enum link_way way);
