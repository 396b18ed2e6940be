/*
 * Records from inputs through one job to outputs.
 *
 * A few slots, each with the buffers of one push, go round: filled from the inputs in step, pushed,
 * reaped with their results, written, filled again.  Where the slots lie in a ring, they are read
 * into and written from where the daemon has the data.
 *
 * One loop waits for whatever can move next: the connection, a signal, inputs that are pipes.
 * Files never block, so they are read whenever a slot is free.  Outputs are written where they are
 * reaped: a slow reader of ours slows the job, which is what it wants.
 *
 * Threads: one.
 */
#include "client/cli/stream.h"

#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
#include "client/cli/text.h"
#include "proto/util.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

/* A signal that comes just before a wait of the library's is seen after so long. */
#define SIGNAL_MS 100

static bool is_map(const struct stream *stream)
{
    return stream->op->kind == OP_MAP;
}

/* ---- pushing ------------------------------------------------------------------------------- */

static int report(const struct stream *stream, const struct gpupipe_error *error)
{
    int rc;

    progress_finish(stream->progress);
    rc = cli_failure(error);
    /* A daemon that takes no more of an open job is about to go away. */
    return rc == CLI_BUSY ? CLI_UNREACHABLE : rc;
}

static int report_last(const struct stream *stream)
{
    return report(stream, gpupipe_last_error(stream->gpupipe));
}

static int end_job(struct stream *stream)
{
    stream->is_at_end = true;
    return gpupipe_job_end(stream->job) < 0 ? report_last(stream) : CLI_OK;
}

/* *ret_is_taken is false where the window is full. */
static int push_slot(struct stream *stream, const struct slot *slot, bool *ret_is_taken)
{
    struct gpupipe_desc desc;
    int rc;

    GPUPIPE_INIT(&desc);
    desc.job = stream->job;
    desc.tag = (uint64_t)(slot - stream->slots.all);
    desc.n_records = slot->n_records;
    desc.n_in = stream->op->n_in;
    for (uint32_t i = 0; i < desc.n_in; i++) {
        desc.in[i] = (struct gpupipe_span){.data = slot->in[i], .size = slot->filled[i]};
    }
    desc.n_out = is_map(stream) ? stream->op->n_out : 0;
    for (uint32_t i = 0; i < desc.n_out; i++) {
        desc.out[i] = (struct gpupipe_room){
            .data = slot->out[i],
            .size = slot->n_records * gpupipe_record_size(stream->job, true, i),
        };
    }
    rc = gpupipe_submit(stream->gpupipe, &desc, 1);
    if (rc < 0) {
        return report_last(stream);
    }
    *ret_is_taken = rc == 1;
    return CLI_OK;
}

/* Send the slot that is ready, or find that the inputs have ended. */
static int send_slot(struct stream *stream, bool *ret_is_taken)
{
    struct slot *slot = stream->filling;
    int rc = slot_count(&stream->slots, slot);

    if (rc != CLI_OK) {
        return rc;
    }
    if (slot->n_records > 0) {
        rc = push_slot(stream, slot, ret_is_taken);
    } else {
        slot->is_free = true;
        rc = end_job(stream);
    }
    if (*ret_is_taken) {
        stream->filling = NULL;
    }
    return rc;
}

/* Read and push as much as can be now.  *ret_wants_input: a pipe has to be waited for. */
static int feed(struct stream *stream, uint32_t readable, bool *ret_wants_input)
{
    bool is_taken = true;
    int rc = CLI_OK;

    while (rc == CLI_OK && is_taken && !stream->is_at_end && !interrupt_came()) {
        if (stream->filling == NULL) {
            stream->filling = slots_take(&stream->slots);
        }
        if (stream->filling == NULL) {
            break;
        }
        rc = slot_fill(&stream->slots, stream->filling, readable);
        readable = 0;
        if (rc == CLI_OK && !slot_is_ready(&stream->slots, stream->filling)) {
            *ret_wants_input = true;
            break;
        }
        if (rc == CLI_OK) {
            rc = send_slot(stream, &is_taken);
        }
    }
    return rc;
}

/* ---- results ------------------------------------------------------------------------------- */

static int write_output(struct stream *stream, uint32_t output, const void *bytes, uint64_t size)
{
    enum format format = stream->formats[output];

    stream->out_size += size;
    if (format_is_text(format)) {
        return text_write(&stream->outputs[output], &stream->op->out[output], format,
                          gpupipe_record_size(stream->job, true, output), bytes, size);
    }
    return output_write(&stream->outputs[output], bytes, size);
}

static void add_timing(struct gpupipe_timing *sum, const struct gpupipe_timing *timing)
{
    sum->queue_ns += timing->queue_ns;
    sum->in_ns += timing->in_ns;
    sum->compute_ns += timing->compute_ns;
    sum->out_ns += timing->out_ns;
}

static void count_push(struct stream *stream, const struct slot *slot,
                       const struct gpupipe_completion *completion)
{
    snprintf(stream->backend, sizeof(stream->backend), "%s", completion->backend);
    snprintf(stream->device, sizeof(stream->device), "%s", completion->device);
    snprintf(stream->path, sizeof(stream->path), "%s", completion->path);
    if (completion->timing != NULL) {
        add_timing(&stream->timing, completion->timing);
    }
    stream->n_pushes++;
    stream->n_records += slot->n_records;
    for (uint32_t i = 0; i < stream->op->n_in; i++) {
        stream->in_size += slot->filled[i];
    }
}

