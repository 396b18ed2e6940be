/*
 * Devices: a table of worker links.
 */
#include "daemon/devices.h"

#include "daemon/log.h"
#include "proto/util.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *const device_state_names[DEVICE_STATES] = {
    [DEVICE_STARTING] = "starting",
    [DEVICE_READY] = "ready",
    [DEVICE_RESTARTING] = "restarting",
};

static const char *on_hello(void *owner, const struct worker_caps *caps);

/* ---- workers' news -------------------------------------------------------------------------- */

static void set_state(struct device *device, enum device_state state, const char *reason)
{
    struct devices *devices = device->devices;

    device->state = state;
    snprintf(device->reason, sizeof(device->reason), "%s", reason);
    devices->config.on_change(devices->config.owner, device);
}

static void on_ready(void *owner)
{
    struct device *device = owner;

    scheduler_device_up(device->devices->config.scheduler, device->index,
                        worker_link_caps(device->link));
    device->was_ready = true;
    set_state(device, DEVICE_READY, "");
}

static void on_down(void *owner, const char *reason)
{
    struct device *device = owner;

    scheduler_device_down(device->devices->config.scheduler, device->index);
    set_state(device, DEVICE_RESTARTING, reason);
}

static void on_hopeless(void *owner)
{
    struct device *device = owner;

    device->devices->config.on_hopeless(device->devices->config.owner);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* One more; name: as --device takes it, or "" for the first there is. */
static int add(struct devices *devices, const char *name, struct failure *ret_failure)
{
    const struct devices_config *config = &devices->config;
    struct device *device = &devices->all[devices->n];
    struct worker_link_config link = {
        .loop = config->loop,
        .spawner = config->spawner,
        .segments = config->segments,
        .job_slots = config->job_slots,
        .ops = &devices->ops,
        .backend = devices->backend,
        .owner = device,
        .on_hello = on_hello,
        .on_ready = on_ready,
        .on_down = on_down,
        .on_hopeless = on_hopeless,
        .on_done = config->on_done,
        .on_lost = config->on_lost,
    };

    *device = (struct device){.devices = devices, .index = devices->n};
    snprintf(device->name, sizeof(device->name), "%s%u", devices->backend, device->index);
    snprintf(link.device, sizeof(link.device), "%s", name);
    snprintf(link.name, sizeof(link.name), "%s", device->name);
    int r = worker_link_create(&link, &device->link, ret_failure);
    if (r == 0) {
        devices->n++;
    }
    return r;
}

/* The first of those that nobody named tells of the others. */
static void add_others(struct devices *devices, uint32_t n_devices)
{
    struct failure failure;

    if (n_devices > LIMIT_DEVICES) {
        log_warning("of %u devices the first %d are used", n_devices, LIMIT_DEVICES);
    }
    while (devices->n < MIN(n_devices, (uint32_t)LIMIT_DEVICES)) {
        char index[16];

        snprintf(index, sizeof(index), "%u", devices->n);
        if (add(devices, index, &failure) < 0) {
            log_error("device %s stays unused: %s", index, failure.message);
            return;
        }
    }
}

static const char *on_hello(void *owner, const struct worker_caps *caps)
{
    struct device *device = owner;
    struct devices *devices = device->devices;

    for (uint32_t i = 0; i < devices->n; i++) {
        if (caps->uuid[0] != '\0' &&
            strcmp(worker_link_caps(devices->all[i].link)->uuid, caps->uuid) == 0) {
            return "another worker drives its device: --devices names it twice";
        }
    }
    if (devices->config.list->n == 0 && device->index == 0) {
        add_others(devices, caps->n_devices);
    }
    return NULL;
}

int devices_init(struct devices *devices, const struct devices_config *config, const char *backend,
                 struct failure *ret_failure)
{
    int r = 0;

    *devices = (struct devices){.config = *config, .backend = backend};
    if (config->list->n == 0) {
        return add(devices, "", ret_failure);
    }
    for (uint32_t i = 0; i < config->list->n && r == 0; i++) {
        r = add(devices, config->list->names[i], ret_failure);
    }
    return r;
}

static void end_workers(struct devices *devices)
{
    while (devices->n > 0) {
        devices->n--;
        worker_link_destroy(devices->all[devices->n].link);
    }
    free(STEAL(devices->ops.all));
    devices->ops.n = 0;
}

int devices_replace(struct devices *devices, const char *backend, struct failure *ret_failure)
{
    static const struct device_list all;

    assert(devices_count(devices, DEVICE_READY) == 0);
    end_workers(devices);
    devices->backend = backend;
    devices->config.list = &all;
    return add(devices, "", ret_failure);
}

void devices_finish(struct devices *devices)
{
    end_workers(devices);
}

/* ---- what there is -------------------------------------------------------------------------- */

uint32_t devices_count(const struct devices *devices, enum device_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < devices->n; i++) {
        n += devices->all[i].state == state;
    }
    return n;
}

const struct device *devices_find(const struct devices *devices, const char *name)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        if (strcmp(devices->all[i].name, name) == 0) {
            return &devices->all[i];
        }
    }
    return NULL;
}

void devices_describe(const struct devices *devices, char *ret_text, size_t size)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < devices->n && used < size; i++) {
        const struct device *device = &devices->all[i];
        bool is_ready = device->state == DEVICE_READY;
        const char *words = is_ready ? worker_link_caps(device->link)->name : device->reason;

        used +=
            (size_t)snprintf(ret_text + used, size - used, "%sdevice %s: %s%s%s", i > 0 ? "; " : "",
                             device->name, is_ready ? "" : device_state_names[device->state],
                             is_ready || words[0] == '\0' ? "" : ", ", words);
    }
}

uint64_t devices_chunk_size(const struct devices *devices)
{
    uint64_t size = UINT64_MAX;

    for (uint32_t i = 0; i < devices->n; i++) {
        const struct worker_caps *caps = worker_link_caps(devices->all[i].link);

        size = MIN(size, caps->chunk_size > 0 ? caps->chunk_size : UINT64_MAX);
    }
    return size;
}

uint64_t devices_chunk_least(const struct devices *devices)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < devices->n; i++) {
        size = MAX(size, (uint64_t)worker_link_caps(devices->all[i].link)->chunk_least);
    }
    return size;
}

/* ---- all their links ------------------------------------------------------------------------ */

void devices_unhear(struct devices *devices, uint64_t ring)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        worker_link_unhear(devices->all[i].link, ring);
    }
}

void devices_publish(struct devices *devices)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        worker_link_publish(devices->all[i].link);
    }
}

void devices_poll(struct devices *devices)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        worker_link_poll(devices->all[i].link);
    }
}

bool devices_sleep(struct devices *devices)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        if (!worker_link_sleep(devices->all[i].link)) {
            devices_awake(devices);
            return false;
        }
    }
    return true;
}

void devices_awake(struct devices *devices)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        worker_link_awake(devices->all[i].link);
    }
}
