/*
 * Job, in rings: pushes whose data lie in a client's ring (ring_link.h).
 *
 * Such a job is opened with inline = false.  Its pushes have no memory of the pool but for a reduce
 * op's partials; each borrows the places that its descriptor, or its Refs, name.  What a descriptor
 * says was copied out of the ring once, so what is checked here is what is used; what the data say
 * may change at any time, and only op code looks at them.
 */
#include "daemon/job.h"

#include "daemon/described.h"
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/user.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------------------- */

/* Records of a whole push, which bound a reduce op's partials; else only the ring's size does. */
static uint64_t most_records(const struct job *job, const struct msg_options *options)
{
    const struct push_shape *shape = &job->prepared->shape;
    uint64_t size = options->max_push != 0 ? options->max_push : LIMIT_PUSH;

    if (shape->leaf != 0) {
        return MAX(size / shape->largest / shape->leaf, UINT64_C(1)) * shape->leaf;
    }
    /* A varying input is one chunk, which a device must hold. */
    return (shape->varying != 0 ? LIMIT_PUSH : LIMIT_RING_SIZE) / shape->largest;
}

static int make_push(struct job *job, struct push *push)
{
    const struct push_shape *shape = &job->prepared->shape;

    push->job = job;
    push_lists_add(&job->lists, push);
    push->n_pieces = 1;
    push->piece_records = job->max_records;
    if (shape->leaf == 0) {
        return 0;
    }
    push->blocks = calloc(shape->n_arrays, sizeof(*push->blocks));
    if (push->blocks == NULL) {
        return -ENOMEM;
    }
    return pool_lease(job->server->pool, push_array_size(shape, shape->n_in, job->max_records),
                      &push->blocks[shape->n_in]);
}

/* Bytes of the pool that one push takes. */
static uint64_t push_pool_size(const struct job *job)
{
    const struct push_shape *shape = &job->prepared->shape;

    return shape->leaf == 0 ? 0
                            : pool_rounded(push_array_size(shape, shape->n_in, job->max_records));
}

int job_make_ring_window(struct job *job, const struct msg_options *options, uint32_t window,
                         uint64_t *ret_pool_size)
{
    int r;

    job->max_records = (uint32_t)MIN(most_records(job, options), (uint64_t)UINT32_MAX);
    *ret_pool_size = window * push_pool_size(job);
    if (*ret_pool_size > user_pool_room(job->user, pool_size(job->server->pool))) {
        return -ENOMEM;
    }
    job->pushes = calloc(window, sizeof(*job->pushes));
    if (job->pushes == NULL) {
        return -ENOMEM;
    }
    r = push_lists_make_rows(&job->lists, window);
    for (job->window = 0; r == 0 && job->window < window; job->window++) {
        r = make_push(job, &job->pushes[job->window]);
    }
    return r; /* what was leased goes with the job */
}

/* ---- Refs ----------------------------------------------------------------------------------- */

static int read_ref(const struct job *job, uint32_t array, const struct msg_ref *ref,
                    struct work_row *row, struct failure *ret_failure)
{
    const char *kind, *name = described_name(job, array, &kind);

    if (ref->offset % RING_ALIGN != 0) {
        return fail(ret_failure, STATUS_RANGE, name, "%s %s: offset %llu is no multiple of %u",
                    kind, name, (unsigned long long)ref->offset, RING_ALIGN);
    }
    if (ref->offset / RING_ALIGN > UINT32_MAX) {
        return fail(ret_failure, STATUS_RANGE, name, "%s %s: offset %llu is outside any ring", kind,
                    name, (unsigned long long)ref->offset);
    }
    *push_place(row, &job->prepared->shape, array) = (uint32_t)(ref->offset / RING_ALIGN);
    return 0;
}

/* The same ring for all of them. */
static int find_ring(const struct job *job, const struct msg_job_push *msg,
                     struct ring_link **ret_link, struct failure *ret_failure)
{
    uint64_t ring = msg->in[0].ring;

    for (uint32_t i = 0; i < msg->n_refs + msg->n_out; i++) {
        const struct msg_ref *ref = i < msg->n_refs ? &msg->in[i] : &msg->out[i - msg->n_refs];

        if (ref->ring != ring) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "ring",
                        "the arrays of one push lie in one ring, not in %llu and %llu",
                        (unsigned long long)ring, (unsigned long long)ref->ring);
        }
    }
    return ring_link_find(job->session, ring, "ring", ret_link, ret_failure);
}

/* How many records the lengths say, and that they agree. */
static int read_sizes(const struct job *job, const struct msg_job_push *msg,
                      struct described *described, struct failure *ret_failure)
{
    const struct push_shape *shape = &job->prepared->shape;
    int r = job_count_records(job, 0, msg->in[0].size, &described->n_records, ret_failure);

