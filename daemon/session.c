/*
 * Session: bytes in, messages to handlers, answers out.  See session.h for the states.
 *
 * A session is freed in libuv's close callback only: until then reader, writer and descriptor stay
 * valid whatever a callback did to it.
 */
#include "daemon/session.h"

#include "daemon/answer.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "daemon/memo.h"
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "daemon/user.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define WRITE_BUDGET (256u << 10)
/* Fewer, larger wake-ups on both sides; the system may grant less.  Not tuned. */
#define SOCKET_BUFFER (1 << 20)

enum session_state { SESSION_OPEN, SESSION_BROKEN, SESSION_CLOSING };

struct session {
    struct server *server;
    struct session_links links;
    enum session_state state;
    int fd;
    struct user *user;
    uv_poll_t poll;
    int polled; /* the events asked for now; -1 = not started */
    struct reader *reader;
    struct writer *writer;
    bool wants_structured;
    uint32_t events;      /* set of the kinds that it subscribed to */
    uint64_t events_lost; /* since the last that it was told */
    bool is_socket_full;
    bool is_held_up; /* descriptors wait, for others to take theirs */
    bool is_paused;  /* the reader stopped with bytes in hand that nothing will announce */
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

static void update_poll(struct session *session);

static bool is_read_by_client(const struct session *session)
{
    return writer_memory(session->writer) < LIMIT_UNREAD;
}

static bool may_read(const struct session *session)
{
    return session->state == SESSION_OPEN && !session->links.is_waiting &&
           is_read_by_client(session);
}

/* ---- incoming messages ---------------------------------------------------------------------- */

/* Whatever the message under way holds is given back. */
static void drop_incoming(struct session *session)
{
    struct incoming *incoming = &session->incoming;
    struct job *job = incoming->job;

    constant_unref(incoming->constant);
    if (incoming->push != NULL && incoming->push->state == PUSH_FILLING) {
        incoming->push->state = PUSH_FREE;
    }
    memset(incoming, 0, sizeof(*incoming));
    if (job != NULL && job->id == 0) {
        job_destroy(job); /* a run that was not accepted */
    }
}

static void refuse(struct session *session, const struct failure *failure)
{
    drop_incoming(session);
    session->incoming.is_refused = true;
    session->incoming.failure = *failure;
}

/* Its jobs answer nobody from here on, and only they keep its constants. */
static void orphan_jobs(struct session *session)
{
    struct job *next;

    drop_incoming(session);
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

void session_forget_job(struct session *session, const struct job *job)
{
    struct failure failure;

    if (session->incoming.job != job) {
        return;
    }
    session->incoming.job = NULL;
    session->incoming.push = NULL;
    if (job->id != 0) {
        fail(&failure, STATUS_NOT_FOUND, "job", "the job ended while this push arrived");
    } else if (job->state == JOB_EXPIRED) {
        failure = job->failure;
    } else {
        fail(&failure, STATUS_CANCELLED, NULL, "the run was cancelled while it arrived");
    }
    refuse(session, &failure);
    reader_drain_payload(session->reader);
    if (session->links.is_waiting) { /* no room is needed any more */
        server_unmark_waiting(session->server, session);
        session->is_paused = true; /* if it may not be read now, then once its answers have left */
        server_mark_again(session->server, session);
    }
}

/* Other notifications, and responses, are ignored: Neovim answers our notifications. */
static bool is_call(const struct guard *guard)
{
    return guard->type == RPC_REQUEST ||
           (guard->type == RPC_NOTIFICATION && guard->method != METHOD_COUNT &&
            handler_for(guard->method)->on_refused != NULL);
}

static int check_state(const struct session *session, const struct handler *handler,
                       struct failure *ret_failure)
{
    if (handler->is_new_work && session->server->state >= SERVER_DRAINING) {
        return fail(ret_failure, STATUS_BUSY, NULL, "draining: the daemon is stopping");
    }
    return 0;
}

/* Read what there is of the message; as handler.begin. */
static int begin_reading(struct session *session, const struct handler *handler,
                         const uint8_t *prefix, size_t size, struct failure *ret_failure)
{
    struct rpc_message message;
    int r = rpc_parse(prefix, size, &message, ret_failure);

    if (r < 0) {
        return r;
    }
    r = handler->begin(session, &message, ret_failure);
    rpc_finish(&message);
    return r;
}

static void remember(struct session *session, const struct words *words)
{
    const struct job *job = session->incoming.job;

    if (job->deadline_at_ns == 0) {
        memo_keep(&session->memo, words, job->prepared, session->incoming.n_data);
    }
}

/* The first payload's header is here: is the message welcome?  As handler.begin. */
static int begin_payloads(struct session *session, const struct guard *guard, const uint8_t *prefix,
                          size_t size, struct failure *ret_failure)
{
    const struct handler *handler = handler_for(guard->method);
    const struct words words = {prefix + guard->msgid_end, guard->pos - guard->msgid_end};
    int r = check_state(session, handler, ret_failure);

    if (r < 0) {
        return r;
    }
    session->incoming.msgid = guard->msgid;
    session->incoming.is_request = guard->type == RPC_REQUEST;
    if (handler->begin_again != NULL && memo_has(&session->memo, &words)) {
        return handler->begin_again(session, &session->memo, ret_failure);
    }
    r = begin_reading(session, handler, prefix, size, ret_failure);
    if (r == 0 && handler->begin_again != NULL) {
        remember(session, &words);
    }
    return r;
}

static int on_payload(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink)
{
    struct session *session = owner;
    struct incoming *incoming = &session->incoming;
    struct failure failure;
    int r = 0;

    if (incoming->is_refused || !is_call(guard)) {
        return -EPROTO;
    }
    if (incoming->arrived_ns == 0) {
        incoming->arrived_ns = now_ns();
    }
    if (guard->payload_index == 0) {
        incoming->first_size = guard->payload_size;
    }
    if (!incoming->is_begun) {
        r = begin_payloads(session, guard, prefix, size, &failure);
        if (r == JOB_NO_ROOM) {
            server_mark_waiting(session->server, session);
            return -EAGAIN;
        }
    }
    if (r == 0) {
        incoming->is_begun = true;
        incoming->n_payloads++;
        r = handler_for(guard->method)
                ->sink(session, guard->payload_index, guard->payload_size, ret_sink, &failure);
    }
    if (r < 0) {
        refuse(session, &failure);
        return -EPROTO;
    }
    return 0;
}

static void on_stray(void *owner, const struct guard *guard)
{
    struct session *session = owner;
    struct failure failure;

    (void)guard;
    if (!session->incoming.is_refused) {
        fail(&failure, STATUS_INVALID_PARAM, NULL, "a bin where no payload belongs");
        refuse(session, &failure);
    }
}

static int read_call(struct session *session, const struct guard *guard, const uint8_t *head,
                     size_t size, struct failure *ret_failure)
{
    struct rpc_message message;
    int r = rpc_parse(head, size, &message, ret_failure);

    if (r < 0) {
        return r;
    }
    if (guard->method == METHOD_COUNT) {
        r = fail(ret_failure, STATUS_UNKNOWN_METHOD, NULL, "there is no method \"%.*s\"",
                 (int)MIN(message.name.via.str.size, 64u), message.name.via.str.ptr);
    } else {
        r = check_state(session, handler_for(guard->method), ret_failure);
    }
    if (r == 0) {
        r = handler_for(guard->method)->handle(session, &message, ret_failure);
    }
    rpc_finish(&message);
    return r;
}

static int handle_call(struct session *session, const struct guard *guard, const uint8_t *head,
                       size_t size, struct failure *ret_failure)
{
    const struct incoming *incoming = &session->incoming;

    if (incoming->is_refused) {
        *ret_failure = incoming->failure;
        return -(int)ret_failure->status;
    }
    if (!incoming->is_begun || incoming->n_payloads != incoming->n_data) {
        return read_call(session, guard, head, size, ret_failure);
    }
    int r = check_state(session, handler_for(guard->method), ret_failure);
    return r < 0 ? r : handler_for(guard->method)->end(session, ret_failure);
}

static void refuse_notification(struct session *session, const struct guard *guard,
                                const uint8_t *head, size_t size, const struct failure *failure)
{
    struct rpc_message message;
    struct failure ignored;

    if (rpc_parse(head, size, &message, &ignored) == 0) {
        handler_for(guard->method)->on_refused(session, &message, failure);
        rpc_finish(&message);
    }
}

static int on_message(void *owner, const struct guard *guard, const uint8_t *head, size_t size)
{
    struct session *session = owner;
    struct failure failure;
    int r = is_call(guard) ? handle_call(session, guard, head, size, &failure) : 0;

    drop_incoming(session);
    if (r < 0 && guard->type == RPC_REQUEST) {
        session_queue_error(session, guard->msgid, &failure);
    } else if (r < 0) {
        refuse_notification(session, guard, head, size, &failure);
    }
    session->has_ended_message = true;
    if (session->state != SESSION_OPEN) {
        return -ECANCELED;
    }
    return is_read_by_client(session) ? 0 : 1;
}

static void on_broken(void *owner, const struct guard *guard, const struct failure *failure)
{
    struct session *session = owner;

    if (guard->has_msgid) {
        session_queue_error(session, guard->msgid, failure);
    }
    session_break(session, failure->message);
    orphan_jobs(session);
}

static const struct reader_callbacks callbacks = {
    .on_payload = on_payload,
    .on_stray = on_stray,
    .on_message = on_message,
    .on_broken = on_broken,
};

/* ---- reading and writing -------------------------------------------------------------------- */

/* The end of a message, or a good deal of it, buys more time. */
static void note_progress(struct session *session)
{
    uint64_t received = reader_received(session->reader);

    session->server->stats.bytes_in += received - session->received;
    session->received = received;
    if (!session->is_within || session->has_ended_message ||
        received - session->progress >= LIMIT_HALF_MESSAGE_LEAST) {
        session->progress = received;
        session->progress_ns = now_ns();
    }
    session->is_within = reader_is_within(session->reader);
    session->has_ended_message = false;
}

static void after_read(struct session *session, int outcome)
{
    note_progress(session);
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
    after_read(session,
               reader_read(session->reader, session->fd, server_read_budget(session->server)));
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
    } else {
        if (events & UV_WRITABLE) {
            session_flush(session);
        }
        if ((events & (UV_READABLE | UV_DISCONNECT)) && may_read(session)) {
            read_some(session);
        }
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

/* Did the client leave something in its socket that was sent? */
static bool has_unread(const struct session *session)
{
    int n = 0;

    return ioctl(session->fd, SIOCOUTQ, &n) == 0 && n > 0;
}

void session_flush(struct session *session)
{
    if (session->state == SESSION_CLOSING) {
        return;
    }
    int r = writer_send(session->writer, session->fd, WRITE_BUDGET);
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

void session_queue(struct session *session, struct writer_message *message)
{
    if (writer_is_empty(session->writer)) {
        session->sent_ns = now_ns();
    }
    writer_queue(session->writer, message);
    server_mark_dirty(session->server, session);
}

void session_queue_head(struct session *session, const msgpack_sbuffer *head)
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
    session_queue(session, message);
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
    if (!is_read_by_client(session)) {
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
        server_mark_dirty(session->server, session);
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

static void session_free(struct session *session)
{
    writer_destroy(session->writer);
    reader_destroy(session->reader);
    close_fd(&session->fd);
    if (session->user != NULL && session->user->n_sessions == 1) {
        ring_pool_forget_user(session->server->ring_pool, session->user->uid);
    }
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
        r = reader_create(&session->reader, GUARD_SERVER, &callbacks, session);
    }
    if (r == 0) {
        r = writer_create(&session->writer);
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
    server->stats.sessions_total++;
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
    orphan_jobs(session);
    session_drop_memo(session);
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
    server_mark_dirty(session->server, session); /* the flush closes it */
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
