/*
 * CPU guard: the jump out of a signal handler, on the thread that has met the fault.
 */
#include "cuda/cpu_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *way_out; /* NULL: not guarded */

static void on_bus_error(int signal_number)
{
    if (way_out != NULL) {
        siglongjmp(*way_out, 1);
    }
    /* A fault comes again as soon as we return; what somebody has sent does not. */
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void cpu_guard_start(void)
{
    const struct sigaction action = {.sa_handler = on_bus_error};

    sigaction(SIGBUS, &action, NULL);
}

/* After the jump it is blocked; to save the mask before would be a system call for each run. */
static void unblock(void)
{
    sigset_t bus_error;

    sigemptyset(&bus_error);
    sigaddset(&bus_error, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus_error, NULL);
}

bool cpu_guard_run(void (*run)(const void *arg), const void *arg)
{
    sigjmp_buf here;

    if (sigsetjmp(here, 0) != 0) {
        way_out = NULL;
        unblock();
        return false;
    }
    way_out = &here;
    run(arg);
    way_out = NULL;
    return true;
}
