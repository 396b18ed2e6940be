/*
 * Spawner: request and reply over one SOCK_SEQPACKET pair, one at a time.
 *
 * The process knows two states: waiting for a request, and starting a worker.  End of file ends it.
 */
#include "daemon/spawner.h"

#include "daemon/child.h"
#include "proto/channel.h"
#include "proto/util.h"
#include "proto/worker_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct spawner {
    int fd;
    pid_t pid;
};

struct spawn_request {
    char backend[MANIFEST_NAME_SIZE];
    char device[WORKER_DEVICE_SIZE];
};

struct spawn_reply {
    pid_t pid; /* or -errno or 0, with the failure */
    struct failure failure;
};

/*
 * Where worker programs lie: beside the daemon's file, where it was built, where a moved tree was
 * installed (relative to the daemon's folder), and where this one was to be (absolute).
 */
static const char *const worker_folders[] = {"", "../cuda/", "../libexec/gpupipe/",
                                             GPUPIPE_WORKER_FOLDER "/"};

/* What the spawner process works with; set once before its loop. */
struct nest {
    char folder[PATH_MAX]; /* of the daemon's file, with a slash behind */
    char **environment;
};

static int find_program(const struct nest *nest, const char *backend, char *ret_path, size_t size)
{
    for (unsigned i = 0; i < ARRAY_SIZE(worker_folders); i++) {
        const char *folder = worker_folders[i];
        int length = snprintf(ret_path, size, "%s%sgpupipe-worker-%s",
                              folder[0] == '/' ? "" : nest->folder, folder, backend);

        if (length > 0 && (size_t)length < size && access(ret_path, X_OK) == 0) {
            return 0;
        }
    }
    return -ENOENT;
}

/* In the worker, between clone and exec: only async-signal-safe calls. */
_Noreturn static void become_worker(char **argv, char **environment, int control_fd)
{
    struct control_message message = {.type = CONTROL_FATAL, .abi = WORKER_ABI};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (control_fd == WORKER_CONTROL_FD) {
        fcntl(control_fd, F_SETFD, 0);
    } else {
        dup2(control_fd, WORKER_CONTROL_FD);
    }
    syscall(SYS_close_range, WORKER_CONTROL_FD + 1, ~0u, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execve(argv[0], argv, environment);
    fail(&message.fatal, STATUS_NO_DEVICE, NULL, "cannot start the worker program: %s",
         strerror(errno));
    channel_send_packet(WORKER_CONTROL_FD, &message, sizeof(message), NULL, 0);
    _exit(127);
}

/*
 * Returns the worker's pid or -errno.  clone, not clone3: a seccomp filter cannot look into
 * clone3's arguments, so one that refuses namespaces, as systemd's RestrictNamespaces= does,
 * answers every clone3 with ENOSYS.
 */
static pid_t start_worker(char **argv, char **environment, int control_fd)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0);

    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        become_worker(argv, environment, control_fd);
    }
    return pid;
}

static void answer_request(const struct nest *nest, int fd, struct spawn_request *request,
                           int control_fd)
{
    char path[PATH_MAX];
    char *argv[] = {path, NULL, NULL, NULL};
    struct spawn_reply reply = {0};

    request->backend[sizeof(request->backend) - 1] = '\0';
    request->device[sizeof(request->device) - 1] = '\0';
    if (request->device[0] != '\0') {
        argv[1] = (char *)"--device";
        argv[2] = request->device;
    }
    if (find_program(nest, request->backend, path, sizeof(path)) < 0) {
        fail(&reply.failure, STATUS_NO_DEVICE, "backend",
             "the worker program gpupipe-worker-%s is not installed beside gpupiped",
             request->backend);
    } else {
        reply.pid = start_worker(argv, nest->environment, control_fd);
        if (reply.pid < 0) {
            fail(&reply.failure, STATUS_INTERNAL, NULL, "cannot start a worker process: %s",
                 strerror(-reply.pid));
        }
    }
    /*
     * Without the pidfd: the kernel may refuse to send a descriptor, and the front end waits for
     * this.  As the worker's parent it can open one itself, and no other process is meant by it.
     */
    channel_send_packet(fd, &reply, sizeof(reply), NULL, 0);
}

