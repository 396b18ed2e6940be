/*
 * What the pipeline asks of CUDA for works of all shapes, in which order, and what it makes of the
 * answers: over a runtime of its own (runtime.h), so no GPU is needed.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#include <string.h>

#define DOUBT_NS 1000000u /* after so long CUDA is asked */

extern const struct op_code op_copy, op_mix, op_sum;

/* ---- the ways of a launch ------------------------------------------------------------------- */

/* One call, and none to see that it is done. */
static void test_mapped(void)
{
    struct device_work work =
        pipeline_copy(PRIORITY_URGENT, 1 + (uint32_t)random_below(PIPELINE_SMALL), 1);
    struct device_completion completion;

    pipeline_set_up();
    pipeline_issue(&work, 1);
    pipeline_check_none();
    runtime.ns += 5000;
    runtime_run();
    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    pipeline_check_good(&work, &completion);
    CHECK_EQ(completion.result.end_ns - completion.result.issue_ns, 5000);
    CHECK_EQ(completion.result.device_ns, 5000);
    CHECK_EQ(runtime.n_calls, 1);
    pipeline_check_launch(0, &op_copy, 1, true);
}

/* Four bytes for each thread. */
static void check_shape(uint32_t size, uint32_t n_blocks, uint32_t n_threads)
{
    struct device_work work = pipeline_copy(PRIORITY_URGENT, 1, size);

    runtime_forget();
    pipeline_run(&work, 1);
    CHECK_EQ(runtime_call(CALL_LAUNCH, 0)->n_blocks, n_blocks);
    CHECK_EQ(runtime_call(CALL_LAUNCH, 0)->n_threads, n_threads);
}

static void test_what_fits_one_block_is_one(void)
{
    pipeline_set_up();
    check_shape(1, 1, 32);
    check_shape(4096, 1, 1024);
    check_shape(4097, 5, 256);
}

static void test_a_block_of_fewer_threads(void)
{
    runtime_reset();
    runtime.most_threads = 640;
    pipeline_create();
    check_shape(2048, 1, 512);
    check_shape(4096, 4, 256);
}

/* An op that is not streaming: all arrays there are, of any size, in and out by kernels. */
static void test_staged(void)
{
    pipeline_set_up();
    for (uint32_t missing = 0; missing <= MIX_IN; missing++) {
        const struct mix_params params = {1 + (uint32_t)random_below(40), (uint32_t)random_u64()};
        struct device_work works[3];

        for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
            works[i] =
                pipeline_mix(PRIORITY_URGENT, 1 + (uint32_t)random_below(999), params, missing);
        }
        runtime_forget();
        pipeline_run(works, ARRAY_SIZE(works));
        CHECK_EQ(runtime.n_calls, 3);
        pipeline_check_launch(0, &op_copy, ARRAY_SIZE(works) * (missing < MIX_IN ? 2 : 3), false);
        pipeline_check_launch(1, &op_mix, ARRAY_SIZE(works), false);
        pipeline_check_launch(2, &op_copy, ARRAY_SIZE(works) * LIMIT_OUT, true);
    }
}

/* The op has worked on copies: what it saw was not the client's memory. */
static void test_staged_apart(void)
{
    struct device_work work = pipeline_mix(PRIORITY_NORMAL, 9, (struct mix_params){3, 4}, MIX_IN);

    pipeline_set_up();
    pipeline_issue(&work, 1);
    runtime_run();
    for (uint32_t i = 0; i < MIX_IN; i++) {
        CHECK(mix_chunk.in[i] != NULL && mix_chunk.in[i] != work.in[i].base);
    }
    CHECK(mix_chunk.out[0] != work.out[0].base && mix_chunk.out[1] != work.out[1].base);
    pipeline_check_all(&work, 1);
}

