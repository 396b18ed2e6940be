/*
 * Cli: what the stories of gpupipe-cli share: commands for the shell, and files in the harness's
 * folder.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"

#include <stdarg.h>
#include <unistd.h>

/* Exit codes of gpupipe-cli. */
enum {
    OK = 0,
    FAILED = 1,
    USAGE = 2,
    UNREACHABLE = 69,
    BUSY = 75,
    DEADLINE = 124,
    INTERRUPTED = 130
};

__attribute__((weak)) struct harness_output output; /* of the last command */

/* Run this in the shell with `cli` standing for the program; it must exit with this code. */
__attribute__((format(printf, 3, 4))) static inline void shell(struct harness *harness, int code,
                                                               const char *format, ...)
{
    char command[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    harness_shell(harness, &output, "cli() { \"$GPUPIPE_CLI\" \"$@\"; }\n%s", command);
    if (output.code != code) {
        CHECK_FAIL("%s: exit code %d, not %d; stderr: %s", command, output.code, code, output.err);
    }
}

static inline bool exists(struct harness *harness, const char *name)
{
    return access(harness_path(harness, name), F_OK) == 0;
}

/* How many files there are with this in their names: the temporary ones of an output, too. */
static inline unsigned n_files(struct harness *harness, const char *part)
{
    DIR *folder = opendir(harness_folder(harness));
    struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(folder)) != NULL) {
        n += strstr(entry->d_name, part) != NULL;
    }
    closedir(folder);
    return n;
}

static inline void *write_random(struct harness *harness, const char *name, size_t size)
{
    void *bytes = random_new(size);

    harness_write(harness, name, bytes, size);
    return bytes;
}

/* This file must hold exactly these bytes. */
static inline void check_file(struct harness *harness, const char *name, const void *bytes,
                              size_t size)
{
    size_t got_size;
    const void *got = harness_read(harness, name, &got_size);

    CHECK_EQ(got_size, size);
    CHECK_MEM(got, bytes, size);
}
