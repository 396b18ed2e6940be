/*
 * Daemons for one command: exec and run --private.  There is no other daemon; what is left behind
 * would be in the folder, which is TMPDIR.
 */
#include "tests/integration/cli.h"

#include <fcntl.h>
#include <signal.h>

static struct harness *start_without_daemon(void)
{
    struct harness *harness = harness_create();

    harness_setenv("TMPDIR", harness_folder(harness));
    harness_setenv("XDG_RUNTIME_DIR", "");
    return harness;
}

/* As in a command line. */
static const char *exec_here(void)
{
    static char text[128];

    snprintf(text, sizeof(text), "exec --backend %s --devices %s --", harness_backend(),
             harness_devices());
    return text;
}

/* Does this process have such a word in its command line? */
static bool has_word(const char *pid, const char *word)
{
    const char *text = harness_proc((pid_t)atoi(pid), "cmdline");

    return text != NULL && strstr(text, word) != NULL;
}

/* The pid of the daemon that listens in the folder; 0: there is none. */
static pid_t find_daemon(struct harness *harness)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    pid_t pid = 0;

    while (pid == 0 && (entry = readdir(processes)) != NULL) {
        if (atoi(entry->d_name) > 0 && has_word(entry->d_name, harness_folder(harness)) &&
            has_word(entry->d_name, "--socket")) {
            pid = atoi(entry->d_name);
        }
    }
    closedir(processes);
    return pid;
}

static void check_nothing_is_left(struct harness *harness)
{
    CHECK_EQ(find_daemon(harness), 0);
    CHECK_EQ(n_files(harness, "gpupipe-"), 0);
}

/* ---- exec ---------------------------------------------------------------------------------- */

static void test_a_command_has_a_daemon(void)
{
    struct harness *harness = start_without_daemon();
    const void *bytes = write_random(harness, "in", 3000000);

    shell(harness, OK,
          "cli %s sh -c '\"$GPUPIPE_CLI\" run copy -i \"$1\" -o out && \"$GPUPIPE_CLI\" status && "
          "stat -c %%a \"${GPUPIPE_SOCKET%%/*}\"' sh in",
          exec_here());
    check_file(harness, "out", bytes, 3000000);
    CHECK_HAS(output.out, harness_backend());
    CHECK_HAS(output.out, "\n700\n");
    check_nothing_is_left(harness);
}

static void test_its_exit_status_is_ours(void)
{
    struct harness *harness = start_without_daemon();

    shell(harness, 7, "cli %s sh -c 'exit 7'", exec_here());
    shell(harness, 128 + SIGKILL, "cli %s sh -c 'kill -KILL $$'", exec_here());
    shell(harness, 127, "cli %s no-such-command", exec_here());
    CHECK_HAS(output.err, "no-such-command");
    shell(harness, 126, "cli %s /dev/null", exec_here());
    shell(harness, OK, "echo hello | cli %s cat -", exec_here());
    CHECK_STR(output.out, "hello\n");
    check_nothing_is_left(harness);
}

static void test_a_daemon_that_does_not_start(void)
{
    struct harness *harness = start_without_daemon();

    shell(harness, UNREACHABLE, "cli exec --backend cpu --devices none -- touch ran");
    CHECK_HAS(output.err, "the private daemon did not start");
    CHECK(!exists(harness, "ran"));
    check_nothing_is_left(harness);
}

/* Begin a command that creates `up` and goes on until a signal comes. */
static pid_t begin_waiting(struct harness *harness)
{
    pid_t pid = harness_shell_begin(harness,
                                    "exec \"$GPUPIPE_CLI\" %s sh -c 'trap \"echo got TERM; exit "
                                    "5\" TERM; trap \"exit 6\" USR1; "
                                    ": > up; while :; do sleep 0.02; done'",
                                    exec_here());

    HARNESS_WAIT(exists(harness, "up"));
    return pid;
}

static void test_signals_reach_the_command(void)
{
    struct harness *harness = start_without_daemon();
    pid_t pid = begin_waiting(harness);

    CHECK_NE(find_daemon(harness), 0);
    kill(pid, SIGTERM);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, 5);
    CHECK_STR(output.out, "got TERM\n");
    check_nothing_is_left(harness);

    unlink(harness_path(harness, "up"));
    pid = begin_waiting(harness);
    kill(pid, SIGUSR1);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, 6);
}

static void test_nobody_outlives_us(void)
{
    struct harness *harness = start_without_daemon();
    pid_t pid = begin_waiting(harness);

    kill(pid, SIGKILL);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, 128 + SIGKILL);
    HARNESS_WAIT(find_daemon(harness) == 0);
    /* The command had its SIGTERM as well. */
    HARNESS_WAIT(strcmp(harness_read(harness, "stdout", &(size_t){0}), "got TERM\n") == 0);
}

static void test_a_daemon_that_dies(void)
{
    struct harness *harness = start_without_daemon();
    pid_t pid = begin_waiting(harness);

    kill(find_daemon(harness), SIGKILL);
    HARNESS_WAIT(find_daemon(harness) == 0);
    kill(pid, SIGTERM);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, 5);
    CHECK_HAS(output.err, "the private daemon has ended by itself");
    check_nothing_is_left(harness);
}

/* ---- run --private ------------------------------------------------------------------------- */

static void test_a_private_run(void)
{
    enum { SIZE = 20 * 1024 * 1024 + 1 };
    struct harness *harness = start_without_daemon();
    const void *bytes = write_random(harness, "in", SIZE);

    shell(harness, OK, "cli run --private copy -i in -o out --require %s", harness_kind());
    check_file(harness, "out", bytes, SIZE);
    shell(harness, OK, "cat in | cli run --private copy --chunk 16M --require %s | cmp - in",
          harness_kind());
    shell(harness, FAILED, "cli run --private nope -i in -o out2");
    CHECK_HAS(output.err, "UNKNOWN_OP");
    check_nothing_is_left(harness);
}

static void close_at_end(void *arg)
{
    close((int)(intptr_t)arg);
}

static void test_a_private_run_is_interrupted(void)
{
    struct harness *harness = start_without_daemon();
    pid_t pid;
    int fd;

    shell(harness, OK, "mkfifo endless");
    fd = open(harness_path(harness, "endless"), O_RDWR | O_CLOEXEC);
    CHECK_GE(fd, 0);
    check_at_end(close_at_end, (void *)(intptr_t)fd);
    pid = harness_shell_begin(
        harness, "exec \"$GPUPIPE_CLI\" run --private copy -i endless -o out --require %s",
        harness_kind());
    /* Its temporary file: the job is open. */
    HARNESS_WAIT(n_files(harness, "out.") == 1);
    kill(pid, SIGINT);
    harness_shell_end(harness, pid, &output);
    CHECK_EQ(output.code, INTERRUPTED);
    CHECK_EQ(n_files(harness, "out."), 0);
    CHECK_EQ(n_files(harness, "gpupipe-"), 0);
}

CHECK_MAIN(CHECK_TEST(test_a_command_has_a_daemon), CHECK_TEST(test_its_exit_status_is_ours),
           CHECK_TEST(test_a_daemon_that_does_not_start),
           CHECK_TEST(test_signals_reach_the_command), CHECK_TEST(test_nobody_outlives_us),
           CHECK_TEST(test_a_daemon_that_dies), CHECK_TEST(test_a_private_run),
           CHECK_TEST(test_a_private_run_is_interrupted))
