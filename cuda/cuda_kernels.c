/*
 * Loading, looking up and launching kernels.
 *
 * A fatbin is loaded as a library; with CUDA_MODULE_LOADING=EAGER, which device_cuda.c sets, its
 * code is on the device when the load returns.  cudaLibraryLoadData() accepts junk all the same:
 * only the look-up of each kernel tells.
 *
 * A row of kinds[] says for each kind of work how its kernel is named, shaped and called.
 */
#include "cuda/cuda_kernels.h"

#include "cuda/ops/op_list.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

#define N_KINDS   (WORK_FINISH + 1)
#define N_THREADS 256u /* of a block, where an op does not say; not tuned */
#define N_BYTES   4u   /* of the largest array for each thread, where a record is small */
#define WARP      32u

#define X(name) extern const uint8_t gp_fatbin_##name[];
OP_LIST(X)
#undef X

/* In the order of op_codes[]. */
static const uint8_t *const fatbins[] = {
#define X(name) gp_fatbin_##name,
    OP_LIST(X)
#undef X
};

struct cuda_op {
    cudaLibrary_t library;
    uint32_t most_threads;         /* of a block: some kernels take more registers than others */
    cudaKernel_t kernels[N_KINDS]; /* NULL: not of this op's kind */
};

struct cuda_kernels {
    uint32_t n_processors;
    uint32_t n_blocks; /* of N_THREADS threads: as many as run at once */
    uint32_t copy;     /* the index of that op */
    bool sees_host;
    struct cuda_op ops[ARRAY_SIZE(fatbins)];
};

struct shape {
    uint32_t n_blocks; /* for one chunk */
    uint32_t n_threads;
};

/* ---- kinds --------------------------------------------------------------------------------- */

static struct shape narrow_shape(uint64_t n_bytes, uint32_t most_threads)
{
    uint64_t n_threads = MAX(div_round_up(n_bytes, WARP * N_BYTES), UINT64_C(1)) * WARP;

    if (n_threads <= most_threads) {
        return (struct shape){1, (uint32_t)n_threads};
    }
    return (struct shape){(uint32_t)MIN(div_round_up(n_threads, N_THREADS), (uint64_t)INT32_MAX),
                          N_THREADS};
}

/*
 * Where min_parallel says that a record is a lane's long work, or that of n_members, few records
 * are spread over many processors in small blocks.  Otherwise a step may be as small as a byte, and
 * a thread has a few of them at most: urgent kernels begin when a block ends, so a grid no larger
 * than the device would make them wait for all of a bulk kernel.  Of a streaming op what fits one
 * block is one: to find out which of several is the last takes them 1 us.
 */
static struct shape map_shape(const struct cuda_kernels *kernels, const struct op_code *code,
                              const struct cuda_launch *launch)
{
    const struct op_launch *arguments = &launch->arguments;
    uint64_t n_members = arguments->chunk.n_records, n_each;
    uint32_t n_threads;

    for (uint32_t i = 0; i < arguments->n_chunks && arguments->n_chunks > 1; i++) {
        n_members = MAX(n_members, (uint64_t)arguments->table[i].n_records);
    }
    n_members *= MAX(code->n_members, 1u);
    if (code->manifest->min_parallel == 1) {
        return narrow_shape(launch->n_bytes,
                            code->is_streaming ? kernels->ops[launch->op].most_threads : 0);
    }
    n_each = MAX(div_round_up(n_members * arguments->n_chunks, kernels->n_processors), UINT64_C(1));
    n_threads = (uint32_t)MIN(div_round_up(n_each, WARP) * WARP, (uint64_t)N_THREADS);
    return (struct shape){(uint32_t)MIN(div_round_up(n_members, n_threads),
                                        (uint64_t)kernels->n_blocks * N_THREADS / n_threads),
                          n_threads};
}

static struct shape leaves_shape(const struct cuda_kernels *kernels, const struct op_code *code,
                                 const struct cuda_launch *launch)
{
    uint64_t n_leaves = div_round_up(launch->arguments.chunk.n_records, code->manifest->leaf);

    return (struct shape){(uint32_t)MIN(n_leaves, (uint64_t)kernels->n_blocks), code->n_lanes};
}

static struct shape one_thread(const struct cuda_kernels *kernels, const struct op_code *code,
                               const struct cuda_launch *launch)
{
    (void)kernels, (void)code, (void)launch;
    return (struct shape){1, 1};
}

