/*
 * Session, private: one connection, as session.c and session_incoming.c share it.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/memo.h"
#include "daemon/session.h"

#include <uv.h>

enum session_state { SESSION_OPEN, SESSION_BROKEN, SESSION_CLOSING };

struct session {
    struct server *server;
    struct session_links links;
    enum session_state state;
    uint64_t number; /* of no other, ever */
    int fd;
    struct user *user;
    uv_poll_t poll;
    int polled; /* the events asked for now; -1 = not started */
    struct reader *reader;
    struct writer *writer;
    enum priority priority; /* the highest of what waits there */
    bool wants_structured;
    uint32_t events;      /* set of the kinds that it subscribed to */
    uint64_t events_lost; /* since the last that it was told */
    bool is_socket_full;
    bool is_held_up;       /* descriptors wait, for others to take theirs */
    uint32_t n_fds_unread; /* see session_n_fds_unread() */
    bool is_paused;        /* the reader stopped with bytes in hand that nothing will announce */
    struct incoming incoming;
    struct memo memo; /* of the last run */

    uint64_t received; /* reader_received() and writer_sent() when they last moved */
    uint64_t sent;
    uint64_t sent_ns; /* when that was */

    /* What half a message's time is measured from: its begin, or when it last got on. */
    bool is_within;         /* half a message */
    bool has_ended_message; /* since the last look */
    uint64_t progress;      /* reader_received() then */
    uint64_t progress_ns;
};

/* session.c */

/* Do its answers that wait leave room for more? */
bool session_is_read(const struct session *session);
/* Its jobs answer nobody from here on, only they keep its constants, and its rings are closed. */
void session_orphan_jobs(struct session *session);

/* session_incoming.c */

/* What the reader calls; the owner is the session. */
extern const struct reader_callbacks session_callbacks;
/* Whatever the message under way holds is given back. */
void session_drop_incoming(struct session *session);
