/*
 * Describe: spans become offsets, and are held against the ring and each other.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_describe.h"

#include "client/gpupipe_ring.h"
#include "proto/util.h"

#include <string.h>

#define N_ARRAYS (LIMIT_IN + LIMIT_OUT)

/* One array of a push: an input, or an output behind all inputs. */
struct array {
    const char *kind;
    uint32_t index;
    const void *data;
    uint64_t size;   /* what the daemon will read or write there, with whole records */
    uint64_t offset; /* in the ring */
};

struct arrays {
    uint32_t n_in, n;
    struct array array[N_ARRAYS];
};

/* ---- sizes ---------------------------------------------------------------------------------- */

/* How many bytes input 0 lacks of whole records. */
static uint64_t missing(const struct gpupipe_job *job, const struct gpupipe_desc *desc)
{
    uint64_t whole = desc->n_records * job->shape.in_size[0];

    return desc->in[0].size < whole ? whole - desc->in[0].size : 0;
}

static int check_varying(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                         uint32_t input, struct failure *ret_failure)
{
    uint64_t size = desc->in[input].size;

    if (size > UINT32_MAX) {
        return fail(ret_failure, STATUS_TOO_BIG, "in",
                    "input %u has %llu bytes: use smaller pushes", input, (unsigned long long)size);
    }
    if (size % MAX(job->shape.in_size[input], 1u) != 0) {
        return fail(ret_failure, STATUS_RANGE, "in",
                    "input %u has %llu bytes, which are no whole elements of %u", input,
                    (unsigned long long)size, job->shape.in_size[input]);
    }
    return 0;
}

static int check_size(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                      uint32_t input, struct failure *ret_failure)
{
    uint32_t record_size = job->shape.in_size[input];
    bool may_be_short = input == 0 && job->tail != TAIL_ERROR;

    if (job->varying != 0 && input == job->varying) {
        return check_varying(job, desc, input, ret_failure);
    }
    if (desc->in[input].size == desc->n_records * record_size ||
        (may_be_short && desc->in[0].size > 0 && missing(job, desc) > 0 &&
         missing(job, desc) < record_size)) {
        return 0;
    }
    return fail(ret_failure, STATUS_RANGE, "in",
                "input %u has %llu bytes, which are not %llu records of %u", input,
                (unsigned long long)desc->in[input].size, (unsigned long long)desc->n_records,
                record_size);
}

static int take_sizes(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                      struct arrays *ret, struct failure *ret_failure)
{
    uint32_t n_out = job->is_reduce ? 0 : job->shape.n_out;
    int rc = 0;

    if (desc->n_records > UINT32_MAX) {
        return fail(ret_failure, STATUS_TOO_BIG, "n_records", "%llu records in one push: use more",
                    (unsigned long long)desc->n_records);
    }
    if (desc->n_out != n_out && !job->is_reduce) {
        return fail(ret_failure, STATUS_MISUSE, "n_out", "the op has %u outputs, the push %u",
                    n_out, desc->n_out);
    }
    for (uint32_t i = 0; rc == 0 && i < desc->n_in; i++) {
        bool is_varying = job->varying != 0 && i == job->varying;

        rc = check_size(job, desc, i, ret_failure);
        ret->array[i] = (struct array){
            .kind = "input",
            .index = i,
            .data = desc->in[i].data,
            .size = is_varying ? desc->in[i].size : desc->n_records * job->shape.in_size[i],
        };
    }
    for (uint32_t i = 0; i < n_out; i++) {
        ret->array[desc->n_in + i] = (struct array){
            .kind = "output",
            .index = i,
            .data = desc->out[i].data,
            .size = desc->n_records * job->shape.out_size[i],
        };
    }
    ret->n_in = desc->n_in;
    ret->n = desc->n_in + n_out;
    return rc;
}

/* ---- places --------------------------------------------------------------------------------- */

