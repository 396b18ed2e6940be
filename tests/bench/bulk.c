/*
 * Bulk: as many pushes under way as there are slots, each sent again as soon as it is back, or when
 * the rate says so.  See bulk.h.
 */
#include "tests/bench/bulk.h"

#include "proto/util.h"
#include "tests/bench/bench.h"
#include "tests/bench/calls.h"
#include "tests/bench/ring_stream.h"
#include "tests/bench/subject.h"

#include <string.h>

#define SAMPLE  256u /* of so many pushes one is looked at in the run */
#define WAIT_NS UINT64_C(100000000)

struct bulk {
    const struct bulk_shape *shape;
    struct subject subjects[BULK_COUNT];
    struct ring_stream stream;
    struct ring_stream_job jobs[BULK_COUNT];
    struct calls calls;
    uint8_t *in;
    uint8_t *out;
    uint32_t n_slots;

    /* A run. */
    const struct subject *subject;
    const struct party_order *order;
    struct party_answer *answer;
    bool has_result[BULK_WINDOW_MAX]; /* to be compared */
    uint32_t free_slots[BULK_WINDOW_MAX];
    uint32_t n_free;
    uint64_t n_sent;
    uint64_t n_back;
    uint64_t start_ns;
};

static size_t size_of(const struct bulk *bulk)
{
    return bulk->n_slots * bulk->shape->push_size;
}

static void prepare(void *state, const struct party_order *order)
{
    struct bulk *bulk = state;

    bulk->subject = &bulk->subjects[order->what];
    subject_fill(bulk->in, size_of(bulk));
    bench_poison(bulk->out, size_of(bulk));
}

static void check(const struct bulk *bulk, uint32_t slot)
{
    size_t at = slot * bulk->shape->push_size;

    bulk->subject->check("bulk", bulk->out + at, bulk->in + at, bulk->shape->push_size);
}

static void note(struct bulk *bulk, uint64_t size)
{
    uint64_t now = now_ns();

    if (now >= bulk->order->from_ns && now < bulk->order->to_ns) {
        bulk->answer->n_bytes += size;
    }
}

static bool is_over(const struct bulk *bulk, uint64_t now)
{
    return now >= bulk->order->to_ns + PARTY_AFTER_NS;
}

/* ---- in a ring ------------------------------------------------------------------------------ */

/* When the next push may leave: all of them have a place in the schedule. */
static uint64_t next_ns(const struct bulk *bulk)
{
    double sent = (double)bulk->n_sent * (double)bulk->shape->push_size;

    return bulk->order->rate > 0 ? bulk->start_ns + (uint64_t)(sent / bulk->order->rate * 1e9) : 0;
}

static void send_some(struct bulk *bulk, uint64_t now)
{
    size_t size = bulk->shape->push_size;

    while (bulk->n_free > 0 && next_ns(bulk) <= now && !is_over(bulk, now)) {
        uint32_t slot = bulk->free_slots[--bulk->n_free];

        bulk->has_result[slot] = false;
        ring_stream_send(&bulk->stream, &bulk->jobs[bulk->order->what], slot * size, size);
        bulk->n_sent++;
    }
}

/* An output that is not made would still be there from the push before: it is poisoned. */
static void take_one(struct bulk *bulk, const struct ring_completion *completion)
{
    size_t size = bulk->shape->push_size;
    uint32_t slot = (uint32_t)(completion->tag / size);

    if (completion->status == STATUS_BUSY) {
        bulk->answer->n_refused++;
    } else if (completion->status != STATUS_OK) {
        bench_fail("a bulk push failed: %s", status_name(completion->status));
    } else {
        note(bulk, size);
        bulk->has_result[slot] = true;
        if (bulk->n_back++ % SAMPLE == SAMPLE - 1) {
            check(bulk, slot);
            bench_poison(bulk->out + slot * size, size);
            bulk->has_result[slot] = false;
        }
    }
    bulk->free_slots[bulk->n_free++] = slot;
}

