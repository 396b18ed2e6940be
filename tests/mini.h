/*
 * Mini: runs small tests in a child process and keeps the TAP they print, for the tests of the
 * check header and of the harness.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "tests/check.h"

#include <unistd.h>

static char mini_tap[65536]; /* what the children of the last MINI_RUN() printed */

/* Returns the child's exit code. */
static int mini_run(const struct check_test *tests, unsigned n_tests)
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
    while ((got = read(fds[0], mini_tap + size, sizeof(mini_tap) - 1 - size)) > 0) {
        size += (size_t)got;
    }
    mini_tap[size] = '\0';
    close(fds[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define MINI_RUN(...)                                                                              \
    mini_run((const struct check_test[]){__VA_ARGS__},                                             \
             sizeof((const struct check_test[]){__VA_ARGS__}) / sizeof(struct check_test))
