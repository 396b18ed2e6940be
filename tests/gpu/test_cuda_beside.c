/*
 * Urgent work beside other work: who goes first, which slots and multiprocessors each has, and how
 * long urgent work has to wait while other work is issued and asked for.  Over a runtime of its own
 * (runtime.h), so no GPU is needed.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#include <string.h>

#define LONG_NS 1000000u /* nothing that is not long takes so long */

/* ---- beside urgent work --------------------------------------------------------------------- */

static void test_bulk_alone_is_issued_at_once(void)
{
    struct device_work works[2] = {pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1),
                                   pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1)};

    pipeline_set_up();
    pipeline_do_urgent();
    runtime.ns += WORK_AWAKE_NS;
    runtime_forget();
    pipeline_issue(&works[0], 1);
    pipeline_check_copied();
    cuda_pipeline_wait(pipeline, -1);
    CHECK_EQ(runtime_count(CALL_SLEEP), 1);
    runtime_run();
    pipeline_check_all(works, 1);
}

/* Its end is seen within a nap, so there is none; but nobody stays awake for a kernel that is long.
 */
static void test_small_work_keeps_awake(void)
{
    struct device_work work = pipeline_copy(1 + (uint32_t)random_below(2), 1000, 1);

    pipeline_set_up();
    pipeline_issue(&work, 1);
    cuda_pipeline_wait(pipeline, -1);
    CHECK_EQ(runtime_count(CALL_SLEEP), 0);
    runtime.ns += LONG_NS;
    cuda_pipeline_wait(pipeline, -1);
    CHECK_EQ(runtime_count(CALL_SLEEP), 1);
    runtime_run();
    pipeline_check_all(&work, 1);
    cuda_pipeline_wait(pipeline, -1);
    CHECK_EQ(runtime_count(CALL_SLEEP), 2);
}

/* Issue these while urgent work comes between any two steps of it. */
static void issue_in_steps(struct device_work *work, uint32_t n)
{
    uint32_t n_records = runtime_count(CALL_RECORD) + n;

    pipeline_issue(work, n);
    while (runtime_count(CALL_RECORD) < n_records) {
        pipeline_check_none();
        if (runtime_count(CALL_RECORD) < n_records) {
            cuda_pipeline_wait(pipeline, -1);
            CHECK_EQ(runtime_count(CALL_SLEEP), 0);
            pipeline_do_urgent();
        }
    }
}

/* pipeline_poll() counts the calls. */
static void test_bulk_in_steps(void)
{
    struct device_work works[] = {
        pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1),
        pipeline_mix(PRIORITY_BULK, 10, (struct mix_params){60000, 1}, MIX_IN),
    };

    pipeline_set_up();
    pipeline_do_urgent();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        issue_in_steps(&works[i], 1);
    }
    runtime_run();
    runtime.ns += 1000000;
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++, runtime.ns += 1000000) {
        struct device_completion completion;

        CHECK_EQ(pipeline_poll(&completion, 1), 1);
        pipeline_check_good(&works[completion.cookie == works[1].cookie], &completion);
    }
}

/* Works that share a launch have many arrays: still one call at a time. */
static void test_narrow_bulk_in_steps(void)
{
    struct device_work works[6];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_mix(PRIORITY_BULK, 10, (struct mix_params){20000, 1}, i % 4);
    }
    pipeline_do_urgent();
    pipeline_issue(works, ARRAY_SIZE(works));
    while (runtime_count(CALL_RECORD) == 0) {
        pipeline_check_none();
    }
    CHECK_EQ(runtime_count(CALL_LAUNCH), 2);
    runtime_run();
    runtime.ns += WORK_AWAKE_NS;
    pipeline_check_all(works, ARRAY_SIZE(works));
}

