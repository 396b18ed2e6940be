/*
 * The daemon's life: how it starts, refuses to start, says what it does, ends, and outlives its
 * worker.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- service manager ----------------------------------------------------------------------- */

static void test_tells_the_service_manager(void)
{
    struct harness *daemon;

    harness_setenv("WATCHDOG_USEC", "200000");
    daemon = harness_start();
    CHECK_HAS(harness_notified(daemon), "STATUS=");
    CHECK_HAS(harness_notified(daemon), harness_backend());
    HARNESS_WAIT(harness_n_notified(daemon, "WATCHDOG=1") >= 3);
    CHECK_EQ(harness_n_notified(daemon, "STOPPING=1"), 0);
    harness_stop(daemon);
    CHECK_EQ(harness_n_notified(daemon, "STOPPING=1"), 1);
    CHECK_EQ(harness_n_notified(daemon, "READY=1"), 1);
}

static void test_no_watchdog_unless_asked(void)
{
    struct harness *daemon = harness_start();

    wire_check_works(wire_connect(harness_socket(daemon)));
    CHECK_EQ(harness_n_notified(daemon, "WATCHDOG=1"), 0);
}

/* Four pushes whose results fill the socket, so that the daemon has something to finish. */
static uint64_t fill_with_work(struct wire *wire, size_t push_size)
{
    const msgpack_object *opened = wire_call(wire, "job.open", "['copy', {}, {window: 4}]");
    uint64_t job = (uint64_t)wire_number(opened, "job");
    void *bytes = random_new(push_size);
    msgpack_sbuffer buffer;
    size_t sent = 0;

    CHECK_EQ(wire_number(opened, "credit"), 4);
    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < 4; i++) {
        wire_pack(wire, &buffer, "job.push", "[%lu, %lu, {}, [%b]]", job, (uint64_t)i, bytes,
                  push_size);
    }
    /* Not wire_send_bytes(): it would read the results meanwhile. */
    while (sent < buffer.size) {
        ssize_t n = send(wire_fd(wire), buffer.data + sent, buffer.size - sent, MSG_NOSIGNAL);

        CHECK_GT(n, 0);
        sent += (size_t)n;
    }
    msgpack_sbuffer_destroy(&buffer);
    return job;
}

static void test_sigterm_finishes_what_is_in_flight(void)
{
    enum { SIZE = 2 << 20 };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    uint32_t late_run, late_open;

    fill_with_work(wire, SIZE);
    HARNESS_WAIT(wire_number(wire_call(other, "stats", "[]"), "pushes_total") == 4);
    harness_signal(daemon, SIGTERM);
    HARNESS_WAIT(harness_n_notified(daemon, "STOPPING=1") == 1);
    late_run = wire_send(other, "run", "['copy', {}, {}, [<100>]]");
    late_open = wire_send(other, "job.open", "['copy']");
    wire_error_is(other, late_run, "BUSY", "drain");
    wire_error_is(other, late_open, "BUSY", "drain");
    for (unsigned i = 0; i < 4; i++) {
        const msgpack_object *params = wire_notification(wire, "job.result");

        CHECK_EQ(wire_number(params, "1"), i);
        wire_output(wire_find(params, "2"), SIZE);
    }
    CHECK_EQ(harness_wait_exit(daemon), 0);
    wire_eof(other);
}

static void test_sigint_ends_it_too(void)
{
    struct harness *daemon = harness_start();

    wire_check_works(wire_connect(harness_socket(daemon)));
    harness_signal(daemon, SIGINT);
    CHECK_EQ(harness_wait_exit(daemon), 0);
}

static void test_socket_activation(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;
    struct wire *wire;
    pid_t pid = harness_shell_begin(
        harness, "exec /usr/bin/python3 -c \"\nimport os, socket\n"
                 "listener = socket.socket(socket.AF_UNIX)\n"
                 "listener.bind(os.environ['GPUPIPE_SOCKET'])\n"
                 "listener.listen()\n"
                 "open('listening', 'w').close()\n"
                 "os.dup2(listener.fileno(), 3)\n"
                 "os.set_inheritable(3, True)\n"
                 "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
                 "daemon = os.environ['GPUPIPED']\n"
                 "os.execv(daemon, [daemon, '--backend', 'cpu', '--pinned-pool', '64M'])\n\"");

    HARNESS_WAIT(access(harness_path(harness, "listening"), F_OK) == 0);
    wire = wire_connect(harness_socket(harness));
    wire_check_works(wire);
    wire_close(wire);
    kill(pid, SIGTERM);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, 0);
    CHECK_EQ(access(harness_socket(harness), F_OK), 0); /* it belongs to the service manager */
}

