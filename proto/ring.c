/*
 * The queues of a ring.  Each line is 64 bytes, so that no two indices share one:
 *
 *     header                   magic, layout, first index, entries, offsets    set once, by create
 *     front end's sleep line   is_sleeping
 *     client's sleep line      is_sleeping
 *     submission queue:
 *         tail line                  the client writes, the front end reads
 *         RING_ENTRIES descriptors   the client writes, the front end reads
 *     completion queue:
 *         tail line                  the front end writes, the client reads
 *         head line                  the client writes, the front end reads
 *         RING_ENTRIES completions   the front end writes, the client reads
 *
 * The submission queue has no shared head: a place in it is free again when the completion of what
 * stood there has been reaped, which the client knows best.  Ordering and sleeping: shared_words.h.
 */
#include "proto/ring.h"

#include "proto/shared_words.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#define RING_MAGIC 0x52505047u /* "GPPR" */
/* Completions whose lines are on the way while one is written: as many as an x86 core waits for. */
#define LINES_AHEAD 16u

struct header {
    uint32_t magic;
    uint32_t layout;
    uint32_t first_index; /* of both queues */
    uint32_t entries;
    uint32_t sq, cq; /* where the queues begin */
    uint8_t zero[SHARED_LINE_SIZE - 24];
};
_Static_assert(sizeof(struct header) == SHARED_LINE_SIZE, "the header is one line");

struct submission_queue {
    struct shared_line tail;
    struct ring_desc entries[RING_ENTRIES];
};

struct completion_queue {
    struct shared_line tail;
    struct shared_line head;
    struct ring_completion entries[RING_ENTRIES];
};

struct layout {
    struct header header;
    struct shared_line front_end_sleep;
    struct shared_line client_sleep;
    struct submission_queue sq;
    struct completion_queue cq;
};

#define AT(type, field, offset)                                                                    \
    _Static_assert(offsetof(struct type, field) == (offset), "as PROTOCOL.md draws it")

AT(header, magic, 0);
AT(header, layout, 4);
AT(header, first_index, 8);
AT(header, entries, 12);
AT(header, sq, 16);
AT(header, cq, 20);
AT(layout, front_end_sleep, 64);
AT(layout, client_sleep, 128);
AT(submission_queue, tail, 0);
AT(submission_queue, entries, 64);
AT(completion_queue, tail, 0);
AT(completion_queue, head, 64);
AT(completion_queue, entries, 128);
AT(ring_desc, job, 0);
AT(ring_desc, n_records, 4);
AT(ring_desc, tag, 8);
AT(ring_desc, in, 16);
AT(ring_desc, out, 32);
AT(ring_desc, varying_size, 40);
AT(ring_desc, tail_size, 44);
AT(ring_desc, deadline_ns, 48);
AT(ring_desc, flags, 56);
AT(ring_completion, tag, 0);
AT(ring_completion, job, 8);
AT(ring_completion, n_records, 12);
AT(ring_completion, out_size, 16);
AT(ring_completion, devices, 24);
AT(ring_completion, status, 28);
AT(ring_completion, priority, 30);
AT(ring_completion, has_timing, 31);
AT(ring_completion, queue_ns, 32);
AT(ring_completion, in_ns, 40);
AT(ring_completion, compute_ns, 48);
AT(ring_completion, out_ns, 56);
_Static_assert(sizeof(struct layout) % SHARED_LINE_SIZE == 0, "nothing but lines");
_Static_assert((RING_ENTRIES & (RING_ENTRIES - 1)) == 0,
               "free-running indices wrap at 2^32, a multiple of the entries");

struct ring {
    struct layout *shared;
    int fd;              /* the creator's; -1 in a client */
    uint32_t tail;       /* the next index that this side writes ... */
    uint32_t shown;      /* ... and the tail that the other side sees */
    uint32_t head;       /* the next index that this side reads */
    uint32_t seen;       /* front end: the tail as last looked at ... */
    uint32_t expected;   /* ... and the next index to expect */
    uint32_t n_unreaped; /* client: submitted, and no completion of it reaped */
};

