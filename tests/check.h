/*
 * Check: the test header.  A test program is a list of functions:
 *
 *     static void test_addition(void) { CHECK_EQ(1 + 1, 2); }
 *     CHECK_MAIN(CHECK_TEST(test_addition))
 *
 * It prints TAP for Meson.  A failed check prints both values and ends that test function, from
 * whatever depth; a descriptor or child process that a test leaves behind fails it as well.
 * CHECK_SKIP(reason) ends a test visibly skipped: for what this machine cannot do, nothing else.
 * check_at_end() registers what must be undone even if the test fails half way; it may check as
 * well.
 *
 * Threads: checks belong to the thread that runs the tests; others return what they found.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct check_test {
    const char *name;
    void (*run)(void);
};

enum check_end { CHECK_END_PASSED, CHECK_END_FAILED, CHECK_END_SKIPPED };

struct check_undo {
    void (*undo)(void *arg);
    void *arg;
};

/* Weak, so that all files of a test program share one of each. */
__attribute__((weak)) jmp_buf check_jump;
__attribute__((weak)) enum check_end check_end; /* of the test that runs now, as far as known */
__attribute__((weak)) char check_skip_reason[256];
__attribute__((weak)) struct check_undo check_undo[256];
__attribute__((weak)) unsigned check_n_undo;

#define CHECK_TEST(function)                                                                       \
    {                                                                                              \
#function, function                                                                        \
    }

#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        printf("# %s:%d: ", __FILE__, __LINE__);                                                   \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        longjmp(check_jump, CHECK_END_FAILED);                                                     \
    } while (0)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            CHECK_FAIL("not true: %s", #condition);                                                \
        }                                                                                          \
    } while (0)

/* Integers of any width; both values are printed. */
#define CHECK_OP(a, op, b)                                                                         \
    do {                                                                                           \
        __typeof__(a) check_a = (a);                                                               \
        __typeof__(b) check_b = (b);                                                               \
        if (!(check_a op check_b)) {                                                               \
            CHECK_FAIL("%s %s %s: %" PRIdMAX " against %" PRIdMAX, #a, #op, #b, (intmax_t)check_a, \
                       (intmax_t)check_b);                                                         \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)

#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *check_a = (a), *check_b = (b);                                                 \
        if (strcmp(check_a, check_b) != 0) {                                                       \
            CHECK_FAIL("%s is \"%s\", not \"%s\"", #a, check_a, check_b);                          \
        }                                                                                          \
    } while (0)

/* Does text a contain b? */
#define CHECK_HAS(a, b)                                                                            \
    do {                                                                                           \
        const char *check_a = (a), *check_b = (b);                                                 \
        if (strstr(check_a, check_b) == NULL) {                                                    \
            CHECK_FAIL("%s is \"%s\", without \"%s\"", #a, check_a, check_b);                      \
        }                                                                                          \
    } while (0)

#define CHECK_MEM(a, b, size)                                                                      \
    do {                                                                                           \
        const unsigned char *check_a = (const void *)(a), *check_b = (const void *)(b);            \
        for (size_t check_i = 0; check_i < (size_t)(size); check_i++) {                            \
            if (check_a[check_i] != check_b[check_i]) {                                            \
                CHECK_FAIL("%s and %s differ at byte %zu of %zu: %02x against %02x", #a, #b,       \
                           check_i, (size_t)(size), check_a[check_i], check_b[check_i]);           \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define CHECK_SKIP(...)                                                                            \
    do {                                                                                           \
        snprintf(check_skip_reason, sizeof(check_skip_reason), __VA_ARGS__);                       \
        longjmp(check_jump, CHECK_END_SKIPPED);                                                    \
    } while (0)

static inline void check_at_end(void (*undo)(void *arg), void *arg)
{
    if (check_n_undo == sizeof(check_undo) / sizeof(check_undo[0])) {
        abort();
    }
    check_undo[check_n_undo].undo = undo;
    check_undo[check_n_undo++].arg = arg;
}

static inline int check_count_fds(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");

    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

static inline void check_fail_at_end(const char *name, const char *what)
{
    if (check_end == CHECK_END_PASSED) {
        printf("# %s %s\n", name, what);
        check_end = CHECK_END_FAILED;
    }
}

static inline void check_run_one(const struct check_test *test)
{
    const volatile int n_fds = check_count_fds();
    enum check_end jumped;

    check_end = CHECK_END_PASSED;
    jumped = setjmp(check_jump);
    if (jumped == CHECK_END_PASSED) {
        test->run();
    } else {
        check_end = jumped;
    }
    while (check_n_undo > 0) {
        check_n_undo--;
        check_undo[check_n_undo].undo(check_undo[check_n_undo].arg);
    }
    if (check_count_fds() != n_fds) {
        check_fail_at_end(test->name, "left descriptors open, or closed some that are not its own");
    }
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        check_fail_at_end(test->name, "left a child process");
    }
}

static inline int check_main(const struct check_test *tests, unsigned n_tests)
{
    bool has_failed = false;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%u\n", n_tests);
    for (unsigned i = 0; i < n_tests; i++) {
        bool is_skipped;

        check_run_one(&tests[i]);
        is_skipped = check_end == CHECK_END_SKIPPED;
        printf("%s %u - %s%s%s\n", check_end == CHECK_END_FAILED ? "not ok" : "ok", i + 1,
               tests[i].name, is_skipped ? " # SKIP " : "", is_skipped ? check_skip_reason : "");
        has_failed |= check_end == CHECK_END_FAILED;
    }
    return has_failed;
}

#define CHECK_MAIN(...)                                                                            \
    int main(void)                                                                                 \
    {                                                                                              \
        static const struct check_test tests[] = {__VA_ARGS__};                                    \
        return check_main(tests, sizeof(tests) / sizeof(tests[0]));                                \
    }
