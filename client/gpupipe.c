/*
 * Finding the daemon, saying hello, and the calls that block.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_private.h"

#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define SYSTEM_SOCKET "/run/gpupiped/rpc.sock"
#define USER_SOCKET   "gpupiped/rpc.sock"

/* ---- opening ------------------------------------------------------------------------------- */

static void add_candidate(struct gpupipe_search *search, const char *why, const char *folder,
                          const char *path)
{
    uint32_t i = search->n_tried++;

    search->tried[i].why = why;
    /* A path that is cut here is far beyond what channel_connect() accepts. */
    snprintf(search->tried[i].path, sizeof(search->tried[i].path), "%s%s%s", folder,
             folder[0] == '\0' ? "" : "/", path);
}

/* Fills in paths and whys; returns how many there are, and leaves n_tried at 0. */
static uint32_t list_candidates(const char *socket_path, struct gpupipe_search *search)
{
    const char *from_environment = getenv("GPUPIPE_SOCKET");
    const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
    uint32_t n_candidates;

    memset(search, 0, sizeof(*search));
    if (socket_path != NULL) {
        add_candidate(search, "--socket", "", socket_path);
    } else if (from_environment != NULL && from_environment[0] != '\0') {
        add_candidate(search, "GPUPIPE_SOCKET", "", from_environment);
    } else {
        if (runtime_dir != NULL && runtime_dir[0] == '/') {
            add_candidate(search, "the user's own, in XDG_RUNTIME_DIR", runtime_dir, USER_SOCKET);
        }
        add_candidate(search, "the system's", "", SYSTEM_SOCKET);
    }
    n_candidates = search->n_tried;
    search->n_tried = 0;
    return n_candidates;
}

int gpupipe_open(const char *socket_path, const char *program, struct gpupipe_search *ret_search,
                 struct gpupipe **ret_gpupipe, struct failure *ret_failure)
{
    uint32_t n_candidates = list_candidates(socket_path, ret_search);
    int fd = -1;

    while (fd < 0 && ret_search->n_tried < n_candidates) {
        uint32_t i = ret_search->n_tried++;

        fd = channel_connect(ret_search->tried[i].path, &ret_search->tried[i].failure);
    }
    if (fd < 0) {
        *ret_failure = ret_search->tried[ret_search->n_tried - 1].failure;
        return -(int)ret_failure->status;
    }
    return gpupipe_open_fd(fd, program, ret_gpupipe, ret_failure);
}

static int take_hello(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_hello_result(result, ret, ret_failure);
}

static int say_hello(struct gpupipe *gpupipe, const char *program, struct failure *ret_failure)
{
    struct msg_hello hello = {.api = API_LEVEL, .wants_structured = true};
    struct request request;
    int rc;

    snprintf(hello.program, sizeof(hello.program), "%s", program);
    request_init(&request, gpupipe);
    codec_pack_hello(&request.packer, request.msgid, &hello);
    rc = connection_call(gpupipe, &request, take_hello, &gpupipe->hello, ret_failure);
    request_finish(&request);
    if (rc == 0 && gpupipe->hello.api_compatible > API_LEVEL) {
        return fail(ret_failure, STATUS_VERSION, "api",
                    "the daemon (%s) serves level %u and later, this client speaks level %u",
                    gpupipe->hello.version, gpupipe->hello.api_compatible, API_LEVEL);
    }
    return rc;
}

/* 0 or -errno. */
static int create(int fd, struct gpupipe **ret_gpupipe)
{
    struct gpupipe *gpupipe = calloc(1, sizeof(*gpupipe));
    struct epoll_event event = {.events = EPOLLIN};
    int rc = -ENOMEM;

    if (gpupipe == NULL) {
        close(fd);
        return rc;
    }
    gpupipe->fd = fd;
    gpupipe->next_msgid = 1;
    gpupipe->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (gpupipe->epoll_fd < 0 || epoll_ctl(gpupipe->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        rc = -errno;
        goto failed;
    }
    rc = reader_create(&gpupipe->reader, GUARD_CLIENT, &connection_callbacks, gpupipe);
    if (rc < 0) {
        goto failed;
    }
    rc = writer_create(&gpupipe->writer);
    if (rc < 0) {
        goto failed;
    }
    *ret_gpupipe = gpupipe;
    return 0;

failed:
    gpupipe_close(gpupipe);
    return rc;
}

int gpupipe_open_fd(int fd, const char *program, struct gpupipe **ret_gpupipe,
                    struct failure *ret_failure)
{
    struct gpupipe *gpupipe = NULL;
    int rc = create(fd, &gpupipe);

    if (rc < 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "cannot set up a connection: %s",
                    strerror(-rc));
    }
    rc = say_hello(gpupipe, program, ret_failure);
    if (rc < 0) {
        gpupipe_close(gpupipe);
        return rc;
    }
    *ret_gpupipe = gpupipe;
    return 0;
}

