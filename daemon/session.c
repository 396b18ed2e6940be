/*
 * Session: its life, its clocks, bytes in and answers out.  See session.h for the states, and
 * session_incoming.c for the messages.
 *
 * A session is freed in libuv's close callback only: until then reader, writer and descriptor stay
 * valid whatever a callback did to it.
 */
#include "daemon/session.h"

#include "daemon/answer.h"
#include "daemon/constant.h"
#include "daemon/linger.h"
#include "daemon/log.h"
#include "daemon/memo.h"
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/session_private.h"
#include "daemon/user.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* A constant's bytes are hashed as well, which takes at least so much longer than receiving them.
 */
#define HASHING_FACTOR 4
/* Fewer, larger wake-ups on both sides; the system may grant less.  Not tuned. */
#define SOCKET_BUFFER (1 << 20)

static void update_poll(struct session *session);

bool session_is_read(const struct session *session)
{
    return writer_memory(session->writer) < LIMIT_UNREAD;
}

static bool may_read(const struct session *session)
{
    return session->state == SESSION_OPEN && !session->links.is_waiting && session_is_read(session);
}

/* ---- reading and writing -------------------------------------------------------------------- */

/* Did the client leave something in its socket that was sent? */
static bool has_unread(const struct session *session)
{
    int n = 0;

    return ioctl(session->fd, SIOCOUTQ, &n) == 0 && n > 0;
}

/* Whoever has taken all bytes that were sent has their descriptors, too. */
static void note_reading(struct session *session)
{
    if (session->n_fds_unread > 0 && writer_is_empty(session->writer) && !has_unread(session)) {
        session->n_fds_unread = 0;
    }
}

/* The end of a message, or a good deal of it, buys more time. */
static void note_progress(struct session *session)
{
    uint64_t received = reader_received(session->reader);

    session->server->stats.bytes_in += received - session->received;
    session->received = received;
    note_reading(session);
    if (!session->is_within || session->has_ended_message ||
        received - session->progress >= LIMIT_HALF_MESSAGE_LEAST) {
        session->progress = received;
        session->progress_ns = now_ns();
    }
    session->is_within = reader_is_within(session->reader);
    session->has_ended_message = false;
}

static size_t read_budget(const struct session *session)
{
    size_t budget = server_read_budget(session->server);

    return session->incoming.constant != NULL ? budget / HASHING_FACTOR : budget;
}

static void hash_constant(struct session *session)
{
    struct constant *constant = session->incoming.constant;

    if (constant != NULL) {
        constant_hash(constant, constant->size - (uint32_t)reader_payload_left(session->reader));
    }
}

static void after_read(struct session *session, int outcome)
{
    note_progress(session);
    hash_constant(session);
    session->is_paused = outcome == READER_PAUSED;
    if (session_is_timed(session)) {
        server_need_tick(session->server);
    }
    switch (outcome) {
    case READER_BUDGET:
    case READER_PAUSED:
        server_mark_again(session->server, session);
        break;
    case READER_IDLE:
    case READER_BLOCKED:
    case READER_STOPPED:
        break;
    case READER_EOF:
    default:
        session_flush(session); /* what is answered already may still be read */
        session_close(session);
        return;
    }
    update_poll(session);
}

static void read_some(struct session *session)
{
    session->server->n_readers++;
    after_read(session, reader_read(session->reader, session->fd, read_budget(session)));
}

void session_read_again(struct session *session)
{
    if (may_read(session)) {
        read_some(session);
    } else {
        update_poll(session);
    }
}

void session_resume(struct session *session)
{
    int outcome = reader_resume(session->reader);

    if (outcome != READER_BLOCKED) {
        server_unmark_waiting(session->server, session);
        after_read(session, outcome == READER_IDLE ? READER_BUDGET : outcome);
    }
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct session *session = poll->data;
    struct server *server = session->server;

    if (status < 0 || ((events & UV_DISCONNECT) && !(session->polled & UV_READABLE))) {
        session_close(session);
    } else if (events & UV_WRITABLE) {
        server_mark_dirty(server, session, session->priority);
        server_turn(server);
    }
    if ((events & (UV_READABLE | UV_DISCONNECT)) && may_read(session)) {
        read_some(session);
    }
    server_turn(server);
}

