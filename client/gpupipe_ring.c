/*
 * Rings: opened, closed, and pushes on their way through them.
 *
 * Completions are found without a system call: whoever looks for news looks into the queues.  For
 * those who sleep there are the doorbells, and one rule: *between two calls of gpupipe.h, each ring
 * has its sleeping flag set, or its doorbell is readable*.  The flag is set when the ring opens,
 * and whenever a doorbell was drained (then the queue is looked at again).  So a program that polls
 * gpupipe_get_fd() misses nothing, whatever it calls in between; and one that never waits is rung
 * once, and costs the daemon no more bells.
 *
 * A push waits in a slot.  Its tag in the queues is its slot's number and, above, how many were
 * submitted before it, so that a completion that nobody waits for is found out.
 *
 * States of a ring: open, then closed by the daemon (it broke a rule), then lost with the
 * connection, which may also come at once.  What had come back by then lands as it is; all else
 * fails with the reason.  Of a lost ring there is only the memory, until the program closes it:
 * its number may be another ring's after a reconnect, and its queues are not looked into.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_ring.h"

#include "client/gpupipe_flight.h"
#include "client/gpupipe_job.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

_Static_assert(SPACE_ALIGN % RING_ALIGN == 0, "what is taken can be named in a descriptor");

/* To look again and again for longer than it takes to be woken does not pay; beside bulk work a
 * small job takes 40 to 70 us. */
#define LOOK_NS 100000

/* Completions that are copied out at once; not tuned. */
#define TAKE_BATCH 16

/* ---- on the way ----------------------------------------------------------------------------- */

uint32_t rings_room(const struct gpupipe_ring *ring)
{
    return ring_submit_room(ring->queues);
}

void rings_submit(struct gpupipe_ring *ring, struct flight *flight, struct ring_desc *desc)
{
    uint32_t slot = ring->free_slots[RING_ENTRIES - 1 - ring->n_flying++];

    flight->ring_tag = ring->n_submitted++ * RING_ENTRIES + slot;
    ring->slots[slot] = flight;
    ring->n_urgent += flight->job->is_urgent;
    desc->tag = flight->ring_tag;
    ring_submit(ring->queues, desc);
}

void rings_publish(struct gpupipe *gpupipe)
{
    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        if (!ring->is_closed && ring_submit_publish(ring->queues)) {
            channel_ring(ring->doorbell_fd);
        }
    }
}

/* Whose completion is it?  NULL: nobody's. */
static struct flight *take_flight(struct gpupipe_ring *ring, uint64_t tag)
{
    uint32_t slot = (uint32_t)(tag % RING_ENTRIES);
    struct flight *flight = ring->slots[slot];

    if (flight == NULL || flight->ring_tag != tag) {
        return NULL;
    }
    ring->slots[slot] = NULL;
    ring->n_urgent -= flight->job->is_urgent;
    ring->free_slots[RING_ENTRIES - ring->n_flying--] = (uint16_t)slot;
    return flight;
}

/* "cuda0,cuda1": devices are numbered as device.list has them. */
void rings_name_devices(const struct gpupipe *gpupipe, uint32_t devices, struct msg_done_by *ret)
{
    const char *backend = gpupipe->hello.backend;
    size_t used = 0;

    snprintf(ret->backend, sizeof(ret->backend), "%s", backend);
    ret->device[0] = '\0';
    for (uint32_t i = 0; i < 32 && devices >> i != 0 && used < sizeof(ret->device); i++) {
        if ((devices >> i & 1) != 0) {
            used += (size_t)snprintf(ret->device + used, sizeof(ret->device) - used, "%s%s%u",
                                     used == 0 ? "" : ",", backend, i);
        }
    }
}

static void fail_as(struct flight *flight, uint16_t status)
{
    const struct gpupipe_job *job = flight->job;
    enum status known = (enum status)(status < STATUS_COUNT ? status : STATUS_INTERNAL);
    struct failure failure;

    /* A job that has ended by now said why; the push only finds it gone, or shares its reason.  Its
     * own deadline is its own. */
    if (job->has_done && job->done.has_failure && known != STATUS_DEADLINE) {
        flight_fail(flight, &job->done.failure);
        return;
    }
    fail(&failure, known, NULL, "the daemon refused a push, or could not do it: %s",
         gpupipe_strerror(-(int)known));
    flight_fail(flight, &failure);
}

