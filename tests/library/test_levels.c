/*
 * API levels: an old client and a later daemon, and the reverse.  LATER_GPUPIPED is this daemon,
 * but says that it is of level 9 and serves from level 7 on; GROWN_GPUPIPED that it serves all.
 */
#include "client/gpupipe.h"
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/wire.h"

enum { SIZE = 100000 };

static const char *const both_levels = "the client speaks api level 1; this daemon serves 7 to 9";

static void restore_program(void *program)
{
    setenv("GPUPIPED", program, 1);
    free(program);
}

static struct harness *start_other(const char *name)
{
    const char *const options[] = {"--backend",     "cpu", "--devices", "cpu0",
                                   "--pinned-pool", "64M", NULL};
    struct harness *harness = harness_create();

    check_at_end(restore_program, strdup(getenv("GPUPIPED")));
    setenv("GPUPIPED", getenv(name), 1);
    harness_place_worker(harness, "cpu", getenv("GPUPIPE_WORKER"));
    harness_launch(harness, options);
    return harness;
}

/* The message has both numbers, whoever says it. */
static void test_the_library_meets_a_later_daemon(void)
{
    struct harness *daemon = start_other("LATER_GPUPIPED");
    struct gpupipe *gpupipe = NULL;
    int rc = gpupipe_open(&gpupipe, harness_socket(daemon), "test");
    const struct gpupipe_error *error = gpupipe_last_error(gpupipe);

    CHECK_EQ(rc, GPUPIPE_ERROR_VERSION);
    CHECK_STR(error->name, "VERSION");
    CHECK_HAS(error->message, both_levels);
    gpupipe_close(gpupipe);
}

static void test_gpupipe_cli_meets_a_later_daemon(void)
{
    enum { CONFIGURATION = 78 };
    struct harness *daemon = start_other("LATER_GPUPIPED");
    struct harness_output output;

    harness_shell(daemon, &output, "\"$GPUPIPE_CLI\" ping");
    CHECK_EQ(output.code, CONFIGURATION);
    CHECK_HAS(output.err, both_levels);
}

/* Old clients work with it as ever. */
static void test_a_later_daemon_that_serves_this_level(void)
{
    struct harness *daemon = start_other("GROWN_GPUPIPED");
    struct gpupipe *gpupipe = NULL;
    const uint8_t *bytes = random_new(SIZE);
    uint8_t out[SIZE] = {0};
    struct gpupipe_desc desc;
    struct harness_output output;

    GPUPIPE_INIT(&desc);
    desc.n_in = desc.n_out = 1;
    desc.in[0].data = bytes;
    desc.in[0].size = SIZE;
    desc.out[0].data = out;
    desc.out[0].size = SIZE;
    CHECK_EQ(gpupipe_open(&gpupipe, harness_socket(daemon), "test"), 0);
    CHECK_EQ(gpupipe_run(gpupipe, "copy", NULL, 0, NULL, &desc, NULL), 0);
    CHECK_MEM(out, bytes, SIZE);
    gpupipe_close(gpupipe);
    harness_shell(daemon, &output, "\"$GPUPIPE_CLI\" ping");
    CHECK_EQ(output.code, 0);
}

/* Refused or not, the connection lives, and whoever names no level may try. */
static void test_levels_that_a_later_daemon_serves(void)
{
    struct harness *daemon = start_other("LATER_GPUPIPED");
    struct wire *wire = wire_connect(harness_socket(daemon));

    wire_refused(wire, "VERSION", both_levels, "hello", "[{api: 1}]");
    wire_refused(wire, "VERSION", "level 6; this daemon serves 7 to 9", "hello", "[{api: 6}]");
    for (uint64_t api = 7; api <= 10; api++) {
        const msgpack_object *hello = wire_call(wire, "hello", "[{api: %lu}]", api);

        CHECK_EQ(wire_number(hello, "api_level"), 9);
        CHECK_EQ(wire_number(hello, "api_compatible"), 7);
    }
    wire_call(wire, "hello", "[]");
    wire_check_works(wire);
}

static void test_a_later_client_meets_this_daemon(void)
{
    struct harness *daemon = harness_start();
    struct wire *wire = wire_connect(harness_socket(daemon));
    const msgpack_object *hello = wire_call(wire, "hello", "[{api: 4294967295}]");

    CHECK_EQ(wire_number(hello, "api_level"), 1);
    CHECK_EQ(wire_number(hello, "api_compatible"), 1);
    wire_refused(wire, "INVALID_PARAM", "later", "hello", "[{later: 1}]");
    wire_refused(wire, "UNKNOWN_METHOD", "job.later", "job.later", "[]");
    wire_check_works(wire);
}

CHECK_MAIN(CHECK_TEST(test_the_library_meets_a_later_daemon),
           CHECK_TEST(test_gpupipe_cli_meets_a_later_daemon),
           CHECK_TEST(test_a_later_daemon_that_serves_this_level),
           CHECK_TEST(test_levels_that_a_later_daemon_serves),
           CHECK_TEST(test_a_later_client_meets_this_daemon))
