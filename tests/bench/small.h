/*
 * Small: a client process that sends as many small jobs of `copy` through a ring as it can; a party
 * to a measurement (party.h).
 *
 * Thread: its caller's.
 */
#pragma once

#include "proto/message.h"
#include "tests/bench/party.h"

#include <stdbool.h>

#define SMALL_SIZE       1024u
#define SMALL_WINDOW_MAX 1024u /* jobs under way: what a ring's queues hold */

/* What an order asks for: every byte of a job is written before it and read after it; or neither,
 * and all are compared at the end. */
enum small_what { SMALL_TOUCHED, SMALL_UNTOUCHED };

struct small_shape {
    const char *socket_path;
    enum priority priority;
    uint32_t window;
    bool is_spinning; /* its wait for a completion */
};

/* Returns when it is set up. */
void small_start(struct party *party, const struct small_shape *shape);
