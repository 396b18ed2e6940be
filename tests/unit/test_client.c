/* The client library against a server that follows a script of oddities. */
#include "client/calls.h"
#include "proto/util.h"
#include "tests/unit/client_bench.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- jobs that succeed --------------------------------------------------------------------- */

static void test_a_stream_of_pushes(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(1000);
    open_job();
    CHECK_EQ(gpupipe_record_size(job, 0, 0), 4);
    CHECK_EQ(gpupipe_record_size(job, 1, 0), 4);
    CHECK_EQ(gpupipe_record_size(job, 0, 1), 0);
    CHECK_EQ(gpupipe_push_records(job), (1 << 20) / 4);
    CHECK_EQ(gpupipe_push_multiple(job), 1);
    CHECK_EQ(gpupipe_window(job), 3);
    CHECK_EQ(gpupipe_job_id(job), 41);
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

static void test_several_pushes_at_once(void)
{
    struct gpupipe_desc descs[5];

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(1000);
    open_job();
    for (int i = 0; i < 5; i++) {
        works[i].desc.job = job;
        descs[i] = works[i].desc;
    }
    CHECK_EQ(gpupipe_submit(gpupipe, descs, 0), 0);
    CHECK_EQ(gpupipe_submit(gpupipe, descs, 5), 3);
    CHECK_EQ(gpupipe_submit(gpupipe, descs + 3, 2), 0);
    for (int n_back = 0; n_back < 3; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    check_output(&works[2]);
    CHECK_EQ(gpupipe_submit(gpupipe, descs + 3, 2), 2);
    gpupipe_job_free(job);
    check_server();
}

static void test_pushes_without_records(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    check_at_end(free_works, NULL);
    for (int i = 0; i < N_PUSHES; i++) {
        prepare_work(&works[i], i % 3);
    }
    open_job();
    check_all_done();
}

/* Two jobs at a server that knows one: what stands behind a full window waits with it. */
static void test_a_full_window_keeps_the_order(void)
{
    struct gpupipe_desc descs[2];
    struct gpupipe_job *full;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 9};
    script.credit = 1;
    prepare_works(10);
    open_job();
    full = job;
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(gpupipe_job_open(&job, gpupipe, "fake", NULL, 0, NULL), 0);
    works[1].desc.job = full;
    works[2].desc.job = job;
    descs[0] = works[1].desc;
    descs[1] = works[2].desc;
    CHECK_EQ(gpupipe_submit(gpupipe, descs, 2), 0);
    check_server();
}

static void test_a_job_without_pushes(void)
{
    struct gpupipe_outcome outcome;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_works(1);
    open_job();
    CHECK_EQ(gpupipe_job_end(job), 0);
    check_error(submit(&works[0]), GPUPIPE_ERROR_SEQ, "input has ended");
    CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    CHECK(is_over(&outcome));
    CHECK_EQ(outcome.status, GPUPIPE_OK);
    check_error(submit(&works[0]), GPUPIPE_ERROR_SEQ, "input has ended");
    check_server();
}

static void test_a_reduction(void)
{
    struct gpupipe_outcome outcome;
    uint8_t fold = 0;

    script = (struct fake_script){FAKE_SCRIPT, .is_reduce = true};
    prepare_works(50000);
    open_job();
    CHECK(!is_over(&outcome));
    outcome = run_job();
    for (int i = 0; i < N_PUSHES; i++) {
        for (uint64_t k = 0; k < works[i].desc.in[0].size; k++) {
            fold ^= works[i].in[k];
        }
        CHECK_EQ(works[i].out[0], POISON);
    }
    CHECK_EQ(outcome.out[0].size, script.record_size);
    CHECK_EQ(*(const uint8_t *)outcome.out[0].data, fold);
    CHECK_EQ(outcome.out[1].size, 0);
    check_server();
}

/* ---- jobs that fail ------------------------------------------------------------------------ */

static void test_a_push_that_fails(void)
{
    struct gpupipe_outcome outcome;

    script = (struct fake_script){FAKE_SCRIPT};
    script.fail_seq = 4;
    prepare_works(50000);
    open_job();
    outcome = run_job();
    for (int i = 0; i < 4; i++) {
        check_output(&works[i]);
    }
    CHECK_EQ(works[4].status, GPUPIPE_ERROR_KERNEL_FAULT);
    CHECK_STR(works[4].message, "the script says so");
    CHECK_EQ(outcome.status, GPUPIPE_ERROR_KERNEL_FAULT);
    CHECK_STR(outcome.error->name, "KERNEL_FAULT");
    /* Pushes that were under way have met NOT_FOUND, and are told why the job had ended. */
    for (int i = 5; i < N_PUSHES; i++) {
        CHECK(!works[i].is_back || works[i].status == GPUPIPE_ERROR_KERNEL_FAULT);
    }
    works[0].is_back = false;
    check_error(submit(&works[0]), GPUPIPE_ERROR_KERNEL_FAULT, "the script says so");
    CHECK_EQ(call_ping(gpupipe), 0);
    check_server();
}

/* The pushes behind it are refused too, for their numbers, and all of them may come again. */
static void test_a_push_that_is_refused(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.refuse_seq = 1;
    prepare_works(1000);
    open_job();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(submit(&works[i]), 1);
    }
    for (int n_back = 0; n_back < 3; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    CHECK_EQ(works[1].status, GPUPIPE_ERROR_RANGE);
    CHECK_EQ(works[2].status, GPUPIPE_ERROR_SEQ);
    works[1].is_back = works[2].is_back = false;
    CHECK_EQ(submit(&works[1]), 1);
    CHECK_EQ(submit(&works[2]), 1);
    for (int n_back = 0; n_back < 2; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[1]);
    check_output(&works[2]);
    gpupipe_job_free(job);
    CHECK_EQ(call_ping(gpupipe), 0);
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
    CHECK_EQ(works[2].status, GPUPIPE_ERROR_INTERNAL);
    CHECK_EQ(works[2].out[works[2].desc.in[0].size], POISON);
    check_output(&works[1]);
    check_output(&works[3]);
    check_server();
}

static void test_a_cancelled_job_gives_everything_back(void)
{
    struct gpupipe_outcome outcome;
    int n_back = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(200000);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(submit(&works[1]), 1);
    CHECK_EQ(gpupipe_job_cancel(job), 0);
    CHECK_LT(submit(&works[2]), 0);
    while (!is_over(&outcome) || n_back < 2) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
        n_back += reap();
    }
    CHECK_EQ(outcome.status, GPUPIPE_ERROR_CANCELLED);
    gpupipe_job_free(job);
    check_server();
}

