/*
 * Fuzz target: envelopes and codec, behind the guard as in real life.
 *
 * The input is a stream of messages, read once as the server's and once as the client's.  Whatever
 * unpacks is packed, unpacked and packed again: both packings must be the same bytes.
 */
#include "proto/codec.h"
#include "proto/guard.h"
#include "proto/rpc.h"
#include "proto/util.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Either outcome is fine, but a failure must say what and why. */
static bool is_unpacked(int r, const struct failure *failure)
{
    MUST(r == 0 || (r < 0 && (int)failure->status == -r && failure->message[0] != '\0'));
    return r == 0;
}

/* ---- packed messages ------------------------------------------------------------------------ */

struct packed {
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    struct rpc_message message;
};

static void start(struct packed *packed)
{
    msgpack_sbuffer_init(&packed->buffer);
    msgpack_packer_init(&packed->packer, &packed->buffer, msgpack_sbuffer_write);
}

/* What we write must be a message, with its payloads still to come as n_nils. */
static void finish(struct packed *packed, uint32_t n_nils)
{
    struct failure failure;

    for (uint32_t i = 0; i < n_nils; i++) {
        msgpack_pack_nil(&packed->packer);
    }
    MUST(rpc_parse((const uint8_t *)packed->buffer.data, packed->buffer.size, &packed->message,
                   &failure) == 0);
}

static void compare_and_free(struct packed *first, struct packed *second)
{
    MUST(first->buffer.size == second->buffer.size);
    MUST(memcmp(first->buffer.data, second->buffer.data, first->buffer.size) == 0);
    rpc_finish(&first->message);
    rpc_finish(&second->message);
    msgpack_sbuffer_destroy(&first->buffer);
    msgpack_sbuffer_destroy(&second->buffer);
}

/* ---- structs of one size -------------------------------------------------------------------- */

/*
 * A function `name` that unpacks struct `type` with `unpack` from what `part` of a message is, and
 * packs it by the statement `pack`, which sees `packer` and `msg`; n_nils are its payloads.
 */
#define ROUND_TRIP(name, type, part, unpack, pack, n_nils)                                         \
    static void name(const struct rpc_message *message)                                            \
    {                                                                                              \
        struct packed packed[2];                                                                   \
        struct failure failure;                                                                    \
        struct type both[2];                                                                       \
                                                                                                   \
        if (!is_unpacked(unpack(&message->part, &both[0], &failure), &failure)) {                  \
            return;                                                                                \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            const struct type *msg = &both[i];                                                     \
            msgpack_packer *packer = &packed[i].packer;                                            \
                                                                                                   \
            start(&packed[i]);                                                                     \
            pack;                                                                                  \
            finish(&packed[i], n_nils);                                                            \
            if (i == 0) {                                                                          \
                MUST(unpack(&packed[0].message.part, &both[1], &failure) == 0);                    \
            }                                                                                      \
        }                                                                                          \
        compare_and_free(&packed[0], &packed[1]);                                                  \
    }

ROUND_TRIP(hello, msg_hello, params, codec_unpack_hello, codec_pack_hello(packer, 1, msg), 0)
ROUND_TRIP(op_list, msg_op_list, params, codec_unpack_op_list, codec_pack_op_list(packer, 1, msg),
           0)
ROUND_TRIP(run, msg_run, params, codec_unpack_run, codec_pack_run(packer, 1, msg), msg->n_data)
ROUND_TRIP(job_open, msg_job_open, params, codec_unpack_job_open,
           codec_pack_job_open(packer, 1, msg), 0)
ROUND_TRIP(job_push, msg_job_push, params, codec_unpack_job_push,
           codec_pack_job_push(packer, 1, msg), msg->n_data - msg->n_refs)
ROUND_TRIP(job_close, msg_job, params, codec_unpack_job,
           codec_pack_job(packer, 1, METHOD_JOB_CLOSE, msg), 0)
ROUND_TRIP(job_cancel, msg_job, params, codec_unpack_job,
           codec_pack_job(packer, 1, METHOD_JOB_CANCEL, msg), 0)
ROUND_TRIP(const_put, msg_const_put, params, codec_unpack_const_put,
           codec_pack_const_put(packer, 1, msg), msg->n_data)
ROUND_TRIP(const_drop, msg_const, params, codec_unpack_const_drop,
           codec_pack_const_drop(packer, 1, msg), 0)
ROUND_TRIP(job_list, msg_job_list, params, codec_unpack_job_list,
           codec_pack_job_list(packer, 1, msg), 0)

ROUND_TRIP(ring_open, msg_ring_open, params, codec_unpack_ring_open,
           codec_pack_ring_open(packer, 1, msg), 0)
ROUND_TRIP(ring_close, msg_ring, params, codec_unpack_ring_close,
           codec_pack_ring_close(packer, 1, msg), 0)
