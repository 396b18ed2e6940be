/*
 * Streaming jobs: opened, ended, cancelled, freed, and how they end.
 *
 * States of a job: open, ended (job.close or job.cancel sent), over (`has_done`), lost.  A lost
 * connection makes it over as well: after a reconnect its number may be another job's.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_job.h"

#include "client/gpupipe_flight.h"
#include "client/gpupipe_ring.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

/* ---- notifications ------------------------------------------------------------------------- */

static bool is_named(const struct rpc_message *message, const char *name)
{
    const msgpack_object *object = &message->name;

    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(name) &&
           memcmp(object->via.str.ptr, name, strlen(name)) == 0;
}

static struct gpupipe_job *find_job(struct gpupipe *gpupipe, uint64_t id)
{
    struct gpupipe_job *job = gpupipe->jobs;

    while (job != NULL && (job->is_lost || job->shape.job != id)) {
        job = job->next;
    }
    return job;
}

static struct flight *find_flight(struct gpupipe *gpupipe, uint64_t id, uint64_t seq)
{
    struct gpupipe_job *job = find_job(gpupipe, id);
    struct flight *flight = job == NULL ? NULL : job->flying.first;

    while (flight != NULL && (flight->seq != seq || flight->has_result || flight->is_in_ring)) {
        flight = flight->next;
    }
    return flight;
}

static int sink_of_job(struct gpupipe *gpupipe, const struct msg_job_done *done,
                       const struct guard *guard, struct reader_sink *ret_sink)
{
    struct gpupipe_job *job = find_job(gpupipe, done->job);
    uint32_t output = guard->payload_index;
    struct failure failure;

    if (job == NULL || output >= LIMIT_OUT || job->result[output] != NULL ||
        guard->payload_size > LIMIT_RECORD) {
        return -1;
    }
    job->result[output] = malloc(guard->payload_size + 1);
    if (job->result[output] == NULL) {
        fail(&failure, STATUS_OUT_OF_MEMORY, NULL, "no memory for the job's output");
        error_set(&job->error, &failure);
        return -1;
    }
    job->result_size[output] = guard->payload_size;
    ret_sink->n_pieces = 1;
    ret_sink->pieces[0] =
        (struct iovec){.iov_base = job->result[output], .iov_len = guard->payload_size};
    return 0;
}

int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink)
{
    struct msg_answer answer;
    struct msg_job_done done;
    struct failure failure;

    if (is_named(message, NOTIFY_JOB_RESULT) &&
        codec_unpack_job_result(&message->params, &answer, &failure) == 0) {
        struct flight *flight = find_flight(gpupipe, answer.job, answer.seq);

        return flight == NULL ? -1 : flight_on_payload(flight, guard, ret_sink);
    }
    if (is_named(message, NOTIFY_JOB_DONE) &&
        codec_unpack_job_done(&message->params, &done, &failure) == 0) {
        return sink_of_job(gpupipe, &done, guard, ret_sink);
    }
    return -1;
}

/* A job is over for its caller when its pushes are back as well: those in a ring and job.done take
 * different ways. */
static bool is_over(const struct gpupipe_job *job)
{
    return job->has_done && job->n_in_ring == 0;
}

static void note_if_over(struct gpupipe_job *job)
{
    if (is_over(job) && !job->is_private) {
        job->gpupipe->has_ended_job = true;
    }
}

static void end_with(struct gpupipe_job *job, const struct msg_job_done *done)
{
    struct failure cancelled;

    if (job->has_done) {
        return;
    }
    job->has_done = true;
    job->done = *done;
    note_if_over(job);
    if (done->has_failure) {
        error_set(&job->error, &done->failure);
    } else if (done->state != JOB_DONE) {
        fail(&cancelled, done->state == JOB_EXPIRED ? STATUS_DEADLINE : STATUS_CANCELLED, NULL,
             "the job was %s", job_state_names[done->state]);
        error_set(&job->error, &cancelled);
    }
}

static void end_with_failure(struct gpupipe_job *job, const struct failure *failure)
{
    const struct msg_job_done done = {
        .job = job->shape.job,
        .state = JOB_FAILED,
        .has_failure = true,
        .failure = *failure,
    };

    end_with(job, &done);
}

