/*
 * How a ring comes to be, in the front end's own code with a pool of stand-ins: it is wrapped at
 * link time.
 */
#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define SIZE (1u << 20)

static struct server server;
static struct session *session;
static int client = -1, data_fd = -1;
static int fds[3]; /* that the client got: a doorbell that it closes ends its ring */
static uint32_t n_fds;
static char lease; /* of whose address the pool's lease is */
static uint32_t n_leased;
static struct failure refusal; /* what the pool says; OK: it leases */
static bool is_at_once;        /* on_data comes from within ring_pool_lease() ... */
static bool is_without_fds;    /* ... when no descriptor is left */
static rlim_t n_fds_before;

/* ---- stand-ins ------------------------------------------------------------------------------ */

int __wrap_ring_pool_lease(struct ring_pool *pool, const struct ring_holder *holder, uint64_t size,
                           int node, ring_pool_done *on_done, void *owner,
                           struct ring_lease **ret_lease, struct failure *ret_failure);
void __wrap_ring_pool_release(struct ring_pool *pool, struct ring_lease *of);
void __wrap_ring_pool_forget(struct ring_pool *pool, uint64_t connection);
size_t __wrap_ring_lease_size(const struct ring_lease *of);
uint32_t __wrap_ring_lease_segment(const struct ring_lease *of);
int __wrap_ring_lease_fd(const struct ring_lease *of);

static void limit_fds(rlim_t n)
{
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    n_fds_before = limit.rlim_cur;
    limit.rlim_cur = n;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int __wrap_ring_pool_lease(struct ring_pool *pool, const struct ring_holder *holder, uint64_t size,
                           int node, ring_pool_done *on_done, void *owner,
                           struct ring_lease **ret_lease, struct failure *ret_failure)
{
    (void)pool, (void)holder, (void)size, (void)node;
    if (refusal.status != STATUS_OK) {
        *ret_failure = refusal;
        return -(int)refusal.status;
    }
    n_leased++;
    *ret_lease = (struct ring_lease *)&lease;
    if (is_without_fds) {
        limit_fds(0);
    }
    if (is_at_once) {
        on_done(owner, NULL);
    }
    return is_at_once ? RING_POOL_LATER : 0;
}

void __wrap_ring_pool_release(struct ring_pool *pool, struct ring_lease *of)
{
    (void)pool;
    CHECK(of == (struct ring_lease *)&lease);
    n_leased--;
}

void __wrap_ring_pool_forget(struct ring_pool *pool, uint64_t connection)
{
    (void)pool, (void)connection;
}

size_t __wrap_ring_lease_size(const struct ring_lease *of)
{
    CHECK(of == (const struct ring_lease *)&lease);
    return SIZE;
}

uint32_t __wrap_ring_lease_segment(const struct ring_lease *of)
{
    (void)of;
    return 3;
}

int __wrap_ring_lease_fd(const struct ring_lease *of)
{
    (void)of;
    return data_fd;
}

/* ---- stories -------------------------------------------------------------------------------- */

/* libuv's first loop opens a pipe that stays: it is no test's. */
__attribute__((constructor)) static void open_what_stays(void)
{
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0) {
        uv_loop_close(&loop);
    }
}

static void close_server(void *arg)
{
    (void)arg;
    session_close(session);
    ring_links_finish(&server);
    uv_close((uv_handle_t *)&server.blank_timer, NULL);
    uv_close((uv_handle_t *)&server.idle, NULL);
    uv_close((uv_handle_t *)&server.tick, NULL);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    CHECK(server.rings == NULL);
    CHECK_EQ(n_leased, 0);
    CHECK_EQ(uv_loop_close(&server.loop), 0);
    close_fd(&client);
    close_fd(&data_fd);
    while (n_fds > 0) {
        close(fds[--n_fds]);
    }
}

