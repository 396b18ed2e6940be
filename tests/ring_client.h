/*
 * Ring client: a ring for tests, over a raw connection (wire.h) and proto/ring.h's client side.
 *
 * Everything is unmapped and closed by itself at the end of the test.  Every wait has a deadline;
 * what goes wrong fails the test.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "proto/ring.h"
#include "tests/wire.h"

struct ring_client {
    struct wire *wire;
    uint64_t id;
    uint64_t size;
    uint64_t awake_ns;
    uint8_t *data;
    struct ring *queues;
    void *shared; /* the queues' memory once more, for what no client should do */
    size_t shared_size;
    uint64_t sq, cq; /* where in it the two begin */
    int queues_fd, data_fd, doorbell_fd;
};

struct ring_client *ring_client_open(struct wire *wire, uint64_t size);
/* The same of the answer to a ring.open that was sent before. */
struct ring_client *ring_client_opened(struct wire *wire, const msgpack_object *opened);
/* Put a descriptor, or several; one ring of the doorbell at most. */
void ring_client_submit(struct ring_client *client, const struct ring_desc *descs, uint32_t n);
/* The next completion. */
struct ring_completion ring_client_reap(struct ring_client *client);
/* No completion has come. */
void ring_client_is_empty(struct ring_client *client);
void ring_client_close(struct ring_client *client);

/* ---- blocks of 4 KiB, copied ---------------------------------------------------------------- */

#define RING_CLIENT_BLOCK 4096

/* A job that copies them; options beyond inline = false as ", window: 4". */
uint64_t ring_client_open_copy(struct wire *wire, const char *options);
/* n blocks, from one place of the data to another. */
struct ring_desc ring_client_copy(uint64_t job, size_t from, size_t to, uint32_t n);
/* Such a job does as it should: fresh data from the first half of the ring to its second. */
void ring_client_check_works(struct ring_client *client, uint64_t job);
