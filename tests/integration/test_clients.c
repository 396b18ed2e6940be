/*
 * Clients that misbehave in time rather than in bytes: silent, deaf, killed, too many, or sending
 * descriptors.  None of them costs anybody else anything, and nothing of them stays.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Nothing of other clients is left in the daemon. */
static void check_idle(struct harness *daemon, struct wire *wire)
{
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "sessions") == 1);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "jobs") == 0);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "pool_used") == 0);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "chunks_in_flight") == 0);
    wire_check_works(wire);
    HARNESS_WAIT(harness_n_children(daemon) == 2 || harness_n_children(daemon) == 1);
}

/* ---- silent and deaf ----------------------------------------------------------------------- */

static bool is_hung_up(const struct wire *wire)
{
    struct pollfd closed = {.fd = wire_fd(wire), .events = 0};

    return poll(&closed, 1, 0) == 1 && (closed.revents & (POLLHUP | POLLERR)) != 0;
}

/* Ask for results until the socket takes no more, reading none. */
static void go_deaf(struct wire *wire)
{
    msgpack_sbuffer buffer;
    bool is_stuck = false;

    msgpack_sbuffer_init(&buffer);
    wire_pack(wire, &buffer, "run", "['copy', {}, {}, [<1000000>]]");
    for (unsigned i = 0; i < 300 && !is_stuck; i++) {
        size_t sent = 0;

        while (sent < buffer.size && !is_stuck) {
            struct pollfd waiting = {.fd = wire_fd(wire), .events = POLLOUT};
            ssize_t n;

            is_stuck = poll(&waiting, 1, 1000) == 0;
            n = send(wire_fd(wire), buffer.data + sent, buffer.size - sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
    }
    msgpack_sbuffer_destroy(&buffer);
    CHECK(is_stuck);
}

/* Five results that it does not read, and half of a sixth request. */
static void go_silent_and_deaf(struct wire *wire)
{
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    for (unsigned i = 0; i < 6; i++) {
        wire_pack(wire, &buffer, "run", "['copy', {}, {}, [<1000000>]]");
    }
    wire_send_bytes(wire, buffer.data, buffer.size - 500000);
    msgpack_sbuffer_destroy(&buffer);
}

static void test_silent_and_deaf_clients(void)
{
    struct harness *daemon = harness_start();
    struct wire *idle = wire_connect(harness_socket(daemon));
    struct wire *half_head = wire_connect(harness_socket(daemon));
    struct wire *half_payload = wire_connect(harness_socket(daemon));
    struct wire *both = wire_connect(harness_socket(daemon));
    struct wire *deaf = wire_connect(harness_socket(daemon));
    unsigned long rss;

    harness_deadline(150);
    wire_check_works(idle);
    rss = harness_rss_kib(daemon);
    wire_send_bytes(half_head, "\x94\x00\x01\xa4pi", 7);
    wire_send_bytes(half_payload,
                    "\x94\x00\x02\xa3run\x94\xa4"
                    "copy\x80\x80\x91\xc5\x03\xe8"
                    "abc",
                    22);
    go_silent_and_deaf(both);
    go_deaf(deaf);
    wire_check_works(idle);
    CHECK_LE(harness_rss_kib(daemon), rss + 64 * 1024 + 8192 + HARNESS_SANITIZER_KIB);

    wire_eof(half_head);
    wire_eof(half_payload);
    HARNESS_WAIT(is_hung_up(both));
    CHECK(!is_hung_up(deaf)); /* its limit is the longer one */
    wire_check_works(idle);
    HARNESS_WAIT(is_hung_up(deaf));
    wire_close(half_head);
    wire_close(half_payload);
    wire_close(both);
    wire_close(deaf);
    check_idle(daemon, idle);
}

/* ---- killed -------------------------------------------------------------------------------- */

static int connect_plain(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A client that works until it is killed: these bytes again and again, answers read and dropped. */
static _Noreturn void work_for_ever(const char *socket_path, const char *bytes, size_t size)
{
    static char answers[1 << 16];
    int fd = connect_plain(socket_path);

    for (size_t sent = 0;; sent %= size) {
        ssize_t n = send(fd, bytes + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        if (recv(fd, answers, sizeof(answers), MSG_DONTWAIT) == 0) {
            _exit(1);
        }
    }
}

static void test_fifty_clients_killed_at_work(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    wire_pack(other, &buffer, "job.open", "['sha256', {}, {priority: 'bulk', window: 2}]");
    wire_pack(other, &buffer, "run", "['copy', {}, {}, [<3000000>]]");
    wire_pack(other, &buffer, "run", "['sha256', {block: 64}, {priority: 'urgent'}, [<640000>]]");
    for (unsigned i = 0; i < 50; i++) {
        struct timespec life = {.tv_nsec = (long)random_below(12000000)};
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            work_for_ever(harness_socket(daemon), buffer.data, buffer.size);
        }
        nanosleep(&life, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        wire_check_works(other);
    }
    msgpack_sbuffer_destroy(&buffer);
    check_idle(daemon, other);
}

static void test_clients_gone_in_mid_payload(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;

    msgpack_sbuffer_init(&buffer);
    wire_pack(other, &buffer, "run", "['copy', {}, {}, [<2000000>]]");
    for (unsigned i = 0; i < 50; i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));

        wire_send_bytes(wire, buffer.data, 1 + random_below(buffer.size));
        wire_close(wire);
    }
    msgpack_sbuffer_destroy(&buffer);
    check_idle(daemon, other);
}

static void test_a_dead_clients_job_ends(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    const void *bytes = random_new(LIMIT_PUSH_LEAST);

    for (unsigned i = 0; i < 20; i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        /* So little memory each that none waits for the one before to be gone. */
        const msgpack_object *opened =
            wire_call(wire, "job.open", "['sha256', {block: 64}, {window: 1, max_push: %lu}]",
                      (uint64_t)LIMIT_PUSH_LEAST);

        wire_call(wire, "job.push", "[%lu, 0, {}, [%b]]", (uint64_t)wire_number(opened, "job"),
                  bytes, (size_t)LIMIT_PUSH_LEAST);
        wire_close(wire);
    }
    check_idle(daemon, other);
}

/* ---- many ---------------------------------------------------------------------------------- */

static void test_a_hundred_clients_come_and_go(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    struct wire *wires[100];
    unsigned n_fds;

    wire_check_works(other);
    n_fds = harness_n_fds(daemon);
    for (unsigned i = 0; i < 100; i++) {
        wires[i] = wire_connect(harness_socket(daemon));
    }
    for (unsigned i = 0; i < 100; i++) {
        wire_check_works(wires[i]);
    }
    for (unsigned i = 0; i < 100; i++) {
        wire_close(wires[i]);
    }
    check_idle(daemon, other);
    HARNESS_WAIT(harness_n_fds(daemon) <= n_fds);
}

static void test_no_more_connections_than_the_limit(void)
{
    enum { N = LIMIT_SESSIONS + 50 };
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    int fds[N];

    wire_check_works(other);
    for (unsigned i = 0; i < N; i++) {
        fds[i] = connect_plain(harness_socket(daemon));
    }
    wire_check_works(other);
    CHECK_LE(wire_number(wire_call(other, "stats", "[]"), "sessions"), LIMIT_SESSIONS);
    for (unsigned i = 0; i < N; i++) {
        close(fds[i]);
    }
    check_idle(daemon, other);
    wire_check_works(wire_connect(harness_socket(daemon)));
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* A whole ping, with this descriptor on its first byte; false: the kernel refuses it. */
static bool send_descriptor(struct wire *wire, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec iov = {.iov_base = "\x94\x00\x01\xa4ping\x90", .iov_len = 9};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};

    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    return sendmsg(wire_fd(wire), &message, MSG_NOSIGNAL) == 9;
}

static void test_descriptors_are_not_taken(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    const unsigned n_fds = harness_n_fds(daemon);

    for (unsigned i = 0; i < 20; i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));

        if (send_descriptor(wire, i % 2 == 0 ? STDERR_FILENO : wire_fd(other))) {
            wire_eof(wire);
        } else {
            CHECK_EQ(errno, EPERM); /* see channel_refuse_fds() */
            wire_check_works(wire);
        }
        wire_close(wire);
    }
    check_idle(daemon, other);
    HARNESS_WAIT(harness_n_fds(daemon) <= n_fds + 1);
}

CHECK_MAIN(CHECK_TEST(test_silent_and_deaf_clients), CHECK_TEST(test_fifty_clients_killed_at_work),
           CHECK_TEST(test_clients_gone_in_mid_payload), CHECK_TEST(test_a_dead_clients_job_ends),
           CHECK_TEST(test_a_hundred_clients_come_and_go),
           CHECK_TEST(test_no_more_connections_than_the_limit),
           CHECK_TEST(test_descriptors_are_not_taken))
