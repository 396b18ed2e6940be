/*
 * Stream: moves records from inputs through one job to outputs, in bounded memory.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/calls.h"
#include "client/cli/input.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/gpupipe.h"

struct slot;

struct stream {
    /* The caller's, before stream_run(). */
    struct gpupipe *gpupipe;
    struct gpupipe_job *job;
    const struct manifest_op *op;
    struct input *inputs;   /* op->n_in */
    struct output *outputs; /* op->n_out */
    enum tail tail;
    uint64_t chunk_size; /* bytes of the largest array of a push; 0 = the daemon's best */
    bool is_text;
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
    uint64_t push_records;
    uint32_t n_slots;
    struct slot *slots;
    struct slot *filling; /* being read into, or full and waiting for credit; NULL = none */
    bool is_at_end;       /* nothing is left to push */
};

/*
 * Records of one push: as many as fit into chunk_size (0: the largest push) in every array that
 * travels with it (outputs too if has_out), a multiple of what the daemon asks for, and at least
 * that.
 */
uint64_t stream_push_records(const struct msg_job_opened *shape, bool has_out, uint64_t chunk_size);

/* Run until the job is over.  On failure the job may still be open and its pushes in flight. */
int stream_run(struct stream *stream);
/* Free the buffers, once the connection is closed or no push is in flight. */
void stream_finish(struct stream *stream);
