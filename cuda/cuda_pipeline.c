/*
 * Issue and poll.
 *
 * Work goes: issue() -> fifo of its priority -> slot -> stream -> poll().  A slot is one launch, of
 * one work or of several that go together; cuda_issue.c says how.
 *
 * What a launch of its own goes wrong with (no memory, a shape the device refuses) is its works'
 * status; what has been issued of it is still waited for.  What takes the context with it makes the
 * pipeline *lost*: nothing more is issued, and poll() says why from then on.
 *
 * Waiting is asking: an event is seen done within 10 us, against 27 for a blocking wait and 38 for
 * a host function, which after a fault never comes at all.  A small launch writes a number into the
 * host's memory when it is done, which is seen 2 us sooner still and costs no call.  Between two
 * questions it naps, unless something that is urgent or tells its end was issued a moment ago.
 */
#include "cuda/cuda_pipeline.h"

#include "cuda/cuda_calibrate.h"
#include "cuda/cuda_consts.h"
#include "cuda/cuda_issue.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_paces.h"
#include "cuda/cuda_slots.h"
#include "cuda/cuda_streams.h"
#include "cuda/device_rows.h"
#include "proto/util.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Works of each priority that are waiting or in flight; past it they stay in the front end's queue,
 * where they can still be overtaken.  Full tables for a few slots.  Not tuned. */
#define DEPTH 128u

/* A quarter of what a full chunk's copy takes, and others are in flight meanwhile: beside three of
 * these, shorter naps gain less than 1 %, for up to three times the processor. */
#define NAP_NS 40000
/* After a launch that is urgent or small: longer than a small job lasts, which a nap would double,
 * short enough to waste no core. */
#define AWAKE_NS 1000000u
/* Between two questions about the same launch, where urgent work is likely: as if it had slept. */
#define ASK_NS NAP_NS
/* A kernel that fills the device for longer than a chunk that is only copied is on its way. */
#define LONG_NS 400000u
/* A kernel that faults writes no number: after so long, and every so long, CUDA is asked as well.
 */
#define DOUBT_NS 1000000u

struct fifo {
    struct device_work works[DEPTH];
    uint32_t head;
    uint32_t n;
};

/* A launch that is not issued as a whole yet. */
struct issuing {
    struct cuda_slot *slot; /* NULL: there is none */
    struct cuda_stream *stream;
};

struct cuda_pipeline {
    struct cuda_kernels *kernels;
    struct cuda_streams *streams;
    struct cuda_slots *slots;
    struct cuda_consts *consts;
    uint64_t small; /* bytes of a work up to which kernels move its arrays; 0: they move none */
    uint32_t n_in_flight[PRIORITY_COUNT]; /* issued and not polled */
    struct issuing issuing;
    bool has_more;      /* to issue, at once */
    bool has_asked;     /* CUDA, since the last poll began, about work that is not urgent */
    uint32_t n_long;    /* launches of long kernels in flight */
    uint32_t n_telling; /* launches in flight that tell their end ... */
    uint64_t told_ns;   /* ... and when one of these was issued last */
    struct cuda_paces paces;
    uint64_t urgent_ns;    /* when urgent work was issued last; 0: never was any */
    uint64_t end_ns[2];    /* when the last launch was seen done, see charge() */
    uint64_t large_end_ns; /* of those that are neither urgent nor small as a whole */
    uint64_t ended_ns[PRIORITY_COUNT][WORK_ENTRIES]; /* by cookie: when the work was seen done */
    bool is_lost;
    struct failure loss;
    struct fifo fifos[PRIORITY_COUNT];
};

static bool is_urgent_likely(const struct cuda_pipeline *pipeline)
{
    return pipeline->urgent_ns != 0 && now_ns() - pipeline->urgent_ns < WORK_AWAKE_NS;
}

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
    if (slot->common.status == STATUS_OK) { /* else that is what it comes from */
        slot->common.status = (int32_t)trouble->failure.status;
        snprintf(slot->error.text, sizeof(slot->error.text), "%.*s",
                 (int)sizeof(slot->error.text) - 1, trouble->failure.message);
    }
    if (cuda_is_fatal(trouble)) {
        lose(pipeline, trouble);
    }
}

