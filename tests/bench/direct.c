/*
 * Direct: see direct.h.  A place is what a chunk in flight needs: a stream, an event, memory for
 * its input and output, and the kernel's arguments, which never change.
 */
#include "tests/bench/direct.h"

#include "proto/util.h"
#include "tests/bench/kernel.h"
#include "tests/bench/must.h"

#include <string.h>

static const struct subject *const subjects[] = {&subject_copy, &subject_iterate};

struct direct {
    uint8_t *in;
    uint8_t *out;
    size_t size;
    struct kernel kernels[ARRAY_SIZE(subjects)];
};

struct place {
    cudaStream_t stream;
    cudaEvent_t event;
    char *memory; /* header, input, output */
};

struct direct_plan {
    const struct direct *direct;
    struct direct_shape shape;
    const struct kernel *kernel;
    uint32_t n_chunks;
    cudaGraphExec_t *graphs; /* one for each chunk, since a graph holds addresses; or NULL */
    struct place places[DIRECT_DEPTH_MAX];
};

/* ---- context -------------------------------------------------------------------------------- */

void direct_open(uint8_t *in, uint8_t *out, size_t size, struct direct **ret_direct)
{
    struct direct *direct = bench_allocate(sizeof(*direct));

    *direct = (struct direct){.in = in, .out = out, .size = size};
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    MUST(cudaInitDevice(0, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid));
    MUST(cudaSetDevice(0));
    MUST(cudaHostRegister(in, size, cudaHostRegisterDefault));
    MUST(cudaHostRegister(out, size, cudaHostRegisterDefault));
    for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
        kernel_load(subjects[i], &direct->kernels[i]);
    }
    *ret_direct = direct;
}

void direct_close(struct direct *direct)
{
    for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
        kernel_unload(&direct->kernels[i]);
    }
    MUST(cudaHostUnregister(direct->in));
    MUST(cudaHostUnregister(direct->out));
    free(direct);
}

static const struct kernel *find_kernel(const struct direct *direct, const struct subject *subject)
{
    for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
        if (strcmp(subjects[i]->op, subject->op) == 0) {
            return &direct->kernels[i];
        }
    }
    bench_fail("no direct pipeline of op %s", subject->op);
}

/* ---- one chunk ------------------------------------------------------------------------------ */

static char *place_in(const struct place *place)
{
    return place->memory;
}

static char *place_out(const struct direct_plan *plan, const struct place *place)
{
    return place_in(place) + plan->shape.chunk_size;
}

static void issue(const struct direct_plan *plan, const struct place *place, uint32_t chunk)
{
    size_t size = plan->shape.chunk_size, at = plan->shape.first + chunk * size;

    MUST(cudaMemcpyAsync(place_in(place), plan->direct->in + at, size, cudaMemcpyHostToDevice,
                         place->stream));
    kernel_launch(plan->kernel, plan->shape.subject, place_in(place), place_out(plan, place), size,
                  place->stream);
    MUST(cudaMemcpyAsync(plan->direct->out + at, place_out(plan, place), size,
                         cudaMemcpyDeviceToHost, place->stream));
}

static void launch(const struct direct_plan *plan, const struct place *place, uint32_t chunk)
{
    if (plan->graphs != NULL) {
        MUST(cudaGraphLaunch(plan->graphs[chunk], place->stream));
    } else {
        issue(plan, place, chunk);
    }
    MUST(cudaEventRecord(place->event, place->stream));
}

void direct_step(struct direct_plan *plan, uint32_t chunk)
{
    const struct place *place = &plan->places[chunk % plan->shape.depth];

    launch(plan, place, chunk);
    MUST(cudaEventSynchronize(place->event));
}

void direct_send(const struct direct_plan *plan, uint32_t chunk)
{
    launch(plan, &plan->places[chunk % plan->shape.depth], chunk);
}

bool direct_is_done(const struct direct_plan *plan, uint32_t chunk)
{
    cudaError_t error = cudaEventQuery(plan->places[chunk % plan->shape.depth].event);

    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    MUST(error);
    return true;
}

