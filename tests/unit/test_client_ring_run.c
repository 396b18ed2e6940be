/* Runs of the client library that go through its own ring, against a server that follows a script
 * of oddities. */
#include "proto/util.h"
#include "tests/unit/client_bench.h"

#define MIB ((uint64_t)1 << 20)

static struct gpupipe_completion completion;

static void prepare_ring_run(uint64_t n_records)
{
    check_at_end(free_works, NULL);
    prepare_work(&works[0], n_records);
    CHECK_EQ(connect_to_script(), 0);
    is_ring_run = true;
    GPUPIPE_INIT(&completion);
}

static void check_run(const char *path)
{
    CHECK_EQ(run_work(&completion), GPUPIPE_OK);
    CHECK_STR(completion.path, path);
    CHECK_STR(completion.device, "cpu0");
    CHECK_EQ(completion.n_records, works[0].desc.n_records);
    CHECK_EQ(completion.tag, 1000);
    works[0].is_back = true;
    works[0].n_records = completion.n_records;
    works[0].out_size = completion.out_size[0];
    check_output(&works[0]);
    memset(works[0].out, POISON, works[0].desc.in[0].size);
}

/* Pieces are done in an order of chance, and the whole is larger than its ring. */
static void test_a_run_in_pieces(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .batch = 3};
    prepare_ring_run(10000000 + random_below(3000000));
    check_run("ring");
    CHECK_EQ(completion.timing->queue_ns, 1);
    CHECK_GE(completion.timing->compute_ns, 3 * 20);
    check_run("ring");
    check_server();
}

static void test_a_run_among_jobs(void)
{
    struct gpupipe_job_opts opts;

    script = (struct fake_script){FAKE_SCRIPT};
    prepare_ring_run(300000);
    CHECK_EQ(open_ring(), 0);
    GPUPIPE_INIT(&opts);
    opts.ring = ring;
    CHECK_EQ(open_job_with(&opts), 0);
    prepare_work(&works[1], 1000);
    CHECK_EQ(submit(&works[1]), 1);
    check_run("ring");
    while (!works[1].is_back) {
        CHECK_EQ(gpupipe_wait(gpupipe, -1), 1);
        CHECK_GE(reap(), 0);
    }
    check_output(&works[1]);
    check_server();
}

static void test_a_run_where_there_are_no_rings(void)
{
    script = (struct fake_script){FAKE_SCRIPT, .n_busy_rings = 1};
    script.max_push = 8 * MIB;
    prepare_ring_run(300000);
    check_run("inline");
    check_run("ring");
    check_server();
    script = (struct fake_script){FAKE_SCRIPT, .has_no_rings = true};
    script.max_push = 8 * MIB;
    free_works(NULL);
    prepare_ring_run(300000);
    check_run("inline");
    check_run("inline");
    check_server();
}

static void test_a_run_that_fails(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.fail_seq = 1;
    prepare_ring_run(1000000);
    check_error(run_work(&completion), GPUPIPE_ERROR_KERNEL_FAULT, "the script says so");
    check_server();
    script = (struct fake_script){FAKE_SCRIPT, .batch = 2};
    script.break_seq = 2;
    free_works(NULL);
    prepare_ring_run(1000000);
    check_error(run_work(&completion), GPUPIPE_ERROR_RING, "the script says so");
    check_server();
    script = (struct fake_script){FAKE_SCRIPT, .batch = 2};
    script.die_seq = 3;
    free_works(NULL);
    prepare_ring_run(1000000);
    check_error(run_work(&completion), GPUPIPE_ERROR_LOST, "closed the connection");
    check_server();
}

/* Refused words are those of a run as a message. */
static void test_a_run_that_is_refused(void)
{
    script = (struct fake_script){FAKE_SCRIPT};
    script.max_push = 8 * MIB;
    script.refuse_seq = 0;
    prepare_ring_run(1000000);
    check_error(run_work(&completion), GPUPIPE_ERROR_RANGE, "the script says so");
    check_server();
    script = (struct fake_script){FAKE_SCRIPT};
    script.lie_seq = 0;
    script.max_push = 8 * MIB;
    free_works(NULL);
    prepare_ring_run(1000000);
    check_run("inline");
    check_run("ring");
    check_server();
}

CHECK_MAIN(CHECK_TEST(test_a_run_in_pieces), CHECK_TEST(test_a_run_among_jobs),
           CHECK_TEST(test_a_run_where_there_are_no_rings), CHECK_TEST(test_a_run_that_fails),
           CHECK_TEST(test_a_run_that_is_refused))
