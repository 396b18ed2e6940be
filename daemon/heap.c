/*
 * Heap: a leftist heap.  A node's left side is at least as deep to the right as its right side, so
 * the right spine of n nodes has at most log2(n + 1): merging follows only those.
 */
#include "daemon/heap.h"

static uint32_t rank_of(const struct heap_node *node)
{
    return node != NULL ? node->rank : 0;
}

/* Put its sides in order.  Has its rank changed? */
static bool mend(struct heap_node *node)
{
    uint32_t rank = node->rank;

    if (rank_of(node->left) < rank_of(node->right)) {
        struct heap_node *left = node->left;

        node->left = node->right;
        node->right = left;
    }
    node->rank = rank_of(node->right) + 1;
    return node->rank != rank;
}

/* As deep as the two right spines together. */
static struct heap_node *merge(struct heap_node *a, struct heap_node *b)
{
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    if (heap_is_before(b, a)) {
        struct heap_node *first = b;

        b = a;
        a = first;
    }
    a->right = merge(a->right, b);
    a->right->parent = a;
    mend(a);
    return a;
}

void heap_add(struct heap *heap, struct heap_node *node)
{
    node->left = NULL;
    node->right = NULL;
    node->rank = 1;
    heap->top = merge(heap->top, node);
    heap->top->parent = NULL;
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    struct heap_node *parent = node->parent;
    struct heap_node *rest = merge(node->left, node->right);

    if (rest != NULL) {
        rest->parent = parent;
    }
    if (parent == NULL) {
        heap->top = rest;
    } else if (parent->left == node) {
        parent->left = rest;
    } else {
        parent->right = rest;
    }
    /* A rank that has changed by one may change those above; their chain of changes is as short as
     * a spine. */
    while (parent != NULL && mend(parent)) {
        parent = parent->parent;
    }
}
