/* Sockets: packets with descriptors, doorbells, and who may listen where. */
#include "proto/channel.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[64];

static void remove_folder(void *arg)
{
    char command[128];

    (void)arg;
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    if (system(command) != 0) {
        printf("# %s is left behind\n", folder);
    }
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpupipe-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    check_at_end(remove_folder, NULL);
}

/* A path in the folder of exactly size bytes, or "name" there if size is 0. */
static const char *path_in_folder(const char *name, size_t size)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    while (strlen(path) < size) {
        strcat(path, "x");
    }
    return path;
}

static void make_pipe_with(uint8_t byte, int fds[2])
{
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    CHECK_EQ(write(fds[1], &byte, 1), 1);
}

static void test_a_packet_carries_bytes_and_descriptors(void)
{
    uint8_t sent[100], got[200], byte;
    int pair[2], pipes[CHANNEL_FDS_MAX][2], fds[CHANNEL_FDS_MAX], ends[CHANNEL_FDS_MAX];
    uint32_t n_fds = CHANNEL_FDS_MAX;

    CHECK_EQ(channel_pair(false, pair), 0);
    random_bytes(sent, sizeof(sent));
    for (uint8_t i = 0; i < CHANNEL_FDS_MAX; i++) {
        make_pipe_with(i + 50, pipes[i]);
        ends[i] = pipes[i][0];
    }
    CHECK_EQ(channel_send_packet(pair[0], sent, sizeof(sent), ends, CHANNEL_FDS_MAX), 0);
    CHECK_EQ(channel_receive_packet(pair[1], got, sizeof(got), fds, &n_fds), sizeof(sent));
    CHECK_MEM(got, sent, sizeof(sent));
    CHECK_EQ(n_fds, CHANNEL_FDS_MAX);
    for (int i = 0; i < CHANNEL_FDS_MAX; i++) {
        CHECK_EQ(read(fds[i], &byte, 1), 1);
        CHECK_EQ(byte, i + 50);
        CHECK_EQ(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
        close(fds[i]);
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    close(pair[0]);
    close(pair[1]);
}

static void test_unwanted_descriptors_of_a_packet_are_closed(void)
{
    uint8_t byte = 7;
    int pair[2], fds[2] = {-1, -1};
    uint32_t n_fds = 1;
    int n_before, n_after;

    CHECK_EQ(channel_pair(false, pair), 0);
    CHECK_EQ(channel_send_packet(pair[0], &byte, 1, (int[]){0, 1, 2}, 3), 0);
    n_before = check_count_fds();
    CHECK_EQ(channel_receive_packet(pair[1], &byte, 1, fds, &n_fds), 1);
    n_after = check_count_fds();
    CHECK_EQ(n_fds, 1);
    CHECK_EQ(n_after, n_before + 1);
    CHECK_EQ(fds[1], -1);
    close(fds[0]);
    close(pair[0]);
    close(pair[1]);
}

static void test_a_packet_that_is_too_long_leaves_nothing(void)
{
    uint8_t sent[16], got[8];
    int pair[2], fds[1];
    uint32_t n_fds = 1;

    CHECK_EQ(channel_pair(false, pair), 0);
    random_bytes(sent, sizeof(sent));
    CHECK_EQ(channel_send_packet(pair[0], sent, sizeof(sent), (int[]){0}, 1), 0);
    CHECK_EQ(channel_receive_packet(pair[1], got, sizeof(got), fds, &n_fds), -EMSGSIZE);
    close(pair[0]);
    CHECK_EQ(channel_receive_packet(pair[1], got, sizeof(got), fds, &n_fds), 0);
    CHECK_EQ(n_fds, 0);
    close(pair[1]);
}

static void test_a_packet_to_nobody_is_an_error_and_no_signal(void)
{
    int pair[2];

    CHECK_EQ(channel_pair(true, pair), 0);
    close(pair[1]);
    CHECK_EQ(channel_send_packet(pair[0], "x", 1, NULL, 0), -EPIPE);
    close(pair[0]);
}

/* ---- descriptors on the way ----------------------------------------------------------------- */

enum { FEW = 32 }; /* descriptors that the crowded process may have */

/* What it saw, in memory that it shares with the test. */
struct crowd {
    int as_user; /* 0 or errno */
    uint8_t n_sent;
    int refused, plain, again; /* what the sends returned */
    uint8_t n_received;
    bool has_arrived;
};

static int send_number(int fd, uint8_t number, uint32_t n_fds)
{
    static const int fds[CHANNEL_FDS_MAX]; /* the standard input, often */

    return channel_send_packet(fd, &number, 1, fds, n_fds);
}

static bool is_received(int fd, uint8_t number, uint32_t n_fds)
{
    int fds[CHANNEL_FDS_MAX];
    uint32_t n = CHANNEL_FDS_MAX;
    uint8_t got = 0;
    bool is_right =
        channel_receive_packet(fd, &got, 1, fds, &n) == 1 && got == number && n == n_fds;

    for (uint32_t i = 0; is_right && i < n; i++) {
        close(fds[i]);
    }
    return is_right;
}

/* Send until the kernel refuses, receive all that was sent, send again. */
static void crowd_out(struct crowd *crowd, const int pair[2])
{
    while (crowd->n_sent < FEW && crowd->refused == 0) {
        crowd->refused = send_number(pair[0], crowd->n_sent, CHANNEL_FDS_MAX);
        crowd->n_sent += crowd->refused == 0;
    }
    crowd->plain = send_number(pair[0], crowd->n_sent, 0);
    while (is_received(pair[1], crowd->n_received,
                       crowd->n_received < crowd->n_sent ? CHANNEL_FDS_MAX : 0)) {
        crowd->n_received++;
    }
    crowd->again = send_number(pair[0], 77, CHANNEL_FDS_MAX);
    crowd->has_arrived = is_received(pair[1], 77, CHANNEL_FDS_MAX);
}

static void unmap_crowd(void *crowd)
{
    munmap(crowd, sizeof(struct crowd));
}

/* Root may have any number of them on the way: another user's process tries. */
static void test_too_many_descriptors_on_the_way_say_again(void)
{
    struct crowd *crowd =
        mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int pair[2], status;
    pid_t pid;

    check_at_end(unmap_crowd, crowd);
    CHECK_EQ(channel_pair(true, pair), 0);
    pid = fork();
    if (pid == 0) {
        bool is_user = geteuid() != 0 || setresuid(65534, 65534, 65534) == 0;

        crowd->as_user = is_user ? 0 : errno;
        if (is_user && setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW, FEW}) == 0) {
            crowd_out(crowd, pair);
        }
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    close(pair[0]);
    close(pair[1]);
    CHECK_EQ(status, 0);
    if (crowd->as_user != 0) {
        CHECK_SKIP("root may not be another user here: %s", strerror(crowd->as_user));
    }
    CHECK_GT(crowd->n_sent, 0);
    CHECK_EQ(crowd->refused, -EAGAIN);
    CHECK_EQ(crowd->plain, 0); /* the socket is not full */
    CHECK_EQ(crowd->n_received, crowd->n_sent + 1);
    CHECK_EQ(crowd->again, 0);
    CHECK(crowd->has_arrived);
}

/* ---- doorbells and streams ------------------------------------------------------------------ */

static void test_a_doorbell_rings_once_however_often(void)
{
    int pair[2];
    bool is_closed = true;

    CHECK_EQ(channel_pair(true, pair), 0);
    CHECK(!channel_drain(pair[1], &is_closed));
    CHECK(!is_closed);
    for (int i = 0; i < 5000; i++) {
        channel_ring(pair[0]);
    }
    CHECK(channel_drain(pair[1], &is_closed));
    CHECK(!is_closed);
    CHECK(!channel_drain(pair[1], NULL));
    channel_ring(pair[0]);
    close(pair[0]);
    CHECK(channel_drain(pair[1], &is_closed));
    CHECK(is_closed);
    CHECK(!channel_drain(pair[1], &is_closed));
    CHECK(is_closed);
    channel_ring(pair[1]);
    close(pair[1]);
}

static void test_descriptors_on_a_stream_never_arrive(void)
{
    uint8_t byte = 0, sent = 77;
    struct iovec iov = {&byte, 1};
    int pair[2], pipes[2], n_fds;
    bool had_fds = false;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_EQ(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    CHECK_EQ(channel_send_packet(pair[0], &sent, 1, &pipes[1], 1), 0);
    close(pipes[1]);
    n_fds = check_count_fds();
    CHECK_EQ(channel_receive(pair[1], &iov, 1, &had_fds), 1);
    CHECK(had_fds);
    CHECK_EQ(byte, sent);
    CHECK_EQ(check_count_fds(), n_fds);
    CHECK_EQ(read(pipes[0], &byte, 1), 0); /* the last writer is gone */
    CHECK_EQ(channel_receive(pair[1], &iov, 1, &had_fds), -EAGAIN);
    CHECK_EQ(write(pair[0], &sent, 1), 1);
    CHECK_EQ(channel_receive(pair[1], &iov, 1, &had_fds), 1);
    CHECK(!had_fds);
    close(pair[0]);
    CHECK_EQ(channel_receive(pair[1], &iov, 1, &had_fds), 0);
    close(pair[1]);
    close(pipes[0]);
}

/* A stream whose other end accepts descriptors. */
static int stream[2];

static void close_stream(void *arg)
{
    (void)arg;
    close(stream[0]);
    close(stream[1]);
}

static void open_stream(void)
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream), 0);
    check_at_end(close_stream, NULL);
}

