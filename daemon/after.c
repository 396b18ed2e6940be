/*
 * After: an edge is in its waiter's array, and in the list of the node that is waited for.
 */
#include "daemon/after.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct after_edge {
    struct after_node *waiter, *other;
    struct after_edge *next;
    struct after_edge **at; /* what leads to it; NULL: the other has ended */
};

static void link_edge(struct after_edge *edge, struct after_node *other)
{
    edge->other = other;
    edge->next = other->waiters;
    edge->at = &other->waiters;
    if (edge->next != NULL) {
        edge->next->at = &edge->next;
    }
    other->waiters = edge;
}

static void unlink_edge(struct after_edge *edge)
{
    *edge->at = edge->next;
    if (edge->next != NULL) {
        edge->next->at = edge->at;
    }
    edge->at = NULL;
    edge->waiter->n_held_by--;
}

int after_wait(struct after_node *node, struct after_node *const *others, uint32_t n)
{
    assert(node->edges == NULL && node->waiters == NULL);
    if (n == 0) {
        return 0;
    }
    node->edges = calloc(n, sizeof(*node->edges));
    if (node->edges == NULL) {
        return -ENOMEM;
    }
    node->n_edges = node->n_held_by = n;
    for (uint32_t i = 0; i < n; i++) {
        assert(others[i] != node);
        node->edges[i].waiter = node;
        link_edge(&node->edges[i], others[i]);
    }
    return 0;
}

struct after_node *after_release(struct after_node *ended)
{
    struct after_edge *edge = ended->waiters;

    if (edge == NULL) {
        return NULL;
    }
    unlink_edge(edge);
    return edge->waiter;
}

struct after_node *after_only(const struct after_node *node)
{
    const struct after_edge *edge = node->edges;

    if (node->n_held_by != 1) {
        return NULL;
    }
    while (edge->at == NULL) {
        edge++;
    }
    return edge->other;
}

void after_tell(const struct after_node *node, void (*tell)(struct after_node *waiter))
{
    for (const struct after_edge *edge = node->waiters; edge != NULL; edge = edge->next) {
        tell(edge->waiter);
    }
}

void after_stop(struct after_node *node)
{
    for (uint32_t i = 0; i < node->n_edges; i++) {
        if (node->edges[i].at != NULL) {
            unlink_edge(&node->edges[i]);
        }
    }
    free(node->edges);
    node->edges = NULL;
    node->n_edges = 0;
}
