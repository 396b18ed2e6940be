/*
 * The guard: what passes, where it stops, what it refuses.  Every message is told to it at once and
 * byte by byte; both must come to the same end.
 */
#include "proto/guard.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <msgpack.h>

/* Bytes written as a string literal, with their size. */
#define BYTES(literal) (const uint8_t *)(literal), sizeof(literal) - 1

#define STOPS_MAX 64

/* What the guard made of some bytes. */
struct story {
    int end; /* GUARD_MORE, GUARD_MESSAGE or a negative status */
    struct failure failure;
    size_t consumed; /* payload bytes included */
    struct guard guard;
    uint32_t n_stops;
    struct {
        int event;
        uint64_t size;
        uint32_t header_size;
        uint32_t index;
        uint32_t n_missing;
    } stops[STOPS_MAX];
};

static uint8_t head[4 * LIMIT_HEAD];

static void note_stop(struct story *story, int event)
{
    CHECK_LT(story->n_stops, STOPS_MAX);
    story->stops[story->n_stops].event = event;
    story->stops[story->n_stops].size = story->guard.payload_size;
    story->stops[story->n_stops].header_size = story->guard.header_size;
    story->stops[story->n_stops].index = story->guard.payload_index;
    story->stops[story->n_stops++].n_missing = guard_missing(&story->guard);
}

/* Tell the guard these bytes, step at a time, up to the end of the first message.  Payload bytes
 * are skipped as far as there are any. */
static struct story tell(enum guard_role role, const uint8_t *bytes, size_t size, size_t step)
{
    struct story story = {.end = GUARD_MORE};
    size_t at = 0, head_size = 0;

    guard_reset(&story.guard, role);
    while (story.end == GUARD_MORE && (at < size || head_size > story.guard.pos)) {
        size_t n = MIN(step, size - at);
        size_t pos_before = story.guard.pos;

        if (n == 0) {
            break;
        }
        CHECK_LE(head_size + n, sizeof(head));
        memcpy(head + head_size, bytes + at, n);
        head_size += n;
        at += n;
        story.end = guard_walk(&story.guard, head, head_size, &story.failure);
        CHECK_GE(story.guard.pos, pos_before);
        CHECK_LE(story.guard.pos, head_size);
        while (story.end == GUARD_PAYLOAD || story.end == GUARD_STRAY) {
            note_stop(&story, story.end);
            at -= head_size - story.guard.pos - story.guard.header_size;
            at += MIN(story.guard.payload_size, size - at);
            head_size = story.guard.pos;
            head[head_size++] = 0xc0;
            guard_payload_taken(&story.guard);
            story.end = guard_walk(&story.guard, head, head_size, &story.failure);
        }
    }
    story.consumed = at - (head_size - story.guard.pos);
    return story;
}

static struct story tell_twice(enum guard_role role, const uint8_t *bytes, size_t size)
{
    struct story whole = tell(role, bytes, size, size);
    struct story bytewise = tell(role, bytes, size, 1);

    CHECK_EQ(bytewise.end, whole.end);
    CHECK_EQ(bytewise.n_stops, whole.n_stops);
    CHECK_EQ(bytewise.consumed, whole.consumed);
    CHECK_EQ(bytewise.guard.frame_size, whole.guard.frame_size);
    CHECK_MEM(bytewise.stops, whole.stops, whole.n_stops * sizeof(whole.stops[0]));
    if (whole.end < 0) {
        CHECK_STR(bytewise.failure.message, whole.failure.message);
        CHECK_EQ(whole.failure.status, -whole.end);
    }
    return whole;
}

static struct story check_passes(enum guard_role role, const uint8_t *bytes, size_t size)
{
    struct story story = tell_twice(role, bytes, size);

    CHECK_EQ(story.end, GUARD_MESSAGE);
    CHECK_EQ(story.consumed, size);
    CHECK_EQ(story.guard.frame_size, size);
    return story;
}

static struct story check_refused(const uint8_t *bytes, size_t size, enum status status)
{
    struct story story = tell_twice(GUARD_SERVER, bytes, size);