/* Where it ran: mostly where the one before it did. */
static void name_devices(struct gpupipe_ring *ring, uint32_t devices, struct msg_done_by *ret)
{
    if (ring->named.backend[0] == '\0' || devices != ring->named_devices) {
        rings_name_devices(ring->gpupipe, devices, &ring->named);
        ring->named_devices = devices;
    }
    strcpy(ret->backend, ring->named.backend);
    strcpy(ret->device, ring->named.device);
}

static void land(struct gpupipe_ring *ring, struct flight *flight,
                 const struct ring_completion *completion)
{
    struct msg_done_by *by = &flight->answer.by;

    flight->answer.n = completion->n_records;
    flight->answer.credit = 1;
    name_devices(ring, completion->devices, by);
    by->priority = MIN(completion->priority, PRIORITY_COUNT - 1);
    strcpy(by->path, "ring");
    by->has_timing = completion->has_timing != 0;
    by->timing = (struct msg_timing){completion->queue_ns, completion->in_ns,
                                     completion->compute_ns, completion->out_ns};
    flight->devices = completion->devices;
    if (completion->status != STATUS_OK) {
        fail_as(flight, completion->status);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        flight->out_size[i] = MIN((uint64_t)completion->out_size[i], flight->out[i].size);
    }
    flight_has_answer(flight);
}

/* All that is under way fails for this reason; the daemon may still write what it had accepted. */
static void close_with(struct gpupipe_ring *ring, const struct failure *failure)
{
    if (ring->is_closed) {
        return;
    }
    ring->is_closed = true;
    ring->failure = *failure;
    for (uint32_t slot = 0; slot < RING_ENTRIES; slot++) {
        struct flight *flight = ring->slots[slot];

        if (flight != NULL) {
            (void)take_flight(ring, flight->ring_tag);
            flight_lose(flight, failure);
        }
    }
}

static void break_ring(struct gpupipe_ring *ring, const char *reason)
{
    struct failure failure;

    fail(&failure, STATUS_RING, NULL, "the daemon broke a ring's rules: %s", reason);
    close_with(ring, &failure);
}

/* False: the daemon has let go of it. */
static bool take_from(struct gpupipe_ring *ring)
{
    struct ring_completion completions[TAKE_BATCH];
    int n = TAKE_BATCH;

    while (!ring->is_closed && n == TAKE_BATCH) {
        n = ring_reap(ring->queues, completions, TAKE_BATCH);
        if (n == RING_CLEARED) {
            return false; /* why, the socket tells: the connection has ended, or the ring */
        }
        if (n < 0) {
            break_ring(ring, "its queues have indices that cannot be");
        }
        for (int i = 0; i < n && !ring->is_closed; i++) {
            struct flight *flight = take_flight(ring, completions[i].tag);

            if (flight == NULL) {
                break_ring(ring, "a completion answers no push");
            } else {
                land(ring, flight, &completions[i]);
            }
        }
    }
    return true;
}

bool rings_take(struct gpupipe *gpupipe)
{
    bool are_there = true;

    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        are_there &= take_from(ring);
    }
    return are_there;
}

/* ---- doorbells ------------------------------------------------------------------------------ */

/* Take what there is, and have what comes later ring. */
static void arm(struct gpupipe_ring *ring)
{
    while (take_from(ring) && !ring->is_closed && !ring_client_sleep(ring->queues)) {
    }
}

/* Is there an answer that comes without anybody's being woken for it? */
static bool has_urgent(const struct gpupipe *gpupipe)
{
    const struct gpupipe_ring *ring = gpupipe->rings;

    while (ring != NULL && (ring->n_urgent == 0 || ring->awake_ns == 0)) {
        ring = ring->next;
    }
    return ring != NULL;
}

void rings_await_urgent(struct gpupipe *gpupipe, int64_t timeout_ns)
{
    uint64_t begin_ns = now_ns();
    uint64_t most_ns = timeout_ns < 0 ? LOOK_NS : MIN((uint64_t)timeout_ns, (uint64_t)LOOK_NS);

    if (!has_urgent(gpupipe)) {
        return;
    }
    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        ring_client_awake(ring->queues);
    }
    do {
        cpu_relax();
        rings_take(gpupipe);
    } while (!connection_has_news(gpupipe) && has_urgent(gpupipe) && now_ns() - begin_ns < most_ns);
    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        arm(ring);
    }
}

