/* Jobs' places in the scheduler: one that was to follow another, and what becomes of it. */
#include "daemon/job.h"
#include "daemon/server.h"
#include "daemon/user.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <stdlib.h>
#include <string.h>

#define ONE_DEVICE SCHEDULER_DEVICE(0)
#define DEVICES    (SCHEDULER_DEVICE(0) | SCHEDULER_DEVICE(1))

static struct server server;
static struct user user;
static struct prepared prepared;
static struct job first, second; /* is after the first */
static struct push push;         /* the second's */

static void free_all(void *arg)
{
    (void)arg;
    after_stop(&second.after);
    free(STEAL(push.failure));
}

static void make_job(struct job *job, enum job_state state)
{
    *job = (struct job){.id = 1 + random_below(1000),
                        .server = &server,
                        .user = &user,
                        .prepared = &prepared,
                        .state = state,
                        .stop_seq = UINT64_MAX,
                        .flow = {.devices = DEVICES, .user = &user.time, .rate = &prepared.rate}};
}

/* The second is queued for the device that has the last chunk of the first. */
static void make_follower(void)
{
    const struct worker_caps caps = {.bulk_bytes = 1 << 20, .bulk_chunks = 1, .n_threads = 1};
    struct after_node *const others[] = {&first.after};
    uint32_t n_records = 1 + random_below(1000);

    memset(&server, 0, sizeof(server));
    memset(&user, 0, sizeof(user));
    scheduler_init(&server.scheduler);
    scheduler_device_up(&server.scheduler, 0, &caps);
    prepared = (struct prepared){.devices = DEVICES, .chunk_most = 1000, .chunk_least = 1000};
    prepared.shape =
        (struct push_shape){.n_in = 1, .n_arrays = 2, .record_size = {4, 4}, .largest = 4};
    make_job(&first, JOB_CLOSED);
    make_job(&second, JOB_CLOSED);
    CHECK_EQ(after_wait(&second.after, others, 1), 0);
    check_at_end(free_all, NULL);
    second.n_pushed = 1;
    push = (struct push){
        .job = &second, .n_records = n_records, .piece_records = n_records, .n_rows = 1};
    push_lists_add(&second.lists, &push);
    push_lists_move(&second.lists, &push, PUSH_ACCEPTED);
    second.flow.devices = ONE_DEVICE;
    scheduler_add(&server.scheduler, &second.flow, 0);
}

/* What the first ends with is delivered while a socket is read: no job is settled then, and the
 * look that delivered it crashed when it went on to hand out work of the second. */
static void test_who_followed_a_job_that_failed_is_not_handed_out(void)
{
    struct scheduler_place place;
    struct failure failure;

    make_follower();
    server.is_aside = true;
    fail(&failure, STATUS_KERNEL_FAULT, NULL, "it had to");
    job_fail(&first, &failure, 0);
    job_note_end(&first);
    CHECK(server.released == &second);
    CHECK(scheduler_next(&server.scheduler, 1, &place) == &second.flow);
    CHECK_EQ(job_issue(&second, &place), 0);
    CHECK_EQ(second.n_chunks, 0);
    CHECK(scheduler_next(&server.scheduler, 1, &place) == NULL);
    CHECK_EQ(second.flow.devices, DEVICES);
}

/* Its later pushes were forecast as if it had that device alone. */
static void test_who_has_followed_may_go_anywhere_again(void)
{
    make_follower();
    push.n_released = push.n_records;
    job_queue(&second);
    CHECK(!second.flow.is_queued);
    CHECK_EQ(second.flow.devices, DEVICES);
}

CHECK_MAIN(CHECK_TEST(test_who_followed_a_job_that_failed_is_not_handed_out),
           CHECK_TEST(test_who_has_followed_may_go_anywhere_again))
