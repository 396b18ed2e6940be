/*
 * Job, in rings: pushes whose data lie in a client's ring (ring_link.h).
 *
 * Such a job is opened with inline = false.  Its pushes have no memory of the pool but for a reduce
 * op's partials; each borrows the places that its descriptor, or its Refs, name.  What a descriptor
 * says was copied out of the ring once, so what is checked here is what is used; what the data say
 * may change at any time, and only op code looks at them.
 */
#include "daemon/job.h"

#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/user.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>

_Static_assert(WORK_ALIGN == RING_ALIGN, "what a descriptor says of its places is a row");

/* A table takes no longer than this, as far as is known: a GPU's launch costs a fifth of it, and a
 * CPU's other threads do not wait long for something to do.  Not tuned. */
#define TABLE_NS 100e3

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
    int r = 0;

    job->max_records = (uint32_t)MIN(most_records(job, options), (uint64_t)UINT32_MAX);
    *ret_pool_size = window * push_pool_size(job);
    if (*ret_pool_size > user_pool_room(job->user, pool_size(job->server->pool))) {
        return -ENOMEM;
    }
    job->pushes = calloc(window, sizeof(*job->pushes));
    job->rows = aligned_alloc(sizeof(*job->rows), window * sizeof(*job->rows));
    if (job->pushes == NULL || job->rows == NULL) {
        return -ENOMEM;
    }
    for (job->window = 0; r == 0 && job->window < window; job->window++) {
        r = make_push(job, &job->pushes[job->window]);
        push_lists_add_row(&job->lists, &job->rows[job->window]);
    }
    return r; /* what was leased goes with the job */
}

/* ---- places in a ring ----------------------------------------------------------------------- */

/* A push as it was described, by descriptor or by Refs: the arrays that lie in the ring. */
struct described {
    struct ring_link *link;
    uint64_t n_records;
    uint64_t deadline_at_ns;
    uint32_t varying_size;
    uint32_t tail_size;
    /* Of the inputs and, but for a reduce op, the outputs. */
    uint64_t offset[PUSH_ARRAYS];
    uint64_t size[PUSH_ARRAYS]; /* measure() sets them */
};

static uint32_t n_ring_arrays(const struct job *job)
{
    return job->prepared->shape.leaf != 0 ? job->prepared->shape.n_in
                                          : job->prepared->shape.n_arrays;
}

/* "input x" or "output y". */
static const char *array_name(const struct job *job, uint32_t array, const char **ret_kind)
{
    bool is_input = array < job->prepared->shape.n_in;

    *ret_kind = is_input ? "input" : "output";
    return is_input ? job->prepared->op->in[array].name
                    : job->prepared->op->out[array - job->prepared->shape.n_in].name;
}

/* Its counts have been checked. */
static void measure(const struct job *job, struct described *push)
{
    const struct push_shape *shape = &job->prepared->shape;

    for (uint32_t array = 0; array < n_ring_arrays(job); array++) {
        push->size[array] = push->n_records * shape->record_size[array];
    }
    if (shape->varying != 0) {
        push->size[shape->varying] = push->varying_size;
    }
}

static int check_counts(const struct job *job, const struct described *push,
                        struct failure *ret_failure)
{
    const struct push_shape *shape = &job->prepared->shape;

    if (push->n_records > job->max_records) {
        fail(ret_failure, STATUS_TOO_BIG, "n", "%llu records in one push; max_push allows %u",
             (unsigned long long)push->n_records, job->max_records);
        return failure_add_limit(ret_failure, "max_push", push->n_records * shape->largest,
                                 job_max_push(job));
    }
    if (shape->varying == 0 ? push->varying_size != 0
                            : push->varying_size % shape->record_size[shape->varying] != 0) {
        return fail(ret_failure, STATUS_RANGE, "varying_size",
                    shape->varying == 0 ? "op %s has no varying input"
                                        : "op %s: the varying input has no whole elements",
                    job->prepared->op->name);
    }
    if (shape->varying != 0 && push->varying_size > LIMIT_PUSH) {
        fail(ret_failure, STATUS_TOO_BIG, "varying_size", "a varying input of %u bytes, at most %d",
             push->varying_size, LIMIT_PUSH);
        return failure_add_limit(ret_failure, "max_push", push->varying_size, LIMIT_PUSH);
    }
    if (push->tail_size != 0 && (job->prepared->tail != TAIL_SHORT || push->n_records == 0 ||
                                 push->tail_size >= shape->record_size[0])) {
        return fail(ret_failure, STATUS_RANGE, "tail_size",
                    "a last record of %u bytes: the job has no tail \"short\", or it is not short",
                    push->tail_size);
    }
    return 0;
}

