/*
 * Stream: job.open, pushes within the credit, job.close, job.done.
 */
#include "tests/bench/stream.h"

#include "proto/codec.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/connection.h"

#include <string.h>

enum { MSGID_OPEN = 1, MSGID_PUSH, MSGID_CLOSE };

struct run {
    const struct stream *stream;
    struct connection connection;
    uint64_t job; /* 0 = not open yet */
    uint64_t credit;
    uint64_t n_pushed;
    size_t pushed_size;
    size_t received_size;
    bool is_closed;
    bool is_done;
};

/* ---- sending -------------------------------------------------------------------------------- */

static void send_open(struct run *run)
{
    struct msg_job_open open = {
        .op = run->stream->op,
        .options = {.priority = run->stream->priority, .max_push = run->stream->push_size},
    };
    msgpack_sbuffer head;
    msgpack_packer packer;

    msgpack_sbuffer_init(&head);
    msgpack_packer_init(&packer, &head, msgpack_sbuffer_write);
    codec_pack_job_open(&packer, MSGID_OPEN, &open);
    connection_queue(&run->connection, &head, NULL, 0);
    msgpack_sbuffer_destroy(&head);
}

static void send_push(struct run *run)
{
    const struct stream *stream = run->stream;
    size_t size = MIN(stream->push_size, stream->in_size - run->pushed_size);
    struct msg_job_push push = {.job = run->job, .seq = run->n_pushed, .n_data = 1};
    msgpack_sbuffer head;
    msgpack_packer packer;

    msgpack_sbuffer_init(&head);
    msgpack_packer_init(&packer, &head, msgpack_sbuffer_write);
    codec_pack_job_push(&packer, MSGID_PUSH, &push);
    connection_queue(&run->connection, &head, stream->in + run->pushed_size, size);
    msgpack_sbuffer_destroy(&head);
    run->pushed_size += size;
    run->n_pushed++;
    run->credit--;
}

static void send_close(struct run *run)
{
    struct msg_job close = {.job = run->job};
    msgpack_sbuffer head;
    msgpack_packer packer;

    msgpack_sbuffer_init(&head);
    msgpack_packer_init(&packer, &head, msgpack_sbuffer_write);
    codec_pack_job(&packer, MSGID_CLOSE, METHOD_JOB_CLOSE, &close);
    connection_queue(&run->connection, &head, NULL, 0);
    msgpack_sbuffer_destroy(&head);
    run->is_closed = true;
}

static void send_more(struct run *run)
{
    if (run->job == 0 || run->is_closed) {
        return;
    }
    while (run->credit > 0 && run->pushed_size < run->stream->in_size) {
        send_push(run);
    }
    if (run->pushed_size == run->stream->in_size) {
        send_close(run);
    }
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void parse(const uint8_t *bytes, size_t size, struct rpc_message *ret_message)
{
    struct failure failure;

    if (rpc_parse(bytes, size, ret_message, &failure) < 0) {
        bench_fail("the daemon sent what is no message: %s", failure.message);
    }
    if (ret_message->type == RPC_RESPONSE && ret_message->error.type != MSGPACK_OBJECT_NIL) {
        rpc_unpack_error(&ret_message->error, &failure);
        bench_fail("%s: %s", status_name(failure.status), failure.message);
    }
}

static bool is_named(const struct rpc_message *message, const char *name)
{
    return message->type == RPC_NOTIFICATION && message->name.via.str.size == strlen(name) &&
           memcmp(message->name.via.str.ptr, name, strlen(name)) == 0;
}

static void read_result(const struct rpc_message *message, struct msg_answer *ret_answer)
{
    struct failure failure;

    if (codec_unpack_job_result(&message->params, ret_answer, &failure) < 0) {
        bench_fail("job.result: %s", failure.message);
    }
    if (ret_answer->has_failure) {
        bench_fail("push %llu: %s", (unsigned long long)ret_answer->seq,
                   ret_answer->failure.message);
    }
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct run *run = owner;
    const struct stream *stream = run->stream;
    struct rpc_message message;
    struct msg_answer answer;

    parse(prefix, size, &message);
    read_result(&message, &answer);
    rpc_finish(&message);
    uint64_t at = answer.seq * (stream->push_size / stream->in_record) * stream->out_record;
    uint64_t out_size = stream->in_size / stream->in_record * stream->out_record;
    if (at > out_size || guard->payload_size > out_size - at) {
        bench_fail("a result lies outside the output");
    }
    *ret_sink = (struct reader_sink){1, {{stream->out + at, guard->payload_size}}};
    run->received_size += guard->payload_size;
    return 0;
}

static void take_opened(struct run *run, const struct rpc_message *message)
{
    const struct stream *stream = run->stream;
    struct msg_job_opened opened;
    struct failure failure;

    if (codec_unpack_job_opened(&message->result, &opened, &failure) < 0) {
        bench_fail("job.open: %s", failure.message);
    }
    if (opened.max_push < stream->push_size || opened.in_size[0] != stream->in_record ||
        opened.out_size[0] != stream->out_record) {
        bench_fail("the daemon grants pushes of %llu bytes, not %zu, or other records",
                   (unsigned long long)opened.max_push, stream->push_size);
    }
    run->job = opened.job;
    run->credit = opened.credit;
}

static void take_done(struct run *run, const struct rpc_message *message)
{
    struct msg_job_done done;
    struct failure failure;

    if (codec_unpack_job_done(&message->params, &done, &failure) < 0) {
        bench_fail("job.done: %s", failure.message);
    }
    if (done.state != JOB_DONE || done.pushes != run->n_pushed) {
        bench_fail("the job ended %s: %s", job_state_names[done.state], done.failure.message);
    }
    run->is_done = true;
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct run *run = owner;
    struct rpc_message message;
    struct msg_answer answer;

    (void)guard;
    parse(head, size, &message);
    if (message.type == RPC_RESPONSE && message.msgid == MSGID_OPEN) {
        take_opened(run, &message);
    } else if (is_named(&message, NOTIFY_JOB_RESULT)) {
        read_result(&message, &answer);
        run->credit += answer.credit;
    } else if (is_named(&message, NOTIFY_JOB_DONE)) {
        take_done(run, &message);
    }
    rpc_finish(&message);
    send_more(run);
    return 0;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    (void)owner, (void)guard;
    bench_fail("the daemon's bytes are out of step: %s", failure->message);
}

static const struct reader_callbacks callbacks = {
    .on_payload = on_payload,
    .on_message = on_message,
    .on_broken = on_broken,
};

void stream_run(const char *socket_path, const struct stream *stream)
{
    struct run run = {.stream = stream};

    connection_open(&run.connection, socket_path, &callbacks, &run);
    send_open(&run);
    while (!run.is_done) {
        connection_pump(&run.connection);
    }
    if (run.received_size != stream->in_size / stream->in_record * stream->out_record) {
        bench_fail("%zu bytes of results came", run.received_size);
    }
    connection_close(&run.connection);
}