    CHECK_EQ(story.end, -(int)status);
    CHECK_EQ(tell_twice(GUARD_CLIENT, bytes, size).end, -(int)status);
    return story;
}

static void check_stray(const uint8_t *bytes, size_t size)
{
    struct story story = check_passes(GUARD_SERVER, bytes, size);

    CHECK_EQ(story.n_stops, 1);
    CHECK_EQ(story.stops[0].event, GUARD_STRAY);
    CHECK_EQ(story.stops[0].size, 3);
    story = check_passes(GUARD_CLIENT, bytes, size);
    CHECK_EQ(story.n_stops, 1);
    CHECK_EQ(story.stops[0].event, GUARD_PAYLOAD);
}

static void test_every_token_passes(void)
{
    static const char tokens[] =
        "\xc0\xc2\xc3"
        "\x00\x7f\xff\xe0\xcc\x80\xcd\x80\x00\xce\x80\x00\x00\x00"
        "\xcf\x80\x00\x00\x00\x00\x00\x00\x00"
        "\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00"
        "\xd3\x80\x00\x00\x00\x00\x00\x00\x00"
        "\xca\x7f\x80\x00\x01\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"
        "\xa0\xa2hi\xd9\x02hi\xda\x00\x02hi\xdb\x00\x00\x00\x02hi"
        "\x90\x91\x01\xdc\x00\x01\x01\xdd\x00\x00\x00\x01\x01\xdd\x00\x00\x00\x00"
        "\x80\x81\x01\x02\xde\x00\x01\x01\x02\xdf\x00\x00\x00\x01\x01\x02";
    uint8_t message[256] = "\x94\x00\x07\xa5hello\xdc\x00\x1f";
    size_t size = 12;

    memcpy(message + size, tokens, sizeof(tokens) - 1);
    size += sizeof(tokens) - 1;
    CHECK_EQ(check_passes(GUARD_SERVER, message, size).guard.n_elements, 4 + 31 + 9);
    CHECK_EQ(check_passes(GUARD_CLIENT, message, size).n_stops, 0);
}

static void test_the_envelope_is_known_as_it_passes(void)
{
    static const uint8_t message[] = "\x94\x00\xcd\x12\x34\xa4ping\x90";
    struct story story = tell(GUARD_SERVER, message, 2, 2);

    CHECK_EQ(story.guard.type, 0);
    CHECK(!story.guard.has_msgid);
    story = tell(GUARD_SERVER, message, 4, 4);
    CHECK(!story.guard.has_msgid);
    story = tell(GUARD_SERVER, message, 9, 9);
    CHECK(story.guard.has_msgid);
    CHECK_EQ(story.guard.msgid, 0x1234);
    CHECK_EQ((int)story.guard.method, METHOD_COUNT);
    story = tell(GUARD_SERVER, message, 10, 10);
    CHECK_EQ((int)story.guard.method, METHOD_PING);
    CHECK_EQ(story.end, GUARD_MORE);
    CHECK_EQ(tell(GUARD_SERVER, message, 1, 1).guard.type, -1);
}

static void test_levels_count_their_values(void)
{
    struct story story =
        tell_twice(GUARD_SERVER, BYTES("\x94\x00\x07\xa5hello\x91\x93\x93\x01\x02\x03\x82\x01"));

    CHECK_EQ(story.end, GUARD_MORE);
    CHECK_EQ(story.guard.depth, 4);
    CHECK_EQ(story.guard.index[0], 3);
    CHECK_EQ(story.guard.left[0], 1);
    CHECK_EQ(story.guard.index[2], 1);
    CHECK_EQ(story.guard.left[2], 2);
    CHECK(!story.guard.is_map[2]);
    CHECK_EQ(story.guard.index[3], 1);
    CHECK_EQ(story.guard.left[3], 3);
    CHECK(story.guard.is_map[3]);
    CHECK_EQ(guard_missing(&story.guard), 4);
}

static void test_a_message_ends_where_the_next_begins(void)
{
    struct story story = tell(GUARD_SERVER, BYTES("\x94\x00\x01\xa4ping\x90\x94\x00\x02"), 99);

    CHECK_EQ(story.end, GUARD_MESSAGE);
    CHECK_EQ(story.guard.pos, 9);
    CHECK_EQ(story.consumed, 9);
}

