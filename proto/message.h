/*
 * Messages as plain structs: what handlers and the client library work with.  codec.h turns each
 * into MessagePack and back.  Payload bytes are not in here: they travel through reader and writer.
 *
 * Sizes in bytes, times in nanoseconds, ids below 2^53.  Strings are NUL-terminated copies.
 */
#pragma once

#include "proto/limits.h"
#include "proto/manifest.h"
#include "proto/status.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

#ifndef API_LEVEL        /* a test's daemon is of another */
#define API_LEVEL      1 /* grows with the first release after an addition to the protocol */
#define API_COMPATIBLE 1 /* the oldest level that this one still serves */
#endif

enum require { REQUIRE_ANY, REQUIRE_GPU, REQUIRE_CPU, REQUIRE_COUNT };

extern const char *const priority_names[PRIORITY_COUNT]; /* "urgent", "normal", "bulk" */
extern const char *const require_names[REQUIRE_COUNT];   /* "any", "gpu", "cpu" */
extern const char *const tail_names[TAIL_COUNT];         /* "error", "zero", "short" */

/* ---- requests ------------------------------------------------------------------------------ */

struct msg_hello {
    char program[64];
    uint32_t api;          /* the level the client was written for; 0 = not said */
    bool wants_structured; /* errors: "structured" */
};

struct msg_op_list {
    char name[MANIFEST_NAME_SIZE]; /* "" = all */
};

/* An op with its parameters, as a client names it. */
struct msg_op {
    char name[MANIFEST_NAME_SIZE];
    uint32_t n_values;
    struct value values[LIMIT_PARAMS];
};

#define MSG_TOKEN_SIZE 33 /* 128 random bits in hexadecimal digits */

/* Another job: by its token, or if that is "" by its number, which only its own connection has. */
struct msg_after {
    uint64_t job;
    char token[MSG_TOKEN_SIZE];
};

/* The options of run and job.open; `has_` fields tell "not said" from a value. */
struct msg_options {
    enum priority priority; /* default: normal */
    uint64_t deadline_ns;   /* from the request's arrival; 0 = none */
    enum require require;
    enum tail tail;
    char device[WORKER_DEVICE_SIZE]; /* "" = any */
    bool wants_timing;
    uint32_t n_consts;
    uint64_t consts[LIMIT_CONSTS]; /* their ids, in the order of the manifest */
    uint32_t n_after;
    struct msg_after after[LIMIT_AFTER]; /* that must have ended before it begins */
    uint32_t window;                     /* job.open; 0 = default */
    uint64_t max_push;                   /* job.open; 0 = default */
    bool is_unordered;                   /* job.open; ordered = false */
    bool is_in_rings;                    /* job.open; inline = false: all its data lie in rings */
    bool is_admitted;                    /* admit = true: refuse what cannot make its deadline */
    uint64_t total_size; /* job.open; bytes of its first input, in all; 0 = unknown */
};

struct msg_run {
    struct msg_op op;
    struct msg_options options;
    uint32_t n_data; /* elements of the payload array */
};

struct msg_job_open {
    struct msg_op op;
    struct msg_options options;
};

/* A piece of a ring's data: [ring, offset, length]. */
struct msg_ref {
    uint64_t ring;
    uint64_t offset; /* bytes, from the start of the data */
    uint64_t size;
};

struct msg_job_push {
    uint64_t job;
    uint64_t seq;
    bool has_n;
    uint64_t n; /* records, if the client said so: must agree with the payloads */
    uint32_t n_data;
    uint32_t n_refs; /* of the data: either none of them, or all, which stand in in[] */
    struct msg_ref in[LIMIT_IN];
    uint32_t n_out; /* where the outputs go, if the inputs are Refs */
    struct msg_ref out[LIMIT_OUT];
    uint64_t deadline_ns; /* from its arrival; 0 = none */
};

struct msg_job { /* job.close, job.cancel */
    uint64_t job;
};

struct msg_const_put {
    uint32_t n_data; /* elements of the payload array */
};

struct msg_const { /* const.drop */
    uint64_t id;
};

struct msg_ring_open {
    uint64_t size;
    char device[WORKER_DEVICE_SIZE]; /* that will mostly use it; "" = any */
};

struct msg_ring { /* ring.close */
    uint64_t ring;
};

struct msg_job_list {
    bool is_all; /* also other connections' jobs */
};

/* X(NAME, wire name) */
#define EVENT_LIST(X)                                                                              \
    X(DEVICE, "device") /* a device's state is another one */                                      \
    X(DRAIN, "drain")   /* the daemon is stopping: no new work */

