/*
 * Segments: the memory that the front end has lent this worker, by id.
 *
 * Threads: the control thread adds, asks and drops, the data thread finds; a lock inside.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct segments;

/* 0 or -ENOMEM. */
int segments_create(struct segments **ret_segments);
/* Unmaps what is left.  NULL is fine. */
void segments_destroy(struct segments *segments);

/* Map size bytes of fd as segment id.  0, -EEXIST, -ERANGE (no such id), or what mapping says. */
int segments_add(struct segments *segments, uint32_t id, int fd, size_t size, void **ret_base);
bool segments_has(const struct segments *segments, uint32_t id);
/* Unmap a segment that is there. */
void segments_drop(struct segments *segments, uint32_t id);

/* Where segment id begins, and its bytes, or NULL if there is none. */
void *segments_whole(struct segments *segments, uint32_t id, uint64_t *ret_size);
/* Where bytes offset .. offset + size - 1 of segment id are, or NULL if it has no such bytes. */
void *segments_find(struct segments *segments, uint32_t id, uint64_t offset, uint64_t size);
