/*
 * Pushes on their way, and results on theirs.
 *
 * A push comes back to its caller once three things have happened, in whatever order the daemon
 * makes them: its last byte has left (the writer refers to the caller's buffers until then), its
 * request was answered, and its result has arrived (or its request was refused, or the connection
 * lost).  Results are received straight into the caller's memory: `out` is the last key, so the
 * part of the message before a payload tells whose it is.  A run (gpupipe_run.c) is the same
 * without a job: the answer of its request is its result.
 *
 * A push in a ring (gpupipe_ring.c) has no message: its completion is all that has to happen.
 *
 * Lists of flights: each job's `flying`; then the connection's `landed`; then its `reaped`, which
 * only keeps what the last completions point to.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_flight.h"

#include "client/gpupipe_describe.h"
#include "client/gpupipe_job.h"
#include "client/gpupipe_ring.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <string.h>

_Static_assert(GPUPIPE_IN_MAX == LIMIT_IN && GPUPIPE_OUT_MAX == LIMIT_OUT, "as on the wire");

/* ---- lists --------------------------------------------------------------------------------- */

void flight_list_init(struct flight_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

void flight_list_append(struct flight_list *list, struct flight *flight)
{
    flight->next = NULL;
    *list->last = flight;
    list->last = &flight->next;
}

static void unlink_flight(struct flight_list *list, struct flight *flight)
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

struct flight *flight_list_take(struct flight_list *list)
{
    struct flight *flight = list->first;

    unlink_flight(list, flight);
    return flight;
}

void flight_list_free(struct flight_list *list, const struct gpupipe_job *job)
{
    struct flight *next;

    for (struct flight *flight = list->first; flight != NULL; flight = next) {
        next = flight->next;
        if (job == NULL || flight->job == job) {
            unlink_flight(list, flight);
            free(flight);
        }
    }
}

/* ---- the way back -------------------------------------------------------------------------- */

bool flight_is_complete(const struct flight *flight)
{
    return flight->is_sent && flight->is_answered && flight->has_result;
}

static void land_if_complete(struct flight *flight)
{
    if (flight->job != NULL && flight_is_complete(flight)) {
        unlink_flight(&flight->job->flying, flight);
        flight_list_append(
            flight->job->is_private ? &flight->job->landed : &flight->job->gpupipe->landed, flight);
        if (flight->is_in_ring) {
            job_on_ring_push_back(flight->job, flight->is_last && flight->answer.has_failure);
        }
    }
}

/* The first failure is what went wrong. */
void flight_fail(struct flight *flight, const struct failure *failure)
{
    if (!flight->answer.has_failure) {
        flight->answer.has_failure = true;
        flight->answer.failure = *failure;
    }
}

void flight_on_sent(void *arg, bool is_sent)
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
    struct gpupipe_job *job = flight->job;

    (void)result;
    flight->is_answered = true;
    if (failure != NULL) {
        /* A job that had ended by then said in job.done why; the push only finds it gone. */
        flight_fail(flight, job->has_done && job->done.has_failure ? &job->done.failure : failure);
        if (!flight->has_result) {
            flight->has_result = true;
            job->n_credits++;
            /* Its number is free again, as are those of pushes behind it, which meet SEQ. */
            job->next_seq = MIN(job->next_seq, flight->seq);
        }
    }
    land_if_complete(flight);
}

void flight_on_result(struct flight *flight, const struct msg_answer *answer)
{
    struct failure failure = flight->answer.failure;
    bool had_failure = flight->answer.has_failure;

    flight->answer = *answer;
    if (had_failure) {
        flight->answer.has_failure = true;
        flight->answer.failure = failure;
    }
    flight_has_answer(flight);
}

void flight_has_answer(struct flight *flight)
{
    flight->has_result = true;
    if (flight->job != NULL) {
        flight->job->n_credits += flight->answer.credit;
    }
    land_if_complete(flight);
}

