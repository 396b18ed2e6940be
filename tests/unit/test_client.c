/* The client library against a server that follows a script of oddities. */
#include "client/gpupipe.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/fake_server.h"

#include <poll.h>
#include <sys/socket.h>

#define POISON 0xee

/* ---- a connection and a job that clean up after themselves ---------------------------------- */

static struct fake_script script;
static pid_t server_pid;
static struct gpupipe *gpupipe;
static struct gpupipe_job *job;

static void end_connection(void *arg)
{
    (void)arg;
    gpupipe_close(STEAL(gpupipe));
    if (server_pid != 0) {
        fake_server_end(server_pid);
        server_pid = 0;
    }
}

static int connect_to_script(struct failure *ret_failure)
{
    int fd;

    server_pid = fake_server_start(&script, &fd);
    check_at_end(end_connection, NULL);
    return gpupipe_open_fd(fd, "test", &gpupipe, ret_failure);
}

/* The server must have been content with us. */
static void check_server(void)
{
    gpupipe_close(STEAL(gpupipe));
    CHECK_EQ(fake_server_end(server_pid), 0);
    server_pid = 0;
}

static void open_job(void)
{
    struct msg_job_open request = {.op.name = "fake"};
    struct failure failure;

    if (connect_to_script(&failure) < 0 ||
        gpupipe_job_open(gpupipe, &request, &job, &failure) < 0) {
        CHECK_FAIL("cannot open a job: %s", failure.message);
    }
}

/* ---- pushes -------------------------------------------------------------------------------- */

#define N_PUSHES 16

struct work {
    struct gpupipe_push push;
    uint8_t *in, *out;
    bool is_back;
};

static struct work works[N_PUSHES];

static void free_works(void *arg)
{
    (void)arg;
    /* Registered before the connection: undone after it, which gives the buffers back. */
    for (int i = 0; i < N_PUSHES; i++) {
        free(works[i].in);
        free(works[i].out);
    }
    memset(works, 0, sizeof(works));
}

static void prepare_work(struct work *work, uint64_t n_records)
{
    uint64_t size = n_records * script.record_size;

    work->in = malloc(size);
    work->out = malloc(size + 1);
    random_bytes(work->in, size);
    memset(work->out, POISON, size + 1);
    work->push = (struct gpupipe_push){
        .n_records = n_records,
        .in = {{.data = work->in, .size = size}},
        .out = {{.data = work->out, .size = script.is_reduce ? 0 : size}},
    };
}

static void prepare_works(uint64_t most_records)
{
    check_at_end(free_works, NULL);
    for (int i = 0; i < N_PUSHES; i++) {
        prepare_work(&works[i], 1 + random_below(most_records));
    }
}

/* Push as credit allows, reap, end; until the job is over and everything is back. */
static void run_job(void)
{
    struct gpupipe_push *push;
    struct failure failure;
    int n_pushed = 0, n_back = 0;

    while (gpupipe_job_done(job) == NULL || n_back < n_pushed) {
        while (n_pushed < N_PUSHES && gpupipe_job_can_push(job)) {
            CHECK_EQ(gpupipe_job_push(job, &works[n_pushed].push, &failure), 0);
            n_pushed++;
        }
        if (n_pushed == N_PUSHES) {
            CHECK_EQ(gpupipe_job_end(job, &failure), 0);
        }
        while ((push = gpupipe_job_reap(job)) != NULL) {
            struct work *work = CONTAINER_OF(push, struct work, push);

            CHECK(!work->is_back);
            work->is_back = true;
            n_back++;
        }
        if (gpupipe_job_done(job) == NULL || n_back < n_pushed) {
            (void)gpupipe_dispatch(gpupipe, -1, &failure);
        }
    }
}

static void check_output(const struct work *work)
{
    uint64_t size = work->push.in[0].size;

    CHECK(work->is_back);
    CHECK(!work->push.answer.has_failure);
    CHECK_EQ(work->push.answer.n, work->push.n_records);
    CHECK_EQ(work->push.out_size[0], size);
    for (uint64_t i = 0; i < size; i++) {
        CHECK_EQ(work->out[i], work->in[i] ^ FAKE_XOR);
    }
    CHECK_EQ(work->out[size], POISON);
}

static void check_all_done(void)
{
    run_job();
    for (int i = 0; i < N_PUSHES; i++) {
        check_output(&works[i]);
    }
    CHECK_EQ(gpupipe_job_done(job)->state, JOB_DONE);
    CHECK_EQ(gpupipe_job_done(job)->pushes, N_PUSHES);
    CHECK_STR(works[0].push.answer.by.device, "cpu0");
    check_server();
}

