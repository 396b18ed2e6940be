/* gpupipe-cli's files and its loop, against a server that follows a script. */
#include "client/cli/cli.h"
#include "client/cli/stream.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/fake_server.h"
#include "tests/unit/quietly.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a folder ------------------------------------------------------------------------------ */

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void remove_folder(void *arg)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;

    (void)arg;
    while ((entry = readdir(entries)) != NULL) {
        unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_cli_XXXXXX");
    if (mkdtemp(folder) == NULL) {
        abort();
    }
    check_at_end(remove_folder, NULL);
}

static unsigned n_files(void)
{
    DIR *entries = opendir(folder);
    unsigned n = 0;

    while (readdir(entries) != NULL) {
        n++;
    }
    closedir(entries);
    return n - 2; /* . and .. */
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) {
        abort();
    }
    close(fd);
}

static void check_file(const char *name, const void *bytes, size_t size)
{
    uint8_t *got = malloc(size + 1);
    int fd = open(in_folder(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, got, size + 1);

    close(fd);
    if (n != (ssize_t)size || memcmp(got, bytes, size) != 0) {
        free(got);
        CHECK_FAIL("%s has %zd bytes, %zu expected, or differs", name, n, size);
    }
    free(got);
}

/* ---- outputs ------------------------------------------------------------------------------- */

static void test_an_output_appears_when_it_is_whole(void)
{
    struct output output;
    struct stat status;

    make_folder();
    CHECK_EQ(output_open(in_folder("out"), false, true, &output), 0);
    CHECK_EQ(output_write(&output, "abc", 3), 0);
    CHECK_LT(stat(in_folder("out"), &status), 0);
    CHECK_EQ(n_files(), 1);
    CHECK_EQ(output_commit(&output), 0);
    output_abandon(&output);
    check_file("out", "abc", 3);
    CHECK_EQ(n_files(), 1);
}

static void test_an_abandoned_output_leaves_nothing(void)
{
    struct output output;

    make_folder();
    write_file("out", "old", 3);
    CHECK_EQ(output_open(in_folder("out"), true, true, &output), 0);
    CHECK_EQ(output_write(&output, "new!", 4), 0);
    output_abandon(&output);
    check_file("out", "old", 3);
    CHECK_EQ(n_files(), 1);
}

static void test_a_replaced_file_leaves_its_mode(void)
{
    struct output output;
    struct stat status;

    make_folder();
    write_file("out", "old", 3);
    CHECK_EQ(output_open(in_folder("out"), true, true, &output), 0);
    CHECK_EQ(output_write(&output, "new!", 4), 0);
    CHECK_EQ(output_commit(&output), 0);
    output_abandon(&output);
    check_file("out", "new!", 4);
    CHECK_EQ(stat(in_folder("out"), &status), 0);
    CHECK_EQ(status.st_mode & 07777, 0640);
}

static void test_a_file_that_exists_is_not_overwritten(void)
{
    struct output output;

    make_folder();
    write_file("out", "old", 3);
    CHECK_EQ(QUIETLY(output_check(in_folder("out"), false, true)), CLI_FAILED);
    CHECK_HAS(said, "-f overwrites it");
    CHECK_EQ(output_check(in_folder("out"), true, true), 0);
    CHECK_EQ(QUIETLY(output_check(folder, true, true)), CLI_FAILED);
    CHECK_HAS(said, "is a folder");
    /* One that appears meanwhile is safe as well. */
    unlink(in_folder("out"));
    CHECK_EQ(output_open(in_folder("out"), false, true, &output), 0);
    write_file("out", "mine", 4);
    CHECK_EQ(QUIETLY(output_commit(&output)), CLI_FAILED);
    CHECK_HAS(said, "-f overwrites it");
    output_abandon(&output);
    check_file("out", "mine", 4);
    CHECK_EQ(n_files(), 1);
}

static void test_a_link_stays_a_link(void)
{
    struct output output;
    struct stat status;

    make_folder();
    write_file("target", "old", 3);
    CHECK_EQ(symlink("target", in_folder("link")), 0);
    CHECK_EQ(output_open(in_folder("link"), true, true, &output), 0);
    CHECK_EQ(output_write(&output, "new", 3), 0);
    CHECK_EQ(output_commit(&output), 0);
    output_abandon(&output);
    CHECK_EQ(lstat(in_folder("link"), &status), 0);
    CHECK(S_ISLNK(status.st_mode));
    check_file("target", "new", 3);
}

static void test_a_device_is_written_as_it_is(void)
{
    struct output output;

    CHECK_EQ(output_check("/dev/full", false, true), 0);
    CHECK_EQ(output_open("/dev/full", false, true, &output), 0);
    CHECK_EQ(QUIETLY(output_write(&output, "abc", 3)), CLI_FAILED);
    CHECK_HAS(said, "cannot write /dev/full: No space left on device");
    output_abandon(&output);
    CHECK_EQ(access("/dev/full", W_OK), 0);
}

static void test_an_output_where_none_can_be(void)
{
    struct output output;

    make_folder();
    CHECK_EQ(QUIETLY(output_open(in_folder("no/out"), false, true, &output)), CLI_FAILED);
    CHECK_HAS(said, "no/out: No such file or directory");
}

/* ---- streams ------------------------------------------------------------------------------- */

static struct fake_script script;
static struct manifest_op op;
static struct input inputs[2];
static struct output outputs[1];
static enum format format;
static struct progress progress;
static struct stream stream;
static struct gpupipe *gpupipe;
static pid_t server_pid;

static void close_all(void *arg)
{
    (void)arg;
    gpupipe_close(STEAL(gpupipe));
    stream_finish(&stream);
    input_close(&inputs[0]);
    input_close(&inputs[1]);
    output_abandon(&outputs[0]);
    fake_server_end(server_pid);
}

/* A stream from the folder's "x" (and "y") to its "out", ready to run.  max_push 0: the script's.
 */
static void prepare(enum tail tail, uint64_t max_push)
{
    struct msg_job_open request = {.op.name = "fake"};
    int fd;

    script.max_push = max_push == 0 ? script.max_push : max_push;
    format = FORMAT_RAW;

    op = (struct manifest_op){.kind = script.is_reduce ? OP_REDUCE : OP_MAP,
                              .n_in = MAX(script.n_in, 1u),
                              .n_out = 1,
                              .out = {{.name = "result", .dtype = DTYPE_U8, .n_dims = 1}}};
    memset(inputs, 0, sizeof(inputs));
    inputs[0].fd = inputs[1].fd = outputs[0].fd = -1;
    stream = (struct stream){.op = &op,
                             .inputs = inputs,
                             .outputs = outputs,
                             .formats = &format,
                             .tail = tail,
                             .progress = &progress};
    progress_init(&progress, false, 0);
    server_pid = fake_server_start(&script, &fd);
    check_at_end(close_all, NULL);
    CHECK_EQ(call_open_fd(&gpupipe, fd, "test"), 0);
    CHECK_EQ(call_job_open(&stream.job, gpupipe, &request, NULL), 0);
    stream.gpupipe = gpupipe;
    stream.shape = call_job_shape(stream.job);
    CHECK_EQ(input_open("x", in_folder("x"), NULL, &inputs[0]), 0);
    if (op.n_in > 1) {
        CHECK_EQ(input_open("y", in_folder("y"), NULL, &inputs[1]), 0);
    }
    CHECK_EQ(output_open(in_folder("out"), false, true, &outputs[0]), 0);
}

/* A file of random bytes; the caller frees them. */
static uint8_t *make_input(const char *name, size_t size)
{
    uint8_t *bytes = malloc(size + 1);

    random_bytes(bytes, size);
    write_file(name, bytes, size);
    return bytes;
}

static void turn(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= FAKE_XOR;
    }
}

