/*
 * gpupipe-cli as people use it: files, pipes, devices, mistakes, and what it leaves behind.
 */
#include "tests/integration/cli.h"
#include "tests/reference.h"
#include "tests/wire.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* ---- every op on files --------------------------------------------------------------------- */

static void test_copy_a_file(void)
{
    enum { SIZE = 9 * 1024 * 1024 + 4321 };
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", SIZE);

    shell(daemon, OK, "cli run copy -i in -o out");
    check_file(daemon, "out", bytes, SIZE);
    CHECK_STR(output.out, "");
    shell(daemon, OK, "cli run copy -i in -o out2 --chunk 64K --priority bulk --require %s -q",
          harness_kind());
    check_file(daemon, "out2", bytes, SIZE);
    CHECK_STR(output.err, "");
    CHECK_EQ(n_files(daemon, "out"), 3); /* with "stdout" */
}

static void test_saxpy_of_two_files(void)
{
    enum { N = 2000003 };
    struct harness *daemon = harness_start();
    float *x = random_new_floats(N), *y = random_new_floats(N), *want = random_new(N * 4);
    size_t size;
    const float *got;

    harness_write(daemon, "x", x, N * sizeof(float));
    harness_write(daemon, "y", y, N * sizeof(float));
    reference_saxpy(2.5f, x, y, want, N);
    shell(daemon, OK, "cli run saxpy -p a=2.5 -i x=x -i y=y -o out");
    got = harness_read(daemon, "out", &size);
    CHECK_EQ(size, N * sizeof(float));
    reference_check_floats(got, want, N);
    shell(daemon, OK, "cli run saxpy -p a=2.5 -i y=y -i x -o out=again && cmp out again");
}

static void test_sum_of_a_file(void)
{
    enum { N = 1500007 };
    struct harness *daemon = harness_start();
    float *x = random_new_floats(N);
    size_t size;
    double sum;

    harness_write(daemon, "x", x, N * sizeof(float));
    shell(daemon, OK, "cli run sum -i x -o out");
    memcpy(&sum, harness_read(daemon, "out", &size), sizeof(sum));
    CHECK_EQ(size, sizeof(sum));
    reference_check_sum(sum, x, N);
    shell(daemon, OK, "cli run sum -i x --format text -o -");
    CHECK(strtod(output.out, NULL) == sum);
    shell(daemon, OK, "cli run sum -i x --chunk 65536 -o out2 && cmp out out2");
    shell(daemon, OK, "cli run sum -i /dev/null --format text -o -");
    CHECK(strtod(output.out, NULL) == 0);
}

static void test_sha256_of_a_file_and_its_tail(void)
{
    enum { SIZE = 5 * 1024 * 1024 + 999 };
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", SIZE);
    const uint8_t *want = reference_sha256(daemon, bytes, SIZE, 4096);

    shell(daemon, FAILED, "cli run sha256 -i in -o out");
    CHECK_HAS(output.err, "in");
    CHECK_HAS(output.err, "4096");
    CHECK(!exists(daemon, "out"));
    shell(daemon, OK, "cli run sha256 -i in -o out --tail short");
    check_file(daemon, "out", want, (SIZE + 4095) / 4096 * 32);
    shell(daemon, OK, "cli run sha256 -p block=999 -i in -o out -f --tail short");
    check_file(daemon, "out", reference_sha256(daemon, bytes, SIZE, 999), (SIZE + 998) / 999 * 32);
    shell(
        daemon, OK,
        "cli run sha256 -i in -o out3 --tail zero && cp in padded && truncate -s %%4096 padded && "
        "cli run sha256 -i padded -o out4 && cmp out3 out4");
}

