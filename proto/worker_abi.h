/*
 * Worker ABI: everything that front end and worker say to each other.
 *
 * Three channels.  (1) The *queues* (queue.h), in a memfd made afresh for each worker generation:
 * one work queue per priority, one done queue.  A work entry's result slot is the in-flight table:
 * it outlives the worker.  (2) The *job block*, a memfd of parameter slots; a slot is written
 * before an entry that names it is published, because the control socket is not ordered with the
 * queues. (3) The *control socket*, SOCK_SEQPACKET, for what is slow: manifest, queues, segments,
 * health.
 *
 * A conversation:
 *     worker  HELLO, MANIFEST x n_ops             what it is, which ops it has
 *     daemon  QUEUES + 3 fds, SEGMENT_ADD + fd .. queues, job block, doorbell; then memory
 *     worker  SEGMENT_OK .., READY                READY once the queues are mapped, polled for work
 *     daemon  PING, SEGMENT_ADD + fd, _DROP, BELL_ADD + fd, _DROP, STOP
 *     worker  PONG, SEGMENT_OK or _REFUSED, SEGMENT_GONE, end of file
 *     worker  FATAL                               the reason, just before it exits
 * The worker's death is the socket's end of file; its exit is its pidfd.
 *
 * All structs have fixed sizes, no pointers and zeroed padding.
 */
#pragma once

#include "proto/limits.h"
#include "proto/manifest.h"
#include "proto/status.h"

#include <stdint.h>

#define WORKER_ABI        7
#define WORKER_CONTROL_FD 3 /* the control socket in a freshly started worker */

/* Exit status after a FATAL about work that the device has lost; any other FATAL ends in 1. */
#define WORKER_EXIT_DEVICE 3

enum priority { PRIORITY_URGENT, PRIORITY_NORMAL, PRIORITY_BULK, PRIORITY_COUNT };

/* ---- queues ------------------------------------------------------------------------------- */

/* Entries of each work queue; a power of two.  Far above what is ever in flight. */
#define WORK_ENTRIES 256u
#define DONE_ENTRIES 1024u /* at least PRIORITY_COUNT * WORK_ENTRIES: it can never be full */

/* Where an array lies: segment in the upper 16 bits, byte offset in the lower 48. */
typedef uint64_t work_ref; /* a plain number on the wire, named so that arrays of it read well */
#define WORK_REF_NONE          UINT64_MAX
#define WORK_REF(segment, off) (((uint64_t)(segment) << 48) | (uint64_t)(off))
#define WORK_REF_SEGMENT(ref)  ((uint32_t)((ref) >> 48))
#define WORK_REF_OFFSET(ref)   ((ref) & ((UINT64_C(1) << 48) - 1))

enum work_kind {
    WORK_MAP,    /* ref = inputs, then outputs */
    WORK_LEAVES, /* ref = inputs, then the partials: one per started leaf of these records */
    WORK_MERGE,  /* ref = fold so far or NONE, n_records partials, new fold (a different place) */
    WORK_FINISH, /* ref = fold, then outputs; n_records = 1 */
    WORK_TABLE,  /* n_records rows, each a MAP; ref[0] = the segment of all arrays, offset 0 */
};

struct work_entry {
    uint32_t job_slot; /* of the job block */
    uint32_t n_records;
    work_ref ref[5];
    uint32_t varying_size; /* bytes of the varying input, 0 where the op has none */
    uint32_t after;        /* with WORK_AFTER: index of an entry of this queue, see there; else 0 */
    uint32_t tail_size;    /* bytes of the last record of input 0 if it is short, else 0 */
    uint16_t kind;         /* enum work_kind */
    uint16_t flags;        /* set of WORK_... below */
};
_Static_assert(sizeof(struct work_entry) == 64, "a work entry is one cache line");

/*
 * A row of a WORK_TABLE, in a place of its own beside the entry: small pushes of one job, which
 * cost everybody less together than the work itself costs one by one.  They have one result, whose
 * sizes and times are those of all rows.
 */
#define WORK_ROWS  64u /* of one entry, at most: the longer one is, the less the others save */
#define WORK_ALIGN 64u /* where arrays of a row begin is in these units */

struct work_row {
    uint32_t n_records;
    uint32_t in[LIMIT_IN]; /* as many as the op has */
    uint32_t out[LIMIT_OUT];
    uint32_t zero;
};
_Static_assert(sizeof(struct work_row) == 32, "two rows are one cache line");

#define WORK_TIMED 1u /* measure its stages, whatever that costs */
#define WORK_AWAKE 2u /* do not sleep for the next WORK_AWAKE_NS: more of its kind is likely */
/* Do not begin before `after`, one of the WORK_ENTRIES entries before this one, has ended, well or
 * not: its result tells. */
#define WORK_AFTER 4u
#define WORK_FLAGS (WORK_TIMED | WORK_AWAKE | WORK_AFTER)

/* Urgent work mostly comes in trains: one that came 10 ms after the one before took 19 us where
 * everybody had stayed awake, and 125 to 234 where all had to be woken. */
#define WORK_AWAKE_NS 20000000

/*
 * Bells: after a silence the front end would have to be woken, and then the worker.  So a worker
 * that has had work of a ring and has none now hears its client's doorbell as well: BELL_ADD has a
 * duplicate of the front end's end, which it waits for and never reads.  When one rings it looks
 * for work until some comes, at most for WORK_BELL_NS, about as long as it takes to wake the front
 * end, where that takes long.  A bell that no work follows in that time costs it no more than that:
 * until some comes it hears none.
 */
