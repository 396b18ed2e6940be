/*
 * libgpupipe: hands work to gpupiped, over one connection to its Unix socket.
 *
 * Three ways to use it, each with an example:
 *   - gpupipe_run(): one call, one answer (examples/blocking.c);
 *   - a streaming job: gpupipe_job_open(), then gpupipe_submit(), gpupipe_wait() and gpupipe_reap()
 *     in turns, pushes and results moving in both directions at once;
 *   - the same in an event loop: gpupipe_get_fd() is polled, gpupipe_dispatch() does the work
 *     (examples/poll_loop.c, examples/uv_loop.c).
 *
 * A job's data travel through the socket, from and to any memory; or they lie in a ring, memory
 * that the device has mapped, and do not travel (gpupipe_ring_open(), examples/ring.c).
 *
 * Records: an op works on arrays of records, fixed numbers of bytes without gaps; how many bytes is
 * the op's affair (gpupipe_record_size(), gpupipe_op_describe()).  Sizes are bytes, times integer
 * nanoseconds, data little-endian.
 *
 * Errors: functions that can fail return a negative enum gpupipe_status, and gpupipe_last_error()
 * has the details.  Once the connection is lost every call fails with GPUPIPE_ERROR_LOST and the
 * reason of the loss: what was under way comes back from gpupipe_reap() with it, and
 * gpupipe_reconnect() is what helps.  Nothing is printed, no signal is raised or handled, no thread
 * is started.
 *
 * Threads: a connection, its jobs and what they return belong to one thread at a time; several
 * connections are independent.  Only gpupipe_wake() may be called by another thread.  After fork()
 * the connection is the parent's: in the child every call but gpupipe_close(), which then only
 * frees memory and descriptors there, fails with GPUPIPE_ERROR_MISUSE.
 *
 * Structs with a member `size` grow at their end in later versions: GPUPIPE_INIT() clears one and
 * sets its size, which tells the library what the program was built with.  Structs that only the
 * library fills, and hands out by a pointer to const, grow as well, without a size.
 *
 * C99 or later, or C++.  Link with `pkg-config --libs gpupipe`; nothing but the C library is
 * needed.
 */
#ifndef GPUPIPE_H
#define GPUPIPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpupipe;      /* a connection */
struct gpupipe_job;  /* a streaming job on it */
struct gpupipe_ring; /* memory that it shares with the daemon */

#define GPUPIPE_IN_MAX  4 /* inputs of an op */
#define GPUPIPE_OUT_MAX 2 /* outputs of an op */

#define GPUPIPE_INIT(pointer)                                                                      \
    (memset((pointer), 0, sizeof(*(pointer))), (pointer)->size = sizeof(*(pointer)))

/* ---- errors -------------------------------------------------------------------------------- */

enum gpupipe_status {
    GPUPIPE_OK = 0,