static int check_bounds(const struct job *job, const struct described *push,
                        struct failure *ret_failure)
{
    for (uint32_t array = 0; array < n_ring_arrays(job); array++) {
        uint64_t size = push->size[array];

        if (size > push->link->size || push->offset[array] > push->link->size - size) {
            const char *kind, *name = array_name(job, array, &kind);

            return fail(ret_failure, STATUS_RANGE, name,
                        "%s %s: %llu bytes at %llu are outside the ring's %llu", kind, name,
                        (unsigned long long)size, (unsigned long long)push->offset[array],
                        (unsigned long long)push->link->size);
        }
    }
    return 0;
}

/* Results would depend on which chunk runs first, and a chunk that is lost could not be repeated.
 */
static int check_overlap(const struct job *job, const struct described *push,
                         struct failure *ret_failure)
{
    for (uint32_t out = job->prepared->shape.n_in; out < n_ring_arrays(job); out++) {
        for (uint32_t other = 0; other < out; other++) {
            if (push->offset[out] < push->offset[other] + push->size[other] &&
                push->offset[other] < push->offset[out] + push->size[out]) {
                const char *kind, *name = array_name(job, other, &kind);

                return fail(ret_failure, STATUS_RANGE, name,
                            "output %s lies over %s %s: each needs its own place",
                            job->prepared->op->out[out - job->prepared->shape.n_in].name, kind,
                            name);
            }
        }
    }
    return 0;
}

static int check_described(const struct job *job, struct described *described,
                           struct failure *ret_failure)
{
    int r = check_counts(job, described, ret_failure);