#define WORK_BELL_NS 300000
/* At most, by ids below this; no more programs are quick at once.  Further ones are not heard, and
 * of rings whose work keeps nobody awake half as many, so that urgent ones find a place. */
#define WORKER_BELLS       64u
#define WORKER_BELLS_OTHER (WORKER_BELLS / 2)

enum result_state { RESULT_EMPTY, RESULT_TAKEN, RESULT_ISSUED, RESULT_DONE };

/* One for each work entry, at the same index; the worker writes it, a new entry empties it. */
struct work_result {
    uint32_t state;               /* enum result_state, stored last with release order */
    int32_t status;               /* enum status */
    uint32_t out_size[LIMIT_OUT]; /* bytes written: of a MAP that is OK, all of each output */
    uint64_t issue_ns;            /* CLOCK_MONOTONIC: the worker took the entry */
    uint64_t start_ns;            /* it began; not before issue_ns, whatever the status */
    uint64_t end_ns;              /* and ended, copies and all */
    uint64_t device_ns;           /* device (or thread CPU) time that it cost */
    /* Its stages, where WORK_TIMED asks; entries that run at once have equal shares. */
    uint64_t compute_ns;
    uint32_t in_ns; /* copying to the device, at most UINT32_MAX (4 s); 0 on a CPU */
    uint32_t out_ns;
};
_Static_assert(sizeof(struct work_result) == 64, "a result slot is one cache line");

/*
 * Why a result is not OK, for people: the call, its error, the place.  One beside each result slot,
 * written before such a result and at no other time.
 */
struct work_error {
    char text[192]; /* NUL-terminated */
};
_Static_assert(sizeof(struct work_error) % 64 == 0, "an error is whole cache lines");

/* Entries first .. first + count - 1 (free-running) of a work queue are done: look at the slots. */
struct done_entry {
    uint32_t queue; /* enum priority */
    uint32_t first;
    uint32_t count;
    uint32_t zero;
};

/* ---- job block ---------------------------------------------------------------------------- */

/*
 * A constant: its bytes lie in a segment, whole and unchanging, for as long as a job names it.  A
 * worker may keep a copy, on the device for instance, under its id, which is never used again for
 * other bytes; so nobody tells a worker of constants but by the jobs that name them.
 */
struct job_const {
    work_ref ref;
    uint64_t id;
};

struct job_block {
    uint32_t op; /* index in the manifest, in the order announced */
    uint32_t zero;
    uint8_t params[LIMIT_PARAM_BYTES];
    struct job_const consts[LIMIT_CONSTS]; /* as many as the op has */
    uint8_t reserved[24];
};
_Static_assert(sizeof(struct job_block) == 256, "a job slot is four cache lines");

/* ---- control socket ----------------------------------------------------------------------- */

enum control_type {
    CONTROL_HELLO = 1,
    CONTROL_MANIFEST,
    CONTROL_SEGMENT_OK,
    CONTROL_SEGMENT_REFUSED, /* it cannot be mapped or registered; the worker goes on */
    CONTROL_SEGMENT_GONE,
    CONTROL_READY,
    CONTROL_PONG,
    CONTROL_FATAL,
    CONTROL_QUEUES = 32, /* + queue memfd, job-block memfd, doorbell */
    CONTROL_SEGMENT_ADD, /* + the segment's memfd */
    CONTROL_SEGMENT_DROP,
    CONTROL_BELL_ADD, /* + the doorbell */
    CONTROL_BELL_DROP,
    CONTROL_PING,
    CONTROL_STOP,
};

#define WORKER_DEVICE_SIZE 64

/* What a worker drives and how the scheduler should feed it; also what --probe prints. */
struct worker_caps {
    char backend[MANIFEST_NAME_SIZE]; /* "cpu", "cuda" */
    char name[WORKER_DEVICE_SIZE];    /* for people: the processor's name */
    char uuid[WORKER_DEVICE_SIZE];    /* "" where there is none */
    uint64_t memory;                  /* bytes, device or machine */
    uint64_t chunk_size;              /* bytes of the largest array of a good chunk */
    uint64_t bulk_bytes;              /* bulk in flight at once, at most: bytes */
    uint32_t bulk_chunks;             /* and chunks */
    uint32_t n_threads;               /* that compute; 0 for a GPU */
    uint32_t n_devices;               /* it sees: this one, and others for --device 1, 2, ... */
    int32_t numa;                     /* node, -1 = none */
    uint32_t n_ops;
    uint32_t chunk_least; /* bytes likewise: smaller ones leave part of it idle; 0: none do */
};

struct control_message {
    uint32_t type; /* enum control_type */
    uint32_t abi;  /* WORKER_ABI */
    union {
        struct worker_caps hello;
        struct {
            uint32_t index;
            struct manifest_op op;
        } manifest;
        struct {
            uint32_t id;
            uint32_t zero;
            uint64_t size; /* bytes; SEGMENT_ADD only */
        } segment;         /* SEGMENT_ADD, SEGMENT_DROP, SEGMENT_OK, SEGMENT_GONE */
        struct {
            uint32_t id; /* ADD: a free one; DROP: one that was added.  No answer */
            uint32_t zero;
        } bell; /* BELL_ADD, BELL_DROP */
        struct {
            uint32_t generation;
            uint32_t n_job_slots;
        } queues;
        struct {
            uint32_t id;
            uint32_t zero;
            struct failure failure;
        } segment_refused;
        struct failure fatal;
    };
};