/* These bytes, with n_fds ends of pipes that hold first, first + 1, ... */
static void stream_send(const char *bytes, uint8_t first, uint32_t n_fds)
{
    struct iovec iov = {(void *)bytes, strlen(bytes)};
    int pipes[CHANNEL_FDS_MAX][2], ends[CHANNEL_FDS_MAX] = {0};

    for (uint32_t i = 0; i < n_fds; i++) {
        make_pipe_with((uint8_t)(first + i), pipes[i]);
        ends[i] = pipes[i][0];
    }
    CHECK_EQ(channel_send_fds(stream[0], &iov, 1, ends, n_fds), strlen(bytes));
    for (uint32_t i = 0; i < n_fds; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
}

/* One receive of at most room bytes brings just these, and these descriptors. */
static void check_stream_brings(size_t room, const char *bytes, uint8_t first, uint32_t n_fds)
{
    uint8_t got[64], byte;
    struct iovec iov = {got, room};
    int fds[CHANNEL_FDS_MAX];
    uint32_t n = 0;

    memset(got, 0xa5, sizeof(got));
    CHECK_EQ(channel_receive_fds(stream[1], &iov, 1, fds, CHANNEL_FDS_MAX, &n), strlen(bytes));
    CHECK_MEM(got, bytes, strlen(bytes));
    CHECK_EQ(n, n_fds);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
        CHECK_EQ(read(fds[i], &byte, 1), 1);
        CHECK_EQ(byte, first + i);
        close(fds[i]);
    }
}

