/*
 * Ring way: urgent jobs of `copy` in an open loop (pace.h) through a ring.
 *
 * Thread: its caller's.
 */
#pragma once

#include "tests/bench/pace.h"
#include "tests/bench/ring_stream.h"

#include <stdbool.h>

struct ring_way {
    struct ring_stream *stream;
    struct ring_stream_job job;
    bool is_spinning;
    size_t size;
    struct pace *pace;
    uint64_t n_as_normal; /* jobs that were not served as urgent: the user had had his share */
};

/* The ring holds twice PACE_SLOTS_MAX jobs of the largest size. */
void ring_way_open(struct ring_way *way, struct ring_stream *stream, bool is_spinning);
void ring_way_close(struct ring_way *way);

/* Fresh data. */
void ring_way_prepare(struct ring_way *way, size_t size, double rate);
/* As pace_run(). */
void ring_way_run(struct ring_way *way, uint64_t from_ns, uint64_t to_ns,
                  struct histogram *histogram);
