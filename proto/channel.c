/*
 * Channel: Unix sockets, as this project uses them.
 *
 * Two kinds.  Streams carry bytes to and from clients; descriptors go to them, and those they send
 * along are refused, or left to the kernel to drop, so that none ever enters the daemon's table.
 * SOCK_SEQPACKET pairs carry fixed structs and descriptors between our own processes, and serve as
 * doorbells.
 *
 * Threads: plain functions over descriptors, no state.
 */
#include "proto/channel.h"

#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOCK_SUFFIX ".lock"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* of Linux 6.16; not in older headers */
#endif

/* The control part of a packet. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(CHANNEL_FDS_MAX * sizeof(int))];
};

ssize_t channel_receive(int fd, const struct iovec *iov, size_t n_iov, bool *ret_had_fds)
{
    /* Without room for control messages the kernel drops descriptors itself and says so. */
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n_iov};
    ssize_t n = TEMP_FAILURE_RETRY(recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));

    if (n < 0) {
        return -errno;
    }
    *ret_had_fds = (msg.msg_flags & MSG_CTRUNC) != 0;
    return n;
}

int channel_refuse_fds(int fd)
{
    static const int no = 0;

    return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) < 0 ? -errno : 0;
}

/* Move the descriptors of what came to fds, at most max; the others are closed. */
static uint32_t take_fds(struct msghdr *msg, int *fds, uint32_t max)
{
    uint32_t n_taken = 0;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t at = 0; at + sizeof(int) <= cmsg->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + at, sizeof(fd));
            if (n_taken < max) {
                fds[n_taken++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return n_taken;
}

ssize_t channel_receive_fds(int fd, const struct iovec *iov, size_t n_iov, int *ret_fds,
                            uint32_t max, uint32_t *ret_n_fds)
{
    union control control;
    struct msghdr msg = {
        .msg_iov = (struct iovec *)iov,
        .msg_iovlen = n_iov,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n = TEMP_FAILURE_RETRY(recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));

    if (n < 0) {
        return -errno;
    }
    *ret_n_fds = take_fds(&msg, ret_fds, max);
    return n;
}

static void attach_fds(struct msghdr *msg, union control *control, const int *fds, uint32_t n_fds)
{
    struct cmsghdr *cmsg;

    assert(n_fds <= CHANNEL_FDS_MAX);
    if (n_fds == 0) {
        return;
    }
    msg->msg_control = control;
    msg->msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
    cmsg = CMSG_FIRSTHDR(msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
}

ssize_t channel_send_fds(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
                         uint32_t n_fds)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n_iov};
    union control control = {0};

    attach_fds(&msg, &control, fds, n_fds);
    ssize_t n = TEMP_FAILURE_RETRY(sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL));
    return n < 0 ? -errno : n;
}

ssize_t channel_send(int fd, const struct iovec *iov, size_t n_iov)
{
    return channel_send_fds(fd, iov, n_iov, NULL, 0);
}

int channel_send_packet(int fd, const void *bytes, size_t size, const int *fds, uint32_t n_fds)
{
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    union control control = {0};

    attach_fds(&msg, &control, fds, n_fds);
    if (TEMP_FAILURE_RETRY(sendmsg(fd, &msg, MSG_NOSIGNAL)) < 0) {
        return errno == ETOOMANYREFS ? -EAGAIN : -errno;
    }
    return 0;
}

ssize_t channel_receive_packet(int fd, void *bytes, size_t size, int *fds, uint32_t *n_fds)
{
    struct iovec iov = {.iov_base = bytes, .iov_len = size};
    union control control;
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n = TEMP_FAILURE_RETRY(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC));

    if (n < 0) {
        return -errno;
    }
    if ((msg.msg_flags & MSG_TRUNC) != 0) {
        take_fds(&msg, NULL, 0);
        return -EMSGSIZE;
    }
    *n_fds = take_fds(&msg, fds, *n_fds);
    return n;
}

int channel_pair(bool is_nonblocking, int ret_fds[2])
{
    int type = SOCK_SEQPACKET | SOCK_CLOEXEC | (is_nonblocking ? SOCK_NONBLOCK : 0);

    return socketpair(AF_UNIX, type, 0, ret_fds) < 0 ? -errno : 0;
}

