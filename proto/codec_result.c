/*
 * Codec, results and notifications: as the server writes and the client reads them.
 */
#include "proto/codec.h"

#include "proto/codec_fields.h"

/* ---- the tables ---------------------------------------------------------------------------- */

/* {name: number}; what is neither is ignored. */
static int unpack_limits(const struct field *field, const msgpack_object *value, void *whole,
                         struct failure *ret_failure)
{
    struct msg_hello_result *hello = whole;
    const msgpack_object_map *map = &value->via.map;

    (void)field;
    if (value->type != MSGPACK_OBJECT_MAP) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be a map");
    }
    for (uint32_t i = 0; i < map->size && hello->n_limits < MSG_LIMITS_MAX; i++) {
        const msgpack_object_kv *pair = &map->ptr[i];
        struct msg_limit *limit = &hello->limits[hello->n_limits];

        if (pair->key.type == MSGPACK_OBJECT_STR &&
            pair->val.type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
            fields_copy_text(&pair->key.via.str, limit->name, sizeof(limit->name));
            limit->value = pair->val.via.u64;
            hello->n_limits++;
        }
    }
    return 0;
}

static const struct field hello_fields[] = {
    {"version", FIELD_TEXT, FIELD_AT(struct msg_hello_result, version)},
    {"api_level", FIELD_UNSIGNED, FIELD_AT(struct msg_hello_result, api_level)},
    {"api_compatible", FIELD_UNSIGNED, FIELD_AT(struct msg_hello_result, api_compatible)},
    {"epoch", FIELD_UNSIGNED, FIELD_AT(struct msg_hello_result, epoch)},
    {"rights", FIELD_TEXT, FIELD_AT(struct msg_hello_result, rights)},
    {"backend", FIELD_TEXT, FIELD_AT(struct msg_hello_result, backend)},
    {"limits", FIELD_CUSTOM, .flags = FIELD_BY_HAND, .unpack = unpack_limits},
};
static const struct field_table hello_result =
    FIELD_TABLE("key", false, struct msg_hello_result, hello_fields);

static const struct field timing_fields[] = {
    {"queue_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_timing, queue_ns)},
    {"in_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_timing, in_ns)},
    {"compute_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_timing, compute_ns)},
    {"out_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_timing, out_ns)},
};
static const struct field_table timing =
    FIELD_TABLE("key", false, struct msg_timing, timing_fields);

/* How work was done: keys of the results of run and job.result themselves, not of a nested map. */
#define DONE_BY_FIELDS                                                                             \
    {"backend", FIELD_TEXT, FIELD_AT(struct msg_answer, by.backend)},                              \
        {"device", FIELD_TEXT, FIELD_AT(struct msg_answer, by.device)},                            \
        {"priority", FIELD_WORD, FIELD_AT(struct msg_answer, by.priority),                         \
         .fallback = PRIORITY_NORMAL, FIELD_WORDS(priority_names)},                                \
        {"path", FIELD_TEXT, FIELD_AT(struct msg_answer, by.path)},                                \
    {                                                                                              \
        "timing", FIELD_MAP, FIELD_AT(struct msg_answer, by.timing),                               \
            .table = &timing, .has = offsetof(struct msg_answer, by.has_timing)                    \
    }

static const struct field run_fields[] = {
    {"n", FIELD_UNSIGNED, FIELD_AT(struct msg_answer, n), .flags = FIELD_REQUIRED},
    DONE_BY_FIELDS,
    {"out", FIELD_PAYLOADS, FIELD_AT(struct msg_answer, n_out), .max = LIMIT_OUT},
};
static const struct field_table run_result =
    FIELD_TABLE("key", false, struct msg_answer, run_fields);

static int unpack_error(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    (void)ret_failure;
    rpc_unpack_error(value, (void *)((uint8_t *)whole + field->offset));
    return 0;
}

/* How work ended, for job.result and job.done: an error or outputs, written by pack_end(). */
#define END_FIELDS(type)                                                                           \
    {"error",                                                                                      \
     FIELD_CUSTOM,                                                                                 \
     FIELD_AT(type, failure),                                                                      \
     .flags = FIELD_BY_HAND,                                                                       \
     .has = offsetof(type, has_failure),                                                           \
     .unpack = unpack_error},                                                                      \
    {                                                                                              \
        "out", FIELD_PAYLOADS, FIELD_AT(type, n_out), .flags = FIELD_BY_HAND, .max = LIMIT_OUT     \
    }

static const struct field job_result_fields[] = {
    {"n", FIELD_UNSIGNED, FIELD_AT(struct msg_answer, n), .flags = FIELD_REQUIRED},
    {"credit", FIELD_UNSIGNED, FIELD_AT(struct msg_answer, credit), .flags = FIELD_REQUIRED},
    DONE_BY_FIELDS,
    END_FIELDS(struct msg_answer),
};
static const struct field_table job_result =
    FIELD_TABLE("key", false, struct msg_answer, job_result_fields);

static const struct field job_result_param_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_answer, job), .flags = FIELD_REQUIRED},
    {"seq", FIELD_UNSIGNED, FIELD_AT(struct msg_answer, seq), .flags = FIELD_REQUIRED},
    {"result", FIELD_MAP, .flags = FIELD_REQUIRED, .table = &job_result},
};
static const struct field_table job_result_params =
    FIELD_TABLE("parameter", false, struct msg_answer, job_result_param_fields);

static const struct field job_done_fields[] = {
    {"state", FIELD_WORD, FIELD_AT(struct msg_job_done, state), .flags = FIELD_REQUIRED,
     FIELD_WORDS(job_state_names)},
    {"pushes", FIELD_UNSIGNED, FIELD_AT(struct msg_job_done, pushes)},
    {"n", FIELD_UNSIGNED, FIELD_AT(struct msg_job_done, n)},
    END_FIELDS(struct msg_job_done),
};
static const struct field_table job_done =
    FIELD_TABLE("key", false, struct msg_job_done, job_done_fields);

static const struct field job_done_param_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_job_done, job), .flags = FIELD_REQUIRED},
    {"result", FIELD_MAP, .flags = FIELD_REQUIRED, .table = &job_done},
};
static const struct field_table job_done_params =
    FIELD_TABLE("parameter", false, struct msg_job_done, job_done_param_fields);

