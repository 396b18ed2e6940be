/*
 * The CPU backend: every CPU that this process may run on computes, with the same priorities and
 * queues as on a GPU.  It is the reference for the GPU and what runs where there is none.
 *
 * Here: what the machine is, memory, and waiting.  The computing is in cpu_threads.c.
 *
 * Threads: as device.h says.
 */
#include "cuda/cpu_threads.h"
#include "cuda/device.h"
#include "proto/cpus.h"
#include "proto/util.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/*
 * The largest array of a good chunk.  Measured on 2 cores, 4 chunks in flight: sha256 of 1 MiB
 * chunks runs at 95 % of its rate with 4 MiB (256 KiB: 65 %, wake-ups cost the rest), and nothing
 * urgent waits longer than 0.4 ms for a core, because running work is not interrupted.
 */
#define CHUNK_SIZE (1u << 20)

struct device {
    struct cpu_threads *threads;
};

static void read_processor_name(char *ret_name, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");

    snprintf(ret_name, size, "CPU");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *text = strstr(line, ": ");

        if (strncmp(line, "model name", strlen("model name")) == 0 && text != NULL) {
            snprintf(ret_name, size, "%.*s", (int)strcspn(text + 2, "\n"), text + 2);
            break;
        }
    }
    fclose(file);
}

static int cpu_select(const char *device, struct failure *ret_failure)
{
    if (device != NULL && strcmp(device, "0") != 0) {
        return fail(ret_failure, STATUS_NO_DEVICE, "devices", "no device \"%s\"; there is 0",
                    device);
    }
    return 0;
}

static int cpu_probe(struct worker_caps *ret_caps, struct failure *ret_failure)
{
    struct worker_caps caps = {.backend = "cpu",
                               .chunk_size = CHUNK_SIZE,
                               .n_threads = cpus_usable(),
                               .n_devices = 1,
                               .numa = -1};

    (void)ret_failure; /* there is always a CPU */
    read_processor_name(caps.name, sizeof(caps.name));
    caps.memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    /* One chunk computing and one waiting for each thread, so that none waits for the front end. */
    caps.bulk_chunks = 2 * caps.n_threads;
    /* There is no link to share: the bound that matters is the count. */
    caps.bulk_bytes = (uint64_t)caps.bulk_chunks * CHUNK_SIZE * (LIMIT_IN + LIMIT_OUT);
    *ret_caps = caps;
    return 0;
}

static int cpu_open(struct device **ret_device, struct failure *ret_failure)
{
    _cleanup_(free_pointer) struct device *device = calloc(1, sizeof(*device));
    int error;

    if (device == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the device");
    }
    error = cpu_threads_create(cpus_usable(), &device->threads);
    if (error < 0) {
        return fail(ret_failure, STATUS_NO_DEVICE, NULL, "cannot start the computing threads: %s",
                    strerror(-error));
    }
    *ret_device = STEAL(device);
    return 0;
}

static void cpu_close(struct device *device)
{
    if (device != NULL) {
        cpu_threads_destroy(device->threads);
        free(device);
    }
}

/*
 * Fill our page tables now, not fault by fault while a chunk is computed.  The pages themselves are
 * there already.  A kernel before 5.14 does not know the advice; the faults come later then.
 */
static int cpu_segment_add(struct device *device, uint32_t id, void *base, size_t size,
                           struct failure *ret_failure)
{
    (void)device, (void)id, (void)ret_failure;
    madvise(base, size, MADV_POPULATE_WRITE);
    return 0;
}

static void cpu_segment_drop(struct device *device, uint32_t id)
{
    (void)device, (void)id;
}

static uint32_t cpu_room(const struct device *device, enum priority priority)
{
    return cpu_threads_room(device->threads, priority);
}

static void cpu_issue(struct device *device, const struct device_work *work, uint32_t n)
{
    cpu_threads_issue(device->threads, work, n);
}

static int cpu_poll(struct device *device, struct device_completion *ret_completions, uint32_t max,
                    struct failure *ret_failure)
{
    (void)ret_failure;
    return (int)cpu_threads_poll(device->threads, ret_completions, max);
}

static void cpu_wait(struct device *device, int doorbell_fd)
{
    struct pollfd fds[] = {
        {.fd = doorbell_fd, .events = POLLIN},
        {.fd = cpu_threads_fd(device->threads), .events = POLLIN},
    };

    if (!cpu_threads_has_finished(device->threads)) {
        poll(fds, ARRAY_SIZE(fds), -1);
    }
}

const struct device_backend device_backend = {
    .select = cpu_select,
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .segment_add = cpu_segment_add,
    .segment_drop = cpu_segment_drop,
    .room = cpu_room,
    .issue = cpu_issue,
    .poll = cpu_poll,
    .wait = cpu_wait,
};
