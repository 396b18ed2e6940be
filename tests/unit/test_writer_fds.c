/*
 * Descriptors that the writer sends: with their own message's bytes, once, whatever is sent at a
 * time.
 */
#include "proto/channel.h"
#include "proto/util.h"
#include "proto/writer.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/writer_bench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Queue message n: size bytes of value n, with n_fds ends of pipes that hold n each. */
static void queue_with_fds(unsigned n, size_t size, uint32_t n_fds)
{
    static uint8_t bytes[WRITER_MESSAGES_MAX][1000];
    struct writer_message *message = writer_message(n);
    uint8_t value = (uint8_t)n;
    int ends[CHANNEL_FDS_MAX] = {0};

    memset(bytes[n], (int)n, size);
    CHECK_EQ(writer_add_copy(message, bytes[n], size / 2), 0);
    for (uint32_t i = 0; i < n_fds; i++) {
        int pipes[2];

        CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
        CHECK_EQ(write(pipes[1], &value, 1), 1);
        close(pipes[1]);
        ends[i] = pipes[0];
    }
    if (n_fds > 0) {
        CHECK_EQ(writer_add_fds(message, ends, n_fds), 0);
    }
    for (uint32_t i = 0; i < n_fds; i++) {
        close(ends[i]);
    }
    CHECK_EQ(writer_add_ref(message, bytes[n], size - size / 2), 0);
    writer_queue(writer, message);
}

/* What was received of messages 0, 1, ... */
static size_t n_bytes_of[WRITER_MESSAGES_MAX];
static uint32_t n_fds_of[WRITER_MESSAGES_MAX];

static void note_fds(uint8_t n, const int *fds, uint32_t n_fds)
{
    for (uint32_t i = 0; i < n_fds; i++) {
        uint8_t value = 0xa5;

        CHECK_EQ(read(fds[i], &value, 1), 1);
        close(fds[i]);
        CHECK_EQ(value, n);
    }
    n_fds_of[n] += n_fds;
}

/* Receive at most room bytes, in order, and descriptors that are those of the last byte's message.
 * Returns bytes or -errno. */
static ssize_t receive_with_fds(size_t room)
{
    static uint8_t got[4096], last;
    struct iovec iov = {got, MIN(room, sizeof(got))};
    int fds[CHANNEL_FDS_MAX];
    uint32_t n_fds = 0;
    ssize_t n = channel_receive_fds(sockets[1], &iov, 1, fds, CHANNEL_FDS_MAX, &n_fds);

    for (ssize_t i = 0; i < n; i++) {
        CHECK(n_bytes_of[0] == 0 || got[i] >= last);
        last = got[i];
        n_bytes_of[last]++;
    }
    if (n > 0 && n_fds > 0) {
        note_fds(last, fds, n_fds);
    }
    return n;
}

static void open_with_fds(void)
{
    writer_open();
    memset(n_bytes_of, 0, sizeof(n_bytes_of));
    memset(n_fds_of, 0, sizeof(n_fds_of));
}

static void test_descriptors_leave_with_their_message(void)
{
    open_with_fds();
    queue_with_fds(0, 10, 0);
    queue_with_fds(1, 10, 0);
    queue_with_fds(2, 20, 3);
    queue_with_fds(3, 20, CHANNEL_FDS_MAX);
    queue_with_fds(4, 10, 0);
    queue_with_fds(5, 10, 1);
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 1);
    CHECK_EQ(receive_with_fds(4096), 40);
    CHECK_EQ(n_fds_of[2], 3);
    CHECK_EQ(receive_with_fds(4096), 20);
    CHECK_EQ(n_fds_of[3], CHANNEL_FDS_MAX);
    CHECK_EQ(receive_with_fds(4096), 20);
    CHECK_EQ(n_fds_of[5], 1);
    CHECK_EQ(receive_with_fds(4096), -EAGAIN);
}

