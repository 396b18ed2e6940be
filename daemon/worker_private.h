/*
 * Worker, private: one generation, as worker_link.c and worker_control.c share it.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/worker_link.h"
#include "proto/queue.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define WORKER_AGAIN_MS 100 /* between two looks at what no event announces */

enum worker_state { WORKER_STARTING, WORKER_FITTING, WORKER_READY, WORKER_DYING };

/* One of a worker's bells (worker_abi.h); its index is its id. */
struct worker_bell {
    uint64_t ring;    /* 0: free */
    bool is_dropping; /* of no more use, which cannot be said yet */
};

struct worker {
    struct worker_link *link;
    enum worker_state state;
    uint32_t generation;
    pid_t pid;
    int control_fd;
    int pid_fd;
    int doorbell_fd;
    int far_doorbell_fd; /* the worker's end, until it has been sent */
    uv_poll_t control_poll;
    uv_poll_t pid_poll;
    uv_poll_t doorbell_poll;
    uv_timer_t ask_timer;  /* runs while its queues, a segment or a bell's end cannot be sent */
    uv_timer_t exit_timer; /* runs while it has exited and is not ours to reap */
    unsigned n_handles;    /* that libuv still holds */
    struct queue *queue;
    struct segment_mapper segments;
    bool is_attached; /* to the table of segments */
    bool is_asked;    /* for a segment, and has not answered */
    struct worker_bell bells[WORKER_BELLS];
    uint32_t n_manifests;
    struct worker_caps caps;
    struct manifest_op *ops;
    bool has_unpublished[PRIORITY_COUNT];
    bool is_distrusted; /* DYING because of what its queues said: they are not looked at again */
    bool is_silent;     /* DYING and did not say why: its exit will */
    char reason[208];   /* why it is DYING, for people */
    void *chunks[PRIORITY_COUNT][WORK_ENTRIES]; /* what its places hold, by index */
    struct worker *next;                        /* the link's list of dying workers */
};

struct worker_link {
    struct worker_link_config config;
    struct worker *current; /* NULL while a restart waits */
    struct worker *dying;
    uv_timer_t restart_timer;
    uint32_t generation;
    uint32_t backoff_ms;
    bool is_closing;
    uint64_t n_starts;
    uint64_t n_deaths;
    struct worker_caps caps; /* of the last worker that said HELLO */
};

/* worker_link.c */

/* Watch a descriptor of the worker's, until it is buried; uv_close() comes before close(). */
int worker_watch(struct worker *worker, uv_poll_t *poll, int fd, uv_poll_cb on_event);
/* What its doorbell is to be watched with. */
void worker_on_doorbell(uv_poll_t *poll, int status, int events);
/* It is gone or no longer trusted: no more work for it, and the next one starts. */
void worker_condemn(struct worker *worker, const char *reason);
/* It is ending and has not said why: its exit will. */
void worker_condemn_silent(struct worker *worker, const char *reason);

/* worker_control.c: take what it has said, to its last words. */
void worker_read_control(struct worker *worker);
