/*
 * Ring bench: both sides of a ring's queues, and their memory once more, as the other process has
 * it.  The places in it are the numbers that PROTOCOL.md draws, not those of ring.c.  All of it is
 * undone at the test's end.
 *
 * Threads: ring_bench_new() from the thread that runs the tests; each side has one of its own.
 */
#pragma once

#include "proto/ring.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes from the start of the queues' memory; of the queues, from where each begins. */
enum ring_place {
    RING_AT_FIRST_INDEX = 8,
    RING_AT_ENTRIES = 12,
    RING_AT_SQ = 16,
    RING_AT_CQ = 20,
    RING_AT_FRONT_END_SLEEP = 64,
    RING_AT_CLIENT_SLEEP = 128,
    RING_SQ_TAIL = 0,
    RING_SQ_DESCS = 64,
    RING_CQ_TAIL = 0,
    RING_CQ_HEAD = 64,
    RING_CQ_COMPLETIONS = 128,
};

struct ring_bench {
    struct ring *front, *client;
    uint8_t *shared;
};

struct ring_bench *ring_bench_new(uint32_t first_index);
/* A 32-bit word of the shared memory, as an atomic is loaded and stored. */
uint32_t ring_bench_get(const struct ring_bench *bench, size_t at);
void ring_bench_set(const struct ring_bench *bench, size_t at, uint32_t value);
/* The indices, wherever the header says that the queues begin. */
size_t ring_bench_sq(const struct ring_bench *bench, size_t at);
size_t ring_bench_cq(const struct ring_bench *bench, size_t at);
