/*
 * Server turn: deliver what the workers have done, hand them the next chunks, send the answers; and
 * the lists of sessions that the turn works on.
 *
 *     dirty     has something to send: who has urgent answers is first
 *     again     stopped reading at its budget, with more to read
 *     waiting   its run waits for room in the pool
 *
 * A turn runs after each socket's bounded read or write, and before the loop sleeps.  While urgent
 * work keeps us awake (awake.h) turns follow each other, and the loop looks at sockets now and
 * then. A session may be closed by any of these steps; it stays valid memory until libuv's close
 * callbacks.
 *
 * Urgent work waits for *looks*: at what workers have done and at what rings have.  While awake
 * there is one between any two steps that take long: to read a session, a message of it, to write
 * to one, to let one try again, to ring a doorbell (but the one that ends a turn).  And where there
 * is a CPU for it they go on while a socket is read or written (aside.h); else, after urgent chunks
 * have been handed out, no step begins for a moment, in which small ones are done.
 */
#include "daemon/server.h"

#include "daemon/linger.h"
#include "daemon/ring_link.h"
#include "proto/channel.h"
#include "proto/util.h"

#include <assert.h>

/* Bounded reads keep a small job's answer from waiting behind another client's megabytes: unbounded
 * ones made a ping wait 19 ms beside three pushers, bounded ones 1.9 ms. */
#define READ_BUDGET_SHARED (64u << 10)
#define READ_BUDGET_ALONE  (256u << 10)
#define WRITE_BUDGET       (256u << 10)
/* While urgent work keeps us awake: 3 us. */
#define BUDGET_AWAKE (16u << 10)
/* Likewise where nobody waits for it. */
#define BUDGET_ASIDE (64u << 10)
/* While an urgent chunk is at a device nothing else is begun, for at most so long after it went
 * there: 4 KiB take 8 us on an H200, and 30 where its link is busy.  At 1000 a second that is a
 * fiftieth of our time.  Not tuned. */
#define URGENT_HOLD_NS 50000

/* ---- a look --------------------------------------------------------------------------------- */

/* Hand the workers what may go next. */
static void hand_out(struct server *server)
{
    struct scheduler_place place;
    struct flow *flow;
    uint64_t now = now_ns();

    while (scheduler_has_work(&server->scheduler) &&
           (flow = scheduler_next(&server->scheduler, now, &place)) != NULL) {
        struct job *job = CONTAINER_OF(flow, struct job, flow);

        if (job_note_late(job, now)) {
            job_settle(job);
        } else if (job_issue(job, &place) < 0) {
            break;
        } else if (place.priority == PRIORITY_URGENT) {
            server->urgent_ns = now;
        }
    }
    devices_publish(&server->devices);
}

/* Most turns of a front end that is awake have nothing to hand out: they do not look at the clock.
 */
static void dispatch(struct server *server)
{
    if (scheduler_has_work(&server->scheduler)) {
        hand_out(server);
    }
}

/* One more CPU than urgent work needs by itself; and what ends us is not to wait for looks. */
static bool has_aside(const struct server *server)
{
    return awake_was(&server->awake) && awake_has_cpus(&server->awake, server->devices.n + 1) &&
           server->state < SERVER_DRAINING && !server->has_no_aside;
}

/* Will an urgent chunk be done in a moment, and would a step that begins now be in its way? */
static bool is_held(const struct server *server, uint64_t *since_ns)
{
    uint64_t now;

    if (!awake_was(&server->awake) || has_aside(server) ||
        scheduler_in_flight(&server->scheduler, PRIORITY_URGENT) == 0) {
        return false;
    }
    now = now_ns();
    *since_ns = *since_ns != 0 ? *since_ns : now;
    return now - server->urgent_ns < URGENT_HOLD_NS && now - *since_ns < URGENT_HOLD_NS;
}

static void look(struct server *server)
{
    uint64_t since_ns = 0; /* the clock is looked at where there is a reason */

    do {
        devices_poll(&server->devices);
        ring_links_publish(server);
        ring_links_poll(server);
        if (!server->is_aside) {
            jobs_settle_released(server);
        }
        dispatch(server);
        ring_links_publish(server); /* refusals */
    } while (is_held(server, &since_ns));
}

/* ---- system calls that take long ------------------------------------------------------------ */

struct call {
    int fd;
    const struct iovec *iov;
    size_t n_iov;
    bool had_fds;
    ssize_t result;
};

static void receive(void *arg)
{
    struct call *call = arg;

    linger_begin();
    call->result = channel_receive(call->fd, call->iov, call->n_iov, &call->had_fds);
    linger_end();
}

static void send_bytes(void *arg)
{
    struct call *call = arg;

    call->result = channel_send(call->fd, call->iov, call->n_iov);
}

static void look_meanwhile(void *arg)
{
    look(arg);
}

static void start_lingering(void *arg)
{
    *(int *)arg = linger_start();
}

static void stop_lingering(void *arg)
{
    (void)arg;
    linger_stop();
}

