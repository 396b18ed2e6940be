/*
 * Job: an op with its parameters, and the pushes a client sends it.
 *
 *     OPEN       takes pushes
 *     CLOSED     has all its input (a run starts here, with one push)
 *     DONE       all pushes answered; the last message says so
 *     FAILED     a push failed         } pushes before the failed one are still answered with their
 *     CANCELLED  the client's wish     } results, it with its error, those behind it with CANCELLED
 *     EXPIRED    the deadline passed   }
 *
 * JOB_DONE and above have ended: they take nothing more.  A job is destroyed when it has ended, all
 * its messages have left, and the device holds nothing of it.  When its connection goes first it is
 * cancelled and answers nobody.
 *
 * A reduce op's partials are folded in leaf order by the worker, one MERGE at a time, each onto the
 * other of two places, so that a merge never reads what it writes; FINISH makes the output.
 *
 * A job may be *after* others, which were there before it: it is held until all of them have said
 * done, and fails if one did not end well.  While it is held it has no work, so it is not in the
 * scheduler, and nothing of it is answered but that it is stopped.  With one exception: when all
 * that is left of the last of those others is one chunk at a device, it may *follow* it there, and
 * the worker sees to the order; what comes of that is answered when the other has said done.  Those
 * that an end releases are settled later in the same turn, so that settling one job never destroys
 * another.
 *
 * Files: job.c (life), job_after.c (whom it waits for), job_input.c (is a push welcome?),
 * job_admit.c (will it be in time?), job_ring.c (pushes that lie in rings), job_descs.c (those
 * that came as descriptors; described.h), job_work.c (what the device does for it), job_answer.c
 * (its messages). Thread: the front end's loop.
 */
#pragma once

#include "daemon/after.h"
#include "daemon/prepared.h"
#include "daemon/push_lists.h"
#include "daemon/scheduler.h"
#include "proto/message.h"

struct server;
struct session;
struct user;

struct job {
    /* Together, since there are many pushes: what each looks at. */
    struct flow flow; /* in the scheduler while it has work */
    struct server *server;
    struct session *session; /* NULL: its connection is gone */
    uint64_t id;             /* 0: a run, which no client can name */
    enum job_state state;
    uint32_t max_records;      /* of a push */
    uint64_t stop_seq;         /* pushes from here on get no more chunks; UINT64_MAX: none */
    struct prepared *prepared; /* its op, parameters and options */
    uint64_t deadline_at_ns;   /* CLOCK_MONOTONIC; 0 = none */
    struct push_lists lists;
    uint64_t n_pushed;    /* accepted: the next seq */
    uint64_t n_answered;  /* the oldest seq without an answer */
    uint64_t n_done;      /* answered in any order */
    uint64_t n_records;   /* of pushes answered with success */
    uint64_t n_queued;    /* records that no device has been given, and one is to have */
    uint32_t n_timed;     /* unanswered pushes with a deadline of their own */
    bool has_odd_push;    /* no multiple of push_multiple: the input cannot go on */
    bool has_short_push;  /* likewise after a short record */
    bool is_merging;      /* reduce: a MERGE or FINISH is at the device */
    uint64_t merge_seq;   /* reduce: the push whose pieces are folded now */
    struct chunk *newest; /* at a device, the one handed out last; NULL: it is back */
    uint32_t n_chunks;    /* at a device */
    uint32_t n_messages;  /* in the writer, referring to its memory */
    bool has_said_done;
    struct after_node after;

    struct user *user;           /* who is charged for it, to its very end */
    struct job *next, *previous; /* of the server's jobs */
    struct job *next_like;       /* with an id: see server_jobs_like() */

    char token[MSG_TOKEN_SIZE]; /* by which others may be after it; "": a run */
    uint32_t msgid;             /* of a run's request */
    struct failure failure;     /* why it FAILED or EXPIRED */

    uint32_t window;
    struct push *pushes; /* window of them, in no order; lists.rows likewise */

    bool has_fold, is_finished;
    uint32_t fold_at;  /* which of the two places holds the fold */
    struct block fold; /* two places of MANIFEST_PARTIAL_SIZE */
    struct block out[LIMIT_OUT];