static const struct field record_size = {"", FIELD_UNSIGNED, .size = sizeof(uint32_t)};

static const struct field job_opened_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_job_opened, job), .flags = FIELD_REQUIRED},
    {"token", FIELD_TEXT, FIELD_AT(struct msg_job_opened, token)},
    {"credit", FIELD_UNSIGNED, FIELD_AT(struct msg_job_opened, credit), .flags = FIELD_REQUIRED},
    {"max_push", FIELD_UNSIGNED, FIELD_AT(struct msg_job_opened, max_push),
     .flags = FIELD_REQUIRED},
    {"push_multiple", FIELD_UNSIGNED, FIELD_AT(struct msg_job_opened, push_multiple),
     .fallback = 1},
    {"in_size", FIELD_LIST, FIELD_EACH(struct msg_job_opened, in_size, n_in), .item = &record_size},
    {"out_size", FIELD_LIST, FIELD_EACH(struct msg_job_opened, out_size, n_out),
     .item = &record_size},
};
static const struct field_table job_opened =
    FIELD_TABLE("key", false, struct msg_job_opened, job_opened_fields);

static const struct field job_closed_fields[] = {
    {"pushed", FIELD_UNSIGNED, FIELD_AT(struct msg_job_closed, pushed), .flags = FIELD_REQUIRED},
};
static const struct field_table job_closed =
    FIELD_TABLE("key", false, struct msg_job_closed, job_closed_fields);

static const struct field ring_opened_fields[] = {
    {"ring", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, ring), .flags = FIELD_REQUIRED},
    {"size", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, size), .flags = FIELD_REQUIRED},
    {"layout", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, layout), .flags = FIELD_REQUIRED},
    {"entries", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, entries), .flags = FIELD_REQUIRED},
    {"sq", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, sq), .flags = FIELD_REQUIRED},
    {"cq", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, cq), .flags = FIELD_REQUIRED},
    {"align", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, align), .flags = FIELD_REQUIRED},
    {"awake_ns", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_opened, awake_ns)},
};
static const struct field_table ring_opened =
    FIELD_TABLE("key", false, struct msg_ring_opened, ring_opened_fields);

