/*
 * gpupipe-cli run through a ring and through the socket: which of them it takes, that the results
 * are the same, and that no ring is left behind.
 */
#include "proto/limits.h"
#include "proto/status.h"
#include "tests/fake_device.h"
#include "tests/integration/cli.h"
#include "tests/reference.h"
#include "tests/ring_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { MIB = 1 << 20 };

/* Both ways, as options and as --json names them. */
static const struct {
    const char *options, *path;
} ways[] = {{"", "ring"}, {"--inline", "inline"}};

enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static uint64_t stat_of(struct wire *wire, const char *name)
{
    return (uint64_t)wire_number(wire_call(wire, "stats", "[]"), name);
}

/* Run it with its output in "out", where something else stood before; it must take this path. */
__attribute__((format(printf, 3, 4))) static void run(struct harness *harness, const char *path,
                                                      const char *format, ...)
{
    char line[1024], member[64];
    va_list args;

    write_random(harness, "out", 1 + random_below(100000));
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    shell(harness, OK, "cli --json run %s -o out -f", line);
    snprintf(member, sizeof(member), "\"path\": \"%s\"", path);
    CHECK_HAS(output.out, member);
    CHECK_STR(output.err, "");
}

/* What rings have now is what they had before. */
static void check_no_ring_is_left(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "rings") == 0);
    HARNESS_WAIT(stat_of(wire, "ring_pool_used") == 0);
    HARNESS_WAIT(wire_count(wire_call(wire, "job.list", "[{all: true}]"), "") == 0);
}

/* ---- results -------------------------------------------------------------------------------- */

static void test_copies_are_the_input(void)
{
    static const char *const chunks[] = {"", "--chunk 64K", "--chunk 512K", "--chunk 300001"};
    size_t size = 9 * MIB + random_below(MIB);
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *bytes = write_random(daemon, "in", size);
    uint64_t n_rings = 0;

    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        for (unsigned way = 0; way < N_WAYS; way++) {
            run(daemon, ways[way].path, "copy -i in %s %s", chunks[i], ways[way].options);
            check_file(daemon, "out", bytes, size);
            n_rings += way == 0;
            CHECK_EQ(stat_of(wire, "rings_total"), n_rings);
        }
    }
    check_no_ring_is_left(wire);
}

static void test_bytes_do_not_cross_the_socket(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t n_in = stat_of(wire, "bytes_in"), n_out = stat_of(wire, "bytes_out");

    write_random(daemon, "in", 8 * MIB);
    run(daemon, "ring", "copy -i in");
    CHECK_LT(stat_of(wire, "bytes_in") - n_in, MIB);
    CHECK_LT(stat_of(wire, "bytes_out") - n_out, MIB);
    run(daemon, "inline", "copy -i in --inline");
    CHECK_GE(stat_of(wire, "bytes_in") - n_in, 8 * MIB);
    CHECK_GE(stat_of(wire, "bytes_out") - n_out, 8 * MIB);
}

static void test_two_inputs_in_step(void)
{
    size_t n = 1000000 + random_below(1000000), size;
    struct harness *daemon = harness_start();
    float *x = random_new_floats(n), *y = random_new_floats(n), *want = random_new(n * 4);

    harness_write(daemon, "x", x, n * sizeof(float));
    harness_write(daemon, "y", y, n * sizeof(float));
    reference_saxpy(2.5f, x, y, want, n);
    for (unsigned way = 0; way < N_WAYS; way++) {
        const float *got;

        run(daemon, ways[way].path, "saxpy -p a=2.5 -i x -i y %s", ways[way].options);
        got = harness_read(daemon, "out", &size);
        CHECK_EQ(size, n * sizeof(float));
        reference_check_floats(got, want, n);
    }
}

static void test_a_reduction(void)
{
    size_t n = 1000000 + random_below(1000000), size;
    struct harness *daemon = harness_start();
    float *x = random_new_floats(n);
    double sums[N_WAYS];

    harness_write(daemon, "x", x, n * sizeof(float));
    for (unsigned way = 0; way < N_WAYS; way++) {
        run(daemon, ways[way].path, "sum -i x %s", ways[way].options);
        memcpy(&sums[way], harness_read(daemon, "out", &size), sizeof(sums[way]));
        CHECK_EQ(size, sizeof(sums[way]));
        reference_check_sum(sums[way], x, n);
    }
    CHECK_MEM(&sums[0], &sums[1], sizeof(sums[0]));
}

/* The last record is short by a random number of bytes: hashed as it is, or with zeros behind it,
 * which must not be those of the push before. */
