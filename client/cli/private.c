/*
 * A private daemon and the command that uses it.
 *
 * Both are children, and this process only waits: for READY on a notify socket of its own (or the
 * daemon's end), then for the command's end.  Signals come through a descriptor, so nothing is ever
 * done within a handler, and none is lost between two waits.
 *
 * The daemon has a session of its own: Ctrl-C at the terminal is for the command, which may still
 * want its answers.
 *
 * Threads: one.
 */
#include "client/cli/private.h"

#include "client/cli/cli.h"
#include "proto/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define POOL_LEAST (64u << 20) /* the daemon takes no less */

/* SIGTERM gives a daemon LIMIT_DRAIN to end; then it is stuck. */
#define STOP_MS (LIMIT_DRAIN + 5000)

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

struct private
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char notify[sizeof(((struct sockaddr_un *)0)->sun_path)];
    sigset_t old_mask;
    int signal_fd;
    int notify_fd;
    pid_t daemon; /* 0: none */
    pid_t command;
};

/* ---- the folder ---------------------------------------------------------------------------- */

static bool make_folder_in(const char *parent, struct private *private)
{
    /* The socket's name must fit, too. */
    const int size = (int)(sizeof(private->folder) - sizeof("/rpc.sock.lock"));

    if (parent == NULL || parent[0] != '/' ||
        snprintf(private->folder, (size_t)size, "%s/gpupipe-XXXXXX", parent) >= size ||
        mkdtemp(private->folder) == NULL) {
        private->folder[0] = '\0';
        return false;
    }
    return true;
}

