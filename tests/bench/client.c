/*
 * Client: the parent sends orders over a socket of packets, and each is answered when it is done.
 * See client.h.
 */
#include "tests/bench/client.h"

#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/ring_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD 4096u
#define WINDOW 4

enum order_type { ORDER_PREPARE, ORDER_RUN, ORDER_CHECK };

struct order {
    uint32_t type;
    uint32_t n_passes;
};

struct work {
    const struct client_shape *shape;
    struct ring_stream stream;
    struct ring_stream_job job;
    uint8_t *want;
};

/* ---- in the client -------------------------------------------------------------------------- */

static double follow(struct work *work, const struct order *order)
{
    struct ring_stream *stream = &work->stream;
    size_t size = work->shape->size;
    uint64_t start_ns = now_ns();

    switch (order->type) {
    case ORDER_PREPARE:
        bench_fill(work->want, size);
        memcpy(stream->in, work->want, size);
        bench_poison(stream->out, size);
        break;
    case ORDER_RUN:
        for (uint32_t pass = 0; pass < order->n_passes; pass++) {
            ring_stream_run(stream, &work->job, size, work->shape->push_size);
        }
        break;
    default:
        bench_check_same("client", stream->out, work->want, size);
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

static _Noreturn void be_client(const struct client_shape *shape, int fd)
{
    const struct msg_op copy = {.name = "copy",
                                .n_values = 1,
                                .values = {{.name = "size", .kind = VALUE_INT, .i = RECORD}}};
    struct work work = {.shape = shape, .want = bench_allocate(shape->size)};
    struct order order;
    double seconds = 0;

    ring_stream_open(&work.stream, shape->socket_path, 2 * shape->size);
    ring_stream_prepare(&work.stream, &copy, PRIORITY_BULK, WINDOW, &work.job);
    while (send(fd, &seconds, sizeof(seconds), MSG_NOSIGNAL) == sizeof(seconds) &&
           recv(fd, &order, sizeof(order), 0) == sizeof(order)) {
        seconds = follow(&work, &order);
    }
    _exit(EXIT_SUCCESS);
}

/* ---- its parent ----------------------------------------------------------------------------- */

static void send_order(const struct client *client, enum order_type type, uint32_t n_passes)
{
    const struct order order = {type, n_passes};

    if (send(client->fd, &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order)) {
        bench_fail("a client is gone");
    }
}

double client_end(const struct client *client)
{
    double seconds;

    if (recv(client->fd, &seconds, sizeof(seconds), 0) != sizeof(seconds)) {
        bench_fail("a client ended early");
    }
    return seconds;
}

void client_start(struct client *client, const struct client_shape *shape)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        bench_fail("socketpair: %s", strerror(errno));
    }
    client->pid = bench_fork();
    if (client->pid == 0) {
        close(fds[0]);
        be_client(shape, fds[1]);
    }
    close(fds[1]);
    client->fd = fds[0];
    client_end(client);
}

void client_stop(struct client *client)
{
    close(client->fd);
    bench_end(client->pid);
}

void client_prepare(const struct client *client)
{
    send_order(client, ORDER_PREPARE, 0);
    client_end(client);
}

void client_begin(const struct client *client, uint32_t n_passes)
{
    send_order(client, ORDER_RUN, n_passes);
}

void client_check(const struct client *client)
{
    send_order(client, ORDER_CHECK, 0);
    client_end(client);
}
