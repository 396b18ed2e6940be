/*
 * The CUDA backend: one GPU, the first of those that CUDA shows this process.
 *
 * Here: what the device is, the context, and registering memory.  Why there is none is told by
 * cuda_reasons.c.  The work is in cuda_pipeline.c and what that is made of: cuda_kernels.c,
 * cuda_streams.c, cuda_slots.c.
 *
 * The context is made with the primary context's flags before anything else asks for it.  All code
 * is loaded at once (EAGER): loading at first use would stall running copies, and hide races.
 *
 * Threads: as device.h says.
 */
#include "cuda/cuda_check.h"
#include "cuda/cuda_pipeline.h"
#include "cuda/cuda_reasons.h"
#include "cuda/cuda_slots.h"
#include "cuda/cuda_streams.h"
#include "cuda/device.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/*
 * What fills the link.  A copy costs its engine 4 us beside the time of its bytes, so the best
 * pipeline of 4 MiB chunks has 0.97 to 0.99 of the rate of the best of 8, whoever drives it; larger
 * ones gain no more.  Of three in flight none is left to copy in while a long kernel runs and a
 * completion is slept through: `iterate` then falls to 0.95.
 *
 * What is in flight is what urgent copies wait for: 0.6 ms at p99, or 0.33 where pushes of 4 MiB,
 * which are the default, make chunks of that size.  Three of 8 MiB are no better: 0.57 to 0.75.
 */
#define CHUNK_SIZE (8u << 20)
/* A word for each thread that an H200 runs at once (132 multiprocessors with 2048).  Not tuned. */
#define CHUNK_LEAST (1u << 20)
#define BULK_CHUNKS (CUDA_LARGE_SLOTS + BULK_AHEAD)
#define BULK_BYTES  (BULK_CHUNKS * CHUNK_SIZE)

/*
 * Chunks that wait here for a slot: the next one begins when another ends, not two wake-ups later
 * (front end, worker: 0.1 ms on a virtual machine, of the 0.17 that a chunk takes).  They are in
 * nobody's way: urgent work has slots of its own.
 */
#define BULK_AHEAD 2u

/*
 * Bytes of stack for which the device keeps memory, for each of the threads that it can hold at
 * once: of an H200 132 MiB for 512 bytes, and twice that by default.  No op of ours needs more; for
 * a kernel that does it is grown when that is launched first.
 */
#define STACK_SIZE 512u

#define N_SEGMENTS (WORK_REF_SEGMENT(UINT64_MAX) + 1)

struct device {
    struct cuda_pipeline *pipeline;
    void *bases[N_SEGMENTS]; /* of registered segments; the control thread's */
};

/* ---- which --------------------------------------------------------------------------------- */

/* Before anything calls CUDA, which reads it once. */
static int set_environment(const char *name, const char *value, struct failure *ret_failure)
{
    if (setenv(name, value, 1) < 0) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the environment");
    }
    return 0;
}

/* The index-th of the names in the list, which have commas between; false: it has not as many. */
static bool name_at(const char *list, unsigned long index, char *ret_name, size_t size)
{
    while (index > 0 && list[strcspn(list, ",")] != '\0') {
        list += strcspn(list, ",") + 1;
        index--;
    }
    snprintf(ret_name, size, "%.*s", (int)strcspn(list, ","), list);
    return index == 0;
}

/*
 * CUDA knows how to name a device, so it is left to choose it: what is not chosen this process
 * never sees, and cannot disturb.  Indices are those that nvidia-smi shows, not the fastest first;
 * or, where the environment shows some devices only, the index among these.
 */
static int choose(const char *device, struct failure *ret_failure)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char name[WORKER_DEVICE_SIZE];
    char *end;
    unsigned long index = strtoul(device, &end, 10);

    if (visible == NULL || *end != '\0') {
        return set_environment("CUDA_VISIBLE_DEVICES", device, ret_failure);
    }
    if (!name_at(visible, index, name, sizeof(name))) {
        return fail(ret_failure, STATUS_NO_DEVICE, "devices",
                    "there is no device %lu: CUDA_VISIBLE_DEVICES is \"%s\"", index, visible);
    }
    return set_environment("CUDA_VISIBLE_DEVICES", name, ret_failure);
}

static int cuda_select(const char *device, struct failure *ret_failure)
{
    int error = set_environment("CUDA_DEVICE_ORDER", "PCI_BUS_ID", ret_failure);

    if (error == 0) {
        error = set_environment("CUDA_MODULE_LOADING", "EAGER", ret_failure);
    }
    if (error == 0 && device != NULL) {
        error = choose(device, ret_failure);
    }
    return error;
}

/* ---- what is there ------------------------------------------------------------------------- */

