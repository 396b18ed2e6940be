/*
 * One table of the errors that starting CUDA ends with, and what they mean to people.
 *
 * The driver's word is not always the cause: where an error may come from the device nodes, they
 * are looked at first.
 */
#include "cuda/cuda_reasons.h"

#include "cuda/cuda_nodes.h"
#include "proto/util.h"

#include <string.h>

static const struct reason {
    cudaError_t error;
    bool may_be_nodes;
    const char *words;
} reasons[] = {
    {cudaErrorNoDevice, true, "the NVIDIA driver works, and there is no GPU"},
    {cudaErrorStubLibrary, false, "libcuda.so.1 is the toolkit's stub, not a driver"},
    {cudaErrorInitializationError, true, "the NVIDIA driver does not start"},
    {cudaErrorOperatingSystem, true, "the NVIDIA driver has no access to the GPU"},
    {cudaErrorUnknown, true, "the NVIDIA driver does not start, and does not know why: see dmesg"},
    {cudaErrorDevicesUnavailable, false,
     "the GPU is in EXCLUSIVE_PROCESS mode and in use by another process, or it is lost"},
    {cudaErrorSystemDriverMismatch, false,
     "libcuda.so.1 and the kernel module are of different versions: reboot, or reload the module"},
    {cudaErrorSystemNotReady, false,
     "the GPU waits for its fabric: does nvidia-fabricmanager run?"},
    {cudaErrorCompatNotSupportedOnDevice, false, "forward compatibility does not support this GPU"},
    {cudaErrorMpsConnectionFailed, false, "the MPS server cannot be reached"},
    {cudaErrorNoKernelImageForDevice, false, "the GPU is older than compute capability 7.5"},
};

/* "13.0" of 13000. */
#define CUDA_MAJOR(version) ((version) / 1000)
#define CUDA_MINOR(version) ((version) % 1000 / 10)

static int explain_driver(struct cuda_trouble *trouble)
{
    int version = 0;

    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
        return fail(&trouble->failure, STATUS_NO_DEVICE, NULL,
                    "no NVIDIA driver: there is no libcuda.so.1");
    }
    return fail(&trouble->failure, STATUS_NO_DEVICE, NULL,
                "the NVIDIA driver is too old: it knows CUDA %d.%d, this program needs %d.%d or "
                "later",
                CUDA_MAJOR(version), CUDA_MINOR(version), CUDA_MAJOR(CUDART_VERSION), 0);
}

/* What was said has the sizes, where they are known. */
static int explain_full(struct cuda_trouble *trouble)
{
    char said[sizeof(trouble->failure.message)];

    memcpy(said, trouble->failure.message, sizeof(said));
    return fail(&trouble->failure, STATUS_NO_MEMORY, NULL,
                "no memory left on the GPU for a worker: %s", said);
}

/* The driver looks away where it is told to. */
static int explain_choice(const char *visible, struct cuda_trouble *trouble)
{
    return fail(&trouble->failure, STATUS_NO_DEVICE, "devices",
                "the NVIDIA driver shows no GPU \"%s\"; nvidia-smi -L lists those there are",
                visible);
}

int cuda_explain(int error, struct cuda_trouble *trouble)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (error == 0) {
        return 0;
    }
    if (trouble->error == cudaErrorInsufficientDriver) {
        return explain_driver(trouble);
    }
    if (trouble->error == cudaErrorMemoryAllocation) {
        return explain_full(trouble);
    }
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        const struct reason *reason = &reasons[i];

        if (reason->error != trouble->error) {
            continue;
        }
        if (reason->may_be_nodes && cuda_nodes_check("/dev", &trouble->failure) < 0) {
            return -STATUS_NO_DEVICE;
        }
        if (reason->error == cudaErrorNoDevice && visible != NULL) {
            return explain_choice(visible, trouble);
        }
        return fail(&trouble->failure, STATUS_NO_DEVICE, NULL, "%s (%s)", reason->words,
                    cudaGetErrorName(trouble->error));
    }
    return error;
}
