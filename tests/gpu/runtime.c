/*
 * The runtime: each stream is a list of what it was given.
 */
#include "tests/gpu/runtime.h"

#include "cuda/launch.h"
#include "cuda/ops/op_list.h"
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"

#include <poll.h>
#include <string.h>

#define STREAM_TASKS 512u

struct CUevent_st {
    uint32_t n_recorded, n_reached;
    uint64_t ns;
    cudaStream_t stream;
};

struct CUkern_st {
    uint32_t op;
    enum work_kind kind;
};

struct task {
    enum call_type type;
    void *to; /* FREE: this */
    const void *from;
    size_t size;
    struct CUkern_st kernel;
    struct op_launch launch;
    cudaEvent_t event;
    uint32_t turn; /* of the event */
};

struct CUstream_st {
    enum cuda_part part;
    int priority;
    uint32_t n_tasks;
    struct task tasks[STREAM_TASKS];
    struct CUstream_st *next;
};

/* Of cudaMalloc(); what is elsewhere is the host's. */
struct allocation {
    const char *memory;
    size_t size;
};

struct runtime runtime;
static struct CUstream_st *streams; /* all */
static struct allocation allocations[256];
static struct CUkern_st kernels[64][WORK_FINISH + 1];

/* Nobody reads them. */
#define X(name)                                                                                    \
    extern const uint8_t gp_fatbin_##name[];                                                       \
    const uint8_t gp_fatbin_##name[1];
OP_LIST(X)
#undef X

void runtime_reset(void)
{
    memset(&runtime, 0, sizeof(runtime));
    runtime.ns = 1000000000;
    runtime.has_entry_points = true;
    runtime.n_processors = 132;
    runtime.sees_host = true;
    runtime.most_threads = 1024;
}

/* ---- what was called ------------------------------------------------------------------------ */

static struct call *note(enum call_type type, cudaStream_t stream)
{
    struct call *call = &runtime.calls[runtime.n_calls++];

    CHECK_LT(runtime.n_calls, RUNTIME_CALLS);
    *call = (struct call){.type = type, .stream = stream};
    return call;
}

void runtime_forget(void)
{
    runtime.n_calls = 0;
}

uint32_t runtime_count(enum call_type type)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < runtime.n_calls; i++) {
        n += runtime.calls[i].type == type;
    }
    return n;
}

const struct call *runtime_call(enum call_type type, uint32_t i)
{
    for (uint32_t at = 0; at < runtime.n_calls; at++) {
        if (runtime.calls[at].type == type && i-- == 0) {
            return &runtime.calls[at];
        }
    }
    CHECK_FAIL("there was no such call");
}

enum cuda_part runtime_part(const struct CUstream_st *stream)
{
    return stream->part;
}

int runtime_priority(const struct CUstream_st *stream)
{
    return stream->priority;
}

/* ---- running -------------------------------------------------------------------------------- */

static void run_kernel(const struct CUkern_st *kernel, struct op_launch *launch)
{
    const struct op_code *code = op_codes[kernel->op];
    const struct op_chunk *chunks = launch->n_chunks == 1 ? &launch->chunk : launch->table;

    switch (kernel->kind) {
    case WORK_MAP:
        code->map(launch->params, chunks, launch->n_chunks);
        break;
    case WORK_LEAVES:
        code->leaves(launch->params, chunks);
        break;
    case WORK_MERGE:
        code->merge(launch->params, chunks->in[0], chunks->in[1], chunks->n_records,
                    chunks->out[0]);
        break;
    case WORK_FINISH:
        code->finish(launch->params, chunks->in[0], chunks->out);
        break;
    case WORK_TABLE:
        CHECK_FAIL("there is no kernel for tables");
    }
    if (launch->ended != NULL) {
        CHECK_EQ(*launch->n_ended, 0);
        *launch->ended = launch->number;
    }
}

/* That with this byte, or of NULL a free place; NULL: there is none. */
static struct allocation *allocation_of(const void *byte)
{
    for (size_t i = 0; i < ARRAY_SIZE(allocations); i++) {
        if ((uintptr_t)byte - (uintptr_t)allocations[i].memory < MAX(allocations[i].size, 1u)) {
            return &allocations[i];
        }
    }
    return NULL;
}

static uint64_t kernel_ns(const struct op_launch *launch)
{
    const struct op_chunk *chunks = launch->n_chunks == 1 ? &launch->chunk : launch->table;
    uint64_t ns = runtime.task_ns;

    for (uint32_t i = 0; i < launch->n_chunks; i++) {
        if (chunks[i].n_records > 0 && allocation_of(chunks[i].in[0]) == NULL) {
            ns += runtime.cold_ns + runtime.host_ns * chunks[i].n_records / 1024;
            runtime.cold_ns = 0;
        }
    }
    return ns;
}

