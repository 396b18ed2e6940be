/*
 * The check header itself: a forked child runs small tests, and the parent reads the TAP they
 * print.
 */
#include "tests/check.h"

#include <unistd.h>

static char tap[4096];
static int spare_fd;

/* Run tests in a child; its output lands in `tap`.  Returns its exit code. */
static int run_child(const struct check_test *tests, unsigned n_tests)
{
    int fds[2], status = 0;
    ssize_t got;
    size_t size = 0;
    pid_t child;

    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        check_n_undo = 0;
        status = check_main(tests, n_tests);
        fflush(stdout);
        _exit(status);
    }
    close(fds[1]);
    while ((got = read(fds[0], tap + size, sizeof(tap) - 1 - size)) > 0) {
        size += (size_t)got;
    }
    tap[size] = '\0';
    close(fds[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define RUN_CHILD(...)                                                                             \
    run_child((const struct check_test[]){__VA_ARGS__},                                            \
              sizeof((const struct check_test[]){__VA_ARGS__}) / sizeof(struct check_test))

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
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_passes), CHECK_TEST(mini_passes)), 0);
    CHECK_STR(tap, "1..2\nok 1 - mini_passes\nok 2 - mini_passes\n");
}

static void test_failure_prints_both_values(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_wrong_number)), 1);
    CHECK_HAS(tap, "test_check.c:");
    CHECK_HAS(tap, "3 * 7 == 22: 21 against 22\n");
    CHECK_HAS(tap, "not ok 1 - mini_wrong_number\n");
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_not_true)), 1);
    CHECK_HAS(tap, "not true: 1 > 2\n");
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_wrong_text)), 1);
    CHECK_HAS(tap, "\"red\" is \"red\", not \"blue\"\n");
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_missing_text)), 1);
    CHECK_HAS(tap, "is \"redder\", without \"blue\"\n");
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_wrong_bytes)), 1);
    CHECK_HAS(tap, "differ at byte 2 of 4: 63 against 78\n");
}

static void test_failure_ends_only_its_own_test(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_fails_below), CHECK_TEST(mini_passes)), 1);
    CHECK_HAS(tap, "at the bottom, level 2\nnot ok 1 - mini_fails_below\nok 2 - mini_passes\n");
    CHECK(strstr(tap, "not reached") == NULL);
}

static void test_skip_is_visible_and_no_failure(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_skips)), 0);
    CHECK_STR(tap, "1..1\nok 1 - mini_skips # SKIP no unicorn here\n");
}

static void test_leaks_fail(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_leaks_a_descriptor)), 1);
    CHECK_HAS(tap, "left descriptors open");
    spare_fd = dup(STDOUT_FILENO);
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_closes_too_much)), 1);
    close(spare_fd);
    CHECK_HAS(tap, "closed some that are not its own");
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_leaks_a_child)), 1);
    CHECK_HAS(tap, "left a child process");
}

static void test_undo_runs_backwards_also_after_a_failure(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_undoes_and_fails), CHECK_TEST(mini_passes)), 1);
    CHECK_HAS(tap, "half way\n# undo second\n# undo first\nnot ok 1");
    CHECK_HAS(tap, "ok 2 - mini_passes\n");
}

static void test_undo_may_fail_the_test(void)
{
    CHECK_EQ(RUN_CHILD(CHECK_TEST(mini_fails_in_undo)), 1);
    CHECK_HAS(tap, "the undo failed\n# undo also after a failed undo\nnot ok 1");
}

CHECK_MAIN(CHECK_TEST(test_passing), CHECK_TEST(test_failure_prints_both_values),
           CHECK_TEST(test_failure_ends_only_its_own_test),
           CHECK_TEST(test_skip_is_visible_and_no_failure), CHECK_TEST(test_leaks_fail),
           CHECK_TEST(test_undo_runs_backwards_also_after_a_failure),
           CHECK_TEST(test_undo_may_fail_the_test))