static const struct field ring_closed_fields[] = {
    {"error", FIELD_CUSTOM, FIELD_AT(struct msg_ring_closed, failure),
     .flags = FIELD_REQUIRED | FIELD_BY_HAND, .unpack = unpack_error},
};
static const struct field_table ring_closed =
    FIELD_TABLE("key", false, struct msg_ring_closed, ring_closed_fields);

static const struct field ring_closed_param_fields[] = {
    {"ring", FIELD_UNSIGNED, FIELD_AT(struct msg_ring_closed, ring), .flags = FIELD_REQUIRED},
    {"result", FIELD_MAP, .flags = FIELD_REQUIRED, .table = &ring_closed},
};
static const struct field_table ring_closed_params =
    FIELD_TABLE("parameter", false, struct msg_ring_closed, ring_closed_param_fields);

static const struct field const_put_fields[] = {
    {"const", FIELD_UNSIGNED, FIELD_AT(struct msg_const_put_result, id), .flags = FIELD_REQUIRED},
    {"sha256", FIELD_NAME, FIELD_AT(struct msg_const_put_result, sha256)},
};
static const struct field_table const_put_result =
    FIELD_TABLE("key", false, struct msg_const_put_result, const_put_fields);

static const struct field job_state_fields[] = {
    {"state", FIELD_WORD, FIELD_AT(struct msg_job_state, state), .flags = FIELD_REQUIRED,
     FIELD_WORDS(job_state_names)},
};
static const struct field_table job_state =
    FIELD_TABLE("key", false, struct msg_job_state, job_state_fields);

static const struct field job_entry_fields[] = {
    {"job", FIELD_UNSIGNED, FIELD_AT(struct msg_job_entry, job), .flags = FIELD_REQUIRED},
    {"op", FIELD_TEXT, FIELD_AT(struct msg_job_entry, op)},
    {"state", FIELD_WORD, FIELD_AT(struct msg_job_entry, state), FIELD_WORDS(job_state_names)},
    {"priority", FIELD_WORD, FIELD_AT(struct msg_job_entry, priority), .fallback = PRIORITY_NORMAL,
     FIELD_WORDS(priority_names)},
    {"pushed", FIELD_UNSIGNED, FIELD_AT(struct msg_job_entry, pushed)},
    {"done", FIELD_UNSIGNED, FIELD_AT(struct msg_job_entry, done)},
    {"held", FIELD_UNSIGNED, FIELD_AT(struct msg_job_entry, held)},
    {"token", FIELD_TEXT, FIELD_AT(struct msg_job_entry, token)},
};
static const struct field_table job_entry =
    FIELD_TABLE("key", false, struct msg_job_entry, job_entry_fields);

/* Keys of each row. */
#define LOAD_FIELDS(type)                                                                          \
    {"waiting", FIELD_UNSIGNED, FIELD_AT(type, load.waiting)},                                     \
        {"waiting_size", FIELD_UNSIGNED, FIELD_AT(type, load.waiting_size)},                       \
        {"oldest_ns", FIELD_UNSIGNED, FIELD_AT(type, load.oldest_ns)},                             \
        {"in_flight", FIELD_UNSIGNED, FIELD_AT(type, load.in_flight)},                             \
        {"in_flight_size", FIELD_UNSIGNED, FIELD_AT(type, load.in_flight_size)},                   \
    {                                                                                              \
        "device_ns", FIELD_UNSIGNED, FIELD_AT(type, load.device_ns)                                \
    }

static const struct field queue_fields[] = {
    {"priority", FIELD_WORD, FIELD_AT(struct msg_queue, priority), .flags = FIELD_REQUIRED,
     FIELD_WORDS(priority_names)},
    LOAD_FIELDS(struct msg_queue),
    {"places", FIELD_UNSIGNED, FIELD_AT(struct msg_queue, places)},
};
static const struct field_table queue = FIELD_TABLE("key", false, struct msg_queue, queue_fields);
static const struct field queue_item = {"", FIELD_MAP, .table = &queue};