/* ---- jobs that succeed --------------------------------------------------------------------- */

static void test_a_stream_of_pushes(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(1000);
    open_job();
    check_all_done();
}

/* The server reads nothing while it sends a megabyte, far more than a socket holds. */
static void test_large_pushes_in_both_directions(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(script.max_push / script.record_size);
    open_job();
    check_all_done();
}

static void test_one_credit(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .n_busy = 0};
    script.credit = 1;
    prepare_works(50000);
    open_job();
    check_all_done();
}

static void test_results_in_any_order(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(50000);
    open_job();
    check_all_done();
}

static void test_results_before_their_requests_answers(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 2, .is_result_first = true};
    prepare_works(50000);
    open_job();
    check_all_done();
}

static void test_a_job_without_pushes(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT};
    open_job();
    CHECK_EQ(gpupipe_job_end(job, &failure), 0);
    CHECK(!gpupipe_job_can_push(job));
    while (gpupipe_job_done(job) == NULL) {
        CHECK_EQ(gpupipe_dispatch(gpupipe, -1, &failure), 0);
    }
    CHECK_EQ(gpupipe_job_done(job)->state, JOB_DONE);
    check_server();
}

static void test_a_reduction(void)
{
    const uint8_t *result;
    uint64_t size = 0;
    uint8_t fold = 0;

    script = (struct fake_script){FAKE_SCRIPT, .is_reduce = true};
    prepare_works(50000);
    open_job();
    CHECK(gpupipe_job_result(job, 0, &size) == NULL);
    run_job();
    for (int i = 0; i < N_PUSHES; i++) {
        for (uint64_t k = 0; k < works[i].push.in[0].size; k++) {
            fold ^= works[i].in[k];
        }
        CHECK_EQ(works[i].out[0], POISON);
    }
    result = gpupipe_job_result(job, 0, &size);
    CHECK(result != NULL);
    CHECK_EQ(size, script.record_size);
    CHECK_EQ(result[0], fold);
    check_server();
}

/* ---- jobs that fail ------------------------------------------------------------------------ */

static void test_a_push_that_fails(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.fail_seq = 4;
    prepare_works(50000);
    open_job();
    run_job();
    for (int i = 0; i < 4; i++) {
        check_output(&works[i]);
    }
    CHECK(works[4].push.answer.has_failure);
    CHECK_EQ(works[4].push.answer.failure.status, STATUS_KERNEL_FAULT);
    CHECK_EQ(gpupipe_job_done(job)->state, JOB_FAILED);
    CHECK_EQ(gpupipe_job_done(job)->failure.status, STATUS_KERNEL_FAULT);
    CHECK(!gpupipe_is_lost(gpupipe));
    /* Pushes that were under way have met NOT_FOUND, and are told why the job had ended. */
    for (int i = 5; i < N_PUSHES; i++) {
        CHECK(!works[i].is_back || works[i].push.answer.failure.status == STATUS_KERNEL_FAULT);
    }
    check_server();
}

static void test_a_push_that_is_refused(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT};
    script.refuse_seq = 0;
    prepare_works(1000);
    open_job();
    CHECK_EQ(gpupipe_job_push(job, &works[0].push, &failure), 0);
    while (gpupipe_job_reap(job) == NULL) {
        CHECK_EQ(gpupipe_dispatch(gpupipe, -1, &failure), 0);
    }
    CHECK(works[0].push.answer.has_failure);
    CHECK_EQ(works[0].push.answer.failure.status, STATUS_RANGE);
    CHECK_STR(works[0].push.answer.failure.field, "field");
    gpupipe_job_free(job);
    CHECK_EQ(gpupipe_ping(gpupipe, &failure), 0);
    check_server();
}

/* It is drained, nothing is written past the buffer, and the stream stays in step. */
static void test_a_result_larger_than_its_room(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.oversize_seq = 2;
    prepare_works(50000);
    open_job();
    run_job();
    CHECK(works[2].push.answer.has_failure);
    CHECK_EQ(works[2].push.answer.failure.status, STATUS_INTERNAL);
    CHECK_EQ(works[2].out[works[2].push.in[0].size], POISON);
    check_output(&works[1]);
    check_output(&works[3]);
    check_server();
}