/* Of several bulk launches one is asked for in a poll, and none again and again. */
static void test_patience(void)
{
    struct device_work works[3];

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(works); i++) {
        works[i] = pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1);
    }
    pipeline_issue(works, ARRAY_SIZE(works));
    pipeline_do_urgent();
    for (uint32_t turn = 0; turn < 3; turn++, runtime.ns += 1000000) {
        runtime_forget();
        for (uint32_t i = 1; i <= 10; i++) {
            pipeline_check_none();
            CHECK_LE(runtime_count(CALL_ASK_EVENT), MIN(i, (uint32_t)ARRAY_SIZE(works)));
        }
        CHECK_EQ(runtime_count(CALL_ASK_EVENT), ARRAY_SIZE(works));
    }
    runtime_run();
    runtime.ns += WORK_AWAKE_NS;
    pipeline_check_all(works, ARRAY_SIZE(works));
}

/* ---- who has which slots and streams -------------------------------------------------------- */

static void test_slots(void)
{
    struct device_work large[CUDA_LARGE_SLOTS + 2], bulk[CUDA_LARGE_SLOTS + 2];
    struct device_work small = pipeline_copy(PRIORITY_NORMAL, 10, 1);

    pipeline_set_up();
    for (uint32_t i = 0; i < ARRAY_SIZE(large); i++) {
        large[i] = pipeline_copy(PRIORITY_NORMAL, CUDA_SMALL_SIZE, 1);
        bulk[i] = pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1);
    }
    pipeline_issue(large, ARRAY_SIZE(large));
    CHECK_EQ(runtime_count(CALL_LAUNCH), CUDA_LARGE_SLOTS);
    pipeline_issue(bulk, ARRAY_SIZE(bulk));
    CHECK_EQ(runtime_count(CALL_LAUNCH), 2 * CUDA_LARGE_SLOTS);
    pipeline_do_urgent();
    runtime.ns += WORK_AWAKE_NS;
    runtime_run();
    for (uint32_t n = 0; n < ARRAY_SIZE(large) + ARRAY_SIZE(bulk);) {
        struct device_completion completions[PIPELINE_MOST];

        n += pipeline_poll(completions, PIPELINE_MOST);
        runtime_run();
    }
    for (uint32_t i = 0; i < ARRAY_SIZE(large); i++) {
        pipeline_check_bytes(&large[i]);
        pipeline_check_bytes(&bulk[i]);
    }
    pipeline_run(&small, 1);
}

/* Of the last launch. */
static enum cuda_part last_part(void)
{
    return runtime_part(runtime_call(CALL_LAUNCH, runtime_count(CALL_LAUNCH) - 1)->stream);
}

static enum cuda_part part_of(struct device_work work)
{
    pipeline_issue(&work, 1);
    return last_part();
}

/* Two bulk works, the first of which takes this long. */
static void issue_long(uint64_t took_ns)
{
    struct device_work works[2] = {pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1),
                                   pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1)};

    pipeline_issue(&works[0], 1);
    CHECK_EQ(last_part(), CUDA_WHOLE);
    runtime_run();
    runtime.ns += took_ns;
    pipeline_check_all(works, 1);
    pipeline_issue(&works[1], 1);
}

static void test_parts(void)
{
    struct device_completion completions[PIPELINE_MOST];

    pipeline_set_up();
    issue_long(LONG_NS);
    CHECK_EQ(last_part(), CUDA_OTHERS);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_FEW);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, PIPELINE_SMALL + 1, 1)), CUDA_WHOLE);
    runtime_run_priority(PIPELINE_URGENT);
    CHECK_EQ(pipeline_poll(completions, PIPELINE_MOST), 2);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_FEW);
    runtime_run();
    runtime.ns += LONG_NS;
    CHECK_EQ(pipeline_poll(completions, PIPELINE_MOST), 2);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_WHOLE);
    runtime.ns += WORK_AWAKE_NS;
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1)), CUDA_OTHERS);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL / 2, 3)), CUDA_WHOLE);
}

