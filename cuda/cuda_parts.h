/*
 * CUDA parts: the multiprocessors of the device in two parts, a few for urgent work alone and all
 * others, each a green context.
 *
 * An urgent kernel begins when a block of another ends.  Beside kernels that fill the device for
 * milliseconds it waited 480 us for that, whatever its stream's priority; on a part of its own it
 * need not wait, and those kernels lose the multiprocessors of that part.  So parts are for when
 * there are such kernels, and the whole device is for all else.
 *
 * Threads: create and destroy on the control thread.
 */
#pragma once

#include "cuda/cuda_check.h"

#include <stdint.h>

enum cuda_part {
    CUDA_WHOLE, /* of the device: the context as it is */
    CUDA_FEW,   /* multiprocessors */
    CUDA_OTHERS,
    CUDA_PARTS,
};

struct cuda_parts;

/* Of a driver before 12.5, or a device that is too small, there are none: *ret_parts is NULL. */
int cuda_parts_create(struct cuda_parts **ret_parts, struct cuda_trouble *ret_trouble);
/* Their streams are gone before.  NULL is fine. */
void cuda_parts_destroy(struct cuda_parts *parts);

/* A stream that does not wait for the default one; priority as CUDA counts. */
int cuda_parts_stream(const struct cuda_parts *parts, enum cuda_part part, int priority,
                      cudaStream_t *ret_stream, struct cuda_trouble *ret_trouble);