static void test_all_three_types(void)
{
    struct story story;

    CHECK_EQ(check_passes(GUARD_SERVER, BYTES("\x94\x00\x01\xa1x\x90")).guard.type, 0);
    story = check_passes(GUARD_SERVER, BYTES("\x94\x01\xce\xff\xff\xff\xff\xa4ping\xc0"));
    CHECK_EQ(story.guard.type, 1);
    CHECK_EQ(story.guard.msgid, UINT32_MAX);
    CHECK_EQ((int)story.guard.method, METHOD_COUNT);
    story = check_passes(GUARD_SERVER, BYTES("\x93\x02\xa4ping\x90"));
    CHECK_EQ(story.guard.type, 2);
    CHECK(!story.guard.has_msgid);
    CHECK_EQ((int)story.guard.method, METHOD_PING);
    /* Integers of any width, containers too. */
    story = check_passes(GUARD_SERVER, BYTES("\xdd\x00\x00\x00\x04\xd3\x00\x00\x00\x00\x00\x00\x00"
                                             "\x00\xd0\x05\xdb\x00\x00\x00\x04ping\x90"));
    CHECK_EQ(story.guard.msgid, 5);
    CHECK_EQ((int)story.guard.method, METHOD_PING);
}

static void test_what_is_no_envelope_is_refused(void)
{
    check_refused(BYTES("\xc0"), STATUS_PROTO);
    check_refused(BYTES("\x01"), STATUS_PROTO);
    check_refused(BYTES("GET / HTTP/1.0\r\n"), STATUS_PROTO);
    check_refused(BYTES("\xc4\x03xyz"), STATUS_PROTO);
    check_refused(BYTES("\x84\x00\x01\x02\x03\x04\x05\x06\x07"), STATUS_PROTO);
    check_refused(BYTES("\x90"), STATUS_PROTO);
    check_refused(BYTES("\x92\x00\x01"), STATUS_PROTO);
    check_refused(BYTES("\x95\x00\x01\xa4ping\x90\x90"), STATUS_PROTO);
}

static void test_a_wrong_type_is_refused(void)
{
    check_refused(BYTES("\x94\x02\xa4ping\x90\xc0"), STATUS_PROTO);
    check_refused(BYTES("\x93\x00\x01\xa4ping"), STATUS_PROTO);
    check_refused(BYTES("\x93\x01\x01\xc0"), STATUS_PROTO);
    check_refused(BYTES("\x94\x03\x01\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\xff\x01\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\xa1"
                        "0\x01\xa4ping\x90"),
                  STATUS_PROTO);
    check_refused(BYTES("\x94\xc4\x01\x00\x01\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x90\x01\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\xca\x00\x00\x00\x00\x01\xa4ping\x90"), STATUS_PROTO);
}

static void test_a_wrong_msgid_is_refused(void)
{
    static const char *const field = "msgid";

    CHECK_STR(check_refused(BYTES("\x94\x00\xff\xa4ping\x90"), STATUS_PROTO).failure.field, field);
    check_refused(BYTES("\x94\x00\xd0\x80\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xd1\x80\x00\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xd2\x80\x00\x00\x00\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xd3\xff\xff\xff\xff\xff\xff\xff\xff\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xc0\xa4ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\xa1"
                        "1\xa4ping\x90"),
                  STATUS_PROTO);
    check_refused(BYTES("\x94\x01\xc3\xc0\xc0"), STATUS_PROTO);
}

static void test_a_method_is_a_string(void)
{
    check_refused(BYTES("\x94\x00\x01\x05\x90"), STATUS_PROTO);
    check_refused(BYTES("\x94\x00\x01\xc4\x04ping\x90"), STATUS_PROTO);
    check_refused(BYTES("\x93\x02\x91\xa4ping\x90"), STATUS_PROTO);
    CHECK_EQ((int)check_passes(GUARD_SERVER, BYTES("\x94\x00\x01\xa0\x90")).guard.method,
             METHOD_COUNT);
}

