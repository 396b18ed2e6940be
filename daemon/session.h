/*
 * Session: one client connection.
 *
 *     OPEN     reads messages, bounded bytes a turn
 *     BROKEN   the stream is out of step or a limit was broken: what waits is sent, nothing is read
 *     CLOSING  its descriptor is closed as soon as libuv lets go
 *
 * Reading pauses while the pool has no room for a run, and while answers that wait take more memory
 * than LIMIT_UNREAD: a client that does not read is not read from.  Their outputs lie in the pool,
 * charged to its user.
 *
 * An answer whose descriptors may not leave yet is tried again at every tick.  A client that has
 * read all that was sent is not to blame for it and has all the time.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/job.h"
#include "proto/reader.h"
#include "proto/rpc.h"
#include "proto/writer.h"

#include <sys/types.h>

struct server;
struct session;
struct user;

/* A message whose payloads are being received: what the handlers keep between its payloads. */
struct incoming {
    bool is_begun;   /* its first payload's header was handled */
    bool is_refused; /* failure says why; the rest is drained and the message answered with it */
    struct failure failure;
    struct job *job;
    struct push *push;
    struct constant *constant; /* that is being received */
    uint32_t msgid;
    bool is_request;     /* else a notification, which has no answer */
    uint32_t n_data;     /* elements of the payload array ... */
    uint32_t n_payloads; /* ... and those that came as payloads so far */
    uint64_t first_size; /* bytes of payload 0 */
    uint64_t n_records;
};

/* Take over a freshly accepted descriptor.  0 or -errno (fd stays the caller's); -EDQUOT: its user
 * has too many. */
int session_create(struct server *server, int fd);
/* The connection is over: jobs are orphaned, memory goes when libuv lets go. */
void session_close(struct session *session);
/* Something the client cannot be spared: send what waits, then close. */
void session_break(struct session *session, const char *reason);

struct server *session_server(const struct session *session);
struct incoming *session_incoming(struct session *session);
struct user *session_user(const struct session *session);
uid_t session_uid(const struct session *session);
/* Its socket. */
int session_fd(const struct session *session);
/* Has the client closed its end of it, as far as the kernel knows? */
bool session_has_hung_up(const struct session *session);
/* Of no other, ever. */
uint64_t session_number(const struct session *session);
bool session_wants_structured(const struct session *session);
void session_set_structured(struct session *session, bool wants_structured);

/*
 * Queue a message; it leaves at the end of this turn, after other sessions' of a higher priority.
 * Until the session has nothing left to send all goes as the highest: one connection's messages
 * keep their order.  What is no job's is normal: who asks does not wait for bulk's megabytes, and
 * goes before nobody's urgent results.
 */
void session_queue(struct session *session, struct writer_message *message, enum priority priority);
/* The same for one with descriptors. */
void session_queue_with_fds(struct session *session, struct writer_message *message);
/* Such messages since the client was last seen to have read everything. */
uint32_t session_n_fds_unread(struct session *session);
/* Queue a message that is all head. */
void session_queue_head(struct session *session, const msgpack_sbuffer *head,
                        enum priority priority);
/* Tell of an event, if the client subscribed to its kind and reads what it gets. */
void session_queue_event(struct session *session, const struct msg_event *event);
/* From now on, events of these kinds. */
void session_subscribe(struct session *session, const struct msg_subscribe *subscribe);
/* Answer a request with an error. */
void session_queue_error(struct session *session, uint32_t msgid, const struct failure *failure);

/* Forget the run before. */
void session_drop_memo(struct session *session);
/* The job is about to be destroyed: forget a push that is being received for it. */
void session_forget_job(struct session *session, const struct job *job);

/* ---- for the server ------------------------------------------------------------------------- */

/* Send what waits. */
void session_flush(struct session *session);
/* Go on with a read that stopped at its budget. */
void session_read_again(struct session *session);
/* The pool may have room for the run it waits with. */
void session_resume(struct session *session);
/* Has it broken a time limit by now?  Closes it then. */
void session_check_time(struct session *session, uint64_t now);
/* Is one of its clocks running: half a message, unread answers? */
bool session_is_timed(const struct session *session);

/* The server's lists. */
struct session_links {
    struct session *next, *previous;             /* all sessions */
    struct session *next_again;                  /* with something left to read */
    struct session *next_waiting;                /* with a run that waits for room in the pool */
    struct session *next_dirty, *previous_dirty; /* with something to send ... */
    enum priority dirty_as;                      /* ... of this priority */
    bool is_dirty, is_again, is_waiting;
};
struct session_links *session_links(struct session *session);
