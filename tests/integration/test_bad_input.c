/*
 * Bad input: each entry of two tables gets one clear error, and nobody else notices.
 *
 * Where the stream stays in step the connection lives on; where it is lost it closes after one
 * error (if there is a request to answer).  After every entry another client still gets its work
 * done, and the daemon holds no more descriptors than before.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

#include <sys/socket.h>

/* ---- in step ------------------------------------------------------------------------------- */

struct bad_request {
    const char *method;
    const char *params;
    const char *error;
    const char *text; /* in the error's message: which field, op or method */
};

static const struct bad_request requests[] = {
    /* methods and numbers of parameters */
    {"no.such.method", "[]", "UNKNOWN_METHOD", "method"},
    {"", "[]", "UNKNOWN_METHOD", ""},
    {"no.such.method", "[<100000>]", "INVALID_PARAM", "bin"},
    {"ping", "{}", "PROTO", "param"},
    {"ping", "7", "PROTO", "param"},
    {"ping", "[1]", "INVALID_PARAM", "ping"},
    {"run", "[]", "INVALID_PARAM", "run"},
    {"job.close", "[]", "INVALID_PARAM", "job.close"},
    {"job.close", "[1, 2]", "INVALID_PARAM", "job.close"},

    /* hello, op.list, job.list */
    {"hello", "['me']", "INVALID_PARAM", ""},
    {"hello", "[{program: 5}]", "INVALID_PARAM", "program"},
    {"hello", "[{errors: 'loud'}]", "RANGE", "errors"},
    {"hello", "[{colour: 'red'}]", "INVALID_PARAM", "colour"},
    {"hello", "[{api: 'one'}]", "INVALID_PARAM", "api"},
    {"hello", "[{api: 1, api: 1}]", "INVALID_PARAM", "api"},
    {"hello", "[{7: 1}]", "INVALID_PARAM", ""},
    {"op.list", "[{name: 5}]", "INVALID_PARAM", "name"},
    {"op.list", "[{name: 'nope'}]", "UNKNOWN_OP", "nope"},
    {"job.list", "[{all: 'yes'}]", "INVALID_PARAM", "all"},
    {"events.subscribe", "[]", "INVALID_PARAM", "events.subscribe"},
    {"events.subscribe", "[nil]", "INVALID_PARAM", "kinds"},
    {"events.subscribe", "['drain']", "INVALID_PARAM", "kinds"},
    {"events.subscribe", "[[1]]", "INVALID_PARAM", "kinds"},
    {"events.subscribe", "[['rain']]", "RANGE", "drain"},

    /* the op and its parameters */
    {"run", "['nope', {}, {}, [<4>]]", "UNKNOWN_OP", "nope"},
    {"run", "['Copy', {}, {}, [<4>]]", "UNKNOWN_OP", "Copy"},
    {"run", "[nil, {}, {}, [<4>]]", "INVALID_PARAM", "op"},
    {"run", "[7, {}, {}, [<4>]]", "INVALID_PARAM", "op"},
    {"run", "['', {}, {}, [<4>]]", "UNKNOWN_OP", ""},
    {"run", "['saxpy', {}, {}, [<4>, <4>]]", "INVALID_PARAM", "a"},
    {"run", "['saxpy', {a: 'two'}, {}, [<4>, <4>]]", "INVALID_PARAM", "a"},
    {"run", "['saxpy', {a: nil}, {}, [<4>, <4>]]", "INVALID_PARAM", "a"},
    {"run", "['saxpy', {a: [1]}, {}, [<4>, <4>]]", "INVALID_PARAM", "a"},
    {"run", "['saxpy', {a: 1, a: 2}, {}, [<4>, <4>]]", "INVALID_PARAM", "a"},
    {"run", "['saxpy', {a: 1, b: 2}, {}, [<4>, <4>]]", "INVALID_PARAM", "b"},
    {"run", "['saxpy', [1], {}, [<4>, <4>]]", "INVALID_PARAM", "params"},
    {"run", "['sha256', {block: 0}, {}, [<4>]]", "RANGE", "block"},
    {"run", "['sha256', {block: -1}, {}, [<4>]]", "RANGE", "block"},
    {"run", "['sha256', {block: 16777217}, {}, [<4>]]", "RANGE", "block"},
    {"run", "['sha256', {block: 18446744073709551615}, {}, [<4>]]", "RANGE", "block"},
    {"run", "['sha256', {block: 4096.0}, {}, [<4096>]]", "INVALID_PARAM", "block"},
    {"run", "['sha256', {block: nan}, {}, [<4096>]]", "INVALID_PARAM", "block"},
    {"job.open", "['nope']", "UNKNOWN_OP", "nope"},
    {"job.open", "['sha256', {block: 0}]", "RANGE", "block"},
    {"job.open", "['sha256', {blocks: 1}]", "INVALID_PARAM", "blocks"},

    /* options */
    {"run", "['copy', {}, [5], [<4>]]", "INVALID_PARAM", "options"},
    {"run", "['copy', {}, {speed: 9}, [<4>]]", "INVALID_PARAM", "speed"},
    {"run", "['copy', {}, {priority: 'highest'}, [<4>]]", "RANGE", "priority"},
    {"run", "['copy', {}, {priority: 0}, [<4>]]", "INVALID_PARAM", "priority"},
    {"run", "['copy', {}, {deadline_ns: -1}, [<4>]]", "RANGE", "deadline_ns"},
    {"run", "['copy', {}, {deadline_ns: 'soon'}, [<4>]]", "INVALID_PARAM", "deadline_ns"},
    {"run", "['copy', {}, {require: 'tpu'}, [<4>]]", "RANGE", "require"},
    {"run", "['copy', {}, {tail: 'long'}, [<4>]]", "RANGE", "tail"},
    {"run", "['copy', {}, {timing: 1}, [<4>]]", "INVALID_PARAM", "timing"},
    {"run", "['copy', {}, {device: 0}, [<4>]]", "INVALID_PARAM", "device"},
    {"run", "['copy', {}, {window: 3}, [<4>]]", "INVALID_PARAM", "window"},
    {"run", "['saxpy', {a: 1}, {tail: 'short'}, [<4>, <4>]]", "INVALID_PARAM", "tail"},
    {"job.open", "['copy', {}, {window: 0}]", "RANGE", "window"},
    {"job.open", "['copy', {}, {window: 65}]", "RANGE", "window"},
    {"job.open", "['copy', {}, {window: '3'}]", "INVALID_PARAM", "window"},
    {"job.open", "['copy', {}, {max_push: 1}]", "RANGE", "max_push"},
    {"job.open", "['copy', {}, {max_push: 16777217}]", "RANGE", "max_push"},
    {"job.open", "['copy', {}, {ordered: 'no'}]", "INVALID_PARAM", "ordered"},
    {"job.open", "[['copy', 'copy']]", "INVALID_PARAM", "one op after the other"},
    {"job.open", "[[['copy', {}], ['sha256', {}]]]", "INVALID_PARAM", "one op after the other"},
    {"run", "[[['copy', {}]], {}, {}, [<4>]]", "INVALID_PARAM", "one op after the other"},

    /* payloads */
    {"run", "['saxpy', {a: 1}, {}, [<4>]]", "INVALID_PARAM", "2"},
    {"run", "['saxpy', {a: 1}, {}, []]", "INVALID_PARAM", "2"},
    {"run", "['saxpy', {a: 1}, {}]", "INVALID_PARAM", "2"},
    {"run", "['saxpy', {a: 1}, {}, [<4>, <4>, <4>]]", "INVALID_PARAM", "2"},
    {"run", "['saxpy', {a: 1}, {}, [<4>, <8>]]", "RANGE", "y"},
    {"run", "['saxpy', {a: 1}, {}, [<400000>, <400004>]]", "RANGE", "y"},
    {"run", "['saxpy', {a: 1}, {}, [<5>, <5>]]", "RANGE", "x"},
    {"run", "['saxpy', {a: 1}, {}, [<1000002>, <1000002>]]", "RANGE", "x"},
    {"run", "['sha256', {}, {}, [<4097>]]", "RANGE", "4096"},
    {"run", "['sum', {}, {}, [<6>]]", "RANGE", ""},
    {"run", "['copy', {}, {}, 5]", "INVALID_PARAM", ""},
    {"run", "['copy', {}, {}, <100>]", "INVALID_PARAM", ""},
    {"run", "['copy', {}, {}, [7]]", "INVALID_PARAM", ""},
    {"run", "['copy', {}, {}, [nil]]", "INVALID_PARAM", ""},
    {"run", "['copy', {}, {}, [[<4>]]]", "INVALID_PARAM", ""},
    /* payload 0 is not input 0: it must not lie where input 0 does, nor pass for both */
    {"run", "['saxpy', {a: 1}, {}, [nil, <4>]]", "INVALID_PARAM", ""},
    {"run", "['saxpy', {a: 1}, {}, [nil, <400000>]]", "INVALID_PARAM", ""},
    {"run", "['saxpy', {a: 1}, {}, [<400000>, nil]]", "INVALID_PARAM", ""},
    {"run", "['saxpy', {a: 1}, {}, [[], <400000>]]", "INVALID_PARAM", ""},
    {"run", "['saxpy', {a: 1}, {}, [<400000>, [<400000>]]]", "INVALID_PARAM", ""},

    /* a payload where none belongs: refused at its header, its bytes drained */
    {"ping", "[<10>]", "INVALID_PARAM", ""},
    {"ping", "[<5000000>]", "INVALID_PARAM", ""},
    {"hello", "[{program: <20>}]", "INVALID_PARAM", ""},
    {"op.list", "[<300>]", "INVALID_PARAM", ""},
    {"run", "[<10>, {}, {}, [<4>]]", "INVALID_PARAM", ""},
    {"run", "['copy', <10>, {}, [<4>]]", "INVALID_PARAM", ""},
    {"run", "['saxpy', {a: <70000>}, {}, [<4>, <4>]]", "INVALID_PARAM", ""},
    {"run", "['copy', {}, {priority: <10>}, [<4>]]", "INVALID_PARAM", ""},
    {"job.close", "[<8>]", "INVALID_PARAM", ""},

    /* jobs */
    {"job.push", "[99, 0, {}, [<4>]]", "NOT_FOUND", "job"},
    {"job.push", "[99, 0, {}, [<4000000>]]", "NOT_FOUND", "job"},
    {"job.push", "['one', 0, {}, [<4>]]", "INVALID_PARAM", "job"},
    {"job.push", "[-1, 0, {}, [<4>]]", "RANGE", "job"},
    {"job.push", "[0, 0]", "NOT_FOUND", "job"},
    {"job.close", "[99]", "NOT_FOUND", "job"},
    {"job.close", "[1.5]", "INVALID_PARAM", "job"},
    {"job.cancel", "[18446744073709551615]", "RANGE", "job"},
    {"job.cancel", "[nil]", "INVALID_PARAM", "job"},
};