    bool is_after;             /* it was to be after others, whether they have ended or not */
    bool is_released;          /* to be settled in this turn ... */
    struct job *next_released; /* ... with these */

    bool has_refused;    /* a push that came as a notification, which FAILED it ... */
    struct push refused; /* ... and is answered after all others */

    uint64_t pool_size; /* bytes leased for it and charged to its user */
    uint32_t n_places;  /* taken of its priority's */
};

/*
 * A job of this connection's without pushes or memory.  It takes over the reference.
 * deadline_at_ns: 0 = none.
 */
int job_create(struct session *session, struct prepared *prepared, uint64_t deadline_at_ns,
               struct job **ret_job, struct failure *ret_failure);
/* Only before its first push is accepted, or when job_is_over(). */
void job_destroy(struct job *job);

/* Take places for up to n_wanted pushes: see places.h.  BUSY: there is none. */
int job_take_places(struct job *job, uint32_t n_wanted, struct failure *ret_failure);
/*
 * Take places and lease memory for a job's window, shrinking first max_push, then the window, to
 * what the pool has and its user may have.  BUSY or QUOTA if that is less than a single push of the
 * least size.
 */
int job_lease_window(struct job *job, const struct msg_options *options,
                     struct failure *ret_failure);
/*
 * Lease memory for a run of n_records.  0, JOB_NO_ROOM (now: call again when the pool has more), or
 * a negative status.
 */
#define JOB_NO_ROOM 1
int job_lease_run(struct job *job, uint64_t n_records, struct failure *ret_failure);

/* Bytes of an array of a whole push: what job.open promises. */
uint64_t job_max_push(const struct job *job);

/* A free push, or NULL when the window of a job whose data lie in the pool is full. */
struct push *job_free_push(const struct job *job);
/* All its input is here. */
void job_accept(struct job *job, struct push *push);

void job_close(struct job *job);
/* End it early: CANCELLED; EXPIRED with DEADLINE; FAILED from the push with this seq on. */
void job_cancel(struct job *job);
void job_expire(struct job *job);
/*
 * Note which deadlines have passed, the job's or a push's of its own: what is late gets no more
 * chunks.  True: there are some, settle the job.
 */
bool job_note_late(struct job *job, uint64_t now_ns);
/* Is there a deadline still to come? */
bool job_is_timed(const struct job *job);
void job_fail(struct job *job, const struct failure *failure, uint64_t seq);
/*
 * A push that nobody waits for was not accepted: it is answered with this failure in a job.result
 * of its own, as the next and last one, and fails the job.  Only of a job that has not ended.
 */
void job_refuse(struct job *job, const struct failure *failure);
/* Its connection is gone: cancel, and answer nobody. */
void job_orphan(struct job *job);

/*
 * After anything happened: answer what can be answered, queue it in the scheduler or take it out,
 * end it, destroy it.  The job may be gone afterwards.
 */
void job_settle(struct job *job);
/* The same after something happened that can have let no push be answered but this one. */
void job_settle_push(struct job *job, struct push *push);
/* That in two steps: answer what can be answered, of this push alone unless it is NULL; the job is
 * still there.  Then the rest. */
void job_answer(struct job *job, struct push *push);
void job_conclude(struct job *job);
/* Its place in the scheduler: none without work, else by the nearest deadline of what waits. */
void job_queue(struct job *job);
/* None; what it is given next may go to any of its devices again. */
void job_unqueue(struct job *job);

/* ---- job_after.c ---------------------------------------------------------------------------- */

/*
 * Hold a new job until those that the options name have ended.  NOT_FOUND: one of them is no job of
 * this connection's and has no such token.  CANCELLED: one has ended already, and not well.
 */
int job_hold(struct job *job, const struct msg_options *options, struct failure *ret_failure);
bool job_is_held(const struct job *job);
/* It has said done: note how, and release those that wait for it. */
void job_note_end(struct job *job);
/* It will be gone, and waits for nobody. */
void job_stop_waiting(struct job *job);
/* Nobody waits for open jobs to be closed any more: release those that do, to fail. */
void jobs_give_up_on_open(struct server *server);
/* Settle those that were released, and so on. */
void jobs_settle_released(struct server *server);
/* It will be among them. */
void job_settle_later(struct job *job);
/* An open job of this connection's, which only its requests can end, and others wait for; or NULL.
 */
