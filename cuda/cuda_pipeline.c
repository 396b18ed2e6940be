/*
 * Issue and poll.
 *
 * Work goes: issue() -> fifo of its priority -> slot -> stream -> poll().  A slot is one launch:
 * normally one work.  Map chunks that are narrower than the device is wide are taken together, as
 * long as they follow each other in the queue, have the same op, parameters and constants, and fit
 * the slot: kernels take a table of chunks.
 *
 * What a launch of its own goes wrong with (no memory, a shape the device refuses) is its works'
 * status; what has been issued of it is still waited for.  What takes the context with it makes the
 * pipeline *lost*: nothing more is issued, and poll() says why from then on.
 *
 * Waiting is asking: an event is seen done within 10 us, against 27 for a blocking wait and 38 for
 * a host function, which after a fault never comes at all.  Between two questions it naps, unless
 * something urgent was issued a moment ago.
 */
#include "cuda/cuda_pipeline.h"

#include "cuda/cuda_consts.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_slots.h"
#include "cuda/cuda_streams.h"
#include "proto/util.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Works of each priority that are waiting or in flight; past it they stay in the front end's queue,
 * where they can still be overtaken.  Full tables for a few slots.  Not tuned. */
#define DEPTH 64u

/* A quarter of what a full chunk's copy takes, and others are in flight meanwhile: beside three of
 * these, shorter naps gain less than 1 %, for up to three times the processor. */
#define NAP_NS 40000
/* After an urgent launch: longer than a small job lasts, short enough to waste no core. */
#define AWAKE_NS 1000000u

struct fifo {
    struct device_work works[DEPTH];
    uint32_t head;
    uint32_t n;
};

struct cuda_pipeline {
    struct cuda_kernels *kernels;
    struct cuda_streams *streams;
    struct cuda_slots *slots;
    struct cuda_consts *consts;
    uint32_t n_in_flight[PRIORITY_COUNT]; /* issued and not polled */
    uint64_t urgent_ns;                   /* when urgent work was issued last */
    uint64_t end_ns;                      /* when the last launch was seen done */
    bool is_lost;
    struct failure loss;
    struct fifo fifos[PRIORITY_COUNT];
};

static void lose(struct cuda_pipeline *pipeline, const struct cuda_trouble *trouble)
{
    if (!pipeline->is_lost) {
        pipeline->is_lost = true;
        pipeline->loss = trouble->failure;
    }
}

/* It is the status of all its works, or the end of the pipeline. */
static void note_trouble(struct cuda_pipeline *pipeline, struct cuda_slot *slot,
                         const struct cuda_trouble *trouble)
{
    slot->common.status = (int32_t)trouble->failure.status;
    snprintf(slot->error.text, sizeof(slot->error.text), "%.*s", (int)sizeof(slot->error.text) - 1,
             trouble->failure.message);
    if (cuda_is_fatal(trouble)) {
        lose(pipeline, trouble);
    }
}

/* ---- filling a slot ------------------------------------------------------------------------ */

static uint64_t aligned(uint64_t size)
{
    return div_round_up(size, CUDA_ALIGNMENT) * CUDA_ALIGNMENT;
}

static uint64_t bytes_of(const struct device_work *work)
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

/* Does this work go into this slot (as well)?  Anything goes into an empty one. */
static bool joins(const struct cuda_pipeline *pipeline, const struct cuda_slot *slot,
                  const struct device_work *work)
{
    const struct device_work *first = &slot->works[0];
    uint64_t wanted;

    if (slot->n_works == 0) {
        return true;
    }
    wanted = cuda_kernels_parallel(pipeline->kernels, first->op);
    return slot->n_works < CUDA_TABLE && first->kind == WORK_MAP && work->kind == WORK_MAP &&
           work->op == first->op && slot->n_records < wanted && work->n_records < wanted &&
           memcmp(work->params, first->params, sizeof(work->params)) == 0 &&
           memcmp(work->const_ids, first->const_ids, sizeof(work->const_ids)) == 0 &&
           slot->used + bytes_of(work) <= CUDA_SLOT_SIZE - CUDA_HEADER_SIZE;
}

