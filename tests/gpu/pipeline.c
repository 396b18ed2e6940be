/*
 * The pipeline under test, and its works.
 */
#include "tests/gpu/pipeline.h"

#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#include <string.h>

#define N_STREAMS 4u

extern const struct op_code op_copy, op_mix;

struct cuda_pipeline *pipeline;
uint32_t pipeline_step;
static uint64_t urgent_ns; /* when urgent work was issued last; 0: never */

/* ---- an op ---------------------------------------------------------------------------------- */

/*
 * Its arrays have records of different sizes, and some of them may be NULL.  It has to be staged.
 */
struct op_chunk mix_chunk; /* the last chunk it got */

static uint8_t mix_byte(const struct mix_params *params, const struct op_chunk *chunk, uint32_t r,
                        uint32_t b)
{
    const uint8_t *constant = chunk->consts[0];
    uint32_t sum = params->key + (constant != NULL ? constant[0] : 0);

    for (uint32_t k = 0; k < MIX_IN; k++) {
        const uint8_t *in = chunk->in[k];

        sum = sum * 31 + (in != NULL ? in[(size_t)r * (params->size + k) + b] : k);
    }
    return (uint8_t)(sum ^ (sum >> 8));
}

static void mix_map(const void *arg, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct mix_params *params = arg;

    for (uint32_t c = 0; c < n_chunks; c++) {
        mix_chunk = chunks[c];
        for (uint32_t r = 0; r < mix_chunk.n_records; r++) {
            uint8_t *out = mix_chunk.out[0], *other = mix_chunk.out[1];

            out += (size_t)r * params->size;
            other += (size_t)r * (params->size + 1);
            for (uint32_t b = 0; b < params->size; b++) {
                out[b] = mix_byte(params, &mix_chunk, r, b);
                other[b] = (uint8_t)~out[b];
            }
            other[params->size] = (uint8_t)r;
        }
    }
}

static const struct manifest_op mix_manifest = {.name = "mix", .kind = OP_MAP, .min_parallel = 32};
const struct op_code op_mix = {.manifest = &mix_manifest, .map = mix_map};

/* ---- works ---------------------------------------------------------------------------------- */

static uint32_t index_of(const struct op_code *code)
{
    uint32_t op = 0;

    while (op_codes[op] != code) {
        op++;
    }
    return op;
}

static void *arrays[4096]; /* of the running test: they outlive its pipeline */
static uint32_t n_arrays;

struct device_array pipeline_array(uint64_t size)
{
    struct device_array array = {.base = malloc(size + 1), .size = size};

    CHECK_LT(n_arrays, ARRAY_SIZE(arrays));
    arrays[n_arrays++] = array.base;
    random_bytes(array.base, size);
    return array;
}

struct device_work pipeline_work(const struct op_code *code, enum priority priority,
                                 uint32_t n_records)
{
    static uint64_t cookie;

    return (struct device_work){.cookie = ++cookie,
                                .code = code,
                                .op = index_of(code),
                                .kind = WORK_MAP,
                                .priority = priority,
                                .n_records = n_records};
}

/* Of records of so many bytes. */
struct device_work pipeline_copy(enum priority priority, uint32_t n_records, uint32_t size)
{
    struct device_work work = pipeline_work(&op_copy, priority, n_records);

    memcpy(work.params, &size, sizeof(size));
    work.in[0] = pipeline_array((uint64_t)n_records * size);
    work.out[0] = pipeline_array((uint64_t)n_records * size);
    return work;
}

/* Without input `missing`; MIX_IN: with all. */
struct device_work pipeline_mix(enum priority priority, uint32_t n_records,
                                struct mix_params params, uint32_t missing)
{
    struct device_work work = pipeline_work(&op_mix, priority, n_records);

    memcpy(work.params, &params, sizeof(params));
    for (uint32_t k = 0; k < MIX_IN; k++) {
        if (k != missing) {
            work.in[k] = pipeline_array((uint64_t)n_records * (params.size + k));
        }
    }
    for (uint32_t k = 0; k < LIMIT_OUT; k++) {
        work.out[k] = pipeline_array((uint64_t)n_records * (params.size + k));
    }
    return work;
}

struct device_work pipeline_after(struct device_work work, const struct device_work *other)
{
    work.is_after = true;
    work.after = other->cookie;
    work.in[0].base = other->out[0].base;
    return work;
}

/* Are its outputs what the op makes of its inputs, where they lie? */
void pipeline_check_bytes(const struct device_work *work)
{
    struct op_chunk chunk = {.n_records = work->n_records};

    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        chunk.in[i] = work->in[i].base;
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        chunk.out[i] = malloc(work->out[i].size + 1);
    }
    for (uint32_t i = 0; i < LIMIT_CONSTS; i++) {
        chunk.consts[i] = work->consts[i].base;
    }
    work->code->map(work->params, &chunk, 1);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        bool is_right = work->out[i].size == 0 ||
                        memcmp(chunk.out[i], work->out[i].base, work->out[i].size) == 0;

        free(chunk.out[i]);
        CHECK(is_right);
    }
}

