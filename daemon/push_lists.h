/*
 * Push lists: a job's pushes by state, so that each is found without a look at the others.
 *
 *     free         FREE, the last used first
 *     first, last  ACCEPTED, in order of seq
 *     to_release   the first of these that may have records for a device: those before it have
 *                  none left, or are late.  NULL: none has.
 *
 *     rows, works  all rows, where the job's data lie in rings, and what workers have of them
 *     free_rows    those of no push, by number
 *
 * FILLING and ANSWERED pushes are in no list; who fills or answers them knows them.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/push.h"

struct push_lists {
    struct push *free;
    struct push *first, *last;
    struct push *to_release;
    struct push_row *rows;
    struct work_row *works;
    uint32_t n_free_rows;
    uint8_t free_rows[LIMIT_WINDOW];
};
_Static_assert(LIMIT_WINDOW <= UINT8_MAX + 1, "a byte is a row's number");

/* A new push, which is FREE. */
void push_lists_add(struct push_lists *lists, struct push *push);
/* n rows, all of them free and all zeros, in place of none; -ENOMEM. */
int push_lists_make_rows(struct push_lists *lists, uint32_t n);
void push_lists_free_rows(struct push_lists *lists);
/* Row i of a push that has rows, and where in the ring it is. */
static inline struct push_row *push_lists_row(const struct push_lists *lists,
                                              const struct push *push, uint32_t i)
{
    return &lists->rows[push->rows[i]];
}
static inline struct work_row *push_lists_work(const struct push_lists *lists,
                                               const struct push *push, uint32_t i)
{
    return &lists->works[push->rows[i]];
}
/* One that is free, of which there is one, becomes the last row of this push; returns its i. */
static inline uint32_t push_lists_take_row(struct push_lists *lists, struct push *push)
{
    uint8_t row = lists->free_rows[--lists->n_free_rows];

    push->n_rows += push->has_rows;
    push->has_rows = true;
    push->rows[push->n_rows - 1] = row;
    return push->n_rows - 1;
}
/* Of the FREE ones only the first can leave; who becomes ACCEPTED has the highest seq; who becomes
 * FREE has no rows any more. */
void push_lists_move(struct push_lists *lists, struct push *push, enum push_state state);

/* The oldest ACCEPTED push that has records to release and is not late, or NULL. */
struct push *push_lists_to_release(struct push_lists *lists);
/* The ACCEPTED push with this seq, or NULL.  Walks over those before it. */
struct push *push_lists_find(const struct push_lists *lists, uint64_t seq);