const struct job *job_find_awaited(const struct server *server, const struct session *session);

/* ---- job_input.c ---------------------------------------------------------------------------- */

/* May it take one more push?  SEQ or RANGE: its input has ended. */
int job_check_input(const struct job *job, struct failure *ret_failure);
/*
 * How many records is input `array` of `size` bytes?  A short last one of the first input counts as
 * one where the job's tail option takes it.
 */
int job_count_records(const struct job *job, uint32_t array, uint64_t size, uint64_t *ret_n,
                      struct failure *ret_failure);
/* From now on; 0, which is none, stays 0.  RANGE: further off than LIMIT_DEADLINE. */
int job_deadline_at(uint64_t deadline_ns, uint64_t *ret_at_ns, struct failure *ret_failure);
/* The same of a push that comes now.  INVALID_PARAM: a reduce op's has none of its own. */
int job_push_deadline_at(const struct job *job, uint64_t deadline_ns, uint64_t *ret_at_ns,
                         struct failure *ret_failure);
/* NO_CREDIT: there is no free push. */
int job_refuse_credit(const struct job *job, struct failure *ret_failure);

/* ---- job_admit.c ---------------------------------------------------------------------------- */

/*
 * Where the option admit asks for it: could n_records more be done by then, as far as measured
 * rates tell?  DEADLINE, with the time that they would take: no.
 */
int job_check_admit(const struct job *job, uint64_t n_records, uint64_t deadline_at_ns,
                    struct failure *ret_failure);

/* ---- job_ring.c ----------------------------------------------------------------------------- */

struct ring_desc;
struct ring_link;

/*
 * The pushes of a job in rings, and a reduce op's partials: *ret_pool_size bytes of the pool, in
 * any case.  0, or -ENOMEM: its user may not have that, or the pool has not; destroy the job.
 */
int job_make_ring_window(struct job *job, const struct msg_options *options, uint32_t window,
                         uint64_t *ret_pool_size);
/* A job.push whose data are Refs: accept it.  The caller has checked seq and the number of inputs,
 * and settles the job. */
int job_take_refs(struct job *job, const struct msg_job_push *msg, struct failure *ret_failure);
/* Answer a push that came as a descriptor, or several. */
void job_complete_push(struct job *job, const struct push *push, struct ring_link *link,
                       const struct failure *failure);
/* The ring is of no use: fail all jobs that have pushes in it, and those with this failure. */
void job_fail_ring(const struct ring_link *link, const struct failure *failure);

/* ---- job_descs.c ---------------------------------------------------------------------------- */

/*
 * Copies of what a client wrote into its ring: accept each as a push, or as one more row of the
 * push before it, or answer it with an error; and settle their jobs.
 */
void job_take_descs(struct ring_link *link, const struct ring_desc *descs, uint32_t n);

/* ---- job_work.c ----------------------------------------------------------------------------- */

struct chunk; /* one work entry of this job's at the device */

/* Does it have something for the device?  Sets what the flow says of its next chunk. */
bool job_has_work(struct job *job);
/* Hand its next chunk to this device, as this priority.  0, also if it has none any more, or is
 * held and cannot follow there: then it waits; or -EAGAIN (its worker takes no more now). */
int job_issue(struct job *job, const struct scheduler_place *place);
/* Where its next chunk may go: a set of devices. */
uint32_t job_next_devices(const struct job *job);
/* It has nothing more for the device: those that are after it and may follow it get into the
 * scheduler. */
void job_let_follow(struct job *job);
/*
 * The chunk's answer, or its loss, arrived.  Frees the chunk; settles the job.  error and reason
 * are the worker's words: why the result is not OK (or ""), and how it ended.
 */
void job_chunk_done(struct chunk *chunk, const struct work_result *result, const char *error);
void job_chunk_lost(struct chunk *chunk, const char *reason);

/* ---- job_answer.c --------------------------------------------------------------------------- */

/* Queue the answer of a push: its results, or failure (NULL: success). */
void job_answer_push(struct job *job, struct push *push, const struct failure *failure);
/* Queue job.done. */
void job_say_done(struct job *job);
