/*
 * Devices: all that the daemon computes on, several GPUs or the CPU, each with its worker
 * (worker_link.h), and what people are told of them.
 *
 *     STARTING    its first worker is being fitted
 *     READY       takes work
 *     RESTARTING  its worker died or did not start; the next one comes by itself
 *
 * Without a list of devices the first worker says how many there are, and the others are added
 * then. A device keeps its index for good: jobs refer to it, and replies name it, as backend and
 * index.
 *
 * Thread: the front end's loop; callbacks come from there.
 */
#pragma once

#include "daemon/device_list.h"
#include "daemon/scheduler.h"
#include "daemon/worker_link.h"

enum device_state { DEVICE_STARTING, DEVICE_READY, DEVICE_RESTARTING, DEVICE_STATES };

struct device;

struct devices_config {
    uv_loop_t *loop;
    struct spawner *spawner;
    struct segments *segments;
    struct job_slots *job_slots;
    struct scheduler *scheduler;    /* is told which devices are up */
    const struct device_list *list; /* for the first backend; empty: all there are */

    void *owner; /* what the callbacks get, but for those about chunks */
    /* A device's state is another one.  May come from within devices_poll(): for a note only. */
    void (*on_change)(void *owner, const struct device *device);
    /* And there will be no more workers: the process that starts them is gone. */
    void (*on_hopeless)(void *owner);
    /* As worker_link.h has them. */
    void (*on_done)(void *owner, void *chunk, const struct work_result *result, const char *error);
    void (*on_lost)(void *owner, void *chunk, const char *reason);
};

struct device {
    struct devices *devices;
    uint32_t index;
    char name[WORKER_DEVICE_SIZE]; /* "cuda0" */
    enum device_state state;
    bool was_ready;   /* ever */
    char reason[256]; /* why it is RESTARTING */
    struct worker_link *link;
    uint32_t n_following; /* chunks at its worker that are after another there: see job_work.c */
};

struct devices {
    struct devices_config config;
    const char *backend; /* a literal */
    struct worker_ops ops;
    uint32_t n;
    struct device all[LIMIT_DEVICES];
};

extern const char *const device_state_names[DEVICE_STATES];

/* Start the workers of this backend.  NO_DEVICE: it is not installed.  Finish in any case. */
int devices_init(struct devices *devices, const struct devices_config *config, const char *backend,
                 struct failure *ret_failure);
/* The same with another backend, all of whose devices are used: only before any was READY. */
int devices_replace(struct devices *devices, const char *backend, struct failure *ret_failure);
/* Ends the workers, as worker_link_destroy() does. */
void devices_finish(struct devices *devices);

uint32_t devices_count(const struct devices *devices, enum device_state state);
/* NULL: none is called so. */
const struct device *devices_find(const struct devices *devices, const char *name);
/* Names and states of all of them, for people. */
void devices_describe(const struct devices *devices, char *ret_text, size_t size);
/* Bytes of the largest array of a chunk that is good for all of them. */
uint64_t devices_chunk_size(const struct devices *devices);
uint64_t devices_chunk_least(const struct devices *devices);

/* worker_link.h's functions of these names, for all of them. */
void devices_unhear(struct devices *devices, uint64_t ring);
void devices_publish(struct devices *devices);
void devices_poll(struct devices *devices);
bool devices_sleep(struct devices *devices);
void devices_awake(struct devices *devices);
