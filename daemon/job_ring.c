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
#include <string.h>

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

/* ---- places in a ring ----------------------------------------------------------------------- */

/* A push as it was described, by descriptor or by Refs. */
struct described {
    struct ring_link *link;
    uint64_t n_records;
    uint64_t deadline_at_ns;
    uint32_t varying_size;
    uint32_t tail_size;
    const uint32_t *in, *out; /* as struct work_row has them: as many as the op has count */
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

/* From where to where an array lies in the ring, bytes. */
struct extent {
    uint64_t begin, end;
};

static inline struct extent extent_of(uint32_t place, uint64_t size)
{
    uint64_t begin = (uint64_t)place * RING_ALIGN;

    return (struct extent){begin, begin + size};
}

/* All its arrays; its counts have been checked.  Returns where the last of them ends. */
static uint64_t measure(const struct job *job, const struct described *push,
                        struct extent *ret_extents)
{
    const struct push_shape *shape = &job->prepared->shape;
    uint32_t n_in = shape->n_in, n_out = n_ring_arrays(job) - n_in;
    uint64_t end = 0;

    for (uint32_t i = 0; i < n_in; i++) {
        uint64_t size = push->n_records * shape->record_size[i];

        size = shape->varying != 0 && i == shape->varying ? push->varying_size : size;
        ret_extents[i] = extent_of(push->in[i], size);
        end = MAX(end, ret_extents[i].end);
    }
    for (uint32_t i = 0; i < n_out; i++) {
        ret_extents[n_in + i] =
            extent_of(push->out[i], push->n_records * shape->record_size[n_in + i]);
        end = MAX(end, ret_extents[n_in + i].end);
    }
    return end;
}

static int refuse_bounds(const struct job *job, const struct ring_link *link,
                         const struct extent *extents, struct failure *ret_failure)
{
    uint32_t array = 0;
    const char *kind, *name;

    while (extents[array].end <= link->size) {
        array++;
    }
    name = array_name(job, array, &kind);
    return fail(ret_failure, STATUS_RANGE, name,
                "%s %s: %llu bytes at %llu are outside the ring's %llu", kind, name,
                (unsigned long long)(extents[array].end - extents[array].begin),
                (unsigned long long)extents[array].begin, (unsigned long long)link->size);
}

/* Does an output lie over another array?  Results would depend on which chunk runs first, and a
 * chunk that is lost could not be repeated. */
static bool has_overlap(const struct job *job, const struct extent *extents, uint32_t *ret_out,
                        uint32_t *ret_other)
{
    uint32_t n = n_ring_arrays(job);

    for (uint32_t out = job->prepared->shape.n_in; out < n; out++) {
        for (uint32_t other = 0; other < out; other++) {
            if (extents[out].begin < extents[other].end &&
                extents[other].begin < extents[out].end) {
                *ret_out = out;
                *ret_other = other;
                return true;
            }
        }
    }
    return false;
}

static int refuse_overlap(const struct job *job, uint32_t out, uint32_t other,
                          struct failure *ret_failure)
{
    const char *kind, *name = array_name(job, other, &kind);

    return fail(ret_failure, STATUS_RANGE, name,
                "output %s lies over %s %s: each needs its own place",
                job->prepared->op->out[out - job->prepared->shape.n_in].name, kind, name);
}

static int check_described(const struct job *job, const struct described *described,
                           struct failure *ret_failure)
{
    struct extent extents[PUSH_ARRAYS];
    uint32_t out, other;
    int r = check_counts(job, described, ret_failure);

