/*
 * What the forecast goes by: how much a job has for a device, which is kept up to date instead of
 * being summed up for each who asks.  The worker's queue is played: it is wrapped at link time.
 */
#include "daemon/job.h"
#include "daemon/server.h"
#include "daemon/user.h"
#include "daemon/worker_link.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <string.h>

#define N_PUSHES 24u
#define N_STEPS  400u

static const struct manifest_op op = {.name = "played"};
static struct server server;
static struct user user;
static struct prepared prepared;
static struct job job;
static struct push pushes[N_PUSHES];
static struct block block;
static struct chunk *at_device[WORK_ENTRIES];
static uint32_t n_at_device;
static uint64_t now;

/* ---- stand-ins ------------------------------------------------------------------------------ */

int __wrap_worker_link_submit(struct worker_link *link, enum priority priority,
                              const struct work_entry *entry, const struct work_row *rows,
                              void *chunk, const void *after);
void __wrap_worker_link_publish(struct worker_link *link);

int __wrap_worker_link_submit(struct worker_link *link, enum priority priority,
                              const struct work_entry *entry, const struct work_row *rows,
                              void *chunk, const void *after)
{
    (void)link, (void)priority, (void)entry, (void)rows, (void)after;
    if (n_at_device == WORK_ENTRIES || random_below(8) == 0) {
        return -EAGAIN;
    }
    at_device[n_at_device++] = chunk;
    return 0;
}

void __wrap_worker_link_publish(struct worker_link *link)
{
    (void)link;
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

/* Nobody is answered, and a message that never leaves keeps the job. */
static void make_job(void)
{
    const struct worker_caps caps = {.bulk_bytes = 1 << 20, .bulk_chunks = 64, .n_threads = 1};

    memset(&server, 0, sizeof(server));
    memset(&user, 0, sizeof(user));
    uv_loop_init(&server.loop);
    uv_timer_init(&server.loop, &server.tick);
    scheduler_init(&server.scheduler);
    scheduler_device_up(&server.scheduler, 0, &caps);
    prepared =
        (struct prepared){.op = &op,
                          .devices = SCHEDULER_DEVICE(0),
                          .chunk_most = 1 + random_below(1000),
                          .is_ordered = random_below(2) == 0,
                          .shape = {.n_in = 1, .n_arrays = 1, .record_size = {4}, .largest = 4}};
    job = (struct job){
        .id = 1,
        .server = &server,
        .user = &user,
        .prepared = &prepared,
        .stop_seq = UINT64_MAX,
        .n_messages = 1,
        .flow = {.devices = SCHEDULER_DEVICE(0), .user = &user.time, .rate = &prepared.rate}};
    n_at_device = 0;
    now = 1;
    for (uint32_t i = 0; i < N_PUSHES; i++) {
        pushes[i] = (struct push){.job = &job, .blocks = &block, .n_pieces = 1};
        push_lists_add(&job.lists, &pushes[i]);
    }
}

/* As it was done for each who asked. */
static uint64_t walk(void)
{
    uint64_t n_records = 0;

    for (const struct push *push = job.lists.first; push != NULL; push = push->next) {
        if (push->seq < job.stop_seq && !push->is_late) {
            n_records += push->n_records - push->n_released;
        }
    }
    return n_records;
}

static void accept_one(void)
{
    struct push *push = job_free_push(&job);

    if (push == NULL || job.state != JOB_OPEN) {
        return;
    }
    push_lists_move(&job.lists, push, PUSH_FILLING);
    push->n_records = random_below(3000);
    push->piece_records = (uint32_t)MAX(push->n_records, UINT64_C(1));
    push->deadline_at_ns = random_below(4) == 0 ? now + 1 + random_below(50) : 0;
    job_accept(&job, push);
    job_settle_push(&job, push);
}

static void issue_one(void)
{
    struct scheduler_place place;

    if (scheduler_next(&server.scheduler, now, &place) != NULL) {
        job_issue(&job, &place);
    }
}

static void end_one(bool is_good)
{
    const struct work_result result = {.state = RESULT_DONE,
                                       .status = is_good ? STATUS_OK : STATUS_KERNEL_FAULT};
    uint32_t i;

    if (n_at_device > 0) {
        i = random_below(n_at_device);
        struct chunk *chunk = at_device[i];

        at_device[i] = at_device[--n_at_device];
        job_chunk_done(chunk, &result, "");
    }
}

static void let_time_pass(void)
{
    now += random_below(20);
    if (job_note_late(&job, now)) {
        job_settle(&job);
    }
}

static void act(void)
{
    switch (random_below(4)) {
    case 0:
        accept_one();
        break;
    case 1:
        issue_one();
        break;
    case 2:
        end_one(random_below(200) > 0);
        break;
    default:
        let_time_pass();
        break;
    }
}

static void free_all(void *arg)
{
    (void)arg;
    while (n_at_device > 0) {
        end_one(true);
    }
    for (uint32_t i = 0; i < N_PUSHES; i++) {
        free(STEAL(pushes[i].failure));
    }
    uv_close((uv_handle_t *)&server.tick, NULL);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    uv_loop_close(&server.loop);
}

static void end_job(void)
{
    struct failure failure;

    switch (random_below(3)) {
    case 0:
        fail(&failure, STATUS_RING, NULL, "it had to");
        job_fail(&job, &failure, job.n_answered + random_below(N_PUSHES / 2));
        break;
    case 1:
        job_cancel(&job);
        break;
    default:
        job_orphan(&job);
        break;
    }
    CHECK_EQ(job.n_queued, walk());
    job_settle(&job);
}

/* To sum it up took 65 us where a job had 10,560 pushes, for each of a stream of requests of 70
 * bytes: they held up another client's ping for 61 ms. */
static void test_what_a_job_has_queued_is_what_its_pushes_have_left(void)
{
    uint64_t n_most = 0;

    check_at_end(free_all, NULL);
    make_job();
    for (uint32_t i = 0; i < N_STEPS; i++) {
        act();
        CHECK_EQ(job.n_queued, walk());
        n_most = MAX(n_most, job.n_queued);
    }
    CHECK_GT(n_most, 0);
    end_job();
    CHECK_EQ(job.n_queued, walk());
    for (uint32_t i = 0; i < N_STEPS; i++) {
        act();
        CHECK_EQ(job.n_queued, walk());
    }
}

/* One that failed with much still queued before the push that failed. */
static void test_what_is_before_the_first_failure_is_still_queued(void)
{
    struct failure failure;

    check_at_end(free_all, NULL);
    make_job();
    for (uint32_t i = 0; i < N_PUSHES; i++) {
        accept_one();
    }
    job_note_late(&job, now + 100); /* some of them */
    CHECK_EQ(job.n_queued, walk());
    fail(&failure, STATUS_RING, NULL, "it had to");
    job_fail(&job, &failure, N_PUSHES / 2);
    CHECK_GT(job.n_queued, 0);
    CHECK_EQ(job.n_queued, walk());
    job_fail(&job, &failure, N_PUSHES);
    CHECK_EQ(job.n_queued, walk());
    job_fail(&job, &failure, N_PUSHES / 4);
    CHECK_EQ(job.n_queued, walk());
}

CHECK_MAIN(CHECK_TEST(test_what_a_job_has_queued_is_what_its_pushes_have_left),
           CHECK_TEST(test_what_is_before_the_first_failure_is_still_queued))
