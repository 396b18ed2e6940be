/*
 * Which constants have a copy on the device, when one is made, who waits for it and which one gives
 * way: over a runtime that only keeps account, so no GPU is needed.
 */
#include "cuda/cuda_consts.h"
#include "cuda/cuda_slots.h"
#include "tests/check.h"
#include "tests/random.h"

#include <stdlib.h>

#define N_HELD_MAX (CUDA_SLOTS_ALL * LIMIT_CONSTS) /* by launches in flight */
#define LARGEST    LIMIT_CONST_SIZE

/* ---- the runtime ----------------------------------------------------------------------------- */

static struct {
    unsigned n_allocated, n_events; /* now */
    unsigned n_copies, n_queries;   /* so far */
    cudaStream_t waited;            /* the last one that was told to wait */
    bool is_copying;                /* events are not done */
    cudaError_t malloc_error, copy_error;
    const void *copied;
} runtime;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CHECK_EQ(flags, cudaEventDisableTiming);
    *event = malloc(1);
    runtime.n_events++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    runtime.n_events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CHECK(event != NULL && stream != NULL);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CHECK(event != NULL);
    runtime.n_queries++;
    return runtime.is_copying ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    CHECK(event != NULL && flags == 0);
    runtime.waited = stream;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t stream)
{
    CHECK(size > 0 && stream != NULL);
    if (runtime.malloc_error == cudaSuccess) {
        *memory = malloc(1);
        runtime.n_allocated++;
    }
    return runtime.malloc_error;
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    CHECK(stream != NULL);
    return cudaFree(memory);
}

