/*
 * Harness: a daemon of our own.
 *
 * States: created (a folder), running (pid != 0), stopped.  The daemon and every shell command die
 * with this process (PDEATHSIG), so that a test that is killed leaves nothing running.
 */
#include "tests/harness.h"

#include "tests/check.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { N_SHELLS = 8 };

unsigned harness_patience_ms = 20000;

struct harness {
    char folder[64];
    char socket_path[128];
    pid_t pid;
    pid_t shells[N_SHELLS]; /* not waited for yet; 0 = free */
    int notify_fd;
    unsigned n_fds; /* at READY */
    char notified[65536];
    size_t notified_size;
    char log[65536];
};

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)stat;
    (void)kind;
    (void)where;
    return remove(path);
}

static void print_log(struct harness *harness)
{
    char *line, *rest = NULL;

    harness_log(harness);
    for (line = strtok_r(harness->log, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        printf("# | %s\n", line);
    }
}

/* Undone last: whatever happened, nothing stays. */
static void finish_at_end(void *arg)
{
    struct harness *harness = arg;

    if (harness->pid != 0) {
        kill(harness->pid, SIGKILL);
        waitpid(harness->pid, NULL, 0);
    }
    for (unsigned i = 0; i < N_SHELLS; i++) {
        if (harness->shells[i] != 0) {
            kill(-harness->shells[i], SIGKILL);
            waitpid(harness->shells[i], NULL, 0);
        }
    }
    if (check_end == CHECK_END_FAILED) {
        print_log(harness);
    }
    if (harness->notify_fd >= 0) {
        close(harness->notify_fd);
    }
    nftw(harness->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(harness);
    alarm(0);
}

/* The worker's exit code is nobody's business, so a sanitizer's finding there shows in the log. */
static void check_no_findings(const struct harness *harness)
{
    FILE *log = fopen(harness_path(harness, "log"), "re");
    char line[1024] = "";
    bool has_finding = false;

    while (log != NULL && !has_finding && fgets(line, sizeof(line), log) != NULL) {
        has_finding = strstr(line, "Sanitizer") != NULL || strstr(line, "runtime error") != NULL;
    }
    if (log != NULL) {
        fclose(log);
    }
    if (has_finding) {
        CHECK_FAIL("the log has a sanitizer's finding: %s", line);
    }
}

/* The test's connections have been closed by now: they were made later. */
static void stop_at_end(void *arg)
{
    struct harness *harness = arg;

    if (harness->pid != 0 && check_end == CHECK_END_PASSED) {
        harness_check_fds(harness);
    }
    harness_stop(harness);
    check_no_findings(harness);
}

static void on_deadline(int signal)
{
    (void)signal;
    CHECK_FAIL("the test took too long");
}

void harness_deadline(unsigned seconds)
{
    struct sigaction action = {.sa_handler = on_deadline, .sa_flags = SA_NODEFER};

    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

/* Our end of NOTIFY_SOCKET, in the folder. */
static int listen_for_notify(const struct harness *harness)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", harness->folder);
    CHECK_EQ(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

struct harness *harness_create(void)
{
    struct harness *harness = calloc(1, sizeof(*harness));
    const char *base = getenv("TMPDIR");

    harness->notify_fd = -1;
    snprintf(harness->folder, sizeof(harness->folder), "%s/gpupipe-test-XXXXXX",
             base != NULL && strlen(base) < 32 ? base : "/tmp");
    CHECK(mkdtemp(harness->folder) != NULL);
    check_at_end(finish_at_end, harness);
    harness_deadline(HARNESS_DEADLINE_S);
    snprintf(harness->socket_path, sizeof(harness->socket_path), "%s/rpc.sock", harness->folder);
    harness->notify_fd = listen_for_notify(harness);
    return harness;
}

/* ---- processes ----------------------------------------------------------------------------- */

static const char *program(const char *variable)
{
    const char *path = getenv(variable);

    if (path == NULL) {
        CHECK_FAIL("%s is not set: run this test through meson test", variable);
    }
    return path;
}

/* In a child: die with the test, and write into this file of the folder. */
static void enter_child(const struct harness *harness, const char *out, const char *err)
{
    int fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    fd = open(harness_path(harness, out), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, STDOUT_FILENO);
    fd = open(harness_path(harness, err), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(fd, STDIN_FILENO);
}

static bool is_on_gpu(void)
{
    return strcmp(harness_backend(), "cuda") == 0;
}

const char *harness_backend(void)
{
    const char *backend = getenv("GPUPIPE_BACKEND");

    return backend != NULL ? backend : "cpu";
}

const char *harness_devices(void)
{
    return is_on_gpu() ? "0" : "cpu0";
}

const char *harness_kind(void)
{
    return is_on_gpu() ? "gpu" : "cpu";
}

const char *harness_other_kind(void)
{
    return is_on_gpu() ? "cpu" : "gpu";
}

static pid_t start_daemon(const struct harness *harness, const char *path,
                          const char *const *options)
{
    const char *argv[64] = {path, "--socket", harness->socket_path};
    const char *library_path = getenv("LD_LIBRARY_PATH");
    char worker_env[1024];
    unsigned n = 3;
    pid_t pid;

    if (is_on_gpu() && library_path != NULL) {
        /* A container may have its driver there and nowhere else. */
        snprintf(worker_env, sizeof(worker_env), "LD_LIBRARY_PATH=%s", library_path);
        argv[n++] = "--worker-env";
        argv[n++] = worker_env;
    }

    for (; *options != NULL; options++) {
        CHECK_LT(n, 63);
        argv[n++] = *options;
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        enter_child(harness, "log", "log");
        setenv("NOTIFY_SOCKET", harness_path(harness, "notify"), 1);
        execv(path, (char *const *)argv);
        dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
        _exit(127);
    }
    CHECK_GT(pid, 0);
    return pid;
}

void harness_launch(struct harness *harness, const char *const *options)
{
    unsigned n_ready = harness_n_notified(harness, "READY=1");

    harness->pid = start_daemon(harness, program("GPUPIPED"), options);
    while (harness_n_notified(harness, "READY=1") == n_ready) {
        int status;

        if (waitpid(harness->pid, &status, WNOHANG) == harness->pid) {
            harness->pid = 0;
            CHECK_FAIL("the daemon ended before it was ready, wait status %#x", (unsigned)status);
        }
        poll(&(struct pollfd){.fd = harness->notify_fd, .events = POLLIN}, 1, 50);
    }
    harness_settle(harness);
    check_at_end(stop_at_end, harness);
}

static int decode_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int harness_wait_exit(struct harness *harness)
{
    int status = 0;

    HARNESS_WAIT(waitpid(harness->pid, &status, WNOHANG) == harness->pid);
    harness->pid = 0;
    return decode_status(status);
}

void harness_signal(struct harness *harness, int signal)
{
    CHECK_GT(harness->pid, 0);
    CHECK_EQ(kill(harness->pid, signal), 0);
}

static void unset_at_end(void *arg)
{
    unsetenv(arg);
}

void harness_setenv(const char *name, const char *value)
{
    setenv(name, value, 1);
    check_at_end(unset_at_end, (void *)name);
}

static void restore_program(void *program)
{
    setenv("GPUPIPED", program, 1);
    free(program);
}

/* A daemon of our own, with the libraries of a bundle's, and workers beside it. */
static void move_daemon(struct harness *harness)
{
    struct harness_output output;

    harness_shell(harness, &output,
                  "mkdir bin && ln -s \"${GPUPIPED%%/*}/../lib\" lib && "
                  "cp \"$GPUPIPED\" bin/gpupiped");
    CHECK_EQ(output.code, 0);
    check_at_end(restore_program, strdup(program("GPUPIPED")));
    setenv("GPUPIPED", harness_path(harness, "bin/gpupiped"), 1);
}

void harness_place_worker(struct harness *harness, const char *backend, const char *program)
{
    struct harness_output output;

    if (access(harness_path(harness, "bin"), F_OK) < 0) {
        move_daemon(harness);
    }
    harness_shell(harness, &output, "cp '%s' bin/gpupipe-worker-%s", program, backend);
    CHECK_EQ(output.code, 0);
}

/* ---- what the daemon is doing -------------------------------------------------------------- */

const char *harness_socket(const struct harness *harness)
{
    return harness->socket_path;
}

const char *harness_folder(const struct harness *harness)
{
    return harness->folder;
}

pid_t harness_pid(const struct harness *harness)
{
    return harness->pid;
}

const char *harness_proc(pid_t pid, const char *file)
{
    static char text[65536];
    char path[64];
    size_t size = 0;
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    while ((got = read(fd, text + size, sizeof(text) - 1 - size)) > 0) {
        size += (size_t)got;
    }
    close(fd);
    for (size_t i = 0; i < size; i++) {
        text[i] = text[i] == '\0' ? '\n' : text[i];
    }
    text[size] = '\0';
    return text;
}

/* The children of a process; the kernel lists them per thread, and the daemon's is the first. */
static unsigned list_children(pid_t pid, pid_t *ret_pids, unsigned max)
{
    char file[64], *at, *after;
    const char *text;
    unsigned n = 0;

    snprintf(file, sizeof(file), "task/%d/children", (int)pid);
    text = harness_proc(pid, file);
    for (at = (char *)text; at != NULL && n < max; at = after) {
        ret_pids[n] = (pid_t)strtol(at, &after, 10);
        if (after == at) {
            break;
        }
        n++;
    }
    return n;
}

/* A process that nobody has waited for yet (a container may have no init that does) is gone too. */
static bool is_running(pid_t pid)
{
    const char *stat = harness_proc(pid, "stat");

    return stat != NULL && strstr(stat, ") Z ") == NULL;
}

void harness_stop(struct harness *harness)
{
    pid_t children[64];
    unsigned n_children;

    if (harness->pid == 0) {
        return;
    }
    n_children = list_children(harness->pid, children, 64);
    harness_signal(harness, SIGTERM);
    CHECK_EQ(harness_wait_exit(harness), 0);
    CHECK_EQ(access(harness->socket_path, F_OK), -1);
    for (unsigned i = 0; i < n_children; i++) {
        HARNESS_WAIT(!is_running(children[i]));
    }
}

unsigned harness_n_children(const struct harness *harness)
{
    pid_t pids[64];

    return list_children(harness->pid, pids, 64);
}

static bool is_worker(pid_t pid)
{
    const char *name = harness_proc(pid, "cmdline");

    return name != NULL && strstr(name, "gpupipe-worker-") != NULL;
}

pid_t harness_worker(const struct harness *harness)
{
    pid_t pids[64];
    unsigned n = list_children(harness->pid, pids, 64);

    for (unsigned i = 0; i < n; i++) {
        if (is_worker(pids[i])) {
            return pids[i];
        }
    }
    return 0;
}

pid_t harness_await_worker(struct harness *harness, pid_t other_than)
{
    pid_t pid = 0;

    HARNESS_WAIT((pid = harness_worker(harness)) != 0 && pid != other_than);
    return pid;
}

/* All of its threads: the first may have stopped before the others. */
static bool is_stopped(pid_t pid)
{
    char path[300];
    struct dirent *entry;
    bool is_all = true;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *stat;

        snprintf(path, sizeof(path), "task/%s/stat", entry->d_name);
        stat = entry->d_name[0] == '.' ? NULL : harness_proc(pid, path);
        is_all &= stat == NULL || strstr(stat, ") T ") != NULL;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return is_all;
}

void harness_pause(pid_t pid)
{
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    HARNESS_WAIT(is_stopped(pid));
}

unsigned harness_n_fds(const struct harness *harness)
{
    char path[300], target[64];
    struct dirent *entry;
    unsigned n = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)harness->pid);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        ssize_t size;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)harness->pid, entry->d_name);
        size = readlink(path, target, sizeof(target));
        n += size > 0 && (size < 7 || memcmp(target, "/memfd:", 7) != 0);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

void harness_settle(struct harness *harness)
{
    harness->n_fds = harness_n_fds(harness);
}

void harness_check_fds(struct harness *harness)
{
    HARNESS_WAIT(harness_n_fds(harness) <= harness->n_fds);
}

unsigned long harness_rss_kib(const struct harness *harness)
{
    const char *text = harness_proc(harness->pid, "smaps_rollup");
    const char *line = text == NULL ? NULL : strstr(text, "\nRss:");

    CHECK(line != NULL);
    return strtoul(line + 5, NULL, 10);
}

const char *harness_log(struct harness *harness)
{
    int fd = open(harness_path(harness, "log"), O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;

    if (fd >= 0) {
        got = read(fd, harness->log, sizeof(harness->log) - 1);
        close(fd);
    }
    harness->log[got > 0 ? got : 0] = '\0';
    return harness->log;
}

const char *harness_notified(struct harness *harness)
{
    ssize_t got;

    do {
        size_t room = sizeof(harness->notified) - harness->notified_size - 2;

        got = recv(harness->notify_fd, harness->notified + harness->notified_size, room, 0);
        if (got > 0) {
            harness->notified_size += (size_t)got;
            harness->notified[harness->notified_size++] = '\n';
        }
    } while (got > 0);
    return harness->notified;
}

unsigned harness_n_notified(struct harness *harness, const char *line)
{
    unsigned n = 0;

    for (const char *at = harness_notified(harness); (at = strstr(at, line)) != NULL; at++) {
        n++;
    }
    return n;
}

/* ---- shell commands and files -------------------------------------------------------------- */

const char *harness_path(const struct harness *harness, const char *name)
{
    static char paths[8][256];
    static unsigned n;
    char *path = paths[n++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", harness->folder, name);
    return path;
}

/* Where this shell's pid is kept; 0 finds a free place. */
static pid_t *find_shell(struct harness *harness, pid_t pid)
{
    for (unsigned i = 0; i < N_SHELLS; i++) {
        if (harness->shells[i] == pid) {
            return &harness->shells[i];
        }
    }
    CHECK_FAIL("no such shell, or too many: %d", (int)pid);
}

static pid_t begin_shell(struct harness *harness, const char *format, va_list args)
{
    pid_t pid, *kept = find_shell(harness, 0);
    char command[4096];

    vsnprintf(command, sizeof(command), format, args);
    unlink(harness_path(harness, "stdout"));
    unlink(harness_path(harness, "stderr"));
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        enter_child(harness, "stdout", "stderr");
        setpgid(0, 0);
        setenv("GPUPIPE_SOCKET", harness->socket_path, 1);
        if (chdir(harness->folder) == 0) {
            execl("/bin/sh", "sh", "-c", command, NULL);
        }
        _exit(127);
    }
    CHECK_GT(pid, 0);
    setpgid(pid, pid); /* whoever comes first, so that a kill finds the group */
    *kept = pid;
    return pid;
}

static void read_text(struct harness *harness, const char *name, char *ret_text, size_t size)
{
    int fd = open(harness_path(harness, name), O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;

    if (fd >= 0) {
        got = read(fd, ret_text, size - 1);
        close(fd);
    }
    ret_text[got > 0 ? got : 0] = '\0';
}

void harness_shell_end(struct harness *harness, pid_t pid, struct harness_output *ret_output)
{
    int status = 0;

    HARNESS_WAIT(waitpid(pid, &status, WNOHANG) == pid);
    *find_shell(harness, pid) = 0;
    ret_output->code = decode_status(status);
    read_text(harness, "stdout", ret_output->out, sizeof(ret_output->out));
    read_text(harness, "stderr", ret_output->err, sizeof(ret_output->err));
}

pid_t harness_shell_begin(struct harness *harness, const char *format, ...)
{
    va_list args;
    pid_t pid;

    va_start(args, format);
    pid = begin_shell(harness, format, args);
    va_end(args);
    return pid;
}

void harness_shell(struct harness *harness, struct harness_output *ret_output, const char *format,
                   ...)
{
    va_list args;
    pid_t pid;

    va_start(args, format);
    pid = begin_shell(harness, format, args);
    va_end(args);
    harness_shell_end(harness, pid, ret_output);
}

void harness_write(const struct harness *harness, const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(harness_path(harness, name), "we");

    CHECK(file != NULL);
    CHECK_EQ(fwrite(bytes, 1, size, file), size);
    CHECK_EQ(fclose(file), 0);
}

void *harness_read(const struct harness *harness, const char *name, size_t *ret_size)
{
    FILE *file = fopen(harness_path(harness, name), "re");
    struct stat stat;
    char *bytes;

    if (file == NULL) {
        CHECK_FAIL("%s: %s", name, strerror(errno));
    }
    CHECK_EQ(fstat(fileno(file), &stat), 0);
    *ret_size = (size_t)stat.st_size;
    bytes = malloc(*ret_size + 1);
    check_at_end(free, bytes);
    CHECK_EQ(fread(bytes, 1, *ret_size, file), *ret_size);
    bytes[*ret_size] = '\0';
    fclose(file);
    return bytes;
}
