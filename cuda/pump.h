/*
 * Pump: the worker's data thread.  It takes work from the queues, gives it to the device, and
 * answers what the device has completed.
 *
 * Threads: start, stop and destroy from the control thread; on_fatal is called on the data thread.
 */
#pragma once

#include "cuda/bells.h"
#include "cuda/device.h"
#include "cuda/resolve.h"
#include "cuda/segments.h"
#include "proto/queue.h"

struct pump;

/* What the pump works with; all of it outlives the pump. */
struct pump_parts {
    struct queue *queue;
    struct job_table jobs;
    struct segments *segments;
    struct device *device;
    int doorbell_fd;
    struct bells *bells; /* that one among them */
    /* The worker cannot go on: the device is lost or the queues are broken.  Does not return. */
    void (*on_fatal)(void *arg, const struct failure *failure);
    void *arg;
};

/* 0 or -errno. */
int pump_start(const struct pump_parts *parts, struct pump **ret_pump);
/*
 * End the thread; what is in flight stays unanswered.  Shuts the doorbell down.  NULL is fine.
 */
void pump_stop(struct pump *pump);
