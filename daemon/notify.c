/*
 * Notify: libsystemd's sd_notify() in five sentences.
 */
#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

void notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_status(const char *status)
{
    sd_notifyf(0, "STATUS=%s", status);
}

void notify_stopping(const char *status)
{
    sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
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
