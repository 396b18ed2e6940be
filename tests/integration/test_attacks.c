/*
 * Attacks: clients that mean harm, one kind after the other.  Beside each, another client gets its
 * work done, and afterwards nothing of it is left in the daemon.
 *
 * GPUPIPE_TEST_CONNECTIONS=N tries another number of connections than 20,000.
 */
#include "proto/channel.h"
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"
#include "tests/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

static void check_idle(struct wire *wire)
{
    HARNESS_WAIT(stat_of(wire, "sessions") == 1);
    HARNESS_WAIT(stat_of(wire, "pool_used") == 0);
    HARNESS_WAIT(stat_of(wire, "chunks_in_flight") == 0);
    CHECK_EQ(stat_of(wire, "jobs"), 0);
    wire_check_works(wire);
}

/* ---- deaf ---------------------------------------------------------------------------------- */

enum { N_DEAF = 100 };

/* The same bytes again and again, as far as the socket takes them. */
struct flood {
    struct wire *wire;
    msgpack_sbuffer bytes;
    size_t sent; /* of the bytes */
};

static void free_floods(void *arg)
{
    struct flood *floods = arg;

    for (unsigned i = 0; i < N_DEAF; i++) {
        msgpack_sbuffer_destroy(&floods[i].bytes);
    }
}

static void start_floods(struct harness *daemon, struct flood *floods)
{
    static const struct {
        const char *method, *params;
    } requests[] = {
        {"op.list", "[]"},
        {"ping", "[]"},
        {"run", "['copy', {}, {}, [<100000>]]"},
        {"run", "['sha256', {block: 1}, {}, [<1000>]]"},
        {"stats", "[]"},
        {"no.such.method", "[]"},
    };
    enum { N = sizeof(requests) / sizeof(requests[0]) };

    memset(floods, 0, N_DEAF * sizeof(*floods));
    check_at_end(free_floods, floods);
    for (unsigned i = 0; i < N_DEAF; i++) {
        floods[i].wire = wire_connect(harness_socket(daemon));
        for (unsigned n = 0; n < 500; n++) {
            wire_pack(floods[i].wire, &floods[i].bytes, requests[i % N].method,
                      requests[i % N].params);
        }
    }
}