    if (r == 0 && measure(job, described, extents) > described->link->size) {
        r = refuse_bounds(job, described->link, extents, ret_failure);
    }
    if (r == 0 && has_overlap(job, extents, &out, &other)) {
        r = refuse_overlap(job, out, other, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    if (job->lists.n_free_rows == 0) {
        return job_refuse_credit(job, ret_failure);
    }
    return described->deadline_at_ns != 0
               ? job_check_admit(job, described->n_records, described->deadline_at_ns, ret_failure)
               : 0;
}

/* Borrow its places. */
static struct push_row *add_row(struct job *job, struct push *push,
                                const struct described *described)
{
    const uint32_t i = push_lists_take_row(&job->lists, push);
    struct push_row *row = push_lists_row(&job->lists, push, i);
    struct work_row *work = push_lists_work(&job->lists, push, i);

    row->n_records = work->n_records = (uint32_t)described->n_records;
    memcpy(work->in, described->in, sizeof(work->in));
    memcpy(work->out, described->out, sizeof(work->out));
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
 * Records that one table of the job may have; 0: there is none.  It is no more for a device than a
 * small push is, nor for a computing thread, which has all of it.
 */
static uint64_t table_most(const struct job *job)
{
    const struct prepared *prepared = job->prepared;
    const struct push_shape *shape = &prepared->shape;
    uint64_t size = 0;

    if (shape->leaf != 0 || shape->varying != 0 || !prepared->rate.is_known) {
        return 0;
    }
    for (uint32_t array = 0; array < shape->n_arrays; array++) {
        size += shape->record_size[array];
    }
    size = SCHEDULER_SMALL / size;
    return prepared->rate.record_ns * (double)size <= TABLE_NS
               ? size
               : (uint64_t)(TABLE_NS / prepared->rate.record_ns);
}

/* May it be a row? */
static bool fits_tables(uint64_t n_records, uint32_t tail_size, uint64_t deadline_at_ns)
{
    return n_records > 0 && tail_size == 0 && deadline_at_ns == 0;
}

/* The table that a take's last descriptor became a row of.  Its job is not settled yet: nothing of
 * it can have been answered, and only now is it known what it has for the scheduler. */
struct growth {
    struct job *job; /* NULL: it became none */
    struct push *table;
    uint64_t n_most; /* records that it may have */
};

static void settle_growth(struct growth *growth, struct ring_link *link)
{
    if (growth->job != NULL) {
        keeps_awake(link, growth->job);
        job_queue(STEAL(growth->job));
    }
}

/* The job's last push, as long as no device has any of it. */
static struct growth find_growth(struct job *job, const struct ring_link *link)
{
    struct push *last = job->lists.last;
    bool is_open = last != NULL && last->n_released == 0 && last->ring == link &&
                   last->is_described && last->seq < job->stop_seq &&
                   fits_tables(last->n_records, last->tail_size, last->deadline_at_ns);

    return (struct growth){job, last, is_open ? table_most(job) : 0};
}

static bool may_grow(const struct growth *growth, const struct described *by)
{
    return growth->n_most > 0 && growth->table->n_rows < WORK_ROWS &&
           fits_tables(by->n_records, by->tail_size, by->deadline_at_ns) &&
           growth->table->n_records + by->n_records <= growth->n_most;
}

static void add_desc(struct job *job, struct push *table, const struct described *described,
                     uint64_t tag, uint64_t accepted_ns)
{
    struct push_row *row = add_row(job, table, described);

    row->tag = tag;
    row->accepted_ns = accepted_ns;
}

/* The last n rows of the table are new, with so many records in all. */
static void note_rows(struct job *job, struct push *table, uint32_t n, uint64_t n_records)
{
    table->n_records += n_records;
    job->n_queued += n_records;
    job->n_pushed += n;
    job->server->stats.pushes_total += n;
}

static void accept_row(struct job *job, struct push *table, const struct described *described,
                       const struct ring_desc *desc)
{
    add_desc(job, table, described, desc->tag, job->prepared->wants_timing ? now_ns() : 0);
    note_rows(job, table, 1, described->n_records);
    if ((desc->flags & RING_LAST) != 0) {
        job_close(job);
    }
}

/*
 * Most descriptors are like the one before: of the job whose table grows, with as many records, and
 * with nothing else to say.  Of such ones it is asked once what the long way asks of each; only
 * where they lie is not the same.  Rows of those among the first n that are like the first; returns
 * how many.  The next one is of another kind, or wrong, and goes the long way.
 */
static uint32_t accept_rows(struct ring_link *link, const struct ring_desc *descs, uint32_t n,
                            const struct growth *growth)
{
    struct job *job = growth->job;
    struct described described = {.n_records = descs->n_records};
    uint32_t i = 0;

    if (job == NULL || job->state != JOB_OPEN || !may_grow(growth, &described) ||
        descs->n_records > job->max_records) {
        return 0;
    }
    const struct push *table = growth->table;
    const uint64_t accepted_ns = job->prepared->wants_timing ? now_ns() : 0;

    n = MIN(n, WORK_ROWS - table->n_rows);
    n = MIN(n, job->lists.n_free_rows);
    n = (uint32_t)MIN((uint64_t)n, (growth->n_most - table->n_records) / descs->n_records);
    for (; i < n; i++) {
        const struct ring_desc *desc = &descs[i];
        struct extent extents[PUSH_ARRAYS];
        uint32_t out, other;

        described.in = desc->in;
        described.out = desc->out;
        if (desc->job != (uint32_t)job->id || desc->n_records != described.n_records ||
            (desc->varying_size | desc->tail_size | desc->deadline_ns | desc->flags) != 0 ||
            measure(job, &described, extents) > link->size ||
            has_overlap(job, extents, &out, &other)) {
            break;
        }
        ring_expect(link->queues); /* one of each, since they are waited for if many come */
        add_desc(job, growth->table, &described, desc->tag, accepted_ns);
    }
    note_rows(job, growth->table, i, i * described.n_records);
    return i;
}

static void accept_desc(struct job *job, const struct described *described,
                        const struct ring_desc *desc)
{
    struct push *push = accept_push(job, described);

    push->is_described = true;
    push_lists_row(&job->lists, push, 0)->tag = desc->tag;
    push->keeps_awake = keeps_awake(described->link, job);
    if ((desc->flags & RING_LAST) != 0) {
        job_close(job);
    }
    job_settle_push(job, push);
}

static int take_desc(struct ring_link *link, const struct ring_desc *desc, struct growth *growth,
                     struct failure *ret_failure)
{
    struct described described = {
        .link = link,
        .n_records = desc->n_records,
        .varying_size = desc->varying_size,
        .tail_size = desc->tail_size,
        .in = desc->in,
        .out = desc->out,
    };
    struct job *job = growth->job;
    int r = 0;

    if (job == NULL || !is_named(job, link, desc->job)) {
        settle_growth(growth, link);
        r = find_job(link, desc->job, &job, ret_failure);
    }
    if (r == 0) {
        r = check_desc(desc, job, ret_failure);
    }
    if (r == 0) {
        r = desc->deadline_ns != 0 ? job_push_deadline_at(job, desc->deadline_ns,
                                                          &described.deadline_at_ns, ret_failure)
                                   : 0;
    }
    if (r == 0) {
        r = check_described(job, &described, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    if (growth->job == NULL) {
        *growth = find_growth(job, link);
    }
    if (may_grow(growth, &described)) {
        accept_row(job, growth->table, &described, desc);
    } else {
        growth->job = NULL; /* it is settled now, and may be gone afterwards */
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
    struct growth growth = {NULL};
    uint32_t i = 0;

    while (i < n) {
        const uint32_t n_rows = accept_rows(link, &descs[i], n - i, &growth);

        ring_expect(link->queues);
        if (n_rows == 0 && take_desc(link, &descs[i], &growth, &failure) < 0) {
            refuse(link, &descs[i], &failure);
        }
        i += MAX(n_rows, 1u);
    }
    settle_growth(&growth, link);
}

/* ---- Refs ----------------------------------------------------------------------------------- */

static int read_ref(const struct job *job, uint32_t array, const struct msg_ref *ref,
                    struct work_row *row, struct failure *ret_failure)
{
    const char *kind, *name = array_name(job, array, &kind);

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
    struct work_row row = {0};
    struct described described = {.in = row.in, .out = row.out};

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
                     &row, ret_failure);
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
