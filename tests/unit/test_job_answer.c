/* Jobs' answers: before whose they leave. */
#include "daemon/job.h"
#include "daemon/server.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <string.h>
#include <sys/socket.h>

static struct server server;
static struct session *session;
static struct prepared prepared;
static struct job job;
static struct push push;
static int client = -1;

/* There are no rings. */
void __wrap_ring_pool_forget(struct ring_pool *pool, uint64_t connection);

void __wrap_ring_pool_forget(struct ring_pool *pool, uint64_t connection)
{
    (void)pool, (void)connection;
}

/* libuv's first loop opens a pipe that stays: it is no test's. */
__attribute__((constructor)) static void open_what_stays(void)
{
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0) {
        uv_loop_close(&loop);
    }
}

/* Answers that do not leave settle their job: it stays, as if a device had something of it. */
static void close_all(void *arg)
{
    (void)arg;
    job.n_chunks = 1;
    job.session = NULL;
    session_close(session);
    uv_close((uv_handle_t *)&server.tick, NULL);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&server.loop), 0);
    close_fd(&client);
}

static void open_job(enum priority priority)
{
    int ends[2];

    memset(&server, 0, sizeof(server));
    server.devices.backend = "cpu";
    CHECK_EQ(uv_loop_init(&server.loop), 0);
    uv_timer_init(&server.loop, &server.tick);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client = ends[1];
    CHECK_EQ(session_create(&server, ends[0]), 0);
    session = server.sessions;
    check_at_end(close_all, NULL);
    prepared = (struct prepared){.devices = SCHEDULER_DEVICE(0)};
    job = (struct job){.id = 1 + random_below(1000),
                       .server = &server,
                       .session = session,
                       .user = session_user(session),
                       .prepared = &prepared,
                       .stop_seq = UINT64_MAX,
                       .flow = {.priority = priority, .rate = &prepared.rate}};
    job.flow.user = &job.user->time;
    push = (struct push){.job = &job, .n_records = 1, .piece_records = 1};
    push_lists_add(&job.lists, &push);
    push_lists_move(&job.lists, &push, PUSH_FILLING);
    job_accept(&job, &push);
}

static void check_leaves_as(enum priority priority)
{
    for (enum priority other = 0; other < PRIORITY_COUNT; other++) {
        CHECK(server.dirty_first[other] == (other == priority ? session : NULL));
    }
}

static void answer(void)
{
    struct failure failure;

    fail(&failure, STATUS_KERNEL_FAULT, NULL, "it had to");
    job_answer_push(&job, &push, &failure);
}

static void test_an_answer_has_the_priority_of_its_job(void)
{
    enum priority priority = random_below(2) == 0 ? PRIORITY_URGENT : PRIORITY_BULK;

    open_job(priority);
    answer();
    check_leaves_as(priority);
}

/* More than the share that its user has as urgent, say. */
static void test_what_ran_as_less_is_answered_as_less(void)
{
    open_job(PRIORITY_URGENT);
    push.ran_as = PRIORITY_NORMAL;
    answer();
    check_leaves_as(PRIORITY_NORMAL);
}

/* Its client may have read it while we still are in the call that sends it, and uses its credit. */
static void test_an_answer_of_a_push_in_a_ring_gives_its_credit_back(void)
{
    bool is_in_rings = random_below(2) == 0;

    open_job(PRIORITY_NORMAL);
    prepared.is_in_rings = is_in_rings;
    answer();
    CHECK_EQ(push.state, is_in_rings ? PUSH_FREE : PUSH_ANSWERED);
    CHECK(job.lists.free == (is_in_rings ? &push : NULL));
    CHECK_EQ(job.n_messages, 1);
}

static void test_the_end_of_a_job_has_its_priority(void)
{
    enum priority priority = random_below(2) == 0 ? PRIORITY_URGENT : PRIORITY_BULK;

    open_job(priority);
    job_say_done(&job);
    check_leaves_as(priority);
}

CHECK_MAIN(CHECK_TEST(test_an_answer_has_the_priority_of_its_job),
           CHECK_TEST(test_what_ran_as_less_is_answered_as_less),
           CHECK_TEST(test_an_answer_of_a_push_in_a_ring_gives_its_credit_back),
           CHECK_TEST(test_the_end_of_a_job_has_its_priority))