static void drop_doorbell(struct gpupipe_ring *ring)
{
    if (ring->doorbell_fd >= 0) {
        /* Closing it is not enough: a child may have it, too. */
        epoll_ctl(ring->gpupipe->epoll_fd, EPOLL_CTL_DEL, ring->doorbell_fd, NULL);
        close_fd(&ring->doorbell_fd);
    }
}

uint32_t rings_poll(const struct gpupipe *gpupipe, struct pollfd *ret_fds)
{
    uint32_t n = 0;

    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        ret_fds[n++] = (struct pollfd){.fd = ring->doorbell_fd, .events = POLLIN};
    }
    return n;
}

bool rings_heed(struct gpupipe *gpupipe, const struct pollfd *fds)
{
    bool has_rung = false;

    for (struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        if ((fds++)->revents != 0) {
            bool is_closed = false;

            channel_drain(ring->doorbell_fd, &is_closed);
            arm(ring);
            if (is_closed) {
                drop_doorbell(ring);
            }
            has_rung = true;
        }
    }
    return has_rung;
}

/* ---- ends ----------------------------------------------------------------------------------- */

void rings_on_closed(struct gpupipe *gpupipe, const struct msg_ring_closed *closed)
{
    struct gpupipe_ring *ring = gpupipe->rings;

    while (ring != NULL && ring->id != closed->ring) {
        ring = ring->next;
    }
    if (ring != NULL) {
        take_from(ring);
        close_with(ring, &closed->failure);
    }
}

static void unlink_ring(struct gpupipe_ring *ring)
{
    struct gpupipe_ring **link = ring->is_lost ? &ring->gpupipe->lost_rings : &ring->gpupipe->rings;

    while (*link != ring) {
        link = &(*link)->next;
    }
    *link = ring->next;
}

void rings_on_loss(struct gpupipe *gpupipe)
{
    while (gpupipe->rings != NULL) {
        struct gpupipe_ring *ring = gpupipe->rings;

        take_from(ring);
        close_with(ring, &gpupipe->loss);
        drop_doorbell(ring);
        unlink_ring(ring);
        ring->is_lost = true;
        ring->next = gpupipe->lost_rings;
        gpupipe->lost_rings = ring;
    }
}

static void free_ring(struct gpupipe_ring *ring)
{
    ring_destroy(ring->queues);
    space_destroy(ring->space);
    shm_unmap(ring->data, ring->size);
    close_fd(&ring->doorbell_fd);
    free(ring);
}

static void destroy_list(struct gpupipe_ring *ring)
{
    while (ring != NULL) {
        struct gpupipe_ring *next = ring->next;

        free_ring(ring);
        ring = next;
    }
}

void rings_destroy_all(struct gpupipe *gpupipe)
{
    destroy_list(STEAL(gpupipe->rings));
    destroy_list(STEAL(gpupipe->lost_rings));
}

static void post_close(struct gpupipe *gpupipe, uint64_t id)
{
    const struct msg_ring msg = {.ring = id};
    struct request request;
    struct failure failure;

    request_init(&request, gpupipe);
    codec_pack_ring_close(&request.packer, request.msgid, &msg);
    /* NOT_FOUND: it was broken.  Whatever else: the connection's end closes it. */
    (void)connection_call(gpupipe, &request, NULL, NULL, NULL, &failure);
    request_finish(&request);
}

void gpupipe_ring_close(struct gpupipe_ring *ring)
{
    struct gpupipe *gpupipe;
    struct failure failure;

    /* A child's copy has nothing that it could wait for: it goes with the connection. */
    if (ring == NULL || !connection_is_ours(ring->gpupipe)) {
        return;
    }
    gpupipe = ring->gpupipe;
    while (ring->n_flying > 0) {
        /* A loss ends these as well. */
        (void)connection_turn(gpupipe, -1, CONNECTION_IGNORE_WAKES, &failure);
    }
    if (!ring->is_lost) {
        post_close(gpupipe, ring->id);
    }
    drop_doorbell(ring);
    unlink_ring(ring);
    job_forget_ring(gpupipe, ring);
    free_ring(ring);
    connection_announce(gpupipe);
}

