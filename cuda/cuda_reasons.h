/*
 * CUDA reasons: why there is no device, in words for whoever can do something about it.
 *
 * Threads: a plain function.
 */
#pragma once

#include "cuda/cuda_check.h"

/*
 * error is what looking for the device or opening it returned, trouble what it said.  Returns 0 for
 * 0.  A trouble whose reason is known becomes NO_DEVICE with that reason, or NO_MEMORY where the
 * device is there and full.
 */
int cuda_explain(int error, struct cuda_trouble *trouble);
