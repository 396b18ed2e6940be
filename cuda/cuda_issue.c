/*
 * The three ways of a launch.
 *
 *     COPIED   copy engine -> slot's memory -> kernel -> slot's memory -> copy engine
 *     STAGED   the same with a kernel of the op `copy` in place of each engine
 *     MAPPED   the kernel alone
 *
 * Engines are what fills the link, and each of them serves in order of arrival: behind four chunks
 * of bulk a small job waits for 0.3 ms.  A kernel begins when a block of another ends.  Measured on
 * an H200, idle: 4 KiB take 25 us COPIED, 21 STAGED, 12 MAPPED; 256 KiB 38, 31, 19.  Up to which
 * size MAPPED is no slower than COPIED each pipeline measures when it is created.
 *
 * Small works of one op share a launch, whoever sent them, and so do large ones that are narrower
 * than the device is wide, as long as they follow each other: kernels take a table of chunks, the
 * rows of all works.  What is after other work has a launch of its own, behind that other's.
 */
#include "cuda/cuda_issue.h"

#include "cuda/device_rows.h"
#include "proto/util.h"

#include <string.h>

/* Partials that one thread reads from the host's memory sooner than two launches move them. */
#define FEW_PARTIALS 8u

static uint64_t aligned(uint64_t size)
{
    return div_round_up(size, CUDA_ALIGNMENT) * CUDA_ALIGNMENT;
}

/* At most, where it has several rows. */
static uint64_t array_bytes(const struct device_work *work, const struct device_array *array)
{
    return array->size == 0
               ? 0
               : aligned(array->size) + (device_n_rows(work) - 1) * (uint64_t)CUDA_ALIGNMENT;
}

uint64_t cuda_issue_bytes(const struct device_work *work)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        bytes += array_bytes(work, &work->in[i]);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        bytes += array_bytes(work, &work->out[i]);
    }
    return bytes;
}

static enum cuda_way way_of(const struct device_work *work, uint64_t bytes, uint64_t small)
{
    bool reads_once = work->code->is_streaming;

    if (bytes > small || small == 0) {
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

bool cuda_issue_join(const struct cuda_kernels *kernels, uint64_t small, struct cuda_slot *slot,
                     const struct device_work *work)
{
    const struct device_work *first = &slot->works[0];
    const uint64_t bytes = cuda_issue_bytes(work);
    const enum cuda_way way = way_of(work, bytes, small);

    if (slot->n_works == 0) {
        slot->way = way;
    } else if (slot->n_works == CUDA_WORKS || slot->n_rows + device_n_rows(work) > CUDA_TABLE ||
               slot->used + bytes > slot->size || slot->way != way || work->op != first->op ||
               first->kind != WORK_MAP || work->is_after || first->is_after ||
               memcmp(work->params, first->params, sizeof(work->params)) != 0 ||
               memcmp(work->const_ids, first->const_ids, sizeof(work->const_ids)) != 0 ||
               !is_worth_joining(kernels, slot, work)) {
        return false;
    }
    slot->works[slot->n_works++] = *work;
    slot->n_rows += device_n_rows(work);
    slot->n_records += work->n_records;
    slot->used += bytes;
    slot->is_timed |= work->is_timed;
    return true;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* An array that is to be moved; nothing of nothing. */
static void note_moved(struct op_chunk *moved, uint32_t *n_moved, const void *from, void *to,
                       uint64_t size)
{
    if (size > 0) {
        moved[(*n_moved)++] =
            (struct op_chunk){.in = {from}, .out = {to}, .n_records = (uint32_t)size};
    }
}

/* A place on the device for an array that the host has; they follow each other from *at on. */
static void *place(const void *host, uint64_t size, char **at)
{
    void *place = *at;

    *at += aligned(size);
    return host != NULL ? place : NULL;
}

/* The arrays of a row lie on the device while the kernel works on them. */
static void move_row(struct cuda_slot *slot, const struct device_work *work, uint32_t row,
                     struct op_chunk *chunk, char **at)
{
    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        const uint64_t size = device_row_size(work, row, &work->in[i]);
        const void *host = chunk->in[i];
        void *there = place(host, size, at);

        note_moved(slot->window->moved_in, &slot->n_in, host, there, size);
        chunk->in[i] = there;
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        const uint64_t size = device_row_size(work, row, &work->out[i]);
        void *host = chunk->out[i];

        chunk->out[i] = place(host, size, at);
        note_moved(slot->window->moved_out, &slot->n_out, chunk->out[i], host, size);
    }
}

/* Bytes of the largest array of the work's largest row. */
static uint64_t largest_of(const struct device_work *work)
{
    const struct device_array *largest = &work->out[0];
    uint32_t row = 0;

    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        largest = work->in[i].size > largest->size ? &work->in[i] : largest;
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        largest = work->out[i].size > largest->size ? &work->out[i] : largest;
    }
    for (uint32_t i = 1; i < device_n_rows(work); i++) {
        row = work->rows[i].n_records > work->rows[row].n_records ? i : row;
    }
    return device_row_size(work, row, largest);
}

static void write_table(struct cuda_slot *slot)
{
    char *at = slot->large != NULL ? slot->large : slot->memory;
    struct op_chunk *chunk = slot->window->table;

    slot->largest = 0;
    for (uint32_t w = 0; w < slot->n_works; w++) {
        const struct device_work *work = &slot->works[w];
        const uint32_t n = device_n_rows(work);
        struct op_chunk first = device_row(work, 0);

        slot->largest = MAX(slot->largest, largest_of(work));
        for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
            first.consts[i] = cuda_const_memory(slot->consts[i]);
        }
        device_rows(work, &first, chunk);
        for (uint32_t row = 0; row < n && slot->way != CUDA_MAPPED; row++) {
            move_row(slot, work, row, &chunk[row], &at);
        }
        chunk += n;
    }
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
        launch->arguments.ended = slot->ended;
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
    return launch(kernels, slot, &kernel, slot->window->table, slot->n_rows,
                  slot->way == CUDA_MAPPED, stream, ret_trouble);
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

/* ---- copies -------------------------------------------------------------------------------- */

/* The next array; the step is over with the last one. */
static int copy_next(struct cuda_slot *slot, const struct op_chunk *moved, uint32_t n_moved,
                     cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    const struct op_chunk *next = &moved[slot->n_copied++];
    const enum cudaMemcpyKind kind =
        moved == slot->window->moved_in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;

    if (slot->n_copied >= n_moved) {
        slot->n_copied = 0;
        slot->step++;
    }
    return n_moved == 0 ? 0
                        : CUDA_CHECK(cudaMemcpyAsync(next->out[0], next->in[0], next->n_records,
                                                     kind, stream),
                                     ret_trouble);
}

/* Bring them to the device, or back: a kernel at once, an engine one by one. */
static int move(const struct cuda_kernels *kernels, struct cuda_slot *slot,
                const struct op_chunk *moved, uint32_t n_moved, cudaStream_t stream,
                struct cuda_trouble *ret_trouble)
{
    if (slot->way == CUDA_COPIED) {
        return copy_next(slot, moved, n_moved, stream, ret_trouble);
    }
    slot->step++;
    return slot->way == CUDA_STAGED ? stage(kernels, slot, moved, n_moved,
                                            moved == slot->window->moved_out, stream, ret_trouble)
                                    : 0;
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

/* What comes to the stream from now on begins when what the other one has by now has ended.  An
 * event may be recorded again later: who waits for it waits for what it was when it was told to. */
static int follow(cudaStream_t stream, cudaStream_t other, cudaEvent_t event,
                  struct cuda_trouble *ret_trouble)
{
    int error = 0;

