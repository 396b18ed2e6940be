/*
 * Ring link: rings' lives from when they are open, their doorbells, and taking descriptors.
 */
#include "daemon/ring_link_private.h"

#include "daemon/answer.h"
#include "daemon/job.h"
#include "daemon/linger.h"
#include "daemon/log.h"
#include "daemon/ring_leftover.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/util.h"

#include <assert.h>
#include <sys/socket.h>

#define RING_BUDGET 64 /* descriptors of one ring in one turn, so that others have theirs */

/* A doorbell that rang so often in a row with nothing to take is heard only now and then, until
 * there is something, and of what it has so much is read then: to keep up with one that rings on
 * and on cost 0.3 s of CPU time for each million.  When it has stopped, all is read in the end, and
 * nobody looks any more.  None is tuned; honest clients ring for nothing once in a while. */
#define RING_IDLE_WAKES  64
#define RING_QUIET_MS    5
#define RING_QUIET_RINGS 8

/* ---- lives ---------------------------------------------------------------------------------- */

static void forget_awake(struct ring_link *link)
{
    for (struct ring_link **at = &link->server->rings_awake; link->is_awake && *at != NULL;
         at = &(*at)->next_awake) {
        if (*at == link) {
            *at = link->next_awake;
            break;
        }
    }
    link->is_awake = false;
}

void ring_link_unlink(struct ring_link *link)
{
    struct server *server = link->server;

    if (link->previous != NULL) {
        link->previous->next = link->next;
    } else {
        server->rings = link->next;
    }
    if (link->next != NULL) {
        link->next->previous = link->previous;
    }
}

static void free_link(struct ring_link *link)
{
    linger_begin();
    close_fd(&link->doorbell_fd);
    linger_end();
    if (link->queues != NULL && link->server->state < SERVER_DRAINING) {
        ring_clear(link->queues); /* its connection is gone; but what a drain completed stays */
    }
    ring_destroy(link->queues);
    close_fd(&link->client_fd);
    free(link);
}

static void on_closed(uv_handle_t *handle)
{
    struct ring_link *link = handle->data;

    link->n_handles--;
    if (link->n_handles == 0) {
        free_link(link);
    }
}

/* Nobody knows of it any more. */
void ring_link_dispose(struct ring_link *link)
{
    if (link->n_handles > 0) {
        uv_close((uv_handle_t *)&link->doorbell_poll, on_closed);
        uv_close((uv_handle_t *)&link->quiet_timer, on_closed);
    } else {
        free_link(link);
    }
}

/* Show the client what was completed. */
static void publish(struct ring_link *link)
{
    if (link->has_unpublished) {
        link->has_unpublished = false;
        link->is_bell_due |= ring_publish(link->queues);
    }
}

/* Wake it, if it slept when something was published. */
static void ring_bell(struct ring_link *link)
{
    if (link->is_bell_due) {
        link->is_bell_due = false;
        channel_ring(link->doorbell_fd);
    }
}

/* At most max rings; true: the client has closed it. */
static bool drain(const struct ring_link *link, uint32_t max)
{
    bool is_closed = false;

    linger_begin();
    channel_drain_some(link->doorbell_fd, max, &is_closed);
    linger_end();
    return is_closed;
}

/* Workers have the doorbell open as well: that it ends must not wait for them, and nothing that was
 * sent to it is theirs to drop. */
static void end_doorbell(struct ring_link *link)
{
    if (link->is_heard) {
        devices_unhear(&link->server->devices, link->id);
        shutdown(link->doorbell_fd, SHUT_RDWR);
        drain(link, CHANNEL_DRAIN_MAX);
    }
}

/* Nothing holds it any more; whoever asked for it is told. */
static void finish(struct ring_link *link)
{
    struct answer answer;

    publish(link);
    ring_bell(link);
    end_doorbell(link);
    if (link->session != NULL && link->has_close_msgid) {
        codec_pack_empty_result(answer_begin(&answer), link->close_msgid);
        answer_send(&answer, link->session);
    }
    ring_pool_release(link->server->ring_pool, link->data);
    if (link->session == NULL) {
        ring_pool_forget(link->server->ring_pool, link->connection);
    } else {
        ring_leftovers_add(&link->server->ring_leftovers, session_uid(link->session),
                           link->connection, STEAL(link->queues));
    }
    forget_awake(link);
    ring_link_unlink(link);
    ring_link_dispose(link);
}

void ring_link_end(struct ring_link *link)
{
    link->state = RING_LINK_CLOSING;
    if (link->n_holds == 0) {
        finish(link);
    }
}