/* ---- opening -------------------------------------------------------------------------------- */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/*
 * Have all pages mapped now: 64 MiB are 16384 faults, which would otherwise be met one by one in
 * the first pushes.  What the data were is of no interest to anyone.
 */
static void prefault(uint8_t *data, uint64_t size)
{
    if (madvise(data, size, MADV_POPULATE_WRITE) == 0) {
        return;
    }
    for (uint64_t at = 0; at < size; at += 4096) {
        *(volatile uint8_t *)(data + at) = 0;
    }
}

static int check_opened(const struct msg_ring_opened *opened, struct failure *ret_failure)
{
    if (opened->layout != RING_LAYOUT || opened->entries != RING_ENTRIES ||
        opened->align != RING_ALIGN || opened->sq != ring_sq_offset() ||
        opened->cq != ring_cq_offset()) {
        return fail(ret_failure, STATUS_VERSION, "layout",
                    "the daemon's rings have layout %u with %u entries, this library knows layout "
                    "%u with %u",
                    opened->layout, opened->entries, RING_LAYOUT, RING_ENTRIES);
    }
    return 0;
}

/* 0 or -errno.  The descriptors are taken over. */
static int set_up(struct gpupipe_ring *ring, int fds[3])
{
    _cleanup_(close_fd) int queues_fd = fds[0], data_fd = fds[1];
    struct epoll_event event = {.events = EPOLLIN};
    void *base;
    int rc;

    ring->doorbell_fd = fds[2];
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        ring->free_slots[i] = (uint16_t)i;
    }
    rc = ring_attach(queues_fd, &ring->queues);
    if (rc == 0) {
        rc = shm_map(data_fd, ring->size, &base);
    }
    if (rc == 0) {
        ring->data = base;
        rc = space_create(ring->size, &ring->space);
    }
    if (rc == 0 &&
        epoll_ctl(ring->gpupipe->epoll_fd, EPOLL_CTL_ADD, ring->doorbell_fd, &event) < 0) {
        rc = -errno;
    }
    return rc;
}

static int create(struct gpupipe *gpupipe, const struct msg_ring_opened *opened, int fds[3],
                  struct gpupipe_ring **ret_ring, struct failure *ret_failure)
{
    struct gpupipe_ring *ring = calloc(1, sizeof(*ring));
    int rc = -ENOMEM;

    if (ring != NULL) {
        ring->gpupipe = gpupipe;
        ring->id = opened->ring;
        ring->size = opened->size;
        ring->awake_ns = opened->awake_ns;
        rc = set_up(ring, fds);
    } else {
        for (uint32_t i = 0; i < 3; i++) {
            close(fds[i]);
        }
    }
    if (rc < 0) {
        if (ring != NULL) {
            free_ring(ring);
        }
        return fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "cannot map a ring: %s",
                    strerror(-rc));
    }
    arm(ring);
    ring->next = gpupipe->rings;
    gpupipe->rings = ring;
    *ret_ring = ring;
    return 0;
}

static int take_opened(const msgpack_object *result, void *ret, struct failure *ret_failure)
{
    return codec_unpack_ring_opened(result, ret, ret_failure);
}

static int ask(struct gpupipe *gpupipe, const struct msg_ring_open *msg,
               struct msg_ring_opened *ret_opened, struct failure *ret_failure)
{
    struct request request;
    int rc;

    request_init(&request, gpupipe);
    codec_pack_ring_open(&request.packer, request.msgid, msg);
    rc = connection_call(gpupipe, &request, NULL, take_opened, ret_opened, ret_failure);
    request_finish(&request);
    return rc;
}

static int check_open(const struct gpupipe *gpupipe, const char *device,
                      struct failure *ret_failure)
{
    uint32_t n_rings = 0;

    for (const struct gpupipe_ring *ring = gpupipe->rings; ring != NULL; ring = ring->next) {
        n_rings++;
    }
    if (n_rings == LIMIT_RINGS) {
        return fail(ret_failure, STATUS_QUOTA, "rings",
                    "this connection has %u rings already: close one, or open a connection",
                    n_rings);
    }
    if (device != NULL && strlen(device) >= WORKER_DEVICE_SIZE) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device", "no device has a name that long");
    }
    return 0;
}