static void test_bad_requests(void)
{
    struct harness *daemon = harness_start();
    struct wire *victim = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));

    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const struct bad_request *bad = &requests[i];

        printf("# %s %s: %s\n", bad->method, bad->params, bad->error);
        wire_refused(victim, bad->error, bad->text, bad->method, bad->params);
        wire_check_works(victim);
        wire_check_works(other);
    }
    CHECK_EQ(wire_held(victim), 0);
    CHECK_EQ(wire_number(wire_call(other, "stats", "[]"), "sessions_broken"), 0);
    CHECK_EQ(wire_number(wire_call(other, "stats", "[]"), "pool_used"), 0);
}

/* ---- out of step --------------------------------------------------------------------------- */

struct bad_bytes {
    const char *name;
    const char *bytes;
    size_t size;
    int msgid; /* of the error that comes before the end of file; -1: it comes at once */
    const char *error;
};

#define BYTES(literal) literal, sizeof(literal) - 1
#define LEVELS_16      "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"

static const struct bad_bytes broken[] = {
    {"a number", BYTES("\x07"), -1, NULL},
    {"nil", BYTES("\xc0"), -1, NULL},
    {"a map", BYTES("\x80"), -1, NULL},
    {"a string", BYTES("\xa5hello"), -1, NULL},
    {"HTTP", BYTES("GET / HTTP/1.1\r\n\r\n"), -1, NULL},
    {"the byte that MessagePack never uses", BYTES("\xc1"), -1, NULL},
    {"an empty array", BYTES("\x90"), -1, NULL},
    {"an array of two", BYTES("\x92\x00\x01"), -1, NULL},
    {"an array of five", BYTES("\x95\x00\x01\xa4ping\x90\xc0"), -1, NULL},
    {"2^32 - 1 elements", BYTES("\xdd\xff\xff\xff\xff"), -1, NULL},
    {"a map of 2^32 - 1 pairs", BYTES("\xdf\xff\xff\xff\xff"), -1, NULL},
    {"message type 7", BYTES("\x94\x07\x01\xa4ping\x90"), -1, NULL},
    {"a message type that is a string", BYTES("\x94\xa1x\x01\xa4ping\x90"), -1, NULL},
    {"a negative msgid", BYTES("\x94\x00\xff\xa4ping\x90"), -1, NULL},
    {"a msgid over 32 bits", BYTES("\x94\x00\xcf\0\0\0\x01\0\0\0\0\xa4ping\x90"), -1, NULL},
    {"a msgid that is a string", BYTES("\x94\x00\xa1x\xa4ping\x90"), -1, NULL},
    {"a method that is a number", BYTES("\x94\x00\x05\x07\x90"), 5, "PROTO"},
    {"2^32 - 1 params", BYTES("\x94\x00\x07\xa4ping\xdd\xff\xff\xff\xff"), 7, "PROTO"},
    {"2^32 - 1 options", BYTES("\x94\x00\x08\xa5hello\x91\xdf\xff\xff\xff\xff"), 8, "PROTO"},
    {"counts that are plausible alone, not together",
     BYTES("\x94\x00\x09\xa4ping\x93\xdc\x0f\x00\xdc\x0f\x00\xdc\x0f\x00"), 9, "PROTO"},
    {"64 levels", BYTES("\x94\x00\x0a\xa4ping" LEVELS_16 LEVELS_16 LEVELS_16 LEVELS_16), 10,
     "PROTO"},
    {"64 levels of maps",
     BYTES("\x94\x00\x0b\xa4ping\x91"
           "\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01"
           "\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01"),
     11, "PROTO"},
    {"the unused byte in mid-message", BYTES("\x94\x00\x0c\xa4ping\x91\xc1"), 12, "PROTO"},
    {"a name of 4 GiB", BYTES("\x94\x00\x0d\xdb\xff\xff\xff\xff"), 13, "TOO_BIG"},
    {"an option of 4 GiB", BYTES("\x94\x00\x0e\xa5hello\x91\x81\xdb\xff\xff\xff\xff"), 14,
     "TOO_BIG"},
    {"an extension", BYTES("\x94\x00\x14\xa4ping\x91\xd4\x05?"), 20, "PROTO"},
    {"an extension of 4 GiB", BYTES("\x94\x00\x0f\xa5hello\x91\xc9\xff\xff\xff\xff\x05"), 15,
     "PROTO"},
    {"a payload of 4 GiB",
     BYTES("\x94\x00\x10\xa3run\x94\xa4"
           "copy\x80\x80\x91\xc6\xff\xff\xff\xff"),
     16, "TOO_BIG"},
    {"a payload just over the frame cap",
     BYTES("\x94\x00\x11\xa3run\x94\xa4"
           "copy\x80\x80\x91\xc6\x04\x01\x00\x01"),
     17, "TOO_BIG"},
    {"a str payload of 4 GiB",
     BYTES("\x94\x00\x12\xa3run\x94\xa4"
           "copy\x80\x80\x91\xdb\xff\xff\xff\xff"),
     18, "TOO_BIG"},
    {"a stray bin of 4 GiB", BYTES("\x94\x00\x13\xa4ping\x91\xc6\xff\xff\xff\xff"), 19, "TOO_BIG"},
};

