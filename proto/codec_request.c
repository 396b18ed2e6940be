/*
 * Codec, requests: the parameters of each method, as the server reads and the client writes them.
 */
#include "proto/codec.h"

#include "proto/codec_fields.h"

#include <inttypes.h>
#include <string.h>

#define ID_MAX ((UINT64_C(1) << 53) - 1) /* what a double, and so every language, holds */

/* ---- an op and its parameters: {name: integer, float or string} ----------------------------- */

static int unpack_op(const struct field *field, const msgpack_object *value, void *whole,
                     struct failure *ret_failure)
{
    static const struct field name = {.type = FIELD_NAME, FIELD_AT(struct msg_op, name)};

    if (value->type == MSGPACK_OBJECT_ARRAY) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "chains are not in this version; run one op after the other, each on the "
                    "output of the one before");
    }
    return fields_unpack_value(&name, value, (uint8_t *)whole + field->offset, ret_failure);
}

static void pack_op(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct msg_op *op = (const void *)((const uint8_t *)whole + field->offset);

    fields_pack_string(packer, op->name);
}

/* Where each kind of value goes in its struct. */
static const struct field value_fields[] = {
    [VALUE_INT] = {"", FIELD_SIGNED, FIELD_AT(struct value, i)},
    [VALUE_FLOAT] = {"", FIELD_FLOAT, FIELD_AT(struct value, f)},
    [VALUE_STRING] = {"", FIELD_NAME, FIELD_AT(struct value, s)},
};

static int unpack_value(const msgpack_object *object, struct value *value,
                        struct failure *ret_failure)
{
    switch (object->type) {
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        value->kind = VALUE_INT;
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        value->kind = VALUE_FLOAT;
        break;
    case MSGPACK_OBJECT_STR:
        value->kind = VALUE_STRING;
        break;
    default:
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "neither a number nor a string");
    }
    return fields_unpack_value(&value_fields[value->kind], object, value, ret_failure);
}

static int unpack_named_value(const msgpack_object_kv *pair, struct msg_op *op,
                              struct failure *ret_failure)
{
    static const struct field name = {"", FIELD_NAME, FIELD_AT(struct value, name)};
    struct value value = {0};
    int r = fields_unpack_value(&name, &pair->key, &value, ret_failure);

    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; i < op->n_values; i++) {
        if (strcmp(op->values[i].name, value.name) == 0) {
            return fail(ret_failure, STATUS_INVALID_PARAM, value.name,
                        "parameter \"%s\" stands there twice", value.name);
        }
    }
    r = unpack_value(&pair->val, &value, ret_failure);
    if (r < 0) {
        struct failure inner = *ret_failure;

        return fail(ret_failure, inner.status, value.name, "parameter \"%s\": %s", value.name,
                    inner.message);
    }
    op->values[op->n_values++] = value;
    return 0;
}

static int unpack_values(const struct field *field, const msgpack_object *object, void *whole,
                         struct failure *ret_failure)
{
    struct msg_op *op = (void *)((uint8_t *)whole + field->offset);
    msgpack_object_map map;

    if (!fields_as_map(object, &map)) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be a map");
    }
    if (map.size > LIMIT_PARAMS) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "%" PRIu32 " are more than %d",
                    map.size, LIMIT_PARAMS);
    }
    for (uint32_t i = 0; i < map.size; i++) {
        int r = unpack_named_value(&map.ptr[i], op, ret_failure);

        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void pack_values(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct msg_op *op = (const void *)((const uint8_t *)whole + field->offset);

    msgpack_pack_map(packer, op->n_values);
    for (uint32_t i = 0; i < op->n_values; i++) {
        fields_pack_string(packer, op->values[i].name);
        fields_pack_value(packer, &value_fields[op->values[i].kind], &op->values[i]);
    }
}

/* ---- data in rings: [ring, offset, length] --------------------------------------------------- */

static const struct field ref_number = {"", FIELD_UNSIGNED, .size = sizeof(uint64_t),
                                        .max = ID_MAX};

static int unpack_ref(const struct field *field, const msgpack_object *value, void *whole,
                      struct failure *ret_failure)
{
    struct msg_ref *ref = (void *)((uint8_t *)whole + field->offset);
    const msgpack_object_array *array = &value->via.array;
    int r = 0;

    if (value->type != MSGPACK_OBJECT_ARRAY || array->size != 3) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be [ring, offset, length]");
    }
    uint64_t *const numbers[] = {&ref->ring, &ref->offset, &ref->size};
    for (uint32_t i = 0; r == 0 && i < array->size; i++) {
        r = fields_unpack_value(&ref_number, &array->ptr[i], numbers[i], ret_failure);
    }
    return r;
}

