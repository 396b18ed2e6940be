/*
 * The three ways of a launch.
 *
 *     COPIED   copy engine -> slot's memory -> kernel -> slot's memory -> copy engine
 *     STAGED   the same with a kernel of the op `copy` in place of each engine
 *     MAPPED   the kernel alone
 *
 * Engines are what fills the link, and each of them serves in order of arrival: behind four chunks
 * of bulk a small job waits for 0.3 ms.  A kernel begins when a block of another ends.  Measured on
 * an H200, idle: 4 KiB take 25 us COPIED, 21 STAGED, 12 MAPPED; 256 KiB 38, 31, 19.
 *
 * Small works of one op share a launch, whoever sent them, and so do large ones that are narrower
 * than the device is wide, as long as they follow each other: kernels take a table of chunks.  What
 * is after other work has a launch of its own, behind that other's.
 */
#include "cuda/cuda_issue.h"

#include "proto/util.h"

#include <string.h>

/* Partials that one thread reads from the host's memory sooner than two launches move them. */
#define FEW_PARTIALS 8u

static uint64_t aligned(uint64_t size)
{
    return div_round_up(size, CUDA_ALIGNMENT) * CUDA_ALIGNMENT;
}

uint64_t cuda_issue_bytes(const struct device_work *work)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        bytes += aligned(work->in[i].size);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        bytes += aligned(work->out[i].size);
    }
    return bytes;
}

static enum cuda_way way_of(const struct cuda_kernels *kernels, const struct device_work *work,
                            uint64_t bytes)
{
    bool reads_once = work->code->is_streaming;

    if (!cuda_kernels_see_host(kernels) || bytes > CUDA_SMALL) {
        return CUDA_COPIED;
    }
    if (work->kind == WORK_MERGE || work->kind == WORK_FINISH) {
        reads_once = work->n_records <= FEW_PARTIALS;
    }
    return reads_once ? CUDA_MAPPED : CUDA_STAGED;
}

/* Is there something to gain from a launch for both? */
static bool is_worth_joining(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                             const struct device_work *work)
{
    const uint64_t wanted = cuda_kernels_parallel(kernels, work->op);

    return slot->way != CUDA_COPIED || (slot->n_records < wanted && work->n_records < wanted);
}

bool cuda_issue_join(const struct cuda_kernels *kernels, struct cuda_slot *slot,
                     const struct device_work *work)
{
    const struct device_work *first = &slot->works[0];
    const uint64_t bytes = cuda_issue_bytes(work);
    const enum cuda_way way = way_of(kernels, work, bytes);

    if (slot->n_works == 0) {
        slot->way = way;
    } else if (slot->n_works == CUDA_TABLE || slot->used + bytes > slot->size || slot->way != way ||
               work->op != first->op || first->kind != WORK_MAP || work->is_after ||
               first->is_after || memcmp(work->params, first->params, sizeof(work->params)) != 0 ||
               memcmp(work->const_ids, first->const_ids, sizeof(work->const_ids)) != 0 ||
               !is_worth_joining(kernels, slot, work)) {
        return false;
    }
    slot->works[slot->n_works++] = *work;
    slot->n_records += work->n_records;
    slot->used += bytes;
    slot->is_timed |= work->is_timed;
    return true;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Where the kernel finds the array; on the device it takes what is left at *at. */
static void *place(const struct cuda_slot *slot, const struct device_array *array, char **at)
{
    void *place = slot->way == CUDA_MAPPED ? array->base : *at;

    *at += aligned(array->size);
    return array->base != NULL ? place : NULL;
}

/* Returns the bytes of the largest array. */
static uint64_t write_table(struct cuda_slot *slot)
{
    char *at = slot->large != NULL ? slot->large : slot->memory;
    uint64_t largest = 0;

    for (uint32_t w = 0; w < slot->n_works; w++) {
        const struct device_work *work = &slot->works[w];
        struct op_chunk *chunk = &slot->window->table[w];

        chunk->n_records = work->n_records;
        chunk->tail_size = work->tail_size;
        chunk->varying_size = work->varying_size;
        for (uint32_t i = 0; i < LIMIT_IN; i++) {
            chunk->in[i] = place(slot, &work->in[i], &at);
            largest = MAX(largest, work->in[i].size);
        }
        for (uint32_t i = 0; i < LIMIT_OUT; i++) {
            chunk->out[i] = place(slot, &work->out[i], &at);
            largest = MAX(largest, work->out[i].size);
        }
        for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
            chunk->consts[i] = cuda_const_memory(slot->consts[i]);
        }
    }
    return largest;
}

/* All works of the launch have the same. */
static int take_consts(struct cuda_consts *consts, struct cuda_slot *slot, cudaStream_t stream,
                       struct cuda_trouble *ret_trouble)
{
    const struct device_work *work = &slot->works[0];
    int error = 0;

