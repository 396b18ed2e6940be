/*
 * Space: which pieces of a range of bytes are taken.  For a ring's data, whose bytes it never
 * touches: all it knows lies in this process.
 *
 * Pieces begin at multiples of SPACE_ALIGN and are given back in any order.
 *
 * Threads: one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SPACE_ALIGN 64u

struct space;

int space_create(uint64_t size, struct space **ret_space); /* 0 or -ENOMEM */
void space_destroy(struct space *space);

/* 0; -ENOSPC: no free piece is that large; or -ENOMEM. */
int space_take(struct space *space, uint64_t size, uint64_t *ret_offset);
/* Give back what was taken at offset.  False: nothing was. */
bool space_give(struct space *space, uint64_t offset);

/* The largest piece that can be taken now. */
uint64_t space_largest(const struct space *space);
/* Bytes from offset to the end of what was taken around it; 0: nothing was. */
uint64_t space_left_at(const struct space *space, uint64_t offset);
