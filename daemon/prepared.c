/*
 * Prepared: from a client's words to shapes, sizes and a slot.
 */
#include "daemon/prepared.h"

#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/util.h"

/* What is above a chunk in priority may wait for its end, and a hundredth of this is what a chunk
 * costs beside its records (20 us: queues, wake-ups, a launch). */
#define CHUNK_NS 2e6
/* Of a chunk, while nobody knows how long it takes. */
#define FIRST_PART 16

static int make_shape(struct prepared *prepared, const uint8_t *params, struct failure *ret_failure)
{
    const struct manifest_op *op = prepared->op;
    struct push_shape *shape = &prepared->shape;
    uint64_t in_size = 0, out_size = 0;

    shape->n_in = op->n_in;
    shape->varying = manifest_varying(op);
    shape->ends = manifest_ends(op);
    shape->varying_size = LIMIT_PUSH_DEFAULT; /* how much a run has is known too late */
    for (uint32_t i = 0; i < op->n_in; i++) {
        int r = manifest_record_size(op, &op->in[i], params, &shape->record_size[i], ret_failure);
        if (r < 0) {
            return r;
        }
        if (i != shape->varying || i == 0) {
            shape->largest = MAX(shape->largest, shape->record_size[i]);
            in_size += shape->record_size[i];
        }
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        int r = manifest_record_size(op, &op->out[i], params, &prepared->out_size[i], ret_failure);
        if (r < 0) {
            return r;
        }
        if (op->kind == OP_MAP) {
            shape->record_size[op->n_in + i] = prepared->out_size[i];
            shape->largest = MAX(shape->largest, prepared->out_size[i]);
            out_size += prepared->out_size[i];
        }
    }
    shape->link_size = MAX(in_size, out_size);
    shape->n_arrays = op->n_in + op->n_out;
    if (op->kind == OP_REDUCE) {
        shape->leaf = op->leaf;
        shape->record_size[op->n_in] = op->partial_size;
        shape->n_arrays = op->n_in + 1;
        shape->largest = MAX(shape->largest, (uint32_t)div_round_up(op->partial_size, op->leaf));
        if ((uint64_t)op->leaf * shape->largest > LIMIT_PUSH) {
            return fail(ret_failure, STATUS_TOO_BIG, NULL, "records too large for op %s", op->name);
        }
    }
    return 0;
}

/* Records of so many bytes, enough of them for the op, and whole leaves. */
static uint32_t records_of(const struct prepared *prepared, uint64_t size)
{
    uint64_t n = MAX(size / prepared->shape.largest, (uint64_t)prepared->op->min_parallel);

    if (prepared->shape.varying != 0) {
        return UINT32_MAX; /* only a whole push has its varying input in one place */
    }
    if (prepared->shape.leaf != 0) {
        n = div_round_up(n, prepared->shape.leaf) * prepared->shape.leaf;
    }
    return (uint32_t)MIN(n, (uint64_t)UINT32_MAX / 2);
}

static void choose_chunks(struct prepared *prepared)
{
    const struct devices *devices = &prepared->server->devices;

    prepared->chunk_most = records_of(prepared, devices_chunk_size(devices));
    prepared->chunk_least = records_of(prepared, devices_chunk_least(devices));
    prepared->chunk_least = MIN(prepared->chunk_least, prepared->chunk_most);
    prepared->overlaps = devices_chunk_least(devices) > 0;
}

uint64_t prepared_chunk_records(const struct prepared *prepared)
{
    uint64_t most = prepared->chunk_most, n = most / FIRST_PART;

    if (prepared->chunk_least == most) {
        return most;
    }
    if (prepared->rate.is_known) {
        double fitting = CHUNK_NS / MAX(prepared->rate.record_ns, 1e-6);

        n = fitting < (double)most ? (uint64_t)fitting : most;
    }
    n = MAX(n, (uint64_t)prepared->chunk_least);
    return prepared->shape.leaf != 0 ? n / prepared->shape.leaf * prepared->shape.leaf : n;
}

uint64_t prepared_ramp(const struct prepared *prepared, uint64_t n, uint32_t n_in_flight,
                       uint64_t n_left)
{
    const uint64_t least = prepared->chunk_least;

    if (!prepared->overlaps) {
        return n;
    }
    n = n_in_flight < 16 ? MIN(n, least << n_in_flight) : n;
    n = n_left / 2 > least ? MIN(n, n_left / 2) : MIN(n, least);
    return prepared->shape.leaf != 0 ? n / prepared->shape.leaf * prepared->shape.leaf : n;
}

static int check_options(struct prepared *prepared, const struct msg_options *options,
                         struct failure *ret_failure)
{
    const struct manifest_op *op = prepared->op;

    if (options->tail != TAIL_ERROR && !(op->tails & TAIL_BIT(options->tail))) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "tail", "op %s does not take tail \"%s\"",
                    op->name, tail_names[options->tail]);
    }
    if (options->is_in_rings && options->tail == TAIL_ZERO) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "tail",
                    "data in a ring are padded by the client: count the whole record");
    }
    return server_find_devices(prepared->server, options, &prepared->devices, ret_failure);
}

