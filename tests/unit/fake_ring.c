/*
 * Fake ring: see fake_ring.h.
 */
#include "tests/unit/fake_ring.h"

#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/random.h"

#include <stdio.h>

struct fake_ring {
    uint64_t id; /* 0: none */
    struct ring *queues;
    uint8_t *data;
    uint64_t size;
    int doorbell_fd;
};

struct held_desc {
    struct fake_ring *ring;
    struct ring_desc desc;
    enum fake_fate fate;
    bool is_lie;
};

struct fake_rings {
    const struct fake_script *script;
    struct fake_rings_owner owner;
    struct fake_ring ring[FAKE_RINGS];
    struct held_desc held[RING_ENTRIES];
    uint32_t n_held;
    uint64_t last_id;
    int64_t n_taken;
};

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# fake ring, line %d: not true: %s\n", __LINE__, #condition);         \
            _exit(1 + __LINE__ % 200);                                                             \
        }                                                                                          \
    } while (0)

void fake_rings_create(const struct fake_script *script, const struct fake_rings_owner *owner,
                       struct fake_rings **ret_rings)
{
    struct fake_rings *rings = calloc(1, sizeof(*rings));

    MUST(rings != NULL);
    rings->script = script;
    rings->owner = *owner;
    rings->last_id = 7;
    *ret_rings = rings;
}

void fake_rings_open(struct fake_rings *rings, uint64_t size, struct msg_ring_opened *ret_opened,
                     int ret_fds[3])
{
    struct fake_ring *ring = rings->ring;
    int ends[2];
    void *base;

    while (ring->id != 0) {
        ring++;
        MUST(ring < rings->ring + FAKE_RINGS);
    }
    ring->id = ++rings->last_id;
    ring->size = size;
    /* Indices that are about to wrap. */
    MUST(ring_create_at(UINT32_MAX - 3, &ring->queues) == 0);
    ret_fds[0] = ring_fd(ring->queues);
    ret_fds[1] = shm_create("fake-ring", size);
    MUST(ret_fds[1] >= 0 && shm_map(ret_fds[1], size, &base) == 0);
    ring->data = base;
    random_bytes(ring->data, size);
    MUST(channel_pair(true, ends) == 0);
    ring->doorbell_fd = ends[0];
    ret_fds[2] = ends[1];
    *ret_opened = (struct msg_ring_opened){
        .ring = ring->id,
        .size = size,
        .layout = RING_LAYOUT,
        .entries = RING_ENTRIES,
        .sq = ring_sq_offset(),
        .cq = ring_cq_offset(),
        .align = RING_ALIGN,
        .awake_ns = rings->script->is_awake ? 1 : 0,
    };
}

static bool is_idle(const struct fake_rings *rings, struct fake_ring *ring)
{
    for (uint32_t i = 0; i < rings->n_held; i++) {
        if (rings->held[i].ring == ring) {
            return false;
        }
    }
    return ring_sleep(ring->queues);
}

void fake_rings_clear(struct fake_rings *rings)
{
    for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
        if (ring->id != 0) {
            ring_clear(ring->queues);
        }
    }
}

bool fake_rings_close(struct fake_rings *rings, uint64_t id, bool is_broken)
{
    for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
        if (ring->id == id) {
            MUST(is_broken || is_idle(rings, ring));
            ring_destroy(ring->queues);
            shm_unmap(ring->data, ring->size);
            close(ring->doorbell_fd);
            ring->id = 0;
            return true;
        }
    }
    return false;
}

static void work(struct fake_rings *rings, const struct held_desc *held,
                 struct ring_completion *completion)
{
    const struct fake_script *script = rings->script;
    uint64_t size = (uint64_t)held->desc.n_records * script->record_size;
    uint8_t *in = held->ring->data + (uint64_t)held->desc.in[0] * RING_ALIGN;
    uint8_t *out = held->ring->data + (uint64_t)held->desc.out[0] * RING_ALIGN;