    for (uint32_t i = 0; i < LIMIT_CONSTS && error == 0; i++) {
        if (work->const_ids[i] != 0) {
            error = cuda_consts_take(consts, work->const_ids[i], &work->consts[i], stream,
                                     &slot->consts[i], ret_trouble);
        }
    }
    return error;
}

/* ---- kernels ------------------------------------------------------------------------------- */

/* is_last: of a slot that tells its end it is this kernel that does. */
static int launch(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                  struct cuda_launch *launch, const struct op_chunk *table, uint32_t n_chunks,
                  bool is_last, cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    launch->arguments.table = table;
    launch->arguments.n_chunks = n_chunks;
    launch->arguments.chunk = table[0];
    if (is_last && slot->tells_end) {
        launch->arguments.ended = &slot->window->ended;
        launch->arguments.n_ended = slot->n_ended;
        launch->arguments.number = slot->number;
    }
    return cuda_kernels_launch(kernels, launch, stream, ret_trouble);
}

static int compute(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                   uint64_t n_bytes, cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    struct cuda_launch kernel = {
        .op = slot->works[0].op, .kind = slot->works[0].kind, .n_bytes = n_bytes};

    memcpy(kernel.arguments.params, slot->works[0].params, sizeof(kernel.arguments.params));
    return launch(kernels, slot, &kernel, slot->window->table, slot->n_works,
                  slot->way == CUDA_MAPPED, stream, ret_trouble);
}

/* One array more for a staging kernel; nothing of nothing. */
static void stage_array(const void *from, void *to, uint64_t size, struct op_chunk *chunks,
                        uint32_t *n_chunks)
{
    if (size > 0) {
        chunks[(*n_chunks)++] =
            (struct op_chunk){.in = {from}, .out = {to}, .n_records = (uint32_t)size};
    }
}

static int stage(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                 const struct op_chunk *chunks, uint32_t n_chunks, bool is_last,
                 cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    const uint32_t record_size = 1; /* copy's parameter */
    struct cuda_launch kernel = {.op = cuda_kernels_copy(kernels), .kind = WORK_MAP};

    memcpy(kernel.arguments.params, &record_size, sizeof(record_size));
    for (uint32_t i = 0; i < n_chunks; i++) {
        kernel.n_bytes = MAX(kernel.n_bytes, (uint64_t)chunks[i].n_records);
    }
    return n_chunks == 0
               ? 0
               : launch(kernels, slot, &kernel, chunks, n_chunks, is_last, stream, ret_trouble);
}

static int stage_in(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                    cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    uint32_t n_chunks = 0;

    for (uint32_t i = 0; i < slot->n_works * LIMIT_IN; i++) {
        const struct device_array *array = &slot->works[i / LIMIT_IN].in[i % LIMIT_IN];
        const void *place = slot->window->table[i / LIMIT_IN].in[i % LIMIT_IN];

        stage_array(array->base, (void *)place, array->size, slot->window->staged_in, &n_chunks);
    }
    return stage(kernels, slot, slot->window->staged_in, n_chunks, false, stream, ret_trouble);
}

static int stage_out(const struct cuda_kernels *kernels, const struct cuda_slot *slot,
                     cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    uint32_t n_chunks = 0;

    for (uint32_t i = 0; i < slot->n_works * LIMIT_OUT; i++) {
        const struct device_array *array = &slot->works[i / LIMIT_OUT].out[i % LIMIT_OUT];
        const void *place = slot->window->table[i / LIMIT_OUT].out[i % LIMIT_OUT];

        stage_array(place, array->base, array->size, slot->window->staged_out, &n_chunks);
    }
    return stage(kernels, slot, slot->window->staged_out, n_chunks, true, stream, ret_trouble);
}

/* ---- copies -------------------------------------------------------------------------------- */

struct transfer {
    void *to;
    const void *from;
    uint64_t size;
};

/* Input or output number i, counted through all works. */
static struct transfer transfer_at(const struct cuda_slot *slot, bool is_in, uint32_t i)
{
    const struct device_array *array;

    if (is_in) {
        array = &slot->works[i / LIMIT_IN].in[i % LIMIT_IN];
        return (struct transfer){(void *)slot->window->table[i / LIMIT_IN].in[i % LIMIT_IN],
                                 array->base, array->size};
    }
    array = &slot->works[i / LIMIT_OUT].out[i % LIMIT_OUT];
    return (struct transfer){array->base, slot->window->table[i / LIMIT_OUT].out[i % LIMIT_OUT],
                             array->size};
}

/* The next array; the step is over with the last one that has bytes. */
static int copy_next(struct cuda_slot *slot, bool is_in, cudaStream_t stream,
                     struct cuda_trouble *ret_trouble)
{
    const uint32_t n = slot->n_works * (is_in ? LIMIT_IN : LIMIT_OUT);
    const struct transfer next = transfer_at(slot, is_in, slot->n_copied);
    int error = 0;