enum event_kind {
#define X(name, text) EVENT_##name,
    EVENT_LIST(X)
#undef X
        EVENT_COUNT
};
extern const char *const event_names[EVENT_COUNT];

struct msg_subscribe {
    uint32_t n_kinds;
    uint32_t kinds[EVENT_COUNT]; /* enum event_kind */
};

/* ---- results ------------------------------------------------------------------------------- */

/* A number that a daemon keeps clients to: of its limits.h, not of ours. */
struct msg_limit {
    char name[MANIFEST_NAME_SIZE];
    uint64_t value;
};

#define MSG_LIMITS_MAX 64 /* further ones are ignored, like unknown keys */

struct msg_hello_result {
    char version[32];
    uint32_t api_level;
    uint32_t api_compatible;
    uint64_t epoch;   /* differs between two starts of the daemon */
    char rights[16];  /* "user" */
    char backend[16]; /* "cpu", "cuda" or "none" */
    uint32_t n_limits;
    struct msg_limit limits[MSG_LIMITS_MAX]; /* written from our limits.h, whatever stands here */
};

struct msg_job_opened {
    uint64_t job;
    char token[MSG_TOKEN_SIZE]; /* with which others may be after it */
    uint32_t credit;
    uint64_t max_push;      /* bytes of any one array of one push, at most */
    uint64_t push_multiple; /* every push but the last has a multiple of this many records */
    uint32_t n_in, n_out;
    uint32_t in_size[LIMIT_IN]; /* bytes of one record */
    uint32_t out_size[LIMIT_OUT];
};

struct msg_const_put_result {
    uint64_t id;
    char sha256[65]; /* of its bytes, in hexadecimal digits; "": an older daemon */
};

struct msg_timing {
    uint64_t queue_ns; /* accepted to first chunk begun */
    /* Sums over chunks, which overlap; PROTOCOL.md has the fine print. */
    uint64_t in_ns; /* copy to the device */
    uint64_t compute_ns;
    uint64_t out_ns; /* copy from the device */
};

/* "cuda0,cuda1" and so on, for as many as there may be. */
#define MSG_DEVICES_SIZE (LIMIT_DEVICES * sizeof("cuda31"))

/* How work was done: in the result of run, and in job.result. */
struct msg_done_by {
    char backend[16];
    char device[MSG_DEVICES_SIZE]; /* several with commas between */
    enum priority priority;
    char path[16]; /* "inline" or "ring" */
    bool has_timing;
    struct msg_timing timing;
};

/* The result of run (job, seq, credit unused) and the notification job.result. */
struct msg_answer {
    uint64_t job;
    uint64_t seq;
    uint64_t n; /* records */
    uint32_t credit;
    struct msg_done_by by;
    bool has_failure; /* job.result only; excludes outputs */
    struct failure failure;
    uint32_t n_out; /* outputs that follow as payloads */
};

struct msg_job_closed {
    uint64_t pushed;
};

struct msg_ring_opened { /* goes with the descriptors of queues, data and doorbell */
    uint64_t ring;
    uint64_t size;     /* of the data */
    uint32_t layout;   /* of the queues: RING_LAYOUT */
    uint32_t entries;  /* of either queue */
    uint32_t sq, cq;   /* where in the queues' memory the two begin */
    uint32_t align;    /* unit of offsets in descriptors */
    uint64_t awake_ns; /* after an urgent descriptor the daemon does not sleep for so long; or 0 */
};

struct msg_ring_closed { /* the notification ring.closed */
    uint64_t ring;
    struct failure failure;
};

/* X(NAME, wire name): ordered so that a comparison means "ended". */
#define JOB_STATE_LIST(X)                                                                          \
    X(OPEN, "open")                                                                                \
    X(CLOSED, "closed")                                                                            \
    X(DONE, "done")                                                                                \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")                                                                      \
    X(EXPIRED, "expired")

enum job_state {
#define X(name, text) JOB_##name,
    JOB_STATE_LIST(X)
#undef X
        JOB_STATE_COUNT
};
extern const char *const job_state_names[JOB_STATE_COUNT];

struct msg_job_state { /* the result of job.cancel */
    enum job_state state;
};

struct msg_job_entry { /* one row of job.list */
    uint64_t job;
    char op[MANIFEST_NAME_SIZE];
    enum job_state state;
    enum priority priority;
    uint64_t pushed;
    uint64_t done;
    uint32_t held; /* by so many others that it is after */
    char token[MSG_TOKEN_SIZE];
};

struct msg_job_done { /* the notification job.done */
    uint64_t job;
    enum job_state state;
    uint64_t pushes;
    uint64_t n;
    bool has_failure;
    struct failure failure;
    uint32_t n_out; /* a reduce op's outputs, as payloads */
};

