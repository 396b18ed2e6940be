/* The envelopes: what is one, what is none, and errors in both forms. */
#include "proto/limits.h"
#include "proto/rpc.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/unit/wire_text.h"

static struct failure failure;
static struct rpc_message message;
static msgpack_sbuffer buffer;
static msgpack_packer packer;

static void finish_message(void *arg)
{
    rpc_finish(arg);
}

static void destroy_buffer(void *arg)
{
    msgpack_sbuffer_destroy(arg);
}

static void start_packing(void)
{
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    check_at_end(destroy_buffer, &buffer);
}

/* The message's objects point into the bytes: both stay until the next one. */
static int parse_bytes(const uint8_t *bytes, size_t size)
{
    struct rpc_message parsed;
    int r;

    memset(&failure, 0xa5, sizeof(failure));
    r = rpc_parse(bytes, size, &parsed, &failure);
    if (r == 0) {
        rpc_finish(&message);
        message = parsed;
        check_at_end(finish_message, &message);
    }
    return r;
}

static int parse(const char *text)
{
    static struct wire_text wire;

    wire_from(&wire, text);
    return parse_bytes(wire.bytes, wire.size);
}

static int parse_packed(void)
{
    return parse_bytes((const uint8_t *)buffer.data, buffer.size);
}

static void test_request(void)
{
    CHECK_EQ(parse("[0, 4294967295, 'job.close', [9]]"), 0);
    CHECK_EQ(message.type, RPC_REQUEST);
    CHECK_EQ(message.msgid, UINT32_MAX);
    CHECK_EQ(message.method, METHOD_JOB_CLOSE);
    CHECK_EQ(message.params.size, 1);
    CHECK_EQ(message.params.ptr[0].via.u64, 9);
    CHECK_MEM(message.name.via.str.ptr, "job.close", message.name.via.str.size);
}

static void test_unknown_method_is_an_envelope(void)
{
    CHECK_EQ(parse("[0, 1, 'job.clos', [1, 2, 3]]"), 0);
    CHECK_EQ(message.method, METHOD_COUNT);
    CHECK_EQ(message.name.via.str.size, 8);
}

static void test_response(void)
{
    CHECK_EQ(parse("[1, 3, 'BUSY: later', nil]"), 0);
    CHECK_EQ(message.type, RPC_RESPONSE);
    CHECK_EQ(message.msgid, 3);
    CHECK_EQ(message.error.type, MSGPACK_OBJECT_STR);
    CHECK_EQ(message.result.type, MSGPACK_OBJECT_NIL);
}

static void test_notification(void)
{
    CHECK_EQ(parse("[2, 'job.done', [1, {}]]"), 0);
    CHECK_EQ(message.type, RPC_NOTIFICATION);
    CHECK_EQ(message.method, METHOD_COUNT);
    CHECK_EQ(message.params.size, 2);
}

static void test_no_envelope(void)
{
    static const char *const texts[] = {
        "nil",
        "{}",
        "[]",
        "[0, 1]",
        "[0, 1, 'ping']",
        "[0, 1, 'ping', [], nil]",
        "[3, 1, 'ping', []]",
        "[-1, 1, 'ping', []]",
        "['0', 1, 'ping', []]",
        "[0, 4294967296, 'ping', []]",
        "[0, -1, 'ping', []]",
        "[0, '1', 'ping', []]",
        "[0, 1, nil, []]",
        "[0, 1, <4>, []]",
        "[0, 1, 'ping', nil]",
        "[0, 1, 'ping', {}]",
        "[1, nil, nil, nil]",
        "[1, 1, nil]",
        "[2, 'job.push', [1, 2], nil]",
        "[2, 5, []]",
        "[2, 'job.push', {}]",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        printf("# %s\n", texts[i]);
        CHECK_EQ(parse(texts[i]), -STATUS_PROTO);
        CHECK_EQ(failure.status, STATUS_PROTO);
    }
}