/* Hold on to the constants that the options name. */
static int take_consts(struct prepared *prepared, struct session *session,
                       const struct msg_options *options, const uint8_t *params,
                       struct failure *ret_failure)
{
    const struct manifest_op *op = prepared->op;

    if (options->n_consts != op->n_consts) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "consts", "op %s takes %u constants, not %u",
                    op->name, op->n_consts, options->n_consts);
    }
    for (uint32_t i = 0; i < op->n_consts; i++) {
        struct constant *constant;
        uint32_t size;
        int r = manifest_record_size(op, &op->consts[i], params, &size, ret_failure);

        if (r == 0) {
            r = constant_find(session, options->consts[i], "consts", &constant, ret_failure);
        }
        if (r < 0) {
            return r;
        }
        if (constant->size != size) {
            return fail(ret_failure, STATUS_RANGE, "consts",
                        "constant %s of op %s has %u bytes under these parameters, not %u",
                        op->consts[i].name, op->name, size, constant->size);
        }
        prepared->consts[i] = constant_ref(constant);
    }
    return 0;
}

static void give_consts(struct prepared *prepared)
{
    for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
        constant_unref(prepared->consts[i]);
    }
}

static int take_slot(struct prepared *prepared, struct job_block *block,
                     struct failure *ret_failure)
{
    struct job_slots *slots = prepared->server->job_slots;

    for (uint32_t i = 0; i < prepared->op->n_consts; i++) {
        const struct constant *constant = prepared->consts[i];

        block->consts[i] = (struct job_const){
            .ref = WORK_REF(constant->block.segment, constant->block.offset),
            .id = constant->id,
        };
    }
    int r = job_slots_take(slots, block, &prepared->slot);
    if (r < 0) {
        server_drop_memos(prepared->server);
        r = job_slots_take(slots, block, &prepared->slot);
    }
    if (r < 0) {
        fail(ret_failure, STATUS_BUSY, NULL, "%d jobs are open, all there may be; try later",
             LIMIT_JOB_SLOTS);
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return failure_add_limit(ret_failure, "job_slots", LIMIT_JOB_SLOTS, LIMIT_JOB_SLOTS);
    }
    return 0;
}

static int prepare(struct prepared *prepared, struct session *session, const struct msg_op *op,
                   const struct msg_options *options, struct failure *ret_failure)
{
    struct server *server = prepared->server;
    struct job_block block = {0};
    int r = server_find_op(server, op->name, &block.op, ret_failure);

    if (r < 0) {
        return r;
    }
    prepared->op = &server->devices.ops.all[block.op];
    r = check_options(prepared, options, ret_failure);
    if (r < 0) {
        return r;
    }
    r = manifest_pack(prepared->op, op->values, op->n_values, block.params, ret_failure);
    if (r < 0) {
        return r;
    }
    prepared->rate_key = rates_key(&server->rates, block.op, block.params);
    prepared->rate = rates_recall(&server->rates, prepared->rate_key);
    r = make_shape(prepared, block.params, ret_failure);
    if (r == 0) {
        r = take_consts(prepared, session, options, block.params, ret_failure);
    }
    if (r == 0) {
        r = take_slot(prepared, &block, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    prepared->priority = options->priority;
    prepared->tail = options->tail;
    /* Partials are folded in order, so a reduce op's answers come in order anyway. */
    prepared->is_ordered = !options->is_unordered || prepared->shape.leaf != 0;
    prepared->is_in_rings = options->is_in_rings;
    prepared->wants_timing = options->wants_timing;
    prepared->is_admitted = options->is_admitted;
    choose_chunks(prepared);
    return 0;
}

int prepared_create(struct session *session, const struct msg_op *op,
                    const struct msg_options *options, struct prepared **ret_prepared,
                    struct failure *ret_failure)
{
    struct prepared *prepared = calloc(1, sizeof(*prepared));

    if (prepared == NULL) {
        fail(ret_failure, STATUS_BUSY, NULL, "the daemon is out of memory; try again later");
        ret_failure->retry_ms = SERVER_RETRY_MS;
        return -(int)ret_failure->status;
    }
    prepared->server = session_server(session);
    prepared->n_refs = 1;
    int r = prepare(prepared, session, op, options, ret_failure);
    if (r < 0) {
        give_consts(prepared);
        free(prepared);
        return r;
    }
    *ret_prepared = prepared;
    return 0;
}

struct prepared *prepared_ref(struct prepared *prepared)
{
    prepared->n_refs++;
    return prepared;
}

void prepared_unref(struct prepared *prepared)
{
    if (prepared == NULL) {
        return;
    }
    /* Others begin with what this job has measured, though a memo may keep it for ever. */
    rates_remember(&prepared->server->rates, prepared->rate_key, &prepared->rate);
    if (--prepared->n_refs > 0) {
        return;
    }
    give_consts(prepared);
    job_slots_give(prepared->server->job_slots, prepared->slot);
    free(prepared);
}