static void relax(void *arg)
{
    (void)arg;
    cpu_relax();
}

static int create_aside(struct server *server)
{
    int r = aside_create(&server->aside);

    if (r == 0 && linger_is_on()) {
        aside_run(server->aside, start_lingering, &r, look_meanwhile, server);
    }
    if (r < 0) {
        aside_destroy(STEAL(server->aside));
    }
    return r;
}

/* It is tried once: what there is no memory or thread for now would be tried at each call. */
static bool make_aside(struct server *server)
{
    if (server->aside == NULL) {
        server->has_no_aside = create_aside(server) < 0;
    }
    return !server->has_no_aside;
}

void server_turn_end_aside(struct server *server)
{
    if (server->aside != NULL) {
        aside_run(server->aside, stop_lingering, NULL, relax, NULL);
        aside_destroy(STEAL(server->aside));
    }
}

static void make(struct server *server, void (*make_call)(void *arg), struct call *call)
{
    assert(!server->is_aside);
    server->is_aside = has_aside(server); /* before it is made: it looks meanwhile */
    if (!server->is_aside || !make_aside(server)) {
        server->is_aside = false;
        make_call(call);
        return;
    }
    aside_run(server->aside, make_call, call, look_meanwhile, server);
    server->is_aside = false;
}

ssize_t server_receive(struct server *server, int fd, const struct iovec *iov, size_t n_iov,
                       bool *ret_had_fds)
{
    struct call call = {.fd = fd, .iov = iov, .n_iov = n_iov};

    make(server, receive, &call);
    *ret_had_fds = call.had_fds;
    return call.result;
}

ssize_t server_send(void *server, int fd, const struct iovec *iov, size_t n_iov)
{
    struct call call = {.fd = fd, .iov = iov, .n_iov = n_iov};

    make(server, send_bytes, &call);
    return call.result;
}

/* ---- a turn --------------------------------------------------------------------------------- */

/* The steps: while awake they take one, else all there are.  False: there is none. */

/* Who waits for room tries, the oldest first: a small run fits where a large one does not. */
static bool resume_waiting(struct server *server)
{
    bool is_any = false;

    if (server->has_room_come) {
        server->has_room_come = false;
        server->waiting_next = server->waiting_first;
    }
    while (server->waiting_next != NULL && !(is_any && awake_was(&server->awake))) {
        struct session *session = server->waiting_next;

        server->waiting_next = session_links(session)->next_waiting;
        session_resume(session);
        is_any = true;
    }
    return is_any;
}

static struct session *first_dirty(const struct server *server)
{
    enum priority priority = PRIORITY_URGENT;

    while (priority < PRIORITY_BULK && server->dirty_first[priority] == NULL) {
        priority++;
    }
    return server->dirty_first[priority];
}

static void unmark_dirty(struct server *server, struct session *session)
{
    struct session_links *links = session_links(session);

    if (!links->is_dirty) {
        return;
    }
    links->is_dirty = false;
    *(links->previous_dirty != NULL ? &session_links(links->previous_dirty)->next_dirty
                                    : &server->dirty_first[links->dirty_as]) = links->next_dirty;
    *(links->next_dirty != NULL ? &session_links(links->next_dirty)->previous_dirty
                                : &server->dirty_last[links->dirty_as]) = links->previous_dirty;
}

/* Each flush is bounded, and a turn goes through all: nobody starves. */
static bool flush_dirty(struct server *server)
{
    struct session *session;
    bool is_any = false;

    while (!(is_any && awake_was(&server->awake)) && (session = first_dirty(server)) != NULL) {
        unmark_dirty(server, session);
        session_flush(session);
        is_any = true;
    }
    return is_any;
}

/* A client that says again and again that it sleeps has one due at each look: it prolongs no turn
 * past the time to look at sockets.  What is left the next turn rings, or who goes to sleep. */
static bool ring_bells(struct server *server)
{
    bool is_awake = awake_was(&server->awake);

    return ring_links_ring(server, is_awake ? 1 : UINT32_MAX) && is_awake &&
           now_ns() - server->awake.sockets_ns < AWAKE_LOOK_NS;
}

void server_turn(struct server *server)
{
    do {
        look(server);
    } while (server->released != NULL || resume_waiting(server) || flush_dirty(server) ||
             ring_bells(server));
}

/* Its being active is all: the loop does not block, and the next turn follows. */
static void on_go_on(uv_idle_t *go_on)
{
    uv_idle_stop(go_on);
}

/* While awake: take another turn, or is it time to look at sockets? */
static bool takes_another(const struct server *server)
{
    cpu_relax();
    return server->n_readers == 0 && server->again == NULL && !awake_is_socket_time(&server->awake);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct server *server = prepare->data;
    bool is_awake;

    do {
        server_turn(server);
        is_awake = awake_is(&server->awake);
    } while (is_awake && takes_another(server));
    if (!is_awake) {
        ring_links_ring(server, UINT32_MAX);
    }
    if (is_awake || !devices_sleep(&server->devices) || !ring_links_sleep(server)) {
        uv_idle_start(&server->go_on, on_go_on);
    }
    server->n_readers_was = server->n_readers;
    server->n_readers = 0;
}

