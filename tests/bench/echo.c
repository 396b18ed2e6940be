/*
 * Echo: the process and its caller.  See echo.h.
 */
#include "tests/bench/echo.h"

#include "proto/util.h"
#include "tests/bench/bench.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* ---- the process ---------------------------------------------------------------------------- */

static bool send_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);

        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool echo_push(int fd, const struct echo_shape *shape, uint8_t *push)
{
    uint64_t n_read = 0;
    uint64_t n_sent = 0;

    while (n_read < shape->push_size) {
        size_t room = MIN(shape->push_size - n_read, (uint64_t)ECHO_READ_SIZE);
        ssize_t n = recv(fd, push + n_read, room, 0);

        if (n <= 0) {
            return false;
        }
        n_read += (uint64_t)n;
        uint64_t due = n_read * shape->out_record / shape->in_record;
        if (!send_all(fd, push + n_sent, due - n_sent)) {
            return false;
        }
        n_sent = due;
    }
    return true;
}

static _Noreturn void serve(int fd)
{
    uint8_t *push = bench_allocate(ECHO_PUSH_MAX);
    struct echo_shape shape;
    bool is_open = true;

    bench_poison(push, ECHO_PUSH_MAX);
    while (is_open && recv(fd, &shape, sizeof(shape), MSG_WAITALL) == sizeof(shape)) {
        for (uint64_t done = 0; is_open && done < shape.in_size; done += shape.push_size) {
            is_open = echo_push(fd, &shape, push);
        }
    }
    _exit(0);
}

void echo_start(struct echo *echo)
{
    int fds[2];
    int size = 1 << 20; /* what the daemon asks for */

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
        bench_fail("socketpair: %s", strerror(errno));
    }
    setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    echo->fd = fds[0];
    echo->pid = bench_fork();
    if (echo->pid == 0) {
        close(fds[0]);
        serve(fds[1]);
    }
    close(fds[1]);
}

void echo_stop(struct echo *echo)
{
    close(echo->fd);
    bench_end(echo->pid);
}

/* ---- its caller ----------------------------------------------------------------------------- */

/* Bytes that a call moved, 0 if it would have blocked. */
static size_t moved(ssize_t n)
{
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        bench_fail("the echo process broke off");
    }
    return n > 0 ? (size_t)n : 0;
}

void echo_run(const struct echo *echo, const struct echo_shape *shape, const uint8_t *in,
              uint8_t *out)
{
    uint64_t out_size = shape->in_size / shape->in_record * shape->out_record;
    uint64_t n_sent = 0;
    uint64_t n_received = 0;

    if (!send_all(echo->fd, shape, sizeof(*shape))) {
        bench_fail("the echo process ended");
    }
    while (n_received < out_size) {
        struct pollfd waiting = {.fd = echo->fd, .events = POLLIN};

        if (n_sent < shape->in_size) {
            n_sent += moved(
                send(echo->fd, in + n_sent, shape->in_size - n_sent, MSG_DONTWAIT | MSG_NOSIGNAL));
            waiting.events |= n_sent < shape->in_size ? POLLOUT : 0;
        }
        poll(&waiting, 1, -1);
        if (waiting.revents & (POLLIN | POLLHUP)) {
            n_received +=
                moved(recv(echo->fd, out + n_received,
                           MIN(out_size - n_received, (uint64_t)ECHO_READ_SIZE), MSG_DONTWAIT));
        }
    }
}