void gpupipe_close(struct gpupipe *gpupipe)
{
    struct failure failure;

    if (gpupipe == NULL) {
        return;
    }
    if (!gpupipe->is_lost) {
        fail(&failure, STATUS_CANCELLED, NULL, "the connection is being closed");
        connection_lose(gpupipe, &failure);
    }
    job_destroy_all(gpupipe);
    if (gpupipe->reader != NULL) {
        reader_destroy(gpupipe->reader);
    }
    close_fd(&gpupipe->epoll_fd);
    close(gpupipe->fd);
    free(gpupipe);
}

/* ---- query --------------------------------------------------------------------------------- */

const struct msg_hello_result *gpupipe_hello(const struct gpupipe *gpupipe)
{
    return &gpupipe->hello;
}

bool gpupipe_is_lost(const struct gpupipe *gpupipe)
{
    return gpupipe->is_lost;
}

int gpupipe_get_fd(const struct gpupipe *gpupipe)
{
    return gpupipe->epoll_fd;
}

/* ---- calls --------------------------------------------------------------------------------- */

int gpupipe_ping(struct gpupipe *gpupipe, struct failure *ret_failure)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_ping(&request.packer, request.msgid);
    rc = connection_call(gpupipe, &request, NULL, NULL, ret_failure);
    request_finish(&request);
    return rc;
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

int gpupipe_op_list(struct gpupipe *gpupipe, const char *name, struct manifest_op **ret_ops,
                    uint32_t *ret_n_ops, struct failure *ret_failure)
{
    struct msg_op_list msg = {0};
    struct op_list list;
    struct request request;
    int rc;

    if (name != NULL && strlen(name) >= sizeof(msg.name)) {
        return fail(ret_failure, STATUS_UNKNOWN_OP, "name", "no op has a name that long");
    }
    snprintf(msg.name, sizeof(msg.name), "%s", name == NULL ? "" : name);
    request_init(&request, gpupipe);
    codec_pack_op_list(&request.packer, request.msgid, &msg);
    rc = connection_call(gpupipe, &request, take_op_list, &list, ret_failure);
    request_finish(&request);
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

int gpupipe_job_list(struct gpupipe *gpupipe, bool is_all, struct msg_job_entry **ret_entries,
                     uint32_t *ret_n_entries, struct failure *ret_failure)
{
    struct msg_job_list msg = {.is_all = is_all};
    struct job_list list;
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_job_list(&request.packer, request.msgid, &msg);
    rc = connection_call(gpupipe, &request, take_job_list, &list, ret_failure);
    request_finish(&request);
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

int gpupipe_cancel(struct gpupipe *gpupipe, uint64_t job, enum job_state *ret_state,
                   struct failure *ret_failure)
{
    struct msg_job msg = {.job = job};
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_job(&request.packer, request.msgid, METHOD_JOB_CANCEL, &msg);
    rc = connection_call(gpupipe, &request, take_job_state, ret_state, ret_failure);
    request_finish(&request);
    return rc;
}

static int take_stats(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_stats(result, ret, ret_failure);
}

int gpupipe_stats(struct gpupipe *gpupipe, struct msg_stats *ret_stats, struct failure *ret_failure)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_stats_request(&request.packer, request.msgid);
    rc = connection_call(gpupipe, &request, take_stats, ret_stats, ret_failure);
    request_finish(&request);
    return rc;
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

int gpupipe_device_list(struct gpupipe *gpupipe, struct msg_device **ret_devices,
                        uint32_t *ret_n_devices, struct failure *ret_failure)
{
    struct device_list list;
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_device_list(&request.packer, request.msgid);
    rc = connection_call(gpupipe, &request, take_device_list, &list, ret_failure);
    request_finish(&request);
    if (rc == 0) {
        *ret_devices = list.devices;
        *ret_n_devices = list.n_devices;
    }
    return rc;
}
