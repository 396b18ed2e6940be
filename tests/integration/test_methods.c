/*
 * What a client can ask before it has work: hello, ping, op.list, device.list, stats, job.list.
 */
#include "proto/limits.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/wire.h"

static void test_hello_is_optional(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    CHECK_EQ(wire_call(wire, "ping", "[]")->type, MSGPACK_OBJECT_NIL);
    CHECK_EQ(wire_call(wire, "ping", "[]")->type, MSGPACK_OBJECT_NIL);
}

static void test_hello_tells_every_limit(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *hello = wire_call(wire, "hello", "[{program: 'story', api: 1}]");

#define X(name, wire_name, value, unit, reason)                                                    \
    CHECK_EQ(wire_number(hello, "limits." wire_name), value);
    LIMIT_LIST(X)
#undef X
    CHECK_GT(strlen(wire_text(hello, "version")), 0);
    CHECK_GE(wire_number(hello, "api_level"), wire_number(hello, "api_compatible"));
    CHECK_STR(wire_text(hello, "backend"), harness_backend());
    CHECK_STR(wire_text(hello, "rights"), "user");
    CHECK_EQ(wire_number(wire_call(wire, "hello", "[]"), "epoch"), wire_number(hello, "epoch"));
}

static void test_epoch_differs_between_two_daemons(void)
{
    struct harness *first = harness_start();
    struct harness *second = harness_start();
    int64_t epochs[2];

    epochs[0] = wire_number(wire_call(wire_connect(harness_socket(first)), "hello", "[]"), "epoch");
    epochs[1] =
        wire_number(wire_call(wire_connect(harness_socket(second)), "hello", "[]"), "epoch");
    CHECK_NE(epochs[0], epochs[1]);
    CHECK_LT(epochs[0], INT64_C(1) << 53);
}

static void test_errors_come_plain_or_structured(void)
{
    struct harness *daemon = harness_start();
    struct wire *plain = wire_connect(harness_socket(daemon));
    struct wire *structured = wire_connect(harness_socket(daemon));
    const msgpack_object *error;
    uint32_t msgid;

    msgid = wire_send(plain, "run", "['saxpy', {b: 2}, {}, [<4>, <4>]]");
    error = wire_find(wire_response(plain, msgid), "2");
    CHECK_EQ(error->type, MSGPACK_OBJECT_STR);
    CHECK_STR(wire_error(error).name, "INVALID_PARAM");

    wire_call(structured, "hello", "[{errors: 'structured'}]");
    msgid = wire_send(structured, "run", "['saxpy', {b: 2}, {}, [<4>, <4>]]");
    error = wire_find(wire_response(structured, msgid), "2");
    CHECK_EQ(wire_count(error, ""), 3);
    CHECK_STR(wire_error(error).name, "INVALID_PARAM");
    CHECK_STR(wire_error(error).field, "b");
}

/* The details of this error: a limit that hello knows, by the number that hello tells. */
static void check_limit(struct wire *wire, const msgpack_object *response, const char *limit)
{
    const msgpack_object *details = wire_find(wire_find(response, "2"), "2");

    CHECK_STR(wire_text(details, "limit"), limit);
    CHECK_GE(wire_number(details, "used"), wire_number(details, "max"));
    CHECK_EQ(wire_number(details, "max"),
             wire_number(wire_find(wire_call(wire, "hello", "[]"), "limits"), limit));
}

static void test_errors_name_their_limit(void)
{
    static const struct {
        const char *limit, *method, *params;
    } cases[] = {
        {"string", "ping", "[\"1025\"]"},
        {"frame", "run", "['copy', {}, {}, [<67174400>]]"},
        {"depth", "ping", "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]"},
    };
    struct harness *daemon = harness_start();
    struct wire *other = wire_connect(harness_socket(daemon));
    struct wire *wire = NULL;
    uint64_t job;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wire = wire_connect(harness_socket(daemon));
        wire_call(wire, "hello", "[{errors: 'structured'}]");
        check_limit(other, wire_response(wire, wire_send(wire, cases[i].method, cases[i].params)),
                    cases[i].limit);
    }
    wire = wire_connect(harness_socket(daemon));
    wire_call(wire, "hello", "[{errors: 'structured'}]");
    job = (uint64_t)wire_number(
        wire_call(wire, "job.open", "['copy', {}, {window: 1, max_push: 65536}]"), "job");
    const msgpack_object *details = wire_find(
        wire_response(wire, wire_send(wire, "job.push", "[%lu, 0, {}, [<65537>]]", job)), "2.2");
    CHECK_STR(wire_text(details, "limit"), "max_push");
    CHECK_EQ(wire_number(details, "used"), 65537);
    CHECK_EQ(wire_number(details, "max"), 65536);
    for (unsigned i = 1; i < LIMIT_JOBS; i++) {
        wire_call(wire, "job.open", "['copy', {}, {window: 1, max_push: 65536}]");
    }
    check_limit(other, wire_response(wire, wire_send(wire, "job.open", "['copy']")), "jobs");
}

