/*
 * Notify: what the service manager is told (sd_notify), nothing where there is none.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include <stdint.h>

void notify_ready(const char *status);
void notify_status(const char *status);
void notify_stopping(const char *status);
void notify_watchdog(void);

/* How often the watchdog is to be fed, ms (half of what the manager allows); 0 = not at all. */
uint64_t notify_watchdog_ms(void);