_Noreturn static void spawner_loop(const struct nest *nest, int fd)
{
    for (;;) {
        struct spawn_request request;
        _cleanup_(close_fd) int control_fd = -1;
        uint32_t n_fds = 1;
        ssize_t size = channel_receive_packet(fd, &request, sizeof(request), &control_fd, &n_fds);

        if (size == -EINTR) {
            continue;
        }
        if (size != sizeof(request) || n_fds != 1) {
            _exit(size == 0 ? 0 : 1);
        }
        answer_request(nest, fd, &request, control_fd);
    }
}

static char **build_environment(const char *const *environment, uint32_t n_environment)
{
    char **built = calloc(n_environment + 2, sizeof(char *));

    if (built == NULL) {
        return NULL;
    }
    built[0] = (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for (uint32_t i = 0; i < n_environment; i++) {
        built[1 + i] = (char *)environment[i];
    }
    return built;
}

_Noreturn static void spawner_main(const char *const *environment, uint32_t n_environment, int fd)
{
    struct nest nest = {.environment = build_environment(environment, n_environment)};
    ssize_t length = readlink("/proc/self/exe", nest.folder, sizeof(nest.folder) - 1);
    char *slash = length > 0 ? strrchr(nest.folder, '/') : NULL;

    if (nest.environment == NULL || slash == NULL) {
        _exit(1);
    }
    slash[1] = '\0';
    setsid();
    prctl(PR_SET_NAME, "gpupipe-spawner");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    spawner_loop(&nest, fd);
}

int spawner_create(const char *const *environment, uint32_t n_environment,
                   struct spawner **ret_spawner, struct failure *ret_failure)
{
    int fds[2];
    struct spawner *spawner = calloc(1, sizeof(*spawner));
    int r = spawner == NULL ? -ENOMEM : channel_pair(false, fds);

    if (r < 0) {
        free(spawner);
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot make the spawner's socket: %s",
                    strerror(-r));
    }
    spawner->fd = fds[0];
    spawner->pid = fork();
    if (spawner->pid == 0) {
        close(fds[0]);
        spawner_main(environment, n_environment, fds[1]);
    }
    close(fds[1]);
    if (spawner->pid < 0) {
        r = fail(ret_failure, STATUS_INTERNAL, NULL, "cannot fork the spawner: %s",
                 strerror(errno));
        close(fds[0]);
        free(spawner);
        return r;
    }
    *ret_spawner = spawner;
    return 0;
}

void spawner_destroy(struct spawner *spawner)
{
    if (spawner == NULL) {
        return;
    }
    close(spawner->fd);
    while (waitpid(spawner->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    free(spawner);
}

bool spawner_is_gone(const struct spawner *spawner)
{
    struct pollfd socket = {.fd = spawner->fd, .events = 0};

    return poll(&socket, 1, 0) > 0; /* POLLHUP */
}

int spawner_start(struct spawner *spawner, const char *backend, const char *device, int control_fd,
                  pid_t *ret_pid, struct failure *ret_failure)
{
    struct spawn_request request = {0};
    struct spawn_reply reply;
    uint32_t n_fds = 0;

    snprintf(request.backend, sizeof(request.backend), "%s", backend);
    snprintf(request.device, sizeof(request.device), "%s", device);
    int r = channel_send_packet(spawner->fd, &request, sizeof(request), &control_fd, 1);
    if (r == -EAGAIN) {
        return fail(ret_failure, STATUS_BUSY, NULL,
                    "this user has too many descriptors on their way to programs that do not "
                    "receive them; try again later");
    }
    if (r < 0 ||
        channel_receive_packet(spawner->fd, &reply, sizeof(reply), NULL, &n_fds) != sizeof(reply)) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "the spawner process is gone");
    }
    if (reply.pid <= 0) {
        *ret_failure = reply.failure;
        return -(int)reply.failure.status;
    }
    int pid_fd = child_open(reply.pid);
    if (pid_fd < 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot watch a worker process: %s",
                    strerror(-pid_fd));
    }
    *ret_pid = reply.pid;
    return pid_fd;
}