/* ---- issuing ------------------------------------------------------------------------------- */

static void fill_slot(struct cuda_pipeline *pipeline, struct fifo *fifo, struct cuda_slot *slot)
{
    while (fifo->n > 0 &&
           cuda_issue_join(pipeline->kernels, pipeline->small, slot, &fifo->works[fifo->head])) {
        fifo->head = (fifo->head + 1) % DEPTH;
        fifo->n--;
    }
}

/*
 * What is after other work goes behind it, to the same stream, so that it is asked about after the
 * other; unless that stream is on the wrong part of the device.  It costs no event where all of the
 * other is there, and no other stream stands still meanwhile.  The other was issued before, as it
 * was before it in the fifo.
 */
static struct cuda_stream *choose_stream(struct cuda_pipeline *pipeline, enum priority priority,
                                         struct cuda_slot *slot, bool is_parted)
{
    struct cuda_streams *streams = pipeline->streams;
    const struct device_work *work = &slot->works[0];
    struct cuda_stream *stream = NULL;
    const struct cuda_slot *other =
        work->is_after ? cuda_streams_find(streams, priority, work->after, &stream) : NULL;

    if (other == NULL || !cuda_streams_fits(streams, priority, is_parted, stream)) {
        stream = cuda_streams_pick(streams, priority, is_parted);
    }
    slot->behind = other != NULL && other->out != stream->handle ? other->out : NULL;
    return stream;
}

/*
 * Large copies have streams of their own where they are sure not to be in each other's way: what is
 * after other work, or needs memory or constants that somebody else may have first, would have
 * those behind it wait as well, and so would a long kernel.
 */
static bool has_copy_streams(const struct cuda_slot *slot, uint64_t expected_ns)
{
    const struct device_work *work = &slot->works[0];

    _Static_assert(LIMIT_CONSTS == 2, "both are asked about");
    return slot->way == CUDA_COPIED && slot->used > CUDA_SMALL && slot->used <= slot->size &&
           expected_ns > 0 && !slot->is_long && !work->is_after &&
           (work->const_ids[0] | work->const_ids[1]) == 0;
}

/* A work, or several that kernels move; by size, whoever moves it. */
static bool is_small(const struct cuda_slot *slot)
{
    return slot->way != CUDA_COPIED || slot->used <= CUDA_SMALL;
}

/* A slot for what is next of a priority, with the stream that it goes to; false: there is none. */
static bool next_launch(struct cuda_pipeline *pipeline, enum priority priority,
                        struct issuing *ret_issuing)
{
    struct fifo *fifo = &pipeline->fifos[priority];
    struct cuda_slot *slot = NULL;
    uint64_t expected_ns = 0;
    bool is_parted;

    if (fifo->n > 0 && !pipeline->is_lost) {
        slot =
            cuda_slots_take(pipeline->slots, priority, cuda_issue_bytes(&fifo->works[fifo->head]));
    }
    if (slot == NULL) {
        return false;
    }
    fill_slot(pipeline, fifo, slot);
    if (priority == PRIORITY_URGENT) {
        is_parted = pipeline->n_long > 0 && is_small(slot);
    } else {
        expected_ns = cuda_paces_expect(&pipeline->paces, &slot->works[0], slot->used);
        slot->is_long = expected_ns > LONG_NS;
        pipeline->n_long += slot->is_long;
        is_parted = slot->is_long;
    }
    slot->common.start_ns = now_ns();
    slot->ask_ns = slot->common.start_ns;
    *ret_issuing = (struct issuing){.slot = slot,
                                    .stream = choose_stream(pipeline, priority, slot, is_parted)};
    slot->in = slot->out = ret_issuing->stream->handle;
    if (has_copy_streams(slot, expected_ns)) {
        slot->in = pipeline->streams->in[priority];
        slot->out = pipeline->streams->out[priority];
    }
    return true;
}