size_t ring_size(void)
{
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE);

    return div_round_up(sizeof(struct layout), page_size) * page_size;
}

uint32_t ring_sq_offset(void)
{
    return offsetof(struct layout, sq);
}

uint32_t ring_cq_offset(void)
{
    return offsetof(struct layout, cq);
}

static void start_at(struct ring *ring, uint32_t first_index)
{
    ring->tail = ring->shown = ring->head = first_index;
}

int ring_create_at(uint32_t first_index, struct ring **ret_ring)
{
    _cleanup_(free_pointer) struct ring *ring = calloc(1, sizeof(*ring));
    _cleanup_(close_fd) int fd = -1;
    void *base;
    int r;

    if (ring == NULL) {
        return -ENOMEM;
    }
    fd = shm_create("gpupipe-ring", ring_size());
    if (fd < 0) {
        return fd;
    }
    r = shm_map(fd, ring_size(), &base);
    if (r < 0) {
        return r;
    }
    ring->shared = base;
    ring->shared->header = (struct header){.magic = RING_MAGIC,
                                           .layout = RING_LAYOUT,
                                           .first_index = first_index,
                                           .entries = RING_ENTRIES,
                                           .sq = ring_sq_offset(),
                                           .cq = ring_cq_offset()};
    ring->shared->sq.tail.value = first_index;
    ring->shared->cq.tail.value = ring->shared->cq.head.value = first_index;
    start_at(ring, first_index);
    ring->fd = steal_fd(&fd);
    *ret_ring = STEAL(ring);
    return 0;
}

int ring_create(struct ring **ret_ring)
{
    return ring_create_at(0, ret_ring);
}

void ring_destroy(struct ring *ring)
{
    if (ring == NULL) {
        return;
    }
    shm_unmap(ring->shared, ring_size());
    close_fd(&ring->fd);
    free(ring);
}

void ring_clear(struct ring *ring)
{
    shared_store(&ring->shared->header.magic, 0, __ATOMIC_SEQ_CST); /* before all else is zero */
    shm_punch(ring->fd, ring_size());
}

int ring_fd(const struct ring *ring)
{
    return ring->fd;
}

/* ---- front end ----------------------------------------------------------------------------- */

int ring_take(struct ring *ring, struct ring_desc *ret_descs, uint32_t max)
{
    struct submission_queue *sq = &ring->shared->sq;

    shared_expect(&sq->entries[ring->head % RING_ENTRIES]);
    uint32_t n_ready = shared_load(&sq->tail.value, __ATOMIC_ACQUIRE) - ring->head;
    uint32_t n = MIN(n_ready, max);

    if (n_ready > RING_ENTRIES) {
        return RING_BROKEN;
    }
    ring->seen = ring->head + n_ready;
    ring->expected = ring->head + n;
    for (uint32_t i = 0; i < n; i++) {
        shared_load_words(&ret_descs[i], &sq->entries[ring->head++ % RING_ENTRIES],
                          sizeof(*ret_descs));
    }
    return (int)n;
}

void ring_expect(struct ring *ring)
{
    if (ring->expected != ring->seen) {
        shared_expect(&ring->shared->sq.entries[ring->expected++ % RING_ENTRIES]);
    }
}

int ring_room(const struct ring *ring)
{
    /* Acquire: what the client read of the places that are free again, it has read. */
    uint32_t head = shared_load(&ring->shared->cq.head.value, __ATOMIC_ACQUIRE);

    return ring->tail - head > RING_ENTRIES ? RING_BROKEN
                                            : (int)(RING_ENTRIES - (ring->tail - head));
}

void ring_complete(struct ring *ring, const struct ring_completion *completions, uint32_t n)
{
    struct ring_completion *entries = ring->shared->cq.entries;

    for (uint32_t i = 0; i < n; i++) {
        shared_expect_write(&entries[(ring->tail + LINES_AHEAD) % RING_ENTRIES]);
        shared_store_words(&entries[ring->tail++ % RING_ENTRIES], &completions[i],
                           sizeof(completions[i]));
    }
}

