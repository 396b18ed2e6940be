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
#include "tests/random.h"
#include "tests/ring_client.h"
#include "tests/wire.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 61003 }; /* a uid that nobody has */
enum { MOST = 64 };    /* descriptors that a limited process may have */

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

static void write_program(struct harness *harness, const char *name, const char *format,
                          const char *argument)
{
    char text[512];

    snprintf(text, sizeof(text), format, argument);
    harness_write(harness, name, text, strlen(text));
    CHECK_EQ(chmod(harness_path(harness, name), 0755), 0);
}

/* A worker that starts once there is a file called go. */
static void place_worker(struct harness *harness)
{
    harness_place_worker(harness, "cpu", getenv("GPUPIPE_WORKER_CPU"));
    CHECK_EQ(rename(harness_path(harness, "bin/gpupipe-worker-cpu"),
                    harness_path(harness, "bin/the-gpupipe-worker-cpu")),
             0);
    write_program(harness, "bin/gpupipe-worker-cpu",
                  "#!/bin/sh\n"
                  "while [ ! -e %1$s/go ]; do sleep 0.01; done\n"
                  "exec %1$s/bin/the-gpupipe-worker-cpu \"$@\"\n",
                  harness_folder(harness));
    harness_write(harness, "go", "", 0);
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
    place_worker(harness);
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
    for (unsigned i = 0; i < ARRAY_SIZE(under_way); i++) {
        if (under_way[i] >= 0) {
            close(steal_fd(&under_way[i]));
        }
    }
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

static uint32_t send_run(struct wire *wire, const uint8_t *bytes, size_t size)
{
    return wire_send(wire, "run", "['copy', {}, {}, [%b]]", bytes, size);
}

/* Nobody can be asked for the next worker: work waits, and others are served. */
static void test_the_front_end_cannot_send(void)
{
    enum { SIZE = 100000 };
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);
    uint8_t *bytes = random_new(SIZE);
    uint32_t run;

    limit_descriptors(harness_pid(daemon));
    fill();
    CHECK_EQ(kill(worker, SIGKILL), 0);
    HARNESS_WAIT(strstr(harness_log(daemon), "too many descriptors on their way") != NULL);
    run = send_run(wire, bytes, SIZE);
    wire_call(wire, "ping", "[]");
    CHECK_EQ(harness_worker(daemon), 0);
    CHECK_EQ(wire_held(wire), 0);
    let_arrive(NULL);
    CHECK_MEM(wire_output(wire_result(wire, run), SIZE), bytes, SIZE);
    CHECK_EQ(stat_of(wire, "worker_deaths"), 1);
}

/* A worker that is there already gets its queues later, and is not taken for a bad one. */
static void test_queues_cannot_be_sent(void)
{
    enum { SIZE = 100000 };
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0), next;
    uint8_t *bytes = random_new(SIZE);
    uint32_t run;

    limit_descriptors(harness_pid(daemon));
    CHECK_EQ(unlink(harness_path(daemon, "go")), 0);
    CHECK_EQ(kill(worker, SIGKILL), 0);
    next = harness_await_worker(daemon, worker);
    fill();
    harness_write(daemon, "go", "", 0);
    HARNESS_WAIT(strstr(harness_log(daemon), "waits for its queues") != NULL);
    run = send_run(wire, bytes, SIZE);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* it tries again, in vain */
    CHECK_EQ(stat_of(wire, "worker_deaths"), 1);
    CHECK_EQ(wire_held(wire), 0);
    let_arrive(NULL);
    CHECK_MEM(wire_output(wire_result(wire, run), SIZE), bytes, SIZE);
    CHECK_EQ(harness_worker(daemon), next);
    CHECK_EQ(stat_of(wire, "worker_deaths"), 1);
    CHECK(strstr(strstr(harness_log(daemon), "waits for its") + 1, "waits for its") == NULL);
}

/* Neither the worker nor the client can be sent a ring: it comes later, and others are served. */
static void test_a_ring_cannot_be_sent(void)
{
    struct harness *daemon = start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint64_t job;
    uint32_t opened;

    harness_await_worker(daemon, 0);
    wire_check_works(other);
    limit_descriptors(harness_pid(daemon));
    fill();
    opened = wire_send(wire, "ring.open", "[1048576]");
    for (unsigned i = 0; i < 5; i++) {
        wire_check_works(other);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* it tries again, in vain */
    }
    CHECK_EQ(poll(&(struct pollfd){.fd = wire_fd(wire), .events = POLLIN}, 1, 0), 0);
    let_arrive(NULL);
    job = ring_client_open_copy(wire, "");
    ring_client_check_works(ring_client_opened(wire, wire_result(wire, opened)), job);
    CHECK_EQ(stat_of(other, "worker_deaths"), 0);
}

CHECK_MAIN(CHECK_TEST(test_the_spawner_cannot_send), CHECK_TEST(test_the_front_end_cannot_send),
           CHECK_TEST(test_queues_cannot_be_sent), CHECK_TEST(test_a_ring_cannot_be_sent))
