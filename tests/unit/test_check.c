/*
 * The check header itself: a forked child runs small tests, and the parent reads the TAP they
 * print.
 */
#include "tests/check.h"
#include "tests/mini.h"

#include <unistd.h>

static int spare_fd;

static void mini_passes(void)
{
    const char *text = "a text";

    CHECK(text != NULL);
    CHECK_EQ(2 + 2, 4);
    CHECK_NE(1, 2);
    CHECK_LT(-1, 0);
    CHECK_LE(7, 7);
    CHECK_GT(UINT64_MAX, 1u);
    CHECK_GE(7, 7);
    CHECK_STR(text, "a text");
    CHECK_HAS(text, "tex");
    CHECK_MEM(text, "a text", 7);
}

static void mini_wrong_number(void)
{
    CHECK_EQ(3 * 7, 22);
}

static void mini_not_true(void)
{
    CHECK(1 > 2);
}

static void mini_wrong_text(void)
{
    CHECK_STR("red", "blue");
}

static void mini_missing_text(void)
{
    CHECK_HAS("redder", "blue");
}

static void mini_wrong_bytes(void)
{
    CHECK_MEM("abcd", "abxd", 4);
}

static void fail_below(int level)
{
    CHECK_FAIL("at the bottom, level %d", level);
}

static void mini_fails_below(void)
{
    fail_below(2);
    printf("# not reached\n");
}

static void mini_skips(void)
{
    CHECK_SKIP("no %s here", "unicorn");
}

static void mini_leaks_a_descriptor(void)
{
    CHECK_GE(dup(STDERR_FILENO), 0);
}

static void mini_closes_too_much(void)
{
    close(spare_fd);
}

static void mini_leaks_a_child(void)
{
    pid_t child = fork();

    CHECK_GE(child, 0);
    if (child == 0) {
        _exit(0);
    }
}

static void say(void *arg)
{
    printf("# undo %s\n", (const char *)arg);
}

static void mini_undoes_and_fails(void)
{
    check_at_end(say, "first");
    check_at_end(say, "second");
    CHECK_FAIL("half way");
}

static void fail_in_undo(void *arg)
{
    CHECK_FAIL("%s", (const char *)arg);
}

static void mini_fails_in_undo(void)
{
    check_at_end(say, "also after a failed undo");
    check_at_end(fail_in_undo, "the undo failed");
}

static void test_passing(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_passes), CHECK_TEST(mini_passes)), 0);
    CHECK_STR(mini_tap, "1..2\nok 1 - mini_passes\nok 2 - mini_passes\n");
}

static void test_failure_prints_both_values(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_wrong_number)), 1);
    CHECK_HAS(mini_tap, "test_check.c:");
    CHECK_HAS(mini_tap, "3 * 7 == 22: 21 against 22\n");
    CHECK_HAS(mini_tap, "not ok 1 - mini_wrong_number\n");
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_not_true)), 1);
    CHECK_HAS(mini_tap, "not true: 1 > 2\n");
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_wrong_text)), 1);
    CHECK_HAS(mini_tap, "\"red\" is \"red\", not \"blue\"\n");
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_missing_text)), 1);
    CHECK_HAS(mini_tap, "is \"redder\", without \"blue\"\n");
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_wrong_bytes)), 1);
    CHECK_HAS(mini_tap, "differ at byte 2 of 4: 63 against 78\n");
}

static void test_failure_ends_only_its_own_test(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_fails_below), CHECK_TEST(mini_passes)), 1);
    CHECK_HAS(mini_tap,
              "at the bottom, level 2\nnot ok 1 - mini_fails_below\nok 2 - mini_passes\n");
    CHECK(strstr(mini_tap, "not reached") == NULL);
}

static void test_skip_is_visible_and_no_failure(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_skips)), 0);
    CHECK_STR(mini_tap, "1..1\nok 1 - mini_skips # SKIP no unicorn here\n");
}

static void test_leaks_fail(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_leaks_a_descriptor)), 1);
    CHECK_HAS(mini_tap, "left descriptors open");
    spare_fd = dup(STDOUT_FILENO);
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_closes_too_much)), 1);
    close(spare_fd);
    CHECK_HAS(mini_tap, "closed some that are not its own");
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_leaks_a_child)), 1);
    CHECK_HAS(mini_tap, "left a child process");
}

static void test_undo_runs_backwards_also_after_a_failure(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_undoes_and_fails), CHECK_TEST(mini_passes)), 1);
    CHECK_HAS(mini_tap, "half way\n# undo second\n# undo first\nnot ok 1");
    CHECK_HAS(mini_tap, "ok 2 - mini_passes\n");
}

static void test_undo_may_fail_the_test(void)
{
    CHECK_EQ(MINI_RUN(CHECK_TEST(mini_fails_in_undo)), 1);
    CHECK_HAS(mini_tap, "the undo failed\n# undo also after a failed undo\nnot ok 1");
}

CHECK_MAIN(CHECK_TEST(test_passing), CHECK_TEST(test_failure_prints_both_values),
           CHECK_TEST(test_failure_ends_only_its_own_test),
           CHECK_TEST(test_skip_is_visible_and_no_failure), CHECK_TEST(test_leaks_fail),
           CHECK_TEST(test_undo_runs_backwards_also_after_a_failure),
           CHECK_TEST(test_undo_may_fail_the_test))
