/*
 * CUDA constants: copies of jobs' constants on the device.  The first launch that needs one uploads
 * it, on its own stream; launches on other streams wait for that there.  A copy stays until its
 * place is wanted: an id never comes back for other bytes, so an old copy can be useless, not
 * wrong.
 *
 * Device memory: CUDA_CONST_BYTES, or as much as launches in flight hold, if that is more.
 *
 * Threads: create and destroy on the control thread, all else on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device.h"

#define CUDA_CONST_BYTES (256u << 20) /* sixteen of the largest; not tuned */

struct cuda_consts;
struct cuda_const;

int cuda_consts_create(struct cuda_consts **ret_consts, struct cuda_trouble *ret_trouble);
/* Nothing may be in flight.  NULL is fine. */
void cuda_consts_destroy(struct cuda_consts *consts);

/*
 * Hold the copy of the constant with this id, whose bytes are in array, for a launch on this
 * stream: what is issued there from now on finds it.
 */
int cuda_consts_take(struct cuda_consts *consts, uint64_t id, const struct device_array *array,
                     cudaStream_t stream, struct cuda_const **ret_const,
                     struct cuda_trouble *ret_trouble);
/* The launch is done.  NULL is fine. */
void cuda_const_give(struct cuda_const *constant);

/* Where it lies on the device; of NULL, NULL. */
const void *cuda_const_memory(const struct cuda_const *constant);