static void test_a_file_of_many_pushes(void)
{
    size_t size = 4 * (200000 + random_below(1000));
    _cleanup_(free_pointer) uint8_t *bytes = NULL;

    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    bytes = make_input("x", size);
    prepare(TAIL_ERROR, 10007);
    stream.n_records = 0;
    CHECK_EQ(stream_run(&stream), 0);
    CHECK_EQ(output_commit(&outputs[0]), 0);
    turn(bytes, size);
    check_file("out", bytes, size);
    CHECK_EQ(stream.n_records, size / 4);
    CHECK_EQ(stream.n_pushes, div_round_up(size / 4, 10007 / 4));
    CHECK_EQ(stream.in_size, size);
    CHECK_EQ(stream.out_size, size);
    CHECK_STR(stream.backend, "cpu");
    CHECK_EQ(stream.timing.out_ns, 4 * stream.n_pushes);
    CHECK_EQ(n_files(), 2);
}

/* The first input is a pipe that trickles, the second a file. */
static void test_a_pipe_in_step_with_a_file(void)
{
    size_t size = 4 * 60000, sent = 0;
    _cleanup_(free_pointer) uint8_t *bytes = NULL, *others = NULL;
    pid_t pid;
    int status;

    make_folder();
    script = (struct fake_script){FAKE_SCRIPT, .n_in = 2};
    bytes = make_input("kept", size);
    others = make_input("y", size);
    CHECK_EQ(mkfifo(in_folder("x"), 0600), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int fd = open(in_folder("x"), O_WRONLY | O_CLOEXEC);

        while (sent < size) {
            size_t n = MIN(size - sent, (size_t)1 + random_below(30000));

            sent += write(fd, bytes + sent, n) == (ssize_t)n ? n : size;
        }
        _exit(0);
    }
    prepare(TAIL_ERROR, 65536);
    CHECK_EQ(stream_run(&stream), 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(output_commit(&outputs[0]), 0);
    turn(bytes, size);
    check_file("out", bytes, size);
    CHECK_EQ(stream.in_size, 2 * size);
}

static void test_an_empty_file(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    write_file("x", "", 0);
    prepare(TAIL_ERROR, 0);
    CHECK_EQ(stream_run(&stream), 0);
    CHECK_EQ(output_commit(&outputs[0]), 0);
    check_file("out", "", 0);
    CHECK_EQ(stream.n_pushes, 0);
}

static void test_a_reduction_as_text(void)
{
    _cleanup_(free_pointer) uint8_t *bytes = NULL;
    char text[16];
    uint8_t fold = 0;

    make_folder();
    script = (struct fake_script){FAKE_SCRIPT, .is_reduce = true};
    bytes = make_input("x", 40000);
    for (int i = 0; i < 40000; i++) {
        fold ^= bytes[i];
    }
    prepare(TAIL_ERROR, 4096);
    format = FORMAT_TEXT;
    CHECK_EQ(stream_run(&stream), 0);
    CHECK_EQ(output_commit(&outputs[0]), 0);
    snprintf(text, sizeof(text), "%02x000000\n", fold);
    check_file("out", text, strlen(text));
    CHECK_EQ(stream.out_size, 4);
}

/* ---- inputs that do not fit ---------------------------------------------------------------- */

static const uint32_t sizes_of_four[] = {4, 4};

static void test_part_of_a_record(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    free(make_input("x", 4001));
    prepare(TAIL_ERROR, 0);
    CHECK_EQ(QUIETLY(input_check(inputs, 1, sizes_of_four, TAIL_ERROR)), CLI_FAILED);
    CHECK_HAS(said, "has 4001 bytes, not a multiple of the record's 4");
    CHECK_HAS(said, "--tail zero");
    CHECK_EQ(input_check(inputs, 1, sizes_of_four, TAIL_SHORT), 0);
    /* Where nothing was known before, reading finds out. */
    CHECK_EQ(QUIETLY(stream_run(&stream)), CLI_FAILED);
    CHECK_HAS(said, "has 4001 bytes, not a multiple of the record's 4");
}

static void test_inputs_of_different_lengths(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT, .n_in = 2};
    free(make_input("x", 40000));
    free(make_input("y", 39996));
    prepare(TAIL_ERROR, 400);
    CHECK_EQ(QUIETLY(input_check(inputs, 2, sizes_of_four, TAIL_ERROR)), CLI_FAILED);
    CHECK_HAS(said, "x has 40000 bytes, 10000 records of 4");
    CHECK_HAS(said, "y has 39996 bytes, 9999 records of 4");
    CHECK_EQ(QUIETLY(stream_run(&stream)), CLI_FAILED);
    CHECK_HAS(said, "must have the same number of records");
    CHECK_HAS(said, "y has 39996 bytes, 9999 records of 4");
}