/* Many partials are moved, a few are read where they lie; the first fold is none. */
static void test_partials(void)
{
    static const uint32_t counts[] = {1, 8, 9, 1000};

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++) {
        const uint32_t size = op_sum.manifest->partial_size, n = counts[i];
        struct device_work work = pipeline_work(&op_sum, PRIORITY_URGENT, n);
        struct device_completion completion;
        uint8_t expected[MANIFEST_PARTIAL_SIZE];

        work.kind = WORK_MERGE;
        work.in[1] =
            (struct device_array){.base = random_new_floats(n * size / 4), .size = n * size};
        work.out[0] = pipeline_array(size);
        op_sum.merge(work.params, NULL, work.in[1].base, n, expected);
        runtime_forget();
        pipeline_issue(&work, 1);
        runtime_run();
        CHECK_EQ(pipeline_poll(&completion, 1), 1);
        CHECK_EQ(completion.cookie, work.cookie);
        CHECK_MEM(work.out[0].base, expected, size);
        CHECK_EQ(runtime.n_calls, n <= 8 ? 1 : 3);
    }
}

static void test_copied(void)
{
    struct device_work works[2];

    pipeline_set_up();
    works[0] = pipeline_copy(PRIORITY_URGENT, PIPELINE_SMALL, 1);
    pipeline_run(works, 1);
    CHECK_EQ(runtime.n_calls, 1);
    works[1] = pipeline_copy(PRIORITY_URGENT, PIPELINE_SMALL + 1, 1);
    runtime_forget();
    pipeline_issue(&works[1], 1);
    pipeline_check_copied();
    pipeline_check_launch(0, &op_copy, 1, false);
    pipeline_check_none();
    runtime_run();
    pipeline_check_all(&works[1], 1);
    CHECK_EQ(runtime_count(CALL_ASK_EVENT), 2);
}

/* Where kernels do not find the host's memory, everything is copied. */
static void test_device_without_the_hosts_memory(void)
{
    struct device_work works[] = {
        pipeline_copy(PRIORITY_URGENT, 100, 1),
        pipeline_mix(PRIORITY_URGENT, 100, (struct mix_params){1, 2}, 0),
    };

    runtime_reset();
    runtime.sees_host = false;
    pipeline_create();
    pipeline_issue(&works[0], 1);
    pipeline_check_copied();
    pipeline_issue(&works[1], 1);
    runtime_run();
    pipeline_check_all(works, ARRAY_SIZE(works));
}

/* What writes nothing has nothing to show for its end but the event. */
static void test_nothing(void)
{
    struct device_work works[] = {
        pipeline_copy(PRIORITY_URGENT, 0, 1),
        pipeline_mix(PRIORITY_URGENT, 0, (struct mix_params){1, 2}, MIX_IN),
    };

    pipeline_set_up();
    pipeline_run(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime_count(CALL_RECORD), 2);
    CHECK_EQ(runtime_count(CALL_COPY), 0);
}

/* An array that no slot holds has memory of its own, for as long as its launch. */
static void test_large(void)
{
    struct device_work work = pipeline_copy(PRIORITY_NORMAL, CUDA_LARGE_SIZE / 2 + 1, 1);
    uint32_t n_allocated;

    pipeline_set_up();
    n_allocated = runtime.n_allocated;
    pipeline_issue(&work, 1);
    CHECK_EQ(runtime.n_allocated, n_allocated + 1);
    runtime_run();
    pipeline_check_all(&work, 1);
    CHECK_EQ(runtime.n_allocated, n_allocated);
}

/* ---- works together ------------------------------------------------------------------------- */

static void test_shared_launches(void)
{
    struct device_work works[CUDA_WORKS + 8];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_copy(PRIORITY_URGENT, 1 + (uint32_t)random_below(500), 3);
    }
    pipeline_run(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime.n_calls, 2);
    pipeline_check_launch(0, &op_copy, CUDA_WORKS, true);
    pipeline_check_launch(1, &op_copy, 8, true);
}

