/*
 * Notify: libsystemd's sd_notify().
 */
#include "daemon/notify.h"

#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* One line of status behind `state`: a line end in it would begin another field. */
static void notify(const char *state, const char *status)
{
    char line[512];

    snprintf(line, sizeof(line), "%s", status);
    for (char *end = line; (end = strchr(end, '\n')) != NULL;) {
        *end = ' ';
    }
    sd_notifyf(0, "%sSTATUS=%s", state, line);
}

void notify_ready(const char *status)
{
    notify("READY=1\n", status);
}

void notify_status(const char *status)
{
    notify("", status);
}

void notify_stopping(const char *status)
{
    notify("STOPPING=1\n", status);
}

void notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_ms(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 ? (usec / 2 + 999) / 1000 : 0;
}
