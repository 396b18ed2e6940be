/*
 * Job, descriptors: what a client's ring has for its jobs, each a push of its own or a row of the
 * table that the job's last push is.
 */
#include "daemon/described.h"
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/util.h"

/* A table takes no longer than this, as far as is known: a GPU's launch costs a fifth of it, and a
 * CPU's other threads do not wait long for something to do.  Not tuned. */
#define TABLE_NS 100e3

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
    struct push_row *row = described_add_row(job, table, described);

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
    struct described described = {.link = link, .n_records = descs->n_records};
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

        described.in = desc->in;
        described.out = desc->out;
        if (desc->job != (uint32_t)job->id || desc->n_records != described.n_records ||
            (desc->varying_size | desc->tail_size | desc->deadline_ns | desc->flags) != 0 ||
            !described_is_in_place(job, &described)) {
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
    struct push *push = described_accept(job, described);

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
        r = described_check(job, &described, ret_failure);
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
