/*
 * A method by its name.
 *
 * The reader leaves a nil where a payload stood.  Its place is known while the payload's header is
 * walked past: the guard's index on each open level.  So it can be put back.
 *
 * Threads: those of gpupipe.h.
 */
#include "client/call_any.h"

#include "client/gpupipe_connection.h"
#include "proto/util.h"

#include <string.h>

#define RESULT_INDEX 3 /* of [1, msgid, error, result] */

struct payload {
    struct payload *next;
    uint32_t depth; /* levels of the message that are open around it */
    uint32_t index[LIMIT_DEPTH];
    uint32_t size;
    char bytes[];
};

struct any_call {
    struct call call;
    struct payload *payloads;
    void (*take)(msgpack_object *result, void *arg);
    void *arg;
    bool is_answered;
    int rc;
    struct failure failure;
};

static int on_payload(struct call *call, const struct guard *guard, struct reader_sink *ret_sink)
{
    struct any_call *any = CONTAINER_OF(call, struct any_call, call);
    struct payload *payload = malloc(sizeof(*payload) + guard->payload_size);

    if (payload == NULL) {
        return -1;
    }
    payload->depth = guard->depth;
    memcpy(payload->index, guard->index, sizeof(payload->index));
    payload->size = (uint32_t)guard->payload_size;
    payload->next = any->payloads;
    any->payloads = payload;
    if (payload->size > 0) {
        ret_sink->n_pieces = 1;
        ret_sink->pieces[0] = (struct iovec){.iov_base = payload->bytes, .iov_len = payload->size};
    }
    return 0;
}

/* The element of this index; NULL: there is none. */
static msgpack_object *element(const msgpack_object *container, uint32_t index)
{
    if (container->type == MSGPACK_OBJECT_ARRAY && index < container->via.array.size) {
        return &container->via.array.ptr[index];
    }
    /* Keys count as well. */
    if (container->type == MSGPACK_OBJECT_MAP && index % 2 == 1 &&
        index / 2 < container->via.map.size) {
        return &container->via.map.ptr[index / 2].val;
    }
    return NULL;
}

static void put_in_place(msgpack_object *result, const struct payload *payload)
{
    msgpack_object *place = payload->index[0] == RESULT_INDEX ? result : NULL;

    for (uint32_t level = 1; level < payload->depth && place != NULL; level++) {
        place = element(place, payload->index[level]);
    }
    if (place != NULL) {
        *place = (msgpack_object){.type = MSGPACK_OBJECT_BIN,
                                  .via.bin = {.size = payload->size, .ptr = payload->bytes}};
    }
}

static void on_answer(struct call *call, const msgpack_object *result,
                      const struct failure *failure)
{
    struct any_call *any = CONTAINER_OF(call, struct any_call, call);

    any->is_answered = true;
    if (failure != NULL) {
        any->failure = *failure;
        any->rc = -(int)failure->status;
    } else {
        msgpack_object changed = *result;

        for (struct payload *payload = any->payloads; payload != NULL; payload = payload->next) {
            put_in_place(&changed, payload);
        }
        any->take(&changed, any->arg);
    }
}

static int post(struct gpupipe *gpupipe, const char *method, const msgpack_sbuffer *params,
                struct any_call *any)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    msgpack_pack_array(&request.packer, 4);
    msgpack_pack_int(&request.packer, RPC_REQUEST);
    msgpack_pack_uint32(&request.packer, request.msgid);
    msgpack_pack_str_with_body(&request.packer, method, strlen(method));
    msgpack_sbuffer_write(&request.head, params->data, params->size);
    rc = connection_post(gpupipe, &request, &any->call, NULL, 0, NULL, NULL, &any->failure);
    request_finish(&request);
    return rc;
}

int call_any(struct gpupipe *gpupipe, const char *method, const msgpack_sbuffer *params,
             void (*take)(msgpack_object *result, void *arg), void *arg)
{
    struct any_call any = {
        .call = {.on_answer = on_answer, .on_payload = on_payload}, .take = take, .arg = arg};
    struct failure loss;
    int rc = post(gpupipe, method, params, &any);

    while (rc == 0 && !any.is_answered) {
        /* A loss answers the call as well. */
        (void)connection_turn(gpupipe, -1, CONNECTION_IGNORE_WAKES, &loss);
    }
    connection_announce(gpupipe);
    while (any.payloads != NULL) {
        struct payload *payload = any.payloads;

        any.payloads = payload->next;
        free(payload);
    }
    return error_record(gpupipe, rc < 0 ? rc : any.rc, &any.failure);
}
