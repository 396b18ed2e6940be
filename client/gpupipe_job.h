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
    bool is_private;           /* of a run: its caller knows nothing of it */
    struct flight_list landed; /* of a private one; others' land in the connection's */
    bool is_urgent;
    bool is_in_ring;           /* its pushes are descriptors ... */
    struct gpupipe_ring *ring; /* ... in this one; NULL once that is closed */
    enum tail tail;
    bool is_reduce;     /* where it is in a ring */
    uint32_t varying;   /* the same: the varying input, 0: none */
    uint32_t n_in_ring; /* pushes there now */
    bool wants_close;   /* job.close is sent when they are back */
    struct errand close;
    struct errand cancel;
    bool is_ended;
    bool has_done;
    bool is_lost; /* it went with the connection */
    struct msg_job_done done;
    struct error error; /* done.failure, or that it was cancelled */
    void *result[LIMIT_OUT];
    uint64_t result_size[LIMIT_OUT];
};

/* How its data are to go, which is the library's affair. */
struct job_route {
    struct gpupipe_ring *ring;
    bool is_ring_forbidden; /* of a run */
};

int job_open(struct gpupipe *gpupipe, const struct msg_job_open *msg, struct gpupipe_job **ret_job,
             struct failure *ret_failure);
/* The same of one whose pushes lie in this ring: is_in_rings is set. */
int job_open_in_ring(struct gpupipe *gpupipe, const struct msg_job_open *msg,
                     struct gpupipe_ring *ring, struct gpupipe_job **ret_job,
                     struct failure *ret_failure);
/* As gpupipe_push_records(), of a job with such numbers. */
uint64_t job_push_records(const struct msg_job_opened *shape);
/* What a caller asked for, as the wire has it: job.open, and run alike. */
int job_take_op(const char *op, const struct gpupipe_value *values, uint32_t n_values,
                struct msg_op *ret_op, struct failure *ret_failure);
int job_take_options(const struct gpupipe_job_opts *opts, struct msg_options *ret_options,
                     struct job_route *ret_route, struct failure *ret_failure);

/* A payload of a notification: 0 with its sink, or -1 to have it drained. */
int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink);
void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message);
/* Its last push was submitted. */
void job_on_last_push(struct gpupipe_job *job);
/* A push is back from its ring; is_still_open: it was to be the last, and may have been refused. */
void job_on_ring_push_back(struct gpupipe_job *job, bool is_still_open);
/* No push of any job is in this ring, and none will be. */
void job_forget_ring(struct gpupipe *gpupipe, const struct gpupipe_ring *ring);
/* Why a job cannot use its ring any more. */
int job_refuse_ring(const struct gpupipe_job *job, struct failure *ret_failure);
/* Calls and writer are done with: every job is over. */
void job_on_loss(struct gpupipe *gpupipe);
/* Frees all jobs of a lost connection. */
void job_destroy_all(struct gpupipe *gpupipe);