bool ring_publish(struct ring *ring)
{
    if (ring->shown == ring->tail) {
        return false;
    }
    ring->shown = ring->tail;
    return shared_publish(&ring->shared->cq.tail, ring->tail, &ring->shared->client_sleep);
}

bool ring_sleep(struct ring *ring)
{
    return shared_sleep(&ring->shared->front_end_sleep, &ring->shared->sq.tail, ring->head);
}

void ring_awake(struct ring *ring)
{
    shared_awake(&ring->shared->front_end_sleep);
}

/* ---- client -------------------------------------------------------------------------------- */

static bool header_is_right(const struct header *header)
{
    return header->magic == RING_MAGIC && header->layout == RING_LAYOUT &&
           header->entries == RING_ENTRIES && header->sq == ring_sq_offset() &&
           header->cq == ring_cq_offset();
}

int ring_attach(int fd, struct ring **ret_ring)
{
    _cleanup_(free_pointer) struct ring *ring = calloc(1, sizeof(*ring));
    struct header header;
    struct stat stat;
    void *base;
    int r;

    if (ring == NULL) {
        return -ENOMEM;
    }
    if (fstat(fd, &stat) < 0) {
        return -errno;
    }
    if ((uint64_t)stat.st_size != ring_size()) {
        return -EINVAL;
    }
    r = shm_map(fd, ring_size(), &base);
    if (r < 0) {
        return r;
    }
    ring->shared = base;
    shared_load_words(&header, &ring->shared->header, sizeof(header));
    if (!header_is_right(&header)) {
        shm_unmap(base, ring_size());
        return -EINVAL;
    }
    start_at(ring, header.first_index);
    ring->fd = -1;
    *ret_ring = STEAL(ring);
    return 0;
}

uint32_t ring_submit_room(const struct ring *ring)
{
    return RING_ENTRIES - ring->n_unreaped;
}

void ring_submit(struct ring *ring, const struct ring_desc *desc)
{
    assert(ring->n_unreaped < RING_ENTRIES);
    shared_store_words(&ring->shared->sq.entries[ring->tail++ % RING_ENTRIES], desc, sizeof(*desc));
    ring->n_unreaped++;
}

bool ring_submit_publish(struct ring *ring)
{
    if (ring->shown == ring->tail) {
        return false;
    }
    ring->shown = ring->tail;
    return shared_publish(&ring->shared->sq.tail, ring->tail, &ring->shared->front_end_sleep);
}

/* What was read of it before was there if it is not. */
static bool is_cleared(const struct ring *ring)
{
#ifndef __SANITIZE_THREAD__ /* which knows no fences, and has nothing to say of atomic words */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
    return shared_load(&ring->shared->header.magic, __ATOMIC_RELAXED) != RING_MAGIC;
}

int ring_reap(struct ring *ring, struct ring_completion *ret_completions, uint32_t max)
{
    struct completion_queue *cq = &ring->shared->cq;

    shared_expect(&cq->entries[ring->head % RING_ENTRIES]);
    uint32_t n_ready = shared_load(&cq->tail.value, __ATOMIC_ACQUIRE) - ring->head;
    uint32_t n = MIN(n_ready, max);

    if (n_ready > ring->n_unreaped) {
        return is_cleared(ring) ? RING_CLEARED : RING_BROKEN;
    }
    for (uint32_t i = 0; i < n; i++) {
        shared_load_words(&ret_completions[i], &cq->entries[(ring->head + i) % RING_ENTRIES],
                          sizeof(*ret_completions));
    }
    if (n > 0 && is_cleared(ring)) {
        return RING_CLEARED;
    }
    ring->head += n;
    if (n > 0) { /* who looks again and again leaves the line where it is */
        ring->n_unreaped -= n;
        shared_store(&cq->head.value, ring->head, __ATOMIC_RELEASE);
    }
    return (int)n;
}

bool ring_client_sleep(struct ring *ring)
{
    return shared_sleep(&ring->shared->client_sleep, &ring->shared->cq.tail, ring->head);
}

void ring_client_awake(struct ring *ring)
{
    shared_awake(&ring->shared->client_sleep);
}