static void fill_slot(struct cuda_pipeline *pipeline, struct fifo *fifo, struct cuda_slot *slot)
{
    while (fifo->n > 0 && joins(pipeline, slot, &fifo->works[fifo->head])) {
        const struct device_work *work = &fifo->works[fifo->head];

        slot->works[slot->n_works++] = *work;
        slot->n_records += work->n_records;
        slot->used += bytes_of(work);
        slot->is_timed |= work->is_timed;
        fifo->head = (fifo->head + 1) % DEPTH;
        fifo->n--;
    }
}

/* ---- issuing it ---------------------------------------------------------------------------- */

/* Where the array lies on the device, taken from what is left at *at. */
static void *place(const struct device_array *array, char **at)
{
    void *place = array->base != NULL ? *at : NULL;

    *at += aligned(array->size);
    return place;
}

/* Returns the bytes of the largest array. */
static uint64_t write_table(struct cuda_slot *slot)
{
    char *at = slot->large != NULL ? slot->large : slot->memory + CUDA_HEADER_SIZE;
    uint64_t largest = 0;

    memcpy(slot->header->params, slot->works[0].params, sizeof(slot->header->params));
    for (uint32_t w = 0; w < slot->n_works; w++) {
        const struct device_work *work = &slot->works[w];
        struct op_chunk *chunk = &slot->header->table[w];

        chunk->n_records = work->n_records;
        chunk->tail_size = work->tail_size;
        chunk->varying_size = work->varying_size;
        for (uint32_t i = 0; i < LIMIT_IN; i++) {
            chunk->in[i] = place(&work->in[i], &at);
            largest = MAX(largest, work->in[i].size);
        }
        for (uint32_t i = 0; i < LIMIT_OUT; i++) {
            chunk->out[i] = place(&work->out[i], &at);
            largest = MAX(largest, work->out[i].size);
        }
        for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
            chunk->consts[i] = cuda_const_memory(slot->consts[i]);
        }
    }
    return largest;
}

/*
 * The header's place on the device still holds what the slot's last launch wrote there.  A stream
 * of equal chunks comes with equal headers, and a copy that is left out is one operation less on
 * the copy engine, which serves one after the other: 1.5 us of the 88 that a 4 MiB chunk takes.
 */
static int copy_header(struct cuda_slot *slot, cudaStream_t stream,
                       struct cuda_trouble *ret_trouble)
{
    size_t size = offsetof(struct cuda_header, table) + slot->n_works * sizeof(struct op_chunk);
    int error = 0;

    if (slot->on_device_size == size && memcmp(slot->header, &slot->on_device, size) == 0) {
        return 0;
    }
    slot->on_device_size = 0;
    error = CUDA_CHECK(
        cudaMemcpyAsync(slot->memory, slot->header, size, cudaMemcpyHostToDevice, stream),
        ret_trouble);
    if (error == 0) {
        memcpy(&slot->on_device, slot->header, size);
        slot->on_device_size = size;
    }
    return error;
}

/* All works of the launch have the same. */
static int take_consts(const struct cuda_pipeline *pipeline, struct cuda_slot *slot,
                       cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    const struct device_work *work = &slot->works[0];
    int error = 0;

    for (uint32_t i = 0; i < LIMIT_CONSTS && error == 0; i++) {
        if (work->const_ids[i] != 0) {
            error = cuda_consts_take(pipeline->consts, work->const_ids[i], &work->consts[i], stream,
                                     &slot->consts[i], ret_trouble);
        }
    }
    return error;
}

static int copy_in(struct cuda_slot *slot, cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    int error = copy_header(slot, stream, ret_trouble);

    for (uint32_t i = 0; i < slot->n_works * LIMIT_IN && error == 0; i++) {
        const struct device_array *array = &slot->works[i / LIMIT_IN].in[i % LIMIT_IN];
        const void *place = slot->header->table[i / LIMIT_IN].in[i % LIMIT_IN];

        if (array->size > 0) {
            error = CUDA_CHECK(cudaMemcpyAsync((void *)place, array->base, array->size,
                                               cudaMemcpyHostToDevice, stream),
                               ret_trouble);
        }
    }
    return error;
}

