/*
 * Gpupipe: the client library.  One connection to the daemon, calls that block, and streaming jobs
 * whose pushes and results move in both directions at once.
 *
 * Functions return 0 or a negative enum status with *ret_failure.  After the connection is lost
 * every call fails with the reason of the loss, every push comes back from gpupipe_job_reap() with
 * it, and every job is over; gpupipe_is_lost() tells this from an error that the daemon sent.
 *
 * Threads: one connection belongs to one thread; after fork only the parent may use it.
 */
#pragma once

#include "proto/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpupipe;
struct gpupipe_job;

#define GPUPIPE_PATH_SIZE  256
#define GPUPIPE_CANDIDATES 2

/* Where a daemon was looked for, and what came of it. */
struct gpupipe_search {
    uint32_t n_tried; /* the last one tried is the one in use, if any is */
    struct {
        char path[GPUPIPE_PATH_SIZE];
        const char *why; /* "--socket", "GPUPIPE_SOCKET", ... */
        struct failure failure;
    } tried[GPUPIPE_CANDIDATES];
};

/*
 * Connect to socket_path; if NULL, to $GPUPIPE_SOCKET; if that is not set, to the user's own daemon
 * ($XDG_RUNTIME_DIR/gpupiped/rpc.sock), else to the system's.  Says hello as `program`.
 * *ret_search is filled whatever happens.
 */
int gpupipe_open(const char *socket_path, const char *program, struct gpupipe_search *ret_search,
                 struct gpupipe **ret_gpupipe, struct failure *ret_failure);
/* The same over a connected stream socket, which becomes the library's even on failure. */
int gpupipe_open_fd(int fd, const char *program, struct gpupipe **ret_gpupipe,
                    struct failure *ret_failure);
/* Ends the connection and all its jobs (the daemon cancels them): buffers are the caller's again.
 */
void gpupipe_close(struct gpupipe *gpupipe);

const struct msg_hello_result *gpupipe_hello(const struct gpupipe *gpupipe);
bool gpupipe_is_lost(const struct gpupipe *gpupipe);

/* One epoll descriptor, constant, to be polled for POLLIN: then gpupipe_dispatch() has work. */
int gpupipe_get_fd(const struct gpupipe *gpupipe);
/*
 * Send and receive what can be, waiting for it at most timeout_ms (-1: for ever); a signal ends the
 * wait.  Fails only if the connection is lost.
 */
int gpupipe_dispatch(struct gpupipe *gpupipe, int timeout_ms, struct failure *ret_failure);

/* ---- calls that block --------------------------------------------------------------------- */

int gpupipe_ping(struct gpupipe *gpupipe, struct failure *ret_failure);
/* name NULL: all.  *ret_ops is the caller's to free(), as in the lists below. */
int gpupipe_op_list(struct gpupipe *gpupipe, const char *name, struct manifest_op **ret_ops,
                    uint32_t *ret_n_ops, struct failure *ret_failure);
int gpupipe_job_list(struct gpupipe *gpupipe, bool is_all, struct msg_job_entry **ret_entries,
                     uint32_t *ret_n_entries, struct failure *ret_failure);
int gpupipe_cancel(struct gpupipe *gpupipe, uint64_t job, enum job_state *ret_state,
                   struct failure *ret_failure);
int gpupipe_stats(struct gpupipe *gpupipe, struct msg_stats *ret_stats,
                  struct failure *ret_failure);
int gpupipe_device_list(struct gpupipe *gpupipe, struct msg_device **ret_devices,
                        uint32_t *ret_n_devices, struct failure *ret_failure);

/* ---- streaming jobs ----------------------------------------------------------------------- */

struct gpupipe_span {
    const void *data;
    uint64_t size;
};

struct gpupipe_room {
    void *data;
    uint64_t size; /* bytes that fit */
};

/*
 * One push.  The caller fills in n_records, in and, for map ops, out; from gpupipe_job_push() until
 * gpupipe_job_reap() hands it back, struct and buffers are the library's.  Then answer tells what
 * happened, and out_size how many bytes lie in each output.
 */
struct gpupipe_push {
    uint64_t n_records;
    struct gpupipe_span in[LIMIT_IN];
    struct gpupipe_room out[LIMIT_OUT];

    struct msg_answer answer;
    uint64_t out_size[LIMIT_OUT];
};

/* Blocks.  The job lives until gpupipe_job_free() or gpupipe_close(). */
int gpupipe_job_open(struct gpupipe *gpupipe, const struct msg_job_open *request,
                     struct gpupipe_job **ret_job, struct failure *ret_failure);
/* Cancels what is open and blocks until every push is back; those not reaped are dropped. */
void gpupipe_job_free(struct gpupipe_job *job);

/* Record sizes, largest push and so on, as the daemon granted them. */
const struct msg_job_opened *gpupipe_job_shape(const struct gpupipe_job *job);
/* Is there credit, and is the job neither ended nor over? */
bool gpupipe_job_can_push(const struct gpupipe_job *job);
/* How the job ended, or NULL as long as it has not.  Pushes may still wait to be reaped. */
const struct msg_job_done *gpupipe_job_done(const struct gpupipe_job *job);
/* A reduce op's output, after done; NULL if there is none.  Lives as long as the job. */
const void *gpupipe_job_result(const struct gpupipe_job *job, uint32_t output, uint64_t *ret_size);

/* None of these blocks: gpupipe_dispatch() moves the bytes. */
int gpupipe_job_push(struct gpupipe_job *job, struct gpupipe_push *push,
                     struct failure *ret_failure);
/* A push that is back (in order of completion), or NULL. */
struct gpupipe_push *gpupipe_job_reap(struct gpupipe_job *job);
/* No push will follow. */
int gpupipe_job_end(struct gpupipe_job *job, struct failure *ret_failure);
int gpupipe_job_cancel(struct gpupipe_job *job, struct failure *ret_failure);
