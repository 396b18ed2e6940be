/*
 * Run: what gpupipe-cli run is doing, in three files: run.c has the job, run_files.c what it reads
 * and writes, run_ring.c the ring.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/run_args.h"
#include "client/cli/stream.h"

/* Everything that has to be undone, in the order of run_finish(). */
struct run {
    struct cli *cli;
    struct run_args args;
    struct gpupipe *gpupipe;
    struct gpupipe_ring *ring; /* what the job's data lie in; NULL: they go through the socket */
    struct gpupipe_job *job;
    struct msg_job_opened shape; /* of its pushes */
    struct manifest_op *op;
    const char *in_paths[LIMIT_IN];
    const char *const_paths[LIMIT_CONSTS];
    char const_sha256[LIMIT_CONSTS][GPUPIPE_SHA256_SIZE]; /* as the daemon has them */
    const char *out_paths[LIMIT_OUT];
    enum format out_formats[LIMIT_OUT];
    struct npy out_records[LIMIT_OUT]; /* of those that are .npy files */
    uint64_t n_expected;               /* records of each output, as far as the inputs tell */
    uint32_t n_inputs, n_outputs;      /* open */
    struct input inputs[LIMIT_IN];
    struct output outputs[LIMIT_OUT];
    struct msg_job_open request;
    struct progress progress;
    struct stream stream;
};

/*
 * After a refusal: wait a little if that may help.  Waiting is the default: many of us at once must
 * not meet errors.  *backoff_ms is 0 before the first.
 */
bool run_wait_for_room(const struct run *run, uint32_t *backoff_ms);

/* Bytes of all inputs together; 0: not known. */
uint64_t run_total_size(const struct run *run);

/*
 * Open the job with all its data in a ring, if that pays and there is one to be had.  False: it is
 * for the socket, as if nothing had been done.
 */
bool run_open_in_ring(struct run *run);

/* Give each array of the op its file. */
int run_bind_inputs(struct run *run);
int run_bind_consts(struct run *run);
int run_bind_outputs(struct run *run);

int run_open_inputs(struct run *run);
/* Send the constants, and, once the job is open and keeps them, drop them. */
int run_put_consts(struct run *run);
int run_drop_consts(struct run *run);
int run_open_outputs(struct run *run);
/* All is written: give the outputs their names. */
int run_commit_outputs(struct run *run);
