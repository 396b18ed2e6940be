/*
 * Streaming jobs: pushes on their way, results on theirs.
 *
 * A push comes back to its caller once three things have happened, in whatever order the daemon
 * makes them: its last byte has left (the writer refers to the caller's buffers until then), its
 * request was answered, and its result has arrived (or its request was refused, or the connection
 * lost).  Results are received straight into the caller's memory: `out` is the last key, so the
 * part of the message before a payload tells whose it is.
 *
 * States of a job: open, ended (job.close sent), over (`has_done`).  A lost connection makes it
 * over.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_private.h"

#include "proto/codec.h"
#include "proto/util.h"

#include <string.h>

/* A push between gpupipe_job_push() and gpupipe_job_reap(). */
struct flight {
    struct flight *next;
    struct call call;
    struct gpupipe_job *job;
    struct gpupipe_push *push;
    uint64_t seq;
    bool is_sent;
    bool is_answered; /* the request job.push */
    bool has_result;
};

struct flight_list {
    struct flight *first;
    struct flight **last;
};

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
    struct flight_list landed;
    struct errand close;
    struct errand cancel;
    bool is_ended;
    bool has_done;
    struct msg_job_done done;
    void *result[LIMIT_OUT];
    uint64_t result_size[LIMIT_OUT];
};

static void list_init(struct flight_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_append(struct flight_list *list, struct flight *flight)
{
    flight->next = NULL;
    *list->last = flight;
    list->last = &flight->next;
}

static void list_remove(struct flight_list *list, struct flight *flight)
{
    struct flight **link = &list->first;

    while (*link != flight) {
        link = &(*link)->next;
    }
    *link = flight->next;
    if (list->last == &flight->next) {
        list->last = link;
    }
}

static void list_free(struct flight_list *list)
{
    while (list->first != NULL) {
        struct flight *flight = list->first;

        list->first = flight->next;
        free(flight);
    }
    list_init(list);
}

/* ---- a push's way back --------------------------------------------------------------------- */

static void land_if_complete(struct flight *flight)
{
    if (flight->is_sent && flight->is_answered && flight->has_result) {
        list_remove(&flight->job->flying, flight);
        list_append(&flight->job->landed, flight);
    }
}

static void set_failure(struct flight *flight, const struct failure *failure)
{
    struct msg_answer *answer = &flight->push->answer;

    if (!answer->has_failure) {
        answer->has_failure = true;
        answer->failure = *failure;
    }
}

static void on_push_sent(void *arg, bool is_sent)
{
    struct flight *flight = arg;

    /* Not sent means that the connection is being lost: the call's answer will say so. */
    (void)is_sent;
    flight->is_sent = true;
    land_if_complete(flight);
}

static void on_push_answer(struct call *call, const msgpack_object *result,
                           const struct failure *failure)
{
    struct flight *flight = CONTAINER_OF(call, struct flight, call);

    (void)result;
    flight->is_answered = true;
    if (failure != NULL) {
        /* A job that had ended by then said in job.done why; the push only finds it gone. */
        const struct msg_job_done *done = gpupipe_job_done(flight->job);

        set_failure(flight, done != NULL && done->has_failure ? &done->failure : failure);
        if (!flight->has_result) {
            flight->has_result = true;
            flight->job->n_credits++;
        }
    }
    land_if_complete(flight);
}

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

    while (job != NULL && job->shape.job != id) {
        job = job->next;
    }
    return job;
}

static struct flight *find_flight(struct gpupipe *gpupipe, uint64_t id, uint64_t seq)
{
    struct gpupipe_job *job = find_job(gpupipe, id);
    struct flight *flight = job == NULL ? NULL : job->flying.first;

    while (flight != NULL && (flight->seq != seq || flight->has_result)) {
        flight = flight->next;
    }
    return flight;
}

static int sink_into(struct reader_sink *sink, void *bytes, uint64_t size)
{
    sink->n_pieces = 1;
    sink->pieces[0] = (struct iovec){.iov_base = bytes, .iov_len = size};
    return 0;
}

static int sink_of_push(struct gpupipe *gpupipe, const struct msg_answer *answer,
                        const struct guard *guard, struct reader_sink *ret_sink)
{
    struct flight *flight = find_flight(gpupipe, answer->job, answer->seq);
    uint32_t output = guard->payload_index;
    struct gpupipe_push *push;
    struct failure failure;

    if (flight == NULL) {
        return -1;
    }
    push = flight->push;
    if (output >= LIMIT_OUT || guard->payload_size > push->out[output].size) {
        fail(&failure, STATUS_INTERNAL, "out",
             "output %u of push %llu has %llu bytes, more than fit", output,
             (unsigned long long)flight->seq, (unsigned long long)guard->payload_size);
        set_failure(flight, &failure);
        return -1;
    }
    push->out_size[output] = guard->payload_size;
    return sink_into(ret_sink, push->out[output].data, guard->payload_size);
}

