/*
 * A session whose answers carry descriptors, in a server of stand-ins.  The kernel's refusal of
 * them is played, and so is the clock: they are wrapped at link time.
 */
#include "daemon/constant.h"
#include "daemon/handlers.h"
#include "daemon/log.h"
#include "daemon/ring_link.h"
#include "daemon/ring_pool.h"
#include "daemon/server.h"
#include "proto/channel.h"
#include "proto/util.h"
#include "tests/check.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS        UINT64_C(1000000)
#define TICK_MS   100
#define SLOW_TICK (LIMIT_SLOW_READER / TICK_MS)

static struct server server;
static int client = -1;
static uint64_t clock_ns;
static uint32_t n_allowed; /* sends with descriptors that the kernel takes, before it refuses */
static uint32_t n_refused;
static bool is_hurried;
static uint32_t n_turns;
static uint32_t n_again; /* times that it wanted to be read again */
static size_t write_budget;
static enum priority dirty_as, flushed_as; /* PRIORITY_COUNT: it is not */

/* ---- stand-ins ------------------------------------------------------------------------------ */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
ssize_t __wrap_channel_send_fds(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
                                uint32_t n_fds);
ssize_t __real_channel_send_fds(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
                                uint32_t n_fds);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    (void)clock;
    clock_ns++;
    *ret_time = (struct timespec){(time_t)(clock_ns / (1000 * MS)), (long)(clock_ns % (1000 * MS))};
    return 0;
}

ssize_t __wrap_channel_send_fds(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
                                uint32_t n_fds)
{
    if (n_fds > 0 && n_allowed == 0) {
        n_refused++;
        return -ETOOMANYREFS;
    }
    n_allowed -= n_fds > 0;
    return __real_channel_send_fds(fd, iov, n_iov, fds, n_fds);
}

void log_message(enum log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

const struct handler *handler_for(enum method method)
{
    (void)method;
    return NULL;
}

void job_orphan(struct job *job)
{
    (void)job;
}

void job_destroy(struct job *job)
{
    (void)job;
}

void constant_unref(struct constant *constant)
{
    (void)constant;
}

void constant_hash(struct constant *constant, uint32_t n_arrived)
{
    (void)constant;
    (void)n_arrived;
}

void constant_drop_all(struct session *session)
{
    (void)session;
}

void server_turn(struct server *of)
{
    n_turns++;
    if (dirty_as < PRIORITY_COUNT) {
        flushed_as = dirty_as;
        dirty_as = PRIORITY_COUNT;
        session_flush(of->sessions);
    }
}

struct prepared *prepared_ref(struct prepared *prepared)
{
    return prepared;
}

void prepared_unref(struct prepared *prepared)
{
    CHECK(prepared == NULL);
}

void ring_link_orphan_all(struct session *session)
{
    (void)session;
}

void ring_pool_forget(struct ring_pool *pool, uint64_t connection)
{
    (void)pool;
    (void)connection;
}

ssize_t server_receive(struct server *of, int fd, const struct iovec *iov, size_t n_iov,
                       bool *ret_had_fds)
{
    (void)of;
    return channel_receive(fd, iov, n_iov, ret_had_fds);
}

ssize_t server_send(void *of, int fd, const struct iovec *iov, size_t n_iov)
{
    (void)of;
    return channel_send(fd, iov, n_iov);
}

bool server_is_hurried(const struct server *of)
{
    (void)of;
    return is_hurried;
}

size_t server_write_budget(const struct server *of)
{
    (void)of;
    return write_budget;
}

size_t server_read_budget(const struct server *of)
{
    (void)of;
    return 65536;
}

/* There is one. */
void server_mark_dirty(struct server *of, struct session *session, enum priority priority)
{
    CHECK(of->sessions == session);
    dirty_as = MIN(dirty_as, priority);
}

void server_mark_again(struct server *of, struct session *session)
{
    (void)of;
    (void)session;
    n_again++;
}

void server_mark_waiting(struct server *of, struct session *session)
{
    (void)of;
    (void)session;
}

void server_unmark_waiting(struct server *of, struct session *session)
{
    (void)of;
    (void)session;
}

void server_need_tick(struct server *of)
{
    (void)of;
}

/* There is one. */
void server_forget_session(struct server *of, struct session *session)
{
    CHECK(of->sessions == session);
    of->sessions = NULL;
    dirty_as = PRIORITY_COUNT;
}

/* ---- the stories ---------------------------------------------------------------------------- */

/* libuv's first loop opens a pipe that stays: it is no test's. */
__attribute__((constructor)) static void open_what_stays(void)
{
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0) {
        uv_loop_close(&loop);
    }
}