int rings_open(struct gpupipe *gpupipe, uint64_t size, const char *device,
               struct gpupipe_ring **ret_ring, struct failure *ret_failure)
{
    struct msg_ring_open msg = {.size = size != 0 ? size : LIMIT_RING_SIZE_DEFAULT};
    struct msg_ring_opened opened;
    int fds[3];
    int rc = check_open(gpupipe, device, ret_failure);

    if (rc == 0) {
        snprintf(msg.device, sizeof(msg.device), "%s", device == NULL ? "" : device);
        rc = ask(gpupipe, &msg, &opened, ret_failure);
    }
    if (rc == 0) {
        /* The answer may have come with the connection's end, which has closed the other rings. */
        rc = connection_check(gpupipe, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    if (gpupipe->reader == NULL || !reader_take_fds(gpupipe->reader, fds, ARRAY_SIZE(fds))) {
        rc = fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL,
                  "a ring's descriptors did not come: this process has too many open");
    } else {
        rc = check_opened(&opened, ret_failure);
        if (rc == 0) {
            rc = create(gpupipe, &opened, fds, ret_ring, ret_failure);
        } else {
            for (uint32_t i = 0; i < ARRAY_SIZE(fds); i++) {
                close(fds[i]);
            }
        }
    }
    if (rc < 0) {
        post_close(gpupipe, opened.ring);
    }
    return rc;
}

int gpupipe_ring_open(struct gpupipe_ring **ret_ring, struct gpupipe *gpupipe, uint64_t size,
                      const char *device)
{
    struct failure failure;
    int rc = connection_check(gpupipe, &failure);

    if (rc == 0) {
        rc = rings_open(gpupipe, size, device, ret_ring, &failure);
        if (rc == 0) {
            prefault((*ret_ring)->data, (*ret_ring)->size);
        }
        connection_announce(gpupipe);
    }
    return error_record(gpupipe, rc, &failure);
}

int rings_check(const struct gpupipe_ring *ring, struct failure *ret_failure)
{
    int rc = connection_check(ring->gpupipe, ret_failure);

    if (rc < 0) {
        return rc;
    }
    if (ring->is_lost) {
        return fail(ret_failure, STATUS_MISUSE, "ring",
                    "the ring was lost with an earlier connection: close it, and open another");
    }
    if (ring->is_closed) {
        *ret_failure = ring->failure;
        return -(int)ring->failure.status;
    }
    return 0;
}

/* ---- memory --------------------------------------------------------------------------------- */

void *rings_alloc(struct gpupipe_ring *ring, uint64_t size, struct failure *ret_failure)
{
    uint64_t offset;
    int rc;

    if (size == 0 || size > ring->size) {
        fail(ret_failure, size == 0 ? STATUS_MISUSE : STATUS_TOO_BIG, "size",
             "%llu bytes: a piece of this ring has 1 to %llu", (unsigned long long)size,
             (unsigned long long)ring->size);
        return NULL;
    }
    rc = space_take(ring->space, size, &offset);
    if (rc == -ENOMEM) {
        fail(ret_failure, STATUS_OUT_OF_MEMORY, NULL, "out of memory");
    } else if (rc < 0) {
        fail(ret_failure, STATUS_BUSY, "size",
             "no room for %llu bytes: the largest free piece of the ring has %llu; free some, or "
             "open a larger ring",
             (unsigned long long)size, (unsigned long long)space_largest(ring->space));
    }
    return rc < 0 ? NULL : ring->data + offset;
}

void *gpupipe_ring_alloc(struct gpupipe_ring *ring, uint64_t size)
{
    struct failure failure;
    void *data = NULL;

    if (rings_check(ring, &failure) == 0) {
        data = rings_alloc(ring, size, &failure);
    }
    (void)error_record(ring->gpupipe, data == NULL ? -1 : 0, &failure);
    return data;
}

void gpupipe_ring_free(struct gpupipe_ring *ring, void *data)
{
    struct failure failure;

    if (data == NULL || !connection_is_ours(ring->gpupipe)) {
        return;
    }
    if (!space_give(ring->space, (uint64_t)((uintptr_t)data - (uintptr_t)ring->data))) {
        (void)error_record(ring->gpupipe,
                           fail(&failure, STATUS_MISUSE, NULL,
                                "gpupipe_ring_free() of what gpupipe_ring_alloc() did not return"),
                           &failure);
    }
}