static const struct field device_load_fields[] = {
    {"device", FIELD_NAME, FIELD_AT(struct msg_device_load, device), .flags = FIELD_REQUIRED},
    LOAD_FIELDS(struct msg_device_load),
};
static const struct field_table device_load =
    FIELD_TABLE("key", false, struct msg_device_load, device_load_fields);
static const struct field device_load_item = {"", FIELD_MAP, .table = &device_load};

static const struct field user_fields[] = {
    {"uid", FIELD_UNSIGNED, FIELD_AT(struct msg_user, uid), .flags = FIELD_REQUIRED},
    LOAD_FIELDS(struct msg_user),
    {"places", FIELD_UNSIGNED, FIELD_AT(struct msg_user, places)},
    {"urgent_left_ns", FIELD_SIGNED, FIELD_AT(struct msg_user, urgent_left_ns)},
};
static const struct field_table user = FIELD_TABLE("key", false, struct msg_user, user_fields);
static const struct field user_item = {"", FIELD_MAP, .table = &user};

static const struct field stats_fields[] = {
    {"version", FIELD_TEXT, FIELD_AT(struct msg_stats, version)},
    {"backend", FIELD_TEXT, FIELD_AT(struct msg_stats, backend)},
    {"reason", FIELD_TEXT, FIELD_AT(struct msg_stats, reason)},
#define X(field, doc) {#field, FIELD_UNSIGNED, FIELD_AT(struct msg_stats, field)},
    STATS_LIST(X)
#undef X
        {"queues", FIELD_LIST, FIELD_EACH(struct msg_stats, queues, n_queues), .item = &queue_item},
    {"devices", FIELD_LIST, FIELD_EACH(struct msg_stats, devices, n_devices),
     .item = &device_load_item},
    {"users", FIELD_LIST, FIELD_EACH(struct msg_stats, users, n_users), .item = &user_item},
};
static const struct field_table stats = FIELD_TABLE("key", false, struct msg_stats, stats_fields);

static const struct field device_fields[] = {
    {"device", FIELD_NAME, FIELD_AT(struct msg_device, device), .flags = FIELD_REQUIRED},
    {"name", FIELD_TEXT, FIELD_AT(struct msg_device, name)},
    {"uuid", FIELD_TEXT, FIELD_AT(struct msg_device, uuid)},
    {"state", FIELD_TEXT, FIELD_AT(struct msg_device, state)},
    {"backend", FIELD_TEXT, FIELD_AT(struct msg_device, backend)},
    {"reason", FIELD_TEXT, FIELD_AT(struct msg_device, reason)},
    {"numa", FIELD_SIGNED, FIELD_AT(struct msg_device, numa)},
    {"memory", FIELD_UNSIGNED, FIELD_AT(struct msg_device, memory)},
};
static const struct field_table device =
    FIELD_TABLE("key", false, struct msg_device, device_fields);

static const struct field event_fields[] = {
    {"device", FIELD_NAME, FIELD_AT(struct msg_event, device), .flags = FIELD_SPARSE},
    {"state", FIELD_TEXT, FIELD_AT(struct msg_event, state), .flags = FIELD_SPARSE},
    {"reason", FIELD_TEXT, FIELD_AT(struct msg_event, reason), .flags = FIELD_SPARSE},
    {"lost", FIELD_UNSIGNED, FIELD_AT(struct msg_event, lost), .flags = FIELD_SPARSE},
};
static const struct field_table event = FIELD_TABLE("key", false, struct msg_event, event_fields);

static const struct field event_param_fields[] = {
    {"kind", FIELD_WORD, FIELD_AT(struct msg_event, kind), .flags = FIELD_REQUIRED,
     FIELD_WORDS(event_names)},
    {"event", FIELD_MAP, .flags = FIELD_REQUIRED, .table = &event},
};
static const struct field_table event_params =
    FIELD_TABLE("parameter", false, struct msg_event, event_param_fields);

/* ---- reading ------------------------------------------------------------------------------- */

int codec_unpack_hello_result(const msgpack_object *result, struct msg_hello_result *ret,
                              struct failure *ret_failure)
{
    return fields_unpack_map(&hello_result, result, ret, ret_failure);
}

int codec_unpack_run_result(const msgpack_object *result, struct msg_answer *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_map(&run_result, result, ret, ret_failure);
}

