/*
 * Heap: what has the least key, among things that hold a node of it.  Ties go to the least `tie`.
 *
 * Nothing is allocated.  Adding and taking out, the top or any other, cost O(log n), whatever came
 * before: a leftist heap, whose right spines are short.
 *
 * Thread: its owner's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint64_t key, tie; /* the owner's; unchanged while it is in a heap of several */
    struct heap_node *left, *right, *parent;
    uint32_t rank; /* nodes on the way down the right side, itself included */
};

struct heap {
    struct heap_node *top; /* NULL: empty */
};

static inline bool heap_is_before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key < b->key || (a->key == b->key && a->tie < b->tie);
}

void heap_add(struct heap *heap, struct heap_node *node);
void heap_remove(struct heap *heap, struct heap_node *node);

/* The node, which is in the heap, has these keys now. */
static inline void heap_change(struct heap *heap, struct heap_node *node, uint64_t key,
                               uint64_t tie)
{
    /* A leaf that is the top is alone, as is mostly so on a machine with one busy user. */
    if (heap->top == node && node->left == NULL) {
        node->key = key;
        node->tie = tie;
        return;
    }
    heap_remove(heap, node);
    node->key = key;
    node->tie = tie;
    heap_add(heap, node);
}