static void pack_ref(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct msg_ref *ref = (const void *)((const uint8_t *)whole + field->offset);

    msgpack_pack_array(packer, 3);
    msgpack_pack_uint64(packer, ref->ring);
    msgpack_pack_uint64(packer, ref->offset);
    msgpack_pack_uint64(packer, ref->size);
}

/* Payloads, which stand as nils, or Refs; never some of each. */
static int unpack_push_data(const struct field *field, const msgpack_object *value, void *whole,
                            struct failure *ret_failure)
{
    static const struct field payloads = {"", FIELD_PAYLOADS, FIELD_AT(struct msg_job_push, n_data),
                                          .max = LIMIT_IN};
    static const struct field ref = {"", FIELD_CUSTOM, .unpack = unpack_ref};
    struct msg_job_push *push = whole;
    const msgpack_object_array *array = &value->via.array;
    bool has_refs = value->type == MSGPACK_OBJECT_ARRAY && array->size > 0 &&
                    array->ptr[0].type == MSGPACK_OBJECT_ARRAY;

    (void)field;
    if (!has_refs || array->size > LIMIT_IN) {
        return fields_unpack_value(&payloads, value, whole, ret_failure);
    }
    for (uint32_t i = 0; i < array->size; i++) {
        int r = fields_unpack_value(&ref, &array->ptr[i], &push->in[i], ret_failure);

        if (r < 0) {
            return r;
        }
    }
    push->n_data = push->n_refs = array->size;
    return 0;
}

static void pack_push_data(msgpack_packer *packer, const struct field *field, const void *whole)
{
    static const struct field ref = {"", FIELD_CUSTOM, .pack = pack_ref};
    const struct msg_job_push *push = whole;

    (void)field;
    msgpack_pack_array(packer, push->n_data);
    for (uint32_t i = 0; i < push->n_refs; i++) {
        fields_pack_value(packer, &ref, &push->in[i]);
    }
}

/* ---- another job: its number or its token ---------------------------------------------------- */

static const struct field after_job = {"", FIELD_UNSIGNED, FIELD_AT(struct msg_after, job),
                                       .max = ID_MAX};
static const struct field after_token = {"", FIELD_NAME, FIELD_AT(struct msg_after, token)};

static int unpack_after(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    struct msg_after *after = (void *)((uint8_t *)whole + field->offset);

    if (value->type == MSGPACK_OBJECT_STR && value->via.str.size > 0) {
        return fields_unpack_value(&after_token, value, after, ret_failure);
    }
    if (value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_NIL) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be a job's number or its token");
    }
    return fields_unpack_value(&after_job, value, after, ret_failure);
}

static void pack_after(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const struct msg_after *after = (const void *)((const uint8_t *)whole + field->offset);

    fields_pack_value(packer, after->token[0] != '\0' ? &after_token : &after_job, after);
}

/* ---- the tables ---------------------------------------------------------------------------- */

static const char *const error_forms[] = {"string", "structured"};

static const struct field hello_option_fields[] = {
    {"program", FIELD_TEXT, FIELD_AT(struct msg_hello, program), .flags = FIELD_SPARSE},
    {"api", FIELD_UNSIGNED, FIELD_AT(struct msg_hello, api), .flags = FIELD_SPARSE},
    {"errors", FIELD_WORD, FIELD_AT(struct msg_hello, wants_structured), .flags = FIELD_SPARSE,
     FIELD_WORDS(error_forms)},
};
static const struct field_table hello_options =
    FIELD_TABLE("option", true, struct msg_hello, hello_option_fields);