void flight_lose(struct flight *flight, const struct failure *failure)
{
    flight_fail(flight, failure);
    flight->has_result = true;
    land_if_complete(flight);
}

int flight_on_payload(struct flight *flight, const struct guard *guard,
                      struct reader_sink *ret_sink)
{
    uint32_t output = guard->payload_index;
    struct failure failure;

    if (output >= LIMIT_OUT || guard->payload_size > flight->out[output].size) {
        fail(&failure, STATUS_INTERNAL, "out", "output %u has %llu bytes, more than its room",
             output, (unsigned long long)guard->payload_size);
        flight_fail(flight, &failure);
        return -1;
    }
    flight->out_size[output] = guard->payload_size;
    ret_sink->n_pieces = 1;
    ret_sink->pieces[0] =
        (struct iovec){.iov_base = flight->out[output].data, .iov_len = guard->payload_size};
    return 0;
}

/* ---- what a caller hands over -------------------------------------------------------------- */

/* Memory that the library could not use. */
static int check_spans(const struct gpupipe_desc *desc, struct failure *ret_failure)
{
    if (desc->n_in > LIMIT_IN || desc->n_out > LIMIT_OUT) {
        return fail(ret_failure, STATUS_MISUSE, NULL, "%u inputs and %u outputs: no op has those",
                    desc->n_in, desc->n_out);
    }
    for (uint32_t i = 0; i < desc->n_in; i++) {
        if (desc->in[i].data == NULL && desc->in[i].size > 0) {
            return fail(ret_failure, STATUS_MISUSE, "in", "input %u has bytes, and no address", i);
        }
    }
    for (uint32_t i = 0; i < desc->n_out; i++) {
        if (desc->out[i].data == NULL && desc->out[i].size > 0) {
            return fail(ret_failure, STATUS_MISUSE, "out", "output %u has room, and no address", i);
        }
    }
    return 0;
}

/* A flight for this push; the counts that only its job can judge are left to the caller. */
int flight_check_frame(const struct gpupipe_desc *desc, struct failure *ret_failure)
{
    uint64_t left = LIMIT_FRAME - LIMIT_HEAD;

    for (uint32_t i = 0; i < desc->n_in && i < LIMIT_IN; i++) {
        if (desc->in[i].size > left) {
            return fail(ret_failure, STATUS_TOO_BIG, "in",
                        "more than %d bytes of inputs: use a job, and smaller pushes",
                        LIMIT_FRAME - LIMIT_HEAD);
        }
        left -= desc->in[i].size;
    }
    return 0;
}

int flight_create(const struct gpupipe_desc *desc, struct flight **ret_flight,
                  struct failure *ret_failure)
{
    int rc = check_spans(desc, ret_failure);
    struct flight *flight;

    if (rc < 0) {
        return rc;
    }
    flight = calloc(1, sizeof(*flight));
    if (flight == NULL) {
        return fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "out of memory");
    }
    flight->tag = desc->tag;
    for (uint32_t i = 0; i < desc->n_out; i++) {
        flight->out[i] = desc->out[i];
    }
    *ret_flight = flight;
    return 0;
}

/* ---- submit -------------------------------------------------------------------------------- */

static int check_push(const struct gpupipe *gpupipe, const struct gpupipe_desc *desc,
                      struct failure *ret_failure)
{
    const struct gpupipe_job *job = desc->job;