ROUND_TRIP(subscribe, msg_subscribe, params, codec_unpack_subscribe,
           codec_pack_subscribe(packer, 1, msg), 0)

ROUND_TRIP(hello_result, msg_hello_result, result, codec_unpack_hello_result,
           codec_pack_hello_result(packer, 1, msg), 0)
ROUND_TRIP(run_result, msg_answer, result, codec_unpack_run_result,
           codec_pack_run_result(packer, 1, msg), msg->n_out)
ROUND_TRIP(job_opened, msg_job_opened, result, codec_unpack_job_opened,
           codec_pack_job_opened(packer, 1, msg), 0)
ROUND_TRIP(job_closed, msg_job_closed, result, codec_unpack_job_closed,
           codec_pack_job_closed(packer, 1, msg), 0)
ROUND_TRIP(const_put_result, msg_const_put_result, result, codec_unpack_const_put_result,
           codec_pack_const_put_result(packer, 1, msg), 0)
ROUND_TRIP(ring_opened, msg_ring_opened, result, codec_unpack_ring_opened,
           codec_pack_ring_opened(packer, 1, msg), 0)
ROUND_TRIP(job_state, msg_job_state, result, codec_unpack_job_state,
           codec_pack_job_state(packer, 1, msg), 0)
ROUND_TRIP(stats, msg_stats, result, codec_unpack_stats, codec_pack_stats(packer, 1, msg), 0)

ROUND_TRIP(job_result, msg_answer, params, codec_unpack_job_result,
           codec_pack_job_result(packer, msg, true), msg->has_failure ? 0 : msg->n_out)
ROUND_TRIP(job_done, msg_job_done, params, codec_unpack_job_done,
           codec_pack_job_done(packer, msg, true), msg->has_failure ? 0 : msg->n_out)
ROUND_TRIP(ring_closed, msg_ring_closed, params, codec_unpack_ring_closed,
           codec_pack_ring_closed(packer, msg, true), 0)
ROUND_TRIP(event, msg_event, params, codec_unpack_event, codec_pack_event(packer, msg), 0)

/* ---- lists ---------------------------------------------------------------------------------- */

/* The same for a list of struct `type`; `pack` sees `packer`, `items` and `n_items`. */
#define ROUND_TRIP_LIST(name, type, unpack, pack)                                                  \
    static void name(const struct rpc_message *message)                                            \
    {                                                                                              \
        struct packed packed[2];                                                                   \
        struct failure failure;                                                                    \
        struct type *both[2] = {NULL, NULL};                                                       \
        uint32_t n_items, n_again;                                                                 \
                                                                                                   \
        if (!is_unpacked(unpack(&message->result, &both[0], &n_items, &failure), &failure)) {      \
            return;                                                                                \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            const struct type *items = both[i];                                                    \
            msgpack_packer *packer = &packed[i].packer;                                            \
                                                                                                   \
            start(&packed[i]);                                                                     \
            pack;                                                                                  \
            finish(&packed[i], 0);                                                                 \
            if (i == 0) {                                                                          \
                MUST(unpack(&packed[0].message.result, &both[1], &n_again, &failure) == 0);        \
                MUST(n_again == n_items);                                                          \
            }                                                                                      \
        }                                                                                          \
        compare_and_free(&packed[0], &packed[1]);                                                  \
        free(both[0]);                                                                             \
        free(both[1]);                                                                             \
    }

static void pack_ops(msgpack_packer *packer, const struct manifest_op *items, uint32_t n_items)
{
    const struct manifest_op **ops = calloc(n_items + 1, sizeof(*ops));

    MUST(ops != NULL);
    for (uint32_t i = 0; i < n_items; i++) {
        ops[i] = &items[i];
    }
    codec_pack_op_list_result(packer, 1, ops, n_items, "cpu");
    free(ops);
}

ROUND_TRIP_LIST(op_list_result, manifest_op, codec_unpack_op_list_result,
                pack_ops(packer, items, n_items))
ROUND_TRIP_LIST(job_list_result, msg_job_entry, codec_unpack_job_list_result,
                codec_pack_job_list_result(packer, 1, items, n_items))
ROUND_TRIP_LIST(device_list_result, msg_device, codec_unpack_device_list_result,
                codec_pack_device_list_result(packer, 1, items, n_items))

/* ---- messages ------------------------------------------------------------------------------- */

/* Requests that carry nothing, and their answers: they only must be what they seem. */
static void nothing(const struct rpc_message *message)
{
    void (*const packs[])(msgpack_packer * packer, uint32_t msgid) = {
        codec_pack_ping,       codec_pack_stats_request, codec_pack_device_list,
        codec_pack_nil_result, codec_pack_empty_result,
    };

    for (size_t i = 0; i < ARRAY_SIZE(packs); i++) {
        struct packed packed;

        start(&packed);
        packs[i](&packed.packer, message->msgid);
        finish(&packed, 0);
        MUST(packed.message.msgid == message->msgid);
        rpc_finish(&packed.message);
        msgpack_sbuffer_destroy(&packed.buffer);
    }
}

