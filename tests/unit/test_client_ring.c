/* Rings of the client library, against a server that follows a script of oddities. */
#include "client/calls.h"
#include "proto/ring.h"
#include "proto/util.h"
#include "tests/unit/client_bench.h"

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>

#define MIB ((uint64_t)1 << 20)

/* ---- memory --------------------------------------------------------------------------------- */

static long n_faults(void)
{
    struct rusage usage;

    CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* The first pushes do not meet its 1024 pages one by one: they are mapped when it opens. */
static void test_a_rings_pages_are_there(void)
{
    enum { SIZE = 4 << 20, PAGE = 4096 };

#ifdef __SANITIZE_THREAD__
    CHECK_SKIP("ThreadSanitizer's own pages are met one by one");
#endif
    script = (struct fake_script){FAKE_SCRIPT};
    CHECK_EQ(connect_to_script(), 0);
    CHECK_EQ(open_ring(), 0);
    volatile uint8_t *data = gpupipe_ring_alloc(ring, SIZE);
    CHECK(data != NULL);
    long before = n_faults();
    for (size_t at = 0; at < SIZE; at += PAGE) {
        data[at] = 1;
    }
    CHECK_LT(n_faults() - before, SIZE / PAGE / 4);
    check_server();
}

/* ---- jobs that succeed --------------------------------------------------------------------- */

static void test_a_stream_of_pushes(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    open_job_in_ring(20000);
    check_all_done();
}

/* Completions come in an order of chance, and the queues' indices wrap. */
static void test_completions_in_any_order(void)
{
    for (uint32_t batch = 2; batch <= 3; batch++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = batch, .is_bell_eager = batch == 3};
        open_job_in_ring(20000);
        check_all_done();
        ring = NULL;
        free_works(NULL);
    }
}

/* Completions that are found by looking, and those that come when the library has gone to sleep. */
static void test_urgent_pushes(void)
{
    for (uint32_t nap_us = 0; nap_us <= 300; nap_us += 100) {
        script = (struct fake_script){FAKE_SCRIPT, .is_awake = true, .nap_us = nap_us};
        open_job_in_ring(1000);
        check_all_done();
        ring = NULL;
        free_works(NULL);
    }
}

static void test_one_credit(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.credit = 1;
    open_job_in_ring(20000);
    check_all_done();
}

static void test_pushes_without_records(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    open_job_in_ring(100);
    for (int i = 0; i < N_PUSHES; i++) {
        prepare_work(&works[i], i % 3);
    }
    works[0].desc.in[0].data = NULL;
    works[0].desc.out[0].data = NULL;
    works[0].desc.out[0].size = 0;
    check_all_done();
}

static void test_a_job_that_reduces(void)
{
    struct gpupipe_outcome outcome;
    uint8_t wanted = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 2, .is_reduce = true};
    open_job_in_ring(20000);
    outcome = run_job();
    CHECK_EQ(outcome.status, GPUPIPE_OK);
    for (int i = 0; i < N_PUSHES; i++) {
        CHECK_EQ(works[i].status, GPUPIPE_OK);
        for (uint64_t k = 0; k < works[i].desc.in[0].size; k++) {
            wanted ^= works[i].in[k];
        }
    }
    CHECK_EQ(outcome.out[0].size, script.record_size);
    CHECK_EQ(*(const uint8_t *)outcome.out[0].data, wanted);
    check_server();
}

