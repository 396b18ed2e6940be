/*
 * CPUs: how many this process may use at once, however many the machine has.
 *
 * Threads: any.
 */
#pragma once

#include <stdint.h>

#define CPUS_NO_QUOTA UINT32_MAX

/* Those of our affinity mask that cpu.max lets us use; at least 1. */
uint32_t cpus_usable(void);

/*
 * Whole CPUs that cpu.max grants a cgroup (version 2; as /proc/self/cgroup names it, "/a/b") and
 * all those above it, in the hierarchy mounted at `root`: at least 1, or CPUS_NO_QUOTA.
 */
uint32_t cpus_quota(const char *root, const char *cgroup);
