/*
 * Calls: `run` requests of one array each over one connection, a fixed number of them under way.
 *
 * Thread: its caller's.
 */
#pragma once

#include "proto/message.h"
#include "tests/bench/connection.h"

#include <stddef.h>
#include <stdint.h>

struct calls {
    struct connection connection;
    const uint8_t *in;
    uint8_t *out;
    size_t size; /* bytes in and bytes out of each request */
    uint32_t n_calls;
    uint32_t n_sent;
    uint32_t n_answered;
    msgpack_sbuffer head; /* of each request; its msgid lies at a fixed place */
};

/* The socket of the daemon, or a connected one of anything that answers `run` in the same way. */
void calls_open(struct calls *calls, const char *socket_path);
void calls_open_fd(struct calls *calls, int fd);
void calls_close(struct calls *calls);

/* What the requests are from here on; a ping has size 0. */
void calls_prepare_run(struct calls *calls, const struct msg_run *run);
void calls_prepare_ping(struct calls *calls);
/*
 * Send n_calls requests, at most depth at once.  Request i takes size bytes at in + i * size, and
 * its output goes to out + i * size.
 */
void calls_run(struct calls *calls, const uint8_t *in, uint8_t *out, size_t size, uint32_t n_calls,
               uint32_t depth);