struct msg_event { /* the notification event */
    enum event_kind kind;
    char device[WORKER_DEVICE_SIZE]; /* EVENT_DEVICE: which ... */
    char state[16];                  /* ... its state now ... */
    char reason[256];                /* ... and why, unless it is ready */
    uint64_t lost;                   /* events since the last one that this client was spared */
};

struct msg_device {
    char device[WORKER_DEVICE_SIZE];
    char name[WORKER_DEVICE_SIZE];
    char uuid[WORKER_DEVICE_SIZE];
    char state[16]; /* "starting", "ready", "restarting" */
    char backend[16];
    char reason[256]; /* why it is not ready, or why this backend was chosen */
    int32_t numa;
    uint64_t memory;
};

/* X(field, meaning): counters since the daemon's start unless said otherwise; all u64. */
#define STATS_LIST(X)                                                                              \
    X(uptime_ns, "time since start")                                                               \
    X(sessions, "connections now")                                                                 \
    X(sessions_total, "connections accepted")                                                      \
    X(sessions_refused, "connections refused: too many are open")                                  \
    X(jobs, "open jobs now")                                                                       \
    X(jobs_held, "jobs and runs now that wait for others to end")                                  \
    X(jobs_total, "jobs opened")                                                                   \
    X(runs_total, "run requests accepted")                                                         \
    X(pushes_total, "pushes accepted, runs included")                                              \
    X(chunks_total, "chunks done")                                                                 \
    X(chunks_lost, "chunks lost with a worker")                                                    \
    X(chunks_in_flight, "chunks at the worker now")                                                \
    X(chunks_waiting_urgent, "pushes with chunks not yet released now, urgent")                    \
    X(chunks_waiting_normal, "the same, normal")                                                   \
    X(chunks_waiting_bulk, "the same, bulk")                                                       \
    X(rings, "rings open now")                                                                     \
    X(rings_total, "rings opened")                                                                 \
    X(rings_broken, "rings closed for breaking their rules")                                       \
    X(ring_wakes, "times a doorbell woke the daemon")                                              \
    X(ring_pool_size, "bytes of the data segments of rings")                                       \
    X(ring_pool_used, "bytes of them that rings have now")                                         \
    X(ring_pool_huge, "bytes of segments in huge pages")                                           \
    X(ring_pool_far, "bytes of segments that another node than the device's had to give")          \
    X(awake, "1: urgent work of a moment ago keeps the daemon from sleeping now")                  \
    X(awake_cpus, "CPUs that it may keep busy with that; 0: they are too few")                     \
    X(consts, "constants held now, for connections or for jobs")                                   \
    X(bytes_in, "bytes received from clients")                                                     \
    X(bytes_out, "bytes sent to clients")                                                          \
    X(errors_total, "requests and pushes answered with an error")                                  \
    X(events_lost, "events not sent to subscribers that do not read")                              \
    X(sessions_broken, "connections ended for breaking the protocol or a limit")                   \
    X(worker_starts, "workers started")                                                            \
    X(worker_deaths, "workers that ended without being asked to")                                  \
    X(pool_size, "bytes of the segment pool")                                                      \
    X(pool_used, "bytes of it that are leased now")                                                \
    X(pool_waiting, "connections that wait for room in it now")

/* What waits and what is under way, of a priority, a device or a user. */
struct msg_load {
    uint64_t waiting;        /* chunks that no device has yet */
    uint64_t waiting_size;   /* bytes of their largest array */
    uint64_t oldest_ns;      /* since the oldest push of them came */
    uint64_t in_flight;      /* chunks */
    uint64_t in_flight_size; /* bytes, likewise */
    uint64_t device_ns;      /* time of devices used so far */
};

struct msg_queue {
    enum priority priority;
    struct msg_load load;
    uint64_t places; /* taken */
};

struct msg_device_load {
    char device[WORKER_DEVICE_SIZE];
    struct msg_load load; /* what waits may use no other */
};

struct msg_user {
    uint64_t uid;
    struct msg_load load;
    uint64_t places;        /* taken, of all priorities */
    int64_t urgent_left_ns; /* device time it may still have as urgent */
};

struct msg_stats {
    char version[32];
    char backend[16];
    char reason[256]; /* why this backend */
#define X(field, doc) uint64_t field;
    STATS_LIST(X)
#undef X
    uint32_t n_queues, n_devices, n_users;
    struct msg_queue queues[PRIORITY_COUNT];
    struct msg_device_load devices[LIMIT_DEVICES];
    struct msg_user users[LIMIT_USERS_LISTED]; /* those that the asking one may see */
};