/* In order of issue within a launch, some at a time. */
static void test_order(void)
{
    struct device_work works[CUDA_WORKS];
    struct device_completion completions[CUDA_WORKS];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_copy(PRIORITY_NORMAL, 1 + (uint32_t)random_below(500), 1);
    }
    pipeline_issue(works, ARRAY_SIZE(works));
    runtime_run();
    for (uint32_t i = 0; i < ARRAY_SIZE(works);) {
        uint32_t n = pipeline_poll(completions, 1 + (uint32_t)random_below(5));

        for (uint32_t k = 0; k < n; k++, i++) {
            pipeline_check_good(&works[i], &completions[k]);
        }
        CHECK_EQ(cuda_pipeline_room(pipeline, PRIORITY_NORMAL),
                 PIPELINE_MOST - ARRAY_SIZE(works) + i);
    }
}

/* Other parameters, another op or other constants are another launch. */
static void test_launches_apart(void)
{
    const struct mix_params params = {5, 6};
    struct device_work works[] = {
        pipeline_copy(PRIORITY_URGENT, 10, 1),
        pipeline_copy(PRIORITY_URGENT, 10, 2),
        pipeline_mix(PRIORITY_URGENT, 10, params, MIX_IN),
        pipeline_mix(PRIORITY_URGENT, 10, params, MIX_IN),
        pipeline_mix(PRIORITY_URGENT, 10, params, MIX_IN),
    };

    pipeline_set_up();
    for (uint32_t i = 2; i < ARRAY_SIZE(works); i++) {
        works[i].const_ids[0] = i < 4 ? 1 : 2;
        works[i].consts[0] = i == 3 ? works[2].consts[0] : pipeline_array(100);
    }
    pipeline_run(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime_count(CALL_LAUNCH), 1 + 1 + 3 + 3);
    pipeline_check_launch(3, &op_mix, 2, false);
    pipeline_check_launch(6, &op_mix, 1, false);
}

/* Launches behind each other on the streams, and more than there are slots. */
static void test_more_launches_than_slots(void)
{
    struct device_work works[3 * CUDA_SLOTS];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_copy(PRIORITY_URGENT, 10, 1 + i);
    }
    pipeline_issue(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime.n_calls, CUDA_SLOTS);
    runtime_run();
    pipeline_check_all(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime.n_calls, ARRAY_SIZE(works));
}

/* Large works share a launch while they are too narrow for the device. */
static void test_narrow(void)
{
    struct device_work works[5];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_mix(PRIORITY_BULK, 10, (struct mix_params){30001, 1}, MIX_IN);
    }
    pipeline_run(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime_count(CALL_LAUNCH), 1);
    pipeline_check_launch(0, &op_mix, ARRAY_SIZE(works), false);
}

/* Stages are measured between events, whatever the way, and shared. */
static void test_timed(void)
{
    struct device_work works[2];
    struct device_completion completions[2];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_copy(PRIORITY_URGENT, 50, 1);
        works[i].is_timed = i == 1;
    }
    pipeline_issue(works, ARRAY_SIZE(works));
    CHECK_EQ(runtime_count(CALL_LAUNCH), 1);
    CHECK_EQ(runtime_count(CALL_RECORD), CUDA_STAGES + 2);
    pipeline_check_launch(0, &op_copy, 2, false);
    runtime.task_ns = 2000;
    runtime_run();
    CHECK_EQ(pipeline_poll(completions, 2), 2);
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        pipeline_check_good(&works[i], &completions[i]);
        CHECK_EQ(completions[i].result.compute_ns, 1000);
        CHECK_EQ(completions[i].result.in_ns + completions[i].result.out_ns, 0);
    }
}

/* ---- after other work ----------------------------------------------------------------------- */

/*
 * Chains whose works read what the one before wrote, of each priority and way, all of them issued
 * before the device does anything: each is right, with no call that a work alone would not have;
 * but behind one whose copies have streams of their own, which has two waits, there is a third.
 */