static void close_all(void *arg)
{
    (void)arg;
    if (server.sessions != NULL) {
        session_close(server.sessions);
    }
    uv_run(&server.loop, UV_RUN_DEFAULT);
    uv_loop_close(&server.loop);
    close_fd(&client);
}

static void open_session(void)
{
    int sockets[2];

    memset(&server, 0, sizeof(server));
    clock_ns = 1000 * MS;
    n_allowed = 0;
    n_refused = 0;
    is_hurried = false;
    n_turns = n_again = 0;
    write_budget = SIZE_MAX;
    dirty_as = PRIORITY_COUNT;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    client = sockets[0];
    CHECK_EQ(uv_loop_init(&server.loop), 0);
    check_at_end(close_all, NULL);
    CHECK_EQ(session_create(&server, sockets[1]), 0);
}

static void queue_as(const char *bytes, uint32_t n_fds, enum priority priority)
{
    static const int fds[CHANNEL_FDS_MAX]; /* the standard input, often */
    struct writer_message *message;

    CHECK_EQ(writer_begin(&message, NULL, NULL), 0);
    CHECK_EQ(writer_add_copy(message, bytes, strlen(bytes)), 0);
    if (n_fds > 0) {
        CHECK_EQ(writer_add_fds(message, fds, n_fds), 0);
    }
    session_queue(server.sessions, message, priority);
}

static void queue(const char *bytes, uint32_t n_fds)
{
    queue_as(bytes, n_fds, PRIORITY_NORMAL);
    server_turn(&server);
}