/* Their place is not told: bytes sent before may come along, bytes sent behind never do. */
static void test_a_receive_ends_with_the_bytes_that_carried_descriptors(void)
{
    open_stream();
    stream_send("abc", 0, 0);
    stream_send("de", 0, 0);
    stream_send("fgh", 10, 3);
    stream_send("ij", 0, 0);
    check_stream_brings(64, "abcdefgh", 10, 3);
    check_stream_brings(64, "ij", 0, 0);
}

static void test_descriptors_of_two_sends_never_mix(void)
{
    open_stream();
    stream_send("ab", 10, 2);
    stream_send("cd", 20, CHANNEL_FDS_MAX);
    stream_send("ef", 30, 1);
    check_stream_brings(64, "ab", 10, 2);
    check_stream_brings(64, "cd", 20, CHANNEL_FDS_MAX);
    check_stream_brings(64, "ef", 30, 1);
}

static void test_descriptors_come_with_the_first_byte(void)
{
    open_stream();
    stream_send("ab", 0, 0);
    stream_send("cdef", 10, 2);
    stream_send("gh", 20, 1);
    stream_send("i", 0, 0);
    check_stream_brings(2, "ab", 0, 0);
    check_stream_brings(1, "c", 10, 2);
    check_stream_brings(1, "d", 0, 0);
    check_stream_brings(3, "efg", 20, 1);
    check_stream_brings(3, "hi", 0, 0);
}