static void test_text_output(void)
{
    struct harness *daemon = harness_start();

    harness_write(daemon, "abc", "abc", 3);
    shell(daemon, OK, "cli run sha256 -i abc --tail short --format text -o - | tr -d ' \\n'");
    CHECK_HAS(output.out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* ---- pipes and devices --------------------------------------------------------------------- */

static void test_a_pipeline(void)
{
    enum { SIZE = 3 * 1024 * 1024 + 17 };
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", SIZE);

    shell(daemon, OK, "cat in | cli run copy -i - -o - | cat > out");
    check_file(daemon, "out", bytes, SIZE);
    shell(daemon, OK, "cli run copy -i /dev/stdin -o /dev/stdout < in > out2");
    check_file(daemon, "out2", bytes, SIZE);
}

static void test_fifos(void)
{
    enum { SIZE = 2 * 1024 * 1024 + 1 };
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", SIZE);

    shell(daemon, OK,
          "mkfifo fin fout; cat in > fin & cat fout > out & cli run copy -i fin -o fout && wait");
    check_file(daemon, "out", bytes, SIZE);
    shell(daemon, OK, "test -p fout");
}

static void test_a_full_disk(void)
{
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 3000000);
    shell(daemon, FAILED, "cli run copy -i in -o /dev/full");
    CHECK_HAS(output.err, "/dev/full");
    CHECK_HAS(output.err, "No space left");
    shell(daemon, OK, "test -c /dev/full && cli job list --json");
    CHECK_HAS(output.out, "[]");
}

static void test_a_full_folder_keeps_no_partial_output(void)
{
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 3000000);
    shell(daemon, FAILED, "ulimit -f 2000; trap '' XFSZ; cli run copy -i in -o out");
    CHECK_HAS(output.err, "out");
    CHECK(!exists(daemon, "out"));
    CHECK_EQ(n_files(daemon, "out"), 1); /* "stdout" alone */
}

static void test_a_closed_pipe(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    write_random(daemon, "in", 20000000);
    shell(daemon, OK, "{ cli run copy -i in -o -; echo $? > code; } | head -c 1000 > /dev/null");
    HARNESS_WAIT(exists(daemon, "code"));
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[{all: true}]"), "") == 0);
    shell(daemon, OK, "test $(cat code) -ne 0");
}

/* ---- outputs ------------------------------------------------------------------------------- */

static void test_no_overwriting_unasked(void)
{
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", 100000);

    harness_write(daemon, "out", "precious", 8);
    shell(daemon, FAILED, "cli run copy -i in -o out");
    CHECK_HAS(output.err, "-f");
    check_file(daemon, "out", "precious", 8);
    shell(daemon, OK, "cli run copy -i in -o out -f");
    check_file(daemon, "out", bytes, 100000);
    shell(daemon, OK, "cli run copy -i out -o out -f");
    check_file(daemon, "out", bytes, 100000);
}

static void test_outputs_that_cannot_be(void)
{
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 1000);
    shell(daemon, FAILED, "cli run copy -i in -o no/such/folder/out");
    CHECK_HAS(output.err, "no/such/folder");
    shell(daemon, FAILED, "mkdir folder; cli run copy -i in -o folder");
    CHECK_HAS(output.err, "folder");
    shell(daemon, USAGE, "cli run copy -i in -o a -o b");
}

static void test_a_link_stays_a_link(void)
{
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", 5000);
    struct stat stat;

    shell(daemon, OK, "echo old > target; ln -s target link; cli run copy -i in -o link -f");
    CHECK_EQ(lstat(harness_path(daemon, "link"), &stat), 0);
    CHECK(S_ISLNK(stat.st_mode));
    check_file(daemon, "target", bytes, 5000);
}

/* ---- inputs -------------------------------------------------------------------------------- */

static void test_inputs_that_cannot_be(void)
{
    struct harness *daemon = harness_start();

    write_random(daemon, "x", 4000);
    write_random(daemon, "short", 3996);
    shell(daemon, FAILED, "cli run copy -i missing -o out");
    CHECK_HAS(output.err, "missing");
    CHECK_HAS(output.err, "No such file");
    shell(daemon, FAILED, "cli run copy -i . -o out");
    shell(daemon, USAGE, "cli run saxpy -p a=1 -i x -o out");
    CHECK_HAS(output.err, "y");
    shell(daemon, USAGE, "cli run copy -i x -i x -o out");
    shell(daemon, USAGE, "cli run saxpy -p a=1 -i x=x -i x=x -o out");
    shell(daemon, FAILED, "cli run saxpy -p a=1 -i x=x -i y=short -o out");
    CHECK_HAS(output.err, "short");
    CHECK(!exists(daemon, "out"));
    shell(daemon, FAILED, "printf abc > odd; cli run sum -i odd -o out");
    CHECK_HAS(output.err, "odd");
    CHECK(!exists(daemon, "out"));
}

static void test_an_input_that_shrinks(void)
{
    struct harness *daemon = harness_start();

    /* The FIFO holds x up until y has been cut. */
    write_random(daemon, "x", 12000000);
    write_random(daemon, "y", 12000000);
    shell(
        daemon, FAILED,
        "mkfifo slow; { head -c 6000000 x; sleep 0.3; truncate -s 8000000 y; tail -c 6000000 x; } "
        "> slow & cli run saxpy -p a=1 -i x=slow -i y=y -o out --chunk 1M; code=$?; wait; "
        "exit $code");
    CHECK_HAS(output.err, "y");
    CHECK(!exists(daemon, "out"));
    CHECK_EQ(n_files(daemon, "out"), 1);
}