static void test_tails(void)
{
    size_t n_blocks = 500 + random_below(500), n_lacking = 1 + random_below(4095);
    size_t size = n_blocks * 4096 - n_lacking;
    struct harness *daemon = harness_start();
    uint8_t *bytes = random_new(n_blocks * 4096);
    const uint8_t *as_it_is, *padded;

    harness_write(daemon, "in", bytes, size);
    as_it_is = reference_sha256(daemon, bytes, size, 4096);
    memset(bytes + size, 0, n_lacking);
    padded = reference_sha256(daemon, bytes, n_blocks * 4096, 4096);
    for (unsigned way = 0; way < N_WAYS; way++) {
        const char *options = ways[way].options;

        run(daemon, ways[way].path, "sha256 -i in --tail short %s", options);
        check_file(daemon, "out", as_it_is, n_blocks * 32);
        run(daemon, ways[way].path, "sha256 -i in --tail zero %s --chunk 64K", options);
        check_file(daemon, "out", padded, n_blocks * 32);
        shell(daemon, FAILED, "cli run sha256 -i in -o none %s", options);
        CHECK_HAS(output.err, "not a multiple of the record's 4096");
    }
}

/* ---- which way ------------------------------------------------------------------------------ */

static void test_small_inputs_take_the_socket(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (int more = -1; more <= 1; more++) {
        size_t size = (size_t)(MIB + more);
        const void *bytes = write_random(daemon, "in", size);

        run(daemon, more < 0 ? "inline" : "ring", "copy -i in");
        check_file(daemon, "out", bytes, size);
        CHECK_EQ(stat_of(wire, "rings_total"), more + 1);
    }
    /* All inputs count together. */
    write_random(daemon, "x", MIB / 2);
    write_random(daemon, "y", MIB / 2);
    run(daemon, "ring", "saxpy -p a=1 -i x -i y");
    shell(daemon, OK, "truncate -s -4 x && truncate -s -4 y");
    run(daemon, "inline", "saxpy -p a=1 -i x -i y");
}

/* With such pushes the ring would be larger than the input. */
static void test_pushes_that_are_too_large_for_a_ring(void)
{
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", 30 * MIB);

    run(daemon, "inline", "copy -i in --chunk 16M");
    check_file(daemon, "out", bytes, 30 * MIB);
    run(daemon, "ring", "copy -i in --chunk 2M");
    check_file(daemon, "out", bytes, 30 * MIB);
}

/* Nobody knows how much will come. */
static void test_pipes_take_a_ring(void)
{
    static const size_t sizes[] = {1, 70000, 5 * MIB + 13};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const void *bytes = write_random(daemon, "in", sizes[i]);

        shell(daemon, OK, "rm -f fifo; mkfifo fifo");
        for (unsigned way = 0; way < N_WAYS; way++) {
            shell(daemon, OK, "cat in > fifo & cli --json run copy -i fifo -o out -f %s && wait",
                  ways[way].options);
            CHECK_HAS(output.out, ways[way].path);
            check_file(daemon, "out", bytes, sizes[i]);
            shell(daemon, OK, "cat in | cli run copy -i - -o - %s | cmp in -", ways[way].options);
        }
    }
    /* Without records there is no way that they took. */
    shell(daemon, OK, "cli --json run copy -i /dev/null -o out -f && test ! -s out");
    CHECK_HAS(output.out, "\"path\": null");
    check_no_ring_is_left(wire);
}

static void test_a_daemon_without_rings(void)
{
    struct harness *daemon = harness_start("--ring-pool", "0");
    const void *bytes = write_random(daemon, "in", 5 * MIB);

    run(daemon, "inline", "copy -i in");
    check_file(daemon, "out", bytes, 5 * MIB);
    shell(daemon, OK, "cat in | cli --json run copy -o out -f");
    CHECK_HAS(output.out, "\"path\": \"inline\"");
    check_file(daemon, "out", bytes, 5 * MIB);
}

/* Somebody else of the same user has all that a user may have. */
static void test_a_user_with_no_rings_left(void)
{
    struct harness *daemon = harness_start("--ring-pool", "64M");
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *large = ring_client_open(wire, 32 * MIB);
    struct ring_client *small = ring_client_open(wire, 16 * MIB);
    const void *bytes = write_random(daemon, "in", 5 * MIB);

    wire_refused(wire, "QUOTA", "", "ring.open", "[%lu, {}]", (uint64_t)MIB);
    run(daemon, "inline", "copy -i in");
    check_file(daemon, "out", bytes, 5 * MIB);
    CHECK_EQ(stat_of(wire, "rings_total"), 2);
    ring_client_close(small);
    run(daemon, "ring", "copy -i in");
    check_file(daemon, "out", bytes, 5 * MIB);
    ring_client_close(large);
    check_no_ring_is_left(wire);
}