static void error(const struct rpc_message *message)
{
    struct failure failure[2];

    rpc_unpack_error(&message->error, &failure[0]);
    MUST(failure[0].status > STATUS_OK && failure[0].status < STATUS_COUNT);
    for (int is_structured = 0; is_structured <= 1; is_structured++) {
        struct packed packed;

        start(&packed);
        rpc_pack_error(&packed.packer, message->msgid, &failure[0], is_structured);
        finish(&packed, 0);
        rpc_unpack_error(&packed.message.error, &failure[1]);
        MUST(failure[0].status == failure[1].status);
        MUST(strcmp(failure[0].message, failure[1].message) == 0);
        rpc_finish(&packed.message);
        msgpack_sbuffer_destroy(&packed.buffer);
    }
}

static void serve(const struct rpc_message *message)
{
    static void (*const requests[METHOD_COUNT])(const struct rpc_message *message) = {
        [METHOD_HELLO] = hello,         [METHOD_PING] = nothing,
        [METHOD_OP_LIST] = op_list,     [METHOD_RUN] = run,
        [METHOD_JOB_OPEN] = job_open,   [METHOD_JOB_PUSH] = job_push,
        [METHOD_JOB_CLOSE] = job_close, [METHOD_JOB_CANCEL] = job_cancel,
        [METHOD_JOB_LIST] = job_list,   [METHOD_STATS] = nothing,
        [METHOD_CONST_PUT] = const_put, [METHOD_CONST_DROP] = const_drop,
        [METHOD_DEVICE_LIST] = nothing, [METHOD_EVENTS_SUBSCRIBE] = subscribe,
        [METHOD_RING_OPEN] = ring_open, [METHOD_RING_CLOSE] = ring_close,
    };

    for (size_t i = 0; i < METHOD_COUNT; i++) { /* whichever came: a new method has a row here */
        MUST(requests[i] != NULL);
    }
    if (message->type == RPC_REQUEST && message->method != METHOD_COUNT) {
        requests[message->method](message);
    }
}

static void receive(const struct rpc_message *message)
{
    static void (*const results[])(const struct rpc_message *message) = {
        hello_result,    run_result,         job_opened, job_closed,
        job_state,       const_put_result,   stats,      op_list_result,
        job_list_result, device_list_result, error,      ring_opened,
    };

    if (message->type == RPC_NOTIFICATION) {
        job_result(message);
        job_done(message);
        ring_closed(message);
        event(message);
    }
    if (message->type == RPC_RESPONSE) {
        for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
            results[i](message);
        }
    }
}

static void handle(enum guard_role role, const uint8_t *head, size_t size)
{
    struct rpc_message message;
    struct failure failure;

    if (is_unpacked(rpc_parse(head, size, &message, &failure), &failure)) {
        if (role == GUARD_SERVER) {
            serve(&message);
        } else {
            receive(&message);
        }
        rpc_finish(&message);
    }
}

/* Leave out of the head what the reader would have received elsewhere: a payload, as far as here.
 */
static size_t take_payload(struct guard *guard, uint8_t *head, size_t size)
{
    size_t begin = guard->pos + guard->header_size;
    size_t end = begin + MIN(guard->payload_size, size - begin);
    uint8_t header[RPC_BIN_HEADER_MAX];
    uint32_t header_size = rpc_bin_header(guard->payload_size, header);

    /* A bin of the same kind must have the header that we would have written. */
    MUST(head[guard->pos] != header[0] || memcmp(head + guard->pos, header, header_size) == 0);
    head[guard->pos] = 0xc0;
    memmove(head + guard->pos + 1, head + end, size - end);
    size -= end - guard->pos - 1;
    guard_payload_taken(guard);
    return size;
}

static void read_stream(enum guard_role role, uint8_t *head, size_t size)
{
    struct guard guard;
    int event = GUARD_MESSAGE;

    guard_reset(&guard, role);
    while (event > 0 && event != GUARD_MORE) {
        struct failure failure;

        event = guard_walk(&guard, head, size, &failure);
        if (event == GUARD_PAYLOAD || event == GUARD_STRAY) {
            size = take_payload(&guard, head, size);
        } else if (event == GUARD_MESSAGE) {
            handle(role, head, guard.pos);
            head += guard.pos;
            size -= guard.pos;
            guard_reset(&guard, role);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (enum guard_role role = GUARD_SERVER; role <= GUARD_CLIENT; role++) {
        uint8_t *head = malloc(size + 1);

        MUST(head != NULL);
        memcpy(head, bytes, size);
        read_stream(role, head, size);
        free(head);
    }
    return 0;
}