    /* The daemon's, by the names it uses on the wire. */
    GPUPIPE_ERROR_PROTO = -1,           /* broke the protocol or a limit of it */
    GPUPIPE_ERROR_VERSION = -2,         /* library and daemon have no version in common */
    GPUPIPE_ERROR_UNKNOWN_METHOD = -3,  /* the daemon is older than this call */
    GPUPIPE_ERROR_UNKNOWN_OP = -4,      /* no such op on this daemon */
    GPUPIPE_ERROR_INVALID_PARAM = -5,   /* unknown, missing or of the wrong type */
    GPUPIPE_ERROR_RANGE = -6,           /* a value is outside what it may be */
    GPUPIPE_ERROR_TOO_BIG = -7,         /* larger than a limit that does not move */
    GPUPIPE_ERROR_NO_CREDIT = -8,       /* more pushes than the window holds */
    GPUPIPE_ERROR_SEQ = -9,             /* a push behind the input's end */
    GPUPIPE_ERROR_BUSY = -10,           /* no room now; try again after retry_ms */
    GPUPIPE_ERROR_QUOTA = -11,          /* the user's share is used up */
    GPUPIPE_ERROR_DENIED = -12,         /* not allowed for this user */
    GPUPIPE_ERROR_NOT_YOURS = -13,      /* belongs to another connection */
    GPUPIPE_ERROR_NOT_FOUND = -14,      /* no such job or object, or it has ended */
    GPUPIPE_ERROR_NO_DEVICE = -15,      /* no device can do this */
    GPUPIPE_ERROR_NO_MEMORY = -16,      /* the device is out of memory */
    GPUPIPE_ERROR_DEADLINE = -17,       /* the deadline passed first */
    GPUPIPE_ERROR_CANCELLED = -18,      /* cancelled */
    GPUPIPE_ERROR_KERNEL_FAULT = -19,   /* the op's kernel faulted */
    GPUPIPE_ERROR_KERNEL_TIMEOUT = -20, /* the op's kernel ran over its time limit */
    GPUPIPE_ERROR_RETRY_UNSAFE = -21,   /* lost with its worker and not repeatable */
    GPUPIPE_ERROR_DEVICE_LOST = -22,    /* lost with its worker or device */
    GPUPIPE_ERROR_QUARANTINED = -23,    /* this op killed its worker twice for this user */
    GPUPIPE_ERROR_RING = -24,           /* its contents broke its rules, or its memory is no more */
    GPUPIPE_ERROR_INTERNAL = -25,       /* a defect of the daemon */

    /* The library's own. */
    GPUPIPE_ERROR_LOST = -101,         /* there is no connection, or no longer */
    GPUPIPE_ERROR_MISUSE = -102,       /* the call broke a rule of this file; nothing was done */
    GPUPIPE_ERROR_OUT_OF_MEMORY = -103 /* this process is out of memory or descriptors */
};

struct gpupipe_error {
    int status;            /* enum gpupipe_status; one that is unknown here is INTERNAL */
    const char *name;      /* "RANGE" for GPUPIPE_ERROR_RANGE, and so on */
    const char *message;   /* a sentence for people: printable ASCII */
    const char *field;     /* the parameter, option or key it is about; "" = none */
    uint32_t retry_ms;     /* when it makes sense to try again; 0 = unknown */
    uint64_t predicted_ns; /* how long what was not admitted would take; 0 = that is not why */
};

/*
 * Why the last call that failed did so; GPUPIPE_OK if none has.  The library's, until the next call
 * on this connection fails.  For gpupipe NULL: that memory was lacking even for a connection.
 */
const struct gpupipe_error *gpupipe_last_error(const struct gpupipe *gpupipe);

/* A status in a few words, for one without a gpupipe_error; never NULL. */
const char *gpupipe_strerror(int status);

/* ---- the connection ------------------------------------------------------------------------ */

/*
 * Connect to the daemon that listens on socket_path; if NULL, on $GPUPIPE_SOCKET; if that is not
 * set, to the user's own daemon ($XDG_RUNTIME_DIR/gpupiped/rpc.sock), else to the system's
 * (/run/gpupiped/rpc.sock).  program: a name for the daemon's log.
 *
 * On failure *ret_gpupipe is a connection that is lost already, so that gpupipe_last_error() can
 * tell why: close it in any case.  (It is NULL if there was no memory for it.)  Blocks.
 */
int gpupipe_open(struct gpupipe **ret_gpupipe, const char *socket_path, const char *program);

/* Ends the connection and frees it with all its jobs, which the daemon cancels, and its rings:
 * buffers are the caller's again, and memory of rings is gone.  NULL is fine. */
void gpupipe_close(struct gpupipe *gpupipe);