    MUST((uint64_t)held->desc.in[0] * RING_ALIGN + size <= held->ring->size);
    rings->owner.on_done(rings->owner.owner, &held->desc, in, size);
    if (!script->is_reduce) {
        MUST((uint64_t)held->desc.out[0] * RING_ALIGN + size <= held->ring->size);
        for (uint64_t i = 0; i < size; i++) {
            out[i] = in[i] ^ FAKE_XOR;
        }
        completion->out_size[0] = (uint32_t)size;
    }
}

static void complete(struct fake_rings *rings, const struct held_desc *held)
{
    static const enum status statuses[] = {[FAKE_DONE] = STATUS_OK,
                                           [FAKE_REFUSED] = STATUS_RANGE,
                                           [FAKE_FAILED] = STATUS_KERNEL_FAULT};
    struct ring_completion completion = {
        .tag = held->desc.tag + (held->is_lie ? RING_ENTRIES : 0),
        .job = held->desc.job,
        .n_records = held->desc.n_records,
        .devices = 1,
        .status = (uint16_t)statuses[held->fate],
        .priority = PRIORITY_NORMAL,
        .has_timing = 1,
        .queue_ns = 1,
        .in_ns = 2,
        .compute_ns = 3,
        .out_ns = 4,
    };

    if (held->fate == FAKE_DONE) {
        work(rings, held, &completion);
    }
    MUST(ring_room(held->ring->queues) > 0);
    ring_complete(held->ring->queues, &completion, 1);
}

static void publish(struct fake_rings *rings)
{
    for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
        if (ring->id != 0 && (ring_publish(ring->queues) || rings->script->is_bell_eager)) {
            channel_ring(ring->doorbell_fd);
        }
    }
}

/* In an order of chance; each is shown by itself, or some together. */
static void answer_held(struct fake_rings *rings)
{
    bool has_failed = false;

    while (rings->n_held > 0) {
        struct held_desc *held = &rings->held[random_below(rings->n_held)];

        complete(rings, held);
        has_failed |= held->fate == FAKE_FAILED;
        *held = rings->held[--rings->n_held];
        if (has_failed && rings->script->is_done_first) {
            rings->owner.on_failed(rings->owner.owner);
            usleep(1000); /* the client gets to see that first */
            has_failed = false;
        }
        if (random_below(2) == 0) {
            publish(rings);
        }
    }
    publish(rings);
    if (has_failed) {
        rings->owner.on_failed(rings->owner.owner);
    }
}

static void take(struct fake_rings *rings, struct fake_ring *ring)
{
    struct ring_desc desc;
    int n;

    while ((n = ring_take(ring->queues, &desc, 1)) == 1) {
        struct held_desc held = {.ring = ring, .desc = desc};

        held.is_lie = rings->n_taken++ == rings->script->lie_seq;
        held.fate = rings->owner.on_taken(rings->owner.owner, &desc);
        if (held.fate == FAKE_BREAKS) {
            answer_held(rings);
            rings->owner.on_broken(rings->owner.owner, ring->id);
            fake_rings_close(rings, ring->id, true);
            return;
        }
        rings->held[rings->n_held++] = held;
        if (rings->n_held == MAX(rings->script->batch, 1u)) {
            answer_held(rings);
        }
    }
    MUST(n == 0);
}

void fake_rings_serve(struct fake_rings *rings)
{
    bool has_more;

    do {
        for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
            if (ring->id != 0) {
                channel_drain(ring->doorbell_fd, NULL);
                ring_awake(ring->queues);
                take(rings, ring);
            }
        }
        usleep(rings->script->nap_us);
        answer_held(rings);
        has_more = false;
        for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
            has_more |= ring->id != 0 && !ring_sleep(ring->queues);
        }
    } while (has_more);
}

bool fake_rings_are_idle(struct fake_rings *rings)
{
    for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
        if (ring->id != 0 && !is_idle(rings, ring)) {
            return false;
        }
    }
    return true;
}

uint32_t fake_rings_poll(struct fake_rings *rings, struct pollfd *ret_fds)
{
    uint32_t n = 0;

    for (struct fake_ring *ring = rings->ring; ring < rings->ring + FAKE_RINGS; ring++) {
        if (ring->id != 0) {
            ret_fds[n++] = (struct pollfd){.fd = ring->doorbell_fd, .events = POLLIN};
        }
    }
    return n;
}