static void test_a_cancelled_job_gives_everything_back(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(200000);
    open_job();
    CHECK_EQ(gpupipe_job_push(job, &works[0].push, &failure), 0);
    CHECK_EQ(gpupipe_job_push(job, &works[1].push, &failure), 0);
    CHECK_EQ(gpupipe_job_cancel(job, &failure), 0);
    CHECK(!gpupipe_job_can_push(job));
    while (gpupipe_job_done(job) == NULL) {
        CHECK_EQ(gpupipe_dispatch(gpupipe, -1, &failure), 0);
    }
    CHECK_EQ(gpupipe_job_done(job)->state, JOB_CANCELLED);
    CHECK(gpupipe_job_reap(job) != NULL);
    CHECK(gpupipe_job_reap(job) != NULL);
    gpupipe_job_free(job);
    check_server();
}

static void test_freeing_an_open_job_cancels_it(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(200000);
    open_job();
    CHECK_EQ(gpupipe_job_push(job, &works[0].push, &failure), 0);
    gpupipe_job_free(job);
    CHECK_EQ(gpupipe_ping(gpupipe, &failure), 0);
    check_server();
}

static void test_pushing_without_credit_is_refused_here(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(1000);
    open_job();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(gpupipe_job_push(job, &works[i].push, &failure), 0);
    }
    CHECK(!gpupipe_job_can_push(job));
    CHECK_EQ(gpupipe_job_push(job, &works[3].push, &failure), -STATUS_NO_CREDIT);
    gpupipe_job_free(job);
    check_server();
}

/* ---- a server that dies -------------------------------------------------------------------- */

static void check_lost(void)
{
    struct failure failure;
    int n_failed = 0;

    run_job();
    CHECK(gpupipe_is_lost(gpupipe));
    CHECK_EQ(gpupipe_job_done(job)->state, JOB_FAILED);
    CHECK_HAS(gpupipe_job_done(job)->failure.message, "closed the connection");
    for (int i = 0; i < N_PUSHES; i++) {
        if (works[i].is_back && works[i].push.answer.has_failure) {
            CHECK_HAS(works[i].push.answer.failure.message, "closed the connection");
            n_failed++;
        }
    }
    CHECK_GE(n_failed, 1);
    CHECK_LT(gpupipe_ping(gpupipe, &failure), 0);
    CHECK_HAS(failure.message, "closed the connection");
    gpupipe_job_free(job);
    check_server();
}

static void test_a_server_that_dies_between_messages(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.die_seq = 5;
    prepare_works(250000);
    open_job();
    check_lost();
}

static void test_a_server_that_dies_within_a_result(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.die_within_seq = 5;
    prepare_works(250000);
    open_job();
    check_lost();
}

static void test_a_closed_connection_gives_buffers_back(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(250000);
    open_job();
    CHECK_EQ(gpupipe_job_push(job, &works[0].push, &failure), 0);
    CHECK_EQ(gpupipe_job_push(job, &works[1].push, &failure), 0);
    CHECK_EQ(gpupipe_dispatch(gpupipe, 0, &failure), 0);
    check_server();
    free(STEAL(works[0].in));
    free(STEAL(works[1].in));
}

/* ---- calls --------------------------------------------------------------------------------- */

static void test_hello_and_calls(void)
{
    struct msg_job_entry *entries = NULL;
    struct msg_stats stats;
    struct failure failure;
    uint32_t n_entries = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(&failure), 0);
    CHECK_STR(gpupipe_hello(gpupipe)->version, "9.9.9");
    CHECK_EQ(gpupipe_hello(gpupipe)->epoch, 1234567);
    CHECK_EQ(gpupipe_ping(gpupipe, &failure), 0);
    CHECK_EQ(gpupipe_job_list(gpupipe, true, &entries, &n_entries, &failure), 0);
    CHECK_EQ(n_entries, 1);
    CHECK_STR(entries[0].op, "fake");
    CHECK_EQ(entries[0].state, JOB_CLOSED);
    CHECK_EQ(entries[0].pushed, 5);
    free(entries);
    CHECK_EQ(gpupipe_stats(gpupipe, &stats, &failure), -STATUS_UNKNOWN_METHOD);
    CHECK_STR(failure.message, "the script says so");
    CHECK_STR(failure.field, "field");
    CHECK_EQ(gpupipe_ping(gpupipe, &failure), 0);
    check_server();
}

static void test_a_server_too_new_for_us(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .is_too_new = true};
    CHECK_EQ(connect_to_script(&failure), -STATUS_VERSION);
    CHECK_HAS(failure.message, "9.9.9");
    CHECK_EQ(fake_server_end(server_pid), 0);
    server_pid = 0;
}

static void test_a_server_that_talks_nonsense(void)
{
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .is_nonsense = true};
    CHECK_LT(connect_to_script(&failure), 0);
    CHECK_HAS(failure.message, "makes no sense");
    CHECK_EQ(fake_server_end(server_pid), 0);
    server_pid = 0;
}