/* false: that was its last step. */
static bool issue_step(struct cuda_pipeline *pipeline, const struct issuing *issuing)
{
    struct cuda_slot *slot = issuing->slot;
    struct cuda_trouble trouble;
    bool is_lost;
    int error;
    bool goes_on = cuda_issue_step(pipeline->kernels, pipeline->consts, slot,
                                   issuing->stream->handle, &error, &is_lost, &trouble);

    if (error < 0) {
        note_trouble(pipeline, slot, &trouble);
        if (is_lost) {
            lose(pipeline, &trouble);
        }
    }
    if (!goes_on) {
        if (slot->tells_end) {
            slot->ask_ns += DOUBT_NS;
            pipeline->n_telling++;
            pipeline->told_ns = slot->common.start_ns;
        }
        cuda_stream_push(issuing->stream, slot);
    }
    return goes_on;
}

static void issue_urgent(struct cuda_pipeline *pipeline)
{
    struct issuing issuing;

    while (next_launch(pipeline, PRIORITY_URGENT, &issuing)) {
        while (issue_step(pipeline, &issuing)) {
            continue;
        }
    }
}

/* One step of what is not urgent, normal first; false: there is nothing to do. */
static bool issue_other(struct cuda_pipeline *pipeline)
{
    struct issuing *issuing = &pipeline->issuing;

    if (pipeline->is_lost) {
        return false;
    }
    if (issuing->slot == NULL && !next_launch(pipeline, PRIORITY_NORMAL, issuing) &&
        !next_launch(pipeline, PRIORITY_BULK, issuing)) {
        return false;
    }
    if (!issue_step(pipeline, issuing)) {
        issuing->slot = NULL;
    }
    return true;
}

/*
 * Urgent first; work of a lower priority may begin while urgent work waits for a slot.  As long as
 * more urgent work is likely, not more than one call of CUDA for other work, a question included,
 * or two quick ones that have one stream wait for another, stand between two looks for it: to issue
 * a bulk chunk takes 10 us.
 */
static void issue_waiting(struct cuda_pipeline *pipeline)
{
    issue_urgent(pipeline);
    if (pipeline->has_asked && is_urgent_likely(pipeline)) {
        pipeline->has_more = true; /* perhaps */
        return;
    }
    do {
        pipeline->has_more = issue_other(pipeline);
    } while (pipeline->has_more && !is_urgent_likely(pipeline));
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
        took_ns[i] = (uint64_t)((double)ms * 1e6) / slot->n_rows;
    }
    if (error == 0) {
        slot->common.in_ns = (uint32_t)MIN(took_ns[CUDA_COPY_IN], (uint64_t)UINT32_MAX);
        slot->common.compute_ns = took_ns[CUDA_COMPUTE];
        slot->common.out_ns = (uint32_t)MIN(took_ns[CUDA_COPY_OUT], (uint64_t)UINT32_MAX);
    }
    return error;
}

static bool has_told(const struct cuda_slot *slot)
{
    return slot->tells_end && __atomic_load_n(slot->ended, __ATOMIC_ACQUIRE) == slot->number;
}

/*
 * Has CUDA seen the end?  Each question costs 1.6 us, in which urgent work may come: while that is
 * likely, one is asked about other work in a poll, and not again and again.  Says no of a lost
 * pipeline.
 */