/* The kernel cuts a send into pieces; only the first carries them, and it may end a receive. */
static void test_descriptors_of_a_long_send_come_once(void)
{
    static uint8_t sent[150000], got[150000];
    struct iovec iov = {sent, sizeof(sent)};
    size_t n_got = 0, n_sent;
    uint32_t n_fds_got = 0;
    ssize_t n;

    open_stream();
    random_bytes(sent, sizeof(sent));
    n = channel_send_fds(stream[0], &iov, 1, (int[]){0, 0}, 2);
    CHECK_GT(n, 0);
    n_sent = (size_t)n;
    while (n_got < n_sent) {
        struct iovec place = {got + n_got, sizeof(got) - n_got};
        int fds[CHANNEL_FDS_MAX];
        uint32_t n_fds = 0;

        n = channel_receive_fds(stream[1], &place, 1, fds, CHANNEL_FDS_MAX, &n_fds);
        CHECK_GT(n, 0);
        for (uint32_t i = 0; i < n_fds; i++) {
            close(fds[i]);
        }
        CHECK_EQ(n_fds, n_got == 0 ? 2 : 0);
        n_got += (size_t)n;
        n_fds_got += n_fds;
    }
    CHECK_EQ(n_fds_got, 2);
    CHECK_EQ(n_got, n_sent);
    CHECK_MEM(got, sent, n_sent);
}

static void test_descriptors_that_a_client_has_no_room_for_are_closed(void)
{
    uint8_t byte;
    struct iovec iov = {&byte, 1};
    uint32_t n_fds = 0;
    int fds[1], n_before;

    open_stream();
    stream_send("x", 10, 3);
    n_before = check_count_fds();
    CHECK_EQ(channel_receive_fds(stream[1], &iov, 1, fds, 1, &n_fds), 1);
    CHECK_EQ(n_fds, 1);
    CHECK_EQ(check_count_fds(), n_before + 1);
    CHECK_EQ(read(fds[0], &byte, 1), 1);
    CHECK_EQ(byte, 10);
    close(fds[0]);
    n_fds = 4711;
    CHECK_EQ(channel_receive_fds(stream[1], &iov, 1, fds, 1, &n_fds), -EAGAIN);
    CHECK_EQ(n_fds, 4711);
}

static void test_a_stream_without_room_says_again(void)
{
    uint8_t bytes[4096];
    struct iovec iov = {bytes, sizeof(bytes)};
    int pair[2];
    ssize_t n;

    memset(bytes, 'x', sizeof(bytes));
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    do {
        n = channel_send(pair[0], &iov, 1);
    } while (n > 0);
    CHECK_EQ(n, -EAGAIN);
    close(pair[1]);
    CHECK_EQ(channel_send(pair[0], &iov, 1), -EPIPE);
    close(pair[0]);
}

