/*
 * Ring stream: work through a ring of the daemon's, as a client with large data in one does it: as
 * many descriptors under way as its job has credit for.
 *
 * The data lie in the ring, the inputs in its first half and the outputs in its second.  What goes
 * wrong ends the program.
 *
 * Thread: its caller's.
 */
#pragma once

#include "proto/message.h"
#include "proto/ring.h"
#include "tests/bench/connection.h"

struct ring_stream {
    struct connection connection;
    struct msg_ring_opened opened;
    struct ring *queues;
    int doorbell_fd;
    uint8_t *data;
    uint8_t *in;
    uint8_t *out;

    uint32_t msgid;             /* of the last request */
    bool is_answered;           /* it is */
    struct ring_stream_job *to; /* where job.open's answer goes; NULL: it is ring.open's */
};

/* A prepared job of one input and one output. */
struct ring_stream_job {
    uint32_t id;
    uint32_t credit;
    uint32_t in_record;
    uint32_t out_record;
};

/* A ring of size bytes, every page of it touched. */
void ring_stream_open(struct ring_stream *stream, const char *socket_path, uint64_t size);
void ring_stream_close(struct ring_stream *stream);

void ring_stream_prepare(struct ring_stream *stream, const struct msg_op *op,
                         enum priority priority, uint32_t window, struct ring_stream_job *ret_job);
/* The first in_size bytes of the inputs, in pushes of push_size, whole records both. */
void ring_stream_run(struct ring_stream *stream, const struct ring_stream_job *job, size_t in_size,
                     size_t push_size);