    if (r == 0) {
        measure(job, described);
        r = check_bounds(job, described, ret_failure);
    }
    if (r == 0) {
        r = check_overlap(job, described, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    if (job->lists.free_rows == NULL) {
        return job_refuse_credit(job, ret_failure);
    }
    return job_check_admit(job, described->n_records, described->deadline_at_ns, ret_failure);
}

/* Borrow its places. */
static struct push_row *add_row(struct job *job, struct push *push,
                                const struct described *described)
{
    struct push_row *row = push_lists_take_row(&job->lists, push);

    for (uint32_t array = 0; array < n_ring_arrays(job); array++) {
        *push_place(row, &job->prepared->shape, array) =
            (uint32_t)(described->offset[array] / RING_ALIGN);
    }
    row->work.n_records = (uint32_t)described->n_records;
    return row;
}

/* As a push of its own. */
static struct push *accept_push(struct job *job, const struct described *described)
{
    struct push *push = job->lists.free; /* there are no fewer of them than of rows */
    struct push_row *row = add_row(job, push, described);

    push->ring = described->link;
    ring_link_hold(push->ring);
    push->deadline_at_ns = described->deadline_at_ns;
    push->n_records = described->n_records;
    push->varying_size = described->varying_size;
    push->tail_size = described->tail_size;
    push->is_described = push->keeps_awake = false;
    job->has_short_push = push->tail_size != 0;
    job->has_odd_push =
        job->prepared->shape.leaf != 0 && push->n_records % job->prepared->shape.leaf != 0;
    job_accept(job, push);
    row->accepted_ns = push->accepted_ns;
    return push;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

/* Of the connection's jobs that have not ended; a descriptor has the low half of an id. */
static bool is_named(const struct job *job, const struct ring_link *link, uint32_t id)
{
    return job->session == link->session && (uint32_t)job->id == id && job->state < JOB_DONE;
}

static int find_job(const struct ring_link *link, uint32_t id, struct job **ret_job,
                    struct failure *ret_failure)
{
    struct job *job = server_jobs_like(link->server, id);

    while (job != NULL && !is_named(job, link, id)) {
        job = job->next_like;
    }
    if (job == NULL) {
        return fail(ret_failure, STATUS_NOT_FOUND, "job", "there is no job %u, or it has ended",
                    id);
    }
    *ret_job = job;
    return 0;
}

static void read_desc(const struct ring_desc *desc, const struct job *job, struct ring_link *link,
                      struct described *ret_push)
{
    ret_push->link = link; /* field by field: to clear them all takes longer than the rest */
    ret_push->n_records = desc->n_records;
    ret_push->varying_size = desc->varying_size;
    ret_push->tail_size = desc->tail_size;
    for (uint32_t i = 0; i < job->prepared->shape.n_in; i++) {
        ret_push->offset[i] = (uint64_t)desc->in[i] * RING_ALIGN;
    }
    for (uint32_t i = 0; i < n_ring_arrays(job) - job->prepared->shape.n_in; i++) {
        ret_push->offset[job->prepared->shape.n_in + i] = (uint64_t)desc->out[i] * RING_ALIGN;
    }
}

static int check_desc(const struct ring_desc *desc, const struct job *job,
                      struct failure *ret_failure)
{
    if ((desc->flags & ~RING_LAST) != 0) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "flags", "a descriptor has no flags %#llx",
                    (unsigned long long)(desc->flags & ~RING_LAST));
    }
    if (!job->prepared->is_in_rings) { /* its pushes have leased the places they have */
        return fail(ret_failure, STATUS_INVALID_PARAM, "job",
                    "only a job opened with inline = false takes descriptors");
    }
    return job_check_input(job, ret_failure);
}

/* The time of whoever waits for work like this is not wasted. */
static bool keeps_awake(const struct ring_link *link, const struct job *job)
{
    bool keeps = job->prepared->priority == PRIORITY_URGENT && ring_link_may_keep_awake(link);

    if (keeps) {
        awake_want(&link->server->awake, WORK_AWAKE_NS);
    }
    return keeps;
}

/*
 * May so many records of the job be one table?  It is no more for a device than a small push is,
 * nor for a computing thread, which has all of it.
 */
static bool may_be_table(const struct job *job, uint64_t n_records)
{
    const struct prepared *prepared = job->prepared;
    const struct push_shape *shape = &prepared->shape;
    uint64_t size = 0;

    for (uint32_t array = 0; array < shape->n_arrays; array++) {
        size += shape->record_size[array];
    }
    return shape->leaf == 0 && shape->varying == 0 && n_records * size <= SCHEDULER_SMALL &&
           prepared->rate.is_known && prepared->rate.record_ns * (double)n_records <= TABLE_NS;
}

/* May it be a row? */
static bool fits_tables(uint64_t n_records, uint32_t tail_size, uint64_t deadline_at_ns)
{
    return n_records > 0 && tail_size == 0 && deadline_at_ns == 0;
}

/* The push before this one, if they are one table from now on: no device has any of it yet. */
static struct push *find_table(const struct job *job, const struct described *described)
{
    struct push *last = job->lists.last;

    return last != NULL && last->n_released == 0 && last->n_rows < WORK_ROWS &&
                   last->ring == described->link && last->is_described &&
                   last->seq < job->stop_seq &&
                   fits_tables(last->n_records, last->tail_size, last->deadline_at_ns) &&
                   fits_tables(described->n_records, described->tail_size,
                               described->deadline_at_ns) &&
                   may_be_table(job, last->n_records + described->n_records)
               ? last
               : NULL;
}

static void accept_row(struct job *job, struct push *table, const struct described *described,
                       const struct ring_desc *desc)
{
    struct push_row *row = add_row(job, table, described);

    row->tag = desc->tag;
    row->accepted_ns = job->prepared->wants_timing ? now_ns() : 0;
    table->n_records += described->n_records;
    job->n_pushed++;
    job->server->stats.pushes_total++;
    if ((desc->flags & RING_LAST) != 0) {
        job_close(job);
    }
}

static void accept_desc(struct job *job, const struct described *described,
                        const struct ring_desc *desc)
{
    struct push *push = accept_push(job, described);

    push->is_described = true;
    push->rows->tag = desc->tag;
    push->keeps_awake = keeps_awake(described->link, job);
    if ((desc->flags & RING_LAST) != 0) {
        job_close(job);
    }
    job_settle_push(job, push);
}

/* It has rows that it is not queued with; nothing of it can have been answered. */
static void settle_rows(struct ring_link *link, struct job *job)
{
    if (job != NULL) {
        keeps_awake(link, job);
        job_queue(job);
    }
}

/* *grown: the job that got rows from the descriptors before, to be settled behind its last one. */
static int take_desc(struct ring_link *link, const struct ring_desc *desc, struct job **grown,
                     struct failure *ret_failure)
{
    struct described described;
    struct push *table;
    struct job *job = *grown;
    int r = 0;