static void test_listen_and_connect(void)
{
    struct failure failure;
    const char *path;
    struct stat stat;
    int lock_fd, fd, client, server;

    make_folder();
    path = path_in_folder("s", 0);
    fd = channel_listen(path, 0620, &lock_fd, &failure);
    CHECK_GE(fd, 0);
    CHECK_EQ(lstat(path, &stat), 0);
    CHECK_EQ(stat.st_mode, S_IFSOCK | 0620);
    client = channel_connect(path, &failure);
    CHECK_GE(client, 0);
    CHECK_EQ(fcntl(client, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    CHECK_EQ(fcntl(client, F_GETFD), FD_CLOEXEC);
    server = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK_GE(server, 0);
    CHECK_EQ(accept4(fd, NULL, NULL, SOCK_CLOEXEC), -1);
    CHECK_EQ(errno, EAGAIN);
    close(server);
    close(client);
    close(fd);
    close(lock_fd);
}

static void test_the_longest_path_and_one_more(void)
{
    struct failure failure = {0};
    int lock_fd = 4711, fd, client;

    make_folder();
    CHECK_EQ(channel_listen(path_in_folder("", 108), 0600, &lock_fd, &failure), -STATUS_RANGE);
    CHECK_HAS(failure.message, "108");
    CHECK_EQ(channel_connect(path_in_folder("", 108), &failure), -STATUS_RANGE);
    CHECK_EQ(channel_connect("", &failure), -STATUS_RANGE);
    CHECK_EQ(lock_fd, 4711);
    fd = channel_listen(path_in_folder("", 107), 0600, &lock_fd, &failure);
    CHECK_GE(fd, 0);
    CHECK_EQ(access(path_in_folder("", 107), F_OK), 0);
    client = channel_connect(path_in_folder("", 107), &failure);
    CHECK_GE(client, 0);
    close(client);
    close(fd);
    close(lock_fd);
}

static void test_a_second_instance_is_refused(void)
{
    struct failure failure = {0};
    const char *path;
    int lock_fd, fd, client, other_lock = -1;

    make_folder();
    path = path_in_folder("s", 0);
    fd = channel_listen(path, 0600, &lock_fd, &failure);
    CHECK_GE(fd, 0);
    CHECK_EQ(channel_listen(path, 0600, &other_lock, &failure), -STATUS_BUSY);
    CHECK_HAS(failure.message, "another gpupiped");
    client = channel_connect(path, &failure);
    CHECK_GE(client, 0);
    close(client);
    close(fd);
    close(lock_fd);
}

static void test_a_stale_socket_is_replaced(void)
{
    struct failure failure = {0};
    const char *path;
    int lock_fd, fd, client;

    make_folder();
    path = path_in_folder("s", 0);
    fd = channel_listen(path, 0600, &lock_fd, &failure);
    CHECK_GE(fd, 0);
    close(fd);
    close(lock_fd);
    CHECK_EQ(channel_connect(path, &failure), -STATUS_NOT_FOUND);
    CHECK_HAS(failure.message, "nobody listens");
    fd = channel_listen(path, 0600, &lock_fd, &failure);
    CHECK_GE(fd, 0);
    client = channel_connect(path, &failure);
    CHECK_GE(client, 0);
    close(client);
    close(fd);
    close(lock_fd);
}

/* A live socket without our lock: some other program's, of either type. */
static void check_stranger_stays(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct failure failure = {0};
    struct stat before, after;
    int stranger = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int lock_fd;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/stranger%d", folder, type);
    CHECK_EQ(bind(stranger, (struct sockaddr *)&address, sizeof(address)), 0);
    if (type == SOCK_STREAM) {
        CHECK_EQ(listen(stranger, 1), 0);
    }
    CHECK_EQ(lstat(address.sun_path, &before), 0);
    CHECK_EQ(channel_listen(address.sun_path, 0600, &lock_fd, &failure), -STATUS_BUSY);
    CHECK_EQ(lstat(address.sun_path, &after), 0);
    CHECK_EQ(after.st_ino, before.st_ino);
    close(stranger);
}

static void test_a_strangers_socket_is_never_stolen(void)
{
    make_folder();
    check_stranger_stays(SOCK_STREAM);
    check_stranger_stays(SOCK_DGRAM);
}

static void test_a_full_backlog_is_no_stale_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct failure failure = {0};
    int stranger = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int lock_fd;

    make_folder();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/full", folder);
    CHECK_EQ(bind(stranger, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(listen(stranger, 0), 0);
    CHECK_EQ(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(channel_listen(address.sun_path, 0600, &lock_fd, &failure), -STATUS_BUSY);
    CHECK_EQ(access(address.sun_path, F_OK), 0);
    close(client);
    close(stranger);
}

static void test_files_and_links_in_the_way_stay(void)
{
    struct failure failure = {0};
    char link_path[128];
    const char *path;
    struct stat stat;
    int lock_fd, file;

    make_folder();
    path = path_in_folder("file", 0);
    file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(file);
    CHECK_EQ(channel_listen(path, 0600, &lock_fd, &failure), -STATUS_INVALID_PARAM);
    CHECK_HAS(failure.message, "is no socket");
    CHECK_EQ(access(path, F_OK), 0);

    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    CHECK_EQ(symlink("nowhere", link_path), 0);
    CHECK_EQ(channel_listen(link_path, 0600, &lock_fd, &failure), -STATUS_INVALID_PARAM);
    CHECK_EQ(lstat(link_path, &stat), 0);

    snprintf(link_path, sizeof(link_path), "%s/s.lock", folder);
    CHECK_EQ(symlink("nowhere", link_path), 0);
    CHECK_LT(channel_listen(path_in_folder("s", 0), 0600, &lock_fd, &failure), 0);
    CHECK_LT(access(path_in_folder("nowhere", 0), F_OK), 0);
}

static void test_a_missing_folder_is_named(void)
{
    struct failure failure = {0};
    int lock_fd;

    make_folder();
    CHECK_EQ(channel_listen(path_in_folder("no/s", 0), 0600, &lock_fd, &failure),
             -STATUS_NOT_FOUND);
    CHECK_HAS(failure.message, "No such file or directory");
    CHECK_EQ(channel_connect(path_in_folder("no/s", 0), &failure), -STATUS_NOT_FOUND);
    CHECK_STR(failure.field, "socket");
}

CHECK_MAIN(CHECK_TEST(test_a_packet_carries_bytes_and_descriptors),
           CHECK_TEST(test_unwanted_descriptors_of_a_packet_are_closed),
           CHECK_TEST(test_a_packet_that_is_too_long_leaves_nothing),
           CHECK_TEST(test_a_packet_to_nobody_is_an_error_and_no_signal),
           CHECK_TEST(test_too_many_descriptors_on_the_way_say_again),
           CHECK_TEST(test_a_doorbell_rings_once_however_often),
           CHECK_TEST(test_descriptors_on_a_stream_never_arrive),
           CHECK_TEST(test_a_receive_ends_with_the_bytes_that_carried_descriptors),
           CHECK_TEST(test_descriptors_of_two_sends_never_mix),
           CHECK_TEST(test_descriptors_come_with_the_first_byte),
           CHECK_TEST(test_descriptors_of_a_long_send_come_once),
           CHECK_TEST(test_descriptors_that_a_client_has_no_room_for_are_closed),
           CHECK_TEST(test_a_stream_without_room_says_again), CHECK_TEST(test_listen_and_connect),
           CHECK_TEST(test_the_longest_path_and_one_more),
           CHECK_TEST(test_a_second_instance_is_refused),
           CHECK_TEST(test_a_stale_socket_is_replaced),
           CHECK_TEST(test_a_strangers_socket_is_never_stolen),
           CHECK_TEST(test_a_full_backlog_is_no_stale_socket),
           CHECK_TEST(test_files_and_links_in_the_way_stay),
           CHECK_TEST(test_a_missing_folder_is_named))