/* ---- words --------------------------------------------------------------------------------- */

static void test_mistakes_on_the_command_line(void)
{
    static const char *const lines[] = {
        "",
        "fly",
        "run",
        "run --speed 9 copy -i in",
        "run copy -i in -o out --priority highest",
        "run copy -i in -o out --tail long",
        "run copy -i in -o out --format xml",
        "run copy -i in -o out --require tpu",
        "run copy -i in -o out --chunk huge",
        "run copy -i in -o out --chunk 4K",
        "run copy -i in -o out -k in",
        "run copy -i in -o out --private --socket x",
        "exec",
        "exec --backend tpu -- true",
        "exec --socket x -- true",
        "call",
        "call ping [] []",
        "call ping [",
        "call run '[{\"@base64\": \"?\"}]'",
        "call ping -o -",
        "run copy -i in -o out --deadline soon",
        "run copy -i in -o out --admit",
        "run saxpy -p a -i x -i y -o out",
        "ping pong",
        "op",
        "op fly",
        "job cancel",
        "job cancel one",
    };
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 1000);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        shell(daemon, USAGE, "cli %s", lines[i]);
        CHECK_GT(strlen(output.err), 0);
        CHECK_STR(output.out, "");
    }
    CHECK(!exists(daemon, "out"));
}

static void test_what_comes_later_says_so(void)
{
    static const char *const lines[] = {
        "run copy --then copy -i in -o out",
        "op new x",
        "op load x",
        "top",
        "doctor",
        "check",
        "monitor",
        "usage",
    };
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 1000);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        shell(daemon, USAGE, "cli %s", lines[i]);
        CHECK_HAS(output.err, "not in this version");
    }
}

static void test_refusals_of_the_daemon(void)
{
    struct harness *daemon = harness_start();

    write_random(daemon, "in", 4000);
    shell(daemon, FAILED, "cli run nope -i in -o out");
    CHECK_HAS(output.err, "UNKNOWN_OP");
    shell(daemon, FAILED, "cli run saxpy -p b=1 -i in -i in -o out");
    CHECK_HAS(output.err, "INVALID_PARAM");
    shell(daemon, FAILED, "cli run sha256 -p block=0 -i in -o out");
    CHECK_HAS(output.err, "block");
    shell(daemon, FAILED, "cli run copy --require %s -i in -o out", harness_other_kind());
    CHECK_HAS(output.err, "NO_DEVICE");
    shell(daemon, FAILED, "cli job cancel 999");
    CHECK_HAS(output.err, "NOT_FOUND");
    shell(daemon, DEADLINE, "cli run copy --deadline 1ns -i in -o out");
    shell(daemon, OK, "cli run iterate -p n=50000 -i in -o measured");
    write_random(daemon, "large", 8 << 20);
    shell(daemon, DEADLINE, "cli run iterate -p n=50000 --deadline 1ms --admit -i large -o out");
    CHECK_HAS(output.err, "it would take");
    CHECK(!exists(daemon, "out"));
}

static void test_no_daemon(void)
{
    struct harness *harness = harness_create();

    write_random(harness, "in", 1000);
    shell(harness, UNREACHABLE, "cli ping");
    CHECK_HAS(output.err, "rpc.sock");
    shell(harness, UNREACHABLE, "cli --socket /no/such/socket status");
    CHECK_HAS(output.err, "/no/such/socket");
    shell(harness, UNREACHABLE, "cli run copy -i in -o out");
    CHECK(!exists(harness, "out"));
}

static void test_what_can_be_asked(void)
{
    struct harness *daemon = harness_start();

    shell(daemon, OK, "cli ping");
    shell(daemon, OK, "cli version");
    CHECK_HAS(output.out, "gpupipe-cli ");
    shell(daemon, OK, "cli --help");
    CHECK_HAS(output.out, "run");
    shell(daemon, OK, "cli run --help");
    shell(daemon, OK, "cli op list");
    CHECK_HAS(output.out, "saxpy");
    CHECK_HAS(output.out, "sha256");
    shell(daemon, OK, "cli op show sha256");
    CHECK_HAS(output.out, "block");
    CHECK_HAS(output.out, "4096");
    shell(daemon, FAILED, "cli op show nope");
    shell(daemon, OK, "cli status");
    CHECK_HAS(output.out, harness_backend());
    CHECK_HAS(output.out, "rpc.sock");
    shell(daemon, OK, "cli job list");
    shell(daemon, OK, "cli device list");
    CHECK_HAS(output.out, harness_backend());
    CHECK_HAS(output.out, "ready");
}

