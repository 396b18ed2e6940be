/*
 * The runtime's device in parts: what of the driver makes green contexts.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/runtime.h"

#include <cuda.h>
#include <string.h>

struct CUgreenCtx_st {
    enum cuda_part part;
};

static CUresult get_resource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    CHECK_EQ(device, 0);
    CHECK_EQ(type, CU_DEV_RESOURCE_TYPE_SM);
    resource->sm.smCount = (unsigned)runtime.n_processors;
    return CUDA_SUCCESS;
}

static CUresult split(CUdevResource *result, unsigned *n, const CUdevResource *input,
                      CUdevResource *others, unsigned flags, unsigned n_least)
{
    CHECK_EQ(*n, 1);
    CHECK_EQ(flags, 0);
    result->sm.smCount = n_least;
    others->sm.smCount = input->sm.smCount - n_least;
    return CUDA_SUCCESS;
}

static CUresult describe(CUdevResourceDesc *description, CUdevResource *resource, unsigned n)
{
    CHECK_EQ(n, 1);
    *description = (CUdevResourceDesc)(uintptr_t)resource->sm.smCount;
    return CUDA_SUCCESS;
}

static CUresult create_context(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device,
                               unsigned flags)
{
    const unsigned n = (unsigned)(uintptr_t)description;

    CHECK_EQ(device, 0);
    CHECK_EQ(flags, CU_GREEN_CTX_DEFAULT_STREAM);
    *context = malloc(sizeof(**context));
    (*context)->part = n < (unsigned)runtime.n_processors / 2 ? CUDA_FEW : CUDA_OTHERS;
    runtime.n_contexts++;
    return CUDA_SUCCESS;
}

static CUresult destroy_context(CUgreenCtx context)
{
    free(context);
    runtime.n_contexts--;
    return CUDA_SUCCESS;
}

static CUresult create_part_stream(CUstream *stream, CUgreenCtx context, unsigned flags,
                                   int priority)
{
    CHECK_EQ(flags, CU_STREAM_NON_BLOCKING);
    runtime_create_stream(stream, context->part, priority);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        {"cuDeviceGetDevResource", (void *)get_resource},
        {"cuDevSmResourceSplitByCount", (void *)split},
        {"cuDevResourceGenerateDesc", (void *)describe},
        {"cuGreenCtxCreate", (void *)create_context},
        {"cuGreenCtxDestroy", (void *)destroy_context},
        {"cuGreenCtxStreamCreate", (void *)create_part_stream},
    };

    CHECK(version > 0 && flags == cudaEnableDefault);
    *function = NULL;
    *found = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < ARRAY_SIZE(all) && runtime.has_entry_points; i++) {
        if (strcmp(all[i].name, name) == 0) {
            *function = all[i].function;
            *found = cudaDriverEntryPointSuccess;
        }
    }
    return cudaSuccess;
}