/* Whoever brings its arrays, its kernel would wait for a long one. */
static void test_small_work_that_is_copied_has_its_part(void)
{
    runtime_reset();
    runtime.sees_host = false;
    pipeline_create();
    issue_long(LONG_NS);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 1 + (uint32_t)random_below(PIPELINE_SMALL), 1)),
             CUDA_FEW);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, PIPELINE_SMALL + 1, 1)), CUDA_WHOLE);
}

/* Behind the first, which is on this part, the second goes to another. */
static void check_part_behind(struct device_work *works, enum cuda_part from, enum cuda_part to)
{
    static const int levels[] = {[PRIORITY_URGENT] = PIPELINE_URGENT, [PRIORITY_BULK] = 0};
    struct device_completion completions[PIPELINE_MOST];

    works[1] = pipeline_after(works[1], &works[0]);
    runtime_forget();
    pipeline_issue(&works[0], 1);
    CHECK_EQ(last_part(), from);
    pipeline_issue(&works[1], 1);
    CHECK_EQ(last_part(), to);
    CHECK_EQ(runtime_count(CALL_WAIT), 1);
    runtime_run_priority(levels[works[0].priority]);
    CHECK_EQ(pipeline_poll(completions, PIPELINE_MOST), 2);
    CHECK_MEM(works[1].out[0].base, works[0].in[0].base, works[1].out[0].size);
}

/* A long kernel that was after another had the whole device, as that had, beside urgent work that
 * had been sent to its few multiprocessors. */
static void test_a_long_kernel_that_follows_is_on_its_part(void)
{
    const uint32_t n = PIPELINE_SMALL + 2;
    struct device_work works[] = {pipeline_copy(PRIORITY_BULK, n / 2, 2),
                                  pipeline_copy(PRIORITY_BULK, n, 1)};
    struct device_completion completion;

    pipeline_set_up();
    issue_long(LONG_NS);
    runtime_run();
    runtime.ns += LONG_NS;
    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    check_part_behind(works, CUDA_WHOLE, CUDA_OTHERS);
}

static void test_urgent_work_that_follows_is_on_its_part(void)
{
    struct device_work works[] = {pipeline_copy(PRIORITY_URGENT, PIPELINE_SMALL + 1, 1),
                                  pipeline_copy(PRIORITY_URGENT, 1000, 1)};

    pipeline_set_up();
    issue_long(LONG_NS);
    check_part_behind(works, CUDA_WHOLE, CUDA_FEW);
}

static void test_quick_kernels_have_the_whole_device(void)
{
    pipeline_set_up();
    issue_long(LONG_NS / 10);
    CHECK_EQ(last_part(), CUDA_WHOLE);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_WHOLE);
}

enum { MANY = 16 }; /* small works that are a large launch */

/* STAGED or, of copy, MAPPED. */
static void make_small(struct device_work *ret_works, bool is_mix, uint32_t key)
{
    for (uint32_t i = 0; i < MANY; i++) {
        ret_works[i] = is_mix ? pipeline_mix(PRIORITY_BULK, 1000, (struct mix_params){16, key}, 0)
                              : pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL / 8, key);
    }
}

/* All in one launch, on the part that is returned. */
static enum cuda_part part_of_small(struct device_work *works, bool is_mix, uint32_t key)
{
    make_small(works, is_mix, key);
    runtime_forget();
    pipeline_issue(works, MANY);
    CHECK_EQ(runtime_count(CALL_LAUNCH), is_mix ? 3 : 1);
    return last_part();
}

/* What is small, and ends a moment before, says nothing of their pace. */
static void check_long_together(bool is_mix)
{
    struct device_work works[MANY], beside = pipeline_copy(PRIORITY_NORMAL, 10, 7);
    struct device_completion completion;

    pipeline_set_up();
    CHECK_EQ(part_of_small(works, is_mix, 1), CUDA_WHOLE);
    runtime.ns += LONG_NS;
    pipeline_issue(&beside, 1);
    runtime_run_priority(PIPELINE_URGENT / 2);
    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    pipeline_check_good(&beside, &completion);
    runtime_run();
    pipeline_check_all(works, MANY);
    CHECK_EQ(part_of_small(works, is_mix, 1), CUDA_OTHERS);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_FEW);
}