static void test_short_sends_send_descriptors_once(void)
{
    open_with_fds();
    queue_with_fds(0, 3, 0);
    queue_with_fds(1, 5, 2);
    queue_with_fds(2, 1, 2);
    queue_with_fds(3, 4, 0);
    for (unsigned n = 1; n <= 13; n++) {
        int n_fds = check_count_fds();

        CHECK_EQ(writer_send(writer, sockets[0], 1), n < 13 ? 0 : 1);
        CHECK_EQ(check_count_fds(), n == 4 || n == 9 ? n_fds - 2 : n_fds);
        CHECK_EQ(receive_with_fds(4096), 1);
        CHECK_EQ(n_fds_of[1], n < 4 ? 0 : 2);
        CHECK_EQ(n_fds_of[2], n < 9 ? 0 : 2);
    }
    CHECK_EQ(n_bytes_of[1], 5);
}

/* Messages of any size, with descriptors or without, sent and received in pieces of any size. */
static void any_burst(void)
{
    size_t sizes[24];
    uint32_t n_fds[24];
    int outcome;

    memset(n_bytes_of, 0, sizeof(n_bytes_of));
    memset(n_fds_of, 0, sizeof(n_fds_of));
    for (unsigned i = 0; i < 24; i++) {
        sizes[i] = random_below(2) ? 1 + random_below(3) : 1 + random_below(1000);
        n_fds[i] = random_below(2) ? 0 : (uint32_t)random_below(CHANNEL_FDS_MAX + 1);
        queue_with_fds(i, sizes[i], n_fds[i]);
    }
    do {
        outcome = writer_send(writer, sockets[0], 1 + random_below(2000));
        while (random_below(3) > 0 && receive_with_fds(1 + random_below(3000)) > 0) {
        }
    } while (outcome == 0);
    CHECK_EQ(outcome, 1);
    while (receive_with_fds(1 + random_below(3000)) > 0) {
    }
    for (unsigned i = 0; i < 24; i++) {
        CHECK_EQ(n_bytes_of[i], sizes[i]);
        CHECK_EQ(n_fds_of[i], n_fds[i]);
    }
}

static void test_descriptors_are_those_of_the_last_byte(void)
{
    int n_fds;

    open_with_fds();
    n_fds = check_count_fds();
    for (int i = 0; i < 100; i++) {
        any_burst();
        CHECK_EQ(check_count_fds(), n_fds);
    }
}

static void test_descriptors_wait_for_a_full_socket(void)
{
    static uint8_t full[1 << 20];
    struct writer_message *message;

    open_with_fds();
    message = writer_message(0);
    CHECK_EQ(writer_add_ref(message, full, sizeof(full)), 0);
    writer_queue(writer, message);
    queue_with_fds(1, 10, 2);
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 0);
    while (writer_send(writer, sockets[0], SIZE_MAX) == 0) {
        CHECK_EQ(n_fds_of[1], 0);
        CHECK_GT(receive_with_fds(4096), 0);
    }
    while (receive_with_fds(4096) > 0) {
    }
    CHECK_EQ(n_bytes_of[0], sizeof(full));
    CHECK_EQ(n_bytes_of[1], 10);
    CHECK_EQ(n_fds_of[1], 2);
}

/* A message without a byte was in front, and theirs left without them. */
static void test_descriptors_behind_an_empty_message_are_sent(void)
{
    open_with_fds();
    queue_with_fds(0, 0, 0);
    queue_with_fds(1, 10, 2);
    queue_with_fds(2, 0, 0);
    CHECK_EQ(writer_send(writer, sockets[0], SIZE_MAX), 1);
    CHECK_EQ(receive_with_fds(4096), 10);
    CHECK_EQ(n_fds_of[1], 2);
    CHECK_EQ(n_sent[0] + n_sent[1] + n_sent[2], 3);
}

enum { FEW = 32 }; /* descriptors that the crowded process may have */