static const struct kind {
    const char *name;
    enum op_kind op_kind;
    bool is_warmed; /* it can be launched over nothing: FINISH always writes */
    struct shape (*shape)(const struct cuda_kernels *kernels, const struct op_code *code,
                          const struct cuda_launch *launch);
} kinds[N_KINDS] = {
    [WORK_MAP] = {"map", OP_MAP, true, map_shape},
    [WORK_LEAVES] = {"leaves", OP_REDUCE, true, leaves_shape},
    [WORK_MERGE] = {"merge", OP_REDUCE, true, one_thread},
    [WORK_FINISH] = {"finish", OP_REDUCE, false, one_thread},
};

/* ---- use ----------------------------------------------------------------------------------- */

int cuda_kernels_launch(const struct cuda_kernels *kernels, const struct cuda_launch *launch,
                        cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    const struct kind *kind = &kinds[launch->kind];
    const struct shape shape = kind->shape(kernels, op_codes[launch->op], launch);
    const dim3 grid = {MAX(shape.n_blocks, 1u), launch->arguments.n_chunks, 1};
    const dim3 block = {shape.n_threads, 1, 1};
    void *arguments[] = {(void *)&launch->arguments};
    cudaError_t error =
        cudaLaunchKernel((const void *)kernels->ops[launch->op].kernels[launch->kind], grid, block,
                         arguments, 0, stream);
    char name[64];

    if (error == cudaSuccess) {
        return 0;
    }
    snprintf(name, sizeof(name), "kernel %s of op %s", kind->name,
             op_codes[launch->op]->manifest->name);
    return cuda_check(error, name, __FILE__, __LINE__, ret_trouble);
}

bool cuda_kernels_see_host(const struct cuda_kernels *kernels)
{
    return kernels->sees_host;
}

uint32_t cuda_kernels_copy(const struct cuda_kernels *kernels)
{
    return kernels->copy;
}

