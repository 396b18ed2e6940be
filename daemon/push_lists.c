/*
 * Push lists: moving pushes from list to list.
 */
#include "daemon/push_lists.h"

#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void append_accepted(struct push_lists *lists, struct push *push)
{
    assert(lists->last == NULL || lists->last->seq < push->seq);
    push->next = NULL;
    push->previous = lists->last;
    if (lists->last != NULL) {
        lists->last->next = push;
    } else {
        lists->first = push;
    }
    lists->last = push;
    if (lists->to_release == NULL) {
        lists->to_release = push;
    }
}

static void remove_accepted(struct push_lists *lists, struct push *push)
{
    if (lists->to_release == push) {
        lists->to_release = push->next;
    }
    if (push->previous != NULL) {
        push->previous->next = push->next;
    } else {
        lists->first = push->next;
    }
    if (push->next != NULL) {
        push->next->previous = push->previous;
    } else {
        lists->last = push->previous;
    }
}

void push_lists_add(struct push_lists *lists, struct push *push)
{
    push->state = PUSH_FREE;
    push->n_rows = 1;
    push->next = lists->free;
    lists->free = push;
}

int push_lists_make_rows(struct push_lists *lists, uint32_t n)
{
    lists->rows = calloc(n, sizeof(*lists->rows));
    lists->works = calloc(n, sizeof(*lists->works)); /* they go to workers as they are */
    if (lists->rows == NULL || lists->works == NULL) {
        return -ENOMEM;
    }
    while (lists->n_free_rows < n) { /* the first is the first to be taken */
        lists->free_rows[lists->n_free_rows] = (uint8_t)(n - 1 - lists->n_free_rows);
        lists->n_free_rows++;
    }
    return 0;
}

void push_lists_free_rows(struct push_lists *lists)
{
    free(STEAL(lists->rows));
    free(STEAL(lists->works));
}

static void free_rows(struct push_lists *lists, struct push *push)
{
    if (push->has_rows) {
        memcpy(&lists->free_rows[lists->n_free_rows], push->rows, push->n_rows);
        lists->n_free_rows += push->n_rows;
        push->has_rows = false;
    }
}

void push_lists_move(struct push_lists *lists, struct push *push, enum push_state state)
{
    assert(push->state != state);
    if (push->state == PUSH_FREE) {
        assert(lists->free == push);
        lists->free = push->next;
    } else if (push->state == PUSH_ACCEPTED) {
        remove_accepted(lists, push);
    }
    push->state = state;
    if (state == PUSH_FREE) {
        free_rows(lists, push);
        push_lists_add(lists, push);
    } else if (state == PUSH_ACCEPTED) {
        append_accepted(lists, push);
    }
}

struct push *push_lists_to_release(struct push_lists *lists)
{
    struct push *push = lists->to_release;

    while (push != NULL && (push->n_released == push->n_records || push->is_late)) {
        push = push->next;
    }
    lists->to_release = push;
    return push;
}

struct push *push_lists_find(const struct push_lists *lists, uint64_t seq)
{
    struct push *push = lists->first;

    while (push != NULL && push->seq < seq) {
        push = push->next;
    }
    return push != NULL && push->seq == seq ? push : NULL;
}
