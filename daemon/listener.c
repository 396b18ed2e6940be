/*
 * Listener: making, accepting, removing.
 */
#include "daemon/listener.h"

#include "daemon/linger.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "proto/channel.h"
#include "proto/rpc.h"
#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#define PAUSE_MS        100                         /* until descriptors may be free again */
#define WARN_NS         (60 * UINT64_C(1000000000)) /* from one warning of it to the next */
#define ACCEPTS_AT_ONCE 32                          /* then other sockets have their turn */

#define SYSTEM_SOCKET "/run/gpupiped/rpc.sock"
#define USER_SOCKET   "gpupiped/rpc.sock" /* in $XDG_RUNTIME_DIR */

/* A socket that the service manager passed, or -1. */
static int activated_fd(void)
{
    int n = sd_listen_fds(1);

    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
        if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0) {
            return fd;
        }
    }
    return -1;
}

/* The path asked for, or the default: a user's own, else the system's.  Makes a default's folder.
 */
static int choose_path(const struct config *config, char *ret_path, size_t size, mode_t *ret_mode)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool is_user = getuid() != 0 && runtime != NULL;
    int length;

    *ret_mode = is_user ? 0600 : 0660;
    if (config->socket_path != NULL) {
        length = snprintf(ret_path, size, "%s", config->socket_path);
        return length >= 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
    }
    length = is_user ? snprintf(ret_path, size, "%s/%s", runtime, USER_SOCKET)
                     : snprintf(ret_path, size, "%s", SYSTEM_SOCKET);
    if (length < 0 || (size_t)length >= size) {
        return -ENAMETOOLONG;
    }
    char *slash = strrchr(ret_path, '/');
    *slash = '\0';
    int r = mkdir(ret_path, is_user ? 0700 : 0755) < 0 && errno != EEXIST ? -errno : 0;
    *slash = '/';
    return r;
}

int listener_open(struct server *server, const struct config *config, struct failure *ret_failure)
{
    struct listener *listener = &server->listener;
    char path[4096];
    mode_t mode;

    listener->fd = -1;
    listener->lock_fd = -1;
    int passed = config->socket_path == NULL ? activated_fd() : -1;
    if (passed >= 0) {
        listener->fd = passed;
        fcntl(passed, F_SETFL, fcntl(passed, F_GETFL) | O_NONBLOCK);
    } else {
        int r = choose_path(config, path, sizeof(path), &mode);
        if (r < 0) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "socket", "--socket: %s", strerror(-r));
        }
        int fd = channel_listen(path, mode, &listener->lock_fd, ret_failure);
        if (fd < 0) {
            return fd;
        }
        listener->fd = fd;
        snprintf(listener->path, sizeof(listener->path), "%.*s", (int)sizeof(listener->path) - 1,
                 path);
    }
    int r = channel_refuse_fds(listener->fd) < 0 ? linger_start() : 0;
    if (r < 0) {
        return fail(ret_failure, STATUS_INTERNAL, "socket", "no timer: %s", strerror(-r));
    }
    if (uv_poll_init(&server->loop, &listener->poll, listener->fd) < 0) {
        return fail(ret_failure, STATUS_INTERNAL, "socket", "cannot watch the socket");
    }
    uv_timer_init(&server->loop, &listener->pause);
    listener->poll.data = server;
    listener->pause.data = server;
    listener->is_open = true;
    return 0;
}

static void on_pause_over(uv_timer_t *timer)
{
    listener_start(timer->data);
}

/* Out of descriptors or memory: the waiting client would wake the loop again and again. */
static void pause_accepting(struct server *server, const char *reason)
{
    struct listener *listener = &server->listener;
    uint64_t now = now_ns();

    if (listener->warned_ns == 0 || now - listener->warned_ns > WARN_NS) {
        listener->warned_ns = now;
        log_warning("not accepting connections until some are closed: %s", reason);
    }
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->pause, on_pause_over, PAUSE_MS, 0);
}

/* One too many is told why: as the answer to request 0, which it has not read or not sent yet. */
static void refuse(const struct server *server, int fd, bool is_user_full)
{
    struct failure failure;
    msgpack_sbuffer buffer;
    msgpack_packer packer;

    if (is_user_full) {
        fail(&failure, STATUS_QUOTA, NULL,
             "%d connections of this user are open, at most %d: close some, or try again later",
             LIMIT_USER_SESSIONS, LIMIT_USER_SESSIONS);
    } else {
        fail(&failure, STATUS_BUSY, NULL,
             "%u connections are open, at most %d, all users together: try again later",
             server->n_sessions, LIMIT_SESSIONS);
    }
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    rpc_pack_error(&packer, 0, &failure, false);
    (void)send(fd, buffer.data, buffer.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    msgpack_sbuffer_destroy(&buffer);
}

static void welcome(struct server *server, int fd)
{
    int r = server->n_sessions < LIMIT_SESSIONS ? session_create(server, fd) : -EUSERS;

    if (r == -EUSERS || r == -EDQUOT) {
        log_debug("a connection was refused: %u are open%s", server->n_sessions,
                  r == -EDQUOT ? ", too many of them its user's" : "");
        server->stats.sessions_refused++;
        refuse(server, fd, r == -EDQUOT);
    }
    if (r < 0) {
        linger_begin();
        close(fd);
        linger_end();
    }
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct server *server = poll->data;

    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(server->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                pause_accepting(server, strerror(errno));
            }
            return;
        }
        welcome(server, fd);
    }
}

void listener_start(struct server *server)
{
    uv_poll_start(&server->listener.poll, UV_READABLE, on_connection);
}

void listener_close(struct server *server)
{
    struct listener *listener = &server->listener;

    if (!listener->is_open) {
        return;
    }
    uv_poll_stop(&listener->poll);
    if (listener->path[0] != '\0') {
        unlink(listener->path); /* the lock's file stays: removing it would let two hold one */
    }
    linger_begin();
    close_fd(&listener->fd);
    linger_end();
    close_fd(&listener->lock_fd);
}