static void check_client_gets(const char *bytes, uint32_t n_fds_wanted)
{
    uint8_t got[64];
    struct iovec iov = {got, strlen(bytes)};
    int fds[CHANNEL_FDS_MAX];
    uint32_t n_fds = 0;

    memset(got, 0xa5, sizeof(got));
    CHECK_EQ(channel_receive_fds(client, &iov, 1, fds, CHANNEL_FDS_MAX, &n_fds), strlen(bytes));
    for (uint32_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    CHECK_MEM(got, bytes, strlen(bytes));
    CHECK_EQ(n_fds, n_fds_wanted);
}

static void tick(void)
{
    uint64_t now = clock_ns += TICK_MS * MS;

    session_check_time(server.sessions, now);
    server_turn(&server);
    uv_run(&server.loop, UV_RUN_NOWAIT);
}

/* ETOOMANYREFS with a writable socket: waiting for UV_WRITABLE would never sleep. */
static void test_held_descriptors_are_tried_again_at_the_tick_only(void)
{
    open_session();
    queue("held", 3);
    queue("behind", 0);
    n_refused = 0;
    for (int i = 0; i < 50; i++) {
        uv_run(&server.loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(n_refused, 0);
    for (uint32_t i = 1; i <= 5; i++) {
        tick();
        CHECK_EQ(n_refused, i);
    }
    n_allowed = 1;
    tick();
    check_client_gets("held", 3);
    check_client_gets("behind", 0);
    tick();
    CHECK_EQ(n_refused, 5);
}

/*
 * The tick sent what had been held, later than the moment that it compared that with; where more
 * still waited, the difference was below zero, and the session was ended for not reading.
 */
static void test_half_of_what_was_held_leaves_and_nobody_is_ended(void)
{
    open_session();
    queue("first", 3);
    queue("second", 3);
    tick();
    n_allowed = 1;
    tick();
    CHECK(server.sessions != NULL);
    check_client_gets("first", 3);
    n_allowed = 1;
    tick();
    check_client_gets("second", 3);
}

static void test_who_read_everything_waits_for_held_descriptors(void)
{
    open_session();
    queue("read", 0);
    queue("held", 3);
    check_client_gets("read", 0);
    for (int i = 0; i < 2 * SLOW_TICK; i++) {
        tick();
        CHECK(server.sessions != NULL);
    }
    n_allowed = 1;
    tick();
    check_client_gets("held", 3);
}

static void test_who_does_not_read_is_ended_with_held_descriptors(void)
{
    int n_ticks = 0;

    open_session();
    queue("unread", 0);
    queue("held", 3);
    while (server.sessions != NULL && n_ticks < 2 * SLOW_TICK) {
        tick();
        n_ticks++;
    }
    CHECK(server.sessions == NULL);
    CHECK_EQ(n_ticks, SLOW_TICK + 1);
    CHECK_EQ(server.stats.sessions_broken, 1);
}

/* What is ignored is a message as any other. */
static void send_messages(uint32_t n)
{
    static const uint8_t response[] = {0x94, 1, 0, 0xc0, 0xc0};

    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ(write(client, response, sizeof(response)), sizeof(response));
    }
    uv_run(&server.loop, UV_RUN_NOWAIT);
}

/* A thousand small messages were handled before anybody looked whether there was urgent work. */
static void test_in_a_hurry_each_message_is_a_step(void)
{
    const uint32_t n = 20;

    open_session();
    send_messages(n);
    CHECK_EQ(n_again, 0);
    is_hurried = true;
    send_messages(n);
    for (uint32_t i = 1; i < n; i++) {
        CHECK_EQ(n_again, i);
        session_read_again(server.sessions);
    }
    session_read_again(server.sessions);
    CHECK_EQ(n_again, n);
}

static void test_a_turn_lies_between_writing_and_reading(void)
{
    uint32_t n;

    open_session();
    write_budget = 1;
    queue("two", 0);
    n = n_turns;
    send_messages(1);
    check_client_gets("tw", 0);
    CHECK_EQ(n_turns, n + 2);
}

/* What is sent in several turns goes on as what is most urgent of it, in the order that it came. */
static void test_a_session_is_as_urgent_as_the_most_urgent_answer_that_it_has(void)
{
    open_session();
    write_budget = 1;
    queue_as("b", 0, PRIORITY_BULK);
    CHECK_EQ(dirty_as, PRIORITY_BULK);
    queue_as("u", 0, PRIORITY_URGENT);
    queue_as("n", 0, PRIORITY_NORMAL);
    server_turn(&server);
    CHECK_EQ(flushed_as, PRIORITY_URGENT);
    for (uint32_t i = 0; i < 2; i++) {
        flushed_as = PRIORITY_COUNT;
        uv_run(&server.loop, UV_RUN_NOWAIT);
        CHECK_EQ(flushed_as, PRIORITY_URGENT);
    }
    check_client_gets("bun", 0);
    queue_as("b", 0, PRIORITY_BULK);
    CHECK_EQ(dirty_as, PRIORITY_BULK);
}

CHECK_MAIN(CHECK_TEST(test_held_descriptors_are_tried_again_at_the_tick_only),
           CHECK_TEST(test_half_of_what_was_held_leaves_and_nobody_is_ended),
           CHECK_TEST(test_who_read_everything_waits_for_held_descriptors),
           CHECK_TEST(test_who_does_not_read_is_ended_with_held_descriptors),
           CHECK_TEST(test_in_a_hurry_each_message_is_a_step),
           CHECK_TEST(test_a_turn_lies_between_writing_and_reading),
           CHECK_TEST(test_a_session_is_as_urgent_as_the_most_urgent_answer_that_it_has))