static const struct field op_list_option_fields[] = {
    {"name", FIELD_NAME, FIELD_AT(struct msg_op_list, name), .flags = FIELD_SPARSE},
};
static const struct field_table op_list_options =
    FIELD_TABLE("option", true, struct msg_op_list, op_list_option_fields);

static const struct field id_item = {"", FIELD_UNSIGNED, .size = sizeof(uint64_t), .max = ID_MAX};
static const struct field after_item = {"", FIELD_CUSTOM, .size = sizeof(struct msg_after),
                                        .unpack = unpack_after, .pack = pack_after};

/* The options that run and job.open share. */
#define WORK_OPTION_FIELDS                                                                         \
    {"priority",                                                                                   \
     FIELD_WORD,                                                                                   \
     FIELD_AT(struct msg_options, priority),                                                       \
     .flags = FIELD_SPARSE,                                                                        \
     .fallback = PRIORITY_NORMAL,                                                                  \
     FIELD_WORDS(priority_names)},                                                                 \
        {"deadline_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_options, deadline_ns),                 \
         .flags = FIELD_SPARSE, .max = ID_MAX},                                                    \
        {"require", FIELD_WORD, FIELD_AT(struct msg_options, require), .flags = FIELD_SPARSE,      \
         FIELD_WORDS(require_names)},                                                              \
        {"tail", FIELD_WORD, FIELD_AT(struct msg_options, tail), .flags = FIELD_SPARSE,            \
         FIELD_WORDS(tail_names)},                                                                 \
        {"device", FIELD_NAME, FIELD_AT(struct msg_options, device), .flags = FIELD_SPARSE},       \
        {"timing", FIELD_BOOL, FIELD_AT(struct msg_options, wants_timing), .flags = FIELD_SPARSE}, \
        {"admit", FIELD_BOOL, FIELD_AT(struct msg_options, is_admitted), .flags = FIELD_SPARSE},   \
        {"after", FIELD_LIST, FIELD_EACH(struct msg_options, after, n_after),                      \
         .flags = FIELD_SPARSE, .item = &after_item},                                              \
    {                                                                                              \
        "consts", FIELD_LIST, FIELD_EACH(struct msg_options, consts, n_consts),                    \
            .flags = FIELD_SPARSE, .item = &id_item                                                \
    }

static const struct field run_option_fields[] = {WORK_OPTION_FIELDS};
static const struct field_table run_options =
    FIELD_TABLE("option", true, struct msg_options, run_option_fields);

static const struct field job_option_fields[] = {
    WORK_OPTION_FIELDS,
    {"window", FIELD_UNSIGNED, FIELD_AT(struct msg_options, window), .flags = FIELD_SPARSE,
     .min = 1, .max = LIMIT_WINDOW},
    {"max_push", FIELD_UNSIGNED, FIELD_AT(struct msg_options, max_push), .flags = FIELD_SPARSE,
     .min = LIMIT_PUSH_LEAST, .max = LIMIT_PUSH},
    {"ordered", FIELD_NOT, FIELD_AT(struct msg_options, is_unordered), .flags = FIELD_SPARSE},
    {"inline", FIELD_NOT, FIELD_AT(struct msg_options, is_in_rings), .flags = FIELD_SPARSE},
    {"total", FIELD_UNSIGNED, FIELD_AT(struct msg_options, total_size), .flags = FIELD_SPARSE,
     .max = ID_MAX},
};
static const struct field_table job_options =
    FIELD_TABLE("option", true, struct msg_options, job_option_fields);

static const struct field ref_item = {"", FIELD_CUSTOM, .size = sizeof(struct msg_ref),
                                      .unpack = unpack_ref, .pack = pack_ref};

static const struct field push_option_fields[] = {
    {"n", FIELD_UNSIGNED, FIELD_AT(struct msg_job_push, n), .max = ID_MAX,
     .has = offsetof(struct msg_job_push, has_n)},
    {"deadline_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_job_push, deadline_ns),
     .flags = FIELD_SPARSE, .max = ID_MAX},
    {"out", FIELD_LIST, FIELD_EACH(struct msg_job_push, out, n_out), .flags = FIELD_SPARSE,
     .item = &ref_item},
};
static const struct field_table push_options =
    FIELD_TABLE("option", true, struct msg_job_push, push_option_fields);

static const struct field job_list_option_fields[] = {
    {"all", FIELD_BOOL, FIELD_AT(struct msg_job_list, is_all), .flags = FIELD_SPARSE},
};
static const struct field_table job_list_options =
    FIELD_TABLE("option", true, struct msg_job_list, job_list_option_fields);

static const struct field const_put_option_fields[] = {};
static const struct field_table const_put_options =
    FIELD_TABLE("option", true, struct msg_const_put, const_put_option_fields);

/* Parameters, in their order. */
#define OP_FIELDS(type)                                                                            \
    {                                                                                              \
        "op",                                                                                      \
        FIELD_CUSTOM,                                                                              \
        FIELD_AT(type, op),                                                                        \
        .flags = FIELD_REQUIRED,                                                                   \
        .unpack = unpack_op,                                                                       \
        .pack = pack_op},                                                                          \
    {                                                                                              \
        "params", FIELD_CUSTOM, FIELD_AT(type, op), .unpack = unpack_values, .pack = pack_values   \
    }

static const struct field hello_fields[] = {
    {"options", FIELD_MAP, .table = &hello_options},
};
static const struct field_table hello_params =
    FIELD_TABLE("parameter", true, struct msg_hello, hello_fields);

static const struct field op_list_fields[] = {
    {"options", FIELD_MAP, .table = &op_list_options},
};
static const struct field_table op_list_params =
    FIELD_TABLE("parameter", true, struct msg_op_list, op_list_fields);

static const struct field run_fields[] = {
    OP_FIELDS(struct msg_run),
    {"options", FIELD_MAP, FIELD_AT(struct msg_run, options), .table = &run_options},
    {"data", FIELD_PAYLOADS, FIELD_AT(struct msg_run, n_data), .max = LIMIT_IN},
};
static const struct field_table run_params =
    FIELD_TABLE("parameter", true, struct msg_run, run_fields);

static const struct field job_open_fields[] = {
    OP_FIELDS(struct msg_job_open),
    {"options", FIELD_MAP, FIELD_AT(struct msg_job_open, options), .table = &job_options},
};
static const struct field_table job_open_params =
    FIELD_TABLE("parameter", true, struct msg_job_open, job_open_fields);

static const struct field job_push_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_job_push, job), .flags = FIELD_REQUIRED,
     .max = ID_MAX},
    {"seq", FIELD_UNSIGNED, FIELD_AT(struct msg_job_push, seq), .flags = FIELD_REQUIRED,
     .max = ID_MAX},
    {"options", FIELD_MAP, .table = &push_options},
    {"data", FIELD_CUSTOM, .unpack = unpack_push_data, .pack = pack_push_data},
};
static const struct field_table job_push_params =
    FIELD_TABLE("parameter", true, struct msg_job_push, job_push_fields);