static void check_one_error_then_eof(struct wire *wire, int msgid, const char *error)
{
    const msgpack_object *response;

    if (msgid >= 0) {
        response = wire_response(wire, (uint32_t)msgid);
        CHECK_STR(wire_error(wire_find(response, "2")).name, error);
        CHECK_GT(strlen(wire_error(wire_find(response, "2")).message), 0);
    }
    wire_eof(wire);
    CHECK_EQ(wire_held(wire), 0);
}

static void test_broken_bytes(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    const unsigned n_fds = harness_n_fds(daemon);

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));

        printf("# %s\n", broken[i].name);
        wire_send_bytes(wire, broken[i].bytes, broken[i].size);
        check_one_error_then_eof(wire, broken[i].msgid, broken[i].error);
        wire_check_works(other);
        wire_close(wire);
        HARNESS_WAIT(harness_n_fds(daemon) <= n_fds + 1);
    }
    CHECK_EQ(wire_number(wire_call(other, "stats", "[]"), "sessions_broken"),
             sizeof(broken) / sizeof(broken[0]));
}

static void test_a_good_request_before_the_bad_one_is_answered(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_send_bytes(wire, BYTES("\x94\x00\x01\xa4ping\x90\xc1"));
    CHECK_EQ(wire_find(wire_response(wire, 1), "2")->type, MSGPACK_OBJECT_NIL);
    wire_eof(wire);
}

