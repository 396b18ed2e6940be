/*
 * Scheduler: which job's next chunk goes to which device next.
 *
 * A pure function of its queues, its loads and the time, which it is told (of any clock that does
 * not go backwards): no clock, no I/O, no lock, no allocation; a decision costs O(log n).  A *flow*
 * is a job that has work; it says what its next chunk is and which devices may run it.  A *user* is
 * a uid.  The policy:
 *
 *   1. Urgent before normal before bulk, but of a device's time normal has at least a tenth
 *      and bulk a twentieth while they want it: nobody starves.  What one of them is owed goes
 *      first; and where that does not help, because the worker prefers what is above, one
 *      chunk of what is above is in flight until some of the debt is paid.
 *   2. A user has its share of the devices' time as urgent, one part of as many as there are
 *      users with work, and SCHEDULER_BURST beyond; what is more is scheduled, and runs, as
 *      normal.  So who calls everything urgent has a fair share.  Who is alone may have all.
 *   3. Within a priority the user goes first that has had the least device time, whatever for:
 *      programs, jobs, priorities and bytes do not count.  So users that always want more have
 *      equal shares, but for a chunk or two.  Who was away joins where the others are; what it
 *      is behind them, up to SCHEDULER_CATCH_UP, was a gap between two requests.  What it had
 *      more than them, of a priority that they did not use, is remembered up to
 *      SCHEDULER_MEMORY.
 *   4. Within a user what is due first goes first.  A chunk is due SCHEDULER_DUE after it
 *      became its flow's next, or at the flow's deadline if that is sooner.  So flows with far
 *      deadlines, or none, take turns, one chunk each: a job with a deep window gets no more
 *      than one with a shallow one.  And a deadline takes nothing from other users.
 *   5. Device time is charged when a chunk is issued, as an estimate, but no more than
 *      SCHEDULER_CATCH_UP of it, and corrected by what the worker measured.  The estimate is
 *      the longer of its bytes over the link's rate and its records times what one took
 *      lately.  A job whose op was never measured has one chunk in flight on each device until
 *      it is.
 *   6. A device is held back while it has as many chunks or bytes in flight as its worker's
 *      limits allow.  Copy engines serve in arrival order whatever a stream's priority is, so
 *      what bounds a wait is how much was let in before (four chunks in flight fill the link
 *      of an H200; urgent copies' p99 is then 0.3 ms where they are of 4 MiB, 0.6 where they
 *      are of 8; sixteen of 4 MiB make it 1.7 ms).  So each priority has those bytes, less
 *      what has been let in of those above: large urgent and normal work goes chunk by chunk
 *      ahead of bulk.  Chunks of up to SCHEDULER_SMALL are no burden to those below.  One
 *      chunk is let in where nothing else is, however large.
 *   7. Of the devices that take the chunk, the one gets it that is expected to finish it first:
 *      what it has in flight and the chunk, by what a record of the op takes there.  What was
 *      never measured there counts as elsewhere, or by its bytes.  While that device is full the
 *      next best gets it only if it would not begin too late.  A flow whose chunk does not fit
 *      keeps its devices from those behind it: nobody overtakes it for being small.  But a flow
 *      that is being measured on one device and finds the others full waits for that one.
 *
 * The worst wait of an urgent chunk, from when it is its user's next and while that has not used up
 * its share, with n users that want the same: what is in flight (bulk_bytes over the link), a chunk
 * and SCHEDULER_CATCH_UP for each of the n - 1 others, and a chunk each that normal and bulk are
 * owed.  For eight users with chunks of 4 MiB (85 us): 0.7 + 7 * 1.1 + 0.2 = 8.5 ms.  The most that
 * tests/sim has seen in 10,000 seeds is 0.6 ms, as hardly anybody has that much to catch up.
 *
 * Thread: the front end's loop.  Flows, users and rates are their owners' property.
 */
#pragma once

#include "daemon/heap.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets of devices, by index.  Flows of several devices are taken to want the same ones: those
 * behind one that waits do so, too. */
