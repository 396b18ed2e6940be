/*
 * Interrupt: SIGINT and SIGTERM.
 *
 * Until interrupt_hold() there is nothing to undo, and a signal ends the program at once with 130;
 * from then on it is noted, wakes poll() through a descriptor, and ends blocking system calls with
 * EINTR.
 *
 * Threads: one; the handler stores a flag and writes to the descriptor.
 */
#pragma once

#include <stdbool.h>

void interrupt_install(void);
void interrupt_hold(void);
bool interrupt_came(void);
int interrupt_fd(void); /* readable once a signal came; -1 before interrupt_install() */
