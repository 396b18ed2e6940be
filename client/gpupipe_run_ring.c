/*
 * Runs whose data go through a ring of the library's own: copied in, worked on where they lie, and
 * copied out, in pieces, so that copying and computing overlap.
 *
 * Whatever is not plain (the op refuses its options, sizes are not those of records, the daemon has
 * no ring for us) is left to the run as a message, which finds the right words for it.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_run.h"

#include "client/gpupipe_flight.h"
#include "client/gpupipe_job.h"
#include "client/gpupipe_ring.h"
#include "proto/util.h"

#include <string.h>

#define SLOTS     4u /* pieces under way at once, at most; not tuned */
#define RING_SIZE ((uint64_t)64 << 20)

/*
 * Bytes of a piece's arrays together.  `copy` of 16 MiB each way on two cores: 3.0 ms in pieces of
 * 4 MiB, 3.0 of 2, 3.5 of 8, 5 of 1.
 */
#define PIECE_SIZE ((uint64_t)4 << 20)

/* Pieces of the ring for the arrays of one piece of the run. */
struct slot {
    uint8_t *in[LIMIT_IN];
    uint8_t *out[LIMIT_OUT];
    uint64_t first_record; /* of what it holds */
    uint64_t n_records;
    bool is_busy;
};

struct ring_run {
    struct gpupipe *gpupipe;
    const struct gpupipe_desc *desc; /* the caller's */
    struct gpupipe_ring *ring;
    struct gpupipe_job *job;
    uint32_t n_out; /* arrays that come with pieces: none of an op that reduces */
    uint64_t n_records;
    uint64_t piece_records;
    struct slot slots[SLOTS];
    uint32_t n_slots;
    uint32_t next_slot;
    uint64_t n_submitted, n_back; /* records */
    struct flight *whole;         /* what the caller gets to see */
};

/* ---- is it one for a ring? ------------------------------------------------------------------ */

static uint64_t size_of(const struct gpupipe_desc *desc)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < desc->n_in && i < LIMIT_IN; i++) {
        size += MIN(desc->in[i].size, UINT64_MAX / 16);
    }
    for (uint32_t i = 0; i < desc->n_out && i < LIMIT_OUT; i++) {
        size += MIN(desc->out[i].size, UINT64_MAX / 16);
    }
    return size;
}

/* The connection's, made when it is first wanted; NULL: there is none to be had. */
static struct gpupipe_ring *find_ring(struct gpupipe *gpupipe)
{
    struct failure failure;
    int rc;

    if (gpupipe->run_ring != NULL && gpupipe->run_ring->is_closed) {
        gpupipe_ring_close(STEAL(gpupipe->run_ring));
    }
    if (gpupipe->run_ring != NULL || gpupipe->has_no_run_ring ||
        gpupipe_limit(gpupipe, "ring_size") == 0) {
        return gpupipe->run_ring;
    }
    rc = rings_open(gpupipe, RING_SIZE, NULL, &gpupipe->run_ring, &failure);
    gpupipe->has_no_run_ring = rc < 0 && rc != GPUPIPE_ERROR_BUSY;
    return gpupipe->run_ring;
}

static bool is_varying(const struct gpupipe_job *job, uint32_t input)
{
    return job->varying != 0 && input == job->varying;
}

/* Are the sizes those of records, and is there room for the outputs? */
static bool count_records(struct ring_run *run)
{
    const struct msg_job_opened *shape = &run->job->shape;
    const struct gpupipe_desc *desc = run->desc;

    run->n_out = run->job->is_reduce ? 0 : shape->n_out;
    if (desc->n_in != shape->n_in || desc->n_out < shape->n_out || shape->in_size[0] == 0) {
        return false;
    }
    run->n_records = div_round_up(desc->in[0].size, shape->in_size[0]);
    if (run->n_records == 0 || run->n_records > UINT32_MAX ||
        (run->job->tail == TAIL_ERROR && desc->in[0].size % shape->in_size[0] != 0)) {
        return false;
    }
    for (uint32_t i = 1; i < desc->n_in; i++) {
        if (!is_varying(run->job, i) && desc->in[i].size != run->n_records * shape->in_size[i]) {
            return false;
        }
    }
    for (uint32_t i = 0; i < run->n_out; i++) {
        if (desc->out[i].size < run->n_records * shape->out_size[i]) {
            return false;
        }
    }
    return true;
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint64_t in_size(const struct ring_run *run, uint32_t input, uint64_t n_records)
{
    return is_varying(run->job, input) ? run->desc->in[input].size
                                       : n_records * run->job->shape.in_size[input];
}

/* A varying input's ends count from its push's begin: such a run is one piece. */
static void choose_piece(struct ring_run *run)
{
    uint64_t multiple = gpupipe_push_multiple(run->job);
    uint64_t most = gpupipe_push_records(run->job);
    uint64_t record_size = 0;

    for (uint32_t i = 0; i < run->desc->n_in; i++) {
        record_size += run->job->shape.in_size[i];
    }
    for (uint32_t i = 0; i < run->n_out; i++) {
        record_size += run->job->shape.out_size[i];
    }
    run->piece_records = MAX(PIECE_SIZE / record_size / multiple, UINT64_C(1)) * multiple;
    run->piece_records = MIN(run->piece_records, most);
    run->piece_records = MIN(run->piece_records, run->n_records);
    if (run->job->varying != 0) {
        run->piece_records = run->n_records;
    }
}

static void free_slot(struct ring_run *run, struct slot *slot)
{
    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        gpupipe_ring_free(run->ring, slot->in[i]);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        gpupipe_ring_free(run->ring, slot->out[i]);
    }
    *slot = (struct slot){0};
}