/* What it has accepted fails, with the reason. */
static void fail_jobs(struct ring_link *link, const struct failure *failure)
{
    ring_link_hold(link); /* the jobs' answers let go of it one by one */
    job_fail_ring(link, failure);
    ring_link_let_go(link);
}

/* It is open: tell its client that it is no more. */
static void end_with(struct ring_link *link, const char *reason)
{
    struct msg_ring_closed closed = {.ring = link->id};
    struct answer answer;

    fail(&closed.failure, STATUS_RING, NULL, "ring %llu is closed: %s",
         (unsigned long long)link->id, reason);
    log_debug("%s", closed.failure.message);
    codec_pack_ring_closed(answer_begin(&answer), &closed, session_wants_structured(link->session));
    answer_send(&answer, link->session);
    link->state = RING_LINK_CLOSING;
    fail_jobs(link, &closed.failure);
}

/* Its answers can go nowhere. */
static void break_ring(struct ring_link *link, const char *reason)
{
    link->server->stats.rings_broken++;
    link->is_broken = true;
    end_with(link, reason);
}

/* A device cannot have its data any more: what it has accepted is answered so. */
void ring_link_spoil(struct ring_link *link, const struct failure *failure)
{
    log_warning("ring %llu: %s", (unsigned long long)link->id, failure->message);
    if (link->state == RING_LINK_OPEN) {
        end_with(link, failure->message);
    } else {
        fail_jobs(link, failure);
    }
}

void ring_link_hold(struct ring_link *link)
{
    link->n_holds++;
}

void ring_link_let_go(struct ring_link *link)
{
    assert(link->n_holds > 0);
    link->n_holds--;
    if (link->state == RING_LINK_CLOSING && link->n_holds == 0) {
        finish(link);
    }
}

void ring_link_close(struct ring_link *link, uint32_t msgid)
{
    link->has_close_msgid = true;
    link->close_msgid = msgid;
    ring_link_end(link);
}

void ring_link_orphan_all(struct session *session)
{
    struct ring_link *next;

    for (struct ring_link *link = session_server(session)->rings; link != NULL; link = next) {
        next = link->next;
        if (link->session == session) {
            link->session = NULL;
            ring_link_end(link);
        }
    }
    ring_leftovers_drop(&session_server(session)->ring_leftovers, session_number(session));
}

int ring_link_find(struct session *session, uint64_t id, const char *field,
                   struct ring_link **ret_link, struct failure *ret_failure)
{
    struct ring_link *link = session_server(session)->rings;

    while (link != NULL && link->id != id) {
        link = link->next;
    }
    if (link != NULL && link->session != NULL && link->session != session) {
        return fail(ret_failure, STATUS_NOT_YOURS, field, "ring %llu is another connection's",
                    (unsigned long long)id);
    }
    if (link == NULL || link->session == NULL || link->state != RING_LINK_OPEN) {
        return fail(ret_failure, STATUS_NOT_FOUND, field, "there is no ring %llu, or it is closed",
                    (unsigned long long)id);
    }
    *ret_link = link;
    return 0;
}

/* ---- taking descriptors --------------------------------------------------------------------- */

void ring_link_mark_awake(struct ring_link *link)
{
    if (!link->is_awake) {
        link->is_awake = true;
        link->next_awake = link->server->rings_awake;
        link->server->rings_awake = link;
    }
}

/* Have the completions of all that was taken room?  What the client reaps only makes more: it is
 * looked at again, in a line that the client writes, where the last look was not enough. */
static bool has_room(struct ring_link *link)
{
    int room;

    if (link->n_taken <= link->n_room) {
        return true;
    }
    room = ring_room(link->queues); /* after the take: who reaps before it submits has the room */
    if (room < 0) {
        break_ring(link, "its queues have indices that cannot be");
        return false;
    }
    link->n_room = (uint32_t)room;
    if (link->n_taken > link->n_room) {
        break_ring(link, "more descriptors are under way than its queues have entries; reap first");
        return false;
    }
    return true;
}

/* What it has, up to its budget.  The link may be closing afterwards, but is not gone. */
static void take(struct ring_link *link)
{
    struct ring_desc descs[RING_BUDGET];
    int n = ring_take(link->queues, descs, RING_BUDGET);

    if (n == 0) {
        return;
    }
    if (n < 0) {
        break_ring(link, "its queues have indices that cannot be");
        return;
    }
    link->n_taken += (uint32_t)n;
    link->n_idle_wakes = 0;
    if (has_room(link)) {
        job_take_descs(link, descs, (uint32_t)n);
    }
}

bool ring_link_may_keep_awake(const struct ring_link *link)
{
    return link->may_keep_awake && awake_has_cpus(&link->server->awake, link->server->devices.n);
}