/*
 * Connect again once the connection is lost, to the same path; where gpupipe_open() has failed,
 * this tries the same again.  gpupipe_get_fd() stays as it is, gpupipe_limit() is the new daemon's.
 * Nothing in the library does this by itself, or waits for a daemon to come back.  Blocks.
 *
 * What the lost connection had is not sent again.  Pushes that were under way have come, or will,
 * out of gpupipe_reap(): each once, before all later ones, with LOST or with what was back before
 * the loss.  Its jobs and rings take no more (MISUSE), and remain the program's to free and to
 * close, when it likes.  Until then a ring's memory stays where it is, with what lies in it; only
 * a daemon that lives on, and has hung up, empties it (zeros).  Constants are gone, and their ids
 * may become those of others: put them again.
 *
 * On failure nothing has changed, and it can be tried again: gpupipe_last_error() says what is
 * wrong with which path (LOST), or what came of saying hello there (BUSY, VERSION).  MISUSE: the
 * connection is not lost; it goes on.
 */
int gpupipe_reconnect(struct gpupipe *gpupipe);

/* Differs between two starts of the daemon: after gpupipe_reconnect() it tells whether this is
 * another one.  The last one's while the connection is lost; 0 if there never was one. */
uint64_t gpupipe_epoch(const struct gpupipe *gpupipe);

/*
 * One descriptor for the connection's whole life, reconnects included, to be polled for POLLIN
 * (level-triggered) and for nothing else: it is ready when gpupipe_dispatch() has work, after
 * gpupipe_wake() and gpupipe_reconnect(), and while the connection is lost, also where
 * gpupipe_open() failed (-1 if that had no descriptor).  Before waiting on it, reap until nothing
 * is left.
 */
int gpupipe_get_fd(const struct gpupipe *gpupipe);

/*
 * Send and receive what can be, waiting for it at most timeout_ms (0: not at all, -1: for ever);
 * gpupipe_wake() or a signal ends the wait.  Returns 0.
 */
int gpupipe_dispatch(struct gpupipe *gpupipe, int timeout_ms);

/*
 * Send and receive until there is something for gpupipe_reap(), or a job has ended since the last
 * wait (gpupipe_job_result() tells which): returns 1.  Returns 0 after timeout_ns (negative:
 * never), gpupipe_wake() or a signal, and now and then for no reason.
 *
 * While urgent pushes are in rings it looks for up to 100 us before it sleeps, where the daemon
 * waits for urgent work in the same way (README.md, As a service): that keeps a CPU busy meanwhile.
 */
int gpupipe_wait(struct gpupipe *gpupipe, int64_t timeout_ns);

/*
 * End the gpupipe_dispatch() or gpupipe_wait() that is under way, or the next one.  From any thread
 * or signal handler, as long as the connection is not being closed.  Calls that block for an answer
 * of the daemon's go on, and leave it to the next wait.
 */
void gpupipe_wake(struct gpupipe *gpupipe);

/* One of the daemon's limits by its name in PROTOCOL.md ("max_push"); 0: it announces no such. */
uint64_t gpupipe_limit(const struct gpupipe *gpupipe, const char *name);

/* ---- ops ----------------------------------------------------------------------------------- */

/*
 * What an op takes and gives: *ret_json is the daemon's answer to op.list (PROTOCOL.md) as JSON, an
 * object for the op called name, or an array of all for NULL.  The caller's to free().  Blocks.
 */
int gpupipe_op_describe(struct gpupipe *gpupipe, const char *name, char **ret_json);

enum gpupipe_kind { GPUPIPE_INT, GPUPIPE_FLOAT, GPUPIPE_STRING };

/* A parameter of an op: `struct gpupipe_value block = {"block", GPUPIPE_INT, 4096, 0, NULL};` */
struct gpupipe_value {
    const char *name;
    enum gpupipe_kind kind; /* which of the following counts; a float parameter takes an integer */
    int64_t i;
    double f;
    const char *s;
};

/* The zero of each enum is what holds if nothing is said. */
enum gpupipe_priority { GPUPIPE_NORMAL, GPUPIPE_URGENT, GPUPIPE_BULK };
enum gpupipe_require { GPUPIPE_ANY, GPUPIPE_GPU, GPUPIPE_CPU };
/* A last record that is short: refused, padded with zero bytes, or the op works on what there is.
 * Not every op can do more than refuse. */
