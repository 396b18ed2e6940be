/*
 * Copies that have streams of their own: which launches have such, and what waits for what.  Over a
 * runtime that needs no GPU (runtime.h); that they are in the order of issue, and right, the tests
 * of chains and of any order show as well.
 */
#include "cuda/cuda_streams.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#include <string.h>

/* Large copies of this priority, after one that lasted so long. */
static void issue_after(struct device_work *works, uint32_t n, enum priority priority,
                        uint64_t task_ns)
{
    struct device_work first = pipeline_copy(priority, 4 * PIPELINE_SMALL, 1);

    runtime.task_ns = task_ns;
    pipeline_run(&first, 1);
    for (uint32_t i = 0; i < n; i++) {
        works[i] = pipeline_copy(priority, 4 * PIPELINE_SMALL - i, 1);
    }
    runtime_forget();
    pipeline_issue(works, n);
}

/* All go in on one stream, out on another, and no kernel stands behind another's. */
static void test_copies_have_streams_of_their_own(void)
{
    struct device_work works[CUDA_LARGE_SLOTS];

    pipeline_set_up();
    for (enum priority priority = PRIORITY_NORMAL; priority < PRIORITY_COUNT; priority++) {
        issue_after(works, ARRAY_SIZE(works), priority, 100);
        for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
            const struct call *in = runtime_call(CALL_COPY, 2 * i),
                              *out = runtime_call(CALL_COPY, 2 * i + 1),
                              *kernel = runtime_call(CALL_LAUNCH, i);

            CHECK_EQ(in->stream, runtime_call(CALL_COPY, 0)->stream);
            CHECK_EQ(out->stream, runtime_call(CALL_COPY, 1)->stream);
            CHECK(in->stream != out->stream && kernel->stream != in->stream &&
                  kernel->stream != out->stream);
            CHECK(i == 0 || kernel->stream != runtime_call(CALL_LAUNCH, i - 1)->stream);
        }
        runtime_run();
        pipeline_check_all(works, ARRAY_SIZE(works));
    }
}

static void check_one_stream(void)
{
    for (uint32_t i = 1; i < runtime.n_calls; i++) {
        CHECK_EQ(runtime.calls[i].stream, runtime.calls[0].stream);
    }
}

/* Copies of others would wait for the kernel, or for an urgent one's place among them. */
static void test_long_and_urgent_kernels_are_in_no_copys_way(void)
{
    struct device_work work;

    pipeline_set_up();
    issue_after(&work, 1, PRIORITY_BULK, 10000000);
    check_one_stream();
    runtime_run();
    pipeline_check_all(&work, 1);
    issue_after(&work, 1, PRIORITY_URGENT, 100);
    check_one_stream();
    runtime_run();
    pipeline_check_all(&work, 1);
}

/* Its input is there when the copy out has ended, not when the kernel has. */
static void test_what_follows_waits_for_the_copy_out(void)
{
    struct device_work works[2];

    pipeline_set_up();
    issue_after(works, 1, PRIORITY_BULK, 100);
    works[1] = pipeline_after(pipeline_copy(PRIORITY_BULK, 3 * PIPELINE_SMALL, 1), &works[0]);
    const struct CUstream_st *out = runtime_call(CALL_COPY, 1)->stream;
    runtime_forget();
    pipeline_issue(&works[1], 1);
    CHECK_EQ(runtime.calls[0].type, CALL_RECORD);
    CHECK_EQ(runtime.calls[0].stream, out);
    CHECK_EQ(runtime.calls[1].type, CALL_WAIT);
    CHECK_EQ(runtime.calls[1].stream, runtime_call(CALL_COPY, 0)->stream);
    runtime_run();
    pipeline_check_all(works, ARRAY_SIZE(works));
}

/* Both have ended when the pipeline looks: the follower began when the other had ended. */
static void test_what_follows_is_seen_done_last(void)
{
    struct device_completion completions[2];
    struct device_work works[3];

    pipeline_set_up();
    issue_after(works, 2, PRIORITY_BULK, 100);
    runtime_run();
    CHECK_EQ(pipeline_poll(completions, 1), 1); /* its stream is idle now */
    CHECK_EQ(completions[0].cookie, works[0].cookie);
    works[2] = pipeline_after(pipeline_copy(PRIORITY_BULK, 3 * PIPELINE_SMALL, 1), &works[1]);
    pipeline_issue(&works[2], 1);
    runtime_run();
    CHECK_EQ(pipeline_poll(completions, 1), 1);
    CHECK_EQ(completions[0].cookie, works[1].cookie);
    pipeline_check_all(&works[2], 1);
}

/* Large ones of one kind; but what is new to the device, too large for a slot, or small, has none.
 */
static void test_what_may_wait_has_none(void)
{
    struct device_work large, small;

    runtime_reset();
    runtime.sees_host = false;
    pipeline_create();
    issue_after(&large, 1, PRIORITY_NORMAL, 100);
    CHECK_EQ(runtime_count(CALL_WAIT), 2);
    runtime_run();
    pipeline_check_all(&large, 1);
    small = pipeline_copy(PRIORITY_NORMAL, 4096, 1);
    runtime_forget();
    pipeline_issue(&small, 1);
    check_one_stream();
    runtime_run();
    pipeline_check_all(&small, 1);
    large = pipeline_copy(PRIORITY_NORMAL, CUDA_LARGE_SIZE / 2 + 1, 1);
    runtime_forget();
    pipeline_issue(&large, 1);
    check_one_stream();
    runtime_run();
    pipeline_check_all(&large, 1);
    large = pipeline_copy(PRIORITY_NORMAL, 4 * PIPELINE_SMALL, 1);
    large.const_ids[0] = 1 + random_below(99);
    large.consts[0] = pipeline_array(64);
    runtime_forget();
    pipeline_issue(&large, 1);
    check_one_stream();
    runtime_run();
    pipeline_check_all(&large, 1);
}

