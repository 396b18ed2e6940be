/*
 * gpupipe-cli call: the protocol from the shell; and a daemon that has no room.
 */
#include "tests/integration/cli.h"
#include "tests/wire.h"

/* ---- call ---------------------------------------------------------------------------------- */

static void test_results_are_json(void)
{
    struct harness *daemon = harness_start();

    shell(daemon, OK, "cli call ping");
    CHECK_STR(output.out, "null\n");
    shell(daemon, OK, "cli call stats | /usr/bin/python3 -m json.tool");
    CHECK_HAS(output.out, "\"sessions\": 1");
    shell(daemon, OK,
          "cli call op.list '{\"name\": \"sha256\"}' > one; "
          "cli call op.list '[{\"name\": \"sha256\"}]' > two; cmp one two; cat one");
    CHECK_HAS(output.out, "[{\"name\": \"sha256\"");
    shell(daemon, OK,
          "cli call job.open '[\"saxpy\", {\"a\": 2.5}, {\"window\": 3, "
          "\"ordered\": true, \"max_push\": null}]'");
    CHECK_HAS(output.out, "\"credit\": 3");
    CHECK_HAS(output.out, "\"in_size\": [4, 4]");
}

static void test_bytes_in_json(void)
{
    enum { SIZE = 2 * 1024 * 1024 + 3 };
    struct harness *daemon = harness_start();
    const void *bytes = write_random(daemon, "in", SIZE);

    shell(daemon, OK, "cli call run '[\"copy\", {}, {}, [{\"@base64\": \"Zm9vYg==\"}]]'");
    CHECK_HAS(output.out, "\"out\": [{\"@base64\": \"Zm9vYg==\"}]}\n");
    shell(daemon, OK, "cli call run '[\"copy\", {}, {}, [{\"@file\": \"in\"}]]' -o out");
    CHECK_HAS(output.out, "\"out\": [{\"@file\": \"out\"}]}\n");
    check_file(daemon, "out", bytes, SIZE);
    /* As base64 again, by somebody else's reckoning. */
    shell(daemon, OK,
          "cli call run '[\"copy\", {}, {}, [{\"@file\": \"in\"}]]' > json; /usr/bin/python3 -c '"
          "import base64, json\n"
          "out = json.load(open(\"json\"))[\"out\"][0][\"@base64\"]\n"
          "open(\"back\", \"wb\").write(base64.b64decode(out, validate=True))'; cmp in back");
    shell(daemon, OK, "cli call run '[\"copy\", {}, {}, [{\"@base64\": \"\"}]]'");
    CHECK_HAS(output.out, "\"out\": [{\"@base64\": \"\"}]}\n");
    /* Text may be a payload as well. */
    shell(daemon, OK, "cli call run '[\"copy\", {}, {}, [\"foob\"]]'");
    CHECK_HAS(output.out, "Zm9vYg==");
}

static void test_calls_that_fail(void)
{
    struct harness *daemon = harness_start();

    harness_write(daemon, "out", "precious", 8);
    shell(daemon, FAILED, "cli call fly");
    CHECK_HAS(output.err, "UNKNOWN_METHOD");
    shell(daemon, FAILED, "cli call job.cancel 999");
    CHECK_HAS(output.err, "NOT_FOUND");
    shell(daemon, FAILED, "cli call ping '[1, 2, 3]'");
    CHECK_HAS(output.err, "INVALID_PARAM");
    shell(daemon, FAILED, "cli call run '[\"copy\", {}, {}, [{\"@file\": \"missing\"}]]'");
    CHECK_HAS(output.err, "missing: No such file");
    shell(daemon, FAILED, "cli call run '[\"copy\", {}, {}, [\"foo\"]]' -o out");
    CHECK_HAS(output.err, "-f overwrites it");
    check_file(daemon, "out", "precious", 8);
    shell(daemon, OK, "cli call run '[\"copy\", {}, {}, [\"foo\"]]' -f -o out");
    check_file(daemon, "out", "foo", 3);
    shell(daemon, FAILED, "cli call ping -o none");
    CHECK_HAS(output.err, "no bytes");
    /* More than one message holds would end the connection. */
    shell(daemon, FAILED,
          "truncate -s 70M big; cli call run '[\"copy\", {}, {}, [{\"@file\": \"big\"}]]'");
    CHECK_HAS(output.err, "big has more bytes than a message may");
    shell(daemon, OK, "cli ping");
}

/* ---- no room ------------------------------------------------------------------------------- */

/* Open jobs until there is no room for another one of this user's. */
static void promise_the_pool(struct wire *wire)
{
    const msgpack_object *response;

    do {
        response = wire_response(
            wire, wire_send(wire, "job.open", "['copy', {}, {window: 64, max_push: 16777216}]"));
    } while (response->via.array.ptr[2].type == MSGPACK_OBJECT_NIL);
    CHECK_STR(wire_error(&response->via.array.ptr[2]).name, "QUOTA");
}

static void test_no_room(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const void *bytes = write_random(daemon, "in", 100000);
    pid_t pid;

    promise_the_pool(wire);
    shell(daemon, BUSY, "cli run copy -i in -o out --no-wait");
    CHECK_HAS(output.err, "QUOTA");
    CHECK(!exists(daemon, "out"));
    pid = harness_shell_begin(daemon, "exec \"$GPUPIPE_CLI\" run copy -i in -o out");
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "sessions") == 2);
    wire_close(wire);
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, OK);
    check_file(daemon, "out", bytes, 100000);
}

CHECK_MAIN(CHECK_TEST(test_results_are_json), CHECK_TEST(test_bytes_in_json),
           CHECK_TEST(test_calls_that_fail), CHECK_TEST(test_no_room))
