/*
 * Records from inputs through one job to outputs.
 *
 * A few slots, each with the buffers of one push, go round: filled from the inputs in step, pushed,
 * reaped with their results, written, filled again.  The daemon's credit and MEMORY_MAX bound how
 * many there are, so a file of any size needs the same memory.
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

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Bytes of all slots together, as long as two of them fit: half of what the program may use. */
#define MEMORY_MAX (48u << 20)
/* Three keep the socket, the device and this program busy at the same time. */
#define SLOTS_MAX  8u
#define SLOT_ALIGN 4096u

/* The buffers of one push, whose tag is the slot's index. */
struct slot {
    bool is_free;
    uint64_t n_records;
    uint8_t *in[LIMIT_IN];
    size_t filled[LIMIT_IN];
    uint8_t *out[LIMIT_OUT];
};

/* ---- slots --------------------------------------------------------------------------------- */

static uint32_t largest_record(const struct msg_job_opened *shape, bool has_out)
{
    uint32_t record_size = 1;

    for (uint32_t i = 0; i < shape->n_in; i++) {
        record_size = MAX(record_size, shape->in_size[i]);
    }
    for (uint32_t i = 0; has_out && i < shape->n_out; i++) {
        record_size = MAX(record_size, shape->out_size[i]);
    }
    return record_size;
}

uint64_t stream_push_records(const struct msg_job_opened *shape, bool has_out, uint64_t chunk_size)
{
    uint64_t limit = chunk_size == 0 ? shape->max_push : MIN(chunk_size, shape->max_push);
    uint64_t multiple = MAX(shape->push_multiple, 1u);
    uint32_t record_size = largest_record(shape, has_out);

    return MAX(limit / record_size / multiple, 1u) * multiple;
}

static bool is_map(const struct stream *stream)
{
    return stream->op->kind == OP_MAP;
}

static uint64_t round_to_page(uint64_t size)
{
    return div_round_up(size, SLOT_ALIGN) * SLOT_ALIGN;
}

