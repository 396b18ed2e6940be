/* The examples of libgpupipe, each against a daemon, with results that are known otherwise. */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/reference.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096

static struct harness *daemon_;
static struct harness_output output;

static const char *program(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("EXAMPLES"), name);
    return path;
}

/* Hashes as the examples print them, one in each line. */
static void check_hashes(const char *text, size_t text_size, const uint8_t *bytes, size_t size)
{
    size_t n_hashes = (size + BLOCK - 1) / BLOCK;
    const uint8_t *hashes = reference_sha256(daemon_, bytes, size, BLOCK);

    CHECK_EQ(text_size, n_hashes * 65);
    for (size_t i = 0; i < n_hashes; i++) {
        char line[66];

        for (size_t k = 0; k < 32; k++) {
            snprintf(line + 2 * k, sizeof(line) - 2 * k, "%02x", hashes[i * 32 + k]);
        }
        strcpy(line + 64, "\n");
        CHECK_MEM(text + i * 65, line, 65);
    }
}

static void run_example(const char *prefix, const char *name, const char *arguments)
{
    harness_shell(daemon_, &output, "%s %s %s", prefix, program(name), arguments);
    if (output.code != 0) {
        CHECK_FAIL("%s ended with %d: %s", name, output.code, output.err);
    }
}

static void run_all(const char *prefix, size_t n_stream)
{
    size_t sizes[] = {1 + random_below(50 * BLOCK), n_stream};
    uint8_t *bytes = random_new(sizes[1]);
    size_t text_size;
    const char *text;

    harness_write(daemon_, "small", bytes, sizes[0]);
    run_example(prefix, "blocking", "small >hashes");
    text = harness_read(daemon_, "hashes", &text_size);
    check_hashes(text, text_size, bytes, sizes[0]);

    harness_write(daemon_, "large", bytes, sizes[1]);
    run_example(prefix, "poll_loop", "<large >hashes");
    text = harness_read(daemon_, "hashes", &text_size);
    check_hashes(text, text_size, bytes, sizes[1]);
    run_example(prefix, "ring", "<large >hashes");
    text = harness_read(daemon_, "hashes", &text_size);
    check_hashes(text, text_size, bytes, sizes[1]);
    harness_shell(daemon_, &output, "cat large | %s >hashes", program("poll_loop"));
    CHECK_EQ(output.code, 0);
    text = harness_read(daemon_, "hashes", &text_size);
    check_hashes(text, text_size, bytes, sizes[1]);
}

static void run_sum(const char *prefix, uint64_t n)
{
    char wanted[32], number[32];

    snprintf(number, sizeof(number), "%" PRIu64, n);
    snprintf(wanted, sizeof(wanted), "%" PRIu64 "\n", n * (n + 1) / 2);
    run_example(prefix, "uv_loop", number);
    CHECK_STR(output.out, wanted);
}

static void test_they_compute_what_they_say(void)
{
    daemon_ = harness_start();
    run_all("", 3000000 + random_below(3000000));
    /* Floats hold integers up to 2^24. */
    run_sum("", 1 + random_below(100));
    run_sum("", 10000000 + random_below(6000000));
}

/* How far it has read its standard input, a file. */
static size_t n_read(pid_t pid)
{
    const char *text = harness_proc(pid, "fdinfo/0");

    return text == NULL ? 0 : strtoul(text + strlen("pos:"), NULL, 10);
}

static void kill_daemon(void)
{
    const char *const options[] = {
        "--backend", harness_backend(), "--devices", harness_devices(), "--pinned-pool", "64M",
        NULL};

    harness_signal(daemon_, SIGKILL);
    CHECK_EQ(harness_wait_exit(daemon_), 128 + SIGKILL);
    harness_launch(daemon_, options);
}

/* All of a small file is under way, or of a large one what its eight pushes of 64 records hold. */
static void test_poll_loop_outlives_the_daemon(void)
{
    const size_t most = 8 * 64 * BLOCK;
    size_t sizes[] = {most / 2 + random_below(most / 3), 2 * most + random_below(most)};
    uint8_t *bytes = random_new(sizes[1]);

    daemon_ = harness_start();
    for (int i = 0; i < 2; i++) {
        const char *text;
        size_t text_size;
        pid_t pid;

        harness_write(daemon_, "in", bytes, sizes[i]);
        harness_pause(harness_await_worker(daemon_, 0));
        pid = harness_shell_begin(daemon_, "exec %s <in >hashes", program("poll_loop"));
        HARNESS_WAIT(n_read(pid) == (sizes[i] < most ? sizes[i] : most));
        kill_daemon();
        harness_shell_end(daemon_, pid, &output);
        if (output.code != 0) {
            CHECK_FAIL("poll_loop ended with %d: %s", output.code, output.err);
        }
        text = harness_read(daemon_, "hashes", &text_size);
        check_hashes(text, text_size, bytes, sizes[i]);
    }
}

static void test_nothing_to_do(void)
{
    daemon_ = harness_start();
    run_example("", "poll_loop", "</dev/null");
    CHECK_STR(output.out, "");
    run_example("", "ring", "</dev/null");
    CHECK_STR(output.out, "");
    run_sum("", 0);
}

static void test_they_say_what_is_wrong(void)
{
    daemon_ = harness_start();
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"blocking", "poll_loop", "ring", "uv_loop"};

        harness_shell(daemon_, &output, "GPUPIPE_SOCKET=none %s </dev/null", program(names[i]));
        CHECK_EQ(output.code, 1);
        CHECK_HAS(output.err, "cannot connect to none");
    }
}

static void test_they_are_clean_under_valgrind(void)
{
    static const char valgrind[] = "valgrind -q --error-exitcode=99 --leak-check=full "
                                   "--show-leak-kinds=definite,possible --track-fds=yes";

    if (HARNESS_SANITIZER_KIB != 0) {
        CHECK_SKIP("valgrind does not run what a sanitizer has instrumented");
    }
    daemon_ = harness_start();
    harness_shell(daemon_, &output, "valgrind --version");
    if (output.code != 0) {
        CHECK_SKIP("valgrind is not installed");
    }
    run_all(valgrind, 1000000 + random_below(1000000));
    run_sum(valgrind, 2000000);
}

CHECK_MAIN(CHECK_TEST(test_they_compute_what_they_say),
           CHECK_TEST(test_poll_loop_outlives_the_daemon), CHECK_TEST(test_nothing_to_do),
           CHECK_TEST(test_they_say_what_is_wrong), CHECK_TEST(test_they_are_clean_under_valgrind))
