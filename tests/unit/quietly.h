/*
 * Quietly: what a function prints on stderr, to be looked at instead of seen.
 *
 *     CHECK_EQ(QUIETLY(open_it("none")), 1);
 *     CHECK_HAS(said, "No such file");
 *
 * Threads: one.
 */
#pragma once

#include "tests/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char said[4096];
static int real_stderr = -1;
static FILE *captured;

static void restore_stderr(void *arg)
{
    size_t n;

    (void)arg;
    if (real_stderr < 0) {
        return;
    }
    fflush(stderr);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    real_stderr = -1;
    rewind(captured);
    n = fread(said, 1, sizeof(said) - 1, captured);
    said[n] = '\0';
    fclose(captured);
}

static void capture_stderr(void)
{
    captured = tmpfile();
    real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(fileno(captured), STDERR_FILENO);
    check_at_end(restore_stderr, NULL);
}

/* The result of an expression, with what it printed in `said`. */
#define QUIETLY(expression)                                                                        \
    ({                                                                                             \
        int rc_;                                                                                   \
        capture_stderr();                                                                          \
        rc_ = (expression);                                                                        \
        restore_stderr(NULL);                                                                      \
        rc_;                                                                                       \
    })
