/*
 * Stream: moves records from inputs through one job to outputs, in bounded memory.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/calls.h"
#include "client/cli/format.h"
#include "client/cli/input.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cli/slot.h"
#include "client/gpupipe.h"

struct stream {
    /* The caller's, before stream_run(). */
    struct gpupipe *gpupipe;
    struct gpupipe_job *job;
    struct gpupipe_ring *ring;          /* the job's; NULL: its data go through the socket */
    const struct msg_job_opened *shape; /* the job's, or with a smaller max_push */
    const struct manifest_op *op;
    struct input *inputs;       /* op->n_in */
    struct output *outputs;     /* op->n_out */
    const enum format *formats; /* of the outputs */
    enum tail tail;
    struct progress *progress;

    /* What was moved. */
    uint64_t n_records;
    uint64_t n_pushes;
    uint64_t in_size;
    uint64_t out_size;
    char backend[16]; /* of the last push, as device and path */
    char device[MSG_DEVICES_SIZE];
    char path[16];
    struct gpupipe_timing timing; /* the sum */

    /* The stream's own. */
    struct slots slots;
    struct slot *filling; /* being read into, or full and waiting for credit; NULL = none */
    bool is_at_end;       /* nothing is left to push */
};

/* Run until the job is over.  On failure the job may still be open and its pushes in flight. */
int stream_run(struct stream *stream);
/* Free the buffers, once the connection is closed or no push is in flight. */
void stream_finish(struct stream *stream);
