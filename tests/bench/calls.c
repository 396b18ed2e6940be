/*
 * Calls: the client does as little as it can for each request, so that the server is what is
 * measured: the head is packed once, and of an answer only the error and the output are looked at.
 */
#include "tests/bench/calls.h"

#include "proto/codec.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <string.h>

/* A msgid from here on takes five bytes, of which the last four are the number. */
#define MSGID_FIRST 0x10000u
/* [0, msgid, ...]: array header, type, uint32 header. */
#define MSGID_AT 3

/* [1, msgid, error, ...] */
static bool is_error(const uint8_t *head, size_t size)
{
    return size <= MSGID_AT + 4 || head[MSGID_AT + 4] != 0xc0;
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct calls *calls = owner;
    uint32_t i = guard->msgid - MSGID_FIRST;

    (void)prefix, (void)size;
    if (i >= calls->n_sent || guard->payload_size != calls->size) {
        bench_fail("an answer of the wrong size, or to no request");
    }
    *ret_sink = (struct reader_sink){1, {{calls->out + i * calls->size, calls->size}}};
    return 0;
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct calls *calls = owner;
    struct rpc_message message;
    struct failure failure;

    if (!guard->has_msgid || is_error(head, size)) {
        if (rpc_parse(head, size, &message, &failure) == 0) {
            rpc_unpack_error(&message.error, &failure);
        }
        bench_fail("run: %s", failure.message);
    }
    calls->n_answered++;
    return 0;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    (void)owner, (void)guard;
    bench_fail("the server's bytes are out of step: %s", failure->message);
}

static const struct reader_callbacks callbacks = {
    .on_payload = on_payload,
    .on_message = on_message,
    .on_broken = on_broken,
};

void calls_open(struct calls *calls, const char *socket_path)
{
    *calls = (struct calls){0};
    connection_open(&calls->connection, socket_path, &callbacks, calls);
}

void calls_open_fd(struct calls *calls, int fd)
{
    *calls = (struct calls){0};
    connection_open_fd(&calls->connection, fd, &callbacks, calls);
}

void calls_close(struct calls *calls)
{
    connection_close(&calls->connection);
    msgpack_sbuffer_destroy(&calls->head);
}

void calls_prepare_run(struct calls *calls, const struct msg_run *run)
{
    msgpack_packer packer;

    msgpack_sbuffer_clear(&calls->head);
    msgpack_packer_init(&packer, &calls->head, msgpack_sbuffer_write);
    codec_pack_run(&packer, MSGID_FIRST, run);
}

void calls_prepare_ping(struct calls *calls)
{
    msgpack_packer packer;

    msgpack_sbuffer_clear(&calls->head);
    msgpack_packer_init(&packer, &calls->head, msgpack_sbuffer_write);
    codec_pack_ping(&packer, MSGID_FIRST);
}

static void send_one(struct calls *calls)
{
    uint32_t msgid = htonl(MSGID_FIRST + calls->n_sent);

    memcpy(calls->head.data + MSGID_AT, &msgid, sizeof(msgid));
    connection_queue(&calls->connection, &calls->head, calls->in + calls->n_sent * calls->size,
                     calls->size);
    calls->n_sent++;
}

void calls_run(struct calls *calls, const uint8_t *in, uint8_t *out, size_t size, uint32_t n_calls,
               uint32_t depth)
{
    calls->in = in;
    calls->out = out;
    calls->size = size;
    calls->n_calls = n_calls;
    calls->n_sent = 0;
    calls->n_answered = 0;
    while (calls->n_answered < n_calls) {
        while (calls->n_sent < n_calls && calls->n_sent - calls->n_answered < depth) {
            send_one(calls);
        }
        connection_pump(&calls->connection);
    }
}