void channel_ring(int fd)
{
    static const uint8_t ring = 1;

    /* Full: the other side is awake already.  Gone: whoever watches the other side will notice. */
    (void)send(fd, &ring, sizeof(ring), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool channel_drain(int fd, bool *ret_is_closed)
{
    return channel_drain_some(fd, CHANNEL_DRAIN_MAX, ret_is_closed);
}

bool channel_drain_some(int fd, uint32_t max, bool *ret_is_closed)
{
    bool has_rung = false;
    ssize_t n = 1;

    for (uint32_t i = 0; i < max && n > 0; i++) {
        uint8_t ring;

        n = TEMP_FAILURE_RETRY(recv(fd, &ring, sizeof(ring), MSG_DONTWAIT));
        has_rung |= n > 0;
    }
    if (ret_is_closed != NULL) {
        *ret_is_closed = n == 0 || (n < 0 && errno != EAGAIN);
    }
    return has_rung;
}

static int fail_errno(struct failure *ret_failure, int error, const char *what, const char *path)
{
    enum status status = error == EACCES || error == EPERM ? STATUS_DENIED
                         : error == ENOENT                 ? STATUS_NOT_FOUND
                                                           : STATUS_INTERNAL;

    return fail(ret_failure, status, "socket", "%s %s: %s", what, path, strerror(error));
}

static int set_address(const char *path, struct sockaddr_un *ret_address,
                       struct failure *ret_failure)
{
    size_t size = strlen(path);

    if (size == 0 || size >= sizeof(ret_address->sun_path)) {
        return fail(ret_failure, STATUS_RANGE, "socket",
                    "a socket's path has 1 to %zu bytes, this one has %zu",
                    sizeof(ret_address->sun_path) - 1, size);
    }
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    memcpy(ret_address->sun_path, path, size);
    return 0;
}

int channel_connect(const char *path, struct failure *ret_failure)
{
    _cleanup_(close_fd) int fd = -1;
    struct sockaddr_un address;
    int r = set_address(path, &address, ret_failure);

    if (r < 0) {
        return r;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail_errno(ret_failure, errno, "cannot make a socket for", path);
    }
    if (TEMP_FAILURE_RETRY(connect(fd, (struct sockaddr *)&address, sizeof(address))) < 0) {
        if (errno == ECONNREFUSED) {
            return fail(ret_failure, STATUS_NOT_FOUND, "socket", "nobody listens on %s", path);
        }
        return fail_errno(ret_failure, errno, "cannot connect to", path);
    }
    /* Only now: a connect() that does not block fails when the daemon's backlog is full. */
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        return fail_errno(ret_failure, errno, "cannot set up", path);
    }
    return steal_fd(&fd);
}

static int take_lock(const char *path, int *ret_lock_fd, struct failure *ret_failure)
{
    _cleanup_(close_fd) int fd = -1;
    char lock_path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + sizeof(LOCK_SUFFIX)];

    snprintf(lock_path, sizeof(lock_path), "%s%s", path, LOCK_SUFFIX);
    fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail_errno(ret_failure, errno, "cannot open", lock_path);
    }
    if (TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) < 0) {
        if (errno == EWOULDBLOCK) {
            return fail(ret_failure, STATUS_BUSY, "socket", "another gpupiped serves %s", path);
        }
        return fail_errno(ret_failure, errno, "cannot lock", lock_path);
    }
    *ret_lock_fd = steal_fd(&fd);
    return 0;
}

/* Does the socket file at this address still lead to somebody?  0: no; else why it stays. */
static int probe(const struct sockaddr_un *address, struct failure *ret_failure)
{
    _cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return fail_errno(ret_failure, errno, "cannot make a socket for", address->sun_path);
    }
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
        if (errno == ECONNREFUSED) {
            return 0;
        }
        /* A full backlog, or a socket of another type: both have an owner. */
        if (errno != EAGAIN && errno != EPROTOTYPE) {
            return fail_errno(ret_failure, errno, "cannot tell who listens on", address->sun_path);
        }
    }
    return fail(ret_failure, STATUS_BUSY, "socket", "another program listens on %s",
                address->sun_path);
}

/* Make the path free: a socket file that leads to nobody is removed, anything else stays. */
static int remove_stale(const struct sockaddr_un *address, struct failure *ret_failure)
{
    const char *path = address->sun_path;
    struct stat stat;
    int r;

    if (lstat(path, &stat) < 0) {
        return errno == ENOENT ? 0 : fail_errno(ret_failure, errno, "cannot look at", path);
    }
    if (!S_ISSOCK(stat.st_mode)) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "socket",
                    "%s exists and is no socket; remove it or choose another path", path);
    }
    r = probe(address, ret_failure);
    if (r < 0) {
        return r;
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return fail_errno(ret_failure, errno, "cannot remove the stale", path);
    }
    return 0;
}

static int bind_and_listen(int fd, const struct sockaddr_un *address, mode_t mode,
                           struct failure *ret_failure)
{
    const char *path = address->sun_path;

    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
        return fail_errno(ret_failure, errno, "cannot bind", path);
    }
    /* Nobody can connect before listen(): the file never lies there open with a wrong mode. */
    if (chmod(path, mode) < 0 || listen(fd, SOMAXCONN) < 0) {
        int error = errno;

        unlink(path);
        return fail_errno(ret_failure, error, "cannot listen on", path);
    }
    return 0;
}

int channel_listen(const char *path, mode_t mode, int *ret_lock_fd, struct failure *ret_failure)
{
    _cleanup_(close_fd) int fd = -1;
    _cleanup_(close_fd) int lock_fd = -1;
    struct sockaddr_un address;
    int r;

    r = set_address(path, &address, ret_failure);
    if (r < 0) {
        return r;
    }
    r = take_lock(path, &lock_fd, ret_failure);
    if (r < 0) {
        return r;
    }
    r = remove_stale(&address, ret_failure);
    if (r < 0) {
        return r;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail_errno(ret_failure, errno, "cannot make a socket for", path);
    }
    r = bind_and_listen(fd, &address, mode, ret_failure);
    if (r < 0) {
        return r;
    }
    *ret_lock_fd = steal_fd(&lock_fd);
    return steal_fd(&fd);
}