enum gpupipe_tail { GPUPIPE_TAIL_ERROR, GPUPIPE_TAIL_ZERO, GPUPIPE_TAIL_SHORT };

/*
 * Upload an operand that is the same for a whole job, like a matrix: *ret_id names it in
 * gpupipe_job_opts.consts, on this connection.  The bytes are not needed any longer afterwards.
 * ret_sha256 gets the SHA-256 of what the daemon holds now, as sha256sum prints it: room for
 * GPUPIPE_SHA256_SIZE characters, or NULL.  Blocks.  TOO_BIG: over the limit "const_size".
 */
#define GPUPIPE_SHA256_SIZE 65 /* 64 hexadecimal digits and a NUL */
int gpupipe_const_put(struct gpupipe *gpupipe, const void *data, uint64_t size, uint64_t *ret_id,
                      char *ret_sha256);
/* No later job can name it; jobs that do already keep it.  Blocks. */
int gpupipe_const_drop(struct gpupipe *gpupipe, uint64_t id);

/* How work is to be done. */
struct gpupipe_job_opts {
    size_t size;
    enum gpupipe_priority priority;
    enum gpupipe_require require; /* fail with NO_DEVICE rather than compute elsewhere */
    enum gpupipe_tail tail;
    const char *device;     /* a name of the daemon's device list; NULL: any */
    uint64_t deadline_ns;   /* from the request's arrival, then DEADLINE; 0: none */
    int wants_timing;       /* fill gpupipe_completion.timing */
    const uint64_t *consts; /* the op's constants, all of them in the order of its description */
    uint32_t n_consts;

    /* For gpupipe_job_open() only.  Less may be granted: see gpupipe_window() and so on. */
    uint32_t window;   /* pushes under way at once, 1 to the limit "window"; 0: the default */
    uint64_t max_push; /* bytes of any one array of one push, to the limit "max_push"; 0: default */
    int is_unordered;  /* completions come as they are done, not in the order of submission */
    struct gpupipe_ring *ring; /* where all arrays of all pushes lie; NULL: anywhere */

    int no_ring; /* gpupipe_run(): send the data through the socket, whatever their size */

    /*
     * Jobs that must have ended before this work begins, by their tokens (gpupipe_job_token());
     * they may be other programs'.  It fails with CANCELLED if one of them ends other than well.
     * gpupipe_run() blocks meanwhile: call gpupipe_job_end() for those of the same thread before
     * (else MISUSE, where it sees that).
     */
    const char *const *after;
    uint32_t n_after;

    /* Refuse at once, with DEADLINE and gpupipe_error.predicted_ns, what cannot make its deadline
     * as the daemon foresees: a run, a job (of which total_size says how large it will be), a push
     * with a deadline of its own.  What was never measured is admitted. */
    int admit;
    uint64_t total_size; /* gpupipe_job_open(): bytes of the first input, in all; 0: unknown */
};

/* ---- rings --------------------------------------------------------------------------------- */

/*
 * A ring is memory that the daemon and its devices have mapped as well: the data of a job that is
 * opened with opts.ring are written there by the program, used where they lie, and read there.
 * Everything else is as with other memory, except that gpupipe_submit() and gpupipe_reap() need a
 * system call only to wake a daemon that sleeps.  With GPUPIPE_TAIL_ZERO the library writes the
 * zeros behind a short last record, for which the same piece of memory must have room.  Of a push
 * that the daemon refuses the completion has the status, and no details.
 *
 * size: bytes for data, rounded up to a power of two; 0 is 64 MiB.  device: the one that will
 * mostly use it, by its name in the daemon's device list; NULL: any.  Blocks.  BUSY: others have
 * the memory now, try again after retry_ms.  QUOTA: this connection, or this user, has its share.
 * When the daemon closes a ring (RING) or the connection is lost, what was under way comes back
 * with that.
 */
int gpupipe_ring_open(struct gpupipe_ring **ret_ring, struct gpupipe *gpupipe, uint64_t size,
                      const char *device);