void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message)
{
    struct msg_answer answer;
    struct msg_job_done done;
    struct msg_ring_closed closed;

    if (is_named(message, NOTIFY_JOB_RESULT)) {
        if (codec_unpack_job_result(&message->params, &answer, &gpupipe->stray) == 0) {
            struct flight *flight = find_flight(gpupipe, answer.job, answer.seq);

            if (flight != NULL) {
                flight_on_result(flight, &answer);
            }
        }
    } else if (is_named(message, NOTIFY_JOB_DONE)) {
        if (codec_unpack_job_done(&message->params, &done, &gpupipe->stray) == 0) {
            struct gpupipe_job *job = find_job(gpupipe, done.job);

            if (job != NULL) {
                end_with(job, &done);
            }
        }
    } else if (is_named(message, NOTIFY_RING_CLOSED)) {
        if (codec_unpack_ring_closed(&message->params, &closed, &gpupipe->stray) == 0) {
            rings_on_closed(gpupipe, &closed);
        }
    }
}

/* ---- the connection's end ------------------------------------------------------------------ */

void job_on_loss(struct gpupipe *gpupipe)
{
    for (struct gpupipe_job *job = gpupipe->jobs; job != NULL; job = job->next) {
        /* Writer and calls are gone: what still flies was accepted and has no result. */
        while (job->flying.first != NULL) {
            flight_lose(job->flying.first, &gpupipe->loss);
        }
        end_with_failure(job, &gpupipe->loss);
        job->is_lost = true;
    }
}

static void destroy(struct gpupipe_job *job)
{
    for (struct gpupipe_job **link = &job->gpupipe->jobs; *link != NULL; link = &(*link)->next) {
        if (*link == job) {
            *link = job->next;
            break;
        }
    }
    flight_list_free(&job->gpupipe->landed, job);
    flight_list_free(&job->landed, job);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        free(job->result[i]);
    }
    free(job);
}

void job_destroy_all(struct gpupipe *gpupipe)
{
    while (gpupipe->jobs != NULL) {
        destroy(gpupipe->jobs);
    }
}

/* ---- opening and freeing ------------------------------------------------------------------- */

/* A job.close that finds the job ended already: why it did, its job.done is about to tell. */
static bool came_too_late(const struct errand *errand, const struct failure *failure)
{
    return errand == &errand->job->close && failure->status == STATUS_NOT_FOUND;
}

static void on_errand_answer(struct call *call, const msgpack_object *result,
                             const struct failure *failure)
{
    struct errand *errand = CONTAINER_OF(call, struct errand, call);

    (void)result;
    errand->is_under_way = false;
    if (failure != NULL && !came_too_late(errand, failure)) {
        end_with_failure(errand->job, failure);
    }
}

static int take_opened(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_job_opened(result, ret, ret_failure);
}

