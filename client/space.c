/*
 * Space: a list of pieces in the order of their offsets, taken ones and free ones; no two free ones
 * are neighbours.
 *
 * The first piece that is large enough is taken.  Powers of two, as the daemon's pool has them,
 * would be quicker to find, but a ring is small beside what is wanted of it: five pushes of 5 MiB
 * in and 5 MiB out fit 64 MiB, and would not if each took 8.  Lists are short (two or three pieces
 * for each push under way), so walking one is no cost.
 */
#include "client/space.h"

#include "proto/util.h"

#include <errno.h>
#include <stdlib.h>

struct piece {
    struct piece *next, *previous;
    uint64_t offset;
    uint64_t size;
    bool is_taken;
};

struct space {
    struct piece *first; /* at offset 0; there always is one */
};

int space_create(uint64_t size, struct space **ret_space)
{
    _cleanup_(free_pointer) struct space *space = calloc(1, sizeof(*space));

    if (space == NULL) {
        return -ENOMEM;
    }
    space->first = calloc(1, sizeof(*space->first));
    if (space->first == NULL) {
        return -ENOMEM;
    }
    space->first->size = size;
    *ret_space = STEAL(space);
    return 0;
}

void space_destroy(struct space *space)
{
    struct piece *next;

    for (struct piece *piece = space == NULL ? NULL : space->first; piece != NULL; piece = next) {
        next = piece->next;
        free(piece);
    }
    free(space);
}

/* Leave size bytes in the piece, and the rest to a free one behind it. */
static int split(struct piece *piece, uint64_t size)
{
    struct piece *rest = calloc(1, sizeof(*rest));

    if (rest == NULL) {
        return -ENOMEM;
    }
    *rest = (struct piece){
        .next = piece->next,
        .previous = piece,
        .offset = piece->offset + size,
        .size = piece->size - size,
    };
    if (rest->next != NULL) {
        rest->next->previous = rest;
    }
    piece->next = rest;
    piece->size = size;
    return 0;
}

/* The piece behind this one becomes part of it. */
static void swallow_next(struct piece *piece)
{
    struct piece *next = piece->next;

    piece->size += next->size;
    piece->next = next->next;
    if (piece->next != NULL) {
        piece->next->previous = piece;
    }
    free(next);
}

int space_take(struct space *space, uint64_t size, uint64_t *ret_offset)
{
    uint64_t rounded = div_round_up(MAX(size, UINT64_C(1)), SPACE_ALIGN) * SPACE_ALIGN;
    struct piece *piece = space->first;

    while (piece != NULL && (piece->is_taken || piece->size < rounded)) {
        piece = piece->next;
    }
    /* Sizes near 2^64 are less than themselves once they are rounded. */
    if (piece == NULL || rounded < size) {
        return -ENOSPC;
    }
    if (piece->size > rounded && split(piece, rounded) < 0) {
        return -ENOMEM;
    }
    piece->is_taken = true;
    *ret_offset = piece->offset;
    return 0;
}

/* The piece around offset, or NULL. */
static struct piece *find(const struct space *space, uint64_t offset)
{
    struct piece *piece = space->first;

    while (piece != NULL && offset - piece->offset >= piece->size) {
        piece = piece->next;
    }
    return piece;
}

bool space_give(struct space *space, uint64_t offset)
{
    struct piece *piece = find(space, offset);

    if (piece == NULL || piece->offset != offset || !piece->is_taken) {
        return false;
    }
    piece->is_taken = false;
    if (piece->next != NULL && !piece->next->is_taken) {
        swallow_next(piece);
    }
    if (piece->previous != NULL && !piece->previous->is_taken) {
        swallow_next(piece->previous);
    }
    return true;
}

uint64_t space_largest(const struct space *space)
{
    uint64_t largest = 0;

    for (const struct piece *piece = space->first; piece != NULL; piece = piece->next) {
        largest = piece->is_taken ? largest : MAX(largest, piece->size);
    }
    return largest;
}

uint64_t space_left_at(const struct space *space, uint64_t offset)
{
    const struct piece *piece = find(space, offset);

    return piece == NULL || !piece->is_taken ? 0 : piece->offset + piece->size - offset;
}
