/*
 * A connection's life as a program sees it: open, wait, wake, connect again, close.
 *
 * Threads: the one that owns the connection; gpupipe_wake() also others, and signal handlers.
 */
#include "client/gpupipe.h"

#include "client/gpupipe_connection.h"
#include "client/gpupipe_flight.h"
#include "client/gpupipe_job.h"
#include "client/gpupipe_ring.h"
#include "client/json.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- opening and closing ------------------------------------------------------------------- */

/* RANGE is the path's own fault; all else means that nobody is there. */
static int fail_to_find(struct failure *failure)
{
    failure->status = failure->status == STATUS_RANGE ? STATUS_RANGE : STATUS_LOST;
    return -(int)failure->status;
}

int gpupipe_open(struct gpupipe **ret_gpupipe, const char *socket_path, const char *program)
{
    struct gpupipe *gpupipe = connection_create(program);
    struct failure failure;
    int rc;

    *ret_gpupipe = gpupipe;
    if (gpupipe == NULL) {
        return GPUPIPE_ERROR_OUT_OF_MEMORY;
    }
    rc = search_connect(socket_path, &gpupipe->search, &failure);
    if (rc < 0) {
        rc = fail_to_find(&failure);
        connection_lose(gpupipe, &failure);
    } else {
        rc = connection_start(gpupipe, rc, &failure);
    }
    return error_record(gpupipe, rc, &failure);
}

void gpupipe_close(struct gpupipe *gpupipe)
{
    struct failure failure;

    if (gpupipe == NULL) {
        return;
    }
    /* Before the doorbells: a ring whose doorbell alone is closed has broken its rules. */
    close_fd(&gpupipe->fd);
    gpupipe->fd = -1;
    if (!gpupipe->is_lost) {
        fail(&failure, STATUS_CANCELLED, NULL, "the connection is being closed");
        connection_lose(gpupipe, &failure);
    }
    job_destroy_all(gpupipe);
    rings_destroy_all(gpupipe);
    flight_list_free(&gpupipe->landed, NULL);
    flight_list_free(&gpupipe->reaped, NULL);
    if (gpupipe->reader != NULL) {
        reader_destroy(gpupipe->reader);
    }
    close_fd(&gpupipe->epoll_fd);
    close_fd(&gpupipe->wake_fd);
    connection_destroy(gpupipe);
}

/* ---- connecting again ---------------------------------------------------------------------- */

/* Nobody may have met the loss yet. */
static int check_is_lost(struct gpupipe *gpupipe, struct failure *ret_failure)
{
    int rc;

    do {
        rc = connection_turn(gpupipe, 0, CONNECTION_IGNORE_WAKES, ret_failure);
    } while (rc > 0);
    if (rc == 0) {
        connection_announce(gpupipe);
        return fail(ret_failure, STATUS_MISUSE, NULL,
                    "the connection is not lost, and goes on; gpupipe_close() ends it");
    }
    if (!connection_is_ours(gpupipe)) {
        return rc;
    }
    if (gpupipe->search.n_tried == 0) {
        return fail(ret_failure, STATUS_MISUSE, NULL,
                    "the connection came as a descriptor: there is no path to connect to again");
    }
    return 0;
}

/* The descriptor, or a negative status. */
static int connect_again(struct gpupipe *gpupipe, struct failure *ret_failure)
{
    struct failure reason;
    int fd = search_again(&gpupipe->search, &reason);

    if (fd >= 0) {
        return fd;
    }
    if (reason.status == STATUS_NOT_FOUND) {
        return fail(ret_failure, STATUS_LOST, reason.field,
                    "%.150s; start gpupiped there, then try again", reason.message);
    }
    *ret_failure = reason;
    return fail_to_find(ret_failure);
}