static bool ask(struct cuda_pipeline *pipeline, enum priority priority,
                const struct cuda_stream *stream, struct cuda_slot *slot)
{
    const bool is_patient = priority != PRIORITY_URGENT && is_urgent_likely(pipeline);
    uint64_t now = now_ns();
    cudaError_t error;
    struct cuda_trouble trouble;

    if (now < slot->ask_ns || (is_patient && pipeline->has_asked)) {
        return false;
    }
    pipeline->has_asked |= is_patient;
    slot->ask_ns = now + (slot->tells_end ? DOUBT_NS : is_patient ? ASK_NS : 0);
    error = slot->tells_end ? cudaStreamQuery(stream->handle) : cudaEventQuery(slot->event);
    if (error == cudaErrorNotReady) {
        return false;
    }
    if (cuda_check(error, "asking for the end of work", __FILE__, __LINE__, &trouble) < 0) {
        lose(pipeline, &trouble);
        return false;
    }
    if (slot->tells_end && !has_told(slot)) {
        cuda_trouble(&trouble, STATUS_DEVICE_LOST, "a kernel has ended and does not say so");
        lose(pipeline, &trouble);
        return false;
    }
    return true;
}

/* What is after other work begins when that has ended, whose end is seen first where both are on
 * one stream. */
static void note_ended(struct cuda_pipeline *pipeline, enum priority priority,
                       struct cuda_slot *slot, uint64_t end_ns)
{
    uint64_t *ended_ns = pipeline->ended_ns[priority];
    const struct device_work *first = &slot->works[0];

    if (first->is_after) {
        slot->common.start_ns = MAX(slot->common.start_ns, ended_ns[first->after % WORK_ENTRIES]);
    }
    for (uint32_t i = 0; i < slot->n_works; i++) {
        ended_ns[slot->works[i].cookie % WORK_ENTRIES] = end_ns;
    }
    slot->common.end_ns = end_ns;
}

/*
 * It has ended now.  The device had it since it was issued, or since what was before it ended: of
 * urgent work before urgent work, which other work neither waits for nor stands behind.
 */
static void charge(struct cuda_pipeline *pipeline, enum priority priority, struct cuda_slot *slot)
{
    uint64_t *last_end_ns = &pipeline->end_ns[priority == PRIORITY_URGENT];
    const uint64_t end_ns = now_ns();

    note_ended(pipeline, priority, slot, end_ns);
    slot->common.device_ns = (end_ns - MAX(slot->common.start_ns, *last_end_ns)) / slot->n_rows;
    *last_end_ns = end_ns;
    if (priority != PRIORITY_URGENT && slot->used > CUDA_SMALL &&
        slot->common.status == STATUS_OK) {
        /* A small launch leaves much of the device free, however long it takes: its pace says
         * nothing of large ones, and that it ends beside them nothing of theirs. */
        cuda_paces_note(&pipeline->paces, &slot->works[0], slot->used,
                        end_ns - MAX(slot->common.start_ns, pipeline->large_end_ns));
        pipeline->large_end_ns = end_ns;
    }
}

/* Is the launch done?  Says no of a lost pipeline. */
static bool is_done(struct cuda_pipeline *pipeline, enum priority priority,
                    const struct cuda_stream *stream, struct cuda_slot *slot)
{
    struct cuda_trouble trouble;

    if (slot->common.end_ns != 0) {
        return true;
    }
    if (!has_told(slot) && !ask(pipeline, priority, stream, slot)) {
        return false;
    }
    charge(pipeline, priority, slot);
    if (slot->is_timed && slot->common.status == STATUS_OK && measure_stages(slot, &trouble) < 0) {
        note_trouble(pipeline, slot, &trouble);
    }
    return !pipeline->is_lost;
}

static void complete(const struct cuda_slot *slot, const struct device_work *work,
                     struct device_completion *ret_completion)
{
    struct work_result *result = &ret_completion->result;
    const uint64_t n_rows = device_n_rows(work);