static bool alloc_slot(struct ring_run *run, struct slot *slot)
{
    struct failure failure;
    bool has_all = true;

    for (uint32_t i = 0; i < run->desc->n_in; i++) {
        uint64_t size = MAX(in_size(run, i, run->piece_records), UINT64_C(1));

        slot->in[i] = rings_alloc(run->ring, size, &failure);
        has_all &= slot->in[i] != NULL;
    }
    for (uint32_t i = 0; i < run->n_out; i++) {
        slot->out[i] =
            rings_alloc(run->ring, run->piece_records * run->job->shape.out_size[i], &failure);
        has_all &= slot->out[i] != NULL;
    }
    if (!has_all) {
        free_slot(run, slot);
    }
    return has_all;
}

static void alloc_slots(struct ring_run *run)
{
    uint64_t n_pieces = div_round_up(run->n_records, run->piece_records);
    uint64_t n = MIN(gpupipe_window(run->job), n_pieces);

    n = MIN(n, SLOTS);
    while (run->n_slots < n && alloc_slot(run, &run->slots[run->n_slots])) {
        run->n_slots++;
    }
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void copy_in(struct ring_run *run, struct slot *slot, struct gpupipe_desc *ret_desc)
{
    const struct msg_job_opened *shape = &run->job->shape;

    slot->first_record = run->n_submitted;
    slot->n_records = MIN(run->piece_records, run->n_records - run->n_submitted);
    GPUPIPE_INIT(ret_desc);
    ret_desc->job = run->job;
    ret_desc->tag = (uint64_t)(slot - run->slots);
    ret_desc->n_records = slot->n_records;
    ret_desc->n_in = run->desc->n_in;
    ret_desc->n_out = run->n_out;
    for (uint32_t i = 0; i < run->desc->n_in; i++) {
        uint64_t offset = slot->first_record * shape->in_size[i];
        uint64_t size = MIN(in_size(run, i, slot->n_records), run->desc->in[i].size - offset);

        if (size > 0) {
            memcpy(slot->in[i], (const uint8_t *)run->desc->in[i].data + offset, size);
        }
        ret_desc->in[i] = (struct gpupipe_span){slot->in[i], size};
    }
    for (uint32_t i = 0; i < run->n_out; i++) {
        ret_desc->out[i] =
            (struct gpupipe_room){slot->out[i], slot->n_records * shape->out_size[i]};
    }
}

static int submit_pieces(struct ring_run *run, struct failure *ret_failure)
{
    while (run->n_submitted < run->n_records && !run->slots[run->next_slot].is_busy) {
        struct slot *slot = &run->slots[run->next_slot];
        struct gpupipe_desc desc;
        int rc;

        copy_in(run, slot, &desc);
        rc = gpupipe_submit(run->gpupipe, &desc, 1);
        if (rc <= 0) {
            *ret_failure = run->gpupipe->error.failure;
            return rc;
        }
        slot->is_busy = true;
        run->n_submitted += slot->n_records;
        run->next_slot = (run->next_slot + 1) % run->n_slots;
    }
    return 0;
}

static void add_answer(struct ring_run *run, const struct flight *flight)
{
    struct flight *whole = run->whole;
    struct msg_timing timing = whole->answer.by.timing;
    bool is_first = run->n_back == 0;

    whole->answer.by = flight->answer.by;
    whole->devices |= flight->devices;
    rings_name_devices(run->gpupipe, whole->devices, &whole->answer.by);
    if (!is_first) {
        whole->answer.by.timing.queue_ns = timing.queue_ns;
        whole->answer.by.timing.in_ns += timing.in_ns;
        whole->answer.by.timing.compute_ns += timing.compute_ns;
        whole->answer.by.timing.out_ns += timing.out_ns;
    }
}

static int take_back(struct ring_run *run, struct flight *flight, struct failure *ret_failure)
{
    struct slot *slot = &run->slots[flight->tag];

    slot->is_busy = false;
    if (flight->answer.has_failure) {
        *ret_failure = flight->answer.failure;
        return -(int)ret_failure->status;
    }
    for (uint32_t i = 0; i < run->n_out; i++) {
        uint64_t size = slot->n_records * run->job->shape.out_size[i];
        uint64_t offset = slot->first_record * run->job->shape.out_size[i];

        memcpy((uint8_t *)run->desc->out[i].data + offset, slot->out[i], size);
        run->whole->out_size[i] += size;
    }
    add_answer(run, flight);
    run->n_back += slot->n_records;
    return 0;
}

static int take_all_back(struct ring_run *run, struct failure *ret_failure)
{
    int rc = 0;

    rings_take(run->gpupipe);
    while (run->job->landed.first != NULL && rc == 0) {
        struct flight *flight = flight_list_take(&run->job->landed);

        rc = take_back(run, flight, ret_failure);
        free(flight);
    }
    return rc;
}

static int run_pieces(struct ring_run *run, struct failure *ret_failure)
{
    struct failure loss;
    int rc = 0;

    while (run->n_back < run->n_records && rc == 0) {
        rc = submit_pieces(run, ret_failure);
        if (rc == 0 && run->job->landed.first == NULL && run->job->n_in_ring > 0) {
            /* A loss brings all pieces back. */
            (void)connection_turn(run->gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
        }
        if (rc == 0) {
            rc = take_all_back(run, ret_failure);
        }
    }
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* What a reduce op gives comes with the job's end. */
static int take_result(struct ring_run *run, struct failure *ret_failure)
{
    struct gpupipe_job *job = run->job;

    for (uint32_t i = 0; job->is_reduce && i < job->shape.n_out; i++) {
        if (job->result_size[i] > run->desc->out[i].size) {
            return fail(ret_failure, STATUS_INTERNAL, "out",
                        "output %u has %llu bytes, more than its room", i,
                        (unsigned long long)job->result_size[i]);
        }
        memcpy(run->desc->out[i].data, job->result[i], job->result_size[i]);
        run->whole->out_size[i] = job->result_size[i];
    }
    return 0;
}

static int end_job(struct ring_run *run, struct failure *ret_failure)
{
    struct failure loss;

    if (gpupipe_job_end(run->job) < 0) {
        *ret_failure = run->gpupipe->error.failure;
        return -(int)ret_failure->status;
    }
    while (!run->job->has_done) {
        (void)connection_turn(run->gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
    }
    if (run->job->error.shown.status != GPUPIPE_OK) {
        *ret_failure = run->job->error.failure;
        return -(int)ret_failure->status;
    }
    return take_result(run, ret_failure);
}

/*
 * A piece has failed.  If its job has failed with it, job.done says why: a completion has a status
 * alone.  If not, the piece was refused, and the run as a message will be told in words.
 */
static int find_reason(struct ring_run *run, struct failure *failure)
{
    struct gpupipe_job *job = run->job;
    struct failure loss;

    (void)gpupipe_job_cancel(job);
    while (!job->has_done) {
        (void)connection_turn(run->gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
    }
    if (job->done.state == JOB_CANCELLED && failure->status != STATUS_CANCELLED) {
        return 0;
    }
    *failure = job->error.failure;
    return job->error.shown.status;
}

/* As run_in_ring(). */
static int run_whole(struct ring_run *run, struct failure *ret_failure)
{
    int rc = flight_create(run->desc, &run->whole, ret_failure);

    if (rc == 0) {
        rc = run_pieces(run, ret_failure);
        if (rc < 0) {
            return find_reason(run, ret_failure);
        }
        rc = end_job(run, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    run->whole->answer.n = run->n_records;
    return 1;
}

static bool open_job(struct ring_run *run, const struct msg_run *msg)
{
    struct msg_job_open open = {.op = msg->op, .options = msg->options};
    struct failure failure;

    open.options.window = SLOTS;
    open.options.max_push = 0;
    open.options.is_unordered = false;
    open.options.is_in_rings = true;
    open.options.total_size = run->desc->in[0].size;
    if (job_open_in_ring(run->gpupipe, &open, run->ring, &run->job, &failure) < 0) {
        return false;
    }
    run->job->is_private = true;
    return true;
}

int run_in_ring(struct gpupipe *gpupipe, const struct msg_run *msg, const struct gpupipe_desc *desc,
                struct flight **ret_flight, struct failure *ret_failure)
{
    struct ring_run run = {.gpupipe = gpupipe, .desc = desc};
    int rc = 0;

    if (size_of(desc) < RUN_RING_LEAST) {
        return 0;
    }
    run.ring = find_ring(gpupipe);
    if (run.ring == NULL || !open_job(&run, msg)) {
        return 0;
    }
    if (count_records(&run)) {
        choose_piece(&run);
        alloc_slots(&run);
    }
    if (run.n_slots > 0) {
        rc = run_whole(&run, ret_failure);
    }
    gpupipe_job_free(run.job);
    for (uint32_t i = 0; i < run.n_slots; i++) {
        free_slot(&run, &run.slots[i]);
    }
    connection_announce(gpupipe);
    if (rc > 0) {
        *ret_flight = run.whole;
    } else {
        free(run.whole);
    }
    return rc;
}
