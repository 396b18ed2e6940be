/*
 * Rings, and what the connection has to do with them.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe_connection.h"
#include "client/space.h"
#include "proto/message.h"
#include "proto/ring.h"

#include <poll.h>

struct flight;

struct gpupipe_ring {
    struct gpupipe_ring *next;
    struct gpupipe *gpupipe;
    uint64_t id;
    uint64_t size;
    uint8_t *data;
    struct space *space; /* which of the data are taken */
    struct ring *queues;
    int doorbell_fd;        /* -1: the daemon has closed its end */
    bool is_closed;         /* nothing can be submitted any more ... */
    struct failure failure; /* ... for this reason */
    uint64_t awake_ns;      /* the daemon waits for urgent work without sleeping; 0: it sleeps */
    bool is_lost;           /* it went with the connection, and is in its lost_rings */
    uint32_t n_flying;
    uint32_t n_urgent; /* of them */
    uint64_t n_submitted;
    struct flight *slots[RING_ENTRIES]; /* who waits for a completion, by the tag's low bits */
    uint16_t free_slots[RING_ENTRIES];  /* a stack: those that are NULL */
    uint32_t named_devices;             /* a set, ... */
    struct msg_done_by named;           /* ... and what it is called; backend "": none yet */
};

/* Without touching its data beforehand, as gpupipe_ring_open() does. */
int rings_open(struct gpupipe *gpupipe, uint64_t size, const char *device,
               struct gpupipe_ring **ret_ring, struct failure *ret_failure);
/* Are ring and connection open? */
int rings_check(const struct gpupipe_ring *ring, struct failure *ret_failure);
void *rings_alloc(struct gpupipe_ring *ring, uint64_t size, struct failure *ret_failure);

/* How a set of devices is called: by.backend and by.device. */
void rings_name_devices(const struct gpupipe *gpupipe, uint32_t devices, struct msg_done_by *ret);

/* Pushes that may be submitted now. */
uint32_t rings_room(const struct gpupipe_ring *ring);
/* Put a push for which there is room; the daemon sees it after rings_publish(). */
void rings_submit(struct gpupipe_ring *ring, struct flight *flight, struct ring_desc *desc);
void rings_publish(struct gpupipe *gpupipe);
/* Land what has come back.  False: the daemon has let go of a ring; the socket tells why. */
bool rings_take(struct gpupipe *gpupipe);

/* Where the daemon waits for urgent work without sleeping, wait for it alike: until there is news,
 * at most so long and as long as it pays. */
void rings_await_urgent(struct gpupipe *gpupipe, int64_t timeout_ns);

/* The doorbells (at most LIMIT_RINGS), to be polled; then what they say, polled or not.  Between
 * two calls of gpupipe.h a completion that was not taken has rung, or will ring. */
uint32_t rings_poll(const struct gpupipe *gpupipe, struct pollfd *ret_fds);
bool rings_heed(struct gpupipe *gpupipe, const struct pollfd *fds);

/* The daemon has closed one. */
void rings_on_closed(struct gpupipe *gpupipe, const struct msg_ring_closed *closed);
/* What has come back by now lands; all else is lost, and all rings with it. */
void rings_on_loss(struct gpupipe *gpupipe);
void rings_destroy_all(struct gpupipe *gpupipe);
