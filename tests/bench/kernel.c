/*
 * Kernel: see kernel.h, and cuda/op.h for what kernels take.
 */
#include "tests/bench/kernel.h"

#include "cuda/launch.h"
#include "proto/util.h"
#include "tests/bench/must.h"

#include <string.h>

#define N_THREADS 256u
#define N_BYTES   4u /* for each thread: as the worker launches */

extern const uint8_t gp_fatbin_copy[];
extern const uint8_t gp_fatbin_iterate[];

static const struct code {
    const char *op;
    const char *name;
    const uint8_t *fatbin;
} codes[] = {
    {"copy", "gp_copy_map", gp_fatbin_copy},
    {"iterate", "gp_iterate_map", gp_fatbin_iterate},
};

void kernel_load(const struct subject *subject, struct kernel *ret_kernel)
{
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (strcmp(codes[i].op, subject->op) == 0) {
            MUST(cudaLibraryLoadData(&ret_kernel->library, codes[i].fatbin, NULL, NULL, 0, NULL,
                                     NULL, 0));
            MUST(cudaLibraryGetKernel(&ret_kernel->handle, ret_kernel->library, codes[i].name));
            return;
        }
    }
    bench_fail("no kernel of op %s is at hand", subject->op);
}

void kernel_unload(struct kernel *kernel)
{
    MUST(cudaLibraryUnload(kernel->library));
}

void kernel_launch(const struct kernel *kernel, const struct subject *subject, const void *in,
                   void *out, size_t size, cudaStream_t stream)
{
    struct op_launch launch = {
        .n_chunks = 1,
        .chunk = {.in = {in}, .out = {out}, .n_records = (uint32_t)(size / subject->record_size)},
    };
    void *arguments[] = {&launch};
    const dim3 grid = {(uint32_t)div_round_up(size, N_THREADS * N_BYTES), 1, 1};
    const dim3 block = {N_THREADS, 1, 1};

    memcpy(launch.params, &subject->value, sizeof(subject->value));
    MUST(cudaLaunchKernel((const void *)kernel->handle, grid, block, arguments, 0, stream));
}