static void test_a_missing_input(void)
{
    struct input input;

    make_folder();
    CHECK_EQ(QUIETLY(input_open("x", in_folder("none"), NULL, &input)), CLI_FAILED);
    CHECK_HAS(said, "none: No such file or directory");
    CHECK_EQ(QUIETLY(input_open("x", folder, NULL, &input)), CLI_FAILED);
    CHECK_HAS(said, "is a folder");
}

/* ---- jobs that do not end well ------------------------------------------------------------- */

static void test_a_job_that_fails(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    script.fail_seq = 7;
    free(make_input("x", 40000));
    prepare(TAIL_ERROR, 400);
    CHECK_EQ(QUIETLY(stream_run(&stream)), CLI_FAILED);
    CHECK_STR(said, "gpupipe-cli: KERNEL_FAULT: the script says so\n");
    output_abandon(&outputs[0]);
    CHECK_EQ(n_files(), 1);
}

static void test_a_daemon_that_dies(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    script.die_within_seq = 7;
    free(make_input("x", 4000000));
    prepare(TAIL_ERROR, 200000);
    CHECK_EQ(QUIETLY(stream_run(&stream)), CLI_UNREACHABLE);
    CHECK_STR(said, "gpupipe-cli: the daemon closed the connection\n");
    output_abandon(&outputs[0]);
    CHECK_EQ(n_files(), 1);
}

