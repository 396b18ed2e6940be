/*
 * SIGINT and SIGTERM.
 *
 * Threads: one.
 */
#include "client/cli/interrupt.h"

#include "client/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static volatile sig_atomic_t is_held;
static volatile sig_atomic_t has_come;
static int event_fd = -1;

static void on_signal(int signal_number)
{
    const uint64_t one = 1;
    int saved_errno = errno;

    (void)signal_number;
    if (!is_held) {
        _exit(CLI_INTERRUPTED);
    }
    has_come = 1;
    /* If it is full, poll() is awake already. */
    (void)!write(event_fd, &one, sizeof(one));
    errno = saved_errno;
}

void interrupt_install(void)
{
    /* No SA_RESTART: a write to a pipe that nobody reads must end. */
    const struct sigaction action = {.sa_handler = on_signal};

    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Also where it was ignored, as shells do for `... &`: nobody sends it there by accident. */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void interrupt_hold(void)
{
    is_held = 1;
}

bool interrupt_came(void)
{
    return has_come;
}

int interrupt_fd(void)
{
    return event_fd;
}