    if (job == NULL || job->gpupipe != gpupipe) {
        return fail(ret_failure, STATUS_MISUSE, "job", "a push names a job of this connection");
    }
    if (job->is_lost) {
        return fail(ret_failure, STATUS_MISUSE, "job",
                    "the job was lost with an earlier connection: free it, and open another");
    }
    if (job->has_done && job->error.shown.status != GPUPIPE_OK) {
        *ret_failure = job->error.failure;
        return job->error.shown.status;
    }
    if (job->is_ended || job->has_done) {
        return fail(ret_failure, STATUS_SEQ, "job", "the job's input has ended");
    }
    if (job->is_in_ring && (job->ring == NULL || job->ring->is_closed)) {
        return job_refuse_ring(job, ret_failure);
    }
    if (desc->n_in != job->shape.n_in) {
        return fail(ret_failure, STATUS_MISUSE, "n_in", "the op has %u inputs, the push %u",
                    job->shape.n_in, desc->n_in);
    }
    for (uint32_t i = 0; i < desc->n_out && i < job->shape.n_out; i++) {
        if (desc->out[i].size / MAX(job->shape.out_size[i], 1u) < desc->n_records) {
            return fail(ret_failure, STATUS_MISUSE, "out",
                        "output %u has room for %llu bytes, and its records have %u", i,
                        (unsigned long long)desc->out[i].size, job->shape.out_size[i]);
        }
    }
    return 0;
}

static int post_push(struct flight *flight, const struct gpupipe_desc *desc,
                     struct failure *ret_failure)
{
    struct gpupipe_job *job = flight->job;
    struct msg_job_push msg = {
        .job = job->shape.job,
        .seq = flight->seq,
        .has_n = true,
        .n = desc->n_records,
        .n_data = desc->n_in,
        .deadline_ns = desc->deadline_ns,
    };
    struct request request;
    int rc;

    request_init(&request, job->gpupipe);
    codec_pack_job_push(&request.packer, request.msgid, &msg);
    rc = connection_post(job->gpupipe, &request, &flight->call, desc->in, desc->n_in,
                         flight_on_sent, flight, ret_failure);
    request_finish(&request);
    return rc;
}

/* Through the socket; the daemon counts on pushes in the order of their numbers. */
static int submit_as_message(struct flight *flight, const struct gpupipe_desc *desc,
                             struct failure *ret_failure)
{
    struct gpupipe_job *job = flight->job;
    int rc = flight_check_frame(desc, ret_failure);

    flight->call.on_answer = on_push_answer;
    flight->seq = job->next_seq;
    if (rc == 0) {
        rc = post_push(flight, desc, ret_failure);
    }
    if (rc == 0) {
        job->next_seq++;
    }
    return rc;
}

static void submit_in_ring(struct flight *flight, const struct gpupipe_desc *desc,
                           struct ring_desc *ring_desc)
{
    /* No message leaves, and none is answered. */
    flight->is_sent = flight->is_answered = flight->is_in_ring = true;
    describe_pad(flight->job, desc);
    rings_submit(flight->job->ring, flight, ring_desc);
    flight->job->n_in_ring++;
}

/* Has the job room for one more?  Where it is in a ring, as that has it, too. */
static bool has_room(const struct gpupipe_job *job)
{
    return job->n_credits > 0 && (!job->is_in_ring || rings_room(job->ring) > 0);
}

/* 1: taken, 0: the job's window is full, or a negative status. */
static int submit_one(struct gpupipe *gpupipe, const struct gpupipe_desc *desc,
                      struct failure *ret_failure)
{
    struct gpupipe_job *job = desc->job;
    struct ring_desc ring_desc;
    struct flight *flight;
    int rc = check_push(gpupipe, desc, ret_failure);

    if (rc == 0 && job->is_in_ring) {
        rc = describe_push(job, desc, &ring_desc, ret_failure);
    }
    if (rc < 0 || !has_room(job)) {
        return rc;
    }
    rc = flight_create(desc, &flight, ret_failure);
    if (rc < 0) {
        return rc;
    }
    flight->job = job;
    if (job->is_in_ring) {
        submit_in_ring(flight, desc, &ring_desc);
    } else {
        rc = submit_as_message(flight, desc, ret_failure);
    }
    if (rc < 0) {
        free(flight);
        return rc;
    }
    job->n_credits--;
    flight_list_append(&job->flying, flight);
    flight->is_last = desc->is_last != 0;
    if (flight->is_last) {
        job_on_last_push(job);
    }
    return 1;
}

