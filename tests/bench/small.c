/*
 * Small: slot i belongs to job i / LIMIT_WINDOW, since one job cannot have so many pushes under
 * way; a slot is sent again, with others, as soon as it is back.  See small.h.
 */
#include "tests/bench/small.h"

#include "proto/limits.h"
#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/ring_stream.h"
#include "tests/bench/words.h"

#include <string.h>

#define JOBS_MAX (SMALL_WINDOW_MAX / LIMIT_WINDOW)
#define BATCH    64u
#define WAIT_NS  UINT64_C(100000000)

struct small {
    const struct small_shape *shape;
    struct ring_stream stream;
    struct ring_stream_job jobs[JOBS_MAX];
    struct words words;
    uint64_t numbers[SMALL_WINDOW_MAX]; /* of the words that each slot has */
    uint64_t n_numbers;
    uint32_t free_slots[SMALL_WINDOW_MAX];
    uint32_t n_free;
    bool is_touched;
};

static void write_slot(struct small *small, uint32_t slot)
{
    small->numbers[slot] = small->n_numbers++;
    words_write(&small->words, small->numbers[slot], small->stream.in + slot * SMALL_SIZE,
                SMALL_SIZE);
}

static void check_slot(const struct small *small, uint32_t slot)
{
    words_check(&small->words, small->numbers[slot], "small job",
                small->stream.out + slot * SMALL_SIZE, SMALL_SIZE);
}

static void prepare(void *state, const struct party_order *order)
{
    struct small *small = state;

    small->is_touched = order->what == SMALL_TOUCHED;
    words_fill(&small->words);
    for (uint32_t slot = 0; slot < small->shape->window; slot++) {
        write_slot(small, slot);
        small->free_slots[slot] = slot;
    }
    small->n_free = small->shape->window;
    bench_poison(small->stream.out, small->shape->window * SMALL_SIZE);
}

static void send_some(struct small *small)
{
    uint32_t n = MIN(small->n_free, BATCH);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = small->free_slots[--small->n_free];

        if (small->is_touched) {
            write_slot(small, slot);
        }
        ring_stream_put(&small->stream, &small->jobs[slot / LIMIT_WINDOW], slot * SMALL_SIZE,
                        SMALL_SIZE);
    }
    if (n > 0) {
        ring_stream_show(&small->stream);
    }
}

/* Returns how many were done. */
static uint32_t take_some(struct small *small, struct party_answer *answer)
{
    struct ring_completion completions[BATCH];
    uint32_t n = ring_stream_take(&small->stream, completions, BATCH);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)(completions[i].tag / SMALL_SIZE);

        if (completions[i].status != STATUS_OK) {
            bench_fail("a small job failed: %s", status_name(completions[i].status));
        }
        answer->n_as_normal += completions[i].priority != small->shape->priority;
        if (small->is_touched) {
            check_slot(small, slot);
        }
        small->free_slots[small->n_free++] = slot;
    }
    return n;
}

static void run(void *state, const struct party_order *order, struct party_answer *answer)
{
    struct small *small = state;
    uint32_t window = small->shape->window;
    uint64_t now = now_ns();

    while (now < order->to_ns || small->n_free < window) {
        uint32_t n;

        if (now < order->to_ns) {
            send_some(small);
        }
        n = take_some(small, answer);
        now = now_ns();
        if (now >= order->from_ns && now < order->to_ns) {
            answer->n_bytes += (uint64_t)n * SMALL_SIZE;
        }
        if (n == 0 && small->n_free < window && !small->shape->is_spinning) {
            ring_stream_wait(&small->stream, now + WAIT_NS);
        }
    }
    for (uint32_t slot = 0; slot < window && !small->is_touched; slot++) {
        check_slot(small, slot);
    }
}

static void serve(int fd, struct party_answer *answer, const void *shape)
{
    const struct msg_op copy = {.name = "copy",
                                .n_values = 1,
                                .values = {{.name = "size", .kind = VALUE_INT, .i = SMALL_SIZE}}};
    static struct small small;
    const struct party_side side = {prepare, run, &small};

    small.shape = shape;
    ring_stream_open(&small.stream, small.shape->socket_path,
                     2 * SMALL_WINDOW_MAX * (uint64_t)SMALL_SIZE);
    for (uint32_t i = 0; i < div_round_up(small.shape->window, LIMIT_WINDOW); i++) {
        ring_stream_prepare(&small.stream, &copy, small.shape->priority, LIMIT_WINDOW,
                            &small.jobs[i]);
        if (small.jobs[i].credit < LIMIT_WINDOW) {
            bench_fail("the daemon lets a job have %u pushes under way", small.jobs[i].credit);
        }
    }
    party_serve(fd, answer, &side);
}

void small_start(struct party *party, const struct small_shape *shape)
{
    party_fork(party, serve, shape);
    party_wait(party);
}