/* The server dies of a job.close that arrives before a descriptor of the job does. */
static void test_the_end_of_a_job_does_not_overtake_its_pushes(void)
{
    struct gpupipe_outcome outcome;
    int n_back = 0;

    for (int round = 0; round < 50; round++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
        open_job_in_ring(20000);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(submit(&works[i]), 1);
        }
        CHECK_EQ(gpupipe_job_end(job), 0);
        CHECK_EQ(submit(&works[3]), GPUPIPE_ERROR_SEQ);
        for (n_back = 0; !is_over(&outcome); n_back += reap()) {
            CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        }
        CHECK_EQ(n_back + reap(), 3);
        CHECK_EQ(outcome.status, GPUPIPE_OK);
        check_output(&works[2]);
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

static void test_a_job_is_not_over_before_its_pushes_are_back(void)
{
    struct gpupipe_outcome outcome;

    for (int round = 0; round < 20; round++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = 3, .is_done_first = true};
        script.fail_seq = 1;
        open_job_in_ring(20000);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(submit(&works[i]), 1);
        }
        while (!is_over(&outcome)) {
            CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        }
        CHECK_EQ(reap(), 3);
        CHECK_EQ(outcome.status, GPUPIPE_ERROR_KERNEL_FAULT);
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

/* ---- how programs wait ---------------------------------------------------------------------- */

static int submit_again(int *n_submitted, int n_in_all)
{
    int n = 0;

    for (int i = 0; i < N_PUSHES && *n_submitted < n_in_all; i++) {
        struct work *work = &works[i];

        if (work->desc.job == NULL || work->is_back) {
            work->is_back = false;
            if (submit(work) == 0) {
                work->desc.job = NULL;
                break;
            }
            (*n_submitted)++;
            n++;
        }
    }
    return n;
}

/* Would wait for ever if one bell were missed; what is called in between is left to chance. */
static void test_a_program_that_polls_misses_nothing(void)
{
    int n_submitted = 0, n_back = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 2};
    open_job_in_ring(100);
    while (n_back < 20000) {
        struct pollfd poll_fd = {.fd = gpupipe_get_fd(gpupipe), .events = POLLIN};
        int n = random_below(3) == 0 ? reap() : 0;

        if (random_below(3) == 0) {
            CHECK_GE(gpupipe_dispatch(gpupipe, 0), 0);
        }
        n += reap();
        n_back += n;
        submit_again(&n_submitted, 20000);
        if (n == 0 && n_back < n_submitted) {
            CHECK_EQ(poll(&poll_fd, 1, -1), 1);
            CHECK_GE(gpupipe_dispatch(gpupipe, 0), 0);
        }
    }
    CHECK_EQ(n_back, n_submitted);
    check_server();
}

/* Nothing but submit and reap: no call that receives. */
static void test_a_program_that_never_waits(void)
{
    int n_submitted = 0, n_back = 0;

    script = (struct fake_script){FAKE_SCRIPT};
    open_job_in_ring(100);
    while (n_back < 2000) {
        submit_again(&n_submitted, 2000);
        n_back += reap();
    }
    CHECK(is_readable()); /* it was rung once */
    CHECK_GE(gpupipe_dispatch(gpupipe, 0), 0);
    CHECK(!is_readable());
    check_server();
}

static void test_a_hundred_thousand_pushes_leave_no_memory_behind(void)
{
    int n_submitted = 0, n_back = 0;
    size_t used = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    open_job_in_ring(10);
    while (n_back < 100000) {
        if (n_back < 1000) {
            used = mallinfo2().uordblks;
        }
        if (submit_again(&n_submitted, 100000) == 0) {
            CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        }
        n_back += reap();
    }
    CHECK_LT(mallinfo2().uordblks, used + 16384);
    check_server();
}

static void test_two_rings_and_messages_at_once(void)
{
    struct gpupipe_ring *first;
    uint8_t *in, *out;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    open_job_in_ring(20000);
    first = ring;
    CHECK_EQ(open_ring(), 0);
    in = gpupipe_ring_alloc(ring, 4000);
    out = gpupipe_ring_alloc(ring, 4000);
    works[0].desc.job = job;
    works[1].desc.in[0].data = in;
    works[1].desc.out[0].data = out;
    check_error(submit(&works[1]), GPUPIPE_ERROR_MISUSE, "input 0, ");
    CHECK_EQ(submit(&works[0]), 1);
    CHECK_EQ(call_ping(gpupipe), 0);
    gpupipe_ring_close(ring);
    ring = first;
    for (int n_back = 0; n_back < 1; n_back += reap()) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
    }
    check_output(&works[0]);
    check_server();
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void test_a_refused_push(void)
{
    int n_back = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 2};
    script.refuse_seq = 1;
    open_job_in_ring(20000);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(submit(&works[i]), 1);
    }
    for (; n_back < 3; n_back += reap()) {
        CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
    }
    check_output(&works[0]);
    CHECK_EQ(works[1].status, GPUPIPE_ERROR_RANGE);
    CHECK_EQ(works[1].out_size, 0);
    CHECK_HAS(works[1].message, gpupipe_strerror(GPUPIPE_ERROR_RANGE));
    check_output(&works[2]);
    works[1].is_back = false;
    CHECK_EQ(submit(&works[1]), 1);
    for (n_back = 0; n_back < 1; n_back += reap()) {
        CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
    }
    check_output(&works[1]);
    check_server();
}

