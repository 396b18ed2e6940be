/*
 * The table of mapped segments: one slot for each id that a work_ref can name.
 *
 * A slot is written under the lock and stays what it is while work names it, because the front end
 * drops a segment only then.  The lock makes the table itself safe, not the memory behind it.
 */
#include "cuda/segments.h"

#include "proto/shm.h"
#include "proto/worker_abi.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define N_SEGMENTS (WORK_REF_SEGMENT(UINT64_MAX) + 1)

struct segment {
    void *base; /* NULL: no such segment */
    size_t size;
};

struct segments {
    pthread_mutex_t lock;
    struct segment slots[N_SEGMENTS];
};

int segments_create(struct segments **ret_segments)
{
    struct segments *segments = calloc(1, sizeof(*segments));

    if (segments == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&segments->lock, NULL);
    *ret_segments = segments;
    return 0;
}

void segments_destroy(struct segments *segments)
{
    if (segments == NULL) {
        return;
    }
    for (uint32_t id = 0; id < N_SEGMENTS; id++) {
        if (segments->slots[id].base != NULL) {
            shm_unmap(segments->slots[id].base, segments->slots[id].size);
        }
    }
    pthread_mutex_destroy(&segments->lock);
    free(segments);
}

static void set(struct segments *segments, uint32_t id, struct segment segment)
{
    pthread_mutex_lock(&segments->lock);
    segments->slots[id] = segment;
    pthread_mutex_unlock(&segments->lock);
}

/* Only the control thread writes slots, so it may read them without the lock. */
int segments_add(struct segments *segments, uint32_t id, int fd, size_t size, void **ret_base)
{
    struct segment segment = {.size = size};
    int error;

    if (id >= N_SEGMENTS) {
        return -ERANGE;
    }
    if (segments_has(segments, id)) {
        return -EEXIST;
    }
    error = shm_map(fd, size, &segment.base);
    if (error < 0) {
        return error;
    }
    set(segments, id, segment);
    *ret_base = segment.base;
    return 0;
}

bool segments_has(const struct segments *segments, uint32_t id)
{
    return id < N_SEGMENTS && segments->slots[id].base != NULL;
}

void segments_drop(struct segments *segments, uint32_t id)
{
    struct segment segment = segments->slots[id];

    set(segments, id, (struct segment){0});
    shm_unmap(segment.base, segment.size);
}

void *segments_whole(struct segments *segments, uint32_t id, uint64_t *ret_size)
{
    struct segment segment = {0};

    if (id < N_SEGMENTS) {
        pthread_mutex_lock(&segments->lock);
        segment = segments->slots[id];
        pthread_mutex_unlock(&segments->lock);
    }
    *ret_size = segment.size;
    return segment.base;
}

void *segments_find(struct segments *segments, uint32_t id, uint64_t offset, uint64_t size)
{
    uint64_t segment_size;
    char *base = segments_whole(segments, id, &segment_size);

    if (base == NULL || offset > segment_size || size > segment_size - offset) {
        return NULL;
    }
    return base + offset;
}