/* Every array of an op has a name and a dtype, every parameter a type and what it may be. */
static void check_op(const msgpack_object *op)
{
    const char *kind = wire_text(op, "kind");

    CHECK(strcmp(kind, "map") == 0 || strcmp(kind, "reduce") == 0);
    CHECK_GT(strlen(wire_text(op, "doc")), 10);
    CHECK_GE(wire_count(op, "in"), 1);
    CHECK_GE(wire_count(op, "out"), 1);
    CHECK_GE(wire_number(op, "min_parallel"), 1);
    CHECK_GE(wire_count(op, "backends"), 1);
    CHECK_STR(wire_text(op, "backends.0"), harness_backend());
    CHECK_STR(wire_text(op, "tail.0"), "error");
    for (unsigned i = 0; i < wire_count(op, "in"); i++) {
        CHECK_GT(strlen(wire_text(&wire_find(op, "in")->via.array.ptr[i], "name")), 0);
        CHECK_GT(strlen(wire_text(&wire_find(op, "in")->via.array.ptr[i], "dtype")), 0);
    }
}

static void test_op_list_describes_every_op(void)
{
    static const char *const names[] = {"align_score", "copy",    "dhash",  "gray",
                                        "iterate",     "minhash", "resize", "rs16",
                                        "saxpy",       "sha256",  "sincos", "sum"};
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *all = wire_call(wire, "op.list", "[]");
    unsigned n_found = 0;

    for (unsigned i = 0; i < wire_count(all, ""); i++) {
        check_op(&all->via.array.ptr[i]);
        for (unsigned k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            n_found += strcmp(wire_text(&all->via.array.ptr[i], "name"), names[k]) == 0;
        }
    }
    CHECK_EQ(n_found, sizeof(names) / sizeof(names[0]));
}

static void test_op_list_of_one_op(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *saxpy = wire_call(wire, "op.list", "[{name: 'saxpy'}]");
    const msgpack_object *sha256 = wire_call(wire, "op.list", "[{name: 'sha256'}]");
    const msgpack_object *sum = wire_call(wire, "op.list", "[{name: 'sum'}]");

    CHECK_EQ(wire_count(saxpy, ""), 1);
    CHECK_STR(wire_text(saxpy, "0.kind"), "map");
    CHECK_STR(wire_text(saxpy, "0.in.0.name"), "x");
    CHECK_STR(wire_text(saxpy, "0.in.1.name"), "y");
    CHECK_STR(wire_text(saxpy, "0.in.0.dtype"), "f32");
    CHECK_STR(wire_text(saxpy, "0.params.0.name"), "a");
    CHECK_STR(wire_text(saxpy, "0.params.0.type"), "f32");

    CHECK_STR(wire_text(sha256, "0.in.0.dtype"), "u8");
    CHECK_STR(wire_text(sha256, "0.in.0.shape.0"), "block");
    CHECK_EQ(wire_number(sha256, "0.out.0.shape.0"), 32);
    CHECK_STR(wire_text(sha256, "0.params.0.name"), "block");
    CHECK_EQ(wire_number(sha256, "0.params.0.default"), 4096);
    CHECK_LE(wire_number(sha256, "0.params.0.max"), LIMIT_RECORD);
    CHECK_EQ(wire_count(sha256, "0.tail"), 3);

    CHECK_STR(wire_text(sum, "0.kind"), "reduce");
    CHECK_STR(wire_text(sum, "0.out.0.dtype"), "f64");
    wire_refused(wire, "UNKNOWN_OP", "no_such_op", "op.list", "[{name: 'no_such_op'}]");
}

