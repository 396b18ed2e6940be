/*
 * The fake device: what is issued is complete at the next poll(), in order.
 */
#include "tests/fake_device.h"

#include "cuda/device.h"
#include "proto/util.h"
#include "tests/fake_ops.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 32u /* of all priorities together */

struct device {
    struct device_work works[DEPTH];
    uint32_t head;
    uint32_t n;
};

static uint32_t selected; /* index */

static int fake_select(const char *device, struct failure *ret_failure)
{
    (void)ret_failure;
    selected = device != NULL ? (uint32_t)atoi(device) : 0;
    return 0;
}

static void write_uuid(char *ret_uuid, size_t size)
{
    const char *path = getenv("FAKE_UUID_FILE");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    if (getenv("FAKE_DEVICES") != NULL) {
        snprintf(ret_uuid, size, "FAKE-%u", selected);
    }
    if (file != NULL) {
        fgets(ret_uuid, (int)size, file);
        fclose(file);
    }
}

static int fake_probe(struct worker_caps *ret_caps, struct failure *ret_failure)
{
    const char *n_devices = getenv("FAKE_DEVICES"), *least = getenv("FAKE_CHUNK_LEAST");

    (void)ret_failure;
    *ret_caps =
        (struct worker_caps){.backend = "cpu",
                             .name = "Fake",
                             .chunk_size = FAKE_CHUNK_SIZE,
                             .chunk_least = least != NULL ? (uint32_t)atoi(least) : FAKE_CHUNK_SIZE,
                             .bulk_bytes = DEPTH * FAKE_CHUNK_SIZE,
                             .bulk_chunks = DEPTH,
                             .n_devices = n_devices != NULL ? (uint32_t)atoi(n_devices) : 1,
                             .numa = -1};
    write_uuid(ret_caps->uuid, sizeof(ret_caps->uuid));
    return 0;
}

static int fake_open(struct device **ret_device, struct failure *ret_failure)
{
    const char *broken = getenv("FAKE_BROKEN");
    struct device *device = calloc(1, sizeof(*device));

    if (broken != NULL && strchr(broken, '0' + (int)selected) != NULL) {
        free(device);
        return fail(ret_failure, STATUS_NO_DEVICE, NULL, FAKE_BREAK, selected);
    }
    if (device == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory for the device");
    }
    *ret_device = device;
    return 0;
}

static void fake_close(struct device *device)
{
    free(device);
}

/* Bytes of the largest segment that can be registered now. */
static size_t segment_most(void)
{
    const char *most = getenv("FAKE_SEGMENT_MOST"), *path = getenv("FAKE_SEGMENT_FILE");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    char line[32];

    if (file != NULL) {
        most = fgets(line, sizeof(line), file);
        fclose(file);
    }
    return most != NULL ? strtoull(most, NULL, 10) : SIZE_MAX;
}

static int fake_segment_add(struct device *device, uint32_t id, void *base, size_t size,
                            struct failure *ret_failure)
{
    (void)device, (void)base;
    if (size > segment_most()) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, FAKE_REFUSAL, id);
    }
    return 0;
}

static void fake_segment_drop(struct device *device, uint32_t id)
{
    (void)device, (void)id;
}

static uint32_t fake_room(const struct device *device, enum priority priority)
{
    (void)priority;
    return DEPTH - device->n;
}

static void note_chunks(const struct device_work *work, uint32_t n)
{
    const char *path = getenv("FAKE_CHUNK_FILE");
    FILE *file = path != NULL ? fopen(path, "ae") : NULL;

    for (uint32_t i = 0; i < n && file != NULL; i++) {
        fprintf(file, "%u\n", work[i].n_records);
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void fake_issue(struct device *device, const struct device_work *work, uint32_t n)
{
    note_chunks(work, n);
    for (uint32_t i = 0; i < n; i++) {
        device->works[(device->head + device->n++) % DEPTH] = work[i];
    }
}

/* The parameter `add` of affine; 0 of another op. */
static uint32_t wish_of(const struct device_work *work)
{
    struct fake_params params;

    memcpy(&params, work->params, sizeof(params));
    return work->op == FAKE_AFFINE ? params.add : 0;
}

static void compute(const struct device_work *work)
{
    const struct op_chunk chunk = {.in = {work->in[0].base},
                                   .out = {work->out[0].base},
                                   .n_records = work->n_records,
                                   .tail_size = work->tail_size};

    if (work->op == FAKE_AFFINE) {
        work->code->map(work->params, &chunk, 1);
    }
}

static void complete(const struct device_work *work, struct device_completion *ret_completion)
{
    struct work_result *result = &ret_completion->result;

    memset(ret_completion, 0, sizeof(*ret_completion));
    ret_completion->cookie = work->cookie;
    result->issue_ns = work->issue_ns;
    result->start_ns = result->end_ns = now_ns();
    result->device_ns = getenv("FAKE_CHUNK_LEAST") != NULL ? FAKE_DEVICE_NS : 0;
    result->status = wish_of(work) == FAKE_SHORT ? STATUS_OK : (int32_t)wish_of(work);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        result->out_size[i] = (uint32_t)work->out[i].size;
    }
    result->out_size[0] -= wish_of(work) == FAKE_SHORT;
    if (result->status == STATUS_OK) {
        compute(work);
    } else {
        snprintf(ret_completion->error.text, sizeof(ret_completion->error.text), FAKE_ERROR);
    }
    if (work->is_timed) {
        result->in_ns = FAKE_IN_NS;
        result->compute_ns = FAKE_COMPUTE_NS;
        result->out_ns = FAKE_OUT_NS;
    }
}

static int fake_poll(struct device *device, struct device_completion *ret_completions, uint32_t max,
                     struct failure *ret_failure)
{
    uint32_t n = 0;

    while (n < max && device->n > 0) {
        const struct device_work *work = &device->works[device->head];

        if (wish_of(work) == FAKE_LOSES) {
            return fail(ret_failure, STATUS_KERNEL_FAULT, NULL, FAKE_LOSS);
        }
        if (wish_of(work) == FAKE_DIES) {
            abort();
        }
        complete(work, &ret_completions[n++]);
        device->head = (device->head + 1) % DEPTH;
        device->n--;
    }
    return (int)n;
}

static void fake_wait(struct device *device, int doorbell_fd)
{
    struct pollfd doorbell = {.fd = doorbell_fd, .events = POLLIN};

    poll(&doorbell, 1, device->n > 0 ? 0 : -1);
}

const struct device_backend device_backend = {
    .select = fake_select,
    .probe = fake_probe,
    .open = fake_open,
    .close = fake_close,
    .segment_add = fake_segment_add,
    .segment_drop = fake_segment_drop,
    .room = fake_room,
    .issue = fake_issue,
    .poll = fake_poll,
    .wait = fake_wait,
};