/* ---- starts that cannot be ----------------------------------------------------------------- */

/* The daemon must end by itself, with a message that has this text. */
static void check_refuses(struct harness *harness, const char *options, const char *text)
{
    struct harness_output output;

    printf("# gpupiped %s\n", options);
    harness_shell(harness, &output, "exec \"$GPUPIPED\" %s", options);
    CHECK_GT(output.code, 0);
    CHECK_LT(output.code, 126);
    CHECK_HAS(output.err, text);
}

static void test_two_daemons_on_one_path(void)
{
    struct harness *daemon = harness_start();

    check_refuses(daemon, "--socket rpc.sock", "rpc.sock");
    wire_check_works(wire_connect(harness_socket(daemon)));
}

static void test_bad_options(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;

    check_refuses(harness, "--no-such-option", "no-such-option");
    check_refuses(harness, "--backend quantum", "quantum");
    check_refuses(harness, "--backend", "backend");
    check_refuses(harness, "--socket rpc.sock --pinned-pool lots", "lots");
    check_refuses(harness, "--socket rpc.sock --pinned-pool 0", "pinned-pool");
    check_refuses(harness, "--socket rpc.sock --awake-cpus many", "awake-cpus");
    check_refuses(harness, "--socket rpc.sock --awake-cpus -1", "awake-cpus");
    check_refuses(harness, "--socket rpc.sock --awake-group no-such-group", "no-such-group");
    check_refuses(harness, "--socket rpc.sock --pinned-pool 1024G",
                  "less than the pool of 1048576");
    check_refuses(harness, "--socket rpc.sock --log-level loud", "loud");
    check_refuses(harness, "--socket rpc.sock --worker-env NOVALUE", "NOVALUE");
    check_refuses(harness, "--socket rpc.sock stray", "stray");
    harness_shell(harness, &output, "\"$GPUPIPED\" --version");
    CHECK_EQ(output.code, 0);
    CHECK_HAS(output.out, "gpupiped ");
    harness_shell(harness, &output, "\"$GPUPIPED\" --help");
    CHECK_EQ(output.code, 0);
    CHECK_HAS(output.out, "--pinned-pool");
    CHECK_EQ(access(harness_socket(harness), F_OK), -1);
}

static void test_paths_that_cannot_be(void)
{
    struct harness *harness = harness_create();
    char options[128] = "--socket ";

    memset(options + 9, 'x', 108);
    check_refuses(harness, options, "107");
    check_refuses(harness, "--socket no/such/folder/rpc.sock", "no/such/folder");
    harness_write(harness, "a-file", "precious", 8);
    check_refuses(harness, "--socket a-file", "a-file");
    CHECK_EQ(symlink("a-file", harness_path(harness, "a-link")), 0);
    check_refuses(harness, "--socket a-link", "a-link");
    CHECK_EQ(access(harness_path(harness, "a-file"), F_OK), 0);
    CHECK_EQ(mkdir(harness_path(harness, "a-folder"), 0700), 0);
    check_refuses(harness, "--socket a-folder", "a-folder");
}

static void test_a_stale_socket_file_is_replaced(void)
{
    const char *const options[] = {
        "--backend", harness_backend(), "--devices", harness_devices(), "--pinned-pool", "64M",
        NULL};
    struct harness *harness = harness_create();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, harness_socket(harness));
    CHECK_EQ(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
    harness_launch(harness, options);
    wire_check_works(wire_connect(harness_socket(harness)));
}

static void test_killed_daemon_leaves_a_path_that_works_again(void)
{
    const char *const options[] = {
        "--backend", harness_backend(), "--devices", harness_devices(), "--pinned-pool", "64M",
        NULL};
    struct harness *harness = harness_start();
    pid_t worker = harness_await_worker(harness, 0);

    harness_signal(harness, SIGKILL);
    CHECK_EQ(harness_wait_exit(harness), 128 + SIGKILL);
    HARNESS_WAIT(kill(worker, 0) < 0 || strstr(harness_proc(worker, "stat"), ") Z ") != NULL);
    harness_launch(harness, options);
    wire_check_works(wire_connect(harness_socket(harness)));
}