static void open_server(void)
{
    int ends[2];

    memset(&server, 0, sizeof(server));
    refusal.status = STATUS_OK;
    is_at_once = is_without_fds = false;
    CHECK_EQ(uv_loop_init(&server.loop), 0);
    uv_timer_init(&server.loop, &server.blank_timer);
    uv_timer_init(&server.loop, &server.tick);
    uv_idle_init(&server.loop, &server.idle);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client = ends[1];
    data_fd = memfd_create("data", MFD_CLOEXEC);
    CHECK_EQ(session_create(&server, ends[0]), 0);
    session = server.sessions;
    check_at_end(close_server, NULL);
}

static int open_ring(uint32_t msgid, struct failure *ret_failure)
{
    const struct msg_ring_open open = {.size = SIZE};

    return ring_link_open(session, msgid, &open, ret_failure);
}

/* What the client got, as text to search in. */
static void check_got(const char *wanted)
{
    char bytes[4096];
    uint32_t n_new = 0;
    const struct iovec iov = {bytes, sizeof(bytes)};

    session_flush(session);
    ssize_t n = channel_receive_fds(client, &iov, 1, &fds[n_fds], ARRAY_SIZE(fds) - n_fds, &n_new);
    n_fds += n_new;
    CHECK_GT(n, 0);
    CHECK(memmem(bytes, (size_t)n, wanted, strlen(wanted)) != NULL);
}

/* A ring that is open, and another of which the answer cannot be sent. */
static void check_other_ring_stays(void)
{
    struct failure failure;
    struct ring_link *first = server.rings, *found = NULL;

    ring_links_prepare(&server); /* it has its descriptors */
    is_without_fds = true;
    CHECK_EQ(open_ring(2, &failure), 0);
    limit_fds(n_fds_before);
    check_got("NO_MEMORY");
    CHECK_EQ(n_leased, 1);
    CHECK(server.rings == first && first->next == NULL && first->previous == NULL);
    uv_run(&server.loop, UV_RUN_NOWAIT); /* the other one is freed */
    CHECK_EQ(ring_link_find(session, first->id, "ring", &found, &failure), 0);
    CHECK(found == first);
}

static void open_first(void)
{
    struct failure failure;

    open_server();
    CHECK_EQ(open_ring(1, &failure), 0);
    CHECK(server.rings != NULL && server.rings->state == RING_LINK_OPEN);
    check_got("entries");
}

static void test_a_ring_whose_answer_cannot_be_sent_is_gone(void)
{
    open_first();
    check_other_ring_stays();
}

/*
 * To make room a segment was dropped, on which news a worker had to be condemned, without which the
 * new ring's segment was usable: all before the link was in the server's list.  It was unlinked,
 * and all other rings were lost with it, then linked and freed.
 */
static void test_a_ring_whose_segment_is_usable_at_once_and_its_answer_cannot_be_sent(void)
{
    open_first();
    is_at_once = true;
    check_other_ring_stays();
}

static void test_a_ring_that_is_usable_at_once_is_open(void)
{
    struct failure failure;

    open_server();
    is_at_once = true;
    CHECK_EQ(open_ring(1, &failure), 0);
    check_got("entries");
    CHECK(server.rings != NULL && server.rings->state == RING_LINK_OPEN);
    CHECK_EQ(server.rings->n_holds, 0);
}

static void test_a_ring_that_the_pool_refuses_leaves_nothing(void)
{
    struct failure failure;

    open_first();
    fail(&refusal, STATUS_QUOTA, "size", "its user has too many");
    CHECK_EQ(open_ring(2, &failure), -STATUS_QUOTA);
    CHECK(server.rings != NULL && server.rings->next == NULL && server.rings->id == 1);
    CHECK(server.ring_leftovers == NULL);
}

CHECK_MAIN(CHECK_TEST(test_a_ring_whose_answer_cannot_be_sent_is_gone),
           CHECK_TEST(test_a_ring_whose_segment_is_usable_at_once_and_its_answer_cannot_be_sent),
           CHECK_TEST(test_a_ring_that_is_usable_at_once_is_open),
           CHECK_TEST(test_a_ring_that_the_pool_refuses_leaves_nothing))
