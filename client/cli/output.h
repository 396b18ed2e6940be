/*
 * Output: where results go.
 *
 * A file is written under a temporary name in its folder and gets its own name when it is whole;
 * whatever else already stands there (a device, a FIFO, /dev/stdout) is written as it is.
 *
 * Errors: see cli.h; each names the file.  Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
    const char *path; /* as given; "standard output" for "-" */
    int fd;
    bool may_overwrite;
    char *target;    /* the file's path with links resolved; NULL: written as it is */
    char *temporary; /* where the file is now */
    uint64_t n_written;
};

/* Is path "-" or /dev/stdout? */
bool output_is_stdout(const char *path);
/*
 * is_forced: it may overwrite a file, or write binary to a terminal.  output_check() tells whether
 * output_open() could do this, and touches nothing: for errors before the work starts.
 */
int output_check(const char *path, bool is_forced, bool is_binary);
int output_open(const char *path, bool is_forced, bool is_binary, struct output *ret_output);
int output_write(struct output *output, const void *bytes, size_t size);
/* Replace the first bytes: of a file that is ours alone so far. */
bool output_can_rewrite(const struct output *output);
int output_rewrite(struct output *output, const void *bytes, size_t size);
/* Everything is written: give the file its name. */
int output_commit(struct output *output);
/* Close it and remove what is partial.  Also ends a committed output. */
void output_abandon(struct output *output);