/* Each push that was taken is back once, whatever its end; reap() fails if it were twice. */
static void check_each_is_back(int status)
{
    struct gpupipe_outcome outcome;
    int n_submitted = 0, n_back = 0, n, n_failed = 0;

    while (n_submitted < N_PUSHES && submit(&works[n_submitted]) == 1) {
        n_submitted++;
    }
    CHECK_EQ(n_submitted, script.credit);
    while (n_back < n_submitted) {
        (void)gpupipe_wait(gpupipe, -1);
        n = reap();
        n_back += MAX(n, 0);
    }
    while (!is_over(&outcome)) {
        (void)gpupipe_wait(gpupipe, -1);
    }
    CHECK_EQ(outcome.status, status);
    for (int i = 0; i < n_submitted; i++) {
        CHECK(works[i].is_back);
        if (works[i].status == GPUPIPE_OK) {
            check_output(&works[i]);
        } else {
            CHECK_EQ(works[i].status, status);
            n_failed++;
        }
    }
    CHECK_GT(n_failed, 0);
    works[N_PUSHES - 1].desc.job = job;
    CHECK_EQ(submit(&works[N_PUSHES - 1]), status);
}

static void test_a_push_that_fails_ends_its_job(void)
{
    for (uint32_t batch = 1; batch <= 3; batch++) {
        struct gpupipe_outcome outcome;
        int n_back;

        script = (struct fake_script){FAKE_SCRIPT, .batch = batch};
        script.fail_seq = 2;
        open_job_in_ring(20000);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(submit(&works[i]), 1);
        }
        for (n_back = 0; n_back < 3; n_back += reap()) {
            CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        }
        while (!is_over(&outcome)) {
            CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
        }
        CHECK_EQ(works[2].status, GPUPIPE_ERROR_KERNEL_FAULT);
        check_output(&works[0]);
        CHECK_EQ(outcome.status, GPUPIPE_ERROR_KERNEL_FAULT);
        check_error(submit(&works[3]), GPUPIPE_ERROR_KERNEL_FAULT, "the script says so");
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

static void test_a_ring_that_the_daemon_closes(void)
{
    for (int64_t break_seq = 0; break_seq < 6; break_seq++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = 4};
        script.credit = 6;
        script.break_seq = break_seq;
        open_job_in_ring(20000);
        check_each_is_back(GPUPIPE_ERROR_RING);
        CHECK(gpupipe_ring_alloc(ring, 64) == NULL);
        check_error(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_RING, "the script breaks");
        gpupipe_job_free(job);
        gpupipe_ring_close(ring);
        CHECK_EQ(open_ring(), 0);
        CHECK(gpupipe_ring_alloc(ring, 64) != NULL);
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

/* The job had ended, and job.done had not come: "there is no job" was all that its client was told.
 */
static void test_a_ring_closed_under_a_last_push_leaves_its_jobs_reason(void)
{
    struct gpupipe_outcome outcome;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3, .is_done_late = true};
    script.break_seq = 2;
    open_job_in_ring(20000);
    works[2].desc.is_last = 1;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(submit(&works[i]), 1);
    }
    while (!is_over(&outcome)) {
        CHECK_GE(gpupipe_wait(gpupipe, -1), 0);
    }
    CHECK_EQ(reap(), 3);
    CHECK_EQ(outcome.status, GPUPIPE_ERROR_RING);
    CHECK_HAS(outcome.error->message, "the script says so");
    gpupipe_job_free(job);
    gpupipe_ring_close(STEAL(ring));
    check_server();
}

static void test_a_completion_of_no_push(void)
{
    int n_back = 0, n;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    script.lie_seq = 1;
    open_job_in_ring(20000);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(submit(&works[i]), 1);
    }
    while (n_back < 3) {
        (void)gpupipe_wait(gpupipe, -1);
        n = reap();
        n_back += MAX(n, 0);
    }
    CHECK_EQ(works[1].status, GPUPIPE_ERROR_RING);
    CHECK_HAS(works[1].message, "answers no push");
    check_error(submit(&works[3]), GPUPIPE_ERROR_RING, "answers no push");
    gpupipe_job_free(job);
    gpupipe_ring_close(ring);
    check_server();
}