static void on_check(uv_check_t *check)
{
    struct server *server = check->data;

    devices_awake(&server->devices);
    awake_note_sockets(&server->awake);
    server_note_devices(server);
}

/* Sessions whose read stopped at its budget go on, each once per turn of the loop. */
static void on_idle(uv_idle_t *idle)
{
    struct server *server = idle->data;
    struct session *session = STEAL(server->again);

    while (session != NULL) {
        struct session *next = session_links(session)->next_again;

        session_links(session)->is_again = false;
        session_read_again(session);
        server_turn(server);
        session = next;
    }
    if (server->again == NULL) {
        uv_idle_stop(idle);
    }
}

void server_turn_init(struct server *server)
{
    uv_prepare_init(&server->loop, &server->prepare);
    uv_check_init(&server->loop, &server->check);
    uv_idle_init(&server->loop, &server->idle);
    uv_idle_init(&server->loop, &server->go_on);
    server->prepare.data = server;
    server->check.data = server;
    server->idle.data = server;
}

void server_turn_start(struct server *server)
{
    uv_prepare_start(&server->prepare, on_prepare);
    uv_check_start(&server->check, on_check);
}

void server_turn_stop(struct server *server)
{
    uv_prepare_stop(&server->prepare);
    uv_check_stop(&server->check);
}

/* ---- the lists ------------------------------------------------------------------------------ */

size_t server_read_budget(const struct server *server)
{
    bool is_shared = server->n_readers_was > 1 || server->n_readers > 1 ||
                     scheduler_in_flight(&server->scheduler, PRIORITY_URGENT) > 0;

    if (awake_was(&server->awake)) {
        return has_aside(server) ? BUDGET_ASIDE : BUDGET_AWAKE;
    }
    return is_shared ? READ_BUDGET_SHARED : READ_BUDGET_ALONE;
}

size_t server_write_budget(const struct server *server)
{
    return has_aside(server)           ? BUDGET_ASIDE
           : awake_was(&server->awake) ? BUDGET_AWAKE
                                       : WRITE_BUDGET;
}

void server_mark_dirty(struct server *server, struct session *session, enum priority priority)
{
    struct session_links *links = session_links(session);
    struct session *last = server->dirty_last[priority];

    if (links->is_dirty && links->dirty_as <= priority) {
        return;
    }
    unmark_dirty(server, session);
    links->is_dirty = true;
    links->dirty_as = priority;
    links->previous_dirty = last;
    links->next_dirty = NULL;
    *(last != NULL ? &session_links(last)->next_dirty : &server->dirty_first[priority]) = session;
    server->dirty_last[priority] = session;
}

void server_mark_again(struct server *server, struct session *session)
{
    struct session_links *links = session_links(session);

    if (!links->is_again) {
        links->is_again = true;
        links->next_again = server->again;
        server->again = session;
        uv_idle_start(&server->idle, on_idle);
    }
}

void server_mark_waiting(struct server *server, struct session *session)
{
    struct session_links *links = session_links(session);

    if (links->is_waiting) {
        return;
    }
    links->is_waiting = true;
    links->next_waiting = NULL;
    if (server->waiting_first == NULL) {
        server->waiting_first = session;
    } else {
        session_links(server->waiting_last)->next_waiting = session;
    }
    server->waiting_last = session;
}

/* Take a session out of a singly linked list; the lists are short. */
#define UNLINK(head, session, next_field)                                                          \
    do {                                                                                           \
        for (struct session **at_ = &(head); *at_ != NULL;                                         \
             at_ = &session_links(*at_)->next_field) {                                             \
            if (*at_ == (session)) {                                                               \
                *at_ = session_links(session)->next_field;                                         \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

bool server_is_hurried(const struct server *server)
{
    return awake_was(&server->awake);
}

void server_room_came(struct server *server)
{
    server->has_room_come = true;
}

void server_unmark_waiting(struct server *server, struct session *session)
{
    struct session_links *links = session_links(session);

    if (!links->is_waiting) {
        return;
    }
    links->is_waiting = false;
    if (server->waiting_next == session) {
        server->waiting_next = links->next_waiting;
    }
    UNLINK(server->waiting_first, session, next_waiting);
    server->waiting_last = server->waiting_first;
    while (server->waiting_last != NULL &&
           session_links(server->waiting_last)->next_waiting != NULL) {
        server->waiting_last = session_links(server->waiting_last)->next_waiting;
    }
}

void server_forget_session(struct server *server, struct session *session)
{
    struct session_links *links = session_links(session);

    if (links->previous != NULL) {
        session_links(links->previous)->next = links->next;
    } else {
        server->sessions = links->next;
    }
    if (links->next != NULL) {
        session_links(links->next)->previous = links->previous;
    }
    server->n_sessions--;
    unmark_dirty(server, session);
    UNLINK(server->again, session, next_again);
    server_unmark_waiting(server, session);
}