static void test_extensions_are_refused(void)
{
    static const uint8_t firsts[] = {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8};

    for (size_t i = 0; i < sizeof(firsts); i++) {
        uint8_t message[] = "\x94\x00\x01\xa4ping\x91?\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01";

        message[9] = firsts[i];
        CHECK_EQ(check_refused(message, sizeof(message) - 1, STATUS_PROTO).guard.pos, 9);
    }
}

static void test_payloads_stop_the_walk(void)
{
    struct story story =
        check_passes(GUARD_SERVER, BYTES("\x94\x00\x07\xa8job.push\x94\x01\x02\x80\x95\xc4\x03"
                                         "abc\xa2hi\x93\x01\x02\x03\xc6\x00\x00\x00\x01z\xc4\x00"));

    CHECK_EQ(story.n_stops, 4);
    for (uint32_t i = 0; i < 4; i++) {
        static const struct {
            uint32_t size, header_size, n_missing;
        } expected[] = {{3, 2, 5}, {2, 1, 4}, {1, 5, 2}, {0, 2, 1}};

        CHECK_EQ(story.stops[i].event, GUARD_PAYLOAD);
        CHECK_EQ(story.stops[i].index, i);
        CHECK_EQ(story.stops[i].size, expected[i].size);
        CHECK_EQ(story.stops[i].header_size, expected[i].header_size);
        CHECK_EQ(story.stops[i].n_missing, expected[i].n_missing);
    }
}

static void test_a_notification_has_payloads_too(void)
{
    struct story story =
        check_passes(GUARD_SERVER, BYTES("\x93\x02\xa3run\x94\xa4"
                                         "copy\x80\x80\x91\xdb\x00\x00\x00\x03xyz"));

    CHECK_EQ(story.n_stops, 1);
    CHECK_EQ(story.stops[0].event, GUARD_PAYLOAD);
    CHECK_EQ(story.stops[0].size, 3);
    CHECK_EQ(story.stops[0].header_size, 5);
}

static void test_a_bin_elsewhere_is_a_stray(void)
{
    /* No payload parameter, no such method, a response. */
    check_stray(BYTES("\x94\x00\x07\xa4ping\x91\xc4\x03"
                      "abc"));
    check_stray(BYTES("\x94\x00\x07\xa4pong\x94\x01\x02\x03\x91\xc5\x00\x03"
                      "abc"));
    check_stray(BYTES("\x94\x01\x07\xc0\x94\x01\x02\x03\x91\xc4\x03"
                      "abc"));
    /* The wrong parameter, the parameter itself, the params themselves. */
    check_stray(BYTES("\x94\x00\x07\xa3run\x94\x01\x02\x91\xc4\x03"
                      "abc\x90"));
    check_stray(BYTES("\x94\x00\x07\xa3run\x94\x01\x02\x03\xc4\x03"
                      "abc"));
    check_stray(BYTES("\x94\x00\x07\xa3run\xc4\x03"
                      "abc"));
    /* Deeper, and in maps that stand where arrays belong. */
    check_stray(BYTES("\x94\x00\x07\xa3run\x94\x01\x02\x03\x91\x91\xc4\x03"
                      "abc"));
    check_stray(BYTES("\x94\x00\x07\xa3run\x94\x01\x02\x03\x81\x01\xc4\x03"
                      "abc"));
    check_stray(BYTES("\x94\x00\x07\xa3run\x82\x01\x02\x03\x91\xc4\x03"
                      "abc"));
    check_stray(BYTES("\x94\x00\x07\xa3run\x94\x01\x81\xc4\x03"
                      "abc\x01\x03\x90"));
}

static void test_a_string_elsewhere_is_no_payload(void)
{
    CHECK_EQ(check_passes(GUARD_SERVER, BYTES("\x94\x00\x07\xa3run\x94\xa4"
                                              "copy\x81\xa1x\x01\x81\xa1y\xa1z\x91\x91\xa3"
                                              "abc"))
                 .n_stops,
             0);
}