#define SCHEDULER_ANY_DEVICE UINT32_MAX
#define SCHEDULER_DEVICE(i)  (UINT32_C(1) << (i))
_Static_assert(LIMIT_DEVICES <= 32, "a device is a bit of a uint32_t");

/* Bytes of a chunk that may pass beside the copy engines: see the bypass, which is measured so. */
#define SCHEDULER_SMALL (UINT64_C(256) << 10)

/* Any of several devices, or one of them alone. */
#define SCHEDULER_LANES (1 + LIMIT_DEVICES)

/* Not tuned: far more than a client's round trip and than a chunk of 8 MiB (0.17 ms)... */
#define SCHEDULER_CATCH_UP UINT64_C(1000000)
/* ... and what people take for a moment. */
#define SCHEDULER_MEMORY UINT64_C(1000000000)

/* Some hundred small jobs, or some dozen pushes of 4 MiB.  Not tuned. */
#define SCHEDULER_BURST INT64_C(5000000)

/* What people wait for without a thought. */
#define SCHEDULER_DUE UINT64_C(100000000)

/* Bytes in a ns each way, with both directions busy: 47 to 51 (one H200, PCIe 5).  A slower link,
 * or a CPU, shows in the measured rates. */
#define SCHEDULER_LINK_SPEED 50

/* How long "of late" is: some dozen pushes of 2 ms, so that chance is evened out, and as long as
 * most deadlines.  Over 20 ms the forecasts of tests/sim err by a quarter more; 200 is no better.
 */
#define SCHEDULER_LATELY 100e6

/* Device time of late, and in how long; both fade away. */
struct scheduler_usage {
    double ns, in_ns;
    uint64_t at_ns;
};

/* The flows of one uid, one priority and one lane. */
struct scheduler_turn {
    struct heap_node node;     /* in its lane's heap while it has flows, by device time */
    struct flow *first, *last; /* in the order in which they are due, ... */
    struct heap hurried;       /* ... but for those with a deadline before that */
};

/* A uid.  All zero at first; it outlives its flows. */
struct scheduler_user {
    uint64_t used_ns;      /* device time, on a scale that all users share */
    int64_t correction_ns; /* still to be added */
    uint64_t unpaid_ns;    /* estimated, of what it has in flight: it pays when it was measured */
    uint32_t n_turns;      /* that have flows */
    uint32_t n_in_flight;
    uint64_t n_bytes; /* of them */
    uint64_t had_ns;  /* device time, as it was measured, ever */
    /* Device time as urgent, beyond its share, as it was then. */
    int64_t urgent_ns;
    uint64_t urgent_at_ns;
    bool is_demoted;                /* its urgent flows are with the normal ones ... */
    struct heap_node again;         /* ... until then */
    uint64_t lanes[PRIORITY_COUNT]; /* set of those in which it has flows */
    struct scheduler_turn turns[PRIORITY_COUNT][SCHEDULER_LANES];
    struct scheduler_usage usage[PRIORITY_COUNT]; /* as which its chunks ran */
    /* Of use during a forecast only: what it has queued, and the next that has. */
    double forecast_ns;
    struct scheduler_user *forecast_next;
};

/* What a record of an op takes.  All zero at first; it outlives the flows that name it. */
struct scheduler_rate {
    bool is_known;
    double record_ns;       /* whichever device has it */
    double n_ns, n_records; /* of its chunks, older ones counting less and less ... */
    struct scheduler_measured {
        float record_ns, n_ns, n_records;
    } devices[LIMIT_DEVICES]; /* ... and those of one device alone */
};

struct flow {
    enum priority priority;
    uint32_t devices; /* set of those that may run it */
    struct scheduler_user *user;
    struct scheduler_rate *rate;
    uint64_t deadline_ns; /* 0: none.  Does not change while it is queued */
    /* Its next chunk; may change while it is queued. */
    uint64_t next_size;      /* bytes of the largest array */
    uint64_t next_link_size; /* bytes in or bytes out, whichever are more */
    uint32_t next_records;   /* 0: none that the rate is about */

