/*
 * Bells: the doorbells that may wake the data thread: its own, and those of clients' rings, which
 * wake the front end at the same time (worker_abi.h).
 *
 * The clients' are the front end's to read, and never read here: each is seen once for each time it
 * rings, if the front end has not read it by then.
 *
 * Threads: add and drop on the control thread, while the data thread uses bells_fd() and
 * bells_rang().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bells;

/* doorbell_fd, the worker's own, stays the caller's.  0 or -errno. */
int bells_create(int doorbell_fd, struct bells **ret_bells);
/* NULL is fine. */
void bells_destroy(struct bells *bells);

/* fd becomes the bells' own.  -EEXIST, -ERANGE: not with this id; else 0, whether it can be heard
 * or not. */
int bells_add(struct bells *bells, uint32_t id, int fd);
/* -ENOENT: there is none. */
int bells_drop(struct bells *bells, uint32_t id);

/* To be waited for: readable when the worker's own is, or a client's has rung. */
int bells_fd(const struct bells *bells);
/* Has a client's, since this was last called? */
bool bells_rang(struct bells *bells);