static void test_a_head_over_the_limit(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;
    msgpack_packer packer;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    msgpack_sbuffer_write(&buffer, "\x94\x00\x01\xa5hello\x91", 10);
    msgpack_pack_array(&packer, 100);
    for (unsigned i = 0; i < 100; i++) {
        char text[1000];

        memset(text, 'a' + (int)i % 26, sizeof(text));
        msgpack_pack_str_with_body(&packer, text, sizeof(text));
    }
    wire_send_bytes(wire, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    check_one_error_then_eof(wire, 1, "TOO_BIG");
}

/* However deep, for a constant piece of stack. */
static void test_four_thousand_levels(void)
{
    static const unsigned char openings[] = {0x91, 0x81, 0x9f, 0xdc};
    struct harness *daemon = harness_start();

    for (unsigned i = 0; i < sizeof(openings); i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));
        char bytes[4009] = "\x94\x00\x01\xa4ping";

        memset(bytes + 8, openings[i], sizeof(bytes) - 8);
        wire_send_bytes(wire, bytes, sizeof(bytes));
        check_one_error_then_eof(wire, 1, "PROTO");
    }
}

/* Each number at each of its ends, and beyond: no sum and no product of them overflows. */
static void test_numbers_at_their_ends(void)
{
    static const uint64_t ends[] = {0,
                                    1,
                                    (UINT64_C(1) << 32) - 1,
                                    UINT64_C(1) << 32,
                                    (UINT64_C(1) << 53) - 1,
                                    UINT64_C(1) << 53,
                                    UINT64_MAX - 1,
                                    UINT64_MAX};
    enum { N = sizeof(ends) / sizeof(ends[0]) };
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    uint64_t job = (uint64_t)wire_number(wire_call(wire, "job.open", "['copy']"), "job");
    unsigned n_accepted = 0;

    for (unsigned i = 0; i < N * N * N; i++) {
        uint64_t id = i / N / N == 1 ? job : ends[i / N / N];
        uint64_t seq = ends[i / N % N], n = ends[i % N];
        bool is_right = id == job && seq == n_accepted && n == 1;
        struct wire_error error = wire_error(
            wire_find(wire_response(wire, wire_send(wire, "job.push", "[%lu, %lu, {n: %lu}, [<1>]]",
                                                    id, seq, n)),
                      "2"));

        CHECK_EQ(error.name[0] == '\0', is_right);
        n_accepted += is_right;
    }
    CHECK_EQ(n_accepted, 2); /* seq 0 and 1 */
    for (unsigned i = 0; i < N * N; i++) {
        uint64_t window = ends[i / N], max_push = ends[i % N];
        struct wire_error error = wire_error(
            wire_find(wire_response(wire, wire_send(wire, "job.open",
                                                    "['copy', {size: %lu}, {max_push: %lu, "
                                                    "window: 1}]",
                                                    window, max_push)),
                      "2"));

        CHECK_STR(error.name, "RANGE"); /* none of these sizes is one */
    }
    wire_check_works(wire);
}