/* false: it waits for an event. */
static bool run_task(struct task *task)
{
    switch (task->type) {
    case CALL_COPY:
        memcpy(task->to, task->from, task->size);
        runtime.ns += runtime.task_ns + runtime.copy_ns * task->size / 1024;
        break;
    case CALL_LAUNCH:
        if (runtime.faults) {
            runtime.fault = cudaErrorIllegalAddress;
            return false;
        }
        run_kernel(&task->kernel, &task->launch);
        runtime.ns += kernel_ns(&task->launch);
        break;
    case CALL_RECORD:
        task->event->n_reached = task->turn;
        task->event->ns = runtime.ns;
        break;
    case CALL_FREE:
        cudaFree(task->to);
        break;
    default:
        return task->event->n_reached >= task->turn;
    }
    return true;
}

static bool run_stream(struct CUstream_st *stream, uint32_t most)
{
    uint32_t n = 0;

    while (n < MIN(stream->n_tasks, most) && runtime.fault == cudaSuccess &&
           run_task(&stream->tasks[n])) {
        n++;
    }
    stream->n_tasks -= n;
    memmove(stream->tasks, &stream->tasks[n], stream->n_tasks * sizeof(stream->tasks[0]));
    return n > 0;
}

static void run_some(bool is_all, int priority)
{
    bool has_moved = true;

    while (has_moved) {
        has_moved = false;
        for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next) {
            has_moved |= (is_all || stream->priority == priority) && run_stream(stream, UINT32_MAX);
        }
    }
}

bool runtime_step(uint64_t chance, uint32_t *ret_n_left)
{
    struct CUstream_st *some = streams;
    bool has_moved = false;

    for (uint64_t i = chance % runtime.n_streams; i > 0; i--) {
        some = some->next;
    }
    has_moved = run_stream(some, 1);
    *ret_n_left = 0;
    for (some = streams; some != NULL; some = some->next) {
        *ret_n_left += some->n_tasks;
    }
    return has_moved;
}

void runtime_run(void)
{
    run_some(true, 0);
}

void runtime_run_priority(int priority)
{
    run_some(false, priority);
}

static void give(cudaStream_t stream, const struct task *task)
{
    CHECK_LT(stream->n_tasks, STREAM_TASKS);
    stream->tasks[stream->n_tasks++] = *task;
    if (runtime.is_prompt) {
        runtime_run();
    }
}

/* Is the call that was written down last one that goes wrong? */
static bool is_bad(void)
{
    return runtime.n_calls == runtime.bad_calls[0] || runtime.n_calls == runtime.bad_calls[1];
}

/* The error comes once. */
static cudaError_t give_unless(cudaError_t *error, uint32_t *n_good, cudaStream_t stream,
                               const struct task *task)
{
    cudaError_t refusal = *error;

    if (is_bad()) {
        return cudaErrorInvalidConfiguration;
    }
    if (refusal != cudaSuccess && (*n_good)-- == 0) {
        *error = cudaSuccess;
        return refusal;
    }
    give(stream, task);
    return cudaSuccess;
}

/* ---- streams -------------------------------------------------------------------------------- */

cudaError_t runtime_create_stream(cudaStream_t *stream, enum cuda_part part, int priority)
{
    *stream = calloc(1, sizeof(**stream));
    (*stream)->part = part;
    (*stream)->priority = priority;
    (*stream)->next = streams;
    streams = *stream;
    runtime.n_streams++;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    CHECK_EQ(flags, cudaStreamNonBlocking);
    return runtime_create_stream(stream, CUDA_WHOLE, priority);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct CUstream_st **at = &streams;

    run_stream(stream, UINT32_MAX);
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    free(stream);
    runtime.n_streams--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    run_stream(stream, UINT32_MAX);
    return runtime.fault;
}

cudaError_t cudaDeviceSynchronize(void)
{
    runtime_run();
    return runtime.fault;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    note(CALL_ASK_STREAM, stream);
    if (runtime.fault != cudaSuccess) {
        return runtime.fault;
    }
    return stream->n_tasks > 0 ? cudaErrorNotReady : cudaSuccess;
}

/* ---- memory --------------------------------------------------------------------------------- */

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned flags)
{
    CHECK_EQ(flags, cudaHostAllocMapped);
    CHECK(size > 0);
    *memory = aligned_alloc(256, div_round_up(size, 256) * 256);
    runtime.n_allocated++;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    runtime.n_allocated -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
    struct allocation *free_place = allocation_of(NULL);

    CHECK(free_place != NULL);
    cudaHostAlloc(memory, size, cudaHostAllocMapped);
    *free_place = (struct allocation){*memory, size};
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (memory != NULL) {
        *allocation_of(memory) = (struct allocation){0};
    }
    return cudaFreeHost(memory);
}

cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t stream)
{
    note(CALL_ALLOCATE, stream);
    if (is_bad()) {
        return cudaErrorInvalidConfiguration;
    }
    if (runtime.allocate_error != cudaSuccess) {
        return runtime.allocate_error;
    }
    return cudaMalloc(memory, size);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    const struct task task = {.type = CALL_FREE, .to = memory};

    CHECK(memory != NULL);
    note(CALL_FREE, stream);
    give(stream, &task);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int byte, size_t size)
{
    memset(memory, byte, size);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t size, cudaStream_t stream)
{
    CHECK(stream != NULL);
    return cudaMemset(memory, byte, size);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct task task = {.type = CALL_COPY, .to = to, .from = from, .size = size};

    CHECK(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost);
    CHECK(to != NULL && from != NULL && size > 0);
    note(CALL_COPY, stream);
    return give_unless(&runtime.copy_error, &runtime.n_good_copies, stream, &task);
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_all)
{
    *n_free = 5;
    *n_all = 1000;
    return cudaSuccess;
}

/* ---- events --------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof(**event));
    runtime.n_events++;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CHECK_EQ(flags, cudaEventDisableTiming);
    return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    runtime.n_events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    note(CALL_RECORD, stream);
    if (is_bad()) {
        return cudaErrorInvalidConfiguration;
    }
    if (runtime.record_error == cudaSuccess) {
        const struct task task = {.type = CALL_RECORD, .event = event, .turn = ++event->n_recorded};

        event->stream = stream;
        give(stream, &task);
    }
    return runtime.record_error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    note(CALL_ASK_EVENT, event->stream);
    if (runtime.fault != cudaSuccess) {
        return runtime.fault;
    }
    return event->n_reached < event->n_recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (start->n_recorded == 0 || end->n_recorded == 0) {
        return cudaErrorInvalidResourceHandle;
    }
    CHECK(start->n_reached == start->n_recorded && end->n_reached == end->n_recorded);
    *ms = (float)(end->ns - start->ns) / 1e6f;
    return runtime.fault;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const struct task task = {.type = CALL_WAIT, .event = event, .turn = event->n_recorded};

    CHECK_EQ(flags, 0);
    note(CALL_WAIT, stream);
    if (is_bad()) {
        return cudaErrorInvalidConfiguration;
    }
    give(stream, &task);
    return cudaSuccess;
}

/* ---- kernels -------------------------------------------------------------------------------- */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *jit_options, void **jit_values,
                                unsigned n_jit_options, enum cudaLibraryOption *options,
                                void **values, unsigned n_options)
{
    (void)jit_options, (void)jit_values, (void)n_jit_options;
    (void)options, (void)values, (void)n_options;
    *library = (cudaLibrary_t)(uintptr_t)code;
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    CHECK(library != NULL);
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    static const char *const kinds[] = {"map", "leaves", "merge", "finish"};
    char candidate[64];

    CHECK(library != NULL && n_op_codes <= ARRAY_SIZE(kernels));
    for (uint32_t op = 0; op < n_op_codes; op++) {
        for (enum work_kind kind = WORK_MAP; kind <= WORK_FINISH; kind++) {
            snprintf(candidate, sizeof(candidate), "gp_%s_%s", op_codes[op]->manifest->name,
                     kinds[kind]);
            if (strcmp(candidate, name) == 0) {
                kernels[op][kind] = (struct CUkern_st){op, kind};
                *kernel = &kernels[op][kind];
                return cudaSuccess;
            }
        }
    }
    return cudaErrorSymbolNotFound;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    CHECK(function != NULL);
    attributes->maxThreadsPerBlock = runtime.most_threads;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_size, cudaStream_t stream)
{
    struct task task = {.type = CALL_LAUNCH};
    struct call *call = note(CALL_LAUNCH, stream);

    memcpy(&task.kernel, function, sizeof(task.kernel));
    memcpy(&task.launch, arguments[0], sizeof(task.launch));
    CHECK(grid.x > 0 && grid.z == 1 && block.x > 0 && block.y == 1 && shared_size == 0);
    CHECK_EQ(grid.y, task.launch.n_chunks);
    call->op = task.kernel.op;
    call->kind = task.kernel.kind;
    call->n_chunks = task.launch.n_chunks;
    call->n_blocks = grid.x;
    call->n_threads = block.x;
    call->tells_end = task.launch.ended != NULL;
    return give_unless(&runtime.launch_error, &runtime.n_good_launches, stream, &task);
}

/* ---- the rest ------------------------------------------------------------------------------- */

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    CHECK_EQ(device, 0);
    switch (which) {
    case cudaDevAttrMultiProcessorCount:
        *value = runtime.n_processors;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        return cudaSuccess;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *value = runtime.sees_host;
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation       ? "cudaErrorMemoryAllocation"
           : error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
           : error == cudaErrorIllegalAddress       ? "cudaErrorIllegalAddress"
                                                    : "cudaErrorOther";
}

/* Of the C library, as the linker renames them. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
                 const sigset_t *signals);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = (time_t)(runtime.ns / 1000000000);
    now->tv_nsec = (long)(runtime.ns % 1000000000);
    return 0;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
                 const sigset_t *signals)
{
    (void)fds, (void)n, (void)signals;
    if (timeout == NULL || timeout->tv_sec > 0 || timeout->tv_nsec > 0) {
        note(CALL_SLEEP, NULL);
    }
    return 0;
}