    if (other != stream) {
        error = CUDA_CHECK(cudaEventRecord(event, other), ret_trouble);
        error = error == 0 ? CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0), ret_trouble) : error;
    }
    return error;
}

static int begin(struct cuda_consts *consts, struct cuda_slot *slot,
                 struct cuda_trouble *ret_trouble)
{
    const cudaStream_t stream = slot->in;
    int error = slot->behind != NULL ? follow(stream, slot->behind, slot->event, ret_trouble) : 0;

    if (error < 0) {
        return error;
    }
    slot->tells_end = slot->way != CUDA_COPIED && !slot->is_timed && has_output(slot);
    if (slot->way == CUDA_COPIED && slot->used > slot->size) {
        error = CUDA_CHECK(cudaMallocAsync(&slot->large, slot->used, stream), ret_trouble);
    }
    if (error < 0) {
        return cuda_explain_memory(error, slot->used, ret_trouble);
    }
    error = take_consts(consts, slot, stream, ret_trouble);
    if (error == 0) {
        write_table(slot);
        error = mark(slot, CUDA_COPY_IN, stream, ret_trouble);
    }
    slot->step++;
    return error;
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
                     struct cuda_trouble *ret_trouble)
{
    int error = move(kernels, slot, slot->window->moved_out, slot->n_out, slot->out, ret_trouble);

    return error == 0 && slot->step == CUDA_STEP_END
               ? mark(slot, CUDA_STAGES, slot->out, ret_trouble)
               : error;
}

/* What has been issued of it, before something went wrong, is behind its last stream. */
static int gather(const struct cuda_slot *slot, cudaStream_t stream,
                  struct cuda_trouble *ret_trouble)
{
    int error = follow(slot->out, slot->in, slot->brought, ret_trouble);

    return error == 0 ? follow(slot->out, stream, slot->computed, ret_trouble) : error;
}

/* Whatever happened before. */
static int end(struct cuda_slot *slot, bool *ret_is_lost, struct cuda_trouble *ret_trouble)
{
    const cudaStream_t stream = slot->out;
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
    struct cuda_trouble second;

    *ret_error = 0;
    *ret_is_lost = false;
    switch (slot->step) {
    case CUDA_STEP_BEGIN:
        *ret_error = begin(consts, slot, ret_trouble);
        break;
    case CUDA_STEP_IN:
        *ret_error = move(kernels, slot, slot->window->moved_in, slot->n_in, slot->in, ret_trouble);
        break;
    case CUDA_STEP_BROUGHT:
        *ret_error = follow(stream, slot->in, slot->brought, ret_trouble);
        slot->step++;
        break;
    case CUDA_STEP_COMPUTE:
        *ret_error = go_on(kernels, slot, stream, ret_trouble);
        break;
    case CUDA_STEP_COMPUTED:
        *ret_error = follow(slot->out, stream, slot->computed, ret_trouble);
        slot->step++;
        break;
    case CUDA_STEP_OUT:
        *ret_error = bring_out(kernels, slot, ret_trouble);
        break;
    case CUDA_STEP_END:
        *ret_error = end(slot, ret_is_lost, ret_trouble);
        return false;
    }
    if (*ret_error < 0) {
        slot->tells_end = false;
        slot->step = CUDA_STEP_END;
        *ret_is_lost = gather(slot, stream, &second) < 0;
        *ret_trouble = *ret_is_lost ? second : *ret_trouble;
    }
    return true;
}
