/*
 * Sim: the real scheduler under a virtual clock.
 *
 * Programs (programs.c) send pushes; the front end (here) hands their chunks out as
 * scheduler_next() says; a model of the device (device.c) takes its time.  All of a run follows
 * from its plan and its seed.
 */
#pragma once

#include "daemon/forecast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GROUPS    8
#define SIM_PROGRAMS  128
#define SIM_UIDS      16
#define SIM_BACKLOG   512 /* pushes that a program may have under way */
#define SIM_DEVICES   2
#define SIM_TIMES     640 /* steps of times: 16 for each power of two of ns */
#define KIB           UINT64_C(1024)
#define MIB           (1024 * KIB)
#define US            UINT64_C(1000) /* in ns, as all times */
#define MS            (1000 * US)
#define SIM_CHUNK     (4 * MIB) /* a push is cut into chunks of this size */
#define SIM_CHUNK_MAX (8 * MIB)

#define SIM_COPY_NS    (1 * US) /* of each engine, besides the bytes */
#define SIM_LINK_SPEED 50       /* bytes per ns each way, with both directions busy: 47 to 51 */

/* Like programs: all numbers are the same, but sizes and starts are random. */
struct sim_group {
    const char *name;
    uint32_t uid;
    uint32_t n_programs;
    enum priority priority;
    uint64_t size;        /* bytes of a push, in and out: half of it to all of it, by program */
    uint32_t window;      /* pushes under way: the next follows an answer ... */
    uint32_t per_second;  /* ... or, if not 0, at random times, so many a second, of this size ...
                           * and while as many are under way as may be they are refused */
    uint64_t kernel_ns;   /* of a whole push */
    uint64_t deadline_ns; /* after a push's arrival; 0: none */
    bool is_admitted;     /* what cannot make its deadline, as is foreseen, is refused */
};

/* Devices with copy engines, or such that compute with threads (then kernel_ns is all it takes,
 * besides a memcpy). */
struct sim_plan {
    uint32_t n_threads;
    uint32_t n_devices;             /* 0: one */
    uint32_t slowness[SIM_DEVICES]; /* all takes so many times as long; 0: once */
    uint64_t length_ns;
    uint32_t n_groups;
    struct sim_group groups[SIM_GROUPS];
    uint64_t forced; /* this refused push, counted from 1, is sent nevertheless */
};

/* What a group had, from warm-up to the end. */
struct sim_result {
    uint64_t device_ns; /* as the worker measured it */
    uint64_t n_bytes;   /* of chunks, in one direction */
    uint64_t n_pushes;
    uint64_t worst_wait_ns;  /* from a push's arrival until its first chunk begins */
    uint64_t worst_ns;       /* ... until it is answered */
    uint64_t n_late;         /* answered after their deadline */
    uint64_t n_not_admitted; /* all of them, warm-up too */
    uint64_t n_chunks;
    uint64_t n_refused;          /* with BUSY */
    uint32_t most_under_way[2];  /* of one program, in each half of the run */
    uint32_t n_times[SIM_TIMES]; /* pushes by how long they took */
};

struct sim_results {
    struct sim_result groups[SIM_GROUPS];
    uint64_t longest_chunk_ns; /* of device time */
    uint64_t seed;
    uint64_t forced_ns; /* until plan.forced was answered; 0: it was not */
    uint64_t length_ns; /* from warm-up to the end */
};

void sim_run(const struct sim_plan *plan, uint64_t seed, struct sim_results *ret_results);
/* So many of a thousand pushes took no longer, in ns. */
uint64_t sim_percentile(const struct sim_result *result, uint64_t per_mille);

/* ---- inside --------------------------------------------------------------------------------- */

struct sim;
struct sim_program;

struct sim_push {
    uint64_t arrival_ns, begin_ns;
    uint64_t size; /* bytes left to hand out */
    bool is_forced;
    uint32_t n_chunks; /* at the device */
};

struct sim_work {
    struct sim_work *next;
    struct sim_work *made_before;
    struct sim_program *program;
    struct sim_push *push;
    struct scheduler_charge charge;
    enum priority priority;
    uint64_t size, kernel_ns;
    uint64_t start_ns, device_ns;
};

struct sim_program {
    struct flow flow;
    struct sim *sim;
    const struct sim_group *group;
    struct sim_result *result;
    uint64_t size;
    struct sim_push pushes[SIM_BACKLOG]; /* a ring; all those from `first` on are under way */
    uint32_t first, next, last;          /* oldest, the one to hand out, one past the newest */
};

/* In order: one piece of hardware that does one thing at a time. */
struct sim_engine {
    struct sim_device *device;
    uint32_t stage;
    uint32_t n_busy, n_servers;
    struct sim_work *first[PRIORITY_COUNT], *last[PRIORITY_COUNT];
    bool is_by_priority;
};

enum sim_stage { STAGE_IN, STAGE_COMPUTE, STAGE_OUT, STAGE_COUNT };

struct sim_device {
    struct sim *sim;
    uint32_t slowness;
    bool has_engines;
    struct sim_work *first[PRIORITY_COUNT], *last[PRIORITY_COUNT]; /* the work queues */
    uint32_t n_slots[PRIORITY_COUNT];                              /* free */
    struct sim_engine engines[STAGE_COUNT];
    uint64_t end_ns; /* of the last work */
};

struct sim_event {
    uint64_t at_ns;
    uint64_t number; /* equal times: in order */
    void (*happen)(struct sim *sim, void *a, void *b);
    void *a, *b;
};

struct sim {
    const struct sim_plan *plan;
    struct scheduler scheduler;
    uint64_t now_ns;
    uint64_t random;
    uint64_t n_events_ever;
    struct sim_event *events; /* a heap */
    size_t n_events, n_events_max;
    struct sim_device devices[SIM_DEVICES];
    struct sim_program *programs;
    uint32_t n_programs;
    struct scheduler_user users[SIM_UIDS];
    struct scheduler_rate rates[SIM_GROUPS]; /* each group has an op of its own */
    struct sim_work *spare;
    struct sim_work *made; /* all of them */
    struct sim_results *results;
};

void sim_at(struct sim *sim, uint64_t in_ns, void (*happen)(struct sim *sim, void *a, void *b),
            void *a, void *b);
uint64_t sim_random(struct sim *sim, uint64_t below);
bool sim_is_warm(const struct sim *sim);
uint32_t sim_time_step(uint64_t took_ns); /* of SIM_TIMES */

/* device.c: a chunk is at the worker's queue; later it calls sim_chunk_done(). */
void sim_device_init(struct sim_device *device, struct sim *sim, uint32_t slowness,
                     struct worker_caps *ret_caps);
void sim_device_submit(struct sim_device *device, struct sim_work *work);
void sim_chunk_done(struct sim *sim, void *work, void *unused);

/* programs.c */
void sim_programs_start(struct sim *sim);
/* The next chunk is handed out: fill in the work. */
void sim_program_issue(struct sim_program *program, struct sim_work *work);
void sim_program_done(struct sim_program *program, const struct sim_work *work);