static void test_bytes_that_are_no_message(void)
{
    static const uint8_t cut[] = {0x94, 0x00, 0x01};
    static const uint8_t never[] = {0xc1};
    static const uint8_t behind[] = {0x93, 0x02, 0xa1, 'x', 0x90, 0x00};

    CHECK_EQ(parse_bytes(cut, sizeof(cut)), -STATUS_PROTO);
    CHECK_EQ(parse_bytes(cut, 0), -STATUS_PROTO);
    CHECK_EQ(parse_bytes(never, sizeof(never)), -STATUS_PROTO);
    CHECK_EQ(parse_bytes(behind, sizeof(behind)), -STATUS_PROTO);
    CHECK_HAS(failure.message, "1 bytes behind");
}

/* msgpack-c gives up past 32 levels, in the same words as for want of memory. */
static void test_depth_is_an_error(void)
{
    uint8_t deep[100];

    memset(deep, 0x91, sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = 0x00;
    CHECK_LT(parse_bytes(deep, sizeof(deep)), 0);
}

static void test_number_of_params(void)
{
    CHECK_EQ(parse("[0, 1, 'ping', [1]]"), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "ping takes at least 0 and at most 0 parameters, not 1");
    CHECK_EQ(parse("[0, 1, 'job.push', [1]]"), -STATUS_INVALID_PARAM);
    CHECK_STR(failure.message, "job.push takes at least 2 and at most 4 parameters, not 1");
    CHECK_EQ(parse("[0, 1, 'run', ['copy', {}, {}, [], 5]]"), -STATUS_INVALID_PARAM);
    CHECK_EQ(parse("[2, 'job.push', [1]]"), 0);
}

static void test_envelopes_that_we_write(void)
{
    start_packing();
    rpc_pack_request(&packer, 70000, METHOD_JOB_CANCEL, 1);
    msgpack_pack_uint64(&packer, 5);
    CHECK_EQ(parse_packed(), 0);
    CHECK_EQ(message.type, RPC_REQUEST);
    CHECK_EQ(message.msgid, 70000);
    CHECK_EQ(message.method, METHOD_JOB_CANCEL);

    msgpack_sbuffer_clear(&buffer);
    rpc_pack_notification(&packer, NOTIFY_JOB_DONE, 0);
    CHECK_EQ(parse_packed(), 0);
    CHECK_EQ(message.type, RPC_NOTIFICATION);

    msgpack_sbuffer_clear(&buffer);
    rpc_pack_result(&packer, 6);
    msgpack_pack_true(&packer);
    CHECK_EQ(parse_packed(), 0);
    CHECK_EQ(message.type, RPC_RESPONSE);
    CHECK_EQ(message.msgid, 6);
    CHECK_EQ(message.error.type, MSGPACK_OBJECT_NIL);
    CHECK(message.result.via.boolean);
}

static void check_error_round_trip(bool is_structured)
{
    struct failure read = {0};

    start_packing();
    fail(&failure, STATUS_BUSY, "window", "no room: %d", 3);
    failure.retry_ms = 250;
    CHECK_EQ(failure_add_limit(&failure, "window", 70, UINT64_C(1) << 40), -STATUS_BUSY);
    rpc_pack_error(&packer, 11, &failure, is_structured);
    CHECK_EQ(parse_packed(), 0);
    CHECK_EQ(message.msgid, 11);
    CHECK_EQ(message.result.type, MSGPACK_OBJECT_NIL);
    rpc_unpack_error(&message.error, &read);
    CHECK_EQ(read.status, STATUS_BUSY);
    CHECK_STR(read.message, "no room: 3");
    CHECK_STR(read.field, is_structured ? "window" : "");
    CHECK_EQ(read.retry_ms, is_structured ? 250u : 0u);
    CHECK_STR(read.limit, is_structured ? "window" : "");
    CHECK_EQ(read.used, is_structured ? 70u : 0u);
    CHECK_EQ(read.max, is_structured ? UINT64_C(1) << 40 : 0);
}

static void test_error_as_a_string(void)
{
    check_error_round_trip(false);
    CHECK_MEM(message.error.via.str.ptr, "BUSY: no room: 3", message.error.via.str.size);
}

static void test_error_structured(void)
{
    check_error_round_trip(true);
}

static void test_details_only_where_set(void)
{
    char text[200];

    start_packing();
    fail(&failure, STATUS_SEQ, NULL, "pushes");
    rpc_pack_error(&packer, 1, &failure, true);
    CHECK_EQ(parse_packed(), 0);
    msgpack_object_print_buffer(text, sizeof(text), message.error);
    CHECK_STR(text, "[\"SEQ\", \"pushes\", {}]");
}

static void test_errors_of_strangers(void)
{
    static const struct {
        const char *text;
        enum status status;
        const char *message;
    } cases[] = {
        {"'RANGE: too much: 5'", STATUS_RANGE, "too much: 5"},
        {"'INTERNAL: oops'", STATUS_INTERNAL, "oops"},
        {"'OK: fine'", STATUS_INTERNAL, "OK: fine"},
        {"'NEW_NAME: from a later daemon'", STATUS_INTERNAL, "NEW_NAME: from a later daemon"},
        {"'RANGE'", STATUS_INTERNAL, "RANGE"},
        {"''", STATUS_INTERNAL, ""},
        {"'RANGE: a\nb'", STATUS_RANGE, "a?b"},
        {"['QUOTA', 'jobs']", STATUS_QUOTA, "jobs"},
        {"['OK', 'jobs', {'field': 'x'}]", STATUS_INTERNAL, "jobs"},
        {"['NEW_NAME', 'later', {'used': 1}]", STATUS_INTERNAL, "later"},
        {"['SEQ', 5, 6]", STATUS_SEQ, ""},
        {"[]", STATUS_INTERNAL, ""},
        {"{}", STATUS_INTERNAL, "an error of an unknown form"},
        {"17", STATUS_INTERNAL, "an error of an unknown form"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[200];
        struct failure read;

        memset(&read, 0xa5, sizeof(read));
        snprintf(text, sizeof(text), "[1, 1, %s, nil]", cases[i].text);
        printf("# case %zu\n", i);
        CHECK_EQ(parse(text), 0);
        rpc_unpack_error(&message.error, &read);
        CHECK_EQ(read.status, cases[i].status);
        CHECK_STR(read.message, cases[i].message);
        CHECK_EQ(read.retry_ms, 0);
    }
}

static void test_bin_headers(void)
{
    static const struct {
        uint64_t size;
        uint32_t header_size;
        uint8_t header[RPC_BIN_HEADER_MAX];
    } cases[] = {
        {1, 2, {0xc4, 1}},
        {255, 2, {0xc4, 255}},
        {256, 3, {0xc5, 1, 0}},
        {65535, 3, {0xc5, 255, 255}},
        {65536, 5, {0xc6, 0, 1, 0, 0}},
        {LIMIT_FRAME, 5, {0xc6, 0x04, 0x01, 0x00, 0x00}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t header[RPC_BIN_HEADER_MAX] = {0xa5, 0xa5, 0xa5, 0xa5, 0xa5};

        CHECK_EQ(rpc_bin_header(cases[i].size, header), cases[i].header_size);
        CHECK_MEM(header, cases[i].header, cases[i].header_size);
    }
}

CHECK_MAIN(CHECK_TEST(test_request), CHECK_TEST(test_unknown_method_is_an_envelope),
           CHECK_TEST(test_response), CHECK_TEST(test_notification), CHECK_TEST(test_no_envelope),
           CHECK_TEST(test_bytes_that_are_no_message), CHECK_TEST(test_depth_is_an_error),
           CHECK_TEST(test_number_of_params), CHECK_TEST(test_envelopes_that_we_write),
           CHECK_TEST(test_error_as_a_string), CHECK_TEST(test_error_structured),
           CHECK_TEST(test_details_only_where_set), CHECK_TEST(test_errors_of_strangers),
           CHECK_TEST(test_bin_headers))
