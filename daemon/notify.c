/*
 * Notify: the datagrams of sd_notify(3).
 *
 * READY goes through sd_notify(), which waits for a manager that is slow to read: without it the
 * manager gives up on us, and nobody is served yet.  Everything later is sent only if it can be
 * sent at once: the loop waits for nobody.
 */
#include "daemon/notify.h"

#include "proto/util.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define TEXT_SIZE 1024

/* One line of status behind `state`: a line end in it would begin another field. */
static void write_text(char ret_text[TEXT_SIZE], const char *state, const char *status)
{
    int length = snprintf(ret_text, TEXT_SIZE, "%sSTATUS=", state);

    snprintf(ret_text + length, TEXT_SIZE - (size_t)length, "%s", status);
    for (char *end = ret_text + length; (end = strchr(end, '\n')) != NULL;) {
        *end = ' ';
    }
}

static void send_now(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path != NULL ? strlen(path) : 0;
    _cleanup_(close_fd) int fd = -1;

    if (length < 2 || length > sizeof(address.sun_path)) {
        return;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') {
        address.sun_path[0] = '\0'; /* an abstract one */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

static void notify(const char *state, const char *status)
{
    char text[TEXT_SIZE];

    write_text(text, state, status);
    send_now(text);
}

void notify_ready(const char *status)
{
    char text[TEXT_SIZE];

    write_text(text, "READY=1\n", status);
    sd_notify(0, text);
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
    send_now("WATCHDOG=1");
}

uint64_t notify_watchdog_ms(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 ? (usec / 2 + 999) / 1000 : 0;
}
