/*
 * The nodes: /dev/nvidiactl, /dev/nvidia-uvm, and /dev/nvidiaN of at least one GPU.  Opened and
 * closed as the driver would; that has no effect of its own.
 */
#include "cuda/cuda_nodes.h"

#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* More than one machine has. */
#define GPUS_MAX 64u

static const struct node {
    const char *name;
    const char *when_missing;
} nodes[] = {
    {"nvidiactl", "is the kernel module loaded, is the GPU passed to this container?"},
    {"nvidia-uvm", "is the module nvidia-uvm loaded? (nvidia-modprobe -u makes the node)"},
};

/* 0, or -errno. */
static int try_open(const char *folder, const char *name)
{
    char path[PATH_MAX];
    _cleanup_(close_fd) int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : 0;
}

static int explain(int error, const char *folder, const char *name, const char *when_missing,
                   struct failure *ret_failure)
{
    switch (-error) {
    case 0:
        return 0;
    case ENOENT:
        return fail(ret_failure, STATUS_NO_DEVICE, NULL, "%s/%s is missing: %s", folder, name,
                    when_missing);
    case EACCES:
    case EPERM:
        return fail(ret_failure, STATUS_NO_DEVICE, NULL,
                    "no permission to open %s/%s: which user and groups does gpupiped run as?",
                    folder, name);
    default:
        return fail(ret_failure, STATUS_NO_DEVICE, NULL, "cannot open %s/%s: %s", folder, name,
                    strerror(-error));
    }
}

/* One that opens is enough; else what is wrong with the first that is there. */
static int check_gpus(const char *folder, struct failure *ret_failure)
{
    char name[NAME_MAX], first[NAME_MAX] = "nvidia0";
    int first_error = -ENOENT;

    for (unsigned i = 0; i < GPUS_MAX; i++) {
        int error;

        snprintf(name, sizeof(name), "nvidia%u", i);
        error = try_open(folder, name);
        if (error == 0) {
            return 0;
        }
        if (error != -ENOENT && first_error == -ENOENT) {
            first_error = error;
            memcpy(first, name, sizeof(first));
        }
    }
    return explain(first_error, folder, first, "is there a GPU, is it passed to this container?",
                   ret_failure);
}

int cuda_nodes_check(const char *folder, struct failure *ret_failure)
{
    if (try_open(folder, "dxg") != -ENOENT) {
        return 0; /* a Linux below Windows, where the driver lives on the other side of this node */
    }
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        int error = explain(try_open(folder, nodes[i].name), folder, nodes[i].name,
                            nodes[i].when_missing, ret_failure);
        if (error < 0) {
            return error;
        }
    }
    return check_gpus(folder, ret_failure);
}