static void test_a_private_daemon_has_rings(void)
{
    struct harness *harness = harness_create();
    const void *bytes = write_random(harness, "in", 5 * MIB);

    for (unsigned way = 0; way < N_WAYS; way++) {
        run(harness, ways[way].path, "copy -i in --private --require cpu %s", ways[way].options);
        check_file(harness, "out", bytes, 5 * MIB);
    }
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void close_at_end(void *arg)
{
    close((int)(intptr_t)arg);
}

/* A job in a ring that cannot end: its input is a FIFO that we hold open.  When this returns, a
 * window of pushes is under way, or was.  Returns the program's pid. */
static pid_t begin_endless_job(struct harness *daemon, struct wire *wire, const char *op)
{
    enum { SIZE = MIB / 2, CHUNK = 65536 };
    uint8_t *bytes = random_new(SIZE);
    size_t n_written = 0;
    pid_t pid;
    int fd;

    CHECK_EQ(mkfifo(harness_path(daemon, "endless"), 0600), 0);
    fd = open(harness_path(daemon, "endless"), O_RDWR | O_CLOEXEC);
    CHECK_GE(fd, 0);
    check_at_end(close_at_end, (void *)(intptr_t)fd);
    pid = harness_shell_begin(daemon, "exec \"$GPUPIPE_CLI\" run %s -i endless -o out --chunk %d",
                              op, CHUNK);
    while (n_written < SIZE) {
        ssize_t n = write(fd, bytes + n_written, SIZE - n_written);

        CHECK_GT(n, 0);
        n_written += (size_t)n;
    }
    HARNESS_WAIT(stat_of(wire, "pushes_total") >= LIMIT_WINDOW_DEFAULT);
    CHECK_EQ(stat_of(wire, "rings"), 1);
    CHECK_GT(stat_of(wire, "ring_pool_used"), 0);
    return pid;
}

static void check_ends(struct harness *daemon, struct wire *wire, pid_t pid, int code)
{
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, code);
    CHECK_EQ(n_files(daemon, "out"), 1); /* "stdout" alone */
    check_no_ring_is_left(wire);
    wire_check_works(wire);
}

static void test_an_interrupted_run_leaves_no_ring(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire, "copy");

    kill(pid, SIGINT);
    check_ends(daemon, wire, pid, INTERRUPTED);
}

/* The device is still at work in the ring when its owner goes. */
static void test_a_run_interrupted_at_work_leaves_no_ring(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire, "iterate -p n=100000");

    kill(pid, SIGINT);
    check_ends(daemon, wire, pid, INTERRUPTED);
}

static void test_a_killed_run_leaves_no_ring(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire, "copy");

    kill(pid, SIGKILL);
    harness_shell_end(daemon, pid, &output);
    check_no_ring_is_left(wire);
}

static void test_a_run_cancelled_from_outside(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire, "copy");

    wire_call(wire, "job.cancel", "[%lu]",
              (uint64_t)wire_number(wire_call(wire, "job.list", "[{all: true}]"), "0.job"));
    check_ends(daemon, wire, pid, FAILED);
    CHECK_HAS(output.err, "CANCELLED");
}

