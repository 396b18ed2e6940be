/*
 * Ring link: the front end's side of one client's ring: its queues (proto/ring.h), its doorbell and
 * the segment that its data lie in (ring_pool.h), which this process never maps once a client has
 * it.
 *
 *     OPENING   its segment is being made; ring.open waits for its answer
 *     OPEN      descriptors are taken
 *     CLOSING   none are: ring.close, the connection's end, or broken rules; what was accepted ends
 *     (freed)   nothing that a device might still do concerns its data
 *
 * Descriptors are taken in the server's turn, at most RING_BUDGET of a ring.  A ring *sleeps* when
 * there was nothing to take: then the client rings its doorbell, and an idle ring costs nothing.  A
 * doorbell that rings on and on for nothing is heard only every RING_QUIET_MS.  Where workers hear
 * it as well (worker_abi.h), what it rang is read WORK_BELL_NS later, or when the ring sleeps
 * again: a worker that is slower to wake up would not find it.
 *
 * What does not depend on who opens a ring, its queues and its doorbell, is made beforehand, as the
 * stock of data is, for one ring: it was a third of the time that ring.open took.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/ring_pool.h"
#include "proto/message.h"
#include "proto/ring.h"

#include <uv.h>

struct job;
struct push;
struct server;
struct session;
struct worker_link;

enum ring_link_state { RING_LINK_OPENING, RING_LINK_OPEN, RING_LINK_CLOSING };

struct ring_link {
    struct server *server;
    struct session *session;           /* NULL: its connection is gone */
    struct ring_link *next, *previous; /* of the server's */
    struct ring_link *next_awake;
    bool is_awake; /* in the server's list of rings to look at */

    uint64_t id;
    enum ring_link_state state;
    uint32_t open_msgid;
    bool has_close_msgid; /* ring.close waits for its answer */
    uint32_t close_msgid;

    struct ring *queues;
    struct ring_lease *data;
    uint64_t connection; /* its session's number, which outlives it */
    uint64_t size;       /* of the data */
    uint32_t segment;    /* where workers find them */
    int doorbell_fd;     /* our end */
    int client_fd;       /* the client's, until ring.open is answered */
    uv_poll_t doorbell_poll;
    uv_timer_t quiet_timer; /* runs while the doorbell is not heard */
    uint32_t n_idle_wakes;  /* in a row, with nothing to take */
    unsigned n_handles;     /* that libuv holds */
    bool may_keep_awake;    /* its client: see awake.h */
    bool is_heard;          /* by workers, too */
    uint64_t rung_ns;       /* and when it rang what is still to be read; 0: nothing is */
    bool has_unpublished;   /* completions the client cannot see yet */
    bool is_bell_due;       /* they were published while it slept */
    bool is_broken;         /* its queues are not written to any more */
    uint32_t n_taken;       /* descriptors without a completion */
    uint32_t n_room;        /* completions that there is room for, at least */
    uint32_t n_holds;       /* by pushes whose data lie here, and while it is worked on */
};

/* Have a blank for the first ring.open.  Finish: no ring is opened any more. */
void ring_links_prepare(struct server *server);
void ring_links_finish(struct server *server);
/*
 * Make a ring; ring.open is answered now or later.  QUOTA, BUSY, TOO_BIG, NO_MEMORY as ring_pool.h
 * has them, NO_DEVICE.
 */
int ring_link_open(struct session *session, uint32_t msgid, const struct msg_ring_open *open,
                   struct failure *ret_failure);
/* The connection's ring of this id that is OPEN; errors (NOT_YOURS, NOT_FOUND) name the field. */
int ring_link_find(struct session *session, uint64_t id, const char *field,
                   struct ring_link **ret_link, struct failure *ret_failure);
/* Take no more; ring.close is answered when all is done. */
void ring_link_close(struct ring_link *link, uint32_t msgid);
/* The connection is gone, with all its rings. */
void ring_link_orphan_all(struct session *session);

/* Something needs it: a push whose data lie here, until it is answered.  The last one to let go of
 * a CLOSING ring frees it. */
void ring_link_hold(struct ring_link *link);
void ring_link_let_go(struct ring_link *link);
/* Do its client and our CPUs permit that we wait for it without sleeping?  See awake.h. */
bool ring_link_may_keep_awake(const struct ring_link *link);
/* This worker has work of the ring: it may wake up when more comes, where awake.h permits that.
 * is_quick: such work keeps us awake, and does not have to leave places to others. */
void ring_link_let_hear(struct ring_link *link, struct worker_link *worker, bool is_quick);
/* Answer n descriptors; dropped where the client has broken the ring or is gone. */
void ring_link_complete(struct ring_link *link, const struct ring_completion *completions,
                        uint32_t n);

/* ---- for the server's turn ------------------------------------------------------------------ */

/* Take what awake rings have. */
void ring_links_poll(struct server *server);
/* Show clients what was completed. */
void ring_links_publish(struct server *server);
/* Wake up to max of those that slept meanwhile: 5 us each, which urgent work may wait for.  False:
 * there was none. */
bool ring_links_ring(struct server *server, uint32_t max);
/* Before the loop blocks: false if a ring has more. */
bool ring_links_sleep(struct server *server);