static int sink_of_job(struct gpupipe *gpupipe, const struct msg_job_done *done,
                       const struct guard *guard, struct reader_sink *ret_sink)
{
    struct gpupipe_job *job = find_job(gpupipe, done->job);
    uint32_t output = guard->payload_index;

    if (job == NULL || output >= LIMIT_OUT || job->result[output] != NULL ||
        guard->payload_size > LIMIT_RECORD) {
        return -1;
    }
    job->result[output] = malloc(guard->payload_size + 1);
    if (job->result[output] == NULL) {
        return -1;
    }
    job->result_size[output] = guard->payload_size;
    return sink_into(ret_sink, job->result[output], guard->payload_size);
}

int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink)
{
    struct msg_answer answer;
    struct msg_job_done done;
    struct failure failure;

    if (is_named(message, NOTIFY_JOB_RESULT) &&
        codec_unpack_job_result(&message->params, &answer, &failure) == 0) {
        return sink_of_push(gpupipe, &answer, guard, ret_sink);
    }
    if (is_named(message, NOTIFY_JOB_DONE) &&
        codec_unpack_job_done(&message->params, &done, &failure) == 0) {
        return sink_of_job(gpupipe, &done, guard, ret_sink);
    }
    return -1;
}

static void on_result(struct gpupipe *gpupipe, const struct msg_answer *answer)
{
    struct flight *flight = find_flight(gpupipe, answer->job, answer->seq);
    struct msg_answer *mine;

    if (flight == NULL) {
        return;
    }
    mine = &flight->push->answer;
    if (mine->has_failure) {
        struct failure failure = mine->failure;

        *mine = *answer;
        mine->has_failure = true;
        mine->failure = failure;
    } else {
        *mine = *answer;
    }
    flight->job->n_credits += answer->credit;
    flight->has_result = true;
    land_if_complete(flight);
}

static void on_done(struct gpupipe *gpupipe, const struct msg_job_done *done)
{
    struct gpupipe_job *job = find_job(gpupipe, done->job);

    if (job != NULL && !job->has_done) {
        job->has_done = true;
        job->done = *done;
    }
}

void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message)
{
    struct msg_answer answer;
    struct msg_job_done done;

    if (is_named(message, NOTIFY_JOB_RESULT)) {
        if (codec_unpack_job_result(&message->params, &answer, &gpupipe->stray) == 0) {
            on_result(gpupipe, &answer);
        }
    } else if (is_named(message, NOTIFY_JOB_DONE)) {
        if (codec_unpack_job_done(&message->params, &done, &gpupipe->stray) == 0) {
            on_done(gpupipe, &done);
        }
    }
}

/* ---- the connection's end ------------------------------------------------------------------ */

static void end_with(struct gpupipe_job *job, const struct failure *failure)
{
    if (!job->has_done) {
        job->has_done = true;
        job->done = (struct msg_job_done){
            .job = job->shape.job,
            .state = JOB_FAILED,
            .has_failure = true,
            .failure = *failure,
        };
    }
}

void job_on_loss(struct gpupipe *gpupipe)
{
    for (struct gpupipe_job *job = gpupipe->jobs; job != NULL; job = job->next) {
        /* Writer and calls are gone: what still flies was accepted and has no result. */
        while (job->flying.first != NULL) {
            struct flight *flight = job->flying.first;

            set_failure(flight, &gpupipe->loss);
            flight->has_result = true;
            land_if_complete(flight);
        }
        end_with(job, &gpupipe->loss);
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
    list_free(&job->landed);
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

/* ---- for callers --------------------------------------------------------------------------- */

static void on_errand_answer(struct call *call, const msgpack_object *result,
                             const struct failure *failure)
{
    struct errand *errand = CONTAINER_OF(call, struct errand, call);

    (void)result;
    errand->is_under_way = false;
    if (failure != NULL) {
        end_with(errand->job, failure);
    }
}

static int take_opened(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_job_opened(result, ret, ret_failure);
}

int gpupipe_job_open(struct gpupipe *gpupipe, const struct msg_job_open *msg,
                     struct gpupipe_job **ret_job, struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct gpupipe_job *job = calloc(1, sizeof(*job));
    struct request request;
    int rc;

    if (job == NULL) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "out of memory");
    }
    request_init(&request, gpupipe);
    codec_pack_job_open(&request.packer, request.msgid, msg);
    rc = connection_call(gpupipe, &request, take_opened, &job->shape, ret_failure);
    request_finish(&request);
    if (rc < 0) {
        return rc;
    }
    job->gpupipe = gpupipe;
    job->n_credits = job->shape.credit;
    list_init(&job->flying);
    list_init(&job->landed);
    job->close = (struct errand){.call.on_answer = on_errand_answer, .job = job};
    job->cancel = (struct errand){.call.on_answer = on_errand_answer, .job = job};
    job->next = gpupipe->jobs;
    gpupipe->jobs = job;
    *ret_job = STEAL(job);
    return 0;
}

