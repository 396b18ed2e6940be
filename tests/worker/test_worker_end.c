/*
 * Every way in which a worker ends, and the one in which it does not: told to, left alone,
 * orphaned, or because its front end breaks the rules of worker_abi.h.
 */
#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/worker/front_end.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define REAL         "GPUPIPE_WORKER"
#define SEGMENT_SIZE (1u << 20)

static struct front front; /* of the running test */

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

/* That it takes SIGBUS over for the sake of rings does not mean that it lives with any. */
static void test_a_bus_error_outside_of_work_ends_it(void)
{
    front_start_ready(&front, REAL, 0);
    kill(front.pid, SIGBUS);
    front_expect_exit(&front, SIGBUS);
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
    front_expect_refusal(&front, 1, fd, 4096, "segment 1");
    front_expect_refusal(&front, 1 << 16, fd, 4096, "segment 65536");
    front_expect_refusal(&front, 0, fd, 8192, "8192 bytes");
    front_add_segment(&front, 0, 4096); /* and goes on */
    close(fd);
}

static void expect_refused_bell(enum control_type type, uint32_t id, const char *words)
{
    struct control_message message = message_of(type);

    message.bell.id = id;
    front_send(&front, &message, &front.doorbell_fd, type == CONTROL_BELL_ADD);
    expect_fatal(words);
}

static void add_bell(uint32_t id, int fd)
{
    struct control_message message = message_of(CONTROL_BELL_ADD);

    message.bell.id = id;
    front_send(&front, &message, &fd, 1);
}

static void test_wrong_bells(void)
{
    front_start_ready(&front, REAL, 0);
    expect_refused_bell(CONTROL_BELL_DROP, 5, "no bell 5");

    front_start_ready(&front, REAL, 0);
    expect_refused_bell(CONTROL_BELL_ADD, WORKER_BELLS, "bell 64");

    front_start_ready(&front, REAL, 0);
    expect_refused_bell(CONTROL_BELL_DROP, UINT32_MAX, "no bell 4294967295");

    front_start_ready(&front, REAL, 0);
    add_bell(3, front.jobs_fd); /* which nobody can wait for: it is there and not heard */
    expect_refused_bell(CONTROL_BELL_ADD, 3, "bell 3 is there");

    front_start(&front, REAL);
    expect_refused_bell(CONTROL_BELL_DROP, 0, "too early");
}

/* The other end finds that nobody has it open any more. */
static void test_a_bell_is_let_go_of(void)
{
    struct control_message drop = message_of(CONTROL_BELL_DROP);
    bool is_closed = true;
    int ends[2];

    front_start_ready(&front, REAL, 0);
    for (drop.bell.id = 0; drop.bell.id < WORKER_BELLS; drop.bell.id++) {
        CHECK_EQ(channel_pair(true, ends), 0);
        add_bell(drop.bell.id, ends[1]);
        close(ends[1]);
        channel_ring(ends[0]);
        front_ping(&front);
        channel_drain(ends[0], &is_closed);
        CHECK(!is_closed);
        front_send(&front, &drop, NULL, 0);
        front_ping(&front);
        channel_drain(ends[0], &is_closed);
        CHECK(is_closed);
        close(ends[0]);
    }
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

CHECK_MAIN(CHECK_TEST(test_end_of_file_ends_it), CHECK_TEST(test_end_of_file_before_queues_ends_it),
           CHECK_TEST(test_stop), CHECK_TEST(test_signals_do_not_end_it),
           CHECK_TEST(test_a_bus_error_outside_of_work_ends_it),
           CHECK_TEST(test_a_killed_front_end_ends_it), CHECK_TEST(test_wrong_control_messages),
           CHECK_TEST(test_wrong_queues), CHECK_TEST(test_wrong_segments),
           CHECK_TEST(test_wrong_bells), CHECK_TEST(test_a_bell_is_let_go_of),
           CHECK_TEST(test_broken_queues))