int job_open(struct gpupipe *gpupipe, const struct msg_job_open *msg, struct gpupipe_job **ret_job,
             struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct gpupipe_job *job = calloc(1, sizeof(*job));
    struct request request;
    int rc;

    if (job == NULL) {
        return fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "out of memory");
    }
    request_init(&request, gpupipe);
    codec_pack_job_open(&request.packer, request.msgid, msg);
    rc = connection_call(gpupipe, &request, NULL, take_opened, &job->shape, ret_failure);
    request_finish(&request);
    if (rc == 0) {
        /* The answer may have come with the connection's end, which has ended the other jobs. */
        rc = connection_check(gpupipe, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    job->gpupipe = gpupipe;
    job->tail = msg->options.tail;
    job->n_credits = job->shape.credit;
    flight_list_init(&job->flying);
    flight_list_init(&job->landed);
    job->close = (struct errand){.call.on_answer = on_errand_answer, .job = job};
    job->cancel = (struct errand){.call.on_answer = on_errand_answer, .job = job};
    job->next = gpupipe->jobs;
    gpupipe->jobs = job;
    *ret_job = STEAL(job);
    return 0;
}

struct shape {
    bool is_reduce;
    uint32_t varying;
    uint32_t tails;
};

static int take_shape(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct manifest_op *ops = NULL;
    struct shape *shape = ret;
    uint32_t n_ops;
    int rc = codec_unpack_op_list_result(result, &ops, &n_ops, ret_failure);

    if (rc == 0 && n_ops != 1) {
        return fail(ret_failure, STATUS_UNKNOWN_OP, "op", "no such op");
    }
    if (rc == 0) {
        shape->is_reduce = ops[0].kind == OP_REDUCE;
        shape->varying = manifest_varying(&ops[0]);
        shape->tails = ops[0].tails | TAIL_BIT(TAIL_ERROR);
    }
    return rc;
}

/* What job.open does not tell, and a descriptor must be written with. */
static int ask_shape(struct gpupipe *gpupipe, const char *op, struct shape *ret_shape,
                     struct failure *ret_failure)
{
    struct msg_op_list msg = {0};
    struct request request;
    int rc;

    snprintf(msg.name, sizeof(msg.name), "%s", op);
    request_init(&request, gpupipe);
    codec_pack_op_list(&request.packer, request.msgid, &msg);
    rc = connection_call(gpupipe, &request, NULL, take_shape, ret_shape, ret_failure);
    request_finish(&request);
    return rc;
}

static int check_tail(const struct msg_job_open *msg, const struct shape *shape,
                      struct failure *ret_failure)
{
    if ((shape->tails & TAIL_BIT(TAIL_ZERO)) != 0) {
        return 0;
    }
    return fail(ret_failure, STATUS_INVALID_PARAM, "tail", "op %s does not take tail \"zero\"",
                msg->op.name);
}

int job_open_in_ring(struct gpupipe *gpupipe, const struct msg_job_open *msg,
                     struct gpupipe_ring *ring, struct gpupipe_job **ret_job,
                     struct failure *ret_failure)
{
    struct msg_job_open whole = *msg;
    struct gpupipe_job *job;
    struct shape shape;
    int rc = ask_shape(gpupipe, msg->op.name, &shape, ret_failure);

    if (rc == 0 && msg->options.tail == TAIL_ZERO) {
        /* The zeros are ours to write: the daemon sees whole records. */
        rc = check_tail(msg, &shape, ret_failure);
        whole.options.tail = TAIL_ERROR;
    }
    if (rc == 0) {
        rc = job_open(gpupipe, &whole, &job, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    job->tail = msg->options.tail;
    job->is_urgent = msg->options.priority == PRIORITY_URGENT;
    job->is_in_ring = true;
    job->ring = ring;
    job->is_reduce = shape.is_reduce;
    job->varying = shape.varying;
    *ret_job = job;
    return 0;
}

static int check_ring(const struct gpupipe *gpupipe, const struct gpupipe_ring *ring,
                      struct failure *ret_failure)
{
    if (ring->gpupipe != gpupipe) {
        return fail(ret_failure, STATUS_MISUSE, "ring", "the ring is another connection's");
    }
    return rings_check(ring, ret_failure);
}

int gpupipe_job_open(struct gpupipe_job **ret_job, struct gpupipe *gpupipe, const char *op,
                     const struct gpupipe_value *values, uint32_t n_values,
                     const struct gpupipe_job_opts *opts)
{
    struct job_route route;
    struct msg_job_open msg;
    struct failure failure;
    int rc = job_take_op(op, values, n_values, &msg.op, &failure);

    if (rc == 0) {
        rc = job_take_options(opts, &msg.options, &route, &failure);
    }
    if (rc == 0 && route.ring == NULL) {
        rc = job_open(gpupipe, &msg, ret_job, &failure);
    } else if (rc == 0) {
        rc = check_ring(gpupipe, route.ring, &failure);
        msg.options.is_in_rings = true;
        if (rc == 0) {
            rc = job_open_in_ring(gpupipe, &msg, route.ring, ret_job, &failure);
        }
    }
    return error_record(gpupipe, rc, &failure);
}

void gpupipe_job_free(struct gpupipe_job *job)
{
    struct gpupipe *gpupipe;
    struct failure failure;

    /* A child's copy has nothing that it could wait for: it goes with the connection. */
    if (job == NULL || !connection_is_ours(job->gpupipe)) {
        return;
    }
    gpupipe = job->gpupipe;
    if (!job->has_done) {
        (void)gpupipe_job_cancel(job);
    }
    while (!job->has_done || job->flying.first != NULL || job->close.is_under_way ||
           job->cancel.is_under_way) {
        /* A loss ends all of these as well. */
        (void)connection_turn(gpupipe, -1, CONNECTION_IGNORE_WAKES, &failure);
    }
    destroy(job);
    connection_announce(gpupipe);
}

static int send_errand(struct gpupipe_job *job, struct errand *errand, enum method method)
{
    struct msg_job msg = {.job = job->shape.job};
    struct request request;
    struct failure failure;
    int rc;

    if (errand->is_under_way || job->has_done) {
        return 0;
    }
    request_init(&request, job->gpupipe);
    codec_pack_job(&request.packer, request.msgid, method, &msg);
    rc = connection_post(job->gpupipe, &request, &errand->call, NULL, 0, NULL, NULL, &failure);
    request_finish(&request);
    if (rc == 0) {
        errand->is_under_way = true;
        job->is_ended = true;
        connection_flush(job->gpupipe);
    }
    return error_record(job->gpupipe, rc, &failure);
}

/*
 * job.close goes another way than descriptors, and could arrive before them: it waits until they
 * are back.
 */
int gpupipe_job_end(struct gpupipe_job *job)
{
    struct failure failure;

    if (job->is_ended) {
        return 0;
    }
    if (job->n_in_ring > 0 && connection_check(job->gpupipe, &failure) == 0) {
        job->is_ended = job->wants_close = true;
        return 0;
    }
    return send_errand(job, &job->close, METHOD_JOB_CLOSE);
}

int gpupipe_job_cancel(struct gpupipe_job *job)
{
    job->wants_close = false;
    return send_errand(job, &job->cancel, METHOD_JOB_CANCEL);
}

/* ---- rings --------------------------------------------------------------------------------- */

static void close_now(struct gpupipe_job *job)
{
    job->wants_close = false;
    if (send_errand(job, &job->close, METHOD_JOB_CLOSE) < 0) {
        end_with_failure(job, &job->gpupipe->error.failure);
    }
}

void job_on_last_push(struct gpupipe_job *job)
{
    if (job->is_in_ring) {
        job->is_ended = true; /* the descriptor says so */
    } else {
        close_now(job);
    }
}

void job_on_ring_push_back(struct gpupipe_job *job, bool is_still_open)
{
    job->wants_close |= is_still_open;
    job->n_in_ring--;
    if (job->n_in_ring > 0) {
        return;
    }
    if (job->wants_close && !job->gpupipe->is_lost) {
        close_now(job);
    }
    note_if_over(job);
}

void job_forget_ring(struct gpupipe *gpupipe, const struct gpupipe_ring *ring)
{
    for (struct gpupipe_job *job = gpupipe->jobs; job != NULL; job = job->next) {
        if (job->ring == ring) {
            job->ring = NULL;
        }
    }
}

int job_refuse_ring(const struct gpupipe_job *job, struct failure *ret_failure)
{
    if (job->ring == NULL) {
        return fail(ret_failure, STATUS_MISUSE, "ring", "the job's ring was closed");
    }
    *ret_failure = job->ring->failure;
    return -(int)ret_failure->status;
}

/* ---- query --------------------------------------------------------------------------------- */

uint64_t gpupipe_job_id(const struct gpupipe_job *job)
{
    return job->shape.job;
}

const char *gpupipe_job_token(const struct gpupipe_job *job)
{
    return job->shape.token;
}

uint32_t gpupipe_record_size(const struct gpupipe_job *job, int is_output, uint32_t index)
{
    if (index >= (is_output ? job->shape.n_out : job->shape.n_in)) {
        return 0;
    }
    return is_output ? job->shape.out_size[index] : job->shape.in_size[index];
}

uint64_t gpupipe_push_multiple(const struct gpupipe_job *job)
{
    return MAX(job->shape.push_multiple, 1u);
}

uint64_t job_push_records(const struct msg_job_opened *shape)
{
    uint64_t multiple = MAX(shape->push_multiple, 1u);
    uint32_t record_size = 1;

    for (uint32_t i = 0; i < shape->n_in; i++) {
        record_size = MAX(record_size, shape->in_size[i]);
    }
    /* Only ops that reduce ask for multiples, and their outputs do not come with pushes. */
    for (uint32_t i = 0; multiple == 1 && i < shape->n_out; i++) {
        record_size = MAX(record_size, shape->out_size[i]);
    }
    return MAX(shape->max_push / record_size / multiple, 1u) * multiple;
}

uint64_t gpupipe_push_records(const struct gpupipe_job *job)
{
    return job_push_records(&job->shape);
}

uint32_t gpupipe_window(const struct gpupipe_job *job)
{
    return job->shape.credit;
}

int gpupipe_job_result(struct gpupipe_job *job, struct gpupipe_outcome *ret_outcome)
{
    struct gpupipe_outcome mine = {
        .n_pushes = job->done.pushes,
        .n_records = job->done.n,
    };

    struct failure failure;
    int rc = error_check_size(ret_outcome->size, sizeof(mine), &failure);

    if (rc < 0) {
        return error_record(job->gpupipe, rc, &failure);
    }
    if (!is_over(job)) {
        return 0;
    }
    if (job->error.shown.status != GPUPIPE_OK) {
        mine.status = job->error.shown.status;
        mine.error = &job->error.shown;
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        mine.out[i] = (struct gpupipe_span){job->result[i], job->result_size[i]};
    }
    error_give_struct(ret_outcome, &mine, ret_outcome->size, sizeof(mine));
    return 1;
}
