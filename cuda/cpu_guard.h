/*
 * CPU guard: runs what reads and writes clients' memory, and outlives memory that is no more.
 *
 * A ring may lie in huge pages.  Its client can punch a hole into it; if others have taken all
 * pages of that pool when the hole is written to, the kernel has none to put there, and sends
 * SIGBUS.  That is the client's loss, not the worker's.
 *
 * Threads: any number of guarded ones; cpu_guard_start() before all of them.
 */
#pragma once

#include <stdbool.h>

/* Take SIGBUS over.  One that no guarded code has met ends the process, as before. */
void cpu_guard_start(void);

/* False: it met memory that is no more, and is half done.  It may hold no lock. */
bool cpu_guard_run(void (*run)(const void *arg), const void *arg);