int gpupipe_submit(struct gpupipe *gpupipe, const struct gpupipe_desc *descs, uint32_t n)
{
    size_t stride = n == 0 ? sizeof(*descs) : descs[0].size;
    struct gpupipe_desc desc;
    struct failure failure;
    uint32_t n_taken = 0;
    int rc = connection_check(gpupipe, &failure);

    while (rc >= 0 && n_taken < n) {
        rc = error_take_struct(&desc, (const char *)descs + n_taken * stride, stride, sizeof(desc),
                               DESC_LEAST, &failure);
        if (rc == 0) {
            rc = submit_one(gpupipe, &desc, &failure);
        }
        if (rc <= 0) {
            break;
        }
        n_taken++;
    }
    if (n_taken == 0) {
        return error_record(gpupipe, rc, &failure);
    }
    rings_publish(gpupipe);
    connection_flush(gpupipe);
    return (int)n_taken;
}

/* ---- reap ---------------------------------------------------------------------------------- */

static const enum gpupipe_priority priorities[PRIORITY_COUNT] = {
    [PRIORITY_URGENT] = GPUPIPE_URGENT,
    [PRIORITY_NORMAL] = GPUPIPE_NORMAL,
    [PRIORITY_BULK] = GPUPIPE_BULK,
};

void flight_complete(struct flight *flight, struct gpupipe_completion *ret, size_t ret_size)
{
    const struct msg_answer *answer = &flight->answer;
    struct gpupipe_completion mine = {
        .tag = flight->tag,
        .n_records = answer->n,
        .priority = priorities[answer->by.priority],
        .device = answer->by.device,
        .backend = answer->by.backend,
        .path = answer->by.path,
    };

    memcpy(mine.out_size, flight->out_size, sizeof(mine.out_size));
    if (answer->by.has_timing) {
        const struct msg_timing *timing = &answer->by.timing;

        flight->timing = (struct gpupipe_timing){timing->queue_ns, timing->in_ns,
                                                 timing->compute_ns, timing->out_ns};
        mine.timing = &flight->timing;
    }
    if (answer->has_failure) {
        mine.status = error_set(&flight->error, &answer->failure);
        mine.error = &flight->error.shown;
    }
    error_give_struct(ret, &mine, ret_size, sizeof(mine));
}

/* Into the rings.  A job that ends meanwhile is news, which a program may be about to poll for. */
static void look_for_more(struct gpupipe *gpupipe)
{
    bool had_ended_job = gpupipe->has_ended_job;
    struct failure failure;

    if (!rings_take(gpupipe)) {
        connection_turn(gpupipe, 0, CONNECTION_IGNORE_WAKES, &failure); /* it may be lost now */
    }
    if (gpupipe->has_ended_job && !had_ended_job) {
        gpupipe_wake(gpupipe);
    }
}

int gpupipe_reap(struct gpupipe *gpupipe, struct gpupipe_completion *ret_completions, uint32_t max)
{
    size_t stride = max == 0 ? sizeof(*ret_completions) : ret_completions[0].size;
    struct failure failure;
    uint32_t n = 0;
    int rc = connection_check(gpupipe, &failure);

    /* What a lost connection leaves behind is to be reaped, then told of. */
    if (rc < 0 && (!connection_is_ours(gpupipe) || gpupipe->landed.first == NULL)) {
        return error_record(gpupipe, rc, &failure);
    }
    rc = error_check_size(stride, sizeof(*ret_completions), &failure);
    if (rc < 0) {
        return error_record(gpupipe, rc, &failure);
    }
    if (!gpupipe->is_lost) {
        look_for_more(gpupipe);
    }
    flight_list_free(&gpupipe->reaped, NULL);
    while (n < max && gpupipe->landed.first != NULL) {
        struct flight *flight = gpupipe->landed.first;

        unlink_flight(&gpupipe->landed, flight);
        flight_list_append(&gpupipe->reaped, flight);
        flight_complete(flight, (void *)((char *)ret_completions + n * stride), stride);
        n++;
    }
    return (int)n;
}