static int place(const struct gpupipe_ring *ring, struct array *array, struct failure *ret_failure)
{
    if (array->size == 0) {
        return 0;
    }
    /* Wraps for what lies before the data. */
    array->offset = (uint64_t)((uintptr_t)array->data - (uintptr_t)ring->data);
    if (array->offset >= ring->size || array->size > ring->size - array->offset) {
        return fail(ret_failure, STATUS_MISUSE, array->kind,
                    "%s %u, %llu bytes of whole records, does not lie in the job's ring",
                    array->kind, array->index, (unsigned long long)array->size);
    }
    if (array->offset % RING_ALIGN != 0) {
        return fail(ret_failure, STATUS_MISUSE, array->kind,
                    "%s %u begins %llu bytes into the ring, which is no multiple of %u",
                    array->kind, array->index, (unsigned long long)array->offset, RING_ALIGN);
    }
    return 0;
}

static bool overlap(const struct array *a, const struct array *b)
{
    return a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

static int check_overlaps(const struct arrays *arrays, struct failure *ret_failure)
{
    for (uint32_t out = arrays->n_in; out < arrays->n; out++) {
        const struct array *output = &arrays->array[out];

        for (uint32_t i = 0; i < out; i++) {
            const struct array *other = &arrays->array[i];

            if (output->size > 0 && other->size > 0 && overlap(output, other)) {
                return fail(ret_failure, STATUS_MISUSE, "output",
                            "output %u lies over %s %u: each needs its own place", output->index,
                            other->kind, other->index);
            }
        }
    }
    return 0;
}

/* The zeros of a short record go behind it: into what the caller has there, not its neighbour. */
static int check_padding(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                         const struct arrays *arrays, struct failure *ret_failure)
{
    const struct array *input = &arrays->array[0];

    if (job->tail != TAIL_ZERO || desc->n_in == 0 || missing(job, desc) == 0 ||
        space_left_at(job->ring->space, input->offset) >= input->size) {
        return 0;
    }
    return fail(ret_failure, STATUS_MISUSE, "input",
                "input 0 has no room for the %llu zero bytes that its last record lacks",
                (unsigned long long)missing(job, desc));
}

/* ---- a push --------------------------------------------------------------------------------- */

static void fill(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                 const struct arrays *arrays, struct ring_desc *ret)
{
    *ret = (struct ring_desc){
        .job = (uint32_t)job->shape.job,
        .n_records = (uint32_t)desc->n_records,
        .deadline_ns = desc->deadline_ns,
        .flags = desc->is_last ? RING_LAST : 0,
    };
    for (uint32_t i = 0; i < arrays->n; i++) {
        uint32_t unit = (uint32_t)(arrays->array[i].offset / RING_ALIGN);

        if (i < arrays->n_in) {
            ret->in[i] = unit;
        } else {
            ret->out[i - arrays->n_in] = unit;
        }
    }
    if (job->varying != 0) {
        ret->varying_size = (uint32_t)desc->in[job->varying].size;
    }
    if (job->tail == TAIL_SHORT && missing(job, desc) > 0) {
        ret->tail_size = job->shape.in_size[0] - (uint32_t)missing(job, desc);
    }
}

int describe_push(const struct gpupipe_job *job, const struct gpupipe_desc *desc,
                  struct ring_desc *ret_desc, struct failure *ret_failure)
{
    struct arrays arrays = {0};
    int rc = take_sizes(job, desc, &arrays, ret_failure);

    for (uint32_t i = 0; rc == 0 && i < arrays.n; i++) {
        rc = place(job->ring, &arrays.array[i], ret_failure);
    }
    if (rc == 0) {
        rc = check_overlaps(&arrays, ret_failure);
    }
    if (rc == 0) {
        rc = check_padding(job, desc, &arrays, ret_failure);
    }
    if (rc == 0) {
        fill(job, desc, &arrays, ret_desc);
    }
    return rc;
}

void describe_pad(const struct gpupipe_job *job, const struct gpupipe_desc *desc)
{
    if (job->tail == TAIL_ZERO && desc->n_in > 0 && missing(job, desc) > 0) {
        uint64_t offset = (uint64_t)((uintptr_t)desc->in[0].data - (uintptr_t)job->ring->data);

        memset(job->ring->data + offset + desc->in[0].size, 0, missing(job, desc));
    }
}