static void test_freeing_an_open_job_cancels_it(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(200000);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    gpupipe_job_free(job);
    CHECK_EQ(reap(), 0);
    CHECK_EQ(call_ping(gpupipe), 0);
    gpupipe_job_free(NULL);
    check_server();
}

/* ---- a server that dies -------------------------------------------------------------------- */

static void check_lost(void)
{
    struct gpupipe_outcome outcome = run_job();
    int n_failed = 0;

    CHECK_EQ(outcome.status, GPUPIPE_ERROR_LOST);
    CHECK_HAS(outcome.error->message, "closed the connection");
    for (int i = 0; i < N_PUSHES; i++) {
        if (works[i].is_back && works[i].status != GPUPIPE_OK) {
            CHECK_EQ(works[i].status, GPUPIPE_ERROR_LOST);
            CHECK_HAS(works[i].message, "closed the connection");
            n_failed++;
        }
    }
    CHECK_GE(n_failed, 1);
    check_error(call_ping(gpupipe), GPUPIPE_ERROR_LOST, "closed the connection");
    check_error(gpupipe_dispatch(gpupipe, -1), GPUPIPE_ERROR_LOST, "closed the connection");
    check_error(reap(), GPUPIPE_ERROR_LOST, "closed the connection");
    check_error(gpupipe_wait(gpupipe, -1), GPUPIPE_ERROR_LOST, "closed the connection");
    CHECK(is_readable());
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

/* All that it says is there then, and so is its end. */
static void await_server(void)
{
    CHECK_EQ(fake_server_end(server_pid), 0);
    server_pid = 0;
}

/* Such a job had nobody left to end it: to free it took for ever. */
static void test_a_job_opened_as_the_server_dies(void)
{
    struct gpupipe_job *late = NULL;

    script = (struct fake_script){FAKE_SCRIPT, .opens_job_and_dies = true};
    open_job();
    CHECK_EQ(gpupipe_job_end(job), 0);
    await_server();
    check_error(gpupipe_job_open(&late, gpupipe, "fake", NULL, 0, NULL), GPUPIPE_ERROR_LOST,
                "closed the connection");
    CHECK(late == NULL);
    gpupipe_job_free(job);
}

static void test_a_ring_opened_as_the_server_dies(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .opens_ring_and_dies = true};
    open_job();
    CHECK_EQ(gpupipe_job_end(job), 0);
    await_server();
    check_error(open_ring(), GPUPIPE_ERROR_LOST, "closed the connection");
    CHECK(ring == NULL);
}

