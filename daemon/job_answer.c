/*
 * Job answers: the result of run, job.result and job.done, with outputs straight from the pool.
 */
#include "daemon/job.h"

#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <string.h>

/* The last byte of job.done has left, or of an answer without outputs ... */
static void on_sent(void *arg, bool is_sent)
{
    struct job *job = arg;

    (void)is_sent;
    job->n_messages--;
    job_settle(job);
}

/* ... or of one that refers to its push's memory. */
static void on_answer_sent(void *arg, bool is_sent)
{
    struct push *push = arg;

    (void)is_sent;
    push_lists_move(&push->job->lists, push, PUSH_FREE);
    push->job->n_messages--;
    job_settle_push(push->job, push);
}

/* Append one output: its header and, piece by piece, its bytes. */
static int add_output(struct writer_message *message, const struct iovec *pieces, uint32_t n_pieces)
{
    uint8_t header[RPC_BIN_HEADER_MAX];
    uint64_t size = 0;

    for (uint32_t i = 0; i < n_pieces; i++) {
        size += pieces[i].iov_len;
    }
    int r = writer_add_copy(message, header, rpc_bin_header(size, header));
    for (uint32_t i = 0; r == 0 && i < n_pieces; i++) {
        r = writer_add_ref(message, pieces[i].iov_base, pieces[i].iov_len);
    }
    return r;
}

static int add_push_outputs(struct writer_message *message, const struct job *job,
                            const struct push *push)
{
    int r = 0;

    for (uint32_t array = job->prepared->shape.n_in;
         r == 0 && array < job->prepared->shape.n_arrays; array++) {
        struct reader_sink out; /* the same walk over pieces as for receiving */

        push_sink(push, &job->prepared->shape, array,
                  push_array_size(&job->prepared->shape, array, push->n_records), &out);
        r = add_output(message, out.pieces, out.n_pieces);
    }
    return r;
}

static int add_reduced(struct writer_message *message, const struct job *job)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < job->prepared->op->n_out; i++) {
        r = add_output(message, &(struct iovec){job->out[i].base, job->prepared->out_size[i]}, 1);
    }
    return r;
}

/* Their names with commas between; a push without records was nowhere, and names the first. */
static void name_devices(const struct devices *devices, uint32_t set,
                         char ret_names[MSG_DEVICES_SIZE])
{
    char *end = ret_names;

    for (set = set != 0 ? set : SCHEDULER_DEVICE(0); set != 0; set &= set - 1) {
        if (end > ret_names) {
            *end++ = ',';
        }
        end = stpcpy(end, devices->all[__builtin_ctz(set)].name);
    }
}

static void describe_work(const struct job *job, const struct push *push,
                          struct msg_done_by *ret_by)
{
    const struct devices *devices = &job->server->devices;

    *ret_by = (struct msg_done_by){.priority = push->ran_as};
    strcpy(ret_by->path, job->prepared->is_in_rings ? "ring" : "inline");
    strcpy(ret_by->backend,
           devices->backend); /* for each answer: printf() takes ten times as long */
    name_devices(devices, push->devices, ret_by->device);
    if (job->prepared->wants_timing) {
        ret_by->has_timing = true;
        push_timing(push, &ret_by->timing);
    }
}

/* Pack the head of a push's answer and append its outputs. */
static int compose_answer(struct job *job, struct push *push, const struct failure *failure,
                          struct writer_message *message, msgpack_sbuffer *head)
{
    msgpack_packer packer;
    bool is_structured = session_wants_structured(job->session);
    struct msg_answer answer = {
        .job = job->id,
        .seq = push->seq,
        .n = failure == NULL ? push->n_records : push_n_done(push, &job->prepared->shape),
        .credit = 1,
        .has_failure = failure != NULL,
    };

