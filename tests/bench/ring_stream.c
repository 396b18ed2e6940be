/*
 * Ring stream: ring.open and job.open over a connection, then descriptors.
 */
#include "tests/bench/ring_stream.h"

#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#define LAST_NS 1000000 /* to wait for a last push without sleeping: 32 MiB take 0.7 ms */

/* ---- requests ------------------------------------------------------------------------------- */

static void take_ring(struct ring_stream *stream, const struct rpc_message *message)
{
    struct failure failure;

    if (codec_unpack_ring_opened(&message->result, &stream->opened, &failure) < 0) {
        bench_fail("ring.open: %s", failure.message);
    }
    if (!reader_take_fds(stream->connection.reader, stream->fds, 3)) {
        bench_fail("ring.open: no queues came");
    }
}

static void take_job(struct ring_stream *stream, const struct rpc_message *message)
{
    struct msg_job_opened opened;
    struct failure failure;

    if (codec_unpack_job_opened(&message->result, &opened, &failure) < 0) {
        bench_fail("job.open: %s", failure.message);
    }
    *stream->to = (struct ring_stream_job){
        .id = (uint32_t)opened.job,
        .credit = opened.credit,
        .max_push = opened.max_push,
        .in_record = opened.in_size[0],
        .out_record = opened.out_size[0],
    };
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    (void)owner, (void)guard, (void)prefix, (void)size, (void)ret_sink;
    bench_fail("the daemon sent data through the socket");
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct ring_stream *stream = owner;
    struct rpc_message message;
    struct failure failure;

    (void)guard;
    if (rpc_parse(head, size, &message, &failure) < 0) {
        bench_fail("the daemon sent what is no message: %s", failure.message);
    }
    if (message.type != RPC_RESPONSE || message.error.type != MSGPACK_OBJECT_NIL) {
        rpc_unpack_error(&message.error, &failure);
        bench_fail("%s: %s", status_name(failure.status), failure.message);
    }
    if (stream->to != NULL) {
        take_job(stream, &message);
    } else if (stream->opened.ring == 0) {
        take_ring(stream, &message);
    }
    stream->is_answered = true;
    rpc_finish(&message);
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

/* What is packed next is the request. */
static msgpack_packer begin(struct ring_stream *stream)
{
    msgpack_packer packer;

    msgpack_sbuffer_clear(&stream->head);
    msgpack_packer_init(&packer, &stream->head, msgpack_sbuffer_write);
    stream->msgid++;
    return packer;
}

static double call(struct ring_stream *stream, struct ring_stream_job *to)
{
    uint64_t start_ns = now_ns();

    stream->to = to;
    stream->is_answered = false;
    connection_queue(&stream->connection, &stream->head, NULL, 0);
    while (!stream->is_answered) {
        connection_pump(&stream->connection);
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

void ring_stream_connect(struct ring_stream *stream, const char *socket_path)
{
    *stream = (struct ring_stream){.doorbell_fd = -1, .fds = {-1, -1, -1}};
    msgpack_sbuffer_init(&stream->head);
    connection_open(&stream->connection, socket_path, &callbacks, stream);
}

double ring_stream_request(struct ring_stream *stream, uint64_t size)
{
    const struct msg_ring_open open = {.size = size};
    msgpack_packer packer = begin(stream);

    stream->opened.ring = 0;
    codec_pack_ring_open(&packer, stream->msgid, &open);
    return call(stream, NULL);
}

void ring_stream_map(struct ring_stream *stream)
{
    if (ring_attach(stream->fds[0], &stream->queues) < 0) {
        bench_fail("ring.open: its queues cannot be mapped");
    }
    stream->data = mmap(NULL, stream->opened.size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, stream->fds[1], 0);
    if (stream->data == MAP_FAILED) {
        bench_fail("ring.open: its data cannot be mapped");
    }
    close(stream->fds[0]);
    close(stream->fds[1]);
    stream->doorbell_fd = stream->fds[2];
    stream->in = stream->data;
    stream->out = stream->data + stream->opened.size / 2;
}

void ring_stream_open(struct ring_stream *stream, const char *socket_path, uint64_t size)
{
    ring_stream_connect(stream, socket_path);
    ring_stream_request(stream, size);
    ring_stream_map(stream);
}

static void unmap(struct ring_stream *stream)
{
    ring_destroy(stream->queues);
    munmap(stream->data, stream->opened.size);
    close(stream->doorbell_fd);
}

void ring_stream_drop(struct ring_stream *stream)
{
    const struct msg_ring close = {.ring = stream->opened.ring};
    msgpack_packer packer = begin(stream);

    codec_pack_ring_close(&packer, stream->msgid, &close);
    call(stream, NULL);
    unmap(stream);
}

void ring_stream_disconnect(struct ring_stream *stream)
{
    connection_close(&stream->connection);
    msgpack_sbuffer_destroy(&stream->head);
}

void ring_stream_close(struct ring_stream *stream)
{
    unmap(stream);
    ring_stream_disconnect(stream);
}

void ring_stream_prepare(struct ring_stream *stream, const struct msg_op *op,
                         enum priority priority, uint32_t window, struct ring_stream_job *ret_job)
{
    struct msg_job_open open = {.op = *op,
                                .options = {.priority = priority,
                                            .window = window,
                                            .is_in_rings = true,
                                            .wants_timing = stream->wants_timing}};
    msgpack_packer packer = begin(stream);

    if (stream->device != NULL) {
        snprintf(open.options.device, sizeof(open.options.device), "%s", stream->device);
    }
    codec_pack_job_open(&packer, stream->msgid, &open);
    call(stream, ret_job);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

void ring_stream_put(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                     size_t size)
{
    size_t out_at = at / job->in_record * job->out_record;
    const struct ring_desc desc = {
        .job = job->id,
        .n_records = (uint32_t)(size / job->in_record),
        .tag = at,
        .in = {(uint32_t)((size_t)(stream->in - stream->data + (ptrdiff_t)at) / RING_ALIGN)},
        .out = {(uint32_t)((size_t)(stream->out - stream->data + (ptrdiff_t)out_at) / RING_ALIGN)},
    };

    ring_submit(stream->queues, &desc);
}

void ring_stream_show(struct ring_stream *stream)
{
    if (ring_submit_publish(stream->queues)) {
        channel_ring(stream->doorbell_fd);
    }
}

uint32_t ring_stream_take(struct ring_stream *stream, struct ring_completion *ret_completions,
                          uint32_t max)
{
    int n = ring_reap(stream->queues, ret_completions, max);

    if (n < 0) {
        bench_fail("the ring is broken");
    }
    return (uint32_t)n;
}

/* What is there now; returns how many. */
static uint32_t look(struct ring_stream *stream)
{
    struct ring_completion completions[16];
    uint32_t n = ring_stream_take(stream, completions, ARRAY_SIZE(completions));

    for (uint32_t i = 0; i < n; i++) {
        if (completions[i].status != STATUS_OK) {
            bench_fail("a push failed: %s", status_name(completions[i].status));
        }
    }
    return n;
}

/* Looks for one at least, without sleeping for spin_ns; returns how many, 0: none came by then. */
static uint32_t spin(struct ring_stream *stream, uint64_t spin_ns)
{
    uint64_t end_ns = now_ns() + spin_ns;
    uint32_t n = 0;

    while (n == 0 && now_ns() < end_ns) {
        n = look(stream);
    }
    return n;
}

/* Waits for one at least; returns how many. */
static uint32_t reap(struct ring_stream *stream)
{
    struct pollfd bell = {.fd = stream->doorbell_fd, .events = POLLIN};
    uint32_t n;

    while ((n = look(stream)) == 0) {
        if (ring_client_sleep(stream->queues)) {
            poll(&bell, 1, -1);
            channel_drain(stream->doorbell_fd, NULL);
            ring_client_awake(stream->queues);
        }
    }
    return n;
}

void ring_stream_run(struct ring_stream *stream, const struct ring_stream_job *job, size_t in_size,
                     size_t push_size)
{
    const size_t half = stream->opened.size / 2;
    size_t at = 0;
    uint32_t n = 0;

    while (at < in_size || n > 0) {
        for (; at < in_size && n < job->credit; n++) {
            size_t left = MIN(in_size - at, half - at % half), size = MIN(push_size, left);

            ring_stream_put(stream, job, at % half, size);
            at += size;
        }
        ring_stream_show(stream);
        if (at == in_size && n == 1 && stream->opened.awake_ns > 0) { /* there are CPUs */
            n -= spin(stream, LAST_NS);
        }
        n -= n > 0 ? reap(stream) : 0;
    }
}

void ring_stream_shot(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                      size_t size, uint64_t spin_ns)
{
    ring_stream_put(stream, job, at, size);
    ring_stream_show(stream);
    if (spin_ns == 0 || spin(stream, spin_ns) == 0) {
        reap(stream);
    }
}

void ring_stream_send(struct ring_stream *stream, const struct ring_stream_job *job, size_t at,
                      size_t size)
{
    ring_stream_put(stream, job, at, size);
    ring_stream_show(stream);
}

void ring_stream_wait(struct ring_stream *stream, uint64_t until_ns)
{
    struct pollfd bell = {.fd = stream->doorbell_fd, .events = POLLIN};
    uint64_t now = now_ns(), left_ns = until_ns > now ? until_ns - now : 0;
    const struct timespec patience = {.tv_sec = (time_t)(left_ns / 1000000000),
                                      .tv_nsec = (long)(left_ns % 1000000000)};

    if (ring_client_sleep(stream->queues)) {
        ppoll(&bell, 1, &patience, NULL);
        channel_drain(stream->doorbell_fd, NULL);
        ring_client_awake(stream->queues);
    }
}
