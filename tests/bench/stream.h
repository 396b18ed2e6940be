/*
 * Stream: one streaming job through the daemon, as a client with large data runs it: as many pushes
 * under way as the daemon gives credit for, results received into the caller's memory.
 *
 * Thread: its caller's.
 */
#pragma once

#include "proto/message.h"

#include <stddef.h>
#include <stdint.h>

struct stream {
    struct msg_op op;
    enum priority priority;
    const uint8_t *in;
    uint8_t *out;
    size_t in_size;   /* bytes, whole records */
    size_t push_size; /* bytes, whole records */
    size_t in_record; /* bytes */
    size_t out_record;
};

/* Returns once the daemon says that the job is done; ends the program if anything goes wrong. */
void stream_run(const char *socket_path, const struct stream *stream);