void gpupipe_job_free(struct gpupipe_job *job)
{
    struct failure failure;

    if (job == NULL) {
        return;
    }
    if (!job->has_done) {
        (void)gpupipe_job_cancel(job, &failure);
    }
    while (!job->has_done || job->flying.first != NULL || job->close.is_under_way ||
           job->cancel.is_under_way) {
        /* A loss ends all of these as well. */
        (void)gpupipe_dispatch(job->gpupipe, -1, &failure);
    }
    destroy(job);
}

const struct msg_job_opened *gpupipe_job_shape(const struct gpupipe_job *job)
{
    return &job->shape;
}

bool gpupipe_job_can_push(const struct gpupipe_job *job)
{
    return job->n_credits > 0 && !job->is_ended && !job->has_done;
}

const struct msg_job_done *gpupipe_job_done(const struct gpupipe_job *job)
{
    return job->has_done ? &job->done : NULL;
}

const void *gpupipe_job_result(const struct gpupipe_job *job, uint32_t output, uint64_t *ret_size)
{
    if (!job->has_done || job->result[output] == NULL) {
        return NULL;
    }
    *ret_size = job->result_size[output];
    return job->result[output];
}

static int post_push(struct flight *flight, struct failure *ret_failure)
{
    struct gpupipe_job *job = flight->job;
    struct gpupipe_push *push = flight->push;
    struct msg_job_push msg = {
        .job = job->shape.job,
        .seq = flight->seq,
        .has_n = true,
        .n = push->n_records,
        .n_data = job->shape.n_in,
    };
    struct request request;
    int rc;

    request_init(&request, job->gpupipe);
    codec_pack_job_push(&request.packer, request.msgid, &msg);
    rc = connection_post(job->gpupipe, &request, &flight->call, push->in, msg.n_data, on_push_sent,
                         flight, ret_failure);
    request_finish(&request);
    return rc;
}

int gpupipe_job_push(struct gpupipe_job *job, struct gpupipe_push *push,
                     struct failure *ret_failure)
{
    struct flight *flight;
    int rc;

    if (!gpupipe_job_can_push(job)) {
        return fail(ret_failure, STATUS_NO_CREDIT, NULL, "the job takes no push now");
    }
    flight = calloc(1, sizeof(*flight));
    if (flight == NULL) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "out of memory");
    }
    flight->call.on_answer = on_push_answer;
    flight->job = job;
    flight->push = push;
    flight->seq = job->next_seq;
    memset(&push->answer, 0, sizeof(push->answer));
    memset(push->out_size, 0, sizeof(push->out_size));
    rc = post_push(flight, ret_failure);
    if (rc < 0) {
        free(flight);
        return rc;
    }
    job->next_seq++;
    job->n_credits--;
    list_append(&job->flying, flight);
    return 0;
}

struct gpupipe_push *gpupipe_job_reap(struct gpupipe_job *job)
{
    struct flight *flight = job->landed.first;
    struct gpupipe_push *push;

    if (flight == NULL) {
        return NULL;
    }
    list_remove(&job->landed, flight);
    push = flight->push;
    free(flight);
    return push;
}

static int send_errand(struct gpupipe_job *job, struct errand *errand, enum method method,
                       struct failure *ret_failure)
{
    struct msg_job msg = {.job = job->shape.job};
    struct request request;
    int rc;

    if (errand->is_under_way || job->has_done) {
        return 0;
    }
    request_init(&request, job->gpupipe);
    codec_pack_job(&request.packer, request.msgid, method, &msg);
    rc = connection_post(job->gpupipe, &request, &errand->call, NULL, 0, NULL, NULL, ret_failure);
    request_finish(&request);
    errand->is_under_way = rc == 0;
    job->is_ended = true;
    return rc;
}

int gpupipe_job_end(struct gpupipe_job *job, struct failure *ret_failure)
{
    return job->is_ended ? 0 : send_errand(job, &job->close, METHOD_JOB_CLOSE, ret_failure);
}

int gpupipe_job_cancel(struct gpupipe_job *job, struct failure *ret_failure)
{
    return send_errand(job, &job->cancel, METHOD_JOB_CANCEL, ret_failure);
}