uint64_t cuda_kernels_parallel(const struct cuda_kernels *kernels, uint32_t op)
{
    uint32_t min_parallel = op_codes[op]->manifest->min_parallel;

    return min_parallel == 1 ? 1 : (uint64_t)min_parallel * kernels->n_processors;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int look_up(struct cuda_kernels *kernels, uint32_t op, enum work_kind kind,
                   struct cuda_trouble *ret_trouble)
{
    const char *op_name = op_codes[op]->manifest->name;
    char name[64];

    snprintf(name, sizeof(name), "gp_%s_%s", op_name, kinds[kind].name);
    return cuda_check(
        cudaLibraryGetKernel(&kernels->ops[op].kernels[kind], kernels->ops[op].library, name), name,
        __FILE__, __LINE__, ret_trouble);
}

static int measure_map(struct cuda_op *op, struct cuda_trouble *ret_trouble)
{
    struct cudaFuncAttributes attributes = {0};
    int error = CUDA_CHECK(cudaFuncGetAttributes(&attributes, (const void *)op->kernels[WORK_MAP]),
                           ret_trouble);

    op->most_threads = error == 0 ? (uint32_t)attributes.maxThreadsPerBlock : 0;
    return error;
}

static int load_op(struct cuda_kernels *kernels, uint32_t op, struct cuda_trouble *ret_trouble)
{
    const struct op_code *code = op_codes[op];
    int error = CUDA_CHECK(
        cudaLibraryLoadData(&kernels->ops[op].library, fatbins[op], NULL, NULL, 0, NULL, NULL, 0),
        ret_trouble);

    if (error == 0 && code->manifest->kind == OP_REDUCE && code->n_lanes == 0) {
        error = cuda_trouble(ret_trouble, STATUS_INTERNAL, "op %s does not say how many lanes",
                             code->manifest->name);
    }
    for (enum work_kind kind = 0; kind < N_KINDS && error == 0; kind++) {
        if (kinds[kind].op_kind == code->manifest->kind) {
            error = look_up(kernels, op, kind, ret_trouble);
        }
    }
    if (error == 0 && code->manifest->kind == OP_MAP) {
        error = measure_map(&kernels->ops[op], ret_trouble);
    }
    return error;
}

static int measure_device(struct cuda_kernels *kernels, struct cuda_trouble *ret_trouble)
{
    int n_processors = 0, n_threads = 0, sees_host = 0;
    const struct {
        enum cudaDeviceAttr which;
        int *value;
    } attributes[] = {
        {cudaDevAttrMultiProcessorCount, &n_processors},
        {cudaDevAttrMaxThreadsPerMultiProcessor, &n_threads},
        {cudaDevAttrCanUseHostPointerForRegisteredMem, &sees_host},
    };
    int error = 0;

    for (size_t i = 0; i < ARRAY_SIZE(attributes) && error == 0; i++) {
        error = CUDA_CHECK(cudaDeviceGetAttribute(attributes[i].value, attributes[i].which, 0),
                           ret_trouble);
    }
    if (error == 0) {
        kernels->n_processors = (uint32_t)n_processors;
        kernels->n_blocks = (uint32_t)n_processors * (uint32_t)n_threads / N_THREADS;
        kernels->sees_host = sees_host != 0;
    }
    return error;
}

/* Every kernel over a chunk without records; memory is all zeros. */
static int launch_all(const struct cuda_kernels *kernels, void *memory, cudaStream_t stream,
                      struct cuda_trouble *ret_trouble)
{
    int error = 0;

    for (uint32_t op = 0; op < n_op_codes && error == 0; op++) {
        for (enum work_kind kind = 0; kind < N_KINDS && error == 0; kind++) {
            const struct cuda_launch launch = {
                .op = op, .kind = kind, .arguments = {.n_chunks = 1, .chunk = {.out = {memory}}}};

            if (kinds[kind].op_kind == op_codes[op]->manifest->kind && kinds[kind].is_warmed) {
                error = cuda_kernels_launch(kernels, &launch, stream, ret_trouble);
            }
        }
    }
    return error == 0 ? CUDA_CHECK(cudaStreamSynchronize(stream), ret_trouble) : error;
}

/* The first use of the device's pool takes 12 ms.  Where it has none, that is said when it matters.
 */
static void use_pool(cudaStream_t stream)
{
    void *memory = NULL;

    if (cudaMallocAsync(&memory, MANIFEST_PARTIAL_SIZE, stream) == cudaSuccess) {
        cudaFreeAsync(memory, stream);
        cudaStreamSynchronize(stream);
    }
    cudaGetLastError();
}

static int warm_up(const struct cuda_kernels *kernels, struct cuda_trouble *ret_trouble)
{
    cudaStream_t stream = NULL;
    void *memory = NULL;
    int error = CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), ret_trouble);

    if (error == 0) {
        error = CUDA_CHECK(cudaMalloc(&memory, MANIFEST_PARTIAL_SIZE), ret_trouble);
    }
    if (error == 0) {
        error = CUDA_CHECK(cudaMemsetAsync(memory, 0, MANIFEST_PARTIAL_SIZE, stream), ret_trouble);
    }
    if (error == 0) {
        error = launch_all(kernels, memory, stream, ret_trouble);
    }
    cudaFree(memory);
    if (error == 0) {
        use_pool(stream);
    }
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
    return error;
}

static int find_copy(struct cuda_kernels *kernels, struct cuda_trouble *ret_trouble)
{
    while (kernels->copy < n_op_codes &&
           strcmp(op_codes[kernels->copy]->manifest->name, "copy") != 0) {
        kernels->copy++;
    }
    if (kernels->copy == n_op_codes) {
        return cuda_trouble(ret_trouble, STATUS_INTERNAL, "there is no op copy");
    }
    return 0;
}

int cuda_kernels_create(struct cuda_kernels **ret_kernels, struct cuda_trouble *ret_trouble)
{
    struct cuda_kernels *kernels = calloc(1, sizeof(*kernels));
    int error;

    if (kernels == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the table of kernels");
    }
    error = find_copy(kernels, ret_trouble);
    if (error == 0) {
        error = measure_device(kernels, ret_trouble);
    }
    for (uint32_t op = 0; op < n_op_codes && error == 0; op++) {
        error = load_op(kernels, op, ret_trouble);
    }
    if (error == 0) {
        error = warm_up(kernels, ret_trouble);
    }
    if (error < 0) {
        cuda_kernels_destroy(kernels);
        return error;
    }
    *ret_kernels = kernels;
    return 0;
}

void cuda_kernels_destroy(struct cuda_kernels *kernels)
{
    if (kernels == NULL) {
        return;
    }
    for (size_t op = 0; op < ARRAY_SIZE(kernels->ops); op++) {
        if (kernels->ops[op].library != NULL) {
            cudaLibraryUnload(kernels->ops[op].library);
        }
    }
    free(kernels);
}
