/*
 * Shm: named, sealed memfds.  The front end creates every one of them; workers (and later clients)
 * only map them.
 *
 * Threads: plain functions.
 */
#pragma once

#include <stddef.h>

/*
 * Create a memfd of size bytes (a multiple of the page), allocate its pages so that no later access
 * can fault for want of memory, and seal it SHRINK | GROW | SEAL.  Returns the descriptor or
 * -errno (-ENOSPC, -ENOMEM: not that much memory).
 */
int shm_create(const char *name, size_t size);

/*
 * Map all size bytes of fd shared, for reading and writing.  Checks that fd is at least that long
 * and sealed against shrinking, else -EINVAL.  0 or -errno.
 */
int shm_map(int fd, size_t size, void **ret_base);

void shm_unmap(void *base, size_t size);
