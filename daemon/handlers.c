/*
 * Handlers: the table, and the methods that only tell.
 */
#include "daemon/handlers.h"

#include "daemon/answer.h"
#include "daemon/server.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

static int handle_hello(struct session *session, const struct rpc_message *message,
                        struct failure *ret_failure)
{
    const struct server *server = session_server(session);
    struct answer answer;
    struct msg_hello hello;
    struct msg_hello_result result = {
        .version = GPUPIPE_VERSION,
        .api_level = API_LEVEL,
        .api_compatible = API_COMPATIBLE,
        .epoch = server->epoch,
        .rights = "user",
    };
    int r = codec_unpack_hello(&message->params, &hello, ret_failure);

    if (r < 0) {
        return r;
    }
    if (hello.api != 0 && hello.api < API_COMPATIBLE) {
        return fail(ret_failure, STATUS_VERSION, "api",
                    "the client speaks api level %u; this daemon serves %d to %d", hello.api,
                    API_COMPATIBLE, API_LEVEL);
    }
    session_set_structured(session, hello.wants_structured);
    snprintf(result.backend, sizeof(result.backend), "%s", server->devices.backend);
    codec_pack_hello_result(answer_begin(&answer), message->msgid, &result);
    return answer_send(&answer, session);
}

static int handle_ping(struct session *session, const struct rpc_message *message,
                       struct failure *ret_failure)
{
    struct answer answer;

    (void)ret_failure;
    codec_pack_nil_result(answer_begin(&answer), message->msgid);
    return answer_send(&answer, session);
}

static int handle_op_list(struct session *session, const struct rpc_message *message,
                          struct failure *ret_failure)
{
    struct server *server = session_server(session);
    const struct manifest_op *ops[WORKER_OPS_MAX];
    uint32_t n_ops = 0;
    struct answer answer;
    struct msg_op_list list;
    int r = codec_unpack_op_list(&message->params, &list, ret_failure);

    if (r == 0 && list.name[0] != '\0') {
        uint32_t index;

        r = server_find_op(server, list.name, &index, ret_failure);
        if (r == 0) {
            ops[n_ops++] = &server->devices.ops.all[index];
        }
    } else {
        for (; r == 0 && n_ops < server->devices.ops.n; n_ops++) {
            ops[n_ops] = &server->devices.ops.all[n_ops];
        }
    }
    if (r < 0) {
        return r;
    }
    codec_pack_op_list_result(answer_begin(&answer), message->msgid, ops, n_ops,
                              server->devices.backend);
    return answer_send(&answer, session);
}

static int handle_stats(struct session *session, const struct rpc_message *message,
                        struct failure *ret_failure)
{
    struct answer answer;
    struct msg_stats stats;

    (void)ret_failure;
    server_stats(session_server(session), &stats);
    server_queues(session_server(session), session_uid(session), &stats);
    codec_pack_stats(answer_begin(&answer), message->msgid, &stats);
    return answer_send(&answer, session);
}

static void describe_device(const struct server *server, const struct device *device,
                            struct msg_device *ret_device)
{
    const struct worker_caps *caps = worker_link_caps(device->link);

    *ret_device = (struct msg_device){.numa = caps->numa, .memory = caps->memory};
    snprintf(ret_device->device, sizeof(ret_device->device), "%s", device->name);
    snprintf(ret_device->name, sizeof(ret_device->name), "%s", caps->name);
    snprintf(ret_device->uuid, sizeof(ret_device->uuid), "%s", caps->uuid);
    snprintf(ret_device->state, sizeof(ret_device->state), "%s", device_state_names[device->state]);
    snprintf(ret_device->backend, sizeof(ret_device->backend), "%s", server->devices.backend);
    snprintf(ret_device->reason, sizeof(ret_device->reason), "%s",
             device->state == DEVICE_RESTARTING ? device->reason : server->reason);
}

static int handle_device_list(struct session *session, const struct rpc_message *message,
                              struct failure *ret_failure)
{
    const struct server *server = session_server(session);
    struct msg_device devices[LIMIT_DEVICES];
    struct answer answer;

    (void)ret_failure;
    for (uint32_t i = 0; i < server->devices.n; i++) {
        describe_device(server, &server->devices.all[i], &devices[i]);
    }
    codec_pack_device_list_result(answer_begin(&answer), message->msgid, devices,
                                  server->devices.n);
    return answer_send(&answer, session);
}

static int handle_events_subscribe(struct session *session, const struct rpc_message *message,
                                   struct failure *ret_failure)
{
    struct answer answer;
    struct msg_subscribe subscribe;
    int r = codec_unpack_subscribe(&message->params, &subscribe, ret_failure);

    if (r < 0) {
        return r;
    }
    session_subscribe(session, &subscribe);
    codec_pack_empty_result(answer_begin(&answer), message->msgid);
    return answer_send(&answer, session);
}

static const struct handler handlers[METHOD_COUNT] = {
    [METHOD_HELLO] = {.handle = handle_hello},
    [METHOD_PING] = {.handle = handle_ping},
    [METHOD_OP_LIST] = {.handle = handle_op_list},
    [METHOD_RUN] = {.is_new_work = true,
                    .begin = handle_run_begin,
                    .begin_again = handle_run_begin_again,
                    .sink = handle_push_sink,
                    .end = handle_run_end,
                    .handle = handle_run},
    [METHOD_JOB_OPEN] = {.is_new_work = true, .handle = handle_job_open},
    [METHOD_JOB_PUSH] = {.is_new_work = true,
                         .begin = handle_job_push_begin,
                         .sink = handle_push_sink,
                         .end = handle_job_push_end,
                         .handle = handle_job_push,
                         .on_refused = handle_job_push_refused},
    [METHOD_JOB_CLOSE] = {.handle = handle_job_close},
    [METHOD_JOB_CANCEL] = {.handle = handle_job_cancel},
    [METHOD_JOB_LIST] = {.handle = handle_job_list},
    [METHOD_CONST_PUT] = {.is_new_work = true,
                          .begin = handle_const_put_begin,
                          .sink = handle_const_put_sink,
                          .end = handle_const_put_end,
                          .handle = handle_const_put},
    [METHOD_CONST_DROP] = {.handle = handle_const_drop},
    [METHOD_RING_OPEN] = {.is_new_work = true, .handle = handle_ring_open},
    [METHOD_RING_CLOSE] = {.handle = handle_ring_close},
    [METHOD_STATS] = {.handle = handle_stats},
    [METHOD_DEVICE_LIST] = {.handle = handle_device_list},
    [METHOD_EVENTS_SUBSCRIBE] = {.handle = handle_events_subscribe},
};

const struct handler *handler_for(enum method method)
{
    return &handlers[method];
}
