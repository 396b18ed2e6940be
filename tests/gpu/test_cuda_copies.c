/*
 * Copies that have streams of their own: which launches have such, and what waits for what.  Over a
 * runtime that needs no GPU (runtime.h); that they are in the order of issue, and right, the tests
 * of chains and of any order show as well.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

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
           CHECK_TEST(test_copies_in_steps), CHECK_TEST(test_a_refused_launch_waits_for_its_copies))