/* Ask libuv for what is wanted now.  A paused session still hears that its client is gone. */
static void update_poll(struct session *session)
{
    int wanted = 0;

    if (session->state == SESSION_CLOSING) {
        return;
    }
    if (!session->links.is_again) {
        wanted = may_read(session) ? UV_READABLE : UV_DISCONNECT;
    }
    if (session->is_socket_full) {
        wanted |= UV_WRITABLE;
    }
    if (wanted == session->polled) {
        return;
    }
    session->polled = wanted;
    if (wanted == 0) {
        uv_poll_stop(&session->poll);
    } else {
        uv_poll_start(&session->poll, wanted, on_event);
    }
}

void session_flush(struct session *session)
{
    if (session->state == SESSION_CLOSING) {
        return;
    }
    int r = writer_send(session->writer, session->fd, server_write_budget(session->server));
    uint64_t sent = writer_sent(session->writer);

    session->server->stats.bytes_out += sent - session->sent;
    if (sent != session->sent || r == 1) {
        session->sent = sent;
        session->sent_ns = now_ns();
    }
    session->is_held_up = r == -ETOOMANYREFS;
    if ((r < 0 && !session->is_held_up) || (r == 1 && session->state == SESSION_BROKEN)) {
        session_close(session);
        return;
    }
    if (session->is_held_up && !has_unread(session)) {
        session->sent_ns = now_ns(); /* others do not read */
    }
    session->is_socket_full = r == 0;
    if (session->is_paused && may_read(session)) {
        server_mark_again(session->server, session);
    }
    if (session_is_timed(session)) {
        server_need_tick(session->server);
    }
    update_poll(session);
}

void session_queue(struct session *session, struct writer_message *message, enum priority priority)
{
    if (writer_is_empty(session->writer)) {
        session->sent_ns = now_ns();
        session->priority = priority;
    }
    session->priority = MIN(session->priority, priority);
    writer_queue(session->writer, message);
    server_mark_dirty(session->server, session, session->priority);
}

void session_queue_with_fds(struct session *session, struct writer_message *message)
{
    session->n_fds_unread++;
    session_queue(session, message, PRIORITY_NORMAL);
}

uint32_t session_n_fds_unread(struct session *session)
{
    note_reading(session);
    return session->n_fds_unread;
}

void session_queue_head(struct session *session, const msgpack_sbuffer *head,
                        enum priority priority)
{
    struct writer_message *message;

    if (writer_begin(&message, NULL, NULL) < 0) {
        session_break(session, "out of memory for an answer");
        return;
    }
    if (writer_add_copy(message, head->data, head->size) < 0) {
        writer_abandon(message);
        session_break(session, "out of memory for an answer");
        return;
    }
    session_queue(session, message, priority);
}

void session_subscribe(struct session *session, const struct msg_subscribe *subscribe)
{
    session->events = 0;
    for (uint32_t i = 0; i < subscribe->n_kinds; i++) {
        session->events |= 1u << subscribe->kinds[i];
    }
}

void session_queue_event(struct session *session, const struct msg_event *event)
{
    struct msg_event told = *event;
    struct answer answer;

    if (session->state != SESSION_OPEN || !(session->events & 1u << event->kind)) {
        return;
    }
    if (!session_is_read(session)) {
        session->events_lost++;
        session->server->stats.events_lost++;
        return;
    }
    told.lost = session->events_lost;
    session->events_lost = 0;
    codec_pack_event(answer_begin(&answer), &told);
    answer_send(&answer, session);
}

void session_queue_error(struct session *session, uint32_t msgid, const struct failure *failure)
{
    struct answer answer;

    session->server->stats.errors_total++;
    log_debug("session of uid %u: %s: %s", (unsigned)session->user->uid,
              status_name(failure->status), failure->message);
    rpc_pack_error(answer_begin(&answer), msgid, failure, session->wants_structured);
    answer_send(&answer, session);
}

/* ---- time limits ---------------------------------------------------------------------------- */

bool session_is_timed(const struct session *session)
{
    return session->state != SESSION_CLOSING &&
           (reader_is_within(session->reader) || !writer_is_empty(session->writer));
}