/* While urgent work is likely, no step has more calls than a record and a wait. */
static void test_copies_in_steps(void)
{
    struct device_work work;

    pipeline_set_up();
    issue_after(&work, 1, PRIORITY_BULK, 100);
    runtime_run();
    pipeline_check_all(&work, 1);
    pipeline_do_urgent();
    pipeline_step = 2;
    runtime_forget();
    pipeline_issue(&work, 1);
    while (runtime_count(CALL_RECORD) < 3) {
        pipeline_check_none();
    }
    CHECK_EQ(runtime_count(CALL_WAIT), 2);
    runtime_run();
    runtime.ns += 100000;
    pipeline_check_all(&work, 1);
}

/* The pipeline's only work, of which some calls go wrong, while the device does what it was given
 * in any order: it is answered, or the pipeline is lost, and never before all of it has ended. */
static bool run_badly(struct device_work *work, uint32_t first, uint32_t second)
{
    struct device_completion completion;
    struct failure failure;
    uint32_t n_left = 1;
    int n = 0;

    work->issue_ns = runtime.ns;
    runtime_forget();
    runtime.bad_calls[0] = first;
    runtime.bad_calls[1] = second;
    cuda_pipeline_issue(pipeline, work, 1);
    bool was_bad = runtime.n_calls >= first;
    runtime_forget();
    memset(runtime.bad_calls, 0, sizeof(runtime.bad_calls));
    while (n == 0) {
        bool had_all = n_left == 0;

        n = cuda_pipeline_poll(pipeline, &completion, 1, &failure);
        CHECK(n != 0 || !had_all);
        CHECK(n <= 0 || n_left == 0);
        runtime_step(random_u64(), &n_left);
    }
    if (n > 0) {
        CHECK_EQ(completion.result.status == STATUS_OK, !was_bad);
    }
    if (n > 0 && !was_bad) {
        pipeline_check_bytes(work);
    }
    return n > 0;
}

static void test_no_call_that_fails_leaves_something_behind(void)
{
    enum { CALLS = 12 }; /* more than a launch has */
    struct cuda_trouble trouble;
    struct device_work work;

    pipeline_set_up();
    for (uint32_t first = 1; first <= CALLS; first++) {
        for (uint32_t second = first; second < first + 4; second++) {
            issue_after(&work, 1, PRIORITY_BULK, 100);
            runtime_run();
            pipeline_check_all(&work, 1);
            if (!run_badly(&work, first, second)) {
                cuda_pipeline_destroy(pipeline);
                runtime.is_prompt = true;
                CHECK_EQ(cuda_pipeline_create(CUDA_STREAMS, &pipeline, &trouble), 0);
                runtime.is_prompt = false;
                runtime_forget(); /* its calls were to streams that are no more */
            }
        }
    }
}

/* The copy that was issued before is behind what says that all has ended. */
static void test_a_refused_launch_waits_for_its_copies(void)
{
    static const enum call_type types[] = {
        CALL_COPY,   CALL_RECORD, CALL_WAIT,   CALL_LAUNCH, /* no */
        CALL_RECORD, CALL_WAIT,   CALL_RECORD, CALL_WAIT,   CALL_RECORD};
    struct device_completion completion;
    struct device_work work;

    pipeline_set_up();
    issue_after(&work, 1, PRIORITY_BULK, 100);
    const struct CUstream_st *out = runtime_call(CALL_COPY, 1)->stream;
    runtime_run();
    pipeline_check_all(&work, 1);
    runtime_forget();
    runtime.launch_error = cudaErrorInvalidConfiguration;
    pipeline_issue(&work, 1);
    CHECK_EQ(runtime.n_calls, ARRAY_SIZE(types));
    for (uint32_t i = 0; i < ARRAY_SIZE(types); i++) {
        CHECK_EQ(runtime.calls[i].type, types[i]);
    }
    CHECK_EQ(runtime.calls[4].stream, runtime.calls[0].stream);
    CHECK_EQ(runtime.calls[5].stream, out);
    CHECK_EQ(runtime.calls[8].stream, out);
    runtime_run();
    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    CHECK_EQ(completion.result.status, STATUS_INTERNAL);
    CHECK_HAS(completion.error.text, "cudaErrorInvalidConfiguration");
    pipeline_run(&work, 1);
}

CHECK_MAIN(CHECK_TEST(test_copies_have_streams_of_their_own),
           CHECK_TEST(test_long_and_urgent_kernels_are_in_no_copys_way),
           CHECK_TEST(test_what_follows_waits_for_the_copy_out),
           CHECK_TEST(test_what_follows_is_seen_done_last), CHECK_TEST(test_what_may_wait_has_none),
           CHECK_TEST(test_copies_in_steps),
           CHECK_TEST(test_no_call_that_fails_leaves_something_behind),
           CHECK_TEST(test_a_refused_launch_waits_for_its_copies))
