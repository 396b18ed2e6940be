/*
 * Ring open: how a ring comes to be: its queues and doorbell, of which one pair is made beforehand,
 * the answer to ring.open, and what it is refused for.
 */
#include "daemon/ring_link_private.h"

#include "daemon/answer.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/util.h"

/* ---- blanks --------------------------------------------------------------------------------- */

static int make_doorbell(struct ring_link *link)
{
    int ends[2];
    int r = channel_pair(true, ends);

    if (r < 0) {
        return r;
    }
    channel_refuse_fds(ends[0]);
    link->doorbell_fd = ends[0];
    link->client_fd = ends[1];
    r = uv_poll_init(&link->server->loop, &link->doorbell_poll, link->doorbell_fd);
    if (r < 0) {
        return r;
    }
    uv_timer_init(&link->server->loop, &link->quiet_timer);
    link->doorbell_poll.data = link;
    link->quiet_timer.data = link;
    link->n_handles = 2;
    return 0;
}

/* NULL: no memory or descriptors. */
static struct ring_link *make_blank(struct server *server)
{
    struct ring_link *link = calloc(1, sizeof(*link));

    if (link == NULL) {
        return NULL;
    }
    link->server = server;
    link->doorbell_fd = link->client_fd = -1;
    if (ring_create(&link->queues) < 0 || make_doorbell(link) < 0) {
        ring_link_dispose(link);
        return NULL;
    }
    return link;
}

void ring_links_prepare(struct server *server)
{
    if (server->ring_blank == NULL) {
        server->ring_blank = make_blank(server);
    }
}

void ring_links_finish(struct server *server)
{
    if (server->ring_blank != NULL) {
        ring_link_dispose(STEAL(server->ring_blank));
    }
}

static void on_blank_timer(uv_timer_t *timer)
{
    ring_links_prepare(timer->data);
}

static struct ring_link *take_blank(struct server *server)
{
    struct ring_link *link = STEAL(server->ring_blank);

    uv_timer_start(&server->blank_timer, on_blank_timer, RING_POOL_STOCK_MS, 0);
    return link != NULL ? link : make_blank(server);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int send_opened(struct ring_link *link)
{
    int fds[] = {ring_fd(link->queues), ring_lease_fd(link->data), link->client_fd};
    struct msg_ring_opened opened = {
        .ring = link->id,
        .size = link->size,
        .layout = RING_LAYOUT,
        .entries = RING_ENTRIES,
        .sq = ring_sq_offset(),
        .cq = ring_cq_offset(),
        .align = RING_ALIGN,
        .awake_ns = ring_link_may_keep_awake(link) ? WORK_AWAKE_NS : 0,
    };
    struct answer answer;

    codec_pack_ring_opened(answer_begin(&answer), link->open_msgid, &opened);
    int r = answer_send_with_fds(&answer, link->session, fds, ARRAY_SIZE(fds));
    close(steal_fd(&link->client_fd));
    return r;
}

/* Its segment is there.  The link is OPEN or gone afterwards. */
static void complete_open(struct ring_link *link)
{
    struct failure failure;

    link->size = ring_lease_size(link->data);
    link->segment = ring_lease_segment(link->data);
    if (ring_link_listen(link) < 0 || send_opened(link) < 0) {
        fail(&failure, STATUS_NO_MEMORY, NULL, "no memory or descriptors for a ring");
        session_queue_error(link->session, link->open_msgid, &failure);
        ring_link_end(link);
        return;
    }
    link->state = RING_LINK_OPEN;
    ring_link_mark_awake(link);
    link->server->stats.rings_total++;
}

static void on_data(void *owner, const struct failure *failure)
{
    struct ring_link *link = owner;

    if (failure == NULL) {
        complete_open(link);
    } else if (link->state != RING_LINK_OPENING) {
        ring_link_spoil(link, failure);
    } else {
        link->data = NULL;
        session_queue_error(link->session, link->open_msgid, failure);
        ring_link_end(link);
    }
}

/*
 * Descriptors on their way keep their rings' queues alive, at nobody's charge, and count among
 * those that the kernel lets all our clients together have on their way.
 */
static int check_unread(struct session *session, struct failure *ret_failure)
{
    if (session_n_fds_unread(session) < LIMIT_RINGS) {
        return 0;
    }
    fail(ret_failure, STATUS_BUSY, "size",
         "%d results of ring.open may be unread; read them, then try again", LIMIT_RINGS);
    ret_failure->retry_ms = SERVER_RETRY_MS;
    return failure_add_limit(ret_failure, "rings", LIMIT_RINGS, LIMIT_RINGS);
}

static int check_count(const struct session *session, struct failure *ret_failure)
{
    const struct ring_link *link = session_server(session)->rings;
    uint32_t n = 0;

    for (; link != NULL; link = link->next) {
        n += link->session == session;
    }
    if (n < LIMIT_RINGS) {
        return 0;
    }
    fail(ret_failure, STATUS_QUOTA, "size", "this connection has %u rings, at most %d: close one",
         n, LIMIT_RINGS);
    ret_failure->retry_ms = SERVER_RETRY_MS;
    return failure_add_limit(ret_failure, "rings", n, LIMIT_RINGS);
}

/* The memory node that is near the device, or -1. */
static int find_node(const struct session *session, const char *device, int32_t *ret_node,
                     struct failure *ret_failure)
{
    const struct devices *devices = &session_server(session)->devices;
    const struct device *found = devices_find(devices, device);

    *ret_node = -1;
    if (device[0] != '\0' && found == NULL) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device", "there is no device \"%s\"", device);
    }
    if (found != NULL) {
        *ret_node = worker_link_caps(found->link)->numa;
    }
    return 0;
}

static int create(struct session *session, uint32_t msgid, struct ring_link **ret_link,
                  struct failure *ret_failure)
{
    struct server *server = session_server(session);
    struct ring_link *link = take_blank(server);

    if (link == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "no memory or descriptors for a ring");
    }
    link->session = session;
    link->connection = session_number(session);
    link->open_msgid = msgid;
    link->may_keep_awake = awake_permits(&server->awake, session_fd(session));
    link->id = ++server->last_ring_id;
    *ret_link = link;
    return 0;
}

static void link_to_server(struct ring_link *link)
{
    struct server *server = link->server;

    link->next = server->rings;
    if (link->next != NULL) {
        link->next->previous = link;
    }
    server->rings = link;
}

int ring_link_open(struct session *session, uint32_t msgid, const struct msg_ring_open *open,
                   struct failure *ret_failure)
{
    const struct ring_holder holder = {session_uid(session), session_number(session)};
    struct server *server = session_server(session);
    struct ring_link *link = NULL;
    int32_t node = -1;
    int r = check_count(session, ret_failure);

    if (r == 0) {
        r = check_unread(session, ret_failure);
    }
    if (r == 0) {
        r = find_node(session, open->device, &node, ret_failure);
    }
    if (r == 0) {
        r = create(session, msgid, &link, ret_failure);
    }
    if (r < 0) {
        return r;
    }
    link_to_server(link); /* on_data() may come at once, with other segments' news, and end it */
    ring_link_hold(link);
    r = ring_pool_lease(server->ring_pool, &holder, open->size, node, on_data, link, &link->data,
                        ret_failure);
    if (r < 0) {
        ring_link_unlink(link);
        ring_link_dispose(link);
        return r;
    }
    if (r == 0) {
        complete_open(link);
    }
    ring_link_let_go(link);
    return 0;
}
