/*
 * Connection: see connection.h.
 */
#include "tests/bench/connection.h"

#include "proto/channel.h"
#include "proto/rpc.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <poll.h>
#include <string.h>

/* What a turn reads at most before it sends again. */
#define READ_BUDGET (1u << 20)

void connection_open_fd(struct connection *connection, int fd,
                        const struct reader_callbacks *callbacks, void *owner)
{
    connection->fd = fd;
    if (reader_create(&connection->reader, GUARD_CLIENT, callbacks, owner) < 0 ||
        writer_create(&connection->writer) < 0) {
        bench_fail("no memory for a connection");
    }
}

void connection_open(struct connection *connection, const char *socket_path,
                     const struct reader_callbacks *callbacks, void *owner)
{
    struct failure failure;
    int fd = channel_connect(socket_path, &failure);

    if (fd < 0) {
        bench_fail("%s", failure.message);
    }
    connection_open_fd(connection, fd, callbacks, owner);
}

void connection_close(struct connection *connection)
{
    writer_destroy(connection->writer);
    reader_destroy(connection->reader);
    close(connection->fd);
}

void connection_queue(struct connection *connection, const msgpack_sbuffer *head,
                      const void *payload, size_t size)
{
    struct writer_message *message;
    uint8_t header[RPC_BIN_HEADER_MAX];
    int r = writer_begin(&message, NULL, NULL);

    if (r == 0) {
        r = writer_add_copy(message, head->data, head->size);
    }
    if (r == 0 && size > 0) {
        r = writer_add_copy(message, header, rpc_bin_header(size, header));
    }
    if (r == 0) {
        r = writer_add_ref(message, payload, size);
    }
    if (r < 0) {
        bench_fail("no memory for a request");
    }
    writer_queue(connection->writer, message);
}

void connection_pump(struct connection *connection)
{
    struct pollfd waiting = {.fd = connection->fd, .events = POLLIN};
    int r = writer_send(connection->writer, connection->fd, SIZE_MAX);

    if (r < 0) {
        bench_fail("send: %s", strerror(-r));
    }
    if (r == 0) {
        waiting.events |= POLLOUT;
    }
    poll(&waiting, 1, -1);
    if (waiting.revents & (POLLIN | POLLHUP)) {
        r = reader_read(connection->reader, connection->fd, READ_BUDGET);
        if (r != READER_IDLE && r != READER_BUDGET) {
            bench_fail("the connection broke off");
        }
    }
}
