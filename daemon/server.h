/*
 * Server: the front end's state, and its turn.
 *
 * One libuv loop owns everything.  A *turn* delivers what the worker has done, hands it the next
 * chunks and sends the answers; it runs after each socket's bounded read or write and before the
 * loop sleeps.
 *
 *     STARTING   workers are being fitted; clients may connect and wait
 *     SERVING    READY was said: a device was ready; others may still come
 *     DRAINING   SIGTERM came: no new work, what is in flight finishes within LIMIT_DRAIN
 *     STOPPED    the loop ends
 *
 * Thread: the one loop.
 */
#pragma once

#include "daemon/aside.h"
#include "daemon/awake.h"
#include "daemon/config.h"
#include "daemon/devices.h"
#include "daemon/job.h"
#include "daemon/job_slots.h"
#include "daemon/listener.h"
#include "daemon/outcomes.h"
#include "daemon/places.h"
#include "daemon/pool.h"
#include "daemon/rates.h"
#include "daemon/scheduler.h"
#include "daemon/session.h"
#include "daemon/user.h"

#include <uv.h>

#define SERVER_JOB_BUCKETS LIMIT_JOB_SLOTS /* ids go up by one: they hardly ever meet */

#define SERVER_RETRY_MS 50 /* what BUSY answers suggest; about one bulk push.  Not tuned. */

enum server_state { SERVER_STARTING, SERVER_SERVING, SERVER_DRAINING, SERVER_STOPPED };

struct server {
    uv_loop_t loop;
    enum server_state state;
    int exit_code;
    uint64_t start_ns;
    uint64_t epoch; /* random: differs between two starts */

    char reason[256];     /* why this backend */
    bool may_fall_back;   /* to the CPU, because no GPU worker did start (yet) */
    bool has_device_news; /* since server_note_devices() */

    struct segments *segments;
    struct pool *pool;
    struct job_slots *job_slots;
    struct device_list device_list;
    struct devices devices;
    struct scheduler scheduler;
    struct places places[PRIORITY_COUNT];
    struct awake awake;
    struct aside *aside; /* NULL: none was needed yet */
    bool has_no_aside;   /* it could not be made */
    bool is_aside;       /* a call is made by it now: no job ends */
    uint64_t urgent_ns;  /* when the last urgent chunk was handed out */
    struct rates rates;
    struct msg_stats stats; /* counters; gauges are filled in by server_stats() */

    struct job *jobs;
    struct job *jobs_by_id[SERVER_JOB_BUCKETS]; /* those that have one, by server_jobs_like() */
    uint64_t last_job_id;
    struct job *released; /* to be settled in this turn */
    struct outcomes outcomes;
    struct ring_pool *ring_pool;
    struct ring_link *rings;
    struct ring_link *rings_awake; /* may have descriptors, or completions to show */
    struct ring_link *ring_blank;  /* made beforehand, for the next ring.open; NULL: none is */
    struct ring_leftover *ring_leftovers;
    uint64_t last_ring_id;

    struct constant *constants;
    uint64_t last_const_id;

    struct user *users;
    struct session *sessions;
    uint32_t n_sessions;
    struct session *again;         /* to read from again */
    struct session *waiting_first; /* for room in the pool, in order of arrival */
    struct session *waiting_last;
    struct session *waiting_next; /* of them, that is to try; NULL: none is */
    bool has_room_come;           /* since they tried */
    uint32_t n_readers;           /* sessions that were readable this turn of the loop ... */
    uint32_t n_readers_was;       /* ... and the last */
    struct session *dirty_first[PRIORITY_COUNT]; /* to flush in this turn, by the most urgent ... */
    struct session *dirty_last[PRIORITY_COUNT];  /* ... answer that each has, then by arrival */

    struct listener listener;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;  /* active while sessions are in `again` */
    uv_idle_t go_on; /* active for one look at sockets that must not block: more is to be done */
    uv_timer_t tick; /* active while something is timed */
    uv_timer_t watchdog;
    uv_timer_t blank_timer; /* active until a blank is made again */
    uv_timer_t drain_timer;
    uint64_t drain_start_ns;
    uv_signal_t signals[2];
};

/* Run until SIGTERM or SIGINT.  Returns the exit code. */
int server_run(struct server *server, const struct config *config, struct spawner *spawner);

/* ---- for jobs, sessions and handlers -------------------------------------------------------- */

/* See above; cheap when there is nothing to do. */
void server_turn(struct server *server);
/* Set up its handles; have the loop take turns; end that. */
void server_turn_init(struct server *server);
void server_turn_start(struct server *server);
void server_turn_stop(struct server *server);
/* No call is made aside any more. */
void server_turn_end_aside(struct server *server);
/* Devices came or went: serve, fall back, give up, or tell.  Called where no worker's callback
 * runs. */
void server_note_devices(struct server *server);

void server_add_job(struct server *server, struct job *job);
void server_remove_job(struct server *server, struct job *job);
/* Give it an id and a token, by which clients name it.  BUSY: there is no randomness for one. */
int server_name_job(struct server *server, struct job *job, struct failure *ret_failure);
struct job *server_find_job(struct server *server, uint64_t id);
/* Jobs one of which may have this low half of an id: the others by next_like. */
struct job *server_jobs_like(struct server *server, uint32_t id);

/* Or UNKNOWN_OP.  Nobody is let in before a worker has announced its ops. */
int server_find_op(struct server *server, const char *name, uint32_t *ret_index,
                   struct failure *ret_failure);
/* The set of devices that may run work with these options (require, device).  NO_DEVICE: none. */
int server_find_devices(const struct server *server, const struct msg_options *options,
                        uint32_t *ret_devices, struct failure *ret_failure);

/* Forget all connections' last runs: they would be prepared differently, or hold scarce slots. */
void server_drop_memos(struct server *server);

/* Is urgent work likely, so that a turn is due after each message? */
bool server_is_hurried(const struct server *server);
/*
 * As channel_receive(), and channel_send(): server is a struct server.  Where there is a CPU for it
 * urgent work does not wait for them: it is served meanwhile.  The memory they work on stays.
 */
ssize_t server_receive(struct server *server, int fd, const struct iovec *iov, size_t n_iov,
                       bool *ret_had_fds);
ssize_t server_send(void *server, int fd, const struct iovec *iov, size_t n_iov);
/* How much one session may read, or write, now: bytes. */
size_t server_read_budget(const struct server *server);
size_t server_write_budget(const struct server *server);
/* It has something to send, of this priority: if it is marked already it may move up. */
void server_mark_dirty(struct server *server, struct session *session, enum priority priority);
void server_mark_again(struct server *server, struct session *session);
void server_mark_waiting(struct server *server, struct session *session);
/* The pool got memory back: who waits for it tries again this turn. */
void server_room_came(struct server *server);
void server_unmark_waiting(struct server *server, struct session *session);
void server_forget_session(struct server *server, struct session *session);
/* Something is timed: make sure that the tick runs. */
void server_need_tick(struct server *server);

/* The time when the loop woke, to the millisecond, for nothing. */
static inline uint64_t server_loop_ns(const struct server *server)
{
    return uv_now(&server->loop) * UINT64_C(1000000);
}

void server_stats(const struct server *server, struct msg_stats *ret_stats);
/* Add the queues to them, as this user may see them. */
void server_queues(const struct server *server, uid_t viewer, struct msg_stats *stats);