static void test_on_the_client_each_bin_is_a_payload(void)
{
    struct story story =
        check_passes(GUARD_CLIENT, BYTES("\x94\x01\x07\xc0\x82\xa1n\x01\xa3out\x92\xc4\x03"
                                         "abc\xc5\x00\x02hi"));

    CHECK_EQ(story.n_stops, 2);
    CHECK_EQ(story.stops[0].size, 3);
    CHECK_EQ(story.stops[1].size, 2);
    CHECK_EQ(story.stops[1].event, GUARD_PAYLOAD);
}

/* A message around one value at params[0]. */
static size_t wrap(uint8_t *message, const void *value, size_t size)
{
    static const uint8_t opening[] = "\x94\x00\x07\xa5hello\x91";

    memcpy(message, opening, sizeof(opening) - 1);
    memcpy(message + sizeof(opening) - 1, value, size);
    return sizeof(opening) - 1 + size;
}

static void test_the_longest_string(void)
{
    static uint8_t message[4096], value[2048];
    static const size_t headers[] = {3, 5};

    memset(value, 'x', sizeof(value));
    memcpy(value, "\xda\x04\x00", 3);
    check_passes(GUARD_SERVER, message, wrap(message, value, 3 + LIMIT_STRING));
    memcpy(value, "\xdb\x00\x00\x04\x00", 5);
    check_passes(GUARD_CLIENT, message, wrap(message, value, 5 + LIMIT_STRING));
    memcpy(value, "\xda\x04\x01", 3);
    check_refused(message, wrap(message, value, headers[0]), STATUS_TOO_BIG);
    memcpy(value, "\xdb\xff\xff\xff\xff", 5);
    check_refused(message, wrap(message, value, headers[1]), STATUS_TOO_BIG);
}

/* params: n strings of 1003 bytes (with header), then one that makes the message exactly size. */
static size_t make_head(uint8_t *message, size_t size)
{
    size_t at = 11;

    memcpy(message, "\x94\x00\x07\xa4ping\xdc\x00\x42", at);
    for (int i = 0; i < 65; i++) {
        memcpy(message + at, "\xda\x03\xe8", 3);
        memset(message + at + 3, 'x', 1000);
        at += 1003;
    }
    memcpy(message + at, "\xda", 1);
    message[at + 1] = (uint8_t)((size - at - 3) >> 8);
    message[at + 2] = (uint8_t)(size - at - 3);
    memset(message + at + 3, 'x', size - at - 3);
    return size;
}

static void test_the_longest_head(void)
{
    static uint8_t message[LIMIT_HEAD + 1];

    check_passes(GUARD_SERVER, message, make_head(message, LIMIT_HEAD));
    check_refused(message, make_head(message, LIMIT_HEAD + 1), STATUS_TOO_BIG);
}

static void test_the_longest_frame(void)
{
    /* 17 bytes of head, 5 of them the payload's header. */
    static const uint32_t fits = LIMIT_FRAME - 17;
    uint8_t message[] = "\x94\x00\x07\xa3run\x94\x01\x02\x03\x91\xc6????";

    for (uint32_t more = 0; more < 2; more++) {
        for (int i = 0; i < 4; i++) {
            message[13 + i] = (uint8_t)((fits + more) >> (24 - 8 * i));
        }
        CHECK_EQ(tell_twice(GUARD_SERVER, message, 17).end,
                 more == 0 ? GUARD_MESSAGE : -STATUS_TOO_BIG);
    }
    memset(message + 13, 0xff, 4);
    CHECK_EQ(tell_twice(GUARD_SERVER, message, 17).end, -STATUS_TOO_BIG);
}