static void test_a_full_disk_ends_the_stream(void)
{
    make_folder();
    script = (struct fake_script){FAKE_SCRIPT};
    free(make_input("x", 4000000));
    prepare(TAIL_ERROR, 200000);
    output_abandon(&outputs[0]);
    CHECK_EQ(output_open("/dev/full", false, true, &outputs[0]), 0);
    CHECK_EQ(QUIETLY(stream_run(&stream)), CLI_FAILED);
    CHECK_HAS(said, "/dev/full: No space left");
}

CHECK_MAIN(CHECK_TEST(test_an_output_appears_when_it_is_whole),
           CHECK_TEST(test_an_abandoned_output_leaves_nothing),
           CHECK_TEST(test_a_replaced_file_leaves_its_mode),
           CHECK_TEST(test_a_file_that_exists_is_not_overwritten),
           CHECK_TEST(test_a_link_stays_a_link), CHECK_TEST(test_a_device_is_written_as_it_is),
           CHECK_TEST(test_an_output_where_none_can_be), CHECK_TEST(test_a_file_of_many_pushes),
           CHECK_TEST(test_a_pipe_in_step_with_a_file), CHECK_TEST(test_an_empty_file),
           CHECK_TEST(test_a_reduction_as_text), CHECK_TEST(test_part_of_a_record),
           CHECK_TEST(test_inputs_of_different_lengths), CHECK_TEST(test_a_missing_input),
           CHECK_TEST(test_a_job_that_fails), CHECK_TEST(test_a_daemon_that_dies),
           CHECK_TEST(test_a_full_disk_ends_the_stream))