static void test_small_works_that_are_long_together(void)
{
    check_long_together(true);
}

static void test_small_works_that_are_long_together_where_they_lie(void)
{
    check_long_together(false);
}

/* Two launches end at once: the second has waited for the first. */
static void test_what_waits_for_long_kernels_is_not_long(void)
{
    struct device_work slow[MANY], quick[MANY];
    struct device_completion completions[PIPELINE_MOST];

    pipeline_set_up();
    part_of_small(slow, true, 1);
    CHECK_EQ(part_of_small(quick, true, 2), CUDA_WHOLE);
    runtime_run();
    runtime.ns += LONG_NS;
    CHECK_EQ(pipeline_poll(completions, PIPELINE_MOST), 2 * MANY);
    CHECK_EQ(completions[0].cookie, slow[0].cookie);
    CHECK_EQ(part_of_small(quick, true, 2), CUDA_WHOLE);
    CHECK_EQ(part_of_small(slow, true, 1), CUDA_OTHERS);
}

/* Nor is what is after something that is slow and small. */
static void test_what_is_after_slow_work_is_not_long(void)
{
    struct device_work works[2] = {pipeline_copy(PRIORITY_BULK, 10, 7),
                                   pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1)};
    struct device_completion completion;

    works[1].is_after = true;
    works[1].after = works[0].cookie;
    pipeline_set_up();
    pipeline_issue(works, 2);
    runtime_run();
    runtime.ns += LONG_NS;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(pipeline_poll(&completion, 1), 1);
        pipeline_check_good(&works[i], &completion);
    }
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_BULK, PIPELINE_SMALL + 1, 1)), CUDA_WHOLE);
}

/* However long it takes: few records leave room on the device. */
static void test_small_launches_are_never_long(void)
{
    struct device_work work = pipeline_mix(PRIORITY_BULK, 1000, (struct mix_params){16, 3}, 0);

    pipeline_set_up();
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(part_of(work), CUDA_WHOLE);
        runtime_run();
        runtime.ns += LONG_NS;
        pipeline_check_all(&work, 1);
    }
}

static void check_no_parts(void)
{
    pipeline_create();
    CHECK_EQ(runtime.n_contexts, 0);
    issue_long(LONG_NS);
    CHECK_EQ(last_part(), CUDA_WHOLE);
    CHECK_EQ(part_of(pipeline_copy(PRIORITY_URGENT, 10, 1)), CUDA_WHOLE);
}

static void test_a_driver_without_parts(void)
{
    runtime_reset();
    runtime.has_entry_points = false;
    check_no_parts();
}

static void test_a_device_too_small_for_parts(void)
{
    runtime_reset();
    runtime.n_processors = 40;
    check_no_parts();
}

/* ---- all at once ----------------------------------------------------------------------------- */

/* Works that are out, at places that never move. */
struct out {
    struct device_work works[400];
    bool is_done[400];
    uint32_t n, n_done;
    struct device_array consts[3];
};

static struct device_work any_work(const struct out *out, enum priority priority)
{
    static const uint32_t most[] = {10, 1000, 100000};
    const uint32_t n_records = (uint32_t)random_below(most[random_below(ARRAY_SIZE(most))]);
    struct mix_params params = {1 + (uint32_t)random_below(3), (uint32_t)random_below(2)};
    uint64_t id = random_below(ARRAY_SIZE(out->consts) + 1);
    struct device_work work;

    if (random_below(2) == 0) {
        return pipeline_copy(priority, n_records, 1 + (uint32_t)random_below(8));
    }
    work = pipeline_mix(priority, n_records, params, (uint32_t)random_below(MIX_IN + 1));
    work.is_timed = random_below(8) == 0;
    if (id > 0) {
        work.const_ids[0] = id;
        work.consts[0] = out->consts[id - 1];
    }
    return work;
}