static void test_busy_says_when_to_come_back(void)
{
    struct msg_job_open request = {.op.name = "fake"};
    struct failure failure;

    script = (struct fake_script){FAKE_SCRIPT, .n_busy = 1};
    CHECK_EQ(connect_to_script(&failure), 0);
    CHECK_EQ(gpupipe_job_open(gpupipe, &request, &job, &failure), -STATUS_BUSY);
    CHECK_EQ(failure.retry_ms, 1);
    CHECK_EQ(gpupipe_job_open(gpupipe, &request, &job, &failure), 0);
    gpupipe_job_free(job);
    check_server();
}

/* ---- the descriptor, and finding a daemon --------------------------------------------------- */

static void test_the_descriptor_tells_of_work(void)
{
    struct pollfd poll_fd;
    struct failure failure;
    int n_turns = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(200000);
    open_job();
    poll_fd = (struct pollfd){.fd = gpupipe_get_fd(gpupipe), .events = POLLIN};
    CHECK_EQ(gpupipe_job_push(job, &works[0].push, &failure), 0);
    while (gpupipe_job_reap(job) == NULL) {
        /* Would wait for ever if a push were not announced. */
        CHECK_EQ(poll(&poll_fd, 1, 20000), 1);
        CHECK_EQ(gpupipe_dispatch(gpupipe, 0, &failure), 0);
        n_turns++;
    }
    CHECK_GE(n_turns, 1);
    CHECK_EQ(poll(&poll_fd, 1, 0), 0);
    gpupipe_job_free(job);
    check_server();
}

static void test_where_daemons_are_looked_for(void)
{
    struct gpupipe_search search;
    struct gpupipe *none = NULL;
    struct failure failure;

    unsetenv("GPUPIPE_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/no/such/runtime", 1);
    CHECK_LT(gpupipe_open("/no/such/socket", "test", &search, &none, &failure), 0);
    CHECK_EQ(search.n_tried, 1);
    CHECK_STR(search.tried[0].path, "/no/such/socket");
    CHECK_STR(search.tried[0].why, "--socket");
    setenv("GPUPIPE_SOCKET", "/no/such/environment", 1);
    CHECK_LT(gpupipe_open(NULL, "test", &search, &none, &failure), 0);
    CHECK_EQ(search.n_tried, 1);
    CHECK_STR(search.tried[0].path, "/no/such/environment");
    setenv("GPUPIPE_SOCKET", "", 1);
    CHECK_EQ(setenv("XDG_RUNTIME_DIR", "not/absolute", 1), 0);
    gpupipe_open(NULL, "test", &search, &none, &failure);
    CHECK_STR(search.tried[0].path, "/run/gpupiped/rpc.sock");
    gpupipe_close(STEAL(none));
    setenv("XDG_RUNTIME_DIR", "/no/such/runtime", 1);
    gpupipe_open(NULL, "test", &search, &none, &failure);
    CHECK_STR(search.tried[0].path, "/no/such/runtime/gpupiped/rpc.sock");
    CHECK_EQ(search.n_tried, 2);
    CHECK_STR(search.tried[1].path, "/run/gpupiped/rpc.sock");
    gpupipe_close(none);
}

CHECK_MAIN(CHECK_TEST(test_a_stream_of_pushes), CHECK_TEST(test_large_pushes_in_both_directions),
           CHECK_TEST(test_one_credit), CHECK_TEST(test_results_in_any_order),
           CHECK_TEST(test_results_before_their_requests_answers),
           CHECK_TEST(test_a_job_without_pushes), CHECK_TEST(test_a_reduction),
           CHECK_TEST(test_a_push_that_fails), CHECK_TEST(test_a_push_that_is_refused),
           CHECK_TEST(test_a_result_larger_than_its_room),
           CHECK_TEST(test_a_cancelled_job_gives_everything_back),
           CHECK_TEST(test_freeing_an_open_job_cancels_it),
           CHECK_TEST(test_pushing_without_credit_is_refused_here),
           CHECK_TEST(test_a_server_that_dies_between_messages),
           CHECK_TEST(test_a_server_that_dies_within_a_result),
           CHECK_TEST(test_a_closed_connection_gives_buffers_back),
           CHECK_TEST(test_hello_and_calls), CHECK_TEST(test_a_server_too_new_for_us),
           CHECK_TEST(test_a_server_that_talks_nonsense),
           CHECK_TEST(test_busy_says_when_to_come_back),
           CHECK_TEST(test_the_descriptor_tells_of_work),
           CHECK_TEST(test_where_daemons_are_looked_for))