static void test_counts_are_refused_at_their_header(void)
{
    uint8_t message[64];
    struct story story;

    check_refused(BYTES("\xdd\xff\xff\xff\xff"), STATUS_PROTO);
    story = check_refused(message, wrap(message, "\xdd\xff\xff\xff\xff", 5), STATUS_PROTO);
    CHECK_EQ(story.guard.pos, 10);
    check_refused(message, wrap(message, "\xdf\xff\xff\xff\xff", 5), STATUS_PROTO);
    check_refused(message, wrap(message, "\xdf\x80\x00\x00\x00", 5), STATUS_PROTO);
    check_refused(message, wrap(message, "\xdf\x80\x00\x00\x01", 5), STATUS_PROTO);
    /* 4 + 1 + 4091 = 4096. */
    CHECK_EQ(tell_twice(GUARD_SERVER, message, wrap(message, "\xdc\x0f\xfb", 3)).end, GUARD_MORE);
    check_refused(message, wrap(message, "\xdc\x0f\xfc", 3), STATUS_PROTO);
    CHECK_EQ(tell_twice(GUARD_SERVER, message, wrap(message, "\xde\x07\xfd", 3)).end, GUARD_MORE);
    check_refused(message, wrap(message, "\xde\x07\xfe", 3), STATUS_PROTO);
}

static void test_plausible_counts_add_up(void)
{
    /* Eleven arrays within each other, each of 400 values. */
    uint8_t message[64], value[33];

    for (int i = 0; i < 11; i++) {
        memcpy(value + 3 * i, "\xdc\x01\x90", 3);
    }
    CHECK_EQ(tell_twice(GUARD_SERVER, message, wrap(message, value, 30)).end, GUARD_MORE);
    check_refused(message, wrap(message, value, 33), STATUS_PROTO);
}

static void test_depth(void)
{
    uint8_t message[5000], value[4000];

    memset(value, 0x91, sizeof(value));
    value[14] = 0xc0; /* within params: levels 3 to 16 */
    CHECK_EQ(check_passes(GUARD_SERVER, message, wrap(message, value, 15)).guard.n_elements, 19);
    value[14] = 0x90;
    check_refused(message, wrap(message, value, 15), STATUS_PROTO);
    value[14] = 0x91;
    check_refused(message, wrap(message, value, sizeof(value)), STATUS_PROTO);
    memset(value, 0x81, sizeof(value));
    check_refused(message, wrap(message, value, sizeof(value)), STATUS_PROTO);
    memset(value, 0x94, sizeof(value));
    check_refused(value, sizeof(value), STATUS_PROTO);
}

static void test_random_bytes_do_no_harm(void)
{
    uint8_t bytes[300];

    for (int i = 0; i < 20000; i++) {
        size_t size = 1 + random_below(sizeof(bytes));

        random_bytes(bytes, size);
        if (i % 2 == 0) {
            /* A good start, so that the nonsense gets deeper. */
            memcpy(bytes, "\x94\x00\x07\xa3run\x94", MIN(size, (size_t)8));
        }
        tell_twice(i % 4 < 2 ? GUARD_SERVER : GUARD_CLIENT, bytes, size);
    }
}

static void pack_random_value(msgpack_packer *packer, int depth)
{
    static const char text[] = "a text of some length, so that several string headers occur";
    size_t n = random_below(depth > 0 ? 5 : 1);

    switch (random_below(depth > 0 ? 8 : 6)) {
    case 0:
        msgpack_pack_nil(packer);
        break;
    case 1:
        msgpack_pack_true(packer);
        break;
    case 2:
        msgpack_pack_int64(packer, (int64_t)random_u64() >> random_below(64));
        break;
    case 3:
        msgpack_pack_uint64(packer, random_u64() >> random_below(64));
        break;
    case 4:
        msgpack_pack_double(packer, (double)random_u64());
        break;
    case 5:
        msgpack_pack_str_with_body(packer, text, random_below(sizeof(text)));
        break;
    case 6:
        msgpack_pack_array(packer, n);
        for (size_t i = 0; i < n; i++) {
            pack_random_value(packer, depth - 1);
        }
        break;
    default:
        msgpack_pack_map(packer, n);
        for (size_t i = 0; i < 2 * n; i++) {
            pack_random_value(packer, depth - 1);
        }
        break;
    }
}

/* Messages that msgpack-c wrote end where msgpack-c says, and the part before each payload
 * completed with nils is a whole value for it. */