static void test_json_is_json(void)
{
    static const char *const lines[] = {
        "ping",     "version",     "op list", "op show saxpy",
        "job list", "device list", "status",  "run copy -i in -o out --timing"};
    struct harness *daemon = harness_start();
    char backend[64];

    write_random(daemon, "in", 100000);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        shell(daemon, OK, "cli --json %s | /usr/bin/python3 -m json.tool", lines[i]);
        CHECK_GT(strlen(output.out), 1);
    }
    CHECK_HAS(output.out, "compute_ns");
    snprintf(backend, sizeof(backend), "\"backend\": \"%s\"", harness_backend());
    CHECK_HAS(output.out, backend);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void close_at_end(void *arg)
{
    close((int)(intptr_t)arg);
}

/* A job that cannot end: its input is a FIFO that we hold open.  Returns the program's pid. */
static pid_t begin_endless_job(struct harness *daemon, struct wire *wire)
{
    pid_t pid;
    int fd;

    CHECK_EQ(mkfifo(harness_path(daemon, "endless"), 0600), 0);
    fd = open(harness_path(daemon, "endless"), O_RDWR | O_CLOEXEC);
    CHECK_GE(fd, 0);
    check_at_end(close_at_end, (void *)(intptr_t)fd);
    pid = harness_shell_begin(daemon, "exec \"$GPUPIPE_CLI\" run copy -i endless -o out --inline");
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[{all: true}]"), "") == 1);
    return pid;
}

static void check_ends_without_output(struct harness *daemon, pid_t pid, int code)
{
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, code);
    CHECK_EQ(n_files(daemon, "out"), 1); /* "stdout" alone */
}

static void test_sigint_cancels_the_job(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire);

    kill(pid, SIGINT);
    check_ends_without_output(daemon, pid, INTERRUPTED);
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[{all: true}]"), "") == 0);
}

static void test_a_killed_client_leaves_no_job(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire);

    kill(pid, SIGKILL);
    harness_shell_end(daemon, pid, &output);
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[{all: true}]"), "") == 0);
}

static void test_a_job_seen_and_cancelled_from_outside(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire);
    int64_t job = wire_number(wire_call(wire, "job.list", "[{all: true}]"), "0.job");

    shell(daemon, OK, "cli job list --all");
    CHECK_HAS(output.out, "copy");
    CHECK_HAS(output.out, "open");
    shell(daemon, OK, "cli job cancel %d", (int)job);
    check_ends_without_output(daemon, pid, FAILED);
}

static void test_a_daemon_that_goes_away(void)
{
    struct harness *daemon = harness_start();
    pid_t pid = begin_endless_job(daemon, wire_connect(harness_socket(daemon)));

    harness_signal(daemon, SIGKILL);
    harness_wait_exit(daemon);
    check_ends_without_output(daemon, pid, UNREACHABLE);
}

CHECK_MAIN(CHECK_TEST(test_copy_a_file), CHECK_TEST(test_saxpy_of_two_files),
           CHECK_TEST(test_sum_of_a_file), CHECK_TEST(test_sha256_of_a_file_and_its_tail),
           CHECK_TEST(test_text_output), CHECK_TEST(test_a_pipeline), CHECK_TEST(test_fifos),
           CHECK_TEST(test_a_full_disk), CHECK_TEST(test_a_full_folder_keeps_no_partial_output),
           CHECK_TEST(test_a_closed_pipe), CHECK_TEST(test_no_overwriting_unasked),
           CHECK_TEST(test_outputs_that_cannot_be), CHECK_TEST(test_a_link_stays_a_link),
           CHECK_TEST(test_inputs_that_cannot_be), CHECK_TEST(test_an_input_that_shrinks),
           CHECK_TEST(test_mistakes_on_the_command_line), CHECK_TEST(test_what_comes_later_says_so),
           CHECK_TEST(test_refusals_of_the_daemon), CHECK_TEST(test_no_daemon),
           CHECK_TEST(test_what_can_be_asked), CHECK_TEST(test_json_is_json),
           CHECK_TEST(test_sigint_cancels_the_job), CHECK_TEST(test_a_killed_client_leaves_no_job),
           CHECK_TEST(test_a_job_seen_and_cancelled_from_outside),
           CHECK_TEST(test_a_daemon_that_goes_away))
