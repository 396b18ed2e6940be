/*
 * The ring of gpupipe-cli run: whether it takes one, of what size, and the job in it.
 *
 * The ring comes first and the job second, so that a deadline, which counts from the job's opening,
 * does not pay for the ring's.  What pushes will look like is therefore told from the op's manifest
 * and, once the daemon has said it, held against that.
 *
 * A ring is asked for once.  Whatever is refused, a ring or a job in it, the job is opened as one
 * with inline data, which waits for room, and has an error's words.
 *
 * Threads: one.
 */
#include "client/cli/run.h"

#include "proto/util.h"

#include <string.h>

/*
 * Bytes of all inputs from which on a ring is worth its opening.  `copy` on the CPU backend, two
 * cores: the program takes as long with one as without at 1 MiB, 1.3 times as long without at 2
 * MiB, 2 times from 8 to 16 MiB, 1.6 times at 64 MiB and more.
 */
#define INPUT_LEAST (UINT64_C(1) << 20)

/*
 * What is taken for them where they are not known: those of pipes.  One with a few bytes takes 4 ms
 * longer than through the socket, one of 16 MiB goes 1.4 times as fast; with 64 MiB here it would
 * be 15 ms, and larger ones gain little more: a pipe itself gives 64 KiB at once.
 */
#define INPUT_ASSUMED (UINT64_C(16) << 20)

/* ---- what pushes will look like ------------------------------------------------------------- */

static bool find_size(const struct run *run, const struct manifest_array *array, uint32_t *ret_size)
{
    const struct msg_op *op = &run->request.op;
    struct npy record;
    uint64_t size;

    if (format_find_record(run->op, array, op->values, op->n_values, &record) != NULL) {
        return false;
    }
    size = dtype_size(record.dtype);
    for (uint32_t i = 0; i < record.n_dims && size <= LIMIT_RECORD; i++) {
        size *= record.dims[i];
    }
    *ret_size = (uint32_t)size;
    return size <= LIMIT_RECORD;
}

/* False: the op's parameters are none that it takes, which the daemon will put in words. */
static bool expect_shape(const struct run *run, struct msg_job_opened *ret_shape)
{
    const struct manifest_op *op = run->op;
    uint64_t asked = run->request.options.max_push;
    struct msg_job_opened shape = {
        .credit = LIMIT_WINDOW_DEFAULT,
        .max_push = asked != 0 ? asked : LIMIT_PUSH_DEFAULT,
        .push_multiple = MAX(op->leaf, 1u),
        .n_in = op->n_in,
        .n_out = op->n_out,
    };
    bool has_all = true;

    for (uint32_t i = 0; i < op->n_in; i++) {
        has_all = has_all && find_size(run, &op->in[i], &shape.in_size[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        has_all = has_all && find_size(run, &op->out[i], &shape.out_size[i]);
    }
    *ret_shape = shape;
    return has_all;
}

/* Bytes of a ring for pushes of run->shape. */
static uint64_t ring_size(struct run *run)
{
    const struct slots slots = {
        .op = run->op,
        .shape = &run->shape,
        .inputs = run->inputs,
        .push_records = call_push_records(&run->shape),
    };

    return slots_size(&slots, run->shape.credit);
}

/*
 * Make pushes smaller until the ring has a quarter of the input's bytes at most: each costs the
 * daemon, a worker and us about as much as copying it.  Not those of a varying input, whose records
 * may be as large as a push.  False: it would have more bytes than the input all the same.
 */
static bool fit(struct run *run, uint64_t *ret_size)
{
    uint64_t total = run_total_size(run), limit = LIMIT_RING_SIZE_LEAST;
    bool may_shrink = run->request.options.max_push == 0 && manifest_varying(run->op) == 0;
    uint64_t size = ring_size(run);

    while (2 * limit <= (total != 0 ? total : INPUT_ASSUMED) / 4) {
        limit *= 2;
    }
    while (may_shrink && size > limit && run->shape.max_push > LIMIT_PUSH_LEAST) {
        run->shape.max_push =
            MAX(run->shape.max_push - run->shape.max_push / 8, (uint64_t)LIMIT_PUSH_LEAST);
        size = ring_size(run);
    }
    *ret_size = size;
    return total == 0 || size <= total;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* In run->ring, of this size; and run->shape becomes what was granted. */
static bool open_job(struct run *run, uint64_t size)
{
    struct msg_job_open request = run->request;
    uint64_t max_push = run->shape.max_push;

    request.options.max_push = max_push;
    if (call_job_open(&run->job, run->gpupipe, &request, run->ring) < 0) {
        return false;
    }
    run->shape = *call_job_shape(run->job);
    /* In a ring the daemon grants far more than is of use. */
    run->shape.max_push = MIN(run->shape.max_push, max_push);
    if (ring_size(run) > size) {
        gpupipe_job_free(STEAL(run->job));
        return false;
    }
    return true;
}

bool run_open_in_ring(struct run *run)
{
    const char *device = run->request.options.device;
    uint64_t total = run_total_size(run);
    uint64_t size;

    if (run->args.is_inline || (total > 0 && total < INPUT_LEAST) ||
        !expect_shape(run, &run->shape) || !fit(run, &size)) {
        return false;
    }
    if (gpupipe_limit(run->gpupipe, "ring_size") < size ||
        gpupipe_ring_open(&run->ring, run->gpupipe, size, device[0] == '\0' ? NULL : device) < 0) {
        return false;
    }
    if (!open_job(run, size)) {
        gpupipe_ring_close(STEAL(run->ring));
        return false;
    }
    return true;
}