static void test_a_deadline_in_a_ring(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    shell(daemon, OK, "mkfifo held");
    for (unsigned way = 0; way < N_WAYS; way++) {
        shell(daemon, DEADLINE,
              "exec 3<>held; head -c 50000 /dev/urandom >&3; "
              "cli run copy -i held -o out --deadline 300ms %s",
              ways[way].options);
        CHECK_HAS(output.err, "DEADLINE");
        CHECK(!exists(daemon, "out"));
    }
    check_no_ring_is_left(wire);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static struct harness *start_with(const char *worker)
{
    static const char *const options[] = {"--backend",     "cpu", "--devices", "cpu0",
                                          "--pinned-pool", "64M", NULL};
    struct harness *harness = harness_create();

    harness_place_worker(harness, "cpu", getenv(worker));
    harness_launch(harness, options);
    return harness;
}

/* A completion in a ring is a number; the user gets the device's words all the same. */
static void test_a_failure_has_the_same_words(void)
{
    char words[sizeof(output.err)];
    struct harness *daemon = start_with("FAKE_WORKER");
    struct wire *wire = wire_connect(harness_socket(daemon));

    write_random(daemon, "in", 5 * MIB);
    for (unsigned way = 0; way < N_WAYS; way++) {
        shell(daemon, FAILED, "cli run affine -p add=%d -i in -o out --chunk 256K %s",
              STATUS_KERNEL_FAULT, ways[way].options);
        CHECK_HAS(output.err, "KERNEL_FAULT: op affine on device cpu0: " FAKE_ERROR);
        if (way > 0) {
            CHECK_STR(output.err, words);
        }
        snprintf(words, sizeof(words), "%s", output.err);
    }
    CHECK(!exists(daemon, "out"));
    check_no_ring_is_left(wire);
    CHECK_EQ(stat_of(wire, "rings_total"), 1);
}

/* The ring is there already, and goes; the words are those of a job with inline data. */
static void test_refused_jobs(void)
{
    static const struct {
        const char *options, *says;
        unsigned n_rings;
    } rows[] = {
        {"saxpy -p b=1 -i in -i in", "INVALID_PARAM", 1},
        {"copy -i in --device cpu31", "NO_DEVICE", 0},
        {"sha256 -p block=0 -i in", "block", 0},
        {"sha256 -p block=4194304000 -i in", "block", 0},
    };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    write_random(daemon, "in", 5 * MIB);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char words[sizeof(output.err)];
        uint64_t n_rings = stat_of(wire, "rings_total");

        shell(daemon, FAILED, "cli run %s -o out --inline", rows[i].options);
        CHECK_HAS(output.err, rows[i].says);
        snprintf(words, sizeof(words), "%s", output.err);
        shell(daemon, FAILED, "cli run %s -o out", rows[i].options);
        CHECK_STR(output.err, words);
        CHECK_EQ(stat_of(wire, "rings_total") - n_rings, rows[i].n_rings);
    }
    check_no_ring_is_left(wire);
}

static void test_a_worker_that_dies(void)
{
    struct harness *daemon = start_with("FAKE_WORKER");
    struct wire *wire = wire_connect(harness_socket(daemon));

    write_random(daemon, "in", 5 * MIB);
    shell(daemon, FAILED, "cli run affine -p add=%u -i in -o out", (unsigned)FAKE_DIES);
    CHECK_HAS(output.err, "DEVICE_LOST");
    CHECK(!exists(daemon, "out"));
    check_no_ring_is_left(wire);
    run(daemon, "ring", "affine -p add=0 -i in");
}

static void test_a_daemon_that_goes_away(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    pid_t pid = begin_endless_job(daemon, wire, "copy");

    harness_signal(daemon, SIGKILL);
    harness_wait_exit(daemon);
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, UNREACHABLE);
    CHECK_EQ(n_files(daemon, "out"), 1);
}

static void test_an_output_that_is_full(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    write_random(daemon, "in", 5 * MIB);
    for (unsigned way = 0; way < N_WAYS; way++) {
        shell(daemon, FAILED, "cli run copy -i in -o /dev/full %s", ways[way].options);
        CHECK_HAS(output.err, "No space left");
    }
    check_no_ring_is_left(wire);
}

CHECK_MAIN(CHECK_TEST(test_copies_are_the_input), CHECK_TEST(test_bytes_do_not_cross_the_socket),
           CHECK_TEST(test_two_inputs_in_step), CHECK_TEST(test_a_reduction),
           CHECK_TEST(test_tails), CHECK_TEST(test_small_inputs_take_the_socket),
           CHECK_TEST(test_pushes_that_are_too_large_for_a_ring),
           CHECK_TEST(test_pipes_take_a_ring), CHECK_TEST(test_a_daemon_without_rings),
           CHECK_TEST(test_a_user_with_no_rings_left), CHECK_TEST(test_a_private_daemon_has_rings),
           CHECK_TEST(test_an_interrupted_run_leaves_no_ring),
           CHECK_TEST(test_a_run_interrupted_at_work_leaves_no_ring),
           CHECK_TEST(test_a_killed_run_leaves_no_ring),
           CHECK_TEST(test_a_run_cancelled_from_outside), CHECK_TEST(test_a_deadline_in_a_ring),
           CHECK_TEST(test_a_failure_has_the_same_words), CHECK_TEST(test_refused_jobs),
           CHECK_TEST(test_a_worker_that_dies), CHECK_TEST(test_a_daemon_that_goes_away),
           CHECK_TEST(test_an_output_that_is_full))
