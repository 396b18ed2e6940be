/*
 * Slot: the buffers of one push, and how they are filled from the inputs in step.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/input.h"
#include "client/gpupipe.h"
#include "proto/message.h"

struct slot {
    bool is_free;
    bool is_cut;        /* what is wanted of the varying input is known */
    uint64_t n_records; /* slot_count()ed */
    uint8_t *in[LIMIT_IN];
    size_t wanted[LIMIT_IN]; /* bytes */
    size_t filled[LIMIT_IN];
    uint8_t *out[LIMIT_OUT];
};

/* The slots of a job. */
struct slots {
    /* The caller's, before slots_create(). */
    const struct manifest_op *op;
    const struct msg_job_opened *shape;
    struct input *inputs; /* op->n_in */
    enum tail tail;
    uint64_t push_records;
    struct gpupipe *gpupipe;   /* the ring's, for its errors */
    struct gpupipe_ring *ring; /* the slots lie in it; NULL: in memory of their own */

    /* Its own. */
    uint64_t first_element; /* of the varying input, of what comes next */
    uint32_t n;
    struct slot *all;
};

/* Bytes that slots_create() will take, for the size of a ring. */
uint64_t slots_size(const struct slots *slots, uint32_t window);
/* As many as serve a job with this window in bounded memory.  Finish them even if it failed, once
 * no push is in flight; what lies in a ring goes with that. */
int slots_create(struct slots *slots, uint32_t window);
void slots_finish(struct slots *slots);

/* An empty one, or NULL.  It is free again with slot->is_free set. */
struct slot *slots_take(struct slots *slots);
/* Are all free, but for this one (or NULL)? */
bool slots_are_free(const struct slots *slots, const struct slot *but);

/* Read what can be read without waiting; readable has a bit for each pipe that has something. */
int slot_fill(struct slots *slots, struct slot *slot, uint32_t readable);
/* Does it lack bytes that this input may still have? */
bool slot_lacks(const struct slots *slots, const struct slot *slot, uint32_t input);
bool slot_is_ready(const struct slots *slots, const struct slot *slot);
/* Set n_records of one that is ready: as many in each input, or it is an error; 0 at the end. */
int slot_count(const struct slots *slots, struct slot *slot);