/* Blocks until the pushes in it are back (they may still be reaped).  Its memory is gone then, and
 * jobs that were opened with it take no more pushes.  NULL is fine. */
void gpupipe_ring_close(struct gpupipe_ring *ring);

/*
 * A piece of the ring's memory, at a multiple of 64 bytes, as every array must be; its contents are
 * anything.  NULL: gpupipe_last_error() has why; BUSY means that no free piece is that large.
 */
void *gpupipe_ring_alloc(struct gpupipe_ring *ring, uint64_t size);
/* In any order, but not while a push that uses it is under way.  NULL is fine. */
void gpupipe_ring_free(struct gpupipe_ring *ring, void *data);

/* ---- work ---------------------------------------------------------------------------------- */

/* Memory that is read, and memory that is written. */
struct gpupipe_span {
    const void *data;
    uint64_t size;
};
struct gpupipe_room {
    void *data;
    uint64_t size; /* bytes that fit */
};

/*
 * One push: n_records records of each of the op's inputs, in the order of its description, and room
 * for its outputs.  With opts.tail the last record of a job may be short, and counts.  The spans
 * are not copied: from submission until the push is reaped inputs must not change, and outputs not
 * be touched.
 */
struct gpupipe_desc {
    size_t size;
    struct gpupipe_job *job;
    uint64_t tag; /* the caller's; comes back with the completion */
    uint64_t n_records;
    uint32_t n_in;
    uint32_t n_out; /* 0 for an op that reduces: its output is the job's */
    struct gpupipe_span in[GPUPIPE_IN_MAX];
    struct gpupipe_room out[GPUPIPE_OUT_MAX];
    uint64_t deadline_ns; /* from when the daemon takes it, then DEADLINE for this push alone: the
                             job goes on.  0: none but the job's.  Not of an op that reduces */
    int is_last;          /* no push of the job will follow: gpupipe_job_end(), and in a ring with
                             no message, so that who is after the job waits no longer for it */
};

/* Where time went; PROTOCOL.md ("Timing") has the fine print. */
struct gpupipe_timing {
    uint64_t queue_ns;   /* accepted until begun */
    uint64_t in_ns;      /* copying to the device, summed over chunks, which overlap */
    uint64_t compute_ns; /* the same of computing */
    uint64_t out_ns;     /* and of copying back */
};

/* A push that is back.  Strings, timing and error are the library's until the next gpupipe_reap()
 * or gpupipe_run() on the connection. */
struct gpupipe_completion {
    size_t size;
    uint64_t tag;
    uint64_t n_records;                 /* computed, from the first on */
    uint64_t out_size[GPUPIPE_OUT_MAX]; /* bytes that now lie in each output */
    int status;                         /* GPUPIPE_OK, or error->status */
    enum gpupipe_priority priority;
    const char *device;                  /* "cuda0"; of several, all: "cuda0,cuda1" */
    const char *backend;                 /* "cuda" or "cpu" */
    const char *path;                    /* how the data went: "inline" or "ring" */
    const struct gpupipe_timing *timing; /* NULL unless it was asked for */
    const struct gpupipe_error *error;   /* NULL where the status is GPUPIPE_OK */
};

/*
 * One push, and wait for its answer.  n_values may be 0, opts NULL; of desc, job, n_records,
 * deadline_ns and is_last do not count, and n_out is the op's number of outputs (also if it
 * reduces).  From 1 MiB on the data are copied through a ring that the connection keeps for that,
 * where the daemon has one to give; else everything goes in one message, which
 * gpupipe_limit(gpupipe, "frame") bounds.
 *
 * *ret_completion, whose size is to be set, is untouched on failure; NULL: of no interest.
 */
int gpupipe_run(struct gpupipe *gpupipe, const char *op, const struct gpupipe_value *values,
                uint32_t n_values, const struct gpupipe_job_opts *opts,
                const struct gpupipe_desc *desc, struct gpupipe_completion *ret_completion);

