/*
 * The calls of gpupipe-cli: one request each, and its answer as a struct.
 *
 * Threads: the one that owns the connection.
 */
#include "client/calls.h"

#include "client/gpupipe_connection.h"
#include "client/gpupipe_job.h"
#include "proto/codec.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int call_open_fd(struct gpupipe **ret_gpupipe, int fd, const char *program)
{
    struct gpupipe *gpupipe = connection_create(program);
    struct failure failure;
    int rc;

    *ret_gpupipe = gpupipe;
    if (gpupipe == NULL) {
        close(fd);
        return GPUPIPE_ERROR_OUT_OF_MEMORY;
    }
    rc = connection_start(gpupipe, fd, &failure);
    return error_record(gpupipe, rc, &failure);
}

const struct search *call_search(const struct gpupipe *gpupipe)
{
    return &gpupipe->search;
}

const struct msg_hello_result *call_hello(const struct gpupipe *gpupipe)
{
    return &gpupipe->hello;
}

int call_job_open(struct gpupipe_job **ret_job, struct gpupipe *gpupipe,
                  const struct msg_job_open *msg, struct gpupipe_ring *ring)
{
    struct msg_job_open mine = *msg;
    struct failure failure;
    int rc;

    mine.options.is_in_rings = ring != NULL;
    rc = ring == NULL ? job_open(gpupipe, &mine, ret_job, &failure)
                      : job_open_in_ring(gpupipe, &mine, ring, ret_job, &failure);
    return error_record(gpupipe, rc, &failure);
}

const struct msg_job_opened *call_job_shape(const struct gpupipe_job *job)
{
    return &job->shape;
}

uint64_t call_push_records(const struct msg_job_opened *shape)
{
    return job_push_records(shape);
}

int call_ping(struct gpupipe *gpupipe)
{
    struct request request;

    request_init(&request, gpupipe);
    codec_pack_ping(&request.packer, request.msgid);
    return connection_ask(gpupipe, &request, NULL, NULL, NULL);
}

struct op_list {
    struct manifest_op *ops;
    uint32_t n_ops;
};

static int take_op_list(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    struct op_list *list = ret;

    return codec_unpack_op_list_result(result, &list->ops, &list->n_ops, ret_failure);
}

int call_op_list(struct gpupipe *gpupipe, const char *name, struct manifest_op **ret_ops,
                 uint32_t *ret_n_ops)
{
    struct msg_op_list msg = {0};
    struct op_list list;
    struct failure failure;
    struct request request;
    int rc;

    if (name != NULL && strlen(name) >= sizeof(msg.name)) {
        rc = fail(&failure, STATUS_UNKNOWN_OP, "name", "no op has a name that long");
        return error_record(gpupipe, rc, &failure);
    }
    snprintf(msg.name, sizeof(msg.name), "%s", name == NULL ? "" : name);
    request_init(&request, gpupipe);
    codec_pack_op_list(&request.packer, request.msgid, &msg);
    rc = connection_ask(gpupipe, &request, NULL, take_op_list, &list);
    if (rc == 0) {
        *ret_ops = list.ops;
        *ret_n_ops = list.n_ops;
    }
    return rc;
}

struct job_list {
    struct msg_job_entry *entries;
    uint32_t n_entries;
};

static int take_job_list(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    struct job_list *list = ret;

    return codec_unpack_job_list_result(result, &list->entries, &list->n_entries, ret_failure);
}

int call_job_list(struct gpupipe *gpupipe, bool is_all, struct msg_job_entry **ret_entries,
                  uint32_t *ret_n_entries)
{
    struct msg_job_list msg = {.is_all = is_all};
    struct job_list list;
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_job_list(&request.packer, request.msgid, &msg);
    rc = connection_ask(gpupipe, &request, NULL, take_job_list, &list);
    if (rc == 0) {
        *ret_entries = list.entries;
        *ret_n_entries = list.n_entries;
    }
    return rc;
}

static int take_job_state(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    struct msg_job_state state;
    int rc = codec_unpack_job_state(result, &state, ret_failure);

    if (rc == 0) {
        *(enum job_state *)ret = state.state;
    }
    return rc;
}

int call_job_cancel(struct gpupipe *gpupipe, uint64_t job, enum job_state *ret_state)
{
    struct msg_job msg = {.job = job};
    struct request request;

    request_init(&request, gpupipe);
    codec_pack_job(&request.packer, request.msgid, METHOD_JOB_CANCEL, &msg);
    return connection_ask(gpupipe, &request, NULL, take_job_state, ret_state);
}

static int take_stats(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_stats(result, ret, ret_failure);
}

int call_stats(struct gpupipe *gpupipe, struct msg_stats *ret_stats)
{
    struct request request;

    request_init(&request, gpupipe);
    codec_pack_stats_request(&request.packer, request.msgid);
    return connection_ask(gpupipe, &request, NULL, take_stats, ret_stats);
}

struct device_list {
    struct msg_device *devices;
    uint32_t n_devices;
};

static int take_device_list(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    struct device_list *list = ret;

    return codec_unpack_device_list_result(result, &list->devices, &list->n_devices, ret_failure);
}

int call_device_list(struct gpupipe *gpupipe, struct msg_device **ret_devices,
                     uint32_t *ret_n_devices)
{
    struct device_list list;
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_device_list(&request.packer, request.msgid);
    rc = connection_ask(gpupipe, &request, NULL, take_device_list, &list);
    if (rc == 0) {
        *ret_devices = list.devices;
        *ret_n_devices = list.n_devices;
    }
    return rc;
}