static void test_missing_worker_program(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;

    harness_shell(harness, &output,
                  "mkdir -p alone/bin && cp \"$GPUPIPED\" alone/bin/ && "
                  "ln -s \"${GPUPIPED%%/*}/../lib\" alone/lib && " /* a bundle's libraries */
                  "exec alone/bin/gpupiped --socket rpc.sock --backend cpu");
    CHECK_GT(output.code, 0);
    CHECK_LT(output.code, 126);
    CHECK_HAS(output.err, "gpupipe-worker-cpu");
    CHECK_EQ(access(harness_socket(harness), F_OK), -1);
}

static void test_cuda_where_there_is_none(void)
{
    struct harness *harness = harness_create();
    struct harness_output output;

    if (access("/dev/nvidiactl", F_OK) == 0) {
        CHECK_SKIP("there is a GPU here");
    }
    harness_shell(harness, &output, "exec \"$GPUPIPED\" --socket rpc.sock --backend cuda");
    CHECK_GT(output.code, 0);
    CHECK_LT(output.code, 126);
    CHECK_HAS(output.err, "cuda");
}

static void test_auto_falls_back_and_says_why(void)
{
    static const char *const options[] = {"--backend", "auto", "--pinned-pool", "64M", NULL};
    struct harness *harness = harness_create();
    struct wire *wire;

    if (access("/dev/nvidiactl", F_OK) == 0) {
        CHECK_SKIP("there is a GPU here");
    }
    harness_launch(harness, options);
    wire = wire_connect(harness_socket(harness));
    wire_check_works(wire);
    CHECK_STR(wire_text(wire_call(wire, "stats", "[]"), "backend"), "cpu");
    CHECK_GT(strlen(wire_text(wire_call(wire, "stats", "[]"), "reason")), 0);
}

/* ---- the worker ---------------------------------------------------------------------------- */

/* Does this process have this line in its environment? */
static bool has_environment(pid_t pid, const char *line)
{
    char wanted[128], environment[65536];

    snprintf(environment, sizeof(environment), "\n%s", harness_proc(pid, "environ"));
    snprintf(wanted, sizeof(wanted), "\n%s", line);
    return strstr(environment, wanted) != NULL;
}

static void test_the_workers_environment_is_clean(void)
{
    struct harness *daemon;
    pid_t worker;

    harness_setenv("LD_DUMMY", "1");
    harness_setenv("CUDA_INJECTION64_PATH", "/nowhere/lib.so");
    harness_setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere");
    harness_setenv("CUDA_VISIBLE_DEVICES", "7");
    daemon =
        harness_start("--worker-env", "CUDA_MODULE_LOADING=EAGER", "--worker-env", "COLOUR=red");
    worker = harness_await_worker(daemon, 0);
    CHECK(has_environment(harness_pid(daemon), "LD_DUMMY=1"));
    CHECK(!has_environment(worker, "LD_DUMMY"));
    CHECK(!has_environment(worker, "CUDA_INJECTION64_PATH"));
    CHECK(!has_environment(worker, "CUDA_MPS_PIPE_DIRECTORY"));
    CHECK(!has_environment(worker, "CUDA_VISIBLE_DEVICES=7"));
    CHECK(has_environment(worker, "CUDA_MODULE_LOADING=EAGER"));
    CHECK(has_environment(worker, "COLOUR=red"));
    CHECK_HAS(harness_log(daemon), "COLOUR");
}

static void test_a_dead_worker_is_replaced(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);

    wire_check_works(wire);
    kill(worker, SIGKILL);
    harness_await_worker(daemon, worker);
    wire_check_works(wire);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_deaths"), 1);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_starts"), 2);
    CHECK_STR(wire_text(wire_call(wire, "device.list", "[]"), "0.state"), "ready");
}

/* Clock ticks that the daemon has computed for. */
static unsigned long cpu_ticks(const struct harness *daemon)
{
    unsigned long user, system;
    const char *after_name = strstr(harness_proc(harness_pid(daemon), "stat"), ") ");

    CHECK(after_name != NULL);
    CHECK_EQ(
        sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
        2);
    return user + system;
}

/*
 * A debugger or leak checker learns of a worker's exit first, and until it has let go the worker is
 * not the daemon's to reap: work goes on with the next one, nothing stays behind, and the daemon
 * does not ask again and again meanwhile.
 */
