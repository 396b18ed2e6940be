/*
 * What the parts of the library share: the connection, the calls that wait for an answer on it, and
 * the pushes under way.
 *
 * In here errors are a struct failure, as everywhere in the project.  The functions of gpupipe.h
 * are the border: each hands what failed to error_record(), where gpupipe_last_error() finds it.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"
#include "client/search.h"
#include "proto/message.h"
#include "proto/reader.h"
#include "proto/rpc.h"
#include "proto/writer.h"

#include <sys/types.h>

/* The library's own statuses, in a struct failure. */
#define STATUS_LOST          ((enum status)(-GPUPIPE_ERROR_LOST))
#define STATUS_MISUSE        ((enum status)(-GPUPIPE_ERROR_MISUSE))
#define STATUS_OUT_OF_MEMORY ((enum status)(-GPUPIPE_ERROR_OUT_OF_MEMORY))

/* ---- errors -------------------------------------------------------------------------------- */

/* A failure, and how gpupipe.h shows it; not to be copied. */
struct error {
    struct failure failure;
    struct gpupipe_error shown;
};

/* Returns ret->shown's status, negative. */
int error_set(struct error *ret, const struct failure *failure);
/* The last step of a public function: rc, with the failure kept for the caller if it is negative.
 */
int error_record(struct gpupipe *gpupipe, int rc, const struct failure *failure);
/* "RANGE", "LOST". */
const char *error_name(int status);

/*
 * Structs that grow: the caller's has theirs_size bytes, ours ours_size, and both start with their
 * size.  check: MISUSE where it was not set.  take: into ours; MISUSE also where members are in use
 * that this version does not know.  give: into a checked one of theirs, with zeros for the rest.
 */
int error_check_size(size_t theirs_size, size_t ours_size, struct failure *ret_failure);
int error_take_struct(void *ours, const void *theirs, size_t theirs_size, size_t ours_size,
                      struct failure *ret_failure);
void error_give_struct(void *theirs, const void *ours, size_t theirs_size, size_t ours_size);

/* ---- the connection ------------------------------------------------------------------------ */

/*
 * A request under way.  on_answer is called exactly once: with the result, or with the failure that
 * the daemon or the connection's loss gave.  It may free the call.  on_payload (may be NULL) gives
 * a payload of the result its place: 0, or -1 to have it drained.
 */
struct call {
    struct call *next;
    uint32_t msgid;
    void (*on_answer)(struct call *call, const msgpack_object *result,
                      const struct failure *failure);
    int (*on_payload)(struct call *call, const struct guard *guard, struct reader_sink *ret_sink);
};

struct flight;

struct flight_list {
    struct flight *first;
    struct flight **last;
};

struct gpupipe {
    int fd;
    int wake_fd;
    int epoll_fd;        /* holds both, for the program's poll() */
    pid_t owner;         /* the process that opened it */
    bool wants_to_write; /* what epoll_fd waits for now */
    bool is_peer_gone;   /* writing failed; what the daemon said before is still read */
    bool is_lost;
    bool has_ended_job;   /* since the last gpupipe_dispatch() or gpupipe_wait() */
    struct failure loss;  /* why, once is_lost */
    struct failure stray; /* an error that answers no call: the likely reason of a loss to come */
    struct error error;   /* gpupipe_last_error() */
    struct reader *reader;
    struct writer *writer; /* NULL once lost */
    uint32_t next_msgid;
    struct call *calls;
    struct gpupipe_job *jobs;
    struct flight_list landed; /* pushes to be reaped, of all jobs */
    struct flight_list reaped; /* what the last gpupipe_reap() gave out points into them */
    struct search search;
    struct msg_hello_result hello;
};

/*
 * Set up a connection over fd, which becomes its own, and say hello.  On failure it is lost.
 * connection_create() makes one without a descriptor; NULL: out of memory.
 */
struct gpupipe *connection_create(void);
int connection_start(struct gpupipe *gpupipe, int fd, const char *program,
                     struct failure *ret_failure);

/* Is this the process that opened it, and is it connected? */
bool connection_is_ours(const struct gpupipe *gpupipe);
int connection_check(const struct gpupipe *gpupipe, struct failure *ret_failure);

/*
 * A request's head in the making: pack into packer with msgid, append payloads to message, then
 * connection_post().
 */
struct request {
    uint32_t msgid;
    msgpack_sbuffer head;
    msgpack_packer packer;
};

void request_init(struct request *request, struct gpupipe *gpupipe);
void request_finish(struct request *request);

/*
 * Queue the request, followed by n_spans payloads by reference, and have its answer go to call,
 * which must live until then.  on_sent: see writer_begin().  On failure nothing was queued.
 */
