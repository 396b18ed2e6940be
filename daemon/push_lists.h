/*
 * Push lists: a job's pushes by state, so that each is found without a look at the others.
 *
 *     free         FREE, the last used first
 *     first, last  ACCEPTED, in order of seq
 *     to_release   the first of these that may have records for a device: those before it have
 *                  none left, or are late.  NULL: none has.
 *
 * FILLING and ANSWERED pushes are in no list; who fills or answers them knows them.  Nor are the
 * rows of a table but for the first, which leads to them.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/push.h"

struct push_lists {
    struct push *free;
    struct push *first, *last;
    struct push *to_release;
};

/* A new push, which is FREE. */
void push_lists_add(struct push_lists *lists, struct push *push);
/* Of the FREE ones only the first can leave; who becomes ACCEPTED has the highest seq. */
void push_lists_move(struct push_lists *lists, struct push *push, enum push_state state);

/* The oldest ACCEPTED push that has records to release and is not late, or NULL. */
struct push *push_lists_to_release(struct push_lists *lists);
/* The ACCEPTED push with this seq, or NULL.  Walks over those before it. */
struct push *push_lists_find(const struct push_lists *lists, uint64_t seq);