cudaError_t cudaFree(void *memory)
{
    CHECK(memory != NULL);
    free(memory);
    runtime.n_allocated--;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CHECK(to != NULL && size > 0 && stream != NULL);
    CHECK_EQ(kind, cudaMemcpyHostToDevice);
    runtime.n_copies++;
    runtime.copied = from;
    return runtime.copy_error;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_all)
{
    *n_free = 5;
    *n_all = 1000;
    return cudaSuccess;
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct cuda_consts *consts; /* of the running test */
static const cudaStream_t streams[] = {(cudaStream_t)16, (cudaStream_t)32};
static uint8_t bytes[1];

static void tear_down(void *arg)
{
    (void)arg;
    cuda_consts_destroy(consts);
    CHECK_EQ(runtime.n_allocated, 0);
    CHECK_EQ(runtime.n_events, 0);
}

static void set_up(void)
{
    struct cuda_trouble trouble;

    memset(&runtime, 0, sizeof(runtime));
    CHECK_EQ(cuda_consts_create(&consts, &trouble), 0);
    check_at_end(tear_down, NULL);
}

static struct cuda_const *take(uint64_t id, uint64_t size, unsigned stream)
{
    const struct device_array array = {.base = bytes, .size = size};
    struct cuda_const *constant = NULL;
    struct cuda_trouble trouble;

    CHECK_EQ(cuda_consts_take(consts, id, &array, streams[stream], &constant, &trouble), 0);
    CHECK(cuda_const_memory(constant) != NULL);
    return constant;
}

/* A launch that is done at once. */
static void use(uint64_t id, uint64_t size)
{
    cuda_const_give(take(id, size, 0));
}

/* Is there a copy?  Asks by using it, so it is there afterwards. */
static bool has_copy(uint64_t id, uint64_t size)
{
    unsigned before = runtime.n_copies;

    use(id, size);
    return runtime.n_copies == before;
}

/* Nobody uploads it twice; whoever comes while it is copied waits, on the device. */
static void test_one_upload(void)
{
    struct cuda_const *first, *second;

    set_up();
    runtime.is_copying = true;
    first = take(7, 100, 0);
    CHECK_EQ(runtime.n_copies, 1);
    CHECK(runtime.copied == bytes);
    CHECK(runtime.waited == NULL);
    second = take(7, 100, 1);
    CHECK(second == first);
    CHECK(runtime.waited == streams[1]);
    runtime.is_copying = false;
    runtime.waited = NULL;
    for (unsigned i = 0; i < 10; i++) {
        use(7, 100);
    }
    CHECK(runtime.waited == NULL);
    CHECK_EQ(runtime.n_queries, 2); /* and none once it was seen done */
    CHECK_EQ(runtime.n_copies, 1);
    cuda_const_give(first);
    cuda_const_give(second);
    cuda_const_give(NULL);
    CHECK(cuda_const_memory(NULL) == NULL);
    use(8, 100);
    CHECK_EQ(runtime.n_copies, 2);
}

/* Of 256 MiB the copies that were used longest ago give way, but none that a launch holds. */
static void test_the_oldest_gives_way(void)
{
    const unsigned n = CUDA_CONST_BYTES / LARGEST;
    struct cuda_const *held;

    set_up();
    held = take(1, LARGEST, 0);
    for (uint64_t id = 2; id <= n; id++) {
        use(id, LARGEST);
    }
    CHECK_EQ(runtime.n_allocated, n);
    use(2, LARGEST);
    use(100, 1); /* 1 is held, 2 was used after 3 */
    CHECK_EQ(runtime.n_allocated, n);
    CHECK(has_copy(1, LARGEST));
    CHECK(has_copy(2, LARGEST));
    CHECK(has_copy(4, LARGEST));
    CHECK(!has_copy(3, LARGEST));
    cuda_const_give(held);
}

static void test_what_is_held_goes_past_the_bound(void)
{
    struct cuda_const *held[N_HELD_MAX];

    set_up();
    for (uint64_t i = 0; i < N_HELD_MAX; i++) {
        held[i] = take(i + 1, LARGEST, 0);
    }
    CHECK_EQ(runtime.n_allocated, N_HELD_MAX);
    for (uint64_t i = 0; i < N_HELD_MAX; i++) {
        CHECK(has_copy(i + 1, LARGEST));
        cuda_const_give(held[i]);
    }
    use(1000, LARGEST);
    CHECK_EQ(runtime.n_allocated, CUDA_CONST_BYTES / LARGEST);
}

/* Of small ones there are many more than places. */
static void test_places(void)
{
    struct cuda_const *held[N_HELD_MAX];

    set_up();
    for (uint64_t i = 0; i < N_HELD_MAX; i++) {
        held[i] = take(i + 1, 8, 0);
    }
    for (uint64_t id = 1000; id < 2000; id++) {
        use(id, 8);
        CHECK(has_copy(id, 8));
    }
    for (uint64_t i = 0; i < N_HELD_MAX; i++) {
        CHECK(has_copy(i + 1, 8));
        cuda_const_give(held[i]);
    }
}

static void check_trouble(uint64_t id, enum status status, const char *words)
{
    const struct device_array array = {.base = bytes, .size = 12};
    struct cuda_const *constant = NULL;
    struct cuda_trouble trouble;
    unsigned before = runtime.n_allocated;

    CHECK_EQ(cuda_consts_take(consts, id, &array, streams[0], &constant, &trouble), -(int)status);
    CHECK_HAS(trouble.failure.message, words);
    CHECK(constant == NULL);
    CHECK_EQ(runtime.n_allocated, before);
}

/* What could not be uploaded is not there, and is uploaded when that is possible again. */
static void test_trouble(void)
{
    set_up();
    use(1, 12);
    runtime.malloc_error = cudaErrorMemoryAllocation;
    check_trouble(2, STATUS_NO_MEMORY, "; 12 bytes wanted, 5 of 1000 free");
    CHECK(has_copy(1, 12));
    runtime.malloc_error = cudaSuccess;
    runtime.copy_error = cudaErrorInvalidValue;
    check_trouble(2, STATUS_INTERNAL, "cudaMemcpyAsync");
    runtime.copy_error = cudaSuccess;
    CHECK(!has_copy(2, 12));
    CHECK(has_copy(2, 12));
}

/* Any order of launches of few and many constants, in flight at once or not. */
static void test_random_use(void)
{
    struct cuda_const *held[N_HELD_MAX] = {NULL};
    uint64_t ids[N_HELD_MAX] = {0};

    set_up();
    for (unsigned i = 0; i < 100000; i++) {
        size_t at = random_below(N_HELD_MAX);

        cuda_const_give(held[at]);
        ids[at] = 1 + random_below(random_below(2) ? 10 : 1000);
        held[at] = take(ids[at], 1 + random_below(LARGEST), (unsigned)random_below(2));
        for (size_t k = 0; k < N_HELD_MAX && ids[at] != 0; k++) {
            if (ids[k] == ids[at] && held[k] != NULL) {
                CHECK(held[k] == held[at]);
            } else if (held[k] != NULL) {
                CHECK(cuda_const_memory(held[k]) != cuda_const_memory(held[at]));
            }
        }
    }
    for (size_t i = 0; i < N_HELD_MAX; i++) {
        cuda_const_give(held[i]);
    }
}

CHECK_MAIN(CHECK_TEST(test_one_upload), CHECK_TEST(test_the_oldest_gives_way),
           CHECK_TEST(test_what_is_held_goes_past_the_bound), CHECK_TEST(test_places),
           CHECK_TEST(test_trouble), CHECK_TEST(test_random_use))