    msgpack_packer_init(&packer, head, msgpack_sbuffer_write);
    describe_work(job, push, &answer.by);
    if (failure != NULL) {
        answer.failure = *failure;
    } else if (!job->prepared->is_in_rings && (job->prepared->shape.leaf == 0 || job->id == 0)) {
        answer.n_out = job->prepared->op->n_out;
    }
    if (job->id != 0) {
        codec_pack_job_result(&packer, &answer, is_structured);
    } else if (failure != NULL) {
        rpc_pack_error(&packer, job->msgid, failure, is_structured);
    } else {
        codec_pack_run_result(&packer, job->msgid, &answer);
    }
    int r = writer_add_copy(message, head->data, head->size);
    if (r == 0 && answer.n_out > 0) {
        r = job->prepared->shape.leaf != 0 ? add_reduced(message, job)
                                           : add_push_outputs(message, job, push);
    }
    return r;
}

/* Pack the head of job.done and append a reduce op's outputs. */
static int compose_done(struct job *job, struct writer_message *message, msgpack_sbuffer *head)
{
    msgpack_packer packer;
    struct msg_job_done done = {
        .job = job->id,
        .state = job->state,
        .pushes = job->n_done,
        .n = job->n_records,
        .has_failure = job->failure.status != STATUS_OK,
        .failure = job->failure,
        .n_out =
            job->state == JOB_DONE && job->prepared->shape.leaf != 0 ? job->prepared->op->n_out : 0,
    };

    msgpack_packer_init(&packer, head, msgpack_sbuffer_write);
    codec_pack_job_done(&packer, &done, session_wants_structured(job->session));
    int r = writer_add_copy(message, head->data, head->size);
    if (r == 0 && done.n_out > 0) {
        r = add_reduced(message, job);
    }
    return r;
}

/* Compose and queue a message that refers to the job's memory; push NULL: job.done. */
static void send_message(struct job *job, struct push *push, const struct failure *failure)
{
    /* The outputs of a push in a ring are there already: who reads the answer has its credit. */
    bool refers = push != NULL && !job->prepared->is_in_rings;
    msgpack_sbuffer head;
    struct writer_message *message;
    int r = refers ? writer_begin(&message, on_answer_sent, push)
                   : writer_begin(&message, on_sent, job);

    if (r < 0) {
        goto out_of_memory;
    }
    msgpack_sbuffer_init(&head);
    r = push != NULL ? compose_answer(job, push, failure, message, &head)
                     : compose_done(job, message, &head);
    msgpack_sbuffer_destroy(&head);
    if (r < 0) {
        writer_abandon(message);
        goto out_of_memory;
    }
    job->n_messages++;
    session_queue(job->session, message, push != NULL ? push->ran_as : job->flow.priority);
    if (push != NULL && !refers) {
        push_lists_move(&job->lists, push, PUSH_FREE);
    }
    return;

out_of_memory: /* an answer cannot be left out: the connection ends instead */
    if (push != NULL) {
        push_lists_move(&job->lists, push, PUSH_FREE);
    }
    session_break(job->session, "out of memory for an answer");
}

void job_answer_push(struct job *job, struct push *push, const struct failure *failure)
{
    struct ring_link *ring = STEAL(push->ring);

    job->n_timed -= push->deadline_at_ns != 0;
    job->server->stats.errors_total += failure != NULL ? push->n_rows : 0;
    if (ring != NULL && push->is_described) {
        job_complete_push(job, push, ring, failure);
        push_lists_move(&job->lists, push, PUSH_FREE);
    } else if (job->session == NULL) {
        push_lists_move(&job->lists, push, PUSH_FREE);
    } else {
        push_lists_move(&job->lists, push, PUSH_ANSWERED);
        send_message(job, push, failure);
    }
    if (ring != NULL) {
        ring_link_let_go(ring);
    }
}

void job_say_done(struct job *job)
{
    if (job->session != NULL && job->id != 0) { /* a run's answer was its last word */
        send_message(job, NULL, NULL);
    }
}
