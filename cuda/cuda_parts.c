/*
 * Green contexts, of the driver's API: the runtime has none.  The driver is asked for each function
 * by name, so that this program starts without one, and with one that is older.
 */
#include "cuda/cuda_parts.h"

#include "proto/util.h"

#include <cuda.h>
#include <string.h>

/* Eight are the least that an H200 parts with; the urgent kernels of 4 KiB need fewer. */
#define N_FEW 8u
/* Of fewer these would be too large a part. */
#define N_LEAST 64

/* The version that has all of them. */
#define DRIVER_VERSION 12050

#define FUNCTIONS(X)                                                                               \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuGreenCtxStreamCreate)

struct cuda_parts {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
    CUgreenCtx contexts[CUDA_PARTS];
};

/* false: this driver has no such function. */
static bool find(const char *name, void *ret_function)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &function, DRIVER_VERSION, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return false;
    }
    memcpy(ret_function, &function, sizeof(function));
    return function != NULL;
}

static bool find_all(struct cuda_parts *parts)
{
#define X(name) &&find(#name, &parts->name)
    return true FUNCTIONS(X);
#undef X
}

static bool create_context(struct cuda_parts *parts, enum cuda_part part, CUdevResource *resource)
{
    CUdevResourceDesc description;

    return parts->cuDevResourceGenerateDesc(&description, resource, 1) == CUDA_SUCCESS &&
           parts->cuGreenCtxCreate(&parts->contexts[part], description, 0,
                                   CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS;
}

/* false: the device is not to be parted. */
static bool part_device(struct cuda_parts *parts)
{
    CUdevResource all, few, others;
    unsigned int n = 1;

    return parts->cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
           all.sm.smCount >= N_LEAST &&
           parts->cuDevSmResourceSplitByCount(&few, &n, &all, &others, 0, N_FEW) == CUDA_SUCCESS &&
           n == 1 && create_context(parts, CUDA_FEW, &few) &&
           create_context(parts, CUDA_OTHERS, &others);
}

int cuda_parts_create(struct cuda_parts **ret_parts, struct cuda_trouble *ret_trouble)
{
    struct cuda_parts *parts = calloc(1, sizeof(*parts));

    *ret_parts = NULL;
    if (parts == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the parts");
    }
    if (!find_all(parts) || !part_device(parts)) {
        cuda_parts_destroy(parts);
        return 0;
    }
    *ret_parts = parts;
    return 0;
}

void cuda_parts_destroy(struct cuda_parts *parts)
{
    if (parts == NULL) {
        return;
    }
    for (enum cuda_part part = CUDA_FEW; part < CUDA_PARTS; part++) {
        if (parts->contexts[part] != NULL) {
            parts->cuGreenCtxDestroy(parts->contexts[part]);
        }
    }
    free(parts);
}

int cuda_parts_stream(const struct cuda_parts *parts, enum cuda_part part, int priority,
                      cudaStream_t *ret_stream, struct cuda_trouble *ret_trouble)
{
    CUresult result;

    if (part == CUDA_WHOLE) {
        return CUDA_CHECK(cudaStreamCreateWithPriority(ret_stream, cudaStreamNonBlocking, priority),
                          ret_trouble);
    }
    result = parts->cuGreenCtxStreamCreate(ret_stream, parts->contexts[part],
                                           CU_STREAM_NON_BLOCKING, priority);
    if (result != CUDA_SUCCESS) {
        return cuda_trouble(ret_trouble, STATUS_INTERNAL,
                            "no stream for a part of the device: driver error %d", (int)result);
    }
    return 0;
}