int codec_unpack_job_opened(const msgpack_object *result, struct msg_job_opened *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_map(&job_opened, result, ret, ret_failure);
}

int codec_unpack_job_closed(const msgpack_object *result, struct msg_job_closed *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_map(&job_closed, result, ret, ret_failure);
}

int codec_unpack_const_put_result(const msgpack_object *result, struct msg_const_put_result *ret,
                                  struct failure *ret_failure)
{
    return fields_unpack_map(&const_put_result, result, ret, ret_failure);
}

int codec_unpack_ring_opened(const msgpack_object *result, struct msg_ring_opened *ret,
                             struct failure *ret_failure)
{
    return fields_unpack_map(&ring_opened, result, ret, ret_failure);
}

int codec_unpack_job_state(const msgpack_object *result, struct msg_job_state *ret,
                           struct failure *ret_failure)
{
    return fields_unpack_map(&job_state, result, ret, ret_failure);
}

int codec_unpack_job_list_result(const msgpack_object *result, struct msg_job_entry **ret_entries,
                                 uint32_t *ret_n_entries, struct failure *ret_failure)
{
    void *entries;
    int r = fields_unpack_array(&job_entry, result, &entries, ret_n_entries, ret_failure);

    if (r == 0) {
        *ret_entries = entries;
    }
    return r;
}

int codec_unpack_stats(const msgpack_object *result, struct msg_stats *ret,
                       struct failure *ret_failure)
{
    return fields_unpack_map(&stats, result, ret, ret_failure);
}

int codec_unpack_device_list_result(const msgpack_object *result, struct msg_device **ret_devices,
                                    uint32_t *ret_n_devices, struct failure *ret_failure)
{
    void *devices;
    int r = fields_unpack_array(&device, result, &devices, ret_n_devices, ret_failure);

    if (r == 0) {
        *ret_devices = devices;
    }
    return r;
}

int codec_unpack_job_result(const msgpack_object_array *params, struct msg_answer *ret,
                            struct failure *ret_failure)
{
    return fields_unpack_params(&job_result_params, params, ret, ret_failure);
}

int codec_unpack_job_done(const msgpack_object_array *params, struct msg_job_done *ret,
                          struct failure *ret_failure)
{
    return fields_unpack_params(&job_done_params, params, ret, ret_failure);
}

int codec_unpack_ring_closed(const msgpack_object_array *params, struct msg_ring_closed *ret,
                             struct failure *ret_failure)
{
    return fields_unpack_params(&ring_closed_params, params, ret, ret_failure);
}

int codec_unpack_event(const msgpack_object_array *params, struct msg_event *ret,
                       struct failure *ret_failure)
{
    return fields_unpack_params(&event_params, params, ret, ret_failure);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void pack_result(msgpack_packer *packer, uint32_t msgid, const struct field_table *table,
                        const void *msg)
{
    rpc_pack_result(packer, msgid);
    fields_pack_map(packer, table, msg, 0);
}

static void pack_results(msgpack_packer *packer, uint32_t msgid, const struct field_table *table,
                         const void *msgs, uint32_t n_msgs)
{
    rpc_pack_result(packer, msgid);
    msgpack_pack_array(packer, n_msgs);
    for (uint32_t i = 0; i < n_msgs; i++) {
        fields_pack_map(packer, table, (const uint8_t *)msgs + (size_t)i * table->size, 0);
    }
}

/* Every number of limits.h by its wire name. */
static void pack_limits(msgpack_packer *packer)
{
    static const struct {
        const char *name;
        uint64_t value;
    } limits[] = {
#define X(name, wire, value, unit, reason) {(wire), (value)},
        LIMIT_LIST(X)
#undef X
    };

    msgpack_pack_map(packer, ARRAY_SIZE(limits));
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        fields_pack_string(packer, limits[i].name);
        msgpack_pack_uint64(packer, limits[i].value);
    }
}

void codec_pack_hello_result(msgpack_packer *packer, uint32_t msgid,
                             const struct msg_hello_result *msg)
{
    rpc_pack_result(packer, msgid);
    fields_pack_map(packer, &hello_result, msg, 1);
    fields_pack_string(packer, "limits");
    pack_limits(packer);
}