static int compute(const struct cuda_pipeline *pipeline, const struct cuda_slot *slot,
                   uint64_t n_bytes, cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    const struct cuda_launch launch = {
        .op = slot->works[0].op,
        .kind = slot->works[0].kind,
        .params = slot->memory + offsetof(struct cuda_header, params),
        .table = (const void *)(slot->memory + offsetof(struct cuda_header, table)),
        .chunks = slot->header->table,
        .n_chunks = slot->n_works,
        .n_bytes = n_bytes,
    };

    return cuda_kernels_launch(pipeline->kernels, &launch, stream, ret_trouble);
}

static int copy_out(const struct cuda_slot *slot, cudaStream_t stream,
                    struct cuda_trouble *ret_trouble)
{
    int error = 0;

    for (uint32_t i = 0; i < slot->n_works * LIMIT_OUT && error == 0; i++) {
        const struct device_array *array = &slot->works[i / LIMIT_OUT].out[i % LIMIT_OUT];
        const void *place = slot->header->table[i / LIMIT_OUT].out[i % LIMIT_OUT];

        if (array->size > 0) {
            error = CUDA_CHECK(
                cudaMemcpyAsync(array->base, place, array->size, cudaMemcpyDeviceToHost, stream),
                ret_trouble);
        }
    }
    return error;
}

/*
 * The stages' events stand between operations, where they may keep launches from overlapping: only
 * where timing is asked for.
 */
static int mark(const struct cuda_slot *slot, uint32_t i, cudaStream_t stream,
                struct cuda_trouble *ret_trouble)
{
    return slot->is_timed ? CUDA_CHECK(cudaEventRecord(slot->stages[i], stream), ret_trouble) : 0;
}

/* Copy-in, kernel, copy-out, each between two marks. */
static int issue_stages(const struct cuda_pipeline *pipeline, struct cuda_slot *slot,
                        cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    uint64_t largest = 0;
    int error = mark(slot, CUDA_COPY_IN, stream, ret_trouble);

    if (error == 0) {
        error = take_consts(pipeline, slot, stream, ret_trouble);
    }
    if (error == 0) {
        largest = write_table(slot);
        error = copy_in(slot, stream, ret_trouble);
    }
    if (error == 0) {
        error = mark(slot, CUDA_COMPUTE, stream, ret_trouble);
    }
    if (error == 0) {
        error = compute(pipeline, slot, largest, stream, ret_trouble);
    }
    if (error == 0) {
        error = mark(slot, CUDA_COPY_OUT, stream, ret_trouble);
    }
    if (error == 0) {
        error = copy_out(slot, stream, ret_trouble);
    }
    return error == 0 ? mark(slot, CUDA_STAGES, stream, ret_trouble) : error;
}

/* Everything between the slot's first operation and its event. */
static int issue_operations(const struct cuda_pipeline *pipeline, struct cuda_slot *slot,
                            cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    int error = 0;

    if (slot->used > CUDA_SLOT_SIZE - CUDA_HEADER_SIZE) {
        error = CUDA_CHECK(cudaMallocAsync(&slot->large, slot->used, stream), ret_trouble);
    }
    if (error < 0) {
        return cuda_explain_memory(error, slot->used, ret_trouble);
    }
    error = issue_stages(pipeline, slot, stream, ret_trouble);
    if (slot->large != NULL) {
        struct cuda_trouble second;
        int free_error = CUDA_CHECK(cudaFreeAsync(slot->large, stream), &second);

        if (error == 0 && free_error < 0) {
            *ret_trouble = second;
            error = free_error;
        }
    }
    return error;
}

static void issue_slot(struct cuda_pipeline *pipeline, enum priority priority,
                       struct cuda_slot *slot)
{
    struct cuda_stream *stream = cuda_streams_pick(pipeline->streams, priority);
    struct cuda_trouble trouble;