/* A copy of what the other writes. */
static struct device_work after_any(struct device_work other)
{
    struct device_work work = pipeline_copy(other.priority, (uint32_t)other.out[0].size, 1);

    return pipeline_after(work, &other);
}

static void issue_some(struct out *out)
{
    enum priority priority = random_below(PRIORITY_COUNT);
    uint64_t n = random_below(random_below(4) == 0 ? 20 : 3);

    n = MIN(n, (uint64_t)cuda_pipeline_room(pipeline, priority));
    n = MIN(n, (uint64_t)ARRAY_SIZE(out->works) - out->n);
    for (uint32_t i = 0; i < n; i++) {
        struct device_work *work = &out->works[out->n + i];

        *work = any_work(out, priority);
        if (out->n + i > 0 && random_below(2) == 0 && work->priority == work[-1].priority) {
            *work = after_any(work[-1]);
        }
    }
    pipeline_issue(&out->works[out->n], (uint32_t)n);
    out->n += (uint32_t)n;
}

static void poll_any(struct out *out)
{
    struct device_completion completions[PIPELINE_MOST];
    uint32_t n = pipeline_poll(completions, 1 + (uint32_t)random_below(PIPELINE_MOST));

    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = 0;

        while (w < out->n && out->works[w].cookie != completions[i].cookie) {
            w++;
        }
        CHECK_LT(w, out->n);
        CHECK(!out->is_done[w]);
        out->is_done[w] = true;
        out->n_done++;
        pipeline_check_good(&out->works[w], &completions[i]);
    }
}

/* Works of all kinds come, streams go on and time goes by in any order. */
static void test_any_order(void)
{
    static const int levels[] = {PIPELINE_URGENT, PIPELINE_URGENT / 2, 0};
    static struct out out;

    memset(&out, 0, sizeof(out));
    pipeline_set_up();
    pipeline_step = RUNTIME_CALLS; /* constants are uploaded, stages timed */
    for (uint32_t i = 0; i < ARRAY_SIZE(out.consts); i++) {
        out.consts[i] = pipeline_array(1 + random_below(100));
    }
    while (out.n_done < ARRAY_SIZE(out.works)) {
        runtime_forget();
        issue_some(&out);
        poll_any(&out);
        runtime.task_ns = random_below(200000);
        if (random_below(3) > 0) {
            runtime_run_priority(levels[random_below(ARRAY_SIZE(levels))]);
        }
        runtime.ns += random_below(random_below(50) == 0 ? 2 * WORK_AWAKE_NS : 20000);
    }
}

CHECK_MAIN(CHECK_TEST(test_any_order), CHECK_TEST(test_bulk_alone_is_issued_at_once),
           CHECK_TEST(test_small_work_keeps_awake), CHECK_TEST(test_bulk_in_steps),
           CHECK_TEST(test_narrow_bulk_in_steps), CHECK_TEST(test_patience), CHECK_TEST(test_slots),
           CHECK_TEST(test_parts), CHECK_TEST(test_small_work_that_is_copied_has_its_part),
           CHECK_TEST(test_a_long_kernel_that_follows_is_on_its_part),
           CHECK_TEST(test_urgent_work_that_follows_is_on_its_part),
           CHECK_TEST(test_quick_kernels_have_the_whole_device),
           CHECK_TEST(test_small_works_that_are_long_together),
           CHECK_TEST(test_small_works_that_are_long_together_where_they_lie),
           CHECK_TEST(test_what_waits_for_long_kernels_is_not_long),
           CHECK_TEST(test_small_launches_are_never_long),
           CHECK_TEST(test_what_is_after_slow_work_is_not_long),
           CHECK_TEST(test_a_driver_without_parts), CHECK_TEST(test_a_device_too_small_for_parts))
