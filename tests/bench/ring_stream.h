/*
 * Ring stream: work through a ring of the daemon's, as a client with large data in one does it: as
 * many descriptors under way as its job has credit for.
 *
 * The data lie in the ring, the inputs in its first half and the outputs in its second.  Of a
 * stream's rings there is one at a time.  What goes wrong ends the program.
 *
 * Thread: its caller's.
 */
#pragma once

#include "proto/message.h"
#include "proto/ring.h"
#include "tests/bench/connection.h"

#include <stdbool.h>

struct ring_stream {
    struct connection connection;
    struct msg_ring_opened opened;
    struct ring *queues;
    int doorbell_fd;
    uint8_t *data;
    uint8_t *in;
    uint8_t *out;
    const char *device; /* of the jobs that are prepared next; NULL: any */
    bool wants_timing;  /* likewise */

    uint32_t msgid; /* of the last request */
    bool is_answered;
    msgpack_sbuffer head;       /* of the last request */
    struct ring_stream_job *to; /* where job.open's answer goes; NULL: it is another's */
    int fds[3];                 /* of ring.open's answer: queues, data, doorbell; else -1 */
};

/* A prepared job of one input and one output. */
struct ring_stream_job {
    uint32_t id;
    uint32_t credit;
    uint64_t max_push;
    uint32_t in_record;
    uint32_t out_record;
};

/* A connection with a ring of size bytes, every page of it touched. */
void ring_stream_open(struct ring_stream *stream, const char *socket_path, uint64_t size);
void ring_stream_close(struct ring_stream *stream);

/* The same step by step.  ring_stream_request() is ring.open: the seconds from writing the request
 * until the reply and its descriptors are read. */
void ring_stream_connect(struct ring_stream *stream, const char *socket_path);
double ring_stream_request(struct ring_stream *stream, uint64_t size);
void ring_stream_map(struct ring_stream *stream);
/* ring.close: another may follow. */
void ring_stream_drop(struct ring_stream *stream);
void ring_stream_disconnect(struct ring_stream *stream);

/* window 0: the daemon's default. */
void ring_stream_prepare(struct ring_stream *stream, const struct msg_op *op,
                         enum priority priority, uint32_t window, struct ring_stream_job *ret_job);
/* The first in_size bytes of the inputs, in pushes of push_size, whole records both.  More than
 * there are: from their begin again, without a pause. */
void ring_stream_run(struct ring_stream *stream, const struct ring_stream_job *job, size_t in_size,
                     size_t push_size);
/* One push of the inputs' bytes [at, at + size), and its completion, which is looked for without
 * sleeping for spin_ns.  Nothing else is under way. */
void ring_stream_shot(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                      size_t size, uint64_t spin_ns);

/* ---- many under way, by hand ---------------------------------------------------------------- */

/* One push of the inputs' bytes [at, at + size); its completion's tag is `at`.  The daemon sees it
 * with the next ring_stream_show(). */
void ring_stream_put(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                     size_t size);
void ring_stream_show(struct ring_stream *stream);
/* Both. */
void ring_stream_send(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                      size_t size);
/* Completions of any status that are there now; returns how many. */
uint32_t ring_stream_take(struct ring_stream *stream, struct ring_completion *ret_completions,
                          uint32_t max);
/* Sleeps until one may be there, or until then. */
void ring_stream_wait(struct ring_stream *stream, uint64_t until_ns);
