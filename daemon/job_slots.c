/*
 * Job slots: a mapped memfd and a stack of free slot numbers.
 */
#include "daemon/job_slots.h"

#include "proto/shm.h"
#include "proto/util.h"

#include <errno.h>

#define BLOCK_SIZE (LIMIT_JOB_SLOTS * sizeof(struct job_block))

struct job_slots {
    int fd;
    struct job_block *blocks;
    uint32_t n_free;
    uint32_t free[LIMIT_JOB_SLOTS];
};

int job_slots_create(struct job_slots **ret_slots)
{
    struct job_slots *slots = calloc(1, sizeof(*slots));
    void *base = NULL;
    int r;

    if (slots == NULL) {
        return -ENOMEM;
    }
    slots->fd = r = shm_create("gpupipe-jobs", BLOCK_SIZE);
    if (r >= 0) {
        r = shm_map(slots->fd, BLOCK_SIZE, &base);
    }
    slots->blocks = base;
    if (r < 0) {
        job_slots_destroy(slots);
        return r;
    }
    for (uint32_t i = 0; i < LIMIT_JOB_SLOTS; i++) {
        slots->free[slots->n_free++] = LIMIT_JOB_SLOTS - 1 - i;
    }
    *ret_slots = slots;
    return 0;
}

void job_slots_destroy(struct job_slots *slots)
{
    if (slots == NULL) {
        return;
    }
    if (slots->blocks != NULL) {
        shm_unmap(slots->blocks, BLOCK_SIZE);
    }
    close_fd(&slots->fd);
    free(slots);
}

int job_slots_fd(const struct job_slots *slots)
{
    return slots->fd;
}

int job_slots_take(struct job_slots *slots, const struct job_block *block, uint32_t *ret_slot)
{
    if (slots->n_free == 0) {
        return -EAGAIN;
    }
    uint32_t slot = slots->free[--slots->n_free];
    slots->blocks[slot] = *block;
    *ret_slot = slot;
    return 0;
}

void job_slots_give(struct job_slots *slots, uint32_t slot)
{
    slots->free[slots->n_free++] = slot;
}