void session_check_time(struct session *session, uint64_t now)
{
    const uint64_t ms = 1000000;

    if (session->is_held_up) {
        /* At the end of the turn: a flush here would be later than this now. */
        server_mark_dirty(session->server, session, session->priority);
    }
    if (!writer_is_empty(session->writer) && now - session->sent_ns > LIMIT_SLOW_READER * ms) {
        session->server->stats.sessions_broken++;
        log_debug("session of uid %u ended: it does not read its answers",
                  (unsigned)session->user->uid);
        session_close(session);
        return;
    }
    if (!may_read(session)) {
        session->progress = session->received; /* the pause is ours */
        session->progress_ns = now;
    } else if (session->is_within && now - session->progress_ns > LIMIT_HALF_MESSAGE * ms) {
        /* At once, whatever it has not read: what it holds of the pool is others' by now. */
        session->server->stats.sessions_broken++;
        log_debug("session of uid %u ended: half a message, then next to nothing",
                  (unsigned)session->user->uid);
        session_close(session);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

void session_orphan_jobs(struct session *session)
{
    struct job *next;

    session_drop_incoming(session);
    for (struct job *job = session->server->jobs; job != NULL; job = next) {
        next = job->next;
        if (job->session == session) {
            job_orphan(job);
        }
    }
    constant_drop_all(session);
    ring_link_orphan_all(session);
}

void session_drop_memo(struct session *session)
{
    memo_drop(&session->memo);
}

static void session_free(struct session *session)
{
    writer_destroy(session->writer);
    reader_destroy(session->reader);
    linger_begin();
    close_fd(&session->fd);
    linger_end();
    if (session->user != NULL) {
        user_leave(&session->server->users, session->user);
    }
    free(session);
}

int session_create(struct server *server, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof(peer);
    int buffer = SOCKET_BUFFER;
    struct session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return -ENOMEM;
    }
    session->server = server;
    session->fd = -1;
    session->polled = -1;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    int r = user_join(&server->users, peer.uid, &session->user);
    if (r == 0) {
        r = reader_create(&session->reader, GUARD_SERVER, &session_callbacks, session);
    }
    if (r == 0) {
        r = writer_create(&session->writer);
    }
    if (r == 0) {
        writer_send_by(session->writer, server_send, server);
    }
    if (r == 0) {
        r = uv_poll_init(&server->loop, &session->poll, fd);
    }
    if (r < 0) {
        session_free(session);
        return r;
    }
    session->fd = fd;
    session->poll.data = session;
    session->links.next = server->sessions;
    if (server->sessions != NULL) {
        session_links(server->sessions)->previous = session;
    }
    server->sessions = session;
    server->n_sessions++;
    session->number = ++server->stats.sessions_total;
    update_poll(session);
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    session_free(handle->data);
}

void session_close(struct session *session)
{
    if (session->state == SESSION_CLOSING) {
        return;
    }
    session->state = SESSION_CLOSING;
    session_orphan_jobs(session);
    session_drop_memo(session);
    ring_pool_forget(session->server->ring_pool, session->number);
    server_forget_session(session->server, session);
    uv_close((uv_handle_t *)&session->poll, on_closed);
}

void session_break(struct session *session, const char *reason)
{
    if (session->state != SESSION_OPEN) {
        return;
    }
    session->state = SESSION_BROKEN;
    session->server->stats.sessions_broken++;
    log_debug("session of uid %u ended: %s", (unsigned)session->user->uid, reason);
    server_mark_dirty(session->server, session, PRIORITY_NORMAL); /* the flush closes it */
}

/* ---- small accessors ------------------------------------------------------------------------ */

struct server *session_server(const struct session *session)
{
    return session->server;
}

struct incoming *session_incoming(struct session *session)
{
    return &session->incoming;
}

struct user *session_user(const struct session *session)
{
    return session->user;
}

uid_t session_uid(const struct session *session)
{
    return session->user->uid;
}

int session_fd(const struct session *session)
{
    return session->fd;
}

bool session_has_hung_up(const struct session *session)
{
    struct pollfd peer = {.fd = session->fd, .events = POLLRDHUP};

    return poll(&peer, 1, 0) > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

uint64_t session_number(const struct session *session)
{
    return session->number;
}

bool session_wants_structured(const struct session *session)
{
    return session->wants_structured;
}

void session_set_structured(struct session *session, bool wants_structured)
{
    session->wants_structured = wants_structured;
}

struct session_links *session_links(struct session *session)
{
    return &session->links;
}
