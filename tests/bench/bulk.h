/*
 * Bulk: a client process that keeps the daemon busy, through a ring of its own or through the
 * socket; a party to a measurement (party.h).
 *
 * Each run has fresh random data.  At its end every output is compared, and one in so many
 * meanwhile.
 *
 * Thread: its caller's.
 */
#pragma once

#include "tests/bench/party.h"

#include <stddef.h>

#define BULK_WINDOW_MAX 16u

/* What an order asks for; its rate is in bytes a second, its size does not matter. */
enum bulk_what { BULK_COPY, BULK_ITERATE, BULK_COUNT };

struct bulk_shape {
    const char *socket_path;
    size_t push_size;
    uint32_t window;
    uint32_t iterate_n; /* of BULK_ITERATE, 152 or more */
    const char *device; /* NULL: any */
    uid_t uid;          /* 0: this process's */
    bool is_inline;     /* no ring: `run` requests of copy; as fast as it goes */
};

/* Returns when it is set up. */
void bulk_start(struct party *party, const struct bulk_shape *shape);