static const struct field job_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_job, job), .flags = FIELD_REQUIRED, .max = ID_MAX},
};
static const struct field_table job_params =
    FIELD_TABLE("parameter", true, struct msg_job, job_fields);

static const struct field event_kind = {"", FIELD_WORD, .size = sizeof(uint32_t),
                                        FIELD_WORDS(event_names)};

static const struct field subscribe_fields[] = {
    {"kinds", FIELD_LIST, FIELD_EACH(struct msg_subscribe, kinds, n_kinds), .flags = FIELD_REQUIRED,
     .item = &event_kind},
};
static const struct field_table subscribe_params =
    FIELD_TABLE("parameter", true, struct msg_subscribe, subscribe_fields);

static const struct field job_list_fields[] = {
    {"options", FIELD_MAP, .table = &job_list_options},
};
static const struct field_table job_list_params =
    FIELD_TABLE("parameter", true, struct msg_job_list, job_list_fields);

static const struct field const_put_fields[] = {
    {"options", FIELD_MAP, .table = &const_put_options},
    {"data", FIELD_PAYLOADS, FIELD_AT(struct msg_const_put, n_data), .max = 1},
};
static const struct field_table const_put_params =
    FIELD_TABLE("parameter", true, struct msg_const_put, const_put_fields);

static const struct field ring_open_option_fields[] = {
    {"device", FIELD_NAME, FIELD_AT(struct msg_ring_open, device), .flags = FIELD_SPARSE},
};
static const struct field_table ring_open_options =
    FIELD_TABLE("option", true, struct msg_ring_open, ring_open_option_fields);