    slot->common.start_ns = now_ns();
    if (issue_operations(pipeline, slot, stream->handle, &trouble) < 0) {
        note_trouble(pipeline, slot, &trouble);
    }
    if (CUDA_CHECK(cudaEventRecord(slot->event, stream->handle), &trouble) < 0) {
        lose(pipeline, &trouble); /* nobody could say when the slot is free again */
    }
    cuda_stream_push(stream, slot);
}

/* Urgent first; work of a lower priority may begin while urgent work waits for a slot. */
static void issue_waiting(struct cuda_pipeline *pipeline)
{
    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        struct fifo *fifo = &pipeline->fifos[priority];

        while (fifo->n > 0 && !pipeline->is_lost) {
            struct cuda_slot *slot = cuda_slots_take(pipeline->slots, priority);

            if (slot == NULL) {
                break;
            }
            fill_slot(pipeline, fifo, slot);
            issue_slot(pipeline, priority, slot);
        }
    }
}

uint32_t cuda_pipeline_room(const struct cuda_pipeline *pipeline, enum priority priority)
{
    return DEPTH - pipeline->n_in_flight[priority];
}

void cuda_pipeline_issue(struct cuda_pipeline *pipeline, const struct device_work *work, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct fifo *fifo = &pipeline->fifos[work[i].priority];

        fifo->works[(fifo->head + fifo->n++) % DEPTH] = work[i];
        pipeline->n_in_flight[work[i].priority]++;
        if (work[i].priority == PRIORITY_URGENT) {
            pipeline->urgent_ns = work[i].issue_ns;
        }
    }
    issue_waiting(pipeline);
}

/* ---- polling ------------------------------------------------------------------------------- */

/* How long the stages took, as the device saw it; nothing of a launch that went wrong. */
static int measure_stages(struct cuda_slot *slot, struct cuda_trouble *ret_trouble)
{
    uint64_t took_ns[CUDA_STAGES];
    int error = 0;

    for (uint32_t i = 0; i < CUDA_STAGES && error == 0; i++) {
        float ms = 0;

        error = CUDA_CHECK(cudaEventElapsedTime(&ms, slot->stages[i], slot->stages[i + 1]),
                           ret_trouble);
        took_ns[i] = (uint64_t)((double)ms * 1e6) / slot->n_works;
    }
    if (error == 0) {
        slot->common.in_ns = (uint32_t)MIN(took_ns[CUDA_COPY_IN], (uint64_t)UINT32_MAX);
        slot->common.compute_ns = took_ns[CUDA_COMPUTE];
        slot->common.out_ns = (uint32_t)MIN(took_ns[CUDA_COPY_OUT], (uint64_t)UINT32_MAX);
    }
    return error;
}

/* Is the launch done?  Says no of a lost pipeline. */
static bool is_done(struct cuda_pipeline *pipeline, struct cuda_slot *slot)
{
    cudaError_t error = cudaSuccess;
    struct cuda_trouble trouble;

    if (slot->common.end_ns != 0) {
        return true;
    }
    error = cudaEventQuery(slot->event);
    if (error == cudaErrorNotReady) {
        return false;
    }
    if (cuda_check(error, "cudaEventQuery", __FILE__, __LINE__, &trouble) < 0) {
        lose(pipeline, &trouble);
        return false;
    }
    slot->common.end_ns = now_ns();
    slot->common.device_ns =
        (slot->common.end_ns - MAX(slot->common.start_ns, pipeline->end_ns)) / slot->n_works;
    pipeline->end_ns = slot->common.end_ns;
    if (slot->is_timed && slot->common.status == STATUS_OK && measure_stages(slot, &trouble) < 0) {
        note_trouble(pipeline, slot, &trouble);
    }
    return !pipeline->is_lost;
}

