/*
 * Ring: the submission and completion queues that the front end and one client share, in a memfd of
 * their own, made afresh for each ring.  PROTOCOL.md draws the layout.
 *
 * Each queue is single producer, single consumer; indices are free-running u32, entry i lies at
 * i % RING_ENTRIES.  Neither side trusts the other: every accessor loads a shared word once and
 * bounds it before use, what it returns is a copy, and how far each side has come is private to its
 * `struct ring`.  A client that writes anywhere at any time makes the front end see RING_BROKEN or
 * a descriptor that says nonsense, never a wrong address; and the reverse.
 *
 * The client keeps at most RING_ENTRIES descriptors submitted and not reaped, so neither queue is
 * ever too full.
 *
 * The sleep protocol is that of queue.h: whoever finds nothing sets its flag, looks again, and
 * sleeps on its doorbell; who publishes rings it if the flag was set.
 *
 * Threads: one on each side.
 */
#pragma once

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_LAYOUT  1
#define RING_ENTRIES 1024u /* of either queue; a power of two.  Not tuned */
#define RING_ALIGN   64u   /* data offsets are in these units: a cache line */

#define RING_BROKEN  (-71)  /* -EPROTO: the other side wrote what it may not */
#define RING_CLEARED (-108) /* -ESHUTDOWN: a client's ring whose connection has ended */

struct ring_desc {
    uint32_t job; /* the low half of its id */
    uint32_t n_records;
    uint64_t tag;            /* the client's; comes back */
    uint32_t in[LIMIT_IN];   /* where arrays begin in the data, in RING_ALIGN units */
    uint32_t out[LIMIT_OUT]; /* not of a reduce op, whose output is the job's */
    uint32_t varying_size;   /* bytes of the varying input, 0 where the op has none */
    uint32_t tail_size;      /* bytes of a short last record of input 0, else 0 */
    uint64_t deadline_ns;    /* from intake; 0 = none */
    uint64_t flags;          /* set of RING_... below */
};
#define RING_LAST UINT64_C(1) /* no push follows: once it is accepted, as job.close behind it */
_Static_assert(sizeof(struct ring_desc) == 64, "a descriptor is one cache line");

struct ring_completion {
    uint64_t tag;
    uint32_t job;
    uint32_t n_records;
    uint32_t out_size[LIMIT_OUT]; /* bytes that now lie in each output */
    uint32_t devices;             /* set of those that worked on it: bit i is device i */
    uint16_t status;              /* enum status; 0 = OK */
    uint8_t priority;             /* enum priority */
    uint8_t has_timing;
    uint64_t queue_ns; /* see PROTOCOL.md, Timing */
    uint64_t in_ns;
    uint64_t compute_ns;
    uint64_t out_ns;
};
_Static_assert(sizeof(struct ring_completion) == 64, "a completion is one cache line");

struct ring; /* one side's view */

/* Unmap; the creator's side also closes the memfd.  NULL is fine. */
void ring_destroy(struct ring *ring);

/* ---- front end ----------------------------------------------------------------------------- */

/* Make the memfd and its view.  0 or -errno.  ring_fd() is what the client gets. */
int ring_create(struct ring **ret_ring);
/* The same with all indices starting at first_index: for tests of the wrap at 2^32. */
int ring_create_at(uint32_t first_index, struct ring **ret_ring);
int ring_fd(const struct ring *ring);
/* Of no more use: free its pages, whoever has them mapped.  A client finds zeros. */
void ring_clear(struct ring *ring);
/* What there is to map of it, and where in that the two queues begin, bytes. */
size_t ring_size(void);
uint32_t ring_sq_offset(void);
uint32_t ring_cq_offset(void);

/* Copy up to max descriptors.  Returns their number, or RING_BROKEN. */
int ring_take(struct ring *ring, struct ring_desc *ret_descs, uint32_t max);
/*
 * One more descriptor, of those that were there at the last take and not taken, comes from the
 * client's CPU meanwhile.  A hint: called for each that was taken, while there is work to do for
 * it, so that the next take does not wait.
 */
void ring_expect(struct ring *ring);
/*
 * Completions that the client has room for now, or RING_BROKEN.  After a take it is never less than
 * what an honest client's descriptors need; before it, the client may reap and submit in between.
 */
int ring_room(const struct ring *ring);
/* Put n completions, not yet visible, for which there is room. */
void ring_complete(struct ring *ring, const struct ring_completion *completions, uint32_t n);
/* Make all of them visible.  True: the client sleeps, ring the doorbell. */
bool ring_publish(struct ring *ring);
/* Before sleeping: true = sleep (the client will ring); false = there is something to take. */
bool ring_sleep(struct ring *ring);
void ring_awake(struct ring *ring);

/* ---- client -------------------------------------------------------------------------------- */

/* Map it; checks size, seals, magic and layout.  0 or -errno.  fd stays the caller's. */
int ring_attach(int fd, struct ring **ret_ring);
/* Descriptors that may be submitted now: those not reaped count. */
uint32_t ring_submit_room(const struct ring *ring);
/* Put a descriptor, not yet visible, for which there is room. */
void ring_submit(struct ring *ring, const struct ring_desc *desc);
/* Make all of them visible.  True: the front end sleeps, ring the doorbell. */
bool ring_submit_publish(struct ring *ring);
/* Copy up to max completions.  Returns their number, RING_BROKEN, or RING_CLEARED: the front end
 * has called ring_clear(). */
int ring_reap(struct ring *ring, struct ring_completion *ret_completions, uint32_t max);
/* Before sleeping: true = sleep (the front end will ring); false = there is something to reap. */
bool ring_client_sleep(struct ring *ring);
void ring_client_awake(struct ring *ring);
