/* gpupipe-cli run --after: what a shell needs to have one run begin when another has ended. */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/integration/cli.h"
#include "tests/random.h"
#include "tests/wire.h"

enum { SIZE = 3 << 20 }; /* through a ring where there is one */

static struct harness *start(void *bytes)
{
    struct harness *daemon = harness_start();

    random_bytes(bytes, SIZE);
    harness_write(daemon, "in", bytes, SIZE);
    return daemon;
}

static void check_output(struct harness *daemon, const void *bytes)
{
    size_t size;
    void *out = harness_read(daemon, "out", &size);

    CHECK_EQ(size, SIZE);
    CHECK_MEM(out, bytes, SIZE);
}

/* The token is the last word of the only job that there is. */
static void test_a_run_after_a_job_of_the_list(void)
{
    static uint8_t bytes[SIZE];
    struct harness *daemon = start(bytes);
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *opened =
        wire_call(wire, "job.open", "['copy', {}, {window: 1, max_push: 65536}]");
    int64_t job = wire_number(opened, "job");
    char token[33];
    pid_t pid;

    snprintf(token, sizeof(token), "%s", wire_text(opened, "token"));
    shell(daemon, OK, "cli job list | awk 'NR == 2 { print $NF }'");
    CHECK_MEM(output.out, token, 32);
    pid = harness_shell_begin(daemon, "\"$GPUPIPE_CLI\" run copy -i in -o out --after %s", token);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "jobs_held") == 1);
    shell(daemon, OK, "cli job list | awk '$(NF - 1) == 1 { n++ } END { print n }'");
    CHECK_STR(output.out, "1\n");
    shell(daemon, OK, "cli job list --json");
    CHECK_HAS(output.out, "\"held\": 1");
    CHECK_HAS(output.out, token);
    CHECK(!exists(daemon, "out"));
    wire_call(wire, "job.close", "[%lu]", (uint64_t)job);
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, OK);
    check_output(daemon, bytes);
    shell(daemon, OK, "cli run copy -i in -o out -f --after %s", token); /* it has ended by now */
    check_output(daemon, bytes);
}

static void test_a_run_after_what_is_cancelled_or_not_there(void)
{
    static uint8_t bytes[SIZE];
    struct harness *daemon = start(bytes);
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *opened =
        wire_call(wire, "job.open", "['copy', {}, {window: 1, max_push: 65536}]");
    int64_t job = wire_number(opened, "job");
    char token[33];
    pid_t pid;

    snprintf(token, sizeof(token), "%s", wire_text(opened, "token"));
    pid = harness_shell_begin(daemon, "\"$GPUPIPE_CLI\" run copy -i in -o out --after %s", token);
    HARNESS_WAIT(wire_number(wire_call(wire, "stats", "[]"), "jobs_held") == 1);
    wire_call(wire, "job.cancel", "[%lu]", (uint64_t)job);
    harness_shell_end(daemon, pid, &output);
    CHECK_EQ(output.code, FAILED);
    CHECK_HAS(output.err, "which this one is after, was cancelled");
    CHECK(!exists(daemon, "out"));
    token[0] = token[0] == '0' ? '1' : '0';
    shell(daemon, FAILED, "cli run copy -i in -o out --after %s", token);
    CHECK_HAS(output.err, "NOT_FOUND: no job has this token");
    shell(daemon, USAGE, "cli run copy -i in -o out --after %d", (int)job);
    CHECK_HAS(output.err, "that is no token; 'gpupipe-cli job list' shows them");
    shell(daemon, USAGE, "unset GPUPIPE_SOCKET; cli run copy -i in --private --after %s", token);
    CHECK(!exists(daemon, "out"));
}

CHECK_MAIN(CHECK_TEST(test_a_run_after_a_job_of_the_list),
           CHECK_TEST(test_a_run_after_what_is_cancelled_or_not_there))