static void test_a_closed_connection_gives_buffers_back(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_works(250000);
    open_job();
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(submit(&works[1]), 1);
    CHECK_EQ(gpupipe_dispatch(gpupipe, 0), 0);
    check_server();
    free(STEAL(works[0].in));
    free(STEAL(works[1].in));
}

/* ---- run ----------------------------------------------------------------------------------- */

static void test_a_run(void)
{
    struct gpupipe_completion completion;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_run();
    GPUPIPE_INIT(&completion);
    CHECK_EQ(run_work(&completion), GPUPIPE_OK);
    CHECK_EQ(completion.tag, 1000);
    CHECK_EQ(completion.priority, GPUPIPE_URGENT);
    CHECK_STR(completion.device, "cpu0");
    CHECK(completion.timing == NULL);
    works[0].is_back = true;
    works[0].n_records = completion.n_records;
    works[0].out_size = completion.out_size[0];
    check_output(&works[0]);
    CHECK_EQ(run_work(NULL), GPUPIPE_OK);
    CHECK_EQ(reap(), 0);
    check_server();
}

static void test_a_run_that_is_refused(void)
{
    struct gpupipe_completion completion;

    script = (struct fake_script){FAKE_SCRIPT};
    script.refuse_seq = 0;
    prepare_run();
    GPUPIPE_INIT(&completion);
    completion.tag = 77;
    check_error(run_work(&completion), GPUPIPE_ERROR_RANGE, "the script says so");
    CHECK_STR(gpupipe_last_error(gpupipe)->name, "RANGE");
    CHECK_STR(gpupipe_last_error(gpupipe)->field, "field");
    CHECK_EQ(completion.tag, 77);
    CHECK_EQ(call_ping(gpupipe), 0);
    check_server();
}

static void test_a_run_whose_output_is_too_large(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.oversize_seq = 0;
    prepare_run();
    check_error(run_work(NULL), GPUPIPE_ERROR_INTERNAL, "more than its room");
    CHECK_EQ(works[0].out[0], POISON);
    CHECK_EQ(call_ping(gpupipe), 0);
    check_server();
}

static void test_a_run_whose_server_dies(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.die_seq = 0;
    prepare_run();
    check_error(run_work(NULL), GPUPIPE_ERROR_LOST, "closed the connection");
    check_server();
}

CHECK_MAIN(CHECK_TEST(test_a_stream_of_pushes), CHECK_TEST(test_large_pushes_in_both_directions),
           CHECK_TEST(test_one_credit), CHECK_TEST(test_results_in_any_order),
           CHECK_TEST(test_results_before_their_requests_answers),
           CHECK_TEST(test_several_pushes_at_once), CHECK_TEST(test_pushes_without_records),
           CHECK_TEST(test_a_full_window_keeps_the_order), CHECK_TEST(test_a_job_without_pushes),
           CHECK_TEST(test_a_reduction), CHECK_TEST(test_a_push_that_fails),
           CHECK_TEST(test_a_push_that_is_refused), CHECK_TEST(test_a_result_larger_than_its_room),
           CHECK_TEST(test_a_cancelled_job_gives_everything_back),
           CHECK_TEST(test_freeing_an_open_job_cancels_it),
           CHECK_TEST(test_a_server_that_dies_between_messages),
           CHECK_TEST(test_a_server_that_dies_within_a_result),
           CHECK_TEST(test_a_job_opened_as_the_server_dies),
           CHECK_TEST(test_a_ring_opened_as_the_server_dies),
           CHECK_TEST(test_a_closed_connection_gives_buffers_back), CHECK_TEST(test_a_run),
           CHECK_TEST(test_a_run_that_is_refused), CHECK_TEST(test_a_run_whose_output_is_too_large),
           CHECK_TEST(test_a_run_whose_server_dies))