static void test_declared_sizes_cost_no_memory(void)
{
    struct harness *daemon = harness_start();
    unsigned long before;

    wire_check_works(wire_connect(harness_socket(daemon)));
    before = harness_rss_kib(daemon);
    for (unsigned i = 0; i < 100; i++) {
        struct wire *wire = wire_connect(harness_socket(daemon));

        wire_send_bytes(wire, broken[i % 9 + 15].bytes, broken[i % 9 + 15].size);
        wire_eof(wire);
        wire_close(wire);
    }
    CHECK_LE(harness_rss_kib(daemon), before + 4096 + HARNESS_SANITIZER_KIB);
}

/* ---- random -------------------------------------------------------------------------------- */

/* Send it, end our side, and take whatever comes until the end of file. */
static void send_and_leave(struct harness *daemon, const void *bytes, size_t size)
{
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_send_bytes(wire, bytes, size);
    shutdown(wire_fd(wire), SHUT_WR);
    wire_eof(wire);
    wire_close(wire);
}

static void test_random_bytes(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));

    for (unsigned i = 0; i < 120; i++) {
        uint8_t bytes[4000];
        size_t size = 1 + random_below(sizeof(bytes));

        random_bytes(bytes, sizeof(bytes));
        bytes[0] = i % 2 == 0 ? bytes[0] : 0x94;
        bytes[1] = i % 4 == 0 ? bytes[1] : 0;
        send_and_leave(daemon, bytes, size);
    }
    wire_check_works(other);
}