static int write_push(struct stream *stream, const struct slot *slot,
                      const struct gpupipe_completion *completion)
{
    int rc = CLI_OK;

    for (uint32_t i = 0; i < stream->op->n_out && rc == CLI_OK; i++) {
        uint64_t size = slot->n_records * gpupipe_record_size(stream->job, true, i);

        if (completion->out_size[i] != size) {
            cli_error("the daemon sent %" PRIu64 " bytes of output %s where %" PRIu64
                      " were expected",
                      completion->out_size[i], stream->op->out[i].name, size);
            return CLI_FAILED;
        }
        rc = write_output(stream, i, slot->out[i], size);
    }
    return rc;
}

/*
 * What comes back from a ring has a status alone.  If its job has failed with it, job.done says in
 * words why; if not, the push was refused, and the job goes on until it is cancelled.
 */
static int report_push(struct stream *stream, const struct gpupipe_error *error)
{
    struct gpupipe_outcome outcome;

    GPUPIPE_INIT(&outcome);
    if (stream->ring == NULL) {
        return report(stream, error);
    }
    (void)gpupipe_job_cancel(stream->job);
    while (gpupipe_job_result(stream->job, &outcome) == 0) {
        if (interrupt_came()) {
            return CLI_INTERRUPTED;
        }
        (void)gpupipe_dispatch(stream->gpupipe, SIGNAL_MS);
    }
    /* CANCELLED may be our own doing, but not of a job that a push has found gone, or ending. */
    if (outcome.error != NULL &&
        (outcome.status != GPUPIPE_ERROR_CANCELLED || error->status == GPUPIPE_ERROR_NOT_FOUND ||
         error->status == GPUPIPE_ERROR_CANCELLED)) {
        return report(stream, outcome.error);
    }
    return report(stream, error);
}

/* Take back what has come back.  The push that failed first comes first. */
static int reap(struct stream *stream)
{
    struct gpupipe_completion completion;
    int rc = CLI_OK;

    GPUPIPE_INIT(&completion);
    while (rc == CLI_OK && gpupipe_reap(stream->gpupipe, &completion, 1) == 1) {
        struct slot *slot = &stream->slots.all[completion.tag];

        slot->is_free = true;
        if (completion.error != NULL) {
            return report_push(stream, completion.error);
        }
        count_push(stream, slot, &completion);
        rc = is_map(stream) ? write_push(stream, slot, &completion) : CLI_OK;
        progress_update(stream->progress, stream->in_size);
    }
    return rc;
}

static int write_reduced(struct stream *stream, const struct gpupipe_outcome *outcome)
{
    int rc = CLI_OK;

    for (uint32_t i = 0; i < stream->op->n_out && rc == CLI_OK; i++) {
        if (outcome->out[i].data == NULL) {
            cli_error("the daemon sent no output %s", stream->op->out[i].name);
            return CLI_FAILED;
        }
        rc = write_output(stream, i, outcome->out[i].data, outcome->out[i].size);
    }
    return rc;
}

static int judge_end(struct stream *stream, const struct gpupipe_outcome *outcome)
{
    if (outcome->error != NULL) {
        return report(stream, outcome->error);
    }
    if (!stream->is_at_end) {
        cli_error("the job ended before its input");
        return CLI_FAILED;
    }
    return is_map(stream) ? CLI_OK : write_reduced(stream, outcome);
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* Wait for the connection, a signal or, if asked for, the pipes that the slot lacks. */
static uint32_t wait_for_anything(const struct stream *stream, bool wants_input)
{
    struct pollfd fds[2 + LIMIT_IN] = {
        {.fd = gpupipe_get_fd(stream->gpupipe), .events = POLLIN},
        {.fd = interrupt_fd(), .events = POLLIN},
    };
    uint32_t readable = 0;

    for (uint32_t i = 0; i < stream->op->n_in; i++) {
        bool is_wanted = wants_input && slot_lacks(&stream->slots, stream->filling, i);

        fds[2 + i].fd = is_wanted ? stream->inputs[i].fd : -1;
        fds[2 + i].events = POLLIN;
    }
    if (poll(fds, 2 + stream->op->n_in, -1) <= 0) {
        return 0;
    }
    for (uint32_t i = 0; i < stream->op->n_in; i++) {
        /* End of file and errors show as well, and read() tells which. */
        readable |= fds[2 + i].revents != 0 ? 1u << i : 0;
    }
    return readable;
}

int stream_run(struct stream *stream)
{
    struct gpupipe_outcome outcome;
    bool wants_input = false;
    uint32_t readable = 0;
    int rc;

    GPUPIPE_INIT(&outcome);
    stream->slots = (struct slots){
        .op = stream->op,
        .shape = stream->shape,
        .inputs = stream->inputs,
        .tail = stream->tail,
        .push_records = call_push_records(stream->shape),
        .gpupipe = stream->gpupipe,
        .ring = stream->ring,
    };
    rc = slots_create(&stream->slots, gpupipe_window(stream->job));
    while (rc == CLI_OK) {
        bool is_over = gpupipe_job_result(stream->job, &outcome) == 1;

        rc = reap(stream);
        if (rc == CLI_OK && is_over && slots_are_free(&stream->slots, stream->filling)) {
            return judge_end(stream, &outcome);
        }
        wants_input = false;
        if (rc == CLI_OK && !is_over) {
            rc = feed(stream, readable, &wants_input);
        }
        if (rc == CLI_OK && interrupt_came()) {
            rc = CLI_INTERRUPTED;
        }
        if (rc == CLI_OK) {
            /* Whatever this loses, ends or brings back is seen on the next round. */
            readable = wait_for_anything(stream, wants_input);
            (void)gpupipe_dispatch(stream->gpupipe, 0);
        }
    }
    return rc;
}

void stream_finish(struct stream *stream)
{
    slots_finish(&stream->slots);
}