static void test_chains(void)
{
    enum { N = 5 };
    const uint32_t sizes[] = {1 + (uint32_t)random_below(999), PIPELINE_SMALL + 1};

    pipeline_set_up();
    for (int priority = PRIORITY_BULK; priority >= PRIORITY_URGENT; priority--) {
        for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            /* Bulk was the first, and its pace unknown. */
            const uint32_t n_waits = priority == PRIORITY_NORMAL && i == 1 ? 3 : 0;
            struct device_work chain[N];

            for (uint32_t w = 0; w < N; w++) {
                chain[w] = pipeline_copy((enum priority)priority, sizes[i], 1);
                chain[w] = w == 0 ? chain[w] : pipeline_after(chain[w], &chain[w - 1]);
            }
            runtime_forget();
            pipeline_run(chain, N);
            CHECK_MEM(chain[N - 1].out[0].base, chain[0].in[0].base, sizes[i]);
            CHECK_EQ(runtime_count(CALL_LAUNCH), N);
            CHECK_EQ(runtime_count(CALL_WAIT), n_waits);
            CHECK_EQ(runtime_count(CALL_RECORD), runtime_count(CALL_COPY) / 2 + n_waits);
        }
    }
}

/* More works in a chain than there are slots, of an op that is staged. */
static void test_a_long_chain(void)
{
    const struct mix_params params = {9, (uint32_t)random_u64()};
    struct device_work chain[3 * CUDA_SLOTS];

    pipeline_set_up();
    for (uint32_t w = 0; w < ARRAY_SIZE(chain); w++) {
        chain[w] = pipeline_mix(PRIORITY_URGENT, 7, params, MIX_IN);
        chain[w] = w == 0 ? chain[w] : pipeline_after(chain[w], &chain[w - 1]);
    }
    pipeline_run(chain, ARRAY_SIZE(chain));
}

/* They stand behind the one that they wait for, and others do not stand behind them. */
static void test_a_chain_is_in_nobodys_way(void)
{
    struct device_work works[4];

    pipeline_set_up();
    for (uint32_t w = 0; w < ARRAY_SIZE(works); w++) {
        works[w] = pipeline_copy(PRIORITY_URGENT, 100 + w, 1 + w);
    }
    works[1] = pipeline_after(pipeline_copy(PRIORITY_URGENT, 100, 1), &works[0]);
    pipeline_issue(works, ARRAY_SIZE(works));
    const struct CUstream_st *streams[] = {
        runtime_call(CALL_LAUNCH, 0)->stream, runtime_call(CALL_LAUNCH, 1)->stream,
        runtime_call(CALL_LAUNCH, 2)->stream, runtime_call(CALL_LAUNCH, 3)->stream};
    CHECK_EQ(streams[1], streams[0]);
    CHECK(streams[2] != streams[0] && streams[3] != streams[0] && streams[3] != streams[2]);
    runtime_run();
    pipeline_check_all(works, ARRAY_SIZE(works));
}

/* All are issued at once, and the end of each is seen a while after that of the one before. */
static void test_a_chains_times(void)
{
    struct device_work chain[3];
    uint64_t end_ns;

    pipeline_set_up();
    for (uint32_t w = 0; w < ARRAY_SIZE(chain); w++) {
        chain[w] = pipeline_copy(PRIORITY_NORMAL, 100, 1);
        chain[w] = w == 0 ? chain[w] : pipeline_after(chain[w], &chain[w - 1]);
    }
    end_ns = runtime.ns;
    pipeline_issue(chain, ARRAY_SIZE(chain));
    runtime_run();
    for (uint32_t w = 0; w < ARRAY_SIZE(chain); w++) {
        const uint64_t took_ns = 1 + random_below(1000000);
        struct device_completion completion;

        runtime.ns += took_ns;
        CHECK_EQ(pipeline_poll(&completion, 1), 1);
        pipeline_check_good(&chain[w], &completion);
        CHECK_EQ(completion.result.start_ns, end_ns);
        CHECK_EQ(completion.result.device_ns, took_ns);
        end_ns = completion.result.end_ns;
    }
}