static void write_uuid(const cudaUUID_t *uuid, char *ret_text, size_t size)
{
    const uint8_t *b = (const uint8_t *)uuid->bytes;

    snprintf(ret_text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static int probe_device(struct worker_caps *ret_caps, struct cuda_trouble *ret_trouble)
{
    struct cudaDeviceProp properties;
    int n_devices = 0, numa = -1;
    int error = CUDA_CHECK(cudaGetDeviceCount(&n_devices), ret_trouble);

    if (error == 0) {
        error = CUDA_CHECK(cudaGetDeviceProperties(&properties, 0), ret_trouble);
    }
    if (error == 0) {
        error = CUDA_CHECK(cudaDeviceGetAttribute(&numa, cudaDevAttrHostNumaId, 0), ret_trouble);
    }
    if (error < 0) {
        return error;
    }
    *ret_caps = (struct worker_caps){
        .backend = "cuda",
        .memory = properties.totalGlobalMem,
        .chunk_size = CHUNK_SIZE,
        .chunk_least = CHUNK_LEAST,
        .bulk_bytes = BULK_BYTES,
        .bulk_chunks = BULK_CHUNKS,
        .n_devices = (uint32_t)n_devices,
        .numa = numa,
    };
    snprintf(ret_caps->name, sizeof(ret_caps->name), "%.*s", (int)sizeof(ret_caps->name) - 1,
             properties.name);
    write_uuid(&properties.uuid, ret_caps->uuid, sizeof(ret_caps->uuid));
    return 0;
}

static int cuda_probe(struct worker_caps *ret_caps, struct failure *ret_failure)
{
    struct cuda_trouble trouble;
    int error = cuda_explain(probe_device(ret_caps, &trouble), &trouble);

    if (error < 0) {
        *ret_failure = trouble.failure;
    }
    return error;
}

/* ---- life ---------------------------------------------------------------------------------- */

/*
 * GPUPIPE_STREAMS is for benchmarks, which compare pools of several sizes; no installed worker has
 * it but through --worker-env.
 */
static int read_n_streams(uint32_t *ret_n, struct cuda_trouble *ret_trouble)
{
    const char *text = getenv("GPUPIPE_STREAMS");
    unsigned long n = CUDA_STREAMS;
    char *end;

    if (text != NULL) {
        n = strtoul(text, &end, 10);
        if (end == text || *end != '\0' || n < 1 || n > CUDA_STREAMS_MAX) {
            return cuda_trouble(ret_trouble, STATUS_INVALID_PARAM,
                                "GPUPIPE_STREAMS takes a number from 1 to %u, not \"%s\"",
                                CUDA_STREAMS_MAX, text);
        }
    }
    *ret_n = (uint32_t)n;
    return 0;
}

static int open_device(struct device *device, struct cuda_trouble *ret_trouble)
{
    uint32_t n_streams = 0;
    int error = read_n_streams(&n_streams, ret_trouble);

    if (error < 0) {
        return error;
    }
    /* Naps of the data thread, which inherits it, end when they should: the default adds 50 us. */
    prctl(PR_SET_TIMERSLACK, 1);
    /* Only opening and closing ever wait for the device as a whole: no spinning there. */
    error =
        CUDA_CHECK(cudaInitDevice(0, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
                   ret_trouble);
    if (error == 0) {
        error = CUDA_CHECK(cudaSetDevice(0), ret_trouble);
    }
    if (error == 0 && cudaDeviceSetLimit(cudaLimitStackSize, STACK_SIZE) != cudaSuccess) {
        cudaGetLastError(); /* it takes more memory, and no more than that */
    }
    if (error == 0) {
        error = cuda_pipeline_create(n_streams, &device->pipeline, ret_trouble);
    }
    return error;
}

static void cuda_close(struct device *device)
{
    if (device != NULL) {
        cuda_pipeline_destroy(device->pipeline);
        for (uint32_t id = 0; id < N_SEGMENTS; id++) {
            if (device->bases[id] != NULL) {
                cudaHostUnregister(device->bases[id]);
            }
        }
        free(device);
    }
}

static int cuda_open(struct device **ret_device, struct failure *ret_failure)
{
    struct device *device = calloc(1, sizeof(*device));
    struct cuda_trouble trouble;
    int error;

    if (device == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the device");
    }
    error = cuda_explain(open_device(device, &trouble), &trouble);
    if (error < 0) {
        *ret_failure = trouble.failure;
        cuda_close(device);
        return error;
    }
    *ret_device = device;
    return 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

/*
 * Registering pins the pages.  To have them in our page tables first makes that ten times faster,
 * and it holds up running copies for as long as it takes.  A kernel before 5.14 does not know the
 * advice.
 */
static int cuda_segment_add(struct device *device, uint32_t id, void *base, size_t size,
                            struct failure *ret_failure)
{
    struct cuda_trouble trouble;
    int error;

    madvise(base, size, MADV_POPULATE_WRITE);
    error = CUDA_CHECK(cudaHostRegister(base, size, cudaHostRegisterDefault), &trouble);
    if (error < 0) {
        *ret_failure = trouble.failure;
        return error;
    }
    device->bases[id] = base;
    return 0;
}

/* It can fail only with the whole device, and of that poll() tells. */
static void cuda_segment_drop(struct device *device, uint32_t id)
{
    if (device->bases[id] != NULL && cudaHostUnregister(device->bases[id]) != cudaSuccess) {
        cudaGetLastError();
    }
    device->bases[id] = NULL;
}

/* ---- work ---------------------------------------------------------------------------------- */

static uint32_t cuda_room(const struct device *device, enum priority priority)
{
    return cuda_pipeline_room(device->pipeline, priority);
}

static void cuda_issue(struct device *device, const struct device_work *work, uint32_t n)
{
    cuda_pipeline_issue(device->pipeline, work, n);
}

static int cuda_poll(struct device *device, struct device_completion *ret_completions, uint32_t max,
                     struct failure *ret_failure)
{
    return cuda_pipeline_poll(device->pipeline, ret_completions, max, ret_failure);
}

static void cuda_wait(struct device *device, int doorbell_fd)
{
    cuda_pipeline_wait(device->pipeline, doorbell_fd);
}

const struct device_backend device_backend = {
    .select = cuda_select,
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .segment_add = cuda_segment_add,
    .segment_drop = cuda_segment_drop,
    .room = cuda_room,
    .issue = cuda_issue,
    .poll = cuda_poll,
    .wait = cuda_wait,
};