/* What it saw, in memory that it shares with the test. */
struct crowd {
    int as_user; /* 0 or errno */
    unsigned n_queued;
    int outcome, again, last;                /* of the sends */
    bool is_behind_kept, is_before, is_late; /* what had arrived */
};

static bool receive_one(uint8_t n, uint32_t n_fds_wanted)
{
    uint8_t got = 0xa5;
    struct iovec iov = {&got, 1};
    int fds[CHANNEL_FDS_MAX];
    uint32_t n_fds = 0;
    bool is_right = channel_receive_fds(sockets[1], &iov, 1, fds, CHANNEL_FDS_MAX, &n_fds) == 1 &&
                    got == n && n_fds == n_fds_wanted;

    for (uint32_t i = 0; is_right && i < n_fds; i++) {
        close(fds[i]);
    }
    return is_right;
}

static void queue_one(uint8_t n, bool has_fds)
{
    static const int fds[CHANNEL_FDS_MAX]; /* the standard input, often */
    struct writer_message *message;

    if (writer_begin(&message, NULL, NULL) == 0) {
        writer_add_copy(message, &n, 1);
        if (has_fds) {
            writer_add_fds(message, fds, CHANNEL_FDS_MAX);
        }
        writer_queue(writer, message);
    }
}

/* Send until the kernel refuses; then a message waits behind, all is received, and both leave. */
static void crowd_out(struct crowd *crowd)
{
    do {
        queue_one((uint8_t)crowd->n_queued++, true);
        crowd->outcome = writer_send(writer, sockets[0], SIZE_MAX);
    } while (crowd->outcome == 1 && crowd->n_queued < FEW);
    queue_one(77, false);
    crowd->again = writer_send(writer, sockets[0], SIZE_MAX);
    crowd->is_before = true;
    for (unsigned n = 0; n + 1 < crowd->n_queued; n++) {
        crowd->is_before &= receive_one((uint8_t)n, CHANNEL_FDS_MAX);
    }
    crowd->is_behind_kept = !receive_one(77, 0);
    crowd->last = writer_send(writer, sockets[0], SIZE_MAX);
    crowd->is_late =
        receive_one((uint8_t)(crowd->n_queued - 1), CHANNEL_FDS_MAX) && receive_one(77, 0);
}

static void unmap_crowd(void *crowd)
{
    munmap(crowd, sizeof(struct crowd));
}

/* Root may have any number of them on the way: another user's process tries. */
static void test_too_many_descriptors_on_the_way_hold_their_message(void)
{
    struct crowd *crowd =
        mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t pid;

    check_at_end(unmap_crowd, crowd);
    writer_open();
    pid = fork();
    if (pid == 0) {
        bool is_user = geteuid() != 0 || setresuid(65534, 65534, 65534) == 0;

        crowd->as_user = is_user ? 0 : errno;
        if (is_user && setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW, FEW}) == 0) {
            crowd_out(crowd);
        }
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    if (crowd->as_user != 0) {
        CHECK_SKIP("root may not be another user here: %s", strerror(crowd->as_user));
    }
    CHECK_GT(crowd->n_queued, 1);
    CHECK_EQ(crowd->outcome, -ETOOMANYREFS);
    CHECK_EQ(crowd->again, -ETOOMANYREFS);
    CHECK(crowd->is_before);
    CHECK(crowd->is_behind_kept);
    CHECK_EQ(crowd->last, 1);
    CHECK(crowd->is_late);
}

CHECK_MAIN(CHECK_TEST(test_descriptors_leave_with_their_message),
           CHECK_TEST(test_short_sends_send_descriptors_once),
           CHECK_TEST(test_descriptors_are_those_of_the_last_byte),
           CHECK_TEST(test_descriptors_wait_for_a_full_socket),
           CHECK_TEST(test_descriptors_behind_an_empty_message_are_sent),
           CHECK_TEST(test_too_many_descriptors_on_the_way_hold_their_message))
