/*
 * Described: see described.h.
 */
#include "daemon/described.h"

#include "daemon/ring_link.h"
#include "proto/util.h"

#include <string.h>

_Static_assert(WORK_ALIGN == RING_ALIGN, "what a descriptor says of its places is a row");

uint32_t described_n_arrays(const struct job *job)
{
    return job->prepared->shape.leaf != 0 ? job->prepared->shape.n_in
                                          : job->prepared->shape.n_arrays;
}

const char *described_name(const struct job *job, uint32_t array, const char **ret_kind)
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
    uint32_t n_in = shape->n_in, n_out = described_n_arrays(job) - n_in;
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
    name = described_name(job, array, &kind);
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
    uint32_t n = described_n_arrays(job);

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
    const char *kind, *name = described_name(job, other, &kind);

    return fail(ret_failure, STATUS_RANGE, name,
                "output %s lies over %s %s: each needs its own place",
                job->prepared->op->out[out - job->prepared->shape.n_in].name, kind, name);
}

bool described_is_in_place(const struct job *job, const struct described *described)
{
    struct extent extents[PUSH_ARRAYS];
    uint32_t out, other;

    return measure(job, described, extents) <= described->link->size &&
           !has_overlap(job, extents, &out, &other);
}

int described_check(const struct job *job, const struct described *described,
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

struct push_row *described_add_row(struct job *job, struct push *push,
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

struct push *described_accept(struct job *job, const struct described *described)
{
    struct push *push = job->lists.free; /* there are no fewer of them than of rows */
    struct push_row *row = described_add_row(job, push, described);

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
