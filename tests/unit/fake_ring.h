/*
 * Fake ring: the daemon's side of rings for the fake server.  Each descriptor is taken, worked on
 * when as many are held as the script answers together (or no more come), and completed in an order
 * of chance.
 *
 * Threads: the fake server's process has one.
 */
#pragma once

#include "proto/message.h"
#include "proto/ring.h"
#include "tests/unit/fake_server.h"

#include <poll.h>

#define FAKE_RINGS 4

struct fake_rings;

/* What becomes of a push, as the server sees it. */
enum fake_fate { FAKE_DONE, FAKE_REFUSED, FAKE_FAILED, FAKE_BREAKS };

struct fake_rings_owner {
    void *owner;
    /* A descriptor has come: what to do with it. */
    enum fake_fate (*on_taken)(void *owner, const struct ring_desc *desc);
    /* One of them is computed: its input is still there. */
    void (*on_done)(void *owner, const struct ring_desc *desc, const uint8_t *in, uint64_t size);
    /* Completions of this fate are about to be shown, or have been. */
    void (*on_failed)(void *owner);
    void (*on_broken)(void *owner, uint64_t ring);
};

void fake_rings_create(const struct fake_script *script, const struct fake_rings_owner *owner,
                       struct fake_rings **ret_rings);
/* Makes one of size bytes; the descriptors are to be sent. */
void fake_rings_open(struct fake_rings *rings, uint64_t size, struct msg_ring_opened *ret_opened,
                     int ret_fds[3]);
/* False: there is none.  Its pushes must be done, unless it is broken. */
bool fake_rings_close(struct fake_rings *rings, uint64_t id, bool is_broken);
/* Their queues are zero from now on. */
void fake_rings_clear(struct fake_rings *rings);
/* Nothing is under way, or waits to be taken. */
bool fake_rings_are_idle(struct fake_rings *rings);
/* Take, work, complete, until nothing is left; then each ring sleeps. */
void fake_rings_serve(struct fake_rings *rings);
uint32_t fake_rings_poll(struct fake_rings *rings, struct pollfd *ret_fds);
