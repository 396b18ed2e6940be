/*
 * Example: an op with parameters that people would give it, and input that it would get.
 *
 * Threads: pure functions and tables.
 */
#pragma once

#include "proto/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct example {
    const char *op;
    const char *what; /* for the table */
    struct value params[8];
    void (*fill)(void *bytes, size_t size, uint32_t input);
    uint32_t share;    /* of --size, where a byte costs much: this part of it */
    bool is_close;     /* both backends differ by their tolerance */
    uint32_t document; /* bytes of each record of a varying input */
};

/* By the names of their ops. */
extern const struct example examples[];
extern const uint32_t n_examples;