static const struct field ring_open_fields[] = {
    {"size", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_open, size), .flags = FIELD_REQUIRED,
     .min = 1, .max = ID_MAX},
    {"options", FIELD_MAP, .table = &ring_open_options},
};
static const struct field_table ring_open_params =
    FIELD_TABLE("parameter", true, struct msg_ring_open, ring_open_fields);

static const struct field ring_close_fields[] = {
    {"ring", FIELD_UNSIGNED, FIELD_AT(struct msg_ring, ring), .flags = FIELD_REQUIRED,
     .max = ID_MAX},
};
static const struct field_table ring_close_params =
    FIELD_TABLE("parameter", true, struct msg_ring, ring_close_fields);

static const struct field const_fields[] = {
    {"const", FIELD_UNSIGNED, FIELD_AT(struct msg_const, id), .flags = FIELD_REQUIRED,
     .max = ID_MAX},
};
static const struct field_table const_params =
    FIELD_TABLE("parameter", true, struct msg_const, const_fields);

/* ---- reading ------------------------------------------------------------------------------- */

int codec_unpack_hello(const msgpack_object_array *params, struct msg_hello *ret,
                       struct failure *ret_failure)
{
    return fields_unpack_params(&hello_params, params, ret, ret_failure);
}

int codec_unpack_op_list(const msgpack_object_array *params, struct msg_op_list *ret,
                         struct failure *ret_failure)
{
    return fields_unpack_params(&op_list_params, params, ret, ret_failure);
}

int codec_unpack_run(const msgpack_object_array *params, struct msg_run *ret,
                     struct failure *ret_failure)
{
    return fields_unpack_params(&run_params, params, ret, ret_failure);
}

int codec_unpack_job_open(const msgpack_object_array *params, struct msg_job_open *ret,
                          struct failure *ret_failure)
{
    return fields_unpack_params(&job_open_params, params, ret, ret_failure);
}

int codec_unpack_job_push(const msgpack_object_array *params, struct msg_job_push *ret,
                          struct failure *ret_failure)
{
    return fields_unpack_params(&job_push_params, params, ret, ret_failure);
}

int codec_unpack_subscribe(const msgpack_object_array *params, struct msg_subscribe *ret,
                           struct failure *ret_failure)
{
    return fields_unpack_params(&subscribe_params, params, ret, ret_failure);
}

uint64_t codec_peek_job(const msgpack_object_array *params)
{
    bool is_named = params->size > 0 && params->ptr[0].type == MSGPACK_OBJECT_POSITIVE_INTEGER;

    return is_named ? params->ptr[0].via.u64 : 0;
}

int codec_unpack_job(const msgpack_object_array *params, struct msg_job *ret,
                     struct failure *ret_failure)
{
    return fields_unpack_params(&job_params, params, ret, ret_failure);
}

int codec_unpack_job_list(const msgpack_object_array *params, struct msg_job_list *ret,
                          struct failure *ret_failure)
{
    return fields_unpack_params(&job_list_params, params, ret, ret_failure);
}