    bool is_queued;
    uint32_t measuring; /* devices that have its chunk while nobody knows what that costs ... */
    bool is_held;       /* ... all it may use: it is out of the way until one comes back */
    bool is_hurried;
    uint64_t due_ns;
    struct heap_node node; /* if it is hurried, else: */
    struct flow *next;
    struct flow *previous;
};

/* What a device has of one priority, and may have. */
struct scheduler_load {
    uint32_t n_chunks;
    uint64_t n_bytes;
    uint64_t n_large_bytes; /* of chunks that are not small */
    uint64_t n_ns;          /* of device time, estimated */
    int64_t owed_ns;        /* of device time, by those above it */
    uint64_t used_ns;       /* device time, ever */
    uint32_t chunks_max;
    uint64_t bytes_max;
};

/* Where a chunk goes, and as what. */
struct scheduler_place {
    uint32_t device;
    enum priority priority;
};

/* What a chunk in flight weighs: scheduler_issued() fills it in, scheduler_done() takes it back. */
struct scheduler_charge {
    struct scheduler_place place;
    struct flow *flow;
    uint64_t size;
    uint64_t cost_ns;
    uint32_t n_records;
};

struct scheduler {
    struct scheduler_class {
        struct heap heaps[SCHEDULER_LANES]; /* of turns */
        uint64_t lanes;                     /* set of those that have some */
        uint32_t n_flows;
    } classes[PRIORITY_COUNT];
    struct scheduler_load loads[LIMIT_DEVICES][PRIORITY_COUNT];
    uint32_t ready;                   /* set of devices that take work */
    uint32_t capacity[LIMIT_DEVICES]; /* what they can do at once: threads of a CPU */
    struct heap demoted;              /* users, by when they may be urgent again */
    uint32_t n_users;                 /* that have flows */
    uint32_t n_active;                /* or chunks in flight */
    uint64_t used_ns;                 /* what the user had that went last */
    uint64_t last_due_ns;
    uint64_t now_ns; /* as it was told last */
    struct scheduler_usage usage[PRIORITY_COUNT];
};

void scheduler_init(struct scheduler *scheduler);

/* The device takes work, as much as its worker says of it. */
void scheduler_device_up(struct scheduler *scheduler, uint32_t device,
                         const struct worker_caps *caps);
/* It takes none; what it has in flight comes back by scheduler_done(). */
void scheduler_device_down(struct scheduler *scheduler, uint32_t device);

/* The flow has work: queue it, if it is not. */
void scheduler_add(struct scheduler *scheduler, struct flow *flow, uint64_t now_ns);
/* It has none. */
void scheduler_remove(struct scheduler *scheduler, struct flow *flow);

/* Is some flow queued that may have a chunk handed out? */
static inline bool scheduler_has_work(const struct scheduler *scheduler)
{
    return scheduler->n_users > 0;
}
/* Is no other flow of its priority queued? */
static inline bool scheduler_is_alone(const struct scheduler *scheduler, const struct flow *flow)
{
    return scheduler->classes[flow->priority].n_flows == 1 && flow->is_queued;
}
/* The flow whose chunk goes next, and where; or NULL.  No chunk is on the books until
 * scheduler_issued(). */
struct flow *scheduler_next(struct scheduler *scheduler, uint64_t now_ns,
                            struct scheduler_place *ret_place);

/* Its next chunk went there: the user pays for it, and the flow's next one is due anew. */
void scheduler_issued(struct scheduler *scheduler, struct flow *flow,
                      const struct scheduler_place *place, struct scheduler_charge *ret_charge);
/* A chunk came back from its device, for which it cost so much; 0: nobody knows.  The flow is there
 * until all its chunks are back. */
void scheduler_done(struct scheduler *scheduler, const struct scheduler_charge *charge,
                    uint64_t device_ns);

/* Device time in a ns, of late. */
double scheduler_usage_rate(const struct scheduler_usage *usage, uint64_t now_ns);

/* Device time that the user may have as urgent now; less than none if it had more. */
int64_t scheduler_urgent_left(const struct scheduler *scheduler, const struct scheduler_user *user,
                              uint64_t now_ns);
/* Chunks of this priority in flight, on all devices. */
uint32_t scheduler_in_flight(const struct scheduler *scheduler, enum priority priority);