static void test_msgpack_c_agrees(void)
{
    for (int i = 0; i < 2000; i++) {
        msgpack_sbuffer buffer;
        msgpack_packer packer;
        uint32_t n_payloads = (uint32_t)random_below(5);
        struct story story;

        msgpack_sbuffer_init(&buffer);
        msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
        msgpack_pack_array(&packer, 4);
        msgpack_pack_int(&packer, 0);
        msgpack_pack_uint32(&packer, (uint32_t)random_u64());
        msgpack_pack_str_with_body(&packer, "run", 3);
        msgpack_pack_array(&packer, 4);
        for (int k = 0; k < 3; k++) {
            pack_random_value(&packer, 5);
        }
        msgpack_pack_array(&packer, n_payloads);
        for (uint32_t k = 0; k < n_payloads; k++) {
            uint8_t payload[700];
            size_t size = random_below(sizeof(payload));

            random_bytes(payload, size);
            msgpack_pack_bin_with_body(&packer, payload, size);
        }
        story = check_passes(GUARD_SERVER, (uint8_t *)buffer.data, buffer.size);
        CHECK_EQ(story.n_stops, n_payloads);
        msgpack_sbuffer_destroy(&buffer);
    }
}

static void test_a_prefix_with_its_nils_decodes(void)
{
    static const uint8_t message[] = "\x94\x00\x07\xa8job.push\x94\x01\x02\x80\x93\xc4\x03"
                                     "abc\x82\x01\x02\x03\x04\xc4\x00";
    uint8_t prefix[64];
    struct failure failure;
    struct guard guard;
    size_t size = 17;

    for (uint32_t payload = 0; payload < 2; payload++) {
        msgpack_unpacked unpacked;
        size_t end = 0;

        guard_reset(&guard, GUARD_SERVER);
        memcpy(prefix, message, sizeof(message) - 1);
        CHECK_EQ(guard_walk(&guard, prefix, sizeof(message) - 1, &failure), GUARD_PAYLOAD);
        if (payload == 1) {
            memmove(prefix + guard.pos + 1, prefix + guard.pos + 5, 7);
            prefix[guard.pos] = 0xc0;
            guard_payload_taken(&guard);
            CHECK_EQ(guard_walk(&guard, prefix, sizeof(message) - 5, &failure), GUARD_PAYLOAD);
            size = 23;
        }
        CHECK_EQ(guard.pos, size);
        memset(prefix + guard.pos, 0xc0, guard_missing(&guard));
        size = guard.pos + guard_missing(&guard);
        msgpack_unpacked_init(&unpacked);
        CHECK_EQ((int)msgpack_unpack_next(&unpacked, (char *)prefix, size, &end),
                 MSGPACK_UNPACK_SUCCESS);
        CHECK_EQ(end, size);
        msgpack_unpacked_destroy(&unpacked);
    }
}

CHECK_MAIN(CHECK_TEST(test_every_token_passes), CHECK_TEST(test_the_envelope_is_known_as_it_passes),
           CHECK_TEST(test_levels_count_their_values),
           CHECK_TEST(test_a_message_ends_where_the_next_begins), CHECK_TEST(test_all_three_types),
           CHECK_TEST(test_what_is_no_envelope_is_refused),
           CHECK_TEST(test_a_wrong_type_is_refused), CHECK_TEST(test_a_wrong_msgid_is_refused),
           CHECK_TEST(test_a_method_is_a_string), CHECK_TEST(test_extensions_are_refused),
           CHECK_TEST(test_payloads_stop_the_walk),
           CHECK_TEST(test_a_notification_has_payloads_too),
           CHECK_TEST(test_a_bin_elsewhere_is_a_stray),
           CHECK_TEST(test_a_string_elsewhere_is_no_payload),
           CHECK_TEST(test_on_the_client_each_bin_is_a_payload),
           CHECK_TEST(test_the_longest_string), CHECK_TEST(test_the_longest_head),
           CHECK_TEST(test_the_longest_frame), CHECK_TEST(test_counts_are_refused_at_their_header),
           CHECK_TEST(test_plausible_counts_add_up), CHECK_TEST(test_depth),
           CHECK_TEST(test_random_bytes_do_no_harm), CHECK_TEST(test_msgpack_c_agrees),
           CHECK_TEST(test_a_prefix_with_its_nils_decodes))