/* Send for a second or so, as much as the sockets take. */
static void flood_all(struct flood *floods)
{
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < 10 * N_DEAF; i++) {
            struct flood *flood = &floods[i % N_DEAF];
            ssize_t n = send(wire_fd(flood->wire), flood->bytes.data + flood->sent,
                             flood->bytes.size - flood->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

            flood->sent = (flood->sent + (size_t)(n > 0 ? n : 0)) % flood->bytes.size;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* Take some of the answers, so that there is room for more. */
static void read_a_little(struct flood *floods)
{
    static char answers[1 << 16];

    for (unsigned i = 0; i < N_DEAF; i++) {
        for (unsigned n = 0; n < 20; n++) {
            recv(wire_fd(floods[i].wire), answers, sizeof(answers), MSG_DONTWAIT);
        }
    }
}

/* Resident memory of the daemon without the pool, which has its size. */
static unsigned long heap_kib(const struct harness *daemon)
{
    const char *text = harness_proc(harness_pid(daemon), "status");
    const char *line = text == NULL ? NULL : strstr(text, "\nRssAnon:");

    CHECK(line != NULL);
    return strtoul(line + 9, NULL, 10);
}

static void test_a_hundred_clients_that_never_read(void)
{
    static struct flood floods[N_DEAF];
    struct harness *daemon = harness_start("--log-level", "info");
    struct wire *other = wire_connect(harness_socket(daemon));
    /* Answers that wait, and what a reader has touched of its buffers. */
    const unsigned long most_kib = N_DEAF * (LIMIT_UNREAD + LIMIT_HEAD + (96ul << 10)) / 1024;
    unsigned long before, after;

    harness_deadline(150);
    wire_check_works(other);
    before = heap_kib(daemon);
    start_floods(daemon, floods);
    for (unsigned i = 0; i < 5; i++) {
        flood_all(floods);
        wire_call(other, "ping",
                  "[]"); /* their user's share of the pool is theirs: no run of ours */
        after = heap_kib(daemon);
        printf("# %lu KiB without them, %lu with %d of them\n", before, after, N_DEAF);
        if (HARNESS_SANITIZER_KIB == 0) { /* its allocator keeps what is freed */
            CHECK_LE(after, before + most_kib);
        }
        read_a_little(floods);
    }
    for (unsigned i = 0; i < N_DEAF; i++) {
        wire_close(floods[i].wire);
    }
    check_idle(other);
}

/* ---- slow ---------------------------------------------------------------------------------- */

/* A child that sends these bytes, n at a time, 10 times a second.  It exits with 1 if hung up on.
 */
static pid_t send_slowly(struct wire *wire, const msgpack_sbuffer *buffer, size_t n)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        for (size_t at = 0; at < buffer->size; at += n) {
            size_t piece = n < buffer->size - at ? n : buffer->size - at;

            if (send(wire_fd(wire), buffer->data + at, piece, MSG_NOSIGNAL) < 0) {
                _exit(1);
            }
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
        _exit(0);
    }
    CHECK_GT(pid, 0);
    return pid;
}

/*
 * A trickle never falls silent; it holds the memory of a payload all the same.  A client on a slow
 * line, twice as fast as it must be, is served, and one that says little at a time, too.
 */
static void test_trickles_end_and_slow_clients_do_not(void)
{
    enum { SLOW = 2 * LIMIT_HALF_MESSAGE_LEAST / (LIMIT_HALF_MESSAGE / 100), N_SLOW = 120 };
    struct harness *daemon = harness_start();
    struct wire *trickle = wire_connect(harness_socket(daemon));
    struct wire *slow = wire_connect(harness_socket(daemon));
    struct wire *terse = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffers[3];
    uint32_t run, last = 0;
    pid_t pids[3];
    int status;

    for (unsigned i = 0; i < 3; i++) {
        msgpack_sbuffer_init(&buffers[i]);
    }
    wire_pack(trickle, &buffers[0], "run", "['copy', {}, {}, [<4000000>]]");
    run = wire_pack(slow, &buffers[1], "run", "['copy', {}, {}, [%b]]", random_new(SLOW * N_SLOW),
                    (size_t)SLOW * N_SLOW);
    for (unsigned i = 0; i < N_SLOW / 2; i++) {
        last = wire_pack(terse, &buffers[2], "ping", "[]");
    }
    pids[0] = send_slowly(trickle, &buffers[0], 1);
    pids[1] = send_slowly(slow, &buffers[1], SLOW);
    pids[2] = send_slowly(terse, &buffers[2], buffers[2].size / N_SLOW);
    for (unsigned i = 0; i < 3; i++) {
        HARNESS_WAIT(waitpid(pids[i], &status, WNOHANG) == pids[i]);
        CHECK_EQ(WEXITSTATUS(status), i == 0);
        msgpack_sbuffer_destroy(&buffers[i]);
    }
    wire_output(wire_result(slow, run), (size_t)SLOW * N_SLOW);
    wire_result(terse, last);
    CHECK_EQ(stat_of(slow, "sessions_broken"), 1);
    CHECK_EQ(stat_of(slow, "pool_used"), 0);
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* A whole ping with these descriptors on its first byte.  False: the kernel did not take them. */
static bool send_descriptors(int fd, const int *fds, unsigned n)
{
    char control[CMSG_SPACE(253 * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = "\x94\x00\x01\xa4ping\x90", .iov_len = 9};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(header), fds, n * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == 9;
}

static int connect_plain(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* So many connections, each with a descriptor or two, and gone again: the daemon keeps none. */
static void test_a_hundred_thousand_descriptors(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    int fds[2];

    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    wire_check_works(other);
    for (unsigned i = 0; i < 100000; i++) {
        int fd = connect_plain(harness_socket(daemon));

        if (fd < 0) { /* its backlog is full */
            wire_check_works(other);
            continue;
        }
        send_descriptors(fd, fds, 1 + i % 2);
        close(fd);
        if (i % 1000 == 0) {
            wire_check_works(other);
        }
    }
    close(fds[0]);
    close(fds[1]);
    check_idle(other); /* and the harness counts the daemon's descriptors at the end */
}

static void test_descriptors_of_every_kind(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    int kinds[7], many[253], pipes[2];

    CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
    kinds[0] = pipes[0];
    kinds[1] = pipes[1];
    kinds[2] = memfd_create("attack", MFD_CLOEXEC);
    kinds[3] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kinds[4] = open("/", O_PATH | O_CLOEXEC);
    kinds[5] = epoll_create1(EPOLL_CLOEXEC);
    kinds[6] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (unsigned i = 0; i < 253; i++) {
        many[i] = kinds[i % 7];
    }
    wire_check_works(other);
    for (unsigned i = 0; i < 70; i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        bool is_sent = i % 10 == 0   ? send_descriptors(wire_fd(wire), many, 253)
                       : i % 10 == 1 ? send_descriptors(wire_fd(wire), many, 2)
                                     : send_descriptors(wire_fd(wire), &kinds[i % 7], 1);

        if (is_sent) {
            wire_eof(wire);
            CHECK_EQ(wire_held(wire), 0);
        }
        wire_close(wire);
        wire_check_works(other);
    }
    for (unsigned i = 0; i < 7; i++) {
        close(kinds[i]);
    }
    check_idle(other); /* and the harness counts the daemon's descriptors at the end */
}

/* Whether the kernel lets a socket refuse descriptors. */
static bool can_refuse(void)
{
    int ends[2];
    bool can;

    CHECK_EQ(channel_pair(true, ends), 0);
    can = channel_refuse_fds(ends[0]) == 0;
    close(ends[0]);
    close(ends[1]);
    return can;
}

static void check_refused(int fd)
{
    int pipes[2];

    CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
    CHECK(!send_descriptors(fd, pipes, 1));
    CHECK_EQ(errno, EPERM);
    close(pipes[0]);
    close(pipes[1]);
}

/*
 * One whose last close takes as long as its sender wants, a TCP socket that lingers say, made the
 * daemon stand still for as long.
 */
static void test_descriptors_never_arrive(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    struct ring_client *ring;

    if (!can_refuse()) {
        CHECK_SKIP("needs Linux 6.16");
    }
    harness_pause(harness_pid(daemon));
    int early = connect_plain(harness_socket(daemon)); /* it is accepted later */
    check_refused(early);
    CHECK_EQ(kill(harness_pid(daemon), SIGCONT), 0);
    check_refused(wire_fd(wire));
    ring = ring_client_open(wire, 1 << 20);
    check_refused(ring->doorbell_fd);
    ring_client_check_works(ring, ring_client_open_copy(wire, ""));
    close(early);
}

/* ---- connections --------------------------------------------------------------------------- */

static struct rlimit own_limit;

static void restore_limit(void *arg)
{
    (void)arg;
    setrlimit(RLIMIT_NOFILE, &own_limit);
}

/* How many descriptors we may have, a few put by. */
static unsigned raise_limit(void)
{
    struct rlimit most;

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &own_limit), 0);
    check_at_end(restore_limit, NULL);
    most = own_limit;
    most.rlim_cur = most.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
    return (unsigned)(most.rlim_cur < 1 << 20 ? most.rlim_cur : 1 << 20) - 100;
}

static void close_connections(void *arg)
{
    int *fds = arg;

    for (; *fds != 0; fds++) {
        close(*fds);
    }
    free(arg);
}

/* All at once, and held: most of them are hung up on, and nobody else notices. */
static void test_twenty_thousand_connections(void)
{
    const char *wanted = getenv("GPUPIPE_TEST_CONNECTIONS");
    struct harness *daemon = harness_start("--log-level", "info");
    struct wire *other = wire_connect(harness_socket(daemon));
    unsigned n = wanted != NULL ? (unsigned)atoi(wanted) : 20000;
    unsigned most = raise_limit();
    int *fds;

    n = n < most ? n : most;
    fds = calloc(n + 1, sizeof(*fds));
    check_at_end(close_connections, fds);
    printf("# %u connections\n", n);
    for (unsigned i = 0; i < n; i++) {
        fds[i] = connect_plain(harness_socket(daemon));
        CHECK_GE(fds[i], 0);
        if (i % 1000 == 0) {
            wire_check_works(other);
        }
    }
    CHECK_EQ(stat_of(other, "sessions"), LIMIT_USER_SESSIONS);
    HARNESS_WAIT(stat_of(other, "sessions_refused") == n + 1 - LIMIT_USER_SESSIONS);
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
    }
    fds[0] = 0;
    check_idle(other);
    wire_check_works(wire_connect(harness_socket(daemon)));
}

/* The limit under which the daemon can open n more descriptors. */
static rlim_t limit_for(const struct harness *daemon, unsigned n)
{
    rlim_t fd = 0;

    for (; n > 0; fd++) {
        char path[64], target[8];

        snprintf(path, sizeof(path), "/proc/%d/fd/%lu", (int)harness_pid(daemon),
                 (unsigned long)fd);
        n -= readlink(path, target, sizeof(target)) < 0;
    }
    return fd;
}

static void test_descriptors_run_out(void)
{
    enum { N = 60 };
    struct harness *daemon = harness_start("--log-level", "info");
    struct wire *other = wire_connect(harness_socket(daemon));
    struct rlimit few, usual;
    const char *complaint;
    int fds[N];

    wire_check_works(other);
    CHECK_EQ(prlimit(harness_pid(daemon), RLIMIT_NOFILE, NULL, &usual), 0);
    few = (struct rlimit){limit_for(daemon, 8), usual.rlim_max};
    CHECK_EQ(prlimit(harness_pid(daemon), RLIMIT_NOFILE, &few, NULL), 0);
    for (unsigned i = 0; i < N; i++) {
        fds[i] = connect_plain(harness_socket(daemon)); /* the rest waits in the backlog */
        CHECK_GE(fds[i], 0);
    }
    HARNESS_WAIT(strstr(harness_log(daemon), "not accepting") != NULL);
    for (unsigned i = 0; i < 100; i++) {
        wire_check_works(other);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    complaint = strstr(harness_log(daemon), "not accepting");
    CHECK(strstr(complaint + 1, "not accepting") == NULL); /* said once, not at each try */
    for (unsigned i = 0; i < N / 2; i++) {
        close(fds[i]);
    }
    wire_check_works(other);
    CHECK_EQ(prlimit(harness_pid(daemon), RLIMIT_NOFILE, &usual, NULL), 0);
    wire_check_works(wire_connect(harness_socket(daemon)));
    for (unsigned i = N / 2; i < N; i++) {
        close(fds[i]);
    }
    HARNESS_WAIT(stat_of(other, "sessions") == 2);
}

/* ---- the log ------------------------------------------------------------------------------- */

static unsigned count_lines(const char *text)
{
    unsigned n = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++) {
        n++;
    }
    return n;
}

/* Nothing that a client does wrong is worth a line of the log: there would be no end of them. */
static void test_a_flood_of_errors_is_none_of_the_log(void)
{
    struct harness *daemon = harness_start("--log-level", "info");
    struct wire *wire = wire_connect(harness_socket(daemon));
    unsigned n_lines = count_lines(harness_log(daemon));
    uint32_t last = 0;

    for (unsigned i = 0; i < 2000; i++) {
        wire_send(wire, "no.such.method", "[]");
        wire_send(wire, "run", "['copy', {x: 1}, {}, [<10>]]");
        last = wire_send(wire, "job.push", "[77, 0, {}, [<10>]]");
        wire_notify(wire, "job.push", "[77, 0, {}, [<10>]]");
    }
    wire_response(wire, last);
    for (unsigned i = 0; i < 100; i++) {
        struct wire *broken = wire_connect(harness_socket(daemon));

        wire_send_bytes(broken, "\xc1", 1);
        wire_eof(broken);
        wire_close(broken);
    }
    wire_call(wire, "ping", "[]");
    CHECK_EQ(stat_of(wire, "errors_total"), 6000);
    CHECK_EQ(stat_of(wire, "sessions_broken"), 100);
    CHECK_EQ(count_lines(harness_log(daemon)), n_lines);
}

/* ---- a connection that two processes use ---------------------------------------------------- */

/* Send these bytes in small pieces, until hung up on. */
static void send_in_pieces(int fd, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t n = 1 + random_below(7);
        ssize_t sent = send(fd, bytes + at, n < size - at ? n : size - at, MSG_NOSIGNAL);

        if (sent < 0) {
            return;
        }
        at += (size_t)sent;
        sched_yield();
    }
}

