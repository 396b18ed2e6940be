/*
 * The harness itself, against a daemon that can be told to misbehave, and the text that requests
 * are written in, against bytes written by hand.
 */
#include "tests/check.h"
#include "tests/harness.h"
#include "tests/mini.h"
#include "tests/pack.h"

/* A story of two lines: the daemon starts, and is stopped. */
static void mini_story(void)
{
    struct harness *daemon = harness_start();

    CHECK_GT(harness_pid(daemon), 0);
}

static void mini_story_that_fails(void)
{
    mini_story();
    CHECK_FAIL("for its own reason");
}

/* A story that waits until the daemon has opened something. */
static void mini_leak(void)
{
    struct harness *daemon = harness_start();
    unsigned n_fds = harness_n_fds(daemon);

    HARNESS_WAIT(harness_n_fds(daemon) > n_fds);
}

static void mini_shell_left_running(void)
{
    harness_shell_begin(harness_create(), "sleep 1000");
}

static void mini_takes_too_long(void)
{
    harness_start();
    harness_deadline(1);
    pause();
}

static int run_story(const char *fake, void (*story)(void))
{
    setenv("GPUPIPED", getenv("FAKE_DAEMON_PROGRAM"), 1);
    setenv("FAKE_DAEMON", fake, 1);
    return MINI_RUN({"story", story});
}

static void test_a_good_daemon(void)
{
    CHECK_EQ(run_story("well", mini_story), 0);
    CHECK_STR(mini_tap, "1..1\nok 1 - story\n");
}

static void test_a_daemon_that_does_not_start(void)
{
    CHECK_EQ(run_story("early", mini_story), 1);
    CHECK_HAS(mini_tap, "ended before it was ready");
    CHECK_HAS(mini_tap, "# | cannot start, for a reason");
}

static void test_a_wrong_exit_code(void)
{
    CHECK_EQ(run_story("exit", mini_story), 1);
    CHECK_HAS(mini_tap, "4 against 0");
}

static void test_a_socket_file_left_behind(void)
{
    CHECK_EQ(run_story("file", mini_story), 1);
    CHECK_HAS(mini_tap, "not ok 1");
}

static void test_a_sanitizers_finding(void)
{
    CHECK_EQ(run_story("finding", mini_story), 1);
    CHECK_HAS(mini_tap, "heap-use-after-free");
}

static void test_a_leaked_descriptor(void)
{
    harness_patience_ms = 500;
    CHECK_EQ(run_story("leak", mini_leak), 1);
    harness_patience_ms = 20000;
    CHECK_HAS(mini_tap, "waited in vain");
}

static void test_a_failed_story_shows_the_log_and_stops_the_daemon(void)
{
    CHECK_EQ(run_story("finding", mini_story_that_fails), 1);
    CHECK_HAS(mini_tap, "for its own reason");
    CHECK_HAS(mini_tap, "# | ==1==ERROR");
}

static void test_a_shell_left_running_is_ended(void)
{
    CHECK_EQ(run_story("well", mini_shell_left_running), 0);
}

static void test_a_story_that_takes_too_long(void)
{
    CHECK_EQ(run_story("well", mini_takes_too_long), 1);
    CHECK_HAS(mini_tap, "the test took too long");
}

/* ---- pack ---------------------------------------------------------------------------------- */

static void check_pack(const char *bytes, size_t size, const char *format, ...)
{
    msgpack_sbuffer buffer;
    va_list args;

    msgpack_sbuffer_init(&buffer);
    va_start(args, format);
    pack_text(&buffer, format, args);
    va_end(args);
    CHECK_EQ(buffer.size, size);
    CHECK_MEM(buffer.data, bytes, size);
    msgpack_sbuffer_destroy(&buffer);
}

#define BYTES(literal) literal, sizeof(literal) - 1

static void test_pack(void)
{
    check_pack(BYTES("\x90"), "[]");
    check_pack(BYTES("\x94\x01\xff\xc0\xa1x"), "[1, -1, nil, 'x']");
    check_pack(BYTES("\x82\xa1k\xc3\x07\xc2"), "{k: true, 7: false}");
    check_pack(BYTES("\xcb\x40\x04\0\0\0\0\0\0\xcb\x7f\xf0\0\0\0\0\0\0"), "2.5, inf");
    check_pack(BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), "18446744073709551615");
    check_pack(BYTES("\xc4\x03\x01\x02\x03\xa2\x01\x02\xc4\x00"), "<3>, \"2\", <0>");
    check_pack(BYTES("\x91\x91\x91\x80"), "[[[{}]]]");
    check_pack(BYTES("\x96\xa2hi\xd0\xc4\x05\xcb\x3f\xe0\0\0\0\0\0\0\xc4\x02yo\xa1t"),
               "[%s, %d, %lu, %f, %b, %t]", "hi", -60, UINT64_C(5), 0.5, "yo", (size_t)2, "t",
               (size_t)1);
}

static void test_pack_of_long_containers(void)
{
    static const char numbers[] = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]";

    check_pack(BYTES("\xdc\x00\x10\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                     "\x10"),
               numbers);
}

CHECK_MAIN(CHECK_TEST(test_a_good_daemon), CHECK_TEST(test_a_daemon_that_does_not_start),
           CHECK_TEST(test_a_wrong_exit_code), CHECK_TEST(test_a_socket_file_left_behind),
           CHECK_TEST(test_a_sanitizers_finding), CHECK_TEST(test_a_leaked_descriptor),
           CHECK_TEST(test_a_failed_story_shows_the_log_and_stops_the_daemon),
           CHECK_TEST(test_a_shell_left_running_is_ended),
           CHECK_TEST(test_a_story_that_takes_too_long), CHECK_TEST(test_pack),
           CHECK_TEST(test_pack_of_long_containers))
