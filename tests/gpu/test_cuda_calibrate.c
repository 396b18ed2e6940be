/*
 * What a pipeline takes for small on devices of all kinds: that is moved by kernels, and what is
 * larger by the engines.  Over a runtime that needs no GPU (runtime.h), which says how long they
 * take.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#define LEAST (CUDA_SMALL / 8) /* the smallest that is tried */

extern const struct op_code op_copy, op_mix;

/* A device whose kernels and copies take 5 us and beside that, for each KiB, so long. */
static void set_device(uint64_t copy_ns, uint64_t host_ns)
{
    runtime_reset();
    runtime.task_ns = 5120;
    runtime.copy_ns = copy_ns;
    runtime.host_ns = host_ns;
}

/* Run it, with its calls noted; its bytes are right. */
static void run_alone(struct device_work *work)
{
    runtime.ns += WORK_AWAKE_NS; /* urgent work that was before is no reason to go step by step */
    runtime_forget();
    pipeline_run(work, 1);
}

static void check_copy(enum priority priority, uint32_t bytes, bool is_mapped)
{
    struct device_work work = pipeline_copy(priority, bytes / 2, 1);

    run_alone(&work);
    CHECK_EQ(runtime_count(CALL_COPY), is_mapped ? 0 : 2);
    CHECK_EQ(runtime_count(CALL_LAUNCH), 1);
    pipeline_check_launch(0, &op_copy, 1, is_mapped);
}

/* Of an op that is not streaming kernels move the arrays apart. */
static void check_mix(uint32_t n_records, bool is_staged)
{
    struct device_work work =
        pipeline_mix(PRIORITY_NORMAL, n_records, (struct mix_params){16, 1}, MIX_IN);

    run_alone(&work);
    CHECK_EQ(runtime_count(CALL_COPY), is_staged ? 0 : MIX_IN + LIMIT_OUT);
    CHECK_EQ(runtime_count(CALL_LAUNCH), is_staged ? 3 : 1);
}

static void check_small(uint32_t small)
{
    for (enum priority priority = PRIORITY_URGENT; priority < PRIORITY_COUNT; priority++) {
        check_copy(priority, small > 0 ? small : 2, small > 0);
        check_copy(priority, small + 2, false);
        if (small > 0) {
            check_copy(priority, 2 + 2 * (uint32_t)random_below(small / 2), true);
        }
    }
    check_mix(small > 0 ? small / 100 : 1, small > 0);
    check_mix(small / 80 + 1, false);
}

static void destroy(void)
{
    cuda_pipeline_destroy(pipeline);
    pipeline = NULL;
}

/* As on an H200: all that may be. */
static void test_two_copies_cost_more_than_the_link_does(void)
{
    set_device(20, 40);
    pipeline_create();
    check_small(CUDA_SMALL);
}

/* Then the kernel has something to gain when they are busy. */
static void test_both_ways_take_the_same(void)
{
    set_device(20, 80);
    pipeline_create();
    check_small(CUDA_SMALL);
}

/* What a kernel saves at the start it loses with each byte. */
static void test_engines_that_are_faster_from_some_size_on(void)
{
    set_device(20, 100);
    pipeline_create();
    check_small(CUDA_SMALL / 2);
}

static void test_engines_that_are_faster_at_any_size(void)
{
    set_device(20, 1000);
    pipeline_create();
    check_small(0);
}

static void test_any_device(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t small = CUDA_SMALL;

        set_device(random_below(100), random_below(1000));
        pipeline_create();
        while (small >= LEAST && runtime.host_ns * (small / 2048) >
                                     2 * (runtime.task_ns + runtime.copy_ns * (small / 2048))) {
            small /= 2;
        }
        check_small(small >= LEAST ? small : 0);
        destroy();
    }
}

/* The first time that a kernel reaches the host's memory says nothing of the others. */
static void test_a_cold_start(void)
{
    set_device(20, 40);
    runtime.cold_ns = 50000000;
    pipeline_create();
    CHECK_EQ(runtime.cold_ns, 0);
    check_small(CUDA_SMALL);
}

/* There is nothing to measure. */
static void test_no_calibration_without_the_hosts_memory(void)
{
    set_device(20, 40);
    runtime.sees_host = false;
    pipeline_create();
    check_small(0);
}

/* Each has its own. */
static void test_two_pipelines(void)
{
    struct cuda_pipeline *slow;

    set_device(20, 1000);
    pipeline_create();
    slow = pipeline;
    runtime.host_ns = 40;
    pipeline_create();
    check_small(CUDA_SMALL);
    destroy();
    pipeline = slow;
    check_small(0);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

/* Creating a pipeline fails with these words, and leaves nothing. */
static void check_refused(const char *words)
{
    struct cuda_trouble trouble = {0};

    runtime.is_prompt = true;
    CHECK_LT(cuda_pipeline_create(4, &pipeline, &trouble), 0);
    CHECK_HAS(trouble.failure.message, words);
    CHECK_EQ(runtime.n_allocated, 0);
    CHECK_EQ(runtime.n_events, 0);
    CHECK_EQ(runtime.n_streams, 0);
    CHECK_EQ(runtime.n_contexts, 0);
}

/* Launches that have nothing to do with it: every kernel once. */
static uint32_t count_warm_ups(void)
{
    uint32_t n;

    runtime_reset();
    runtime.is_prompt = true;
    runtime.sees_host = false;
    CHECK_EQ(cuda_pipeline_create(4, &pipeline, &(struct cuda_trouble){0}), 0);
    n = runtime_count(CALL_LAUNCH);
    destroy();
    return n;
}

static void test_calibrations_trouble_is_the_pipelines(void)
{
    const uint32_t n_warm_ups = count_warm_ups();

    for (uint32_t i = 0; i < 3; i++) {
        set_device(20, 40);
        runtime.launch_error = cudaErrorInvalidConfiguration;
        runtime.n_good_launches = n_warm_ups + i;
        check_refused("cudaErrorInvalidConfiguration");
        set_device(20, 40);
        runtime.copy_error = cudaErrorInvalidValue;
        runtime.n_good_copies = i;
        check_refused("cudaMemcpyAsync");
    }
    set_device(20, 40);
    runtime.record_error = cudaErrorInvalidResourceHandle;
    check_refused("cudaEventRecord");
}

CHECK_MAIN(CHECK_TEST(test_two_copies_cost_more_than_the_link_does),
           CHECK_TEST(test_both_ways_take_the_same),
           CHECK_TEST(test_engines_that_are_faster_from_some_size_on),
           CHECK_TEST(test_engines_that_are_faster_at_any_size), CHECK_TEST(test_any_device),
           CHECK_TEST(test_a_cold_start), CHECK_TEST(test_no_calibration_without_the_hosts_memory),
           CHECK_TEST(test_two_pipelines), CHECK_TEST(test_calibrations_trouble_is_the_pipelines))