/* ---- a pipeline ----------------------------------------------------------------------------- */

static void tear_down(void *arg)
{
    (void)arg;
    cuda_pipeline_destroy(pipeline);
    pipeline = NULL;
    while (n_arrays > 0) {
        free(arrays[--n_arrays]);
    }
    CHECK_EQ(runtime.n_allocated, 0);
    CHECK_EQ(runtime.n_events, 0);
    CHECK_EQ(runtime.n_streams, 0);
    CHECK_EQ(runtime.n_contexts, 0);
}

/* After runtime_reset(). */
void pipeline_create(void)
{
    struct cuda_trouble trouble;

    check_at_end(tear_down, NULL);
    runtime.is_prompt = true; /* creating it waits */
    CHECK_EQ(cuda_pipeline_create(N_STREAMS, &pipeline, &trouble), 0);
    runtime.is_prompt = false;
    runtime_forget();
    urgent_ns = 0;
    pipeline_step = 1;
}

void pipeline_set_up(void)
{
    runtime_reset();
    pipeline_create();
}

/* Calls for what is not urgent. */
static uint32_t count_others(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < runtime.n_calls; i++) {
        const struct call *call = &runtime.calls[i];

        n += call->stream != NULL && runtime_priority(call->stream) != PIPELINE_URGENT;
    }
    return n;
}

/* While urgent work is likely the pipeline makes so few such calls, then looks for it again. */
static void check_step(uint32_t n_before)
{
    if (urgent_ns != 0 && runtime.ns - urgent_ns < WORK_AWAKE_NS) {
        CHECK_LE(count_others(), n_before + pipeline_step);
    }
}

void pipeline_issue(struct device_work *works, uint32_t n)
{
    uint32_t n_before = count_others();

    for (uint32_t i = 0; i < n; i++) {
        works[i].issue_ns = runtime.ns;
        urgent_ns = works[i].priority == PRIORITY_URGENT ? runtime.ns : urgent_ns;
    }
    cuda_pipeline_issue(pipeline, works, n);
    check_step(n_before);
}

uint32_t pipeline_poll(struct device_completion *ret_completions, uint32_t max)
{
    struct failure failure;
    uint32_t n_before = count_others();
    int n = cuda_pipeline_poll(pipeline, ret_completions, max, &failure);

    CHECK_GE(n, 0);
    check_step(n_before);
    return (uint32_t)n;
}

void pipeline_check_good(const struct device_work *work, const struct device_completion *completion)
{
    CHECK_EQ(completion->cookie, work->cookie);
    CHECK_EQ(completion->result.status, STATUS_OK);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        CHECK_EQ(completion->result.out_size[i], work->out[i].size);
    }
    pipeline_check_bytes(work);
}

/* From now on more of it is likely. */
void pipeline_do_urgent(void)
{
    struct device_work work = pipeline_copy(PRIORITY_URGENT, 1 + (uint32_t)random_below(999), 1);
    struct device_completion completion;

    pipeline_issue(&work, 1);
    runtime_run_priority(PIPELINE_URGENT);
    CHECK_EQ(pipeline_poll(&completion, 1), 1);
    pipeline_check_good(&work, &completion);
}

void pipeline_check_none(void)
{
    struct device_completion completion;

    CHECK_EQ(pipeline_poll(&completion, 1), 0);
}

/* All of these come now, in any order, each once and right. */
void pipeline_check_all(const struct device_work *works, uint32_t n)
{
    bool has_come[PIPELINE_MOST] = {false};

    for (uint32_t n_come = 0; n_come < n;) {
        struct device_completion completions[PIPELINE_MOST];
        uint32_t n_more = pipeline_poll(completions, 1 + (uint32_t)random_below(PIPELINE_MOST));

        CHECK_GT(n_more, 0);
        for (uint32_t i = 0; i < n_more; i++) {
            uint32_t w = 0;

            while (w < n && works[w].cookie != completions[i].cookie) {
                w++;
            }
            CHECK_LT(w, n);
            CHECK(!has_come[w]);
            has_come[w] = true;
            pipeline_check_good(&works[w], &completions[i]);
        }
        n_come += n_more;
        runtime_run();
    }
    pipeline_check_none();
}

void pipeline_run(struct device_work *works, uint32_t n)
{
    pipeline_issue(works, n);
    runtime_run();
    pipeline_check_all(works, n);
}

void pipeline_check_launch(uint32_t i, const struct op_code *code, uint32_t n_chunks,
                           bool tells_end)
{
    const struct call *call = runtime_call(CALL_LAUNCH, i);

    CHECK_EQ(call->op, index_of(code));
    CHECK_EQ(call->n_chunks, n_chunks);
    CHECK_EQ(call->tells_end, tells_end);
}

void pipeline_check_copied(void)
{
    static const enum call_type types[] = {CALL_COPY, CALL_LAUNCH, CALL_COPY, CALL_RECORD};

    CHECK_EQ(runtime.n_calls, ARRAY_SIZE(types));
    for (uint32_t i = 0; i < ARRAY_SIZE(types); i++) {
        CHECK_EQ(runtime.calls[i].type, types[i]);
    }
}
