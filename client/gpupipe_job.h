/*
 * Streaming jobs, and what the connection has to do with them.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_connection.h"
#include "client/gpupipe_error.h"
#include "proto/message.h"

/* A request whose answer nobody waits for: job.close and job.cancel. */
struct errand {
    struct call call;
    struct gpupipe_job *job;
    bool is_under_way;
};

struct gpupipe_job {
    struct gpupipe_job *next;
    struct gpupipe *gpupipe;
    struct msg_job_opened shape;
    uint64_t next_seq;
    uint32_t n_credits;
    struct flight_list flying;
    struct errand close;
    struct errand cancel;
    bool is_ended;
    bool has_done;
    struct msg_job_done done;
    struct error error; /* done.failure, or that it was cancelled */
    void *result[LIMIT_OUT];
    uint64_t result_size[LIMIT_OUT];
};

int job_open(struct gpupipe *gpupipe, const struct msg_job_open *msg, struct gpupipe_job **ret_job,
             struct failure *ret_failure);
/* What a caller asked for, as the wire has it: job.open, and run alike. */
int job_take_op(const char *op, const struct gpupipe_value *values, uint32_t n_values,
                struct msg_op *ret_op, struct failure *ret_failure);
int job_take_options(const struct gpupipe_job_opts *opts, struct msg_options *ret_options,
                     struct failure *ret_failure);

/* A payload of a notification: 0 with its sink, or -1 to have it drained. */
int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink);
void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message);
/* Calls and writer are done with: every job is over. */
void job_on_loss(struct gpupipe *gpupipe);
/* Frees all jobs of a lost connection. */
void job_destroy_all(struct gpupipe *gpupipe);
