/*
 * Mapped: see mapped.h, and mapped.cu for the kernel.
 */
#include "tests/bench/mapped.h"

#include "proto/util.h"
#include "tests/bench/must.h"

#define N_THREADS 256u
#define LOOKS     (1u << 22) /* for a number, for one at the stream */

extern const uint8_t gp_fatbin_mapped[];

struct mapped {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    cudaStream_t stream;
    char *in; /* as the device sees them */
    char *out;
    uint32_t *n_done;
    volatile uint32_t *sequence;
    uint32_t *device_sequence;
    uint32_t number; /* of the last step */
    uint32_t n_looks;
};

static void *device_pointer(void *host)
{
    void *device;

    MUST(cudaHostGetDevicePointer(&device, host, 0));
    return device;
}

void mapped_open(uint8_t *in, uint8_t *out, struct mapped **ret_mapped)
{
    struct mapped *mapped = bench_allocate(sizeof(*mapped));
    int lowest, highest;
    void *memory;

    *mapped = (struct mapped){.in = device_pointer(in), .out = device_pointer(out)};
    MUST(cudaLibraryLoadData(&mapped->library, gp_fatbin_mapped, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cudaLibraryGetKernel(&mapped->kernel, mapped->library, "gp_mapped_copy"));
    MUST(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    MUST(cudaStreamCreateWithPriority(&mapped->stream, cudaStreamNonBlocking, highest));
    MUST(cudaMalloc(&memory, sizeof(*mapped->n_done)));
    MUST(cudaMemset(memory, 0, sizeof(*mapped->n_done)));
    mapped->n_done = memory;
    MUST(cudaHostAlloc(&memory, sizeof(*mapped->sequence), cudaHostAllocMapped));
    mapped->sequence = memory;
    *mapped->sequence = 0;
    mapped->device_sequence = device_pointer(memory);
    MUST(cudaDeviceSynchronize());
    *ret_mapped = mapped;
}

void mapped_close(struct mapped *mapped)
{
    MUST(cudaStreamDestroy(mapped->stream));
    MUST(cudaFree(mapped->n_done));
    MUST(cudaFreeHost((void *)mapped->sequence));
    MUST(cudaLibraryUnload(mapped->library));
    free(mapped);
}

void mapped_send(struct mapped *mapped, size_t at, size_t size)
{
    const char *in = mapped->in + at;
    char *out = mapped->out + at;
    uint32_t n = (uint32_t)(size / MAPPED_UNIT), number = ++mapped->number;
    void *arguments[] = {&in, &out, &n, &mapped->n_done, &mapped->device_sequence, &number};
    const dim3 grid = {(uint32_t)div_round_up(n, N_THREADS), 1, 1};
    const dim3 block = {N_THREADS, 1, 1};

    MUST(cudaLaunchKernel((const void *)mapped->kernel, grid, block, arguments, 0, mapped->stream));
}

uint32_t mapped_n_done(struct mapped *mapped)
{
    if (++mapped->n_looks % LOOKS == 0) { /* else a kernel that fails is waited for for ever */
        cudaError_t error = cudaStreamQuery(mapped->stream);

        MUST(error == cudaErrorNotReady ? cudaSuccess : error);
    }
    return __atomic_load_n(mapped->sequence, __ATOMIC_ACQUIRE);
}

void mapped_step(struct mapped *mapped, size_t at, size_t size)
{
    mapped_send(mapped, at, size);
    while (mapped_n_done(mapped) != mapped->number) {
    }
}