static void test_two_processes_on_one_connection(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < 20; i++) {
        wire_pack(other, &buffer, "run", "['copy', {}, {}, [<50>]]");
        wire_pack(other, &buffer, "job.open", "['sha256', {}, {window: 1, max_push: 65536}]");
        wire_pack(other, &buffer, "ping", "[]");
    }
    for (unsigned round = 0; round < 10; round++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        pid_t pid;

        fflush(stdout);
        random_u64(); /* seeded before the fork */
        pid = fork();
        if (pid == 0) {
            random_state ^= 1 + round;
            send_in_pieces(wire_fd(wire), buffer.data, buffer.size);
            _exit(0);
        }
        send_in_pieces(wire_fd(wire), buffer.data, buffer.size);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
        wire_check_works(other);
        wire_close(wire);
    }
    msgpack_sbuffer_destroy(&buffer);
    check_idle(other);
}

CHECK_MAIN(CHECK_TEST(test_a_hundred_clients_that_never_read),
           CHECK_TEST(test_trickles_end_and_slow_clients_do_not),
           CHECK_TEST(test_descriptors_of_every_kind), CHECK_TEST(test_descriptors_never_arrive),
           CHECK_TEST(test_a_hundred_thousand_descriptors),
           CHECK_TEST(test_twenty_thousand_connections), CHECK_TEST(test_descriptors_run_out),
           CHECK_TEST(test_a_flood_of_errors_is_none_of_the_log),
           CHECK_TEST(test_two_processes_on_one_connection))