uint64_t direct_run_until(struct direct_plan *plan, uint32_t n_chunks, uint64_t from_ns,
                          uint64_t to_ns, uint64_t until_ns, uint64_t *ret_n)
{
    uint32_t depth = plan->shape.depth;
    uint64_t n_counted = 0, now = 0, n;

    for (n = 0; now < until_ns; n++) {
        const struct place *place = &plan->places[n % depth];

        MUST(cudaEventSynchronize(place->event));
        now = now_ns();
        n_counted += n >= depth && now >= from_ns && now < to_ns;
        launch(plan, place, (uint32_t)(n % n_chunks));
    }
    for (uint32_t i = 0; i < depth; i++) {
        MUST(cudaEventSynchronize(plan->places[i].event));
    }
    *ret_n = n;
    return n_counted;
}

double direct_run(struct direct_plan *plan)
{
    const struct direct_shape *shape = &plan->shape;
    uint64_t start_ns = now_ns();

    for (uint32_t i = 0; i < plan->n_chunks; i++) {
        const struct place *place = &plan->places[i % shape->depth];

        MUST(cudaEventSynchronize(place->event)); /* done at once where none is recorded yet */
        launch(plan, place, i);
        if (shape->wait == DIRECT_SYNCHRONISE) {
            MUST(cudaStreamSynchronize(place->stream));
        }
    }
    for (uint32_t i = 0; i < shape->depth; i++) {
        MUST(cudaEventSynchronize(plan->places[i].event));
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static void create_place(const struct direct_plan *plan, struct place *ret_place)
{
    size_t chunk_size = plan->shape.chunk_size;
    int lowest, highest;
    void *memory;

    MUST(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    MUST(cudaStreamCreateWithPriority(&ret_place->stream, cudaStreamNonBlocking,
                                      plan->shape.is_urgent ? highest : lowest));
    MUST(cudaEventCreateWithFlags(&ret_place->event, cudaEventDisableTiming));
    MUST(cudaMalloc(&memory, 2 * chunk_size));
    ret_place->memory = memory;
}

static cudaGraphExec_t capture(const struct direct_plan *plan, uint32_t chunk)
{
    const struct place *place = &plan->places[chunk % plan->shape.depth];
    cudaGraphExec_t executable;
    cudaGraph_t graph;

    MUST(cudaStreamBeginCapture(place->stream, cudaStreamCaptureModeThreadLocal));
    issue(plan, place, chunk);
    MUST(cudaStreamEndCapture(place->stream, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphUpload(executable, place->stream));
    return executable;
}

void direct_plan_create(const struct direct *direct, const struct direct_shape *shape,
                        struct direct_plan **ret_plan)
{
    struct direct_plan *plan = bench_allocate(sizeof(*plan));

    *plan = (struct direct_plan){
        .direct = direct,
        .shape = *shape,
        .kernel = find_kernel(direct, shape->subject),
        .n_chunks = (uint32_t)((direct->size - shape->first) / shape->chunk_size),
    };
    for (uint32_t i = 0; i < shape->depth; i++) {
        create_place(plan, &plan->places[i]);
    }
    if (shape->wait == DIRECT_GRAPHS) {
        plan->graphs = bench_allocate(plan->n_chunks * sizeof(cudaGraphExec_t));
        for (uint32_t i = 0; i < plan->n_chunks; i++) {
            plan->graphs[i] = capture(plan, i);
        }
    }
    MUST(cudaDeviceSynchronize());
    *ret_plan = plan;
}

void direct_plan_destroy(struct direct_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (uint32_t i = 0; plan->graphs != NULL && i < plan->n_chunks; i++) {
        MUST(cudaGraphExecDestroy(plan->graphs[i]));
    }
    for (uint32_t i = 0; i < plan->shape.depth; i++) {
        MUST(cudaStreamDestroy(plan->places[i].stream));
        MUST(cudaEventDestroy(plan->places[i].event));
        MUST(cudaFree(plan->places[i].memory));
    }
    free(plan->graphs);
    free(plan);
}