static void take_some(struct bulk *bulk)
{
    struct ring_completion completions[BULK_WINDOW_MAX];
    uint32_t n = ring_stream_take(&bulk->stream, completions, BULK_WINDOW_MAX);

    for (uint32_t i = 0; i < n; i++) {
        take_one(bulk, &completions[i]);
    }
    if (n == 0) {
        uint64_t now = now_ns(), next = next_ns(bulk);

        ring_stream_wait(&bulk->stream, bulk->n_free > 0 && next > now ? next : now + WAIT_NS);
    }
}

static void run_ring(struct bulk *bulk)
{
    for (bulk->n_free = 0; bulk->n_free < bulk->n_slots; bulk->n_free++) {
        bulk->free_slots[bulk->n_free] = bulk->n_free;
        bulk->has_result[bulk->n_free] = false;
    }
    bulk->n_sent = bulk->n_back = 0;
    bulk->start_ns = now_ns();
    while (!is_over(bulk, now_ns()) || bulk->n_free < bulk->n_slots) {
        send_some(bulk, now_ns());
        take_some(bulk);
    }
    for (uint32_t slot = 0; slot < bulk->n_slots; slot++) {
        if (bulk->has_result[slot]) {
            check(bulk, slot);
        }
    }
}

/* ---- through the socket --------------------------------------------------------------------- */

static void run_socket(struct bulk *bulk)
{
    while (!is_over(bulk, now_ns())) {
        calls_run(&bulk->calls, bulk->in, bulk->out, bulk->shape->push_size, bulk->n_slots,
                  bulk->n_slots);
        note(bulk, size_of(bulk));
    }
    bulk->subject->check("inline bulk", bulk->out, bulk->in, size_of(bulk));
}

static void run(void *state, const struct party_order *order, struct party_answer *answer)
{
    struct bulk *bulk = state;

    bulk->order = order;
    bulk->answer = answer;
    if (bulk->shape->is_inline) {
        run_socket(bulk);
    } else {
        run_ring(bulk);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct msg_op op_of(const struct subject *subject)
{
    struct msg_op op = {.n_values = 1, .values = {{.kind = VALUE_INT, .i = subject->value}}};

    snprintf(op.name, sizeof(op.name), "%s", subject->op);
    snprintf(op.values[0].name, sizeof(op.values[0].name), "%s", subject->param);
    return op;
}

static void open_ring(struct bulk *bulk)
{
    const struct bulk_shape *shape = bulk->shape;

    ring_stream_open(&bulk->stream, shape->socket_path, 2 * shape->window * shape->push_size);
    bulk->stream.device = shape->device;
    bulk->in = bulk->stream.in;
    bulk->out = bulk->stream.out;
    bulk->n_slots = shape->window;
    for (enum bulk_what what = 0; what < BULK_COUNT; what++) {
        const struct msg_op op = op_of(&bulk->subjects[what]);

        ring_stream_prepare(&bulk->stream, &op, PRIORITY_BULK, shape->window, &bulk->jobs[what]);
        bulk->n_slots = MIN(bulk->n_slots, bulk->jobs[what].credit);
    }
}

static void open_socket(struct bulk *bulk)
{
    const struct bulk_shape *shape = bulk->shape;
    const struct msg_run run_copy = {.op = op_of(&bulk->subjects[BULK_COPY]),
                                     .options = {.priority = PRIORITY_BULK},
                                     .n_data = 1};

    bulk->n_slots = shape->window;
    bulk->in = bench_allocate(size_of(bulk));
    bulk->out = bench_allocate(size_of(bulk));
    calls_open(&bulk->calls, shape->socket_path);
    calls_prepare_run(&bulk->calls, &run_copy);
}

static void serve(int fd, struct party_answer *answer, const void *shape)
{
    static struct bulk bulk;
    const struct party_side side = {prepare, run, &bulk};

    bulk.shape = shape;
    bulk.subjects[BULK_COPY] = subject_copy;
    bulk.subjects[BULK_ITERATE] = subject_iterate;
    bulk.subjects[BULK_ITERATE].value = bulk.shape->iterate_n;
    if (bulk.shape->uid != 0) {
        bench_become(bulk.shape->uid);
    }
    if (bulk.shape->is_inline) {
        open_socket(&bulk);
    } else {
        open_ring(&bulk);
    }
    party_serve(fd, answer, &side);
}

void bulk_start(struct party *party, const struct bulk_shape *shape)
{
    party_fork(party, serve, shape);
    party_wait(party);
}
