/*
 * Linger: TCP sockets that stay until an hour has passed, in sockets that are read or closed.
 *
 * They are in a network of this program's own, where nobody else is.
 */
#include "daemon/linger.h"
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N = 3 };

static void have_a_network(void)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
        CHECK_SKIP("may not have a network of its own");
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(ioctl(fd, SIOCSIFFLAGS, &loopback), 0);
    close(fd);
}

/* It has something to send that nobody takes; *ret_peer is at the other end. */
static int lingering(int *ret_peer)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 3600};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static uint8_t bytes[65536];

    CHECK_EQ(bind(listener, (const struct sockaddr *)&address, size), 0);
    CHECK_EQ(listen(listener, 1), 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    CHECK_EQ(connect(fd, (const struct sockaddr *)&address, size), 0);
    *ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK_GE(*ret_peer, 0);
    close(listener);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
        continue;
    }
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return fd;
}

/* N of them are on their way, and nobody else has them. */
static void send_lingering(int to, int *ret_peers)
{
    int fds[N];

    for (unsigned i = 0; i < N; i++) {
        fds[i] = lingering(&ret_peers[i]);
    }
    CHECK_EQ(channel_send_packet(to, "x", 1, fds, N), 0);
    for (unsigned i = 0; i < N; i++) {
        close(fds[i]);
    }
}

static void close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static void stop(void *arg)
{
    (void)arg;
    linger_stop();
}

static void start(void)
{
    have_a_network();
    CHECK_EQ(linger_start(), 0);
    check_at_end(stop, NULL);
}

static void test_what_is_read(void)
{
    int ends[2], peers[N];
    uint8_t byte;
    const struct iovec iov = {&byte, 1};
    bool had_fds = false;

    start();
    CHECK_EQ(channel_pair(true, ends), 0);
    send_lingering(ends[0], peers);
    linger_begin();
    CHECK_EQ(channel_receive(ends[1], &iov, 1, &had_fds), 1);
    linger_end();
    CHECK(had_fds);
    close_all(peers, N);
    close_all(ends, 2);
}

static void test_what_is_never_read(void)
{
    int ends[2], peers[N];

    start();
    CHECK_EQ(channel_pair(true, ends), 0);
    send_lingering(ends[0], peers);
    linger_begin();
    close(ends[1]);
    linger_end();
    close_all(peers, N);
    close(ends[0]);
}

CHECK_MAIN(CHECK_TEST(test_what_is_read), CHECK_TEST(test_what_is_never_read))