/* A good conversation, in one buffer. */
static void pack_conversation(struct wire *wire, msgpack_sbuffer *buffer)
{
    wire_pack(wire, buffer, "hello", "[{program: 'x', errors: 'structured'}]");
    wire_pack(wire, buffer, "op.list", "[{}]");
    wire_pack(wire, buffer, "run", "['saxpy', {a: 2.5}, {priority: 'urgent'}, [<40>, <40>]]");
    wire_pack(wire, buffer, "job.open", "['sha256', {block: 16}, {window: 2, tail: 'short'}]");
    wire_pack(wire, buffer, "job.push", "[1, 0, {n: 3}, [<48>]]");
    wire_pack(wire, buffer, "job.push", "[1, 1, {}, [<20>]]");
    wire_pack(wire, buffer, "job.list", "[{all: true}]");
    wire_pack(wire, buffer, "job.close", "[1]");
    wire_pack(wire, buffer, "job.cancel", "[2]");
    wire_pack(wire, buffer, "stats", "[]");
}

static void test_a_good_conversation_with_a_few_wrong_bytes(void)
{
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    msgpack_sbuffer buffer;

    for (unsigned i = 0; i < 120; i++) {
        msgpack_sbuffer_init(&buffer);
        pack_conversation(other, &buffer);
        for (uint64_t n = 1 + random_below(4); n > 0; n--) {
            buffer.data[random_below(buffer.size)] = (char)random_u64();
        }
        send_and_leave(daemon, buffer.data, 1 + random_below(buffer.size));
        msgpack_sbuffer_destroy(&buffer);
    }
    wire_check_works(other);
    HARNESS_WAIT(wire_count(wire_call(other, "job.list", "[{all: true}]"), "") == 0);
    HARNESS_WAIT(wire_number(wire_call(other, "stats", "[]"), "pool_used") == 0);
}

CHECK_MAIN(CHECK_TEST(test_bad_requests), CHECK_TEST(test_broken_bytes),
           CHECK_TEST(test_a_good_request_before_the_bad_one_is_answered),
           CHECK_TEST(test_a_head_over_the_limit), CHECK_TEST(test_four_thousand_levels),
           CHECK_TEST(test_numbers_at_their_ends), CHECK_TEST(test_declared_sizes_cost_no_memory),
           CHECK_TEST(test_random_bytes),
           CHECK_TEST(test_a_good_conversation_with_a_few_wrong_bytes))
