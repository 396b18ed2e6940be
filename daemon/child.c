/*
 * Child: signals and waits by pidfd.  libuv makes a pidfd that it watches non-blocking, and with it
 * waitid().
 */
#include "daemon/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILL_PATIENCE_MS 10000 /* a GPU's driver takes a process with an endless kernel apart */
#define REAP_PATIENCE_MS 1000
#define REAP_PAUSE_MS    5

int child_open(pid_t pid)
{
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int error = errno;

    if (pid_fd < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return -error;
    }
    return pid_fd;
}

void child_kill(int pid_fd)
{
    syscall(SYS_pidfd_send_signal, pid_fd, SIGKILL, NULL, 0);
}

bool child_has_ended(int pid_fd, char *ret_words, size_t size)
{
    siginfo_t end = {0};

    if (waitid(P_PIDFD, (id_t)pid_fd, &end, WEXITED | WNOHANG) < 0 || end.si_pid == 0) {
        return false;
    }
    snprintf(ret_words, size, "it ended with %s %d",
             end.si_code == CLD_EXITED ? "exit code" : "signal", end.si_status);
    return true;
}

bool child_await_exit(int pid_fd, int patience_ms)
{
    return poll(&(struct pollfd){.fd = pid_fd, .events = POLLIN}, 1, patience_ms) > 0;
}

void child_reap(int pid_fd)
{
    const struct timespec pause = {.tv_nsec = REAP_PAUSE_MS * 1000000};

    child_await_exit(pid_fd, KILL_PATIENCE_MS);
    for (unsigned waited_ms = 0; waited_ms < REAP_PATIENCE_MS; waited_ms += REAP_PAUSE_MS) {
        if (waitid(P_PIDFD, (id_t)pid_fd, &(siginfo_t){0}, WEXITED) == 0 || errno != EAGAIN) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}
