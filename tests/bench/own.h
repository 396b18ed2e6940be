/*
 * Own: processes that have CUDA contexts of their own (own_context.c), so that this one need not.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct own {
    pid_t pid;
    int to_fd;
    int from_fd;
};

/* Holds a context with so much memory in it; returns when it has done a copy. */
void own_start_holder(struct own *own, uint32_t mib);
/* For own_free_memory(). */
void own_start_watcher(struct own *own);
void own_stop(struct own *own);

/* Bytes of the device that are free now. */
double own_free_memory(const struct own *watcher);