void ring_link_let_hear(struct ring_link *link, struct worker_link *worker, bool is_quick)
{
    if (link->state == RING_LINK_OPEN && ring_link_may_keep_awake(link) &&
        worker_link_hear(worker, link->id, is_quick, link->doorbell_fd)) {
        link->is_heard = true;
    }
}

void ring_link_complete(struct ring_link *link, const struct ring_completion *completions,
                        uint32_t n)
{
    link->n_taken -= n;
    if (link->session == NULL || link->is_broken) {
        return;
    }
    ring_complete(link->queues, completions, n);
    link->n_room -= n;
    link->has_unpublished = true;
    ring_link_mark_awake(link);
    if (link->n_taken == 0) {
        publish(link); /* no more of it will come in this turn */
    }
}

void ring_links_poll(struct server *server)
{
    struct ring_link *next;

    for (struct ring_link *link = server->rings_awake; link != NULL; link = next) {
        next = link->next_awake;
        if (link->state == RING_LINK_OPEN) {
            ring_link_hold(link); /* while its jobs settle */
            take(link);
            next = link->next_awake;
            ring_link_let_go(link);
        }
    }
}

void ring_links_publish(struct server *server)
{
    for (struct ring_link *link = server->rings_awake; link != NULL; link = link->next_awake) {
        publish(link);
    }
}

bool ring_links_ring(struct server *server, uint32_t max)
{
    uint32_t n = 0;

    for (struct ring_link *link = server->rings_awake; link != NULL && n < max;
         link = link->next_awake) {
        n += link->is_bell_due;
        ring_bell(link);
    }
    return n > 0;
}

/* Before it sleeps, so that what it rings from then on wakes us up. */
static void read_doorbell(struct ring_link *link)
{
    if (link->rung_ns != 0) {
        link->rung_ns = 0;
        drain(link, CHANNEL_DRAIN_MAX); /* that it has ended is told again */
    }
}

bool ring_links_sleep(struct server *server)
{
    struct ring_link **at = &server->rings_awake;

    while (*at != NULL) {
        struct ring_link *link = *at;

        read_doorbell(link);
        if (link->state == RING_LINK_OPEN && !ring_sleep(link->queues)) {
            return false;
        }
        *at = link->next_awake;
        link->is_awake = false;
    }
    return true;
}

static void on_quiet_timer(uv_timer_t *timer)
{
    struct ring_link *link = timer->data;

    if (link->state == RING_LINK_OPEN) {
        ring_link_listen(link);
    }
}

/* It rings on and on for nothing: most of it stays where it is, until it gets no more in. */
static bool is_rung_for_nothing(const struct ring_link *link)
{
    return link->n_idle_wakes >= RING_IDLE_WAKES;
}

/* How much of what it rings is read now; 0: it is left for the workers that hear it. */
static uint32_t n_rings_to_read(struct ring_link *link)
{
    bool is_left = link->is_heard && link->rung_ns == 0 && !is_rung_for_nothing(link);

    link->rung_ns = is_left ? now_ns() : 0;
    return is_left ? 0 : is_rung_for_nothing(link) ? RING_QUIET_RINGS : CHANNEL_DRAIN_MAX;
}

static void on_doorbell(uv_poll_t *poll, int status, int events)
{
    struct ring_link *link = poll->data;
    bool has_ended = status < 0 || (events & UV_DISCONNECT) != 0, is_closed;

    if (!has_ended && link->rung_ns != 0 && now_ns() - link->rung_ns < WORK_BELL_NS) {
        return; /* the ring is awake since then */
    }
    is_closed = drain(link, has_ended ? CHANNEL_DRAIN_MAX : n_rings_to_read(link));
    if (is_closed || link->state != RING_LINK_OPEN) {
        uv_poll_stop(poll);
    }
    if (link->state != RING_LINK_OPEN) {
        return;
    }
    if (is_closed) {
        /* With its connection no rule is broken, and its end is about to be noticed. */
        if (!session_has_hung_up(link->session)) {
            break_ring(link, "the client closed its doorbell");
        }
        return;
    }
    if (is_rung_for_nothing(link)) {
        uv_poll_stop(poll);
        uv_timer_start(&link->quiet_timer, on_quiet_timer, RING_QUIET_MS, 0);
    }
    link->n_idle_wakes++;
    link->server->stats.ring_wakes++;
    ring_awake(link->queues);
    ring_link_mark_awake(link);
}

int ring_link_listen(struct ring_link *link)
{
    return uv_poll_start(&link->doorbell_poll, UV_READABLE | UV_DISCONNECT, on_doorbell);
}