static int make_folder(struct private *private)
{
    if (!make_folder_in(getenv("XDG_RUNTIME_DIR"), private) &&
        !make_folder_in(getenv("TMPDIR"), private) && !make_folder_in("/tmp", private)) {
        cli_error("cannot make a folder in /tmp: %s", strerror(errno));
        return CLI_FAILED;
    }
    snprintf(private->socket, sizeof(private->socket), "%.90s/rpc.sock", private->folder);
    snprintf(private->notify, sizeof(private->notify), "%.90s/notify", private->folder);
    return CLI_OK;
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    (void)rmdir(path);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int listen_for_notifications(struct private *private)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, private->notify, sizeof(address.sun_path));
    private->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (private->notify_fd < 0 ||
        bind(private->notify_fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        cli_error("cannot make a socket in %s: %s", private->folder, strerror(errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int take_signals(struct private *private)
{
    sigset_t mask;

    /* Ignored, as some parents leave it, it would take our children's ends. */
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
        sigaddset(&mask, forwarded[i]);
    }
    sigprocmask(SIG_BLOCK, &mask, &private->old_mask);
    private->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (private->signal_fd < 0) {
        cli_error("cannot wait for signals: %s", strerror(errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* ---- children ------------------------------------------------------------------------------ */

/* In a child: as if its parent had never waited, and not to outlive it. */
static void be_a_child(const struct private *private, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(CLI_INTERRUPTED); /* it has died before that */
    }
    sigprocmask(SIG_SETMASK, &private->old_mask, NULL);
}

/* The daemon's program: installed, or built, with this one; else PATH has it. */
static const char *find_program(char ret_path[PATH_MAX])
{
    static const char *const places[] = {"", "../sbin/", "../bin/", "../daemon/"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[MAX(length, 0)] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < ARRAY_SIZE(places); i++) {
        int size = snprintf(ret_path, PATH_MAX, "%.*s%sgpupiped", (int)(slash + 1 - self), self,
                            places[i]);

        if (size < PATH_MAX && access(ret_path, X_OK) == 0) {
            return ret_path;
        }
    }
    return "gpupiped";
}

_Noreturn static void become_daemon(const struct private *private,
                                    const struct private_options *options)
{
    const char *arguments[16] = {"gpupiped",       "--socket",    private->socket, "--backend",
                                 options->backend, "--log-level", "warning"};
    char path[PATH_MAX], pool[24];
    int n = 7, null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (options->devices != NULL) {
        arguments[n++] = "--devices";
        arguments[n++] = options->devices;
    }
    if (options->pool_size != 0) {
        snprintf(pool, sizeof(pool), "%" PRIu64, MAX(options->pool_size, (uint64_t)POOL_LEAST));
        arguments[n++] = "--pinned-pool";
        arguments[n++] = pool;
    }
    setsid();
    /* Results on standard output, and their end, are the command's. */
    dup2(null_fd, STDIN_FILENO);
    dup2(null_fd, STDOUT_FILENO);
    setenv("NOTIFY_SOCKET", private->notify, 1);
    execvp(find_program(path), (char **)arguments);
    cli_error("cannot start gpupiped: %s", strerror(errno));
    _exit(CLI_UNREACHABLE);
}

static int fork_child(pid_t *ret_pid)
{
    fflush(NULL);
    *ret_pid = fork();
    if (*ret_pid < 0) {
        cli_error("cannot start a process: %s", strerror(errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int start_daemon(struct private *private, const struct private_options *options)
{
    pid_t parent = getpid();
    int rc = fork_child(&private->daemon);

    if (rc == CLI_OK && private->daemon == 0) {
        be_a_child(private, parent);
        become_daemon(private, options);
    }
    return rc;
}

static int start_command(struct private *private, int (*command)(void *arg), void *arg)
{
    pid_t parent = getpid();
    int rc = fork_child(&private->command);

    if (rc == CLI_OK && private->command == 0) {
        be_a_child(private, parent);
        setenv("GPUPIPE_SOCKET", private->socket, 1);
        exit(command(arg));
    }
    return rc;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Has this child ended?  Then *pid is 0, and *ret_code its exit code. */
static bool has_ended(pid_t *pid, int *ret_code)
{
    int status;

    if (*pid <= 0 || waitpid(*pid, &status, WNOHANG) != *pid) {
        return false;
    }
    *pid = 0;
    *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

/* The next signal that is not about a child, to be sent on; 0: none. */
static int next_signal(const struct private *private)
{
    struct signalfd_siginfo info;

    while (read(private->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        /* The kernel's own come from the terminal, which sends them to all of us. */
        if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL) {
            return (int)info.ssi_signo;
        }
        if (info.ssi_signo != SIGCHLD && private->command == 0) {
            return (int)info.ssi_signo;
        }
    }
    return 0;
}

static bool is_ready(const struct private *private)
{
    char text[2048];
    ssize_t n;

    while ((n = recv(private->notify_fd, text, sizeof(text) - 1, 0)) > 0) {
        text[n] = '\0';
        if (strstr(text, "READY=1") != NULL) {
            return true;
        }
    }
    return false;
}

static int await_ready(struct private *private)
{
    int code;

    while (!is_ready(private)) {
        struct pollfd fds[] = {{.fd = private->notify_fd, .events = POLLIN},
                               {.fd = private->signal_fd, .events = POLLIN}};

        if (has_ended(&private->daemon, &code)) {
            /* It has told why. */
            cli_error("the private daemon did not start");
            return CLI_UNREACHABLE;
        }
        (void)poll(fds, ARRAY_SIZE(fds), -1);
        if (next_signal(private) != 0) {
            return CLI_INTERRUPTED;
        }
    }
    return CLI_OK;
}

static int await_command(struct private *private)
{
    int code, signal_number;

    while (!has_ended(&private->command, &code)) {
        struct pollfd fds[] = {{.fd = private->signal_fd, .events = POLLIN}};
        int daemon_code;

        (void)poll(fds, ARRAY_SIZE(fds), -1);
        while ((signal_number = next_signal(private)) != 0) {
            kill(private->command, signal_number);
        }
        if (has_ended(&private->daemon, &daemon_code)) {
            cli_error("the private daemon has ended by itself, with code %d", daemon_code);
        }
    }
    return code;
}

static void stop_daemon(struct private *private)
{
    uint64_t until_ns = now_ns() + STOP_MS * UINT64_C(1000000);
    struct pollfd fds[] = {{.fd = private->signal_fd, .events = POLLIN}};
    int code;

    if (private->daemon > 0) {
        kill(private->daemon, SIGTERM);
    }
    while (private->daemon > 0 && !has_ended(&private->daemon, &code)) {
        uint64_t now = now_ns();

        if (now >= until_ns) {
            kill(private->daemon, SIGKILL);
        }
        (void)poll(fds, ARRAY_SIZE(fds), now >= until_ns ? 10 : (int)((until_ns - now) / 1000000));
        (void)next_signal(private);
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

int private_run(const struct private_options *options, int (*command)(void *arg), void *arg)
{
    struct private private = {.signal_fd = -1, .notify_fd = -1};
    int rc = take_signals(&private);

    if (rc == CLI_OK) {
        rc = make_folder(&private);
    }
    if (rc == CLI_OK) {
        rc = listen_for_notifications(&private);
    }
    if (rc == CLI_OK) {
        rc = start_daemon(&private, options);
    }
    if (rc == CLI_OK) {
        rc = await_ready(&private);
    }
    if (rc == CLI_OK) {
        rc = start_command(&private, command, arg);
    }
    if (rc == CLI_OK) {
        rc = await_command(&private);
    }
    stop_daemon(&private);
    if (private.folder[0] != '\0') {
        remove_folder(private.folder);
    }
    close_fd(&private.notify_fd);
    close_fd(&private.signal_fd);
    return rc;
}
