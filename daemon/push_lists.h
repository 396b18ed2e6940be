/*
 * Push lists: a job's pushes by state, so that each is found without a look at the others.
 *
 *     free         FREE, the last used first
 *     first, last  ACCEPTED, in order of seq
 *     to_release   the first of these that may have records for a device: those before it have
 *                  none left, or are late.  NULL: none has.
 *
 *     free_rows    rows of no push, where the job's data lie in rings
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
    struct push_row *free_rows;
};

/* A new push, which is FREE. */
void push_lists_add(struct push_lists *lists, struct push *push);
/* A new row, which is free. */
void push_lists_add_row(struct push_lists *lists, struct push_row *row);
/* One that is free, of which there is one, becomes the last row of this push. */
static inline struct push_row *push_lists_take_row(struct push_lists *lists, struct push *push)
{
    struct push_row *row = lists->free_rows;

    lists->free_rows = row->next;
    row->next = NULL;
    if (push->rows == NULL) {
        push->rows = row;
    } else {
        push->last_row->next = row;
        push->n_rows++;
    }
    push->last_row = row;
    return row;
}
/* Of the FREE ones only the first can leave; who becomes ACCEPTED has the highest seq; who becomes
 * FREE has no rows any more. */
void push_lists_move(struct push_lists *lists, struct push *push, enum push_state state);

/* The oldest ACCEPTED push that has records to release and is not late, or NULL. */
struct push *push_lists_to_release(struct push_lists *lists);
/* The ACCEPTED push with this seq, or NULL.  Walks over those before it. */
struct push *push_lists_find(const struct push_lists *lists, uint64_t seq);