int codec_unpack_const_put(const msgpack_object_array *params, struct msg_const_put *ret,
                           struct failure *ret_failure)
{
    return fields_unpack_params(&const_put_params, params, ret, ret_failure);
}

int codec_unpack_const_drop(const msgpack_object_array *params, struct msg_const *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_params(&const_params, params, ret, ret_failure);
}

int codec_unpack_ring_open(const msgpack_object_array *params, struct msg_ring_open *ret,
                           struct failure *ret_failure)
{
    return fields_unpack_params(&ring_open_params, params, ret, ret_failure);
}

int codec_unpack_ring_close(const msgpack_object_array *params, struct msg_ring *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_params(&ring_close_params, params, ret, ret_failure);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void pack_request(msgpack_packer *packer, uint32_t msgid, enum method method,
                         const struct field_table *params, const void *msg)
{
    rpc_pack_request(packer, msgid, method, params->n_fields);
    fields_pack_params(packer, params, msg);
}

void codec_pack_hello(msgpack_packer *packer, uint32_t msgid, const struct msg_hello *msg)
{
    pack_request(packer, msgid, METHOD_HELLO, &hello_params, msg);
}

void codec_pack_ping(msgpack_packer *packer, uint32_t msgid)
{
    rpc_pack_request(packer, msgid, METHOD_PING, 0);
}

void codec_pack_op_list(msgpack_packer *packer, uint32_t msgid, const struct msg_op_list *msg)
{
    pack_request(packer, msgid, METHOD_OP_LIST, &op_list_params, msg);
}

void codec_pack_run(msgpack_packer *packer, uint32_t msgid, const struct msg_run *msg)
{
    pack_request(packer, msgid, METHOD_RUN, &run_params, msg);
}

void codec_pack_job_open(msgpack_packer *packer, uint32_t msgid, const struct msg_job_open *msg)
{
    pack_request(packer, msgid, METHOD_JOB_OPEN, &job_open_params, msg);
}

void codec_pack_job_push(msgpack_packer *packer, uint32_t msgid, const struct msg_job_push *msg)
{
    pack_request(packer, msgid, METHOD_JOB_PUSH, &job_push_params, msg);
}

void codec_pack_job(msgpack_packer *packer, uint32_t msgid, enum method method,
                    const struct msg_job *msg)
{
    pack_request(packer, msgid, method, &job_params, msg);
}

void codec_pack_job_list(msgpack_packer *packer, uint32_t msgid, const struct msg_job_list *msg)
{
    pack_request(packer, msgid, METHOD_JOB_LIST, &job_list_params, msg);
}

void codec_pack_const_put(msgpack_packer *packer, uint32_t msgid, const struct msg_const_put *msg)
{
    pack_request(packer, msgid, METHOD_CONST_PUT, &const_put_params, msg);
}

void codec_pack_const_drop(msgpack_packer *packer, uint32_t msgid, const struct msg_const *msg)
{
    pack_request(packer, msgid, METHOD_CONST_DROP, &const_params, msg);
}

void codec_pack_ring_open(msgpack_packer *packer, uint32_t msgid, const struct msg_ring_open *msg)
{
    pack_request(packer, msgid, METHOD_RING_OPEN, &ring_open_params, msg);
}

void codec_pack_ring_close(msgpack_packer *packer, uint32_t msgid, const struct msg_ring *msg)
{
    pack_request(packer, msgid, METHOD_RING_CLOSE, &ring_close_params, msg);
}

void codec_pack_stats_request(msgpack_packer *packer, uint32_t msgid)
{
    rpc_pack_request(packer, msgid, METHOD_STATS, 0);
}

void codec_pack_device_list(msgpack_packer *packer, uint32_t msgid)
{
    rpc_pack_request(packer, msgid, METHOD_DEVICE_LIST, 0);
}

void codec_pack_subscribe(msgpack_packer *packer, uint32_t msgid, const struct msg_subscribe *msg)
{
    pack_request(packer, msgid, METHOD_EVENTS_SUBSCRIBE, &subscribe_params, msg);
}