/*
 * Submit pushes, in order; their jobs may differ.  Never blocks: what does not leave at once leaves
 * in gpupipe_dispatch() and gpupipe_wait().  The size of descs[0] is that of all.
 *
 * Returns how many were taken; fewer than n: the window of the next one's job is full, or it will
 * be refused: reap, and try again.  Negative: the first one was refused here, and nothing was
 * taken. Of one that the daemon refuses the completion tells, and the job goes on without it;
 * pushes that were under way behind it come back with SEQ, to be submitted again.
 */
int gpupipe_submit(struct gpupipe *gpupipe, const struct gpupipe_desc *descs, uint32_t n);

/*
 * Pushes of all jobs that are back, at most max of them.  Never blocks, and receives nothing by
 * itself, but finds what is back in rings.  The size of ret_completions[0] is to be set, and is
 * that of all.  Returns how many.
 */
int gpupipe_reap(struct gpupipe *gpupipe, struct gpupipe_completion *ret_completions, uint32_t max);

/* ---- streaming jobs ------------------------------------------------------------------------ */

/*
 * A job is an op over any number of records, sent in pushes.  n_values may be 0, opts NULL.  It
 * lives until gpupipe_job_free() or gpupipe_close().  Blocks.  BUSY: there is no room now, try
 * again after gpupipe_last_error()->retry_ms.
 */
int gpupipe_job_open(struct gpupipe_job **ret_job, struct gpupipe *gpupipe, const char *op,
                     const struct gpupipe_value *values, uint32_t n_values,
                     const struct gpupipe_job_opts *opts);

/* Cancels what is open and blocks until every push is back; those not reaped are dropped.  NULL is
 * fine. */
void gpupipe_job_free(struct gpupipe_job *job);

/* The job's number at the daemon, as `gpupipe-cli job list` shows it. */
uint64_t gpupipe_job_id(const struct gpupipe_job *job);
/* What to name it by in gpupipe_job_opts.after, in this program or any that is given it: it lets
 * its holder wait for the job, and nothing else.  Lives as long as the job. */
const char *gpupipe_job_token(const struct gpupipe_job *job);

/*
 * Bytes of one record of an input, or of an output (is_output); of one element, where an input's
 * records differ in length.  0: there is no such.
 */
uint32_t gpupipe_record_size(const struct gpupipe_job *job, int is_output, uint32_t index);
/* Records of one push, at most: so many that each input and output stays within what was granted.
 */
uint64_t gpupipe_push_records(const struct gpupipe_job *job);
/* Every push but the last has a multiple of so many records (1 unless the op reduces). */
uint64_t gpupipe_push_multiple(const struct gpupipe_job *job);
/* Pushes that may be under way at once: as many sets of buffers keep the job busy. */
uint32_t gpupipe_window(const struct gpupipe_job *job);

/* No push will follow.  Does not block.  gpupipe_desc.is_last is sooner for a job in a ring, whose
 * pushes must be back before the daemon can be told otherwise. */
int gpupipe_job_end(struct gpupipe_job *job);
/* Stop: what is not done fails with CANCELLED.  Does not block. */
int gpupipe_job_cancel(struct gpupipe_job *job);

/* How a job ended. */
struct gpupipe_outcome {
    size_t size;
    int status;         /* GPUPIPE_OK: all that was submitted before gpupipe_job_end() is done */
    uint64_t n_pushes;  /* accepted */
    uint64_t n_records; /* of pushes that succeeded */
    struct gpupipe_span out[GPUPIPE_OUT_MAX]; /* of an op that reduces; else of no size */
    const struct gpupipe_error *error;        /* NULL where the status is GPUPIPE_OK */
};

/*
 * Has the job ended?  Returns 1 with *ret_outcome, whose size is to be set, or 0.  Pushes may still
 * wait to be reaped.  What the outcome points to lives as long as the job.
 */
int gpupipe_job_result(struct gpupipe_job *job, struct gpupipe_outcome *ret_outcome);

#ifdef __cplusplus
}
#endif

#endif