/* A daemon that has met its end empties the rings: what the client finds there was "broken". */
static void test_a_ring_emptied_with_its_connection_is_lost(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 1, .empties_ring = true};
    script.credit = 5;
    script.die_seq = 3;
    open_job_in_ring(20000);
    check_each_is_back(GPUPIPE_ERROR_LOST);
    gpupipe_ring_close(STEAL(ring));
    gpupipe_job_free(job);
    check_server();
    free_works(NULL);
}

/* Likewise for a program that never waits. */
static void test_a_ring_emptied_under_a_program_that_only_reaps(void)
{
    int n_back = 0, n_submitted = 0;

    script = (struct fake_script){FAKE_SCRIPT, .batch = 1, .empties_ring = true};
    script.credit = 5;
    script.die_seq = 3;
    open_job_in_ring(20000);
    while (n_submitted < 5) {
        CHECK_EQ(submit(&works[n_submitted++]), 1);
    }
    while (n_back < n_submitted) {
        n_back += MAX(reap(), 0);
    }
    CHECK_EQ(works[4].status, GPUPIPE_ERROR_LOST);
    gpupipe_ring_close(STEAL(ring));
    gpupipe_job_free(job);
    check_server();
    free_works(NULL);
}

static void test_a_lost_connection(void)
{
    for (int64_t die_seq = 0; die_seq < 5; die_seq++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = 2};
        script.credit = 5;
        script.die_seq = die_seq;
        open_job_in_ring(20000);
        check_each_is_back(GPUPIPE_ERROR_LOST);
        CHECK(gpupipe_ring_alloc(ring, 64) == NULL);
        check_error(gpupipe_last_error(gpupipe)->status, GPUPIPE_ERROR_LOST, "closed the");
        gpupipe_ring_free(ring, works[0].in);
        gpupipe_ring_close(ring);
        gpupipe_job_free(job);
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

/* With pushes under way, in every order. */
static void test_everything_can_be_closed_at_once(void)
{
    for (int way = 0; way < 3; way++) {
        script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
        open_job_in_ring(20000);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(submit(&works[i]), 1);
        }
        if (way == 1) {
            gpupipe_ring_close(STEAL(ring));
            CHECK_EQ(reap(), 3);
            check_error(submit(&works[3]), GPUPIPE_ERROR_MISUSE, "ring was closed");
        } else if (way == 2) {
            gpupipe_job_free(job);
            CHECK_EQ(reap(), 0);
        }
        check_server();
        ring = NULL;
        free_works(NULL);
    }
}

CHECK_MAIN(CHECK_TEST(test_a_rings_pages_are_there), CHECK_TEST(test_a_stream_of_pushes),
           CHECK_TEST(test_completions_in_any_order), CHECK_TEST(test_urgent_pushes),
           CHECK_TEST(test_one_credit), CHECK_TEST(test_pushes_without_records),
           CHECK_TEST(test_a_job_that_reduces),
           CHECK_TEST(test_the_end_of_a_job_does_not_overtake_its_pushes),
           CHECK_TEST(test_a_job_is_not_over_before_its_pushes_are_back),
           CHECK_TEST(test_a_program_that_polls_misses_nothing),
           CHECK_TEST(test_a_program_that_never_waits),
           CHECK_TEST(test_a_hundred_thousand_pushes_leave_no_memory_behind),
           CHECK_TEST(test_two_rings_and_messages_at_once), CHECK_TEST(test_a_refused_push),
           CHECK_TEST(test_a_push_that_fails_ends_its_job),
           CHECK_TEST(test_a_ring_that_the_daemon_closes),
           CHECK_TEST(test_a_ring_closed_under_a_last_push_leaves_its_jobs_reason),
           CHECK_TEST(test_a_completion_of_no_push),
           CHECK_TEST(test_a_ring_emptied_with_its_connection_is_lost),
           CHECK_TEST(test_a_ring_emptied_under_a_program_that_only_reaps),
           CHECK_TEST(test_a_lost_connection), CHECK_TEST(test_everything_can_be_closed_at_once))