int gpupipe_reconnect(struct gpupipe *gpupipe)
{
    struct failure failure;
    int rc = check_is_lost(gpupipe, &failure);

    if (rc == 0) {
        rc = connect_again(gpupipe, &failure);
    }
    if (rc >= 0) {
        rc = connection_restart(gpupipe, rc, &failure);
    }
    if (rc == 0) {
        /* The library's own; a daemon that had none may have one now. */
        gpupipe_ring_close(STEAL(gpupipe->run_ring));
        gpupipe->has_no_run_ring = false;
    }
    return error_record(gpupipe, rc, &failure);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Waits that rings may satisfy before the socket is looked at; not tuned. */
#define LOOKS_PER_TURN 16

int gpupipe_get_fd(const struct gpupipe *gpupipe)
{
    return gpupipe->epoll_fd;
}

int gpupipe_dispatch(struct gpupipe *gpupipe, int timeout_ms)
{
    int64_t timeout_ns = timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000;
    struct failure failure;
    int rc = connection_turn(gpupipe, timeout_ns, CONNECTION_HEED_WAKES, &failure);

    gpupipe->has_ended_job = false;
    return rc < 0 ? error_record(gpupipe, rc, &failure) : 0;
}

static int64_t left_ns(uint64_t until_ns)
{
    uint64_t now = now_ns();

    return now < until_ns ? (int64_t)(until_ns - now) : 0;
}

/* Without a system call; but while rings keep a program busy the socket has its turn as well. */
static void look_into_rings(struct gpupipe *gpupipe)
{
    struct failure failure;

    if (gpupipe->rings == NULL || connection_check(gpupipe, &failure) < 0) {
        return;
    }
    rings_take(gpupipe);
    if (++gpupipe->n_looks % LOOKS_PER_TURN == 0) {
        (void)connection_turn(gpupipe, 0, CONNECTION_IGNORE_WAKES, &failure);
    }
}

int gpupipe_wait(struct gpupipe *gpupipe, int64_t timeout_ns)
{
    uint64_t until_ns = now_ns() + (uint64_t)MAX(timeout_ns, 0);
    struct failure failure;
    int rc = 1;

    look_into_rings(gpupipe);
    if (!connection_has_news(gpupipe) && connection_is_ours(gpupipe)) {
        rings_await_urgent(gpupipe, timeout_ns);
    }
    while (!connection_has_news(gpupipe) && rc > 0) {
        rc = connection_turn(gpupipe, timeout_ns < 0 ? -1 : left_ns(until_ns),
                             CONNECTION_HEED_WAKES, &failure);
    }
    /* Even of a lost connection: its pushes are to be reaped. */
    if (connection_has_news(gpupipe)) {
        gpupipe->has_ended_job = false;
        return 1;
    }
    return error_record(gpupipe, rc, &failure);
}

void gpupipe_wake(struct gpupipe *gpupipe)
{
    const uint64_t one = 1;
    int saved_errno = errno;

    /* A child's wake-up would be its parent's. */
    if (connection_is_ours(gpupipe)) {
        /* If it is full, the other side is awake already. */
        (void)!write(gpupipe->wake_fd, &one, sizeof(one));
    }
    errno = saved_errno;
}

/* ---- what the daemon says of itself -------------------------------------------------------- */

uint64_t gpupipe_epoch(const struct gpupipe *gpupipe)
{
    return gpupipe->hello.epoch;
}

uint64_t gpupipe_limit(const struct gpupipe *gpupipe, const char *name)
{
    const struct msg_hello_result *hello = &gpupipe->hello;

    for (uint32_t i = 0; i < hello->n_limits; i++) {
        if (strcmp(hello->limits[i].name, name) == 0) {
            return hello->limits[i].value;
        }
    }
    return 0;
}

static int take_as_json(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    *(char **)ret = json_text(result);
    return *(char **)ret == NULL ? fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "out of memory")
                                 : 0;
}

/* Of a list with one op, that op. */
static int take_only_as_json(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    if (result->type != MSGPACK_OBJECT_ARRAY || result->via.array.size != 1) {
        return fail(ret_failure, STATUS_UNKNOWN_OP, "name", "no such op");
    }
    return take_as_json(&result->via.array.ptr[0], ret, ret_failure);
}

int gpupipe_op_describe(struct gpupipe *gpupipe, const char *name, char **ret_json)
{
    struct msg_op_list msg = {0};
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
    return connection_ask(gpupipe, &request, NULL, name == NULL ? take_as_json : take_only_as_json,
                          ret_json);
}
