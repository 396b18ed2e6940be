/*
 * Rpc: envelopes.  A message is decoded as a whole, after the guard has counted it.
 */
#include "proto/rpc.h"

#include "proto/codec_fields.h"

#include <inttypes.h>
#include <string.h>

/* Bytes that msgpack-c allocates at a time: most messages need one, and malloc has it at hand. */
#define ZONE_CHUNK 960

/* ---- reading ------------------------------------------------------------------------------- */

static int bad_envelope(const char *what, struct failure *ret_failure)
{
    return fail(ret_failure, STATUS_PROTO, NULL, "not MessagePack-RPC: %s", what);
}

static int parse_msgid(const msgpack_object *msgid, struct rpc_message *message,
                       struct failure *ret_failure)
{
    if (msgid->type != MSGPACK_OBJECT_POSITIVE_INTEGER || msgid->via.u64 > UINT32_MAX) {
        return bad_envelope("the msgid is no unsigned integer of 32 bits", ret_failure);
    }
    message->msgid = (uint32_t)msgid->via.u64;
    return 0;
}

/* A method's name and parameters: of a request, or of a notification. */
static int parse_call(const msgpack_object *name, const msgpack_object *params,
                      struct rpc_message *message, struct failure *ret_failure)
{
    if (name->type != MSGPACK_OBJECT_STR) {
        return bad_envelope("the method is no string", ret_failure);
    }
    if (params->type != MSGPACK_OBJECT_ARRAY) {
        return bad_envelope("the parameters are no array", ret_failure);
    }
    message->name = *name;
    message->method = method_find(name->via.str.ptr, name->via.str.size);
    message->params = params->via.array;
    return 0;
}

static int check_n_params(const struct rpc_message *message, struct failure *ret_failure)
{
    uint32_t n_params = message->params.size;
    const struct method_row *row;

    if (message->method == METHOD_COUNT) {
        return 0;
    }
    row = method_row(message->method);
    if (n_params >= row->n_params_least && n_params <= row->n_params_most) {
        return 0;
    }
    return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                "%s takes at least %d and at most %d parameters, not %" PRIu32, row->name,
                row->n_params_least, row->n_params_most, n_params);
}

static int parse_envelope(const msgpack_object *root, struct rpc_message *message,
                          struct failure *ret_failure)
{
    const msgpack_object *items = root->via.array.ptr;
    uint32_t n_items = root->type == MSGPACK_OBJECT_ARRAY ? root->via.array.size : 0;
    int r;

    if (n_items < 3 || items[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
        items[0].via.u64 > RPC_NOTIFICATION ||
        n_items != (items[0].via.u64 == RPC_NOTIFICATION ? 3 : 4)) {
        return bad_envelope("no [0, msgid, method, params], [1, msgid, error, result] or "
                            "[2, method, params]",
                            ret_failure);
    }
    message->type = (enum rpc_type)items[0].via.u64;
    message->method = METHOD_COUNT;
    if (message->type == RPC_NOTIFICATION) {
        return parse_call(&items[1], &items[2], message, ret_failure);
    }
    r = parse_msgid(&items[1], message, ret_failure);
    if (r < 0) {
        return r;
    }
    if (message->type == RPC_RESPONSE) {
        message->error = items[2];
        message->result = items[3];
        return 0;
    }
    r = parse_call(&items[2], &items[3], message, ret_failure);
    return r < 0 ? r : check_n_params(message, ret_failure);
}

static int decode(const uint8_t *bytes, size_t size, msgpack_zone *zone, msgpack_object *ret_root,
                  struct failure *ret_failure)
{
    size_t used = 0;

    switch (msgpack_unpack((const char *)bytes, size, &used, zone, ret_root)) {
    case MSGPACK_UNPACK_SUCCESS:
        return 0;
    case MSGPACK_UNPACK_EXTRA_BYTES:
        return fail(ret_failure, STATUS_PROTO, NULL, "%zu bytes behind the message", size - used);
    case MSGPACK_UNPACK_CONTINUE:
        return fail(ret_failure, STATUS_PROTO, NULL, "the message is cut short");
    case MSGPACK_UNPACK_NOMEM_ERROR:
        /* msgpack-c says the same past 32 levels; the guard lets nothing that deep through. */
        return fail(ret_failure, STATUS_INTERNAL, NULL, "no memory to decode a message");
    default:
        return fail(ret_failure, STATUS_PROTO, NULL, "not MessagePack");
    }
}

int rpc_parse(const uint8_t *bytes, size_t size, struct rpc_message *ret_message,
              struct failure *ret_failure)
{
    struct rpc_message message = {.zone = msgpack_zone_new(ZONE_CHUNK)};
    msgpack_object root;
    int r;

    if (message.zone == NULL) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "no memory to decode a message");
    }
    r = decode(bytes, size, message.zone, &root, ret_failure);
    if (r == 0) {
        r = parse_envelope(&root, &message, ret_failure);
    }
    if (r < 0) {
        msgpack_zone_free(message.zone);
        return r;
    }
    *ret_message = message;
    return 0;
}

void rpc_finish(struct rpc_message *message)
{
    msgpack_zone_free(message->zone);
    message->zone = NULL;
}

/* ---- writing ------------------------------------------------------------------------------- */

void rpc_pack_request(msgpack_packer *packer, uint32_t msgid, enum method method, uint32_t n_params)
{
    msgpack_pack_array(packer, 4);
    msgpack_pack_uint8(packer, RPC_REQUEST);
    msgpack_pack_uint32(packer, msgid);
    fields_pack_string(packer, method_row(method)->name);
    msgpack_pack_array(packer, n_params);
}

