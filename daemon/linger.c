/*
 * Linger: a timer that sends this thread a signal, again and again while such a call lasts.  The
 * signal need do nothing: that it is pending is what ends the wait in the kernel, and it stays so
 * until the call returns.  Others of our calls are restarted.
 */
#include "daemon/linger.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid /* glibc has no name for it yet */
#endif

/* Without a handler it would be ignored, not deadly. */
#define SIGNAL SIGURG

static _Thread_local bool is_on;
static _Thread_local timer_t timer;

static void on_signal(int number)
{
    (void)number;
}

int linger_start(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL};

    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    event.sigev_notify_thread_id = gettid();
    if (sigaction(SIGNAL, &action, NULL) < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) < 0) {
        return -errno;
    }
    is_on = true;
    return 0;
}

bool linger_is_on(void)
{
    return is_on;
}

void linger_stop(void)
{
    if (is_on) {
        is_on = false;
        timer_delete(timer);
    }
}

static void set(long ns)
{
    const struct itimerspec spec = {{.tv_nsec = ns}, {.tv_nsec = ns}};

    if (is_on) {
        timer_settime(timer, 0, &spec, NULL);
    }
}

void linger_begin(void)
{
    set(LINGER_NS);
}

void linger_end(void)
{
    set(0);
}
