/*
 * Shm: named, sealed memfds.  The front end creates every one of them; workers (and later clients)
 * only map them.
 *
 * Threads: plain functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Create a memfd of size bytes (a multiple of the page), allocate its pages so that no later access
 * can fault for want of memory, and seal it SHRINK | GROW | SEAL; nobody can execute it (from Linux
 * 6.3 on).  Returns the descriptor or -errno (-ENOSPC, -ENOMEM: not that much memory).
 */
int shm_create(const char *name, size_t size);

/*
 * The same for much memory that devices will read and write: in huge pages where the machine grants
 * them, and on this NUMA node while it has room (-1: any).  Not more than shm_available(), else
 * -ENOMEM.  Takes 0.2 ms for each MiB; for any thread, whose memory policy is as before afterwards.
 */
int shm_create_large(const char *name, size_t size, int node);
/* What it got.  A few of its pages are asked where they lie; true too where nobody can tell. */
bool shm_is_huge(int fd);
bool shm_lies_on(int fd, size_t size, int node);

/*
 * Free all its pages, whoever has it mapped: they read as zeros, and who touches them gets new
 * ones. Not those that a device has registered: they are only taken out of the file.
 */
void shm_punch(int fd, size_t size);

/* Has this process memory on more than one NUMA node, so that there is a choice? */
bool shm_has_nodes(void);

/*
 * Bytes that the machine could give now; SIZE_MAX where the kernel does not say.  To be asked
 * before much is allocated: allocating until it fails would have the OOM killer end somebody else.
 */
size_t shm_available(void);

/*
 * Map all size bytes of fd shared, for reading and writing.  Checks that fd is at least that long
 * and sealed against shrinking, else -EINVAL.  0 or -errno.
 */
int shm_map(int fd, size_t size, void **ret_base);

void shm_unmap(void *base, size_t size);