    if (next.size > 0) {
        error = CUDA_CHECK(cudaMemcpyAsync(next.to, next.from, next.size,
                                           is_in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                           stream),
                           ret_trouble);
    }
    do {
        slot->n_copied++;
    } while (slot->n_copied < n && transfer_at(slot, is_in, slot->n_copied).size == 0);
    if (slot->n_copied == n) {
        slot->n_copied = 0;
        slot->step++;
    }
    return error;
}

/* ---- one launch ---------------------------------------------------------------------------- */

/*
 * The stages' events stand between operations, where they may keep launches from overlapping: only
 * where timing is asked for.
 */
static int mark(const struct cuda_slot *slot, uint32_t i, cudaStream_t stream,
                struct cuda_trouble *ret_trouble)
{
    return slot->is_timed ? CUDA_CHECK(cudaEventRecord(slot->stages[i], stream), ret_trouble) : 0;
}

/* Does some work of the launch write something? */
static bool has_output(const struct cuda_slot *slot)
{
    return slot->works[0].out[0].size > 0;
}

static int begin(struct cuda_consts *consts, struct cuda_slot *slot, cudaStream_t stream,
                 struct cuda_trouble *ret_trouble)
{
    int error = 0;

    slot->tells_end = slot->way != CUDA_COPIED && !slot->is_timed && has_output(slot);
    if (slot->way == CUDA_COPIED && slot->used > slot->size) {
        error = CUDA_CHECK(cudaMallocAsync(&slot->large, slot->used, stream), ret_trouble);
    }
    if (error < 0) {
        return cuda_explain_memory(error, slot->used, ret_trouble);
    }
    error = take_consts(consts, slot, stream, ret_trouble);
    if (error == 0) {
        slot->largest = write_table(slot);
        error = mark(slot, CUDA_COPY_IN, stream, ret_trouble);
    }
    slot->step++;
    return error;
}

static int bring_in(const struct cuda_kernels *kernels, struct cuda_slot *slot, cudaStream_t stream,
                    struct cuda_trouble *ret_trouble)
{
    if (slot->way == CUDA_COPIED) {
        return copy_next(slot, true, stream, ret_trouble);
    }
    slot->step++;
    return slot->way == CUDA_STAGED ? stage_in(kernels, slot, stream, ret_trouble) : 0;
}

static int go_on(const struct cuda_kernels *kernels, struct cuda_slot *slot, cudaStream_t stream,
                 struct cuda_trouble *ret_trouble)
{
    int error = mark(slot, CUDA_COMPUTE, stream, ret_trouble);

    slot->step++;
    if (error == 0) {
        error = compute(kernels, slot, slot->largest, stream, ret_trouble);
    }
    return error == 0 ? mark(slot, CUDA_COPY_OUT, stream, ret_trouble) : error;
}

static int bring_out(const struct cuda_kernels *kernels, struct cuda_slot *slot,
                     cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    int error = 0;

    if (slot->way == CUDA_COPIED) {
        error = copy_next(slot, false, stream, ret_trouble);
    } else {
        slot->step++;
        error = slot->way == CUDA_STAGED ? stage_out(kernels, slot, stream, ret_trouble) : 0;
    }
    return error == 0 && slot->step == CUDA_STEP_END ? mark(slot, CUDA_STAGES, stream, ret_trouble)
                                                     : error;
}

/* Whatever happened before. */
static int end(struct cuda_slot *slot, cudaStream_t stream, bool *ret_is_lost,
               struct cuda_trouble *ret_trouble)
{
    int error = 0;

    if (slot->large != NULL) {
        error = CUDA_CHECK(cudaFreeAsync(slot->large, stream), ret_trouble);
    }
    if (!slot->tells_end) {
        struct cuda_trouble second;
        int event_error = CUDA_CHECK(cudaEventRecord(slot->event, stream), &second);

        *ret_is_lost = event_error < 0;
        if (error == 0 && event_error < 0) {
            *ret_trouble = second;
            error = event_error;
        }
    }
    return error;
}

bool cuda_issue_step(const struct cuda_kernels *kernels, struct cuda_consts *consts,
                     struct cuda_slot *slot, cudaStream_t stream, int *ret_error, bool *ret_is_lost,
                     struct cuda_trouble *ret_trouble)
{
    *ret_error = 0;
    *ret_is_lost = false;
    switch (slot->step) {
    case CUDA_STEP_BEGIN:
        *ret_error = begin(consts, slot, stream, ret_trouble);
        break;
    case CUDA_STEP_IN:
        *ret_error = bring_in(kernels, slot, stream, ret_trouble);
        break;
    case CUDA_STEP_COMPUTE:
        *ret_error = go_on(kernels, slot, stream, ret_trouble);
        break;
    case CUDA_STEP_OUT:
        *ret_error = bring_out(kernels, slot, stream, ret_trouble);
        break;
    case CUDA_STEP_END:
        *ret_error = end(slot, stream, ret_is_lost, ret_trouble);
        return false;
    }
    if (*ret_error < 0) {
        slot->tells_end = false;
        slot->step = CUDA_STEP_END;
    }
    return true;
}
