/*
 * Queue: the work and done queues that front end and worker share, in one memfd per worker
 * generation.  Every access to it is in queue.c; shared_words.h explains the ordering.
 *
 * Each queue is single producer, single consumer; indices are free-running u32, entry i lives at
 * i % entries.  Every accessor loads a shared field once into a local and bounds it before use: the
 * front end must survive a worker that writes nonsense (QUEUE_BROKEN), and the reverse.
 *
 * A work entry's place is reused only when the front end has released it: completions may come in
 * any order, and its result slot is the in-flight table until then.
 *
 * Sleep protocol, the same on both sides: set the sleeping flag, full fence, look again, then
 * sleep; a publisher makes its entries visible, full fence, then looks at the flag and rings the
 * doorbell if it is set.  One of the two always sees the other.  Who wakes drains the doorbell
 * first and looks at the queues then.
 *
 * Threads: front end functions from its one loop, worker functions from its one data thread.
 */
#pragma once

#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define QUEUE_BROKEN (-71) /* -EPROTO: the other side wrote what it may not */

struct queue; /* one side's view of the memfd */

/* Front end: make the memfd and its view.  0 or -errno.  queue_fd() is what the worker gets. */
int queue_create(uint32_t generation, struct queue **ret_queue);
/* The same with all indices starting at first_index: for tests of the wrap at 2^32. */
int queue_create_at(uint32_t generation, uint32_t first_index, struct queue **ret_queue);
/* Worker: map it; checks size, seals, magic and version.  0 or -errno.  fd stays the caller's. */
int queue_attach(int fd, struct queue **ret_queue);
/* Unmap; the creator's side also closes the memfd.  NULL is fine. */
void queue_destroy(struct queue *queue);
int queue_fd(const struct queue *queue);

/* ---- front end ----------------------------------------------------------------------------- */

/*
 * Place an entry, not yet visible.  Returns 0 with its free-running index, or -EAGAIN when its
 * place is still occupied.
 */
int queue_work_put(struct queue *queue, enum priority priority, const struct work_entry *entry,
                   uint32_t *ret_index);
/* The index that the next one gets. */
uint32_t queue_work_next(const struct queue *queue, enum priority priority);
/* The rows of an entry that was placed last and is not yet visible. */
void queue_rows_put(struct queue *queue, enum priority priority, uint32_t index,
                    const struct work_row *rows, uint32_t n);
/* Make all placed entries of this priority visible.  True: the worker sleeps, ring the doorbell. */
bool queue_work_publish(struct queue *queue, enum priority priority);
/*
 * A copy of an entry as it was put (whatever the worker has written over it) and of its result slot
 * as it is now.  The slot is EMPTY from put until the worker takes the entry.
 */
void queue_work_read(const struct queue *queue, enum priority priority, uint32_t index,
                     struct work_entry *ret_entry, struct work_result *ret_result);
/*
 * A copy of why an entry's result is not OK, NUL-terminated.  Of an entry whose result is OK, or
 * that has none, it is whatever a former entry or the worker left there.
 */
void queue_error_read(const struct queue *queue, enum priority priority, uint32_t index,
                      struct work_error *ret_error);
/* The entry's answer has been dealt with: its place may be reused. */
void queue_work_release(struct queue *queue, enum priority priority, uint32_t index);
/* Entries placed and not released, of one priority. */
uint32_t queue_work_in_flight(const struct queue *queue, enum priority priority);
/* Is this index placed and not released? */
bool queue_work_is_held(const struct queue *queue, enum priority priority, uint32_t index);

/*
 * Take up to max done entries.  Returns their number or QUEUE_BROKEN (an impossible index, queue,
 * range, or an entry that was not in flight).  Entries before the broken one are returned first.
 */
int queue_done_take(struct queue *queue, struct done_entry *ret_entries, uint32_t max);
/* Before sleeping: true = sleep (the worker will ring); false = something is there. */
bool queue_done_sleep(struct queue *queue);
void queue_done_awake(struct queue *queue);

/* ---- worker -------------------------------------------------------------------------------- */

/*
 * Copy up to max entries of one priority, with their indices, and mark them RESULT_TAKEN.  Returns
 * their number or QUEUE_BROKEN.
 */
int queue_work_take(struct queue *queue, enum priority priority, struct work_entry *ret_entries,
                    uint32_t *ret_indices, uint32_t max);
/* The first n (at most WORK_ROWS) rows of an entry that was taken are read soon: a hint. */
void queue_rows_expect(const struct queue *queue, enum priority priority, uint32_t index,
                       uint32_t n);
/* A copy of the first n (at most WORK_ROWS) rows of an entry that was taken; of those that it does
 * not have it is whatever is there. */
void queue_rows_read(const struct queue *queue, enum priority priority, uint32_t index,
                     struct work_row *ret_rows, uint32_t n);
/* Mark an entry RESULT_ISSUED. */
void queue_result_issued(struct queue *queue, enum priority priority, uint32_t index,
                         uint64_t issue_ns);
/* Write why the result, which comes next, is not OK; a text that is too long is cut. */
void queue_result_error(struct queue *queue, enum priority priority, uint32_t index,
                        const char *text);
/* Write a whole result; its state becomes RESULT_DONE last. */
void queue_result_done(struct queue *queue, enum priority priority, uint32_t index,
                       const struct work_result *result);
/* Announce; -EAGAIN cannot happen with a front end that keeps the rules. */
int queue_done_put(struct queue *queue, const struct done_entry *entry);
/* Make the announced entries visible.  True: the front end sleeps, ring the doorbell. */
bool queue_done_publish(struct queue *queue);
/*
 * Before sleeping: true = sleep (the front end will ring); false = something was published since
 * the last queue_work_take() of its priority.  What that call saw and left does not count: a full
 * device takes it after its next completion.
 */
bool queue_work_sleep(struct queue *queue);
void queue_work_awake(struct queue *queue);
