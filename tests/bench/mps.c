/*
 * Mps: the daemon finds its folder, and clients find the daemon, through the environment.
 */
#include "tests/bench/mps.h"

#include "proto/util.h"
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROGRAM     "nvidia-cuda-mps-control"
#define CONNECTIONS "16" /* of each client: of four with 32 the last has no memory left */
#define PATIENCE_NS UINT64_C(10000000000)
#define LOOK_US     20000
/* With a time limit of its own: this would wait for ever for a daemon that is stuck. */
#define QUIT "echo quit -t 2 | timeout 10 " PROGRAM " >/dev/null 2>&1"

void mps_enter(const struct mps *mps)
{
    setenv("CUDA_MPS_PIPE_DIRECTORY", mps->folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", mps->folder, 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS, 1);
}

void mps_leave(void)
{
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

/* Where we are killed it is asked to end, so that it ends its server. */
static _Noreturn void become(void)
{
    int fd = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(fd, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execlp(PROGRAM, PROGRAM, "-f", NULL);
    _exit(127);
}

static bool is_up(const struct mps *mps)
{
    char path[sizeof(mps->folder) + 16];

    snprintf(path, sizeof(path), "%s/control", mps->folder);
    return access(path, F_OK) == 0;
}

static bool is_gone(struct mps *mps)
{
    if (mps->pid != 0 && waitpid(mps->pid, NULL, WNOHANG) == mps->pid) {
        mps->pid = 0;
    }
    return mps->pid == 0;
}

bool mps_start(struct mps *mps)
{
    uint64_t end_ns = now_ns() + PATIENCE_NS;

    snprintf(mps->folder, sizeof(mps->folder), "/tmp/gpupipe-mps-XXXXXX");
    if (mkdtemp(mps->folder) == NULL) {
        bench_fail("%s: %s", mps->folder, strerror(errno));
    }
    mps_enter(mps);
    mps->pid = bench_fork();
    if (mps->pid == 0) {
        become();
    }
    mps_leave();
    while (!is_up(mps) && !is_gone(mps) && now_ns() < end_ns) {
        usleep(LOOK_US);
    }
    return is_up(mps) && !is_gone(mps);
}

void mps_stop(struct mps *mps)
{
    uint64_t end_ns = now_ns() + PATIENCE_NS;
    char command[sizeof(mps->folder) + 16];

    if (mps->folder[0] == '\0') {
        return;
    }
    if (!is_gone(mps)) {
        mps_enter(mps);
        if (system(QUIT) != 0) {
            end_ns = 0;
        }
        mps_leave();
        while (!is_gone(mps) && now_ns() < end_ns) {
            usleep(LOOK_US);
        }
    }
    if (!is_gone(mps)) {
        bench_end(mps->pid);
    }
    snprintf(command, sizeof(command), "rm -rf '%s'", mps->folder);
    if (system(command) != 0) {
        fprintf(stderr, "%s could not be removed\n", mps->folder);
    }
}
