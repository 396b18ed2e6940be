/*
 * After: who waits for whom to end.
 *
 * A node is a job's part of it.  When a job is made it may be told to wait for others, which are
 * there already, and never again: so there are no cycles.
 *
 * Pure: no clock, no I/O.  Thread: the front end's loop.
 */
#pragma once

#include <stdint.h>

struct after_edge;

/* All zero at first.  Its address is its name. */
struct after_node {
    uint32_t n_held_by; /* of those it waits for, how many have not ended */
    uint32_t n_edges;
    struct after_edge *edges;   /* to all it was told to wait for */
    struct after_edge *waiters; /* of others to it */
};

/*
 * Have a new node, for which nobody waits yet, wait for these n; one that stands there twice counts
 * twice.  0, or -ENOMEM with nothing done.
 */
int after_wait(struct after_node *node, struct after_node *const *others, uint32_t n);
/* It has ended: one that waited for it, and does so no more; NULL: there is none left. */
struct after_node *after_release(struct after_node *ended);
/* The only one that it still waits for; NULL: there are none, or several. */
struct after_node *after_only(const struct after_node *node);
/* Tell all that wait for it, none of whom may begin or cease to wait meanwhile. */
void after_tell(const struct after_node *node, void (*tell)(struct after_node *waiter));
/* It waits for nobody any more; others may still wait for it. */
void after_stop(struct after_node *node);