    if (job == NULL || !is_named(job, link, desc->job)) {
        settle_rows(link, STEAL(*grown));
        r = find_job(link, desc->job, &job, ret_failure);
    }
    if (r == 0) {
        r = check_desc(desc, job, ret_failure);
    }
    if (r == 0) {
        read_desc(desc, job, link, &described);
        r = job_push_deadline_at(job, desc->deadline_ns, &described.deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = check_described(job, &described, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    table = find_table(job, &described);
    if (table != NULL) {
        accept_row(job, table, &described, desc);
        *grown = job;
    } else {
        *grown = NULL; /* it may be gone afterwards */
        accept_desc(job, &described, desc);
    }
    return 0;
}

/* The job goes on, and the client knows of nothing but the status. */
static void refuse(struct ring_link *link, const struct ring_desc *desc,
                   const struct failure *failure)
{
    struct ring_completion completion = {
        .tag = desc->tag,
        .job = desc->job,
        .status = (uint16_t)failure->status,
    };

    link->server->stats.errors_total++;
    ring_link_complete(link, &completion, 1);
}

void job_take_descs(struct ring_link *link, const struct ring_desc *descs, uint32_t n)
{
    struct failure failure;
    struct job *grown = NULL;

    for (uint32_t i = 0; i < n; i++) {
        if (take_desc(link, &descs[i], &grown, &failure) < 0) {
            refuse(link, &descs[i], &failure);
        }
    }
    settle_rows(link, grown);
}

/* ---- Refs ----------------------------------------------------------------------------------- */

static int read_ref(const struct job *job, uint32_t array, const struct msg_ref *ref,
                    struct described *described, struct failure *ret_failure)
{
    const char *kind, *name = array_name(job, array, &kind);

    if (ref->offset % RING_ALIGN != 0) {
        return fail(ret_failure, STATUS_RANGE, name, "%s %s: offset %llu is no multiple of %u",
                    kind, name, (unsigned long long)ref->offset, RING_ALIGN);
    }
    described->offset[array] = ref->offset;
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
    for (uint32_t array = 1; array < n_ring_arrays(job); array++) {
        const struct msg_ref *ref =
            array < shape->n_in ? &msg->in[array] : &msg->out[array - shape->n_in];
        const char *kind, *name = array_name(job, array, &kind);

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
    uint32_t n_out = n_ring_arrays(job) - job->prepared->shape.n_in;
    struct described described = {0};

    if (msg->n_out != n_out) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "out",
                    "option out has %u Refs; a push of op %s has %u outputs", msg->n_out,
                    job->prepared->op->name, n_out);
    }
    int r = find_ring(job, msg, &described.link, ret_failure);
    for (uint32_t i = 0; r == 0 && i < n_ring_arrays(job); i++) {
        r = read_ref(job, i,
                     i < job->prepared->shape.n_in ? &msg->in[i]
                                                   : &msg->out[i - job->prepared->shape.n_in],
                     &described, ret_failure);
    }
    if (r == 0) {
        r = read_sizes(job, msg, &described, ret_failure);
    }
    if (r == 0) {
        r = job_push_deadline_at(job, msg->deadline_ns, &described.deadline_at_ns, ret_failure);
    }
    if (r == 0) {
        r = check_described(job, &described, ret_failure);
    }
    if (r == 0) {
        accept_push(job, &described);
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
    for (uint32_t array = shape->n_in; array < n_ring_arrays(job); array++) {
        completion->out_size[array - shape->n_in] =
            (uint32_t)push_array_size(shape, array, n_records);
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
    uint32_t n = 0;

    if (job->prepared->wants_timing) {
        complete_timing(push, &common);
    }
    for (const struct push_row *row = push->rows; row != NULL; row = row->next, n++) {
        completions[n] = common;
        completions[n].tag = row->tag;
        complete_records(job, push->n_rows > 1 && n_done > 0 ? row->work.n_records : n_done,
                         &completions[n]);
        if (common.has_timing) {
            completions[n].queue_ns = push_queue_ns(push->start_ns, row->accepted_ns);
        }
    }
    ring_link_complete(link, completions, n);
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
