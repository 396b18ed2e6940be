/*
 * The worker program, with the test as its front end and no daemon: the greeting, work of every
 * kind, messages that are wrong, and every way in which a worker ends.
 *
 * GPUPIPE_WORKER is the program, whatever its backend; GPUPIPE_BACKEND says which that is.  A
 * backend that finds no device says so in place of its greeting, and the test is skipped.
 */
#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define REAL         "GPUPIPE_WORKER"
#define SEGMENT_SIZE (1u << 20)

static struct front front; /* of the running test */

/* What is peculiar to each backend. */
static const struct backend {
    const char *name;
    const char *device;
    const char *chunk_size;
    bool has_threads;
} backends[] = {
    {"cpu", "cpu0", "\nchunk_size=1048576\n", true},
    {"cuda", "cuda0", "\nchunk_size=4194304\n", false},
};

static const struct backend *backend(void)
{
    const char *name = getenv("GPUPIPE_BACKEND");

    for (uint32_t i = 0; i < ARRAY_SIZE(backends); i++) {
        if (name != NULL && strcmp(backends[i].name, name) == 0) {
            return &backends[i];
        }
    }
    CHECK_FAIL("GPUPIPE_BACKEND names no backend");
}

/* ---- the command line ---------------------------------------------------------------------- */

/* Output and exit status of the worker, run by hand. */
static int run_by_hand(const char *arguments, char *ret_output, size_t size)
{
    char command[512];
    FILE *pipe;
    size_t n;

    snprintf(command, sizeof(command), "'%s' %s 2>&1 3<&-", getenv(REAL), arguments);
    pipe = popen(command, "re");
    CHECK(pipe != NULL);
    n = fread(ret_output, 1, size - 1, pipe);
    ret_output[n] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void test_probe(void)
{
    char output[4096], words[128];
    int code = run_by_hand("--probe", output, sizeof(output));

    if (code == EXIT_FAILURE && strstr(output, "NO_DEVICE: ") != NULL) {
        output[strcspn(output, "\n")] = '\0';
        CHECK_SKIP("%.200s", output);
    }
    CHECK_EQ(code, 0);
    snprintf(words, sizeof(words), "backend=%s\ndevice=%s\nname=", backend()->name,
             backend()->device);
    CHECK_HAS(output, words);
    CHECK_HAS(output, "\nmemory=");
    CHECK_HAS(output, backend()->chunk_size);
    CHECK_HAS(output, "\nbulk_chunks=");
    CHECK_HAS(output, "\nbulk_bytes=");
    CHECK_HAS(output, "\nthreads=");
    CHECK_HAS(output, "\nops=copy,saxpy,sha256,sum\n");
}

static void test_command_line(void)
{
    char output[4096], version[128];

    CHECK_EQ(run_by_hand("--version", output, sizeof(output)), 0);
    snprintf(version, sizeof(version), "gpupipe-worker-%s %s\n", backend()->name, GPUPIPE_VERSION);
    CHECK_STR(output, version);
    CHECK_EQ(run_by_hand("--help", output, sizeof(output)), 0);
    CHECK_HAS(output, "--probe");
    CHECK_EQ(run_by_hand("", output, sizeof(output)), 2);
    CHECK_HAS(output, "no control socket");
    CHECK_EQ(run_by_hand("3</dev/null", output, sizeof(output)), 2);
    CHECK_HAS(output, "no control socket");
    CHECK_EQ(run_by_hand("--nonsense", output, sizeof(output)), 2);
    CHECK_HAS(output, "--help");
    CHECK_EQ(run_by_hand("--probe --probe", output, sizeof(output)), 2);
}

/* ---- the greeting -------------------------------------------------------------------------- */

static void test_greeting(void)
{
    struct failure failure;

    front_start_ready(&front, REAL, 0);
    CHECK_STR(front.caps.backend, backend()->name);
    CHECK_STR(front.caps.device, backend()->device);
    CHECK_EQ(front.caps.n_threads > 0, backend()->has_threads);
    CHECK_GE(front.caps.bulk_chunks, 2);
    CHECK_EQ(front.caps.n_ops, 4);
    for (uint32_t i = 0; i < front.caps.n_ops; i++) {
        CHECK_EQ(manifest_check(&front.ops[i], &failure), 0);
    }
    CHECK_STR(front.ops[0].name, "copy");
}

static void test_process_settings(void)
{
    char path[64], score[16] = "";
    int fd;

    front_start(&front, REAL);
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", front.pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_GT(read(fd, score, sizeof(score) - 1), 0);
    close(fd);
    CHECK_GE(atoi(score), 500);
}

/* ---- work ---------------------------------------------------------------------------------- */

/* y = a x + y, each array in a segment of its own, in chunks whose answers may come in any order.
 */
static void test_map_over_several_segments(void)
{
    enum { N_RECORDS = 200000, N_CHUNKS = 40, CHUNK = N_RECORDS / N_CHUNKS };
    struct front_answer answers[N_CHUNKS];
    const struct value a = {.name = "a", .kind = VALUE_FLOAT, .f = 2.5};
    uint8_t params[LIMIT_PARAM_BYTES];
    struct failure failure;
    float *x, *y, *z;
    uint32_t op;

    front_start_ready(&front, REAL, UINT32_MAX - 20);
    op = front_op(&front, "saxpy");
    CHECK_EQ(manifest_pack(&front.ops[op], &a, 1, params, &failure), 0);
    front_set_job(&front, 3, op, params, sizeof(params));
    x = front_add_segment(&front, 1, SEGMENT_SIZE);
    y = front_add_segment(&front, 5, SEGMENT_SIZE);
    z = front_add_segment(&front, 2, SEGMENT_SIZE);
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        x[i] = (float)(int32_t)random_u64() / 1024;
        y[i] = (float)(int32_t)random_u64() / 4096;
    }
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        size_t offset = i * CHUNK * sizeof(float);
        front_submit(&front, i % PRIORITY_COUNT,
                     (struct work_entry){
                         .job_slot = 3,
                         .n_records = CHUNK,
                         .ref = {WORK_REF(1, offset), WORK_REF(5, offset), WORK_REF(2, offset)},
                         .tag = i});
    }
    front_await(&front, answers, N_CHUNKS);
    for (uint32_t i = 0; i < N_CHUNKS; i++) {
        CHECK_EQ(answers[i].result.status, STATUS_OK);
        CHECK_EQ(answers[i].result.out_size[0], CHUNK * sizeof(float));
        CHECK_LE(answers[i].result.issue_ns, answers[i].result.start_ns);
        CHECK_LE(answers[i].result.start_ns, answers[i].result.end_ns);
        CHECK_EQ(answers[i].entry.tag % PRIORITY_COUNT, answers[i].priority);
    }
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        volatile float product = 2.5f * x[i]; /* rounded twice, never fused */
        float expected = product + y[i];
        CHECK_MEM(&z[i], &expected, sizeof(expected));
    }
    CHECK_EQ(((uint32_t *)z)[N_RECORDS], 0xa5a5a5a5u);
}