    ret_completion->cookie = work->cookie;
    *result = slot->common;
    result->issue_ns = work->issue_ns;
    result->device_ns *= n_rows;
    result->in_ns = (uint32_t)MIN(result->in_ns * n_rows, (uint64_t)UINT32_MAX);
    result->compute_ns *= n_rows;
    result->out_ns = (uint32_t)MIN(result->out_ns * n_rows, (uint64_t)UINT32_MAX);
    for (uint32_t i = 0; i < LIMIT_OUT && slot->common.status == STATUS_OK; i++) {
        result->out_size[i] = (uint32_t)work->out[i].size;
    }
    if (slot->common.status != STATUS_OK) {
        ret_completion->error = slot->error;
    }
}

/* Up to max completions of one stream's oldest launches; returns their number. */
static uint32_t poll_stream(struct cuda_pipeline *pipeline, enum priority priority,
                            struct cuda_stream *stream, struct device_completion *ret_completions,
                            uint32_t max)
{
    uint32_t n = 0;

    while (n < max && stream->oldest != NULL &&
           is_done(pipeline, priority, stream, stream->oldest)) {
        struct cuda_slot *slot = stream->oldest;

        while (n < max && slot->n_answered < slot->n_works) {
            complete(slot, &slot->works[slot->n_answered++], &ret_completions[n++]);
        }
        if (slot->n_answered == slot->n_works) {
            cuda_stream_pop(stream);
            pipeline->n_long -= slot->is_long;
            pipeline->n_telling -= slot->tells_end;
            for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
                cuda_const_give(slot->consts[i]);
            }
            cuda_slots_put(pipeline->slots, slot);
        }
    }
    pipeline->n_in_flight[priority] -= n;
    return n;
}

int cuda_pipeline_poll(struct cuda_pipeline *pipeline, struct device_completion *ret_completions,
                       uint32_t max, struct failure *ret_failure)
{
    uint32_t n = 0;

    pipeline->has_asked = false;
    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        const uint32_t n_streams =
            pipeline->n_in_flight[priority] > 0 ? pipeline->streams->n_places : 0;

        for (uint32_t i = 0; i < n_streams && !pipeline->is_lost; i++) {
            n += poll_stream(pipeline, priority, &pipeline->streams->all[priority][i],
                             &ret_completions[n], max - n);
        }
    }
    if (n > 0 || pipeline->has_more) {
        issue_waiting(pipeline);
    }
    if (n > 0) {
        return (int)n;
    }
    if (pipeline->is_lost) {
        *ret_failure = pipeline->loss;
        return -(int)pipeline->loss.status;
    }
    return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Is a nap too long for what was issued a moment ago? */
static bool is_awake(const struct cuda_pipeline *pipeline)
{
    const uint64_t now = now_ns();

    return (pipeline->n_in_flight[PRIORITY_URGENT] > 0 && now - pipeline->urgent_ns < AWAKE_NS) ||
           (pipeline->n_telling > 0 && now - pipeline->told_ns < AWAKE_NS);
}

void cuda_pipeline_wait(struct cuda_pipeline *pipeline, int doorbell_fd)
{
    const uint32_t *n = pipeline->n_in_flight;
    struct pollfd doorbell = {.fd = doorbell_fd, .events = POLLIN};
    struct timespec nap = {.tv_nsec = NAP_NS};
    bool is_idle = n[PRIORITY_URGENT] + n[PRIORITY_NORMAL] + n[PRIORITY_BULK] == 0;

    if (pipeline->has_more) {
        return;
    }
    if (is_awake(pipeline)) {
        nap.tv_nsec = 0;
    }
    ppoll(&doorbell, 1, is_idle ? NULL : &nap, NULL);
}

/* ---- life ---------------------------------------------------------------------------------- */

void cuda_pipeline_set_small(struct cuda_pipeline *pipeline, uint64_t bytes)
{
    pipeline->small = bytes;
}

uint64_t cuda_pipeline_small(const struct cuda_pipeline *pipeline)
{
    return pipeline->small;
}

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
    if (error == 0 && cuda_kernels_see_host(pipeline->kernels)) {
        error = cuda_calibrate(pipeline, cuda_kernels_copy(pipeline->kernels), &pipeline->small,
                               ret_trouble);
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
