/*
 * Descriptors that cannot be sent: the kernel refuses to send any for a user who has more of them
 * under way, sent and not received, than the sender may have open.  The daemon serves on, loses
 * nothing, and gets its worker once they have arrived.  Needs root, to be that user's other
 * program.
 */
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/wire.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 61003 }; /* a uid that nobody has */
enum { MOST = 64 };    /* descriptors that a limited process may have */

static void write_program(struct harness *harness, const char *name, const char *format,
                          const char *argument)
{
    char text[512];

    snprintf(text, sizeof(text), format, argument);
    harness_write(harness, name, text, strlen(text));
    CHECK_EQ(chmod(harness_path(harness, name), 0755), 0);
}

/* What runs the daemon as USER, so that the kernel's limit is for it. */
static void place_launcher(struct harness *harness)
{
    struct harness_output output;

    write_program(harness, "bin/as-user",
                  "#!/bin/sh\n"
                  "exec setpriv --reuid 61003 --regid 61003 --clear-groups --pdeathsig KILL "
                  "%s/bin/gpupiped \"$@\"\n",
                  harness_folder(harness));
    CHECK_EQ(chown(harness_folder(harness), USER, USER), 0);
    CHECK_EQ(chmod(harness_path(harness, "notify"), 0777), 0);
    setenv("GPUPIPED", harness_path(harness, "bin/as-user"), 1);
    harness_shell(harness, &output, "exec \"$GPUPIPED\" --version");
    if (output.code != 0) {
        output.err[strcspn(output.err, "\n")] = '\0';
        CHECK_SKIP("another user cannot run it here: %.150s", output.err);
    }
}

static struct harness *start(void)
{
    const char *const options[] = {"--backend",     "cpu", "--devices", "cpu0",
                                   "--pinned-pool", "64M", NULL};
    struct harness *harness;

    if (geteuid() != 0) {
        CHECK_SKIP("needs root, to be another user");
    }
    harness = harness_create();
    harness_place_worker(harness, "cpu", getenv("GPUPIPE_WORKER_CPU"));
    place_launcher(harness);
    harness_launch(harness, options);
    return harness;
}

/* Have the user do it, in a process that ends; act() returns 0 or -errno. */
static void as_user(int (*act)(const void *arg), const void *arg)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        bool is_user = setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0;

        _exit(is_user ? -act(arg) : errno);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static int limit(const void *pid)
{
    struct rlimit most = {MOST, MOST};

    return prlimit(*(const pid_t *)pid, RLIMIT_NOFILE, &most, NULL) < 0 ? -errno : 0;
}

static void limit_descriptors(pid_t pid)
{
    as_user(limit, &pid);
}

static pid_t spawner_of(const struct harness *daemon)
{
    char file[64], *at, *after;
    pid_t pid = 0;

    snprintf(file, sizeof(file), "task/%d/children", (int)harness_pid(daemon));
    at = strdup(harness_proc(harness_pid(daemon), file));
    check_at_end(free, at);
    for (; pid == 0; at = after) {
        pid_t child = (pid_t)strtol(at, &after, 10);

        CHECK(after != at);
        if (strcmp(harness_proc(child, "comm"), "gpupipe-spawner\n") == 0) {
            pid = child;
        }
    }
    return pid;
}

/* ---- what is under way ---------------------------------------------------------------------- */

static int under_way[2] = {-1, -1};

/* They arrive, at nobody: from here on the user may send again. */
static void let_arrive(void *arg)
{
    (void)arg;
    close_fd(&under_way[0]);
    close_fd(&under_way[1]);
}

static int send_many(const void *arg)
{
    int r = 0, fds[CHANNEL_FDS_MAX] = {0};

    (void)arg;
    for (unsigned n = 0; r == 0 && n <= MOST; n += CHANNEL_FDS_MAX) {
        r = channel_send_packet(under_way[0], "", 1, fds, CHANNEL_FDS_MAX);
    }
    return r;
}

/* Another program of the user's has sent more than MOST to one that does not read. */
static void fill(void)
{
    CHECK_EQ(channel_pair(true, under_way), 0);
    check_at_end(let_arrive, NULL);
    as_user(send_many, NULL);
}

/* ---- stories -------------------------------------------------------------------------------- */

/* The daemon once waited for ever for an answer that the spawner could not send. */
static void test_the_spawner_cannot_send(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);

    limit_descriptors(spawner_of(daemon));
    fill();
    CHECK_EQ(kill(worker, SIGKILL), 0);
    harness_await_worker(daemon, worker);
    wire_check_works(wire);
}

CHECK_MAIN(CHECK_TEST(test_the_spawner_cannot_send))
