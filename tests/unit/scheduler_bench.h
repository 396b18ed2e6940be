/*
 * Scheduler bench: a scheduler with one device that takes four chunks and 16 MiB, users, one op
 * whose rate is known, and the chunks in flight.
 *
 * Thread: the one that runs the tests.
 */
#pragma once

#include "daemon/scheduler.h"

#define MIB ((uint64_t)1 << 20)

extern const struct worker_caps four_chunks;
extern struct scheduler_user users[200];
extern struct scheduler_rate rate;
extern struct scheduler_charge charges[8 * WORK_ENTRIES]; /* in flight, the oldest first */
extern size_t n_charges;
extern uint64_t at_ns; /* the time */

/* A fresh scheduler, and everything above is fresh, too. */
struct scheduler make(void);
/* Of users[0], for any device. */
struct flow flow_of(enum priority priority, uint64_t next_size);

/* What goes next, where there is one device. */
struct flow *next_of(struct scheduler *scheduler);
/* The chunk of this flow goes where it shall, and is on the books. */
void issue(struct scheduler *scheduler, struct flow *flow, const struct scheduler_place *place);
/* Take the next flow and issue its chunk, to the one device. */
struct flow *step(struct scheduler *scheduler);
/* The same with several: returns the device, or -1 for none. */
int place(struct scheduler *scheduler);
/* The oldest chunk of this priority and size comes back from this device. */
void done(struct scheduler *scheduler, enum priority priority, uint32_t device, uint64_t size);