void codec_pack_nil_result(msgpack_packer *packer, uint32_t msgid)
{
    rpc_pack_result(packer, msgid);
    msgpack_pack_nil(packer);
}

void codec_pack_empty_result(msgpack_packer *packer, uint32_t msgid)
{
    rpc_pack_result(packer, msgid);
    msgpack_pack_map(packer, 0);
}

void codec_pack_run_result(msgpack_packer *packer, uint32_t msgid, const struct msg_answer *msg)
{
    pack_result(packer, msgid, &run_result, msg);
}

void codec_pack_job_opened(msgpack_packer *packer, uint32_t msgid, const struct msg_job_opened *msg)
{
    pack_result(packer, msgid, &job_opened, msg);
}

void codec_pack_job_closed(msgpack_packer *packer, uint32_t msgid, const struct msg_job_closed *msg)
{
    pack_result(packer, msgid, &job_closed, msg);
}

void codec_pack_const_put_result(msgpack_packer *packer, uint32_t msgid,
                                 const struct msg_const_put_result *msg)
{
    pack_result(packer, msgid, &const_put_result, msg);
}

void codec_pack_ring_opened(msgpack_packer *packer, uint32_t msgid,
                            const struct msg_ring_opened *msg)
{
    pack_result(packer, msgid, &ring_opened, msg);
}

void codec_pack_job_state(msgpack_packer *packer, uint32_t msgid, const struct msg_job_state *msg)
{
    pack_result(packer, msgid, &job_state, msg);
}

void codec_pack_job_list_result(msgpack_packer *packer, uint32_t msgid,
                                const struct msg_job_entry *entries, uint32_t n_entries)
{
    pack_results(packer, msgid, &job_entry, entries, n_entries);
}

void codec_pack_stats(msgpack_packer *packer, uint32_t msgid, const struct msg_stats *msg)
{
    pack_result(packer, msgid, &stats, msg);
}

void codec_pack_device_list_result(msgpack_packer *packer, uint32_t msgid,
                                   const struct msg_device *devices, uint32_t n_devices)
{
    pack_results(packer, msgid, &device, devices, n_devices);
}

/* A map that ends with the error, or with the header of the outputs if there are any. */
static void pack_end(msgpack_packer *packer, const struct field_table *table, const void *msg,
                     const struct failure *failure, bool is_structured, uint32_t n_out)
{
    fields_pack_map(packer, table, msg, failure != NULL || n_out > 0);
    if (failure != NULL) {
        fields_pack_string(packer, "error");
        rpc_pack_failure(packer, failure, is_structured);
    } else if (n_out > 0) {
        fields_pack_string(packer, "out");
        msgpack_pack_array(packer, n_out);
    }
}

void codec_pack_job_result(msgpack_packer *packer, const struct msg_answer *msg, bool is_structured)
{
    rpc_pack_notification(packer, NOTIFY_JOB_RESULT, job_result_params.n_fields);
    msgpack_pack_uint64(packer, msg->job);
    msgpack_pack_uint64(packer, msg->seq);
    pack_end(packer, &job_result, msg, msg->has_failure ? &msg->failure : NULL, is_structured,
             msg->n_out);
}

void codec_pack_job_done(msgpack_packer *packer, const struct msg_job_done *msg, bool is_structured)
{
    rpc_pack_notification(packer, NOTIFY_JOB_DONE, job_done_params.n_fields);
    msgpack_pack_uint64(packer, msg->job);
    pack_end(packer, &job_done, msg, msg->has_failure ? &msg->failure : NULL, is_structured,
             msg->n_out);
}

void codec_pack_ring_closed(msgpack_packer *packer, const struct msg_ring_closed *msg,
                            bool is_structured)
{
    rpc_pack_notification(packer, NOTIFY_RING_CLOSED, ring_closed_params.n_fields);
    msgpack_pack_uint64(packer, msg->ring);
    pack_end(packer, &ring_closed, msg, &msg->failure, is_structured, 0);
}

void codec_pack_event(msgpack_packer *packer, const struct msg_event *msg)
{
    rpc_pack_notification(packer, NOTIFY_EVENT, event_params.n_fields);
    fields_pack_params(packer, &event_params, msg);
}
