/*
 * Listener: the sockets that clients connect to.
 *
 * Either the service manager passed one (socket activation), or the daemon makes one at --socket,
 * with a lock beside it, and removes the socket at its end.  Connections are accepted once a worker
 * is ready; until then they wait in the kernel's backlog.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/config.h"
#include "proto/status.h"

#include <uv.h>

struct server;

struct listener {
    int fd;
    int lock_fd;
    char path[108]; /* of a socket that is ours to remove; "" = it was passed to us */
    bool is_open;   /* libuv knows its handles */
    uv_poll_t poll;
    uv_timer_t pause;   /* after descriptors ran out */
    uint64_t warned_ns; /* when the log was last told; 0 = never */
};

int listener_open(struct server *server, const struct config *config, struct failure *ret_failure);
/* Begin to accept. */
void listener_start(struct server *server);
/* Stop, and remove what was made.  uv_close() of the handles is the caller's. */
void listener_close(struct server *server);