static bool create_slot(const struct stream *stream, struct slot *slot)
{
    const struct msg_job_opened *shape = call_job_shape(stream->job);

    slot->is_free = true;
    for (uint32_t i = 0; i < shape->n_in; i++) {
        slot->in[i] =
            aligned_alloc(SLOT_ALIGN, round_to_page(stream->push_records * shape->in_size[i]));
        if (slot->in[i] == NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; is_map(stream) && i < shape->n_out; i++) {
        slot->out[i] =
            aligned_alloc(SLOT_ALIGN, round_to_page(stream->push_records * shape->out_size[i]));
        if (slot->out[i] == NULL) {
            return false;
        }
    }
    return true;
}

static uint64_t slot_size(const struct stream *stream)
{
    const struct msg_job_opened *shape = call_job_shape(stream->job);
    uint64_t size = 0;

    for (uint32_t i = 0; i < shape->n_in; i++) {
        size += round_to_page(stream->push_records * shape->in_size[i]);
    }
    for (uint32_t i = 0; is_map(stream) && i < shape->n_out; i++) {
        size += round_to_page(stream->push_records * shape->out_size[i]);
    }
    return size;
}

static int check_record(const struct stream *stream)
{
    const struct msg_job_opened *shape = call_job_shape(stream->job);
    uint32_t record_size = largest_record(shape, is_map(stream));

    if (record_size > shape->max_push) {
        cli_error("one record has %u bytes and a push at most %" PRIu64
                  "; --chunk %u asks for larger ones",
                  record_size, shape->max_push, record_size);
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int create_slots(struct stream *stream)
{
    const struct msg_job_opened *shape = call_job_shape(stream->job);
    uint64_t n_fitting = MAX(MEMORY_MAX / slot_size(stream), 2u);
    /* One more than the window, so that it is filled while the others are under way. */
    uint64_t n_slots = MIN((uint64_t)shape->credit + 1, n_fitting);

    n_slots = MIN(n_slots, SLOTS_MAX);
    stream->slots = calloc(n_slots, sizeof(stream->slots[0]));
    if (stream->slots == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    stream->n_slots = (uint32_t)n_slots;
    for (uint32_t i = 0; i < stream->n_slots; i++) {
        if (!create_slot(stream, &stream->slots[i])) {
            cli_error("out of memory: a push has %" PRIu64 " bytes; --chunk makes it smaller",
                      slot_size(stream));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

void stream_finish(struct stream *stream)
{
    for (uint32_t i = 0; i < stream->n_slots; i++) {
        for (uint32_t k = 0; k < LIMIT_IN; k++) {
            free(stream->slots[i].in[k]);
        }
        for (uint32_t k = 0; k < LIMIT_OUT; k++) {
            free(stream->slots[i].out[k]);
        }
    }
    free(STEAL(stream->slots));
    stream->n_slots = 0;
}

static struct slot *take_free_slot(struct stream *stream)
{
    for (uint32_t i = 0; i < stream->n_slots; i++) {
        struct slot *slot = &stream->slots[i];

        if (slot->is_free) {
            slot->is_free = false;
            memset(slot->filled, 0, sizeof(slot->filled));
            return slot;
        }
    }
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------- */

static size_t wanted_size(const struct stream *stream, uint32_t input)
{
    return stream->push_records * call_job_shape(stream->job)->in_size[input];
}

static bool is_input_ready(const struct stream *stream, const struct slot *slot, uint32_t input)
{
    return stream->inputs[input].is_at_end || slot->filled[input] == wanted_size(stream, input);
}

static bool is_slot_ready(const struct stream *stream, const struct slot *slot)
{
    for (uint32_t i = 0; i < stream->op->n_in; i++) {
        if (!is_input_ready(stream, slot, i)) {
            return false;
        }
    }
    return true;
}

/* Read what can be read without waiting; readable has a bit for each pipe that has something. */
static int fill_slot(struct stream *stream, struct slot *slot, uint32_t readable)
{
    int rc = CLI_OK;

    for (uint32_t i = 0; i < stream->op->n_in && rc == CLI_OK; i++) {
        bool may_read = !stream->inputs[i].may_block || (readable & 1u << i) != 0;

        if (may_read && !is_input_ready(stream, slot, i)) {
            rc = input_fill(&stream->inputs[i], slot->in[i], wanted_size(stream, i),
                            &slot->filled[i]);
        }
    }
    return rc;
}

/* How many records lie in a slot that is ready: as many in each input, or it is an error. */
static int count_records(const struct stream *stream, const struct slot *slot, uint64_t *ret_n)
{
    const uint32_t *record_sizes = call_job_shape(stream->job)->in_size;
    uint64_t n_records = div_round_up(slot->filled[0], record_sizes[0]);

    for (uint32_t i = 0; i < stream->op->n_in; i++) {
        if (stream->tail == TAIL_ERROR && slot->filled[i] % record_sizes[i] != 0) {
            return input_report_part(&stream->inputs[i], record_sizes[i]);
        }
        if (div_round_up(slot->filled[i], record_sizes[i]) != n_records) {
            return input_report_mismatch(stream->inputs, stream->op->n_in, record_sizes);
        }
    }
    *ret_n = n_records;
    return CLI_OK;
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
static int push_slot(struct stream *stream, struct slot *slot, uint64_t n_records,
                     bool *ret_is_taken)
{
    const struct msg_job_opened *shape = call_job_shape(stream->job);
    struct gpupipe_desc desc;
    int rc;

    GPUPIPE_INIT(&desc);
    desc.job = stream->job;
    desc.tag = (uint64_t)(slot - stream->slots);
    desc.n_records = slot->n_records = n_records;
    desc.n_in = shape->n_in;
    for (uint32_t i = 0; i < shape->n_in; i++) {
        desc.in[i] = (struct gpupipe_span){.data = slot->in[i], .size = slot->filled[i]};
    }
    desc.n_out = is_map(stream) ? shape->n_out : 0;
    for (uint32_t i = 0; i < desc.n_out; i++) {
        desc.out[i] = (struct gpupipe_room){
            .data = slot->out[i],
            .size = n_records * shape->out_size[i],
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
    uint64_t n_records = 0;
    int rc = count_records(stream, slot, &n_records);

    if (rc != CLI_OK) {
        return rc;
    }
    if (n_records > 0) {
        rc = push_slot(stream, slot, n_records, ret_is_taken);
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
            stream->filling = take_free_slot(stream);
        }
        if (stream->filling == NULL) {
            break;
        }
        rc = fill_slot(stream, stream->filling, readable);
        readable = 0;
        if (rc == CLI_OK && !is_slot_ready(stream, stream->filling)) {
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
    uint32_t record_size = call_job_shape(stream->job)->out_size[output];

    stream->out_size += size;
    if (stream->is_text) {
        return text_write(&stream->outputs[output], &stream->op->out[output], record_size, bytes,
                          size);
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
        uint64_t size = slot->n_records * call_job_shape(stream->job)->out_size[i];

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

/* Take back what has come back.  The push that failed first comes first. */
static int reap(struct stream *stream)
{
    struct gpupipe_completion completion;
    int rc = CLI_OK;

    GPUPIPE_INIT(&completion);
    while (rc == CLI_OK && gpupipe_reap(stream->gpupipe, &completion, 1) == 1) {
        struct slot *slot = &stream->slots[completion.tag];

        slot->is_free = true;
        if (completion.error != NULL) {
            return report(stream, completion.error);
        }
        count_push(stream, slot, &completion);
        rc = is_map(stream) ? write_push(stream, slot, &completion) : CLI_OK;
        progress_update(stream->progress, stream->in_size);
    }
    return rc;
}

static bool is_all_back(const struct stream *stream)
{
    for (uint32_t i = 0; i < stream->n_slots; i++) {
        if (!stream->slots[i].is_free && &stream->slots[i] != stream->filling) {
            return false;
        }
    }
    return true;
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
        bool is_wanted = wants_input && !is_input_ready(stream, stream->filling, i);

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
    stream->push_records =
        stream_push_records(call_job_shape(stream->job), is_map(stream), stream->chunk_size);
    rc = check_record(stream);
    if (rc == CLI_OK) {
        rc = create_slots(stream);
    }
    while (rc == CLI_OK) {
        bool is_over = gpupipe_job_result(stream->job, &outcome) == 1;

        rc = reap(stream);
        if (rc == CLI_OK && is_over && is_all_back(stream)) {
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
