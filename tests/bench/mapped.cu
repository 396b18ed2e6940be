/*
 * Mapped: see mapped.h.
 */
#include <stdint.h>

/* n_done is of the device, and 0 again at the end; everything else is of the host. */
extern "C" __global__ void gp_mapped_copy(const uint4 *in, uint4 *out, uint32_t n, uint32_t *n_done,
                                          volatile uint32_t *sequence, uint32_t number)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = in[i];
    }
    __threadfence_system();
    __syncthreads();
    /* Each block's bytes are visible before it is counted, so all are before the number. */
    if (threadIdx.x == 0 && atomicInc(n_done, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence_system();
        *sequence = number;
    }
}