int connection_post(struct gpupipe *gpupipe, struct request *request, struct call *call,
                    const struct gpupipe_span *spans, uint32_t n_spans,
                    void (*on_sent)(void *arg, bool is_sent), void *arg,
                    struct failure *ret_failure);
/* Send what the socket takes now: after the last post of several. */
void connection_flush(struct gpupipe *gpupipe);

/* Post, and wait for the answer: `unpack` (NULL: nothing of interest) turns the result into *ret.
 */
int connection_call(struct gpupipe *gpupipe, struct request *request,
                    int (*unpack)(const msgpack_object *result, void *ret,
                                  struct failure *ret_failure),
                    void *ret, struct failure *ret_failure);
/* The same as the last step of a public function: the request is finished, and errors recorded. */
int connection_ask(struct gpupipe *gpupipe, struct request *request,
                   int (*unpack)(const msgpack_object *result, void *ret,
                                 struct failure *ret_failure),
                   void *ret);

/*
 * One turn: wait at most timeout_ns (negative: for ever) for the socket, and, if the turn heeds
 * wakes, for gpupipe_wake(); then send and receive.  Returns 1 if the socket was ready, 0 if not,
 * or a negative status if the connection is lost.
 */
enum connection_heed { CONNECTION_IGNORE_WAKES, CONNECTION_HEED_WAKES };
int connection_turn(struct gpupipe *gpupipe, int64_t timeout_ns, enum connection_heed heed,
                    struct failure *ret_failure);
/* A call has blocked, and may have met what a program waits for in poll(): have that end. */
void connection_announce(struct gpupipe *gpupipe);
bool connection_has_news(const struct gpupipe *gpupipe);

/* Every call and job ends with this failure, and the writer gives its buffers up. */
void connection_lose(struct gpupipe *gpupipe, const struct failure *failure);

/* ---- jobs: gpupipe_job.c ------------------------------------------------------------------- */

/* A request whose answer nobody waits for: job.close and job.cancel. */
struct errand {
    struct call call;
    struct gpupipe_job *job;
    bool is_under_way;
};

struct gpupipe_job {
    struct gpupipe_job *next;
    struct gpupipe *gpupipe;
    struct msg_job_opened shape;
    uint64_t next_seq;
    uint32_t n_credits;
    struct flight_list flying;
    struct errand close;
    struct errand cancel;
    bool is_ended;
    bool has_done;
    struct msg_job_done done;
    struct error error; /* done.failure, or that it was cancelled */
    void *result[LIMIT_OUT];
    uint64_t result_size[LIMIT_OUT];
};

int job_open(struct gpupipe *gpupipe, const struct msg_job_open *msg, struct gpupipe_job **ret_job,
             struct failure *ret_failure);
/* What a caller asked for, as the wire has it: job.open, and run alike. */
int job_take_op(const char *op, const struct gpupipe_value *values, uint32_t n_values,
                struct msg_op *ret_op, struct failure *ret_failure);
int job_take_options(const struct gpupipe_job_opts *opts, struct msg_options *ret_options,
                     struct failure *ret_failure);

/* A payload of a notification: 0 with its sink, or -1 to have it drained. */
int job_on_payload(struct gpupipe *gpupipe, const struct rpc_message *message,
                   const struct guard *guard, struct reader_sink *ret_sink);
void job_on_notification(struct gpupipe *gpupipe, const struct rpc_message *message);
/* Calls and writer are done with: every job is over. */
void job_on_loss(struct gpupipe *gpupipe);
/* Frees all jobs of a lost connection. */
void job_destroy_all(struct gpupipe *gpupipe);

/* ---- pushes: gpupipe_flight.c -------------------------------------------------------------- */

/* A push between gpupipe_submit() and gpupipe_reap(), or a run. */
struct flight {
    struct flight *next;
    struct call call;
    struct gpupipe_job *job; /* NULL: a run */
    uint64_t seq;
    uint64_t tag;
    struct gpupipe_room out[LIMIT_OUT];
    uint64_t out_size[LIMIT_OUT];
    bool is_sent;
    bool is_answered; /* the request job.push */
    bool has_result;
    struct msg_answer answer;
    struct error error; /* once landed: answer.failure */
    struct gpupipe_timing timing;
};

void flight_list_init(struct flight_list *list);
/* Frees those of this job; NULL: all. */
void flight_list_free(struct flight_list *list, const struct gpupipe_job *job);

/* The place of a payload of this flight's result: as call.on_payload. */
int flight_on_payload(struct flight *flight, const struct guard *guard,
                      struct reader_sink *ret_sink);
/* Its result has come. */
void flight_on_result(struct flight *flight, const struct msg_answer *answer);
/* What still flies of a lost connection's job ends with this failure. */
void flight_lose(struct flight *flight, const struct failure *failure);