static void test_a_traced_worker_dies(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);
    unsigned long ticks;

    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) < 0) {
        CHECK_SKIP("no tracing here: %s", strerror(errno));
    }
    wire_check_works(wire);
    CHECK_EQ(kill(worker, SIGKILL), 0);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "worker_deaths") == 1);
    for (unsigned i = 0; i < 20; i++) {
        wire_check_works(wire);
    }
    CHECK_EQ(harness_n_children(daemon), 3); /* the spawner, the dead, and the next worker */
    ticks = cpu_ticks(daemon);
    sleep(2);
    /* A tenth of one processor: far from none, and from all that there is to have. */
    CHECK_LT(cpu_ticks(daemon) - ticks, (unsigned long)sysconf(_SC_CLK_TCK) / 5);
    CHECK_EQ(waitpid(worker, NULL, __WALL), worker);
    HARNESS_WAIT(harness_n_children(daemon) == 2);
    wire_check_works(wire);
}

static void test_work_lost_with_its_worker_is_answered(void)
{
    struct harness *daemon = harness_start("--pinned-pool", "256M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = harness_await_worker(daemon, 0);
    const msgpack_object *opened, *params;
    unsigned n_results = 0, n_lost = 0;
    msgpack_sbuffer buffer;
    uint64_t job;

    opened = wire_call(wire, "job.open", "['sha256', {block: 1}, {window: 16, max_push: 2097152}]");
    job = (uint64_t)wire_number(opened, "job");
    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < 16; i++) {
        wire_pack(wire, &buffer, "job.push", "[%lu, %lu, {}, [<65536>]]", job, (uint64_t)i);
    }
    harness_pause(worker); /* so that nothing of it can be done before the end */
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "chunks_in_flight") > 0);
    kill(worker, SIGKILL);
    for (; n_results < 16; n_results++) {
        struct wire_error error = {.name = ""};

        params = wire_notification(wire, "job.result");
        CHECK_EQ(wire_number(params, "1"), n_results);
        if (wire_find(params, "2.error") != NULL) {
            error = wire_error(wire_find(params, "2.error"));
        }
        n_lost += strcmp(error.name, "DEVICE_LOST") == 0;
        CHECK(strcmp(error.name, n_lost > 0 ? "CANCELLED" : "") == 0 ||
              strcmp(error.name, "DEVICE_LOST") == 0);
    }
    CHECK_GE(n_lost, 1);
    params = wire_notification(wire, "job.done");
    CHECK_STR(wire_text(params, "1.state"), "failed");
    CHECK_STR(wire_error(wire_find(params, "1.error")).name, "DEVICE_LOST");
    wire_check_works(wire);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "pool_used") == 0);
    CHECK_GT(wire_number(wire_call(wire, "stats", "[]"), "chunks_lost"), 0);
}

static void test_workers_that_die_again_and_again(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = 0;

    for (unsigned i = 0; i < 6; i++) {
        worker = harness_await_worker(daemon, worker);
        kill(worker, SIGKILL);
        wire_call(wire, "ping", "[]");
    }
    harness_await_worker(daemon, worker);
    wire_check_works(wire);
    CHECK_EQ(wire_number(wire_call(wire, "stats", "[]"), "worker_deaths"), 6);
}

/* The daemon once waited for a service manager that had stopped reading, and served nobody. */
static void test_a_service_manager_that_does_not_read(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t worker = 0;

    for (unsigned i = 0; i < 16; i++) { /* two datagrams each; the socket holds ten */
        worker = harness_await_worker(daemon, worker);
        wire_check_works(wire);
        kill(worker, SIGKILL);
    }
    harness_await_worker(daemon, worker);
    wire_check_works(wire);
}

CHECK_MAIN(CHECK_TEST(test_tells_the_service_manager), CHECK_TEST(test_no_watchdog_unless_asked),
           CHECK_TEST(test_sigterm_finishes_what_is_in_flight), CHECK_TEST(test_sigint_ends_it_too),
           CHECK_TEST(test_socket_activation), CHECK_TEST(test_two_daemons_on_one_path),
           CHECK_TEST(test_bad_options), CHECK_TEST(test_paths_that_cannot_be),
           CHECK_TEST(test_a_stale_socket_file_is_replaced),
           CHECK_TEST(test_killed_daemon_leaves_a_path_that_works_again),
           CHECK_TEST(test_missing_worker_program), CHECK_TEST(test_cuda_where_there_is_none),
           CHECK_TEST(test_auto_falls_back_and_says_why),
           CHECK_TEST(test_the_workers_environment_is_clean),
           CHECK_TEST(test_a_dead_worker_is_replaced), CHECK_TEST(test_a_traced_worker_dies),
           CHECK_TEST(test_work_lost_with_its_worker_is_answered),
           CHECK_TEST(test_workers_that_die_again_and_again),
           CHECK_TEST(test_a_service_manager_that_does_not_read))
