/*
 * Ring way: see ring_way.h.
 */
#include "tests/bench/ring_way.h"

#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/subject.h"

static void send_slot(void *state, uint32_t slot)
{
    struct ring_way *way = state;

    ring_stream_send(way->stream, &way->job, slot * way->size, way->size);
}

static uint32_t take_slots(void *state, uint32_t *ret_slots, uint32_t max)
{
    struct ring_completion completions[PACE_SLOTS_MAX];
    struct ring_way *way = state;
    uint32_t n = ring_stream_take(way->stream, completions, MIN(max, PACE_SLOTS_MAX));

    for (uint32_t i = 0; i < n; i++) {
        if (completions[i].status != STATUS_OK) {
            bench_fail("an urgent job failed: %s", status_name(completions[i].status));
        }
        way->n_as_normal += completions[i].priority != PRIORITY_URGENT;
        ret_slots[i] = (uint32_t)(completions[i].tag / way->size);
    }
    return n;
}

static void wait_for_some(void *state, uint64_t until_ns)
{
    struct ring_way *way = state;

    ring_stream_wait(way->stream, until_ns);
}

void ring_way_open(struct ring_way *way, struct ring_stream *stream, bool is_spinning)
{
    const struct msg_op copy = {
        .name = "copy",
        .n_values = 1,
        .values = {{.name = "size", .kind = VALUE_INT, .i = subject_copy.value}}};

    *way = (struct ring_way){.stream = stream, .is_spinning = is_spinning};
    ring_stream_prepare(stream, &copy, PRIORITY_URGENT, PACE_SLOTS_MAX, &way->job);
}

void ring_way_close(struct ring_way *way)
{
    if (way->pace != NULL) {
        pace_destroy(way->pace);
    }
}

void ring_way_prepare(struct ring_way *way, size_t size, double rate)
{
    const struct pace_plan plan = {
        .way = {send_slot, take_slots, way->is_spinning ? NULL : wait_for_some, way},
        .in = way->stream->in,
        .out = way->stream->out,
        .size = size,
        .n_slots = MIN(way->job.credit, PACE_SLOTS_MAX),
        .rate = rate,
    };

    ring_way_close(way);
    way->size = size;
    pace_create(&plan, &way->pace);
}

void ring_way_run(struct ring_way *way, uint64_t from_ns, uint64_t to_ns,
                  struct histogram *histogram)
{
    pace_run(way->pace, from_ns, to_ns, histogram);
}