static struct device_completion completion_of(const struct cuda_slot *slot,
                                              const struct device_work *work)
{
    struct device_completion completion = {.cookie = work->cookie, .result = slot->common};

    completion.result.issue_ns = work->issue_ns;
    for (uint32_t i = 0; i < LIMIT_OUT && slot->common.status == STATUS_OK; i++) {
        completion.result.out_size[i] = (uint32_t)work->out[i].size;
    }
    if (slot->common.status != STATUS_OK) {
        completion.error = slot->error;
    }
    return completion;
}

/* Up to max completions of one stream's oldest launches; returns their number. */
static uint32_t poll_stream(struct cuda_pipeline *pipeline, enum priority priority,
                            struct cuda_stream *stream, struct device_completion *ret_completions,
                            uint32_t max)
{
    uint32_t n = 0;

    while (n < max && stream->oldest != NULL && is_done(pipeline, stream->oldest)) {
        struct cuda_slot *slot = stream->oldest;

        while (n < max && slot->n_answered < slot->n_works) {
            ret_completions[n++] = completion_of(slot, &slot->works[slot->n_answered++]);
        }
        if (slot->n_answered == slot->n_works) {
            cuda_stream_pop(stream);
            for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
                cuda_const_give(slot->consts[i]);
            }
            cuda_slots_put(pipeline->slots, priority, slot);
        }
    }
    pipeline->n_in_flight[priority] -= n;
    return n;
}

int cuda_pipeline_poll(struct cuda_pipeline *pipeline, struct device_completion *ret_completions,
                       uint32_t max, struct failure *ret_failure)
{
    uint32_t n = 0;

    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        for (uint32_t i = 0; i < pipeline->streams->n && !pipeline->is_lost; i++) {
            n += poll_stream(pipeline, priority, &pipeline->streams->all[priority][i],
                             &ret_completions[n], max - n);
        }
    }
    if (n > 0) {
        issue_waiting(pipeline);
        return (int)n;
    }
    if (pipeline->is_lost) {
        *ret_failure = pipeline->loss;
        return -(int)pipeline->loss.status;
    }
    return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

void cuda_pipeline_wait(struct cuda_pipeline *pipeline, int doorbell_fd)
{
    const uint32_t *n = pipeline->n_in_flight;
    struct pollfd doorbell = {.fd = doorbell_fd, .events = POLLIN};
    struct timespec nap = {.tv_nsec = NAP_NS};
    bool is_idle = n[PRIORITY_URGENT] + n[PRIORITY_NORMAL] + n[PRIORITY_BULK] == 0;

    if (n[PRIORITY_URGENT] > 0 && now_ns() - pipeline->urgent_ns < AWAKE_NS) {
        nap.tv_nsec = 0;
    }
    ppoll(&doorbell, 1, is_idle ? NULL : &nap, NULL);
}

/* ---- life ---------------------------------------------------------------------------------- */

int cuda_pipeline_create(uint32_t n_streams, struct cuda_pipeline **ret_pipeline,
                         struct cuda_trouble *ret_trouble)
{
    struct cuda_pipeline *pipeline = calloc(1, sizeof(*pipeline));
    int error;

    if (pipeline == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the pipeline");
    }
    error = cuda_kernels_create(&pipeline->kernels, ret_trouble);
    if (error == 0) {
        error = cuda_streams_create(n_streams, &pipeline->streams, ret_trouble);
    }
    if (error == 0) {
        error = cuda_slots_create(&pipeline->slots, ret_trouble);
    }
    if (error == 0) {
        error = cuda_consts_create(&pipeline->consts, ret_trouble);
    }
    if (error < 0) {
        cuda_pipeline_destroy(pipeline);
        return error;
    }
    *ret_pipeline = pipeline;
    return 0;
}

void cuda_pipeline_destroy(struct cuda_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    if (pipeline->streams != NULL) {
        cudaDeviceSynchronize(); /* an error means that nothing runs any more */
    }
    cuda_consts_destroy(pipeline->consts);
    cuda_slots_destroy(pipeline->slots);
    cuda_streams_destroy(pipeline->streams);
    cuda_kernels_destroy(pipeline->kernels);
    free(pipeline);
}
