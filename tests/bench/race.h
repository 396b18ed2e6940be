/*
 * Race: a kernel's result read on another stream, in a fresh process, so that code can be loaded as
 * the experiment wants it.
 *
 * Thread: its caller's, whose process has not used CUDA yet.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define RACE_SIZE (4u << 20) /* bytes of the result */

struct race {
    bool is_eager;  /* all code is loaded before; else at its first launch */
    bool has_event; /* the reader waits for the writer */
};

/* How many bytes were read before they were written. */
size_t race_run(const struct race *race);