void rpc_pack_notification(msgpack_packer *packer, const char *name, uint32_t n_params)
{
    msgpack_pack_array(packer, 3);
    msgpack_pack_uint8(packer, RPC_NOTIFICATION);
    fields_pack_string(packer, name);
    msgpack_pack_array(packer, n_params);
}

void rpc_pack_result(msgpack_packer *packer, uint32_t msgid)
{
    msgpack_pack_array(packer, 4);
    msgpack_pack_uint8(packer, RPC_RESPONSE);
    msgpack_pack_uint32(packer, msgid);
    msgpack_pack_nil(packer);
}

uint32_t rpc_bin_header(uint64_t size, uint8_t ret_header[RPC_BIN_HEADER_MAX])
{
    uint32_t n_bytes = size <= UINT8_MAX ? 1 : size <= UINT16_MAX ? 2 : 4;

    ret_header[0] = n_bytes == 1 ? 0xc4 : n_bytes == 2 ? 0xc5 : 0xc6;
    for (uint32_t i = 0; i < n_bytes; i++) {
        ret_header[1 + i] = (uint8_t)(size >> (8 * (n_bytes - 1 - i)));
    }
    return 1 + n_bytes;
}

/* ---- errors -------------------------------------------------------------------------------- */

static const struct field details_fields[] = {
    {"field", FIELD_TEXT, FIELD_AT(struct failure, field), .flags = FIELD_SPARSE},
    {"retry_ms", FIELD_UNSIGNED, FIELD_AT(struct failure, retry_ms), .flags = FIELD_SPARSE},
    {"limit", FIELD_TEXT, FIELD_AT(struct failure, limit), .flags = FIELD_SPARSE},
    {"used", FIELD_UNSIGNED, FIELD_AT(struct failure, used), .flags = FIELD_SPARSE},
    {"max", FIELD_UNSIGNED, FIELD_AT(struct failure, max), .flags = FIELD_SPARSE},
    {"predicted_ns", FIELD_UNSIGNED, FIELD_AT(struct failure, predicted_ns), .flags = FIELD_SPARSE},
    {"done", FIELD_UNSIGNED, FIELD_AT(struct failure, n_done), .flags = FIELD_SPARSE},
};
static const struct field_table details = FIELD_TABLE("key", false, struct failure, details_fields);

void rpc_pack_failure(msgpack_packer *packer, const struct failure *failure, bool is_structured)
{
    const char *name = status_name(failure->status);
    size_t name_size = strlen(name), message_size = strlen(failure->message);

    if (is_structured) {
        msgpack_pack_array(packer, 3);
        fields_pack_string(packer, name);
        fields_pack_string(packer, failure->message);
        fields_pack_map(packer, &details, failure, 0);
        return;
    }
    msgpack_pack_str(packer, name_size + 2 + message_size);
    msgpack_pack_str_body(packer, name, name_size);
    msgpack_pack_str_body(packer, ": ", 2);
    msgpack_pack_str_body(packer, failure->message, message_size);
}

void rpc_pack_error(msgpack_packer *packer, uint32_t msgid, const struct failure *failure,
                    bool is_structured)
{
    msgpack_pack_array(packer, 4);
    msgpack_pack_uint8(packer, RPC_RESPONSE);
    msgpack_pack_uint32(packer, msgid);
    rpc_pack_failure(packer, failure, is_structured);
    msgpack_pack_nil(packer);
}

/* The status that these bytes name, or STATUS_OK where they name no error of this version. */
static enum status find_status(const char *name, size_t size)
{
    for (enum status status = STATUS_OK + 1; status < STATUS_COUNT; status++) {
        if (strlen(status_name(status)) == size && memcmp(status_name(status), name, size) == 0) {
            return status;
        }
    }
    return STATUS_OK;
}

/* "NAME: message"; a text in any other form is kept whole. */
static void unpack_error_string(const msgpack_object_str *str, struct failure *failure)
{
    /* msgpack-c gives an empty string as NULL. */
    const char *colon = str->size == 0 ? NULL : memmem(str->ptr, str->size, ": ", 2);
    enum status status = colon == NULL ? STATUS_OK : find_status(str->ptr, colon - str->ptr);
    msgpack_object_str message = *str;

    if (status != STATUS_OK) {
        failure->status = status;
        message.ptr = colon + 2;
        message.size = (uint32_t)(str->ptr + str->size - message.ptr);
    }
    fields_copy_text(&message, failure->message, sizeof(failure->message));
}

/* [name, message, details] */
static void unpack_error_array(const msgpack_object_array *array, struct failure *failure)
{
    const msgpack_object *items = array->ptr;
    struct failure ignored;

    if (array->size >= 3) {
        fields_unpack_map(&details, &items[2], failure, &ignored);
    }
    failure->status = STATUS_INTERNAL;
    if (array->size >= 1 && items[0].type == MSGPACK_OBJECT_STR) {
        enum status status = find_status(items[0].via.str.ptr, items[0].via.str.size);

        failure->status = status == STATUS_OK ? STATUS_INTERNAL : status;
    }
    if (array->size >= 2 && items[1].type == MSGPACK_OBJECT_STR) {
        fields_copy_text(&items[1].via.str, failure->message, sizeof(failure->message));
    }
}

void rpc_unpack_error(const msgpack_object *error, struct failure *ret_failure)
{
    struct failure failure = {.status = STATUS_INTERNAL};

    if (error->type == MSGPACK_OBJECT_STR) {
        unpack_error_string(&error->via.str, &failure);
    } else if (error->type == MSGPACK_OBJECT_ARRAY) {
        unpack_error_array(&error->via.array, &failure);
    } else {
        fail(&failure, STATUS_INTERNAL, NULL, "an error of an unknown form");
    }
    *ret_failure = failure;
}
