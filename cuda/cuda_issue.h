/*
 * CUDA issue: the operations of one launch, from the arrays of its works in the host's memory to
 * their results there.
 *
 * Threads: the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/cuda_consts.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_slots.h"

/* Of all arrays of a work, as they are laid out on the device. */
uint64_t cuda_issue_bytes(const struct device_work *work);

/*
 * Put one more work into the slot, which says what it holds then; false: that does not go with it.
 * Anything goes into an empty slot.  Kernels move the arrays of a work of up to `small` bytes, if
 * these are not 0; engines move all others.
 */
bool cuda_issue_join(const struct cuda_kernels *kernels, uint64_t small, struct cuda_slot *slot,
                     const struct device_work *work);

/*
 * Issue the next step of the launch, whose kernel goes to this stream; false: that was the last
 * one.  A step is one call of CUDA at most: an array copied, a kernel, or what says that all is
 * done, the number in the slot's window if the slot tells its end, else its event.  More only where
 * one stream is to wait for another, constants are new to the device, arrays do not fit the slot,
 * or stages are timed.
 *
 * What goes wrong is noted: after a negative *ret_error, the trouble's, the next step is the last,
 * and what has been issued is behind it.  If that itself goes wrong nobody can say when the slot is
 * free again: *ret_is_lost.
 */
bool cuda_issue_step(const struct cuda_kernels *kernels, struct cuda_consts *consts,
                     struct cuda_slot *slot, cudaStream_t stream, int *ret_error, bool *ret_is_lost,
                     struct cuda_trouble *ret_trouble);