    if (r < 0) {
        return r;
    }
    if (msg->has_n && msg->n != described->n_records) {
        return fail(ret_failure, STATUS_RANGE, "n", "n is %llu; the data have %llu records",
                    (unsigned long long)msg->n, (unsigned long long)described->n_records);
    }
    if (job->prepared->tail == TAIL_SHORT) {
        described->tail_size = (uint32_t)(msg->in[0].size % shape->record_size[0]);
    }
    for (uint32_t array = 1; array < described_n_arrays(job); array++) {
        const struct msg_ref *ref =
            array < shape->n_in ? &msg->in[array] : &msg->out[array - shape->n_in];
        const char *kind, *name = described_name(job, array, &kind);

        if (shape->varying != 0 && array == shape->varying) {
            described->varying_size = (uint32_t)MIN(ref->size, (uint64_t)UINT32_MAX);
        } else if (ref->size != push_array_size(shape, array, described->n_records)) {
            return fail(ret_failure, STATUS_RANGE, name, "%s %s: %llu bytes are not %llu records",
                        kind, name, (unsigned long long)ref->size,
                        (unsigned long long)described->n_records);
        }
    }
    return 0;
}

int job_take_refs(struct job *job, const struct msg_job_push *msg, struct failure *ret_failure)
{
    uint32_t n_out = described_n_arrays(job) - job->prepared->shape.n_in;
    struct work_row row = {0};
    struct described described = {.in = row.in, .out = row.out};

    if (msg->n_out != n_out) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "out",
                    "option out has %u Refs; a push of op %s has %u outputs", msg->n_out,
                    job->prepared->op->name, n_out);
    }
    int r = find_ring(job, msg, &described.link, ret_failure);
    for (uint32_t i = 0; r == 0 && i < described_n_arrays(job); i++) {
        r = read_ref(job, i,
                     i < job->prepared->shape.n_in ? &msg->in[i]
                                                   : &msg->out[i - job->prepared->shape.n_in],
                     &row, ret_failure);
    }
    if (r == 0) {
        r = read_sizes(job, msg, &described, ret_failure);
    }
    if (r == 0) {
        r = job_push_deadline_at(job, msg->deadline_ns, &described.deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = described_check(job, &described, ret_failure);
    }
    if (r == 0) {
        described_accept(job, &described);
    }
    return r;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* What a descriptor's answer says of its records, and how many of them are done. */
static void complete_records(const struct job *job, uint64_t n_records,
                             struct ring_completion *completion)
{
    const struct push_shape *shape = &job->prepared->shape;

    completion->n_records = (uint32_t)n_records;
    for (uint32_t array = shape->n_in; array < described_n_arrays(job); array++) {
        completion->out_size[array - shape->n_in] = (uint32_t)n_records * shape->record_size[array];
    }
}

/* A table's rows have equal shares of its time. */
static void complete_timing(const struct push *table, struct ring_completion *completion)
{
    completion->has_timing = true;
    completion->in_ns = table->in_ns / table->n_rows;
    completion->compute_ns = table->compute_ns / table->n_rows;
    completion->out_ns = table->out_ns / table->n_rows;
}

void job_complete_push(struct job *job, const struct push *push, struct ring_link *link,
                       const struct failure *failure)
{
    uint64_t n_done = failure == NULL ? push->n_records : push_n_done(push, &job->prepared->shape);
    struct ring_completion completions[WORK_ROWS],
        common = {
            .job = (uint32_t)job->id,
            .status = (uint16_t)(failure != NULL ? failure->status : STATUS_OK),
            .devices = push->devices,
            .priority = (uint8_t)push->ran_as,
        };

    if (job->prepared->wants_timing) {
        complete_timing(push, &common);
    }
    for (uint32_t i = 0; i < push->n_rows; i++) {
        const struct push_row *row = push_lists_row(&job->lists, push, i);

        completions[i] = common;
        completions[i].tag = row->tag;
        complete_records(job, push->n_rows > 1 && n_done > 0 ? row->n_records : n_done,
                         &completions[i]);
        if (common.has_timing) {
            completions[i].queue_ns = push_queue_ns(push->start_ns, row->accepted_ns);
        }
    }
    ring_link_complete(link, completions, push->n_rows);
}

/* Note it with each of the job's pushes that lie there; are there any? */
static bool fail_pushes(struct job *job, const struct ring_link *link,
                        const struct failure *failure)
{
    bool has_any = false;

    for (uint32_t i = 0; i < job->window; i++) {
        struct push *push = &job->pushes[i];

        if (push->ring == link) {
            has_any = true;
            push_note_failure(push, failure);
        }
    }
    return has_any;
}

void job_fail_ring(const struct ring_link *link, const struct failure *failure)
{
    struct job *next;

    for (struct job *job = link->server->jobs; job != NULL; job = next) {
        next = job->next;
        if (fail_pushes(job, link, failure)) {
            job_fail(job, failure, job->n_answered);
            job_settle(job);
        }
    }
}
