/*
 * The model of a device.
 *
 * A GPU: the worker takes entries in order of priority while a slot of that priority is free; what
 * is small is read by its kernel through mapped memory, beside all others; the rest passes an
 * engine for copies in, kernels in order of priority, and an engine for copies out.  Copy engines
 * serve in order of arrival, whatever the priority: that is what the scheduler is for.
 *
 * A CPU: threads take entries in strict order of priority, and nothing interrupts them.
 *
 * device_ns is measured as the workers do: from the start, or the end of the work before, to the
 * end; on a CPU the thread's time.
 */
#include "tests/sim/sim.h"

#include "proto/util.h"

#include <string.h>

#define MAPPED_SPEED 40 /* by a kernel: 36 to 41 */
#define MEMCPY_SPEED 9  /* by a thread: 8.9 */
#define MAPPED_MOST  (256 * KIB)
#define MAPPED_NS    (8 * US)   /* a mapped kernel, launch to noticed: 7.7 */
#define HOP_NS       (2 * US)   /* until the front end knows */
#define SLOTS        8u         /* CUDA_SLOTS; of normal work 4, but of many works each ... */
#define BULK_SLOTS   4u         /* ... and CUDA_LARGE_SLOTS */
#define BULK_BYTES   (32 * MIB) /* what the worker announces */

static void append(struct sim_work **first, struct sim_work **last, struct sim_work *work)
{
    work->next = NULL;
    if (*first == NULL) {
        *first = work;
    } else {
        (*last)->next = work;
    }
    *last = work;
}

static struct sim_work *take(struct sim_work **first)
{
    struct sim_work *work = *first;

    *first = work->next;
    return work;
}

static void feed(struct sim_device *device);
static void on_engine_done(struct sim *sim, void *arg, void *arg_work);

/* ---- the end of a work ---------------------------------------------------------------------- */

static void end_work(struct sim *sim, void *arg, void *unused)
{
    struct sim_work *work = arg;
    struct sim_device *device = &sim->devices[work->charge.place.device];

    (void)unused;
    if (device->has_engines) {
        work->device_ns = sim->now_ns - MAX(work->start_ns, device->end_ns);
        device->end_ns = sim->now_ns;
    }
    device->n_slots[work->priority]++;
    sim_at(sim, HOP_NS, sim_chunk_done, work, NULL);
    feed(device);
}

/* ---- engines -------------------------------------------------------------------------------- */

static uint64_t time_at(const struct sim_engine *engine, struct sim_work *work)
{
    if (!engine->device->has_engines) {
        work->device_ns = engine->device->slowness * (work->kernel_ns + work->size / MEMCPY_SPEED);
        return work->device_ns;
    }
    return engine->device->slowness * (engine->stage == STAGE_COMPUTE
                                           ? work->kernel_ns
                                           : SIM_COPY_NS + work->size / SIM_LINK_SPEED);
}

static void run_engine(struct sim_engine *engine)
{
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        while (engine->n_busy < engine->n_servers && engine->first[priority] != NULL) {
            struct sim_work *work = take(&engine->first[priority]);

            engine->n_busy++;
            if (work->start_ns == 0) {
                work->start_ns = engine->device->sim->now_ns;
                if (work->push->begin_ns == 0) {
                    work->push->begin_ns = work->start_ns;
                }
            }
            sim_at(engine->device->sim, time_at(engine, work), on_engine_done, engine, work);
        }
    }
}

static void enter(struct sim_engine *engine, struct sim_work *work)
{
    enum priority queue = engine->is_by_priority ? work->priority : PRIORITY_URGENT;

    append(&engine->first[queue], &engine->last[queue], work);
    run_engine(engine);
}

static void on_engine_done(struct sim *sim, void *arg, void *arg_work)
{
    struct sim_engine *engine = arg;
    struct sim_work *work = arg_work;

    engine->n_busy--;
    if (!engine->device->has_engines || engine->stage == STAGE_OUT) {
        end_work(sim, work, NULL);
    } else {
        enter(engine + 1, work);
    }
    run_engine(engine);
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void start(struct sim_device *device, struct sim_work *work)
{
    struct sim *sim = device->sim;

    if (!device->has_engines) {
        enter(&device->engines[STAGE_COMPUTE], work);
    } else if (work->size <= MAPPED_MOST) {
        work->start_ns = sim->now_ns;
        if (work->push->begin_ns == 0) {
            work->push->begin_ns = sim->now_ns;
        }
        sim_at(sim, MAPPED_NS + device->slowness * (work->kernel_ns + work->size / MAPPED_SPEED),
               end_work, work, NULL);
    } else {
        enter(&device->engines[STAGE_IN], work);
    }
}

static void feed(struct sim_device *device)
{
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        while (device->n_slots[priority] > 0 && device->first[priority] != NULL) {
            device->n_slots[priority]--;
            start(device, take(&device->first[priority]));
        }
    }
}

void sim_device_submit(struct sim_device *device, struct sim_work *work)
{
    append(&device->first[work->priority], &device->last[work->priority], work);
    feed(device);
}

void sim_device_init(struct sim_device *device, struct sim *sim, uint32_t slowness,
                     struct worker_caps *ret_caps)
{
    uint32_t n_threads = sim->plan->n_threads;

    *device = (struct sim_device){
        .sim = sim,
        .slowness = slowness,
        .has_engines = n_threads == 0,
        .n_slots = {SLOTS, SLOTS, BULK_SLOTS},
    };
    *ret_caps = (struct worker_caps){.bulk_chunks = BULK_SLOTS, .bulk_bytes = BULK_BYTES};
    for (uint32_t i = 0; i < STAGE_COUNT; i++) {
        device->engines[i] = (struct sim_engine){
            .device = device,
            .stage = i,
            .n_servers = n_threads == 0 ? 1 : n_threads,
            .is_by_priority = i == STAGE_COMPUTE,
        };
    }
    if (n_threads > 0) {
        ret_caps->n_threads = n_threads;
        ret_caps->bulk_chunks = 2 * n_threads;
        ret_caps->bulk_bytes = 2 * n_threads * SIM_CHUNK_MAX;
        for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
            device->n_slots[priority] = WORK_ENTRIES;
        }
    }
}