/* Whom they are after has ended, and was seen to; or its launch was refused. */
static void test_after_one_that_is_no_more(void)
{
    struct device_work works[] = {
        pipeline_copy(PRIORITY_NORMAL, 100, 1),
        pipeline_copy(PRIORITY_NORMAL, 100, 1),
    };
    struct device_completion completions[2];

    pipeline_set_up();
    pipeline_run(works, 1);
    works[1] = pipeline_after(works[1], &works[0]);
    pipeline_run(&works[1], 1);
    runtime.launch_error = cudaErrorInvalidConfiguration;
    pipeline_issue(works, ARRAY_SIZE(works));
    runtime_run();
    CHECK_EQ(pipeline_poll(completions, 2), 2);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(completions[i].result.status,
                 completions[i].cookie == works[0].cookie ? STATUS_INTERNAL : STATUS_OK);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void check_lost(const char *words)
{
    struct device_completion completion;
    struct failure failure;

    CHECK_EQ(cuda_pipeline_poll(pipeline, &completion, 1, &failure), -STATUS_KERNEL_FAULT);
    CHECK_HAS(failure.message, words);
}

/* A kernel that faults tells nobody: after a while CUDA is asked. */
static void test_fault(void)
{
    struct device_work work = pipeline_copy(PRIORITY_URGENT, 10, 1);

    pipeline_set_up();
    pipeline_issue(&work, 1);
    runtime.faults = true;
    runtime_run();
    pipeline_check_none();
    CHECK_EQ(runtime_count(CALL_ASK_STREAM), 0);
    runtime.ns += DOUBT_NS;
    check_lost("cudaErrorIllegalAddress");
    CHECK_EQ(runtime_count(CALL_ASK_STREAM), 1);
    check_lost("cudaErrorIllegalAddress");
    runtime_forget();
    pipeline_issue(&work, 1);
    CHECK_EQ(runtime.n_calls, 0);
}

/* One that only takes long is asked for as well, and is done when it says so. */
static void test_doubt(void)
{
    struct device_work work = pipeline_copy(PRIORITY_URGENT, 10, 1);

    pipeline_set_up();
    pipeline_issue(&work, 1);
    for (uint32_t i = 1; i <= 5; i++) {
        runtime.ns += DOUBT_NS;
        pipeline_check_none();
        pipeline_check_none();
        CHECK_EQ(runtime_count(CALL_ASK_STREAM), i);
    }
    runtime_run();
    pipeline_check_all(&work, 1);
    CHECK_EQ(runtime_count(CALL_ASK_STREAM), 5);
}

static void check_status(const struct device_work *work, enum status status, const char *words)
{
    struct device_completion completion;

    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    CHECK_EQ(completion.cookie, work->cookie);
    CHECK_EQ(completion.result.status, status);
    CHECK_EQ(completion.result.out_size[0], 0);
    CHECK_HAS(completion.error.text, words);
}

/* This one, more often than there are slots, with any of its kernels refused. */
static void check_refusals(struct device_work *work, uint32_t n_kernels)
{
    for (uint32_t i = 0; i < 2 * CUDA_SLOTS * n_kernels; i++) {
        struct device_work other = pipeline_copy(work->priority, 10, 7);

        runtime.launch_error = cudaErrorInvalidConfiguration;
        runtime.n_good_launches = i % n_kernels;
        pipeline_issue(work, 1);
        pipeline_issue(&other, 1);
        runtime_run();
        check_status(work, STATUS_INTERNAL, "cudaErrorInvalidConfiguration");
        pipeline_check_all(&other, 1);
    }
}

static void test_refused_launches(void)
{
    struct device_work mapped = pipeline_copy(PRIORITY_NORMAL, 10, 1);
    struct device_work staged =
        pipeline_mix(PRIORITY_NORMAL, 10, (struct mix_params){1, 2}, MIX_IN);
    struct device_work large = pipeline_copy(PRIORITY_NORMAL, 2 * PIPELINE_SMALL, 1);

    struct device_work timed = pipeline_copy(PRIORITY_NORMAL, 10, 1);

    timed.is_timed = true;
    pipeline_set_up();
    check_refusals(&timed, 1);
    check_refusals(&mapped, 1);
    check_refusals(&staged, 3);
    runtime_forget();
    check_refusals(&large, 1);
    pipeline_run(&mapped, 1);
    pipeline_run(&staged, 1);
    pipeline_run(&large, 1);
}

/* Of several arrays any may be refused, and the slot is as good as new. */
static void test_refused_copies(void)
{
    struct device_work work =
        pipeline_mix(PRIORITY_NORMAL, 10, (struct mix_params){60000, 1}, MIX_IN);

    pipeline_set_up();
    for (uint32_t i = 0; i < MIX_IN + LIMIT_OUT; i++) {
        runtime.copy_error = cudaErrorInvalidValue;
        runtime.n_good_copies = i;
        pipeline_issue(&work, 1);
        runtime_run();
        check_status(&work, STATUS_INTERNAL, "cudaMemcpyAsync");
        pipeline_run(&work, 1);
    }
}

static void test_no_memory(void)
{
    struct device_work work = pipeline_copy(PRIORITY_NORMAL, CUDA_LARGE_SIZE / 2 + 1, 1);
    char words[64];

    pipeline_set_up();
    snprintf(words, sizeof(words), "; %u bytes wanted, 5 of 1000 free",
             CUDA_LARGE_SIZE + 2 * CUDA_ALIGNMENT);
    for (uint32_t i = 0; i < 2 * CUDA_LARGE_SLOTS; i++) {
        runtime.allocate_error = cudaErrorMemoryAllocation;
        pipeline_issue(&work, 1);
        runtime_run();
        check_status(&work, STATUS_NO_MEMORY, words);
    }
    runtime.allocate_error = cudaSuccess;
    pipeline_run(&work, 1);
}

/* Nobody could ever say that it has ended. */
static void test_no_event(void)
{
    struct device_work work = pipeline_copy(PRIORITY_NORMAL, PIPELINE_SMALL + 1, 1);
    struct device_completion completion;
    struct failure failure;

    pipeline_set_up();
    runtime.record_error = cudaErrorInvalidResourceHandle;
    pipeline_issue(&work, 1);
    CHECK_LT(cuda_pipeline_poll(pipeline, &completion, 1, &failure), 0);
    CHECK_HAS(failure.message, "cudaEventRecord");
}

CHECK_MAIN(CHECK_TEST(test_mapped), CHECK_TEST(test_what_fits_one_block_is_one),
           CHECK_TEST(test_a_block_of_fewer_threads), CHECK_TEST(test_staged),
           CHECK_TEST(test_staged_apart), CHECK_TEST(test_partials), CHECK_TEST(test_copied),
           CHECK_TEST(test_device_without_the_hosts_memory), CHECK_TEST(test_nothing),
           CHECK_TEST(test_large), CHECK_TEST(test_shared_launches), CHECK_TEST(test_order),
           CHECK_TEST(test_launches_apart), CHECK_TEST(test_more_launches_than_slots),
           CHECK_TEST(test_chains), CHECK_TEST(test_a_long_chain),
           CHECK_TEST(test_a_chain_is_in_nobodys_way), CHECK_TEST(test_a_chains_times),
           CHECK_TEST(test_after_one_that_is_no_more), CHECK_TEST(test_narrow),
           CHECK_TEST(test_timed), CHECK_TEST(test_fault), CHECK_TEST(test_doubt),
           CHECK_TEST(test_refused_launches), CHECK_TEST(test_refused_copies),
           CHECK_TEST(test_no_memory), CHECK_TEST(test_no_event))
