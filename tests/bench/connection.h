/*
 * Connection: a client of the daemon, as thin as one can be: proto's reader and writer over one
 * socket, and poll().  Used by streams and calls.
 *
 * Thread: its owner's.
 */
#pragma once

#include "proto/reader.h"
#include "proto/writer.h"

#include <msgpack.h>

struct connection {
    int fd;
    struct reader *reader;
    struct writer *writer;
};

void connection_open(struct connection *connection, const char *socket_path,
                     const struct reader_callbacks *callbacks, void *owner);
/* The same over a connected socket, which becomes the connection's. */
void connection_open_fd(struct connection *connection, int fd,
                        const struct reader_callbacks *callbacks, void *owner);
void connection_close(struct connection *connection);

/* Queue a packed head and, where size > 0, one payload behind it, by reference. */
void connection_queue(struct connection *connection, const msgpack_sbuffer *head,
                      const void *payload, size_t size);
/* Send what waits as far as the socket takes it, wait for something, and handle what has come. */
void connection_pump(struct connection *connection);