/* LEAVES over chunks that are multiples of the leaf, MERGE twice, FINISH; whole numbers are exact.
 */
static void test_reduce(void)
{
    enum { N_RECORDS = 200000 };
    struct work_result result;
    const struct manifest_op *op;
    uint32_t split, n_leaves, n_first;
    double expected = 0, got;
    float *x;
    void *out;

    front_start_ready(&front, REAL, 0);
    op = &front.ops[front_op(&front, "sum")];
    front_set_job(&front, 0, front_op(&front, "sum"), NULL, 0);
    x = front_add_segment(&front, 0, SEGMENT_SIZE);
    out = front_add_segment(&front, 1, SEGMENT_SIZE);
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        int32_t whole = (int32_t)random_u64() / 256;
        x[i] = (float)whole;
        expected += (double)x[i];
    }
    n_leaves = (uint32_t)div_round_up(N_RECORDS, op->leaf);
    n_first = n_leaves / 2;
    split = n_first * op->leaf;
    /* Partials from 4096 on, folds at 0 and 1024, the result at 2048. */
    result = front_run(&front, PRIORITY_BULK,
                       (struct work_entry){.kind = WORK_LEAVES,
                                           .n_records = split,
                                           .ref = {WORK_REF(0, 0), WORK_REF(1, 4096)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(result.out_size[0], n_first * op->partial_size);
    result =
        front_run(&front, PRIORITY_BULK,
                  (struct work_entry){.kind = WORK_LEAVES,
                                      .n_records = N_RECORDS - split,
                                      .ref = {WORK_REF(0, split * sizeof(float)),
                                              WORK_REF(1, 4096 + n_first * op->partial_size)}});
    CHECK_EQ(result.status, STATUS_OK);
    result =
        front_run(&front, PRIORITY_NORMAL,
                  (struct work_entry){.kind = WORK_MERGE,
                                      .n_records = n_first,
                                      .ref = {WORK_REF_NONE, WORK_REF(1, 4096), WORK_REF(1, 0)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(result.out_size[0], op->partial_size);
    result = front_run(
        &front, PRIORITY_NORMAL,
        (struct work_entry){.kind = WORK_MERGE,
                            .n_records = n_leaves - n_first,
                            .ref = {WORK_REF(1, 0), WORK_REF(1, 4096 + n_first * op->partial_size),
                                    WORK_REF(1, 1024)}});
    CHECK_EQ(result.status, STATUS_OK);
    result = front_run(&front, PRIORITY_URGENT,
                       (struct work_entry){.kind = WORK_FINISH,
                                           .n_records = 1,
                                           .ref = {WORK_REF(1, 1024), WORK_REF(1, 2048)}});
    CHECK_EQ(result.status, STATUS_OK);
    memcpy(&got, (char *)out + 2048, sizeof(got));
    CHECK(got == expected);
}

/* No records at all: an empty fold, made of nothing, is still a result. */
static void test_reduce_of_nothing(void)
{
    struct work_result result;
    double *out;

    front_start_ready(&front, REAL, 0);
    front_set_job(&front, 0, front_op(&front, "sum"), NULL, 0);
    out = front_add_segment(&front, 1, 4096);
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.kind = WORK_MERGE,
                                           .ref = {WORK_REF_NONE, WORK_REF_NONE, WORK_REF(1, 0)}});
    CHECK_EQ(result.status, STATUS_OK);
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.kind = WORK_FINISH,
                                           .n_records = 1,
                                           .ref = {WORK_REF(1, 0), WORK_REF(1, 1024)}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK(out[128] == 0.0);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void test_end_of_file_ends_it(void)
{
    front_start_ready(&front, REAL, 0);
    close(steal_fd(&front.control_fd));
    front_expect_exit(&front, 0);
}

static void test_end_of_file_before_queues_ends_it(void)
{
    front_start(&front, REAL);
    close(steal_fd(&front.control_fd));
    front_expect_exit(&front, 0);
}

static void test_stop(void)
{
    const struct control_message stop = {.type = CONTROL_STOP, .abi = WORKER_ABI};

    front_start_ready(&front, REAL, 0);
    front_add_segment(&front, 0, SEGMENT_SIZE);
    front_send(&front, &stop, NULL, 0);
    front_expect_exit(&front, 0);
}

/* A terminal or a service manager may send it; only the front end decides. */
static void test_signals_do_not_end_it(void)
{
    front_start_ready(&front, REAL, 0);
    kill(front.pid, SIGTERM);
    kill(front.pid, SIGINT);
    kill(front.pid, SIGHUP);
    front_ping(&front);
}

/* The middle process starts the worker and is killed; we hold the socket, so no end of file helps.
 */
static void test_a_killed_front_end_ends_it(void)
{
    struct control_message hello;
    int fds[2], status;
    uint32_t n_fds = 0;
    int pids[2];
    pid_t middle, worker = 0;

    CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    CHECK_EQ(channel_pair(false, fds), 0);
    CHECK_EQ(pipe2(pids, O_CLOEXEC), 0);
    middle = fork();
    if (middle == 0) {
        worker = front_spawn(getenv(REAL), fds[1]);
        close(fds[1]);
        _exit(write(pids[1], &worker, sizeof(worker)) < 0 || pause());
    }
    close(fds[1]);
    close(pids[1]);
    CHECK_GT(middle, 0);
    CHECK_EQ(read(pids[0], &worker, sizeof(worker)), sizeof(worker));
    CHECK_EQ(channel_receive_packet(fds[0], &hello, sizeof(hello), NULL, &n_fds), sizeof(hello));
    CHECK_EQ(kill(middle, SIGKILL), 0);
    CHECK_EQ(waitpid(middle, NULL, 0), middle);
    CHECK_EQ(waitpid(worker, &status, 0), worker);
    close(fds[0]);
    close(pids[0]);
    front_need_hello(&hello);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
}

static void expect_fatal(const char *words)
{
    struct control_message fatal;

    front_expect(&front, CONTROL_FATAL, &fatal);
    CHECK_NE(fatal.fatal.status, STATUS_OK);
    CHECK_HAS(fatal.fatal.message, words);
    front_expect_exit(&front, EXIT_FAILURE << 8);
    front_finish(&front);
}

static struct control_message message_of(uint32_t type)
{
    return (struct control_message){.type = type, .abi = WORKER_ABI};
}

static void test_wrong_control_messages(void)
{
    struct control_message message = message_of(CONTROL_PING);

    front_start(&front, REAL);
    message.abi = WORKER_ABI + 1;
    front_send(&front, &message, NULL, 0);
    expect_fatal("ABI");

    front_start(&front, REAL);
    message = message_of(CONTROL_HELLO);
    front_send(&front, &message, NULL, 0);
    expect_fatal("type 1");

    front_start(&front, REAL);
    message = message_of(UINT32_MAX);
    front_send(&front, &message, NULL, 0);
    expect_fatal("type 4294967295");

    front_start(&front, REAL);
    CHECK_EQ(channel_send_packet(front.control_fd, &message, 8, NULL, 0), 0);
    expect_fatal("8 bytes");

    front_start(&front, REAL);
    message = message_of(CONTROL_QUEUES);
    front_send(&front, &message, NULL, 0);
    expect_fatal("descriptors");
}

static void test_wrong_queues(void)
{
    struct control_message message = message_of(CONTROL_QUEUES);
    int fds[3];

    front_start_ready(&front, REAL, 0);
    fds[0] = queue_fd(front.queue);
    fds[1] = fds[2] = front.jobs_fd;
    front_send(&front, &message, fds, 3);
    expect_fatal("QUEUES came twice");

    front_start(&front, REAL);
    fds[0] = fds[1] = fds[2] = shm_create("no-queue", 4096);
    CHECK_GE(fds[0], 0);
    front_send(&front, &message, fds, 3);
    close(fds[0]);
    expect_fatal("cannot map the queues");

    front_start(&front, REAL);
    CHECK_EQ(queue_create(1, &front.queue), 0);
    fds[0] = fds[1] = fds[2] = queue_fd(front.queue);
    message.queues.n_job_slots = UINT32_MAX;
    front_send(&front, &message, fds, 3);
    expect_fatal("cannot map the job block");
}

static void test_wrong_segments(void)
{
    struct control_message message = message_of(CONTROL_SEGMENT_DROP);
    int fd = shm_create("segment", 4096);

    CHECK_GE(fd, 0);
    front_start_ready(&front, REAL, 0);
    message.segment.id = 5;
    front_send(&front, &message, NULL, 0);
    expect_fatal("no segment 5");

    front_start_ready(&front, REAL, 0);
    front_add_segment(&front, 1, 4096);
    message = message_of(CONTROL_SEGMENT_ADD);
    message.segment.id = 1;
    message.segment.size = 4096;
    front_send(&front, &message, &fd, 1);
    expect_fatal("segment 1");

    front_start_ready(&front, REAL, 0);
    message.segment.id = 1 << 16;
    front_send(&front, &message, &fd, 1);
    expect_fatal("segment 65536");

    front_start_ready(&front, REAL, 0);
    message.segment.id = 0;
    message.segment.size = 8192;
    front_send(&front, &message, &fd, 1);
    expect_fatal("8192 bytes");
    close(fd);
}

/* A tail that no front end writes: the data thread says so and the process ends. */
static void test_broken_queues(void)
{
    struct stat stat;
    uint8_t *bytes;
    void *base;

    front_start_ready(&front, REAL, 0);
    CHECK_EQ(fstat(queue_fd(front.queue), &stat), 0);
    CHECK_EQ(shm_map(queue_fd(front.queue), (size_t)stat.st_size, &base), 0);
    bytes = base;
    memset(bytes + 64, 0xa5, (size_t)stat.st_size - 64);
    shm_unmap(base, (size_t)stat.st_size);
    channel_ring(front.doorbell_fd);
    expect_fatal("work queues");
}

CHECK_MAIN(CHECK_TEST(test_probe), CHECK_TEST(test_command_line), CHECK_TEST(test_greeting),
           CHECK_TEST(test_process_settings), CHECK_TEST(test_map_over_several_segments),
           CHECK_TEST(test_reduce), CHECK_TEST(test_reduce_of_nothing),
           CHECK_TEST(test_end_of_file_ends_it), CHECK_TEST(test_end_of_file_before_queues_ends_it),
           CHECK_TEST(test_stop), CHECK_TEST(test_signals_do_not_end_it),
           CHECK_TEST(test_a_killed_front_end_ends_it), CHECK_TEST(test_wrong_control_messages),
           CHECK_TEST(test_wrong_queues), CHECK_TEST(test_wrong_segments),
           CHECK_TEST(test_broken_queues))