static void test_device_list(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *devices = wire_call(wire, "device.list", "[]");

    CHECK_GE(wire_count(devices, ""), 1);
    CHECK_STR(wire_text(devices, "0.backend"), harness_backend());
    CHECK_STR(wire_text(devices, "0.state"), "ready");
    CHECK_GT(strlen(wire_text(devices, "0.device")), 0);
    CHECK_GT(wire_number(devices, "0.memory"), 0);
}

static void test_stats_count_what_happened(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *before = wire_call(wire, "stats", "[]"), *after;

    wire_call(wire, "run", "['copy', {}, {}, [<1000>]]");
    wire_refused(wire, "UNKNOWN_OP", "nope", "run", "['nope', {}, {}, [<4>]]");
    after = wire_call(wire, "stats", "[]");
    CHECK_EQ(wire_number(after, "runs_total"), wire_number(before, "runs_total") + 1);
    CHECK_EQ(wire_number(after, "errors_total"), wire_number(before, "errors_total") + 1);
    CHECK_GE(wire_number(after, "bytes_in"), wire_number(before, "bytes_in") + 1000);
    CHECK_GE(wire_number(after, "bytes_out"), wire_number(before, "bytes_out") + 1000);
    CHECK_GT(wire_number(after, "chunks_total"), wire_number(before, "chunks_total"));
    CHECK_GT(wire_number(after, "uptime_ns"), wire_number(before, "uptime_ns"));
    CHECK_EQ(wire_number(after, "sessions"), 1);
    CHECK_EQ(wire_number(after, "worker_starts"), 1);
    CHECK_EQ(wire_number(after, "worker_deaths"), 0);
    CHECK_EQ(wire_number(after, "chunks_in_flight"), 0);
    CHECK_STR(wire_text(after, "backend"), harness_backend());
}

static void test_job_list_shows_own_jobs_or_all(void)
{
    struct harness *daemon = harness_start();
    struct wire *one = wire_connect(harness_socket(daemon));
    struct wire *other = wire_connect(harness_socket(daemon));
    const msgpack_object *list;
    int64_t job;

    CHECK_EQ(wire_count(wire_call(one, "job.list", "[]"), ""), 0);
    job = wire_number(wire_call(one, "job.open", "['copy', {}, {priority: 'bulk'}]"), "job");
    list = wire_call(one, "job.list", "[{}]");
    CHECK_EQ(wire_count(list, ""), 1);
    CHECK_EQ(wire_number(list, "0.job"), job);
    CHECK_STR(wire_text(list, "0.op"), "copy");
    CHECK_STR(wire_text(list, "0.state"), "open");
    CHECK_STR(wire_text(list, "0.priority"), "bulk");
    CHECK_EQ(wire_number(list, "0.pushed"), 0);
    CHECK_EQ(wire_count(wire_call(other, "job.list", "[{all: false}]"), ""), 0);
    CHECK_EQ(wire_count(wire_call(other, "job.list", "[{all: true}]"), ""), 1);
}

static void test_notifications_from_clients_are_ignored(void)
{
    static const uint8_t notification[] = "\x93\x02\xa8no.thing\x90"
                                          "\x93\x02\xa4ping\x90"
                                          "\x93\x02\xadjob.subscribe\x91\xc0";
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));

    CHECK(wire_send_bytes(wire, notification, sizeof(notification) - 1));
    wire_call(wire, "ping", "[]");
    CHECK_EQ(wire_held(wire), 0);
}

CHECK_MAIN(CHECK_TEST(test_hello_is_optional), CHECK_TEST(test_hello_tells_every_limit),
           CHECK_TEST(test_epoch_differs_between_two_daemons),
           CHECK_TEST(test_errors_come_plain_or_structured),
           CHECK_TEST(test_errors_name_their_limit), CHECK_TEST(test_op_list_describes_every_op),
           CHECK_TEST(test_op_list_of_one_op), CHECK_TEST(test_device_list),
           CHECK_TEST(test_stats_count_what_happened),
           CHECK_TEST(test_job_list_shows_own_jobs_or_all),
           CHECK_TEST(test_notifications_from_clients_are_ignored))
