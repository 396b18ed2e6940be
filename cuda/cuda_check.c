/*
 * What the errors of CUDA mean for us, as one table.
 */
#include "cuda/cuda_check.h"

#include "proto/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct meaning {
    cudaError_t error;
    enum status status;
    bool is_harmless; /* the context works on */
} meanings[] = {
    /* Refused before anything was done. */
    {cudaErrorInvalidValue, STATUS_INTERNAL, true},
    {cudaErrorInvalidConfiguration, STATUS_INTERNAL, true},
    {cudaErrorInvalidResourceHandle, STATUS_INTERNAL, true},
    {cudaErrorInvalidDeviceFunction, STATUS_INTERNAL, true},
    {cudaErrorLaunchOutOfResources, STATUS_INTERNAL, true},
    {cudaErrorHostMemoryAlreadyRegistered, STATUS_INTERNAL, true},
    {cudaErrorHostMemoryNotRegistered, STATUS_INTERNAL, true},
    {cudaErrorNotSupported, STATUS_NO_MEMORY, true}, /* a device without memory pools */
    {cudaErrorMemoryAllocation, STATUS_NO_MEMORY, true},
    /* A kernel's doing. */
    {cudaErrorIllegalAddress, STATUS_KERNEL_FAULT, false},
    {cudaErrorMisalignedAddress, STATUS_KERNEL_FAULT, false},
    {cudaErrorInvalidAddressSpace, STATUS_KERNEL_FAULT, false},
    {cudaErrorInvalidPc, STATUS_KERNEL_FAULT, false},
    {cudaErrorIllegalInstruction, STATUS_KERNEL_FAULT, false},
    {cudaErrorHardwareStackError, STATUS_KERNEL_FAULT, false},
    {cudaErrorLaunchFailure, STATUS_KERNEL_FAULT, false},
    {cudaErrorAssert, STATUS_KERNEL_FAULT, false},
    {cudaErrorLaunchTimeout, STATUS_KERNEL_TIMEOUT, false},
    /* There is no device, or it is not for us. */
    {cudaErrorInsufficientDriver, STATUS_NO_DEVICE, false},
    {cudaErrorNoDevice, STATUS_NO_DEVICE, false},
    {cudaErrorStubLibrary, STATUS_NO_DEVICE, false},
    {cudaErrorInitializationError, STATUS_NO_DEVICE, false},
    {cudaErrorOperatingSystem, STATUS_NO_DEVICE, false},
    {cudaErrorDevicesUnavailable, STATUS_NO_DEVICE, false},
    {cudaErrorSystemDriverMismatch, STATUS_NO_DEVICE, false},
    {cudaErrorSystemNotReady, STATUS_NO_DEVICE, false},
    {cudaErrorCompatNotSupportedOnDevice, STATUS_NO_DEVICE, false},
    {cudaErrorNotPermitted, STATUS_NO_DEVICE, false},
    {cudaErrorNoKernelImageForDevice, STATUS_NO_DEVICE, false},
};

static const struct meaning *meaning_of(cudaError_t error)
{
    static const struct meaning unknown = {cudaErrorUnknown, STATUS_DEVICE_LOST, false};

    for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
        if (meanings[i].error == error) {
            return &meanings[i];
        }
    }
    return &unknown;
}

int cuda_check(cudaError_t error, const char *call, const char *file, int line,
               struct cuda_trouble *ret_trouble)
{
    const char *slash = strrchr(file, '/');

    if (error == cudaSuccess) {
        return 0;
    }
    cudaGetLastError();
    ret_trouble->error = error;
    return fail(&ret_trouble->failure, meaning_of(error)->status, NULL, "%s: %s (%d) at %s:%d",
                call, cudaGetErrorName(error), (int)error, slash != NULL ? slash + 1 : file, line);
}

int cuda_trouble(struct cuda_trouble *ret_trouble, enum status status, const char *format, ...)
{
    char message[sizeof(ret_trouble->failure.message)];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    ret_trouble->error = cudaSuccess;
    return fail(&ret_trouble->failure, status, NULL, "%s", message);
}

int cuda_explain_memory(int error, uint64_t wanted, struct cuda_trouble *trouble)
{
    char *message = trouble->failure.message;
    size_t length = strlen(message), n_free = 0, n_all = 0;
    struct cuda_trouble second;

    if (error == -STATUS_NO_MEMORY && CUDA_CHECK(cudaMemGetInfo(&n_free, &n_all), &second) == 0) {
        snprintf(message + length, sizeof(trouble->failure.message) - length,
                 "; %" PRIu64 " bytes wanted, %zu of %zu free", wanted, n_free, n_all);
    }
    return error;
}

bool cuda_is_fatal(const struct cuda_trouble *trouble)
{
    return trouble->error != cudaSuccess && !meaning_of(trouble->error)->is_harmless;
}
