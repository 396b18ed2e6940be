/*
 * CUDA pipeline: the hot path of the CUDA backend.  Work waits in one queue per priority until a
 * slot is free; then its launch goes to one stream, at once or step by step, and is looked at until
 * it is done.  Launches on different streams overlap.
 *
 * Threads: create and destroy on the control thread, all else on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device.h"

struct cuda_pipeline;

/* Allocates, loads and creates all that the hot path uses, and calibrates what is small; n_streams
 * of each priority. */
int cuda_pipeline_create(uint32_t n_streams, struct cuda_pipeline **ret_pipeline,
                         struct cuda_trouble *ret_trouble);
/* Waits for what is in flight.  NULL is fine. */
void cuda_pipeline_destroy(struct cuda_pipeline *pipeline);

/* Calibration's: kernels move the arrays of works of up to so many bytes in all, at most
 * CUDA_SMALL, in the copy engines' place; 0: of none.  Nothing may be in flight. */
void cuda_pipeline_set_small(struct cuda_pipeline *pipeline, uint64_t bytes);
uint64_t cuda_pipeline_small(const struct cuda_pipeline *pipeline);

/* See device.h. */
uint32_t cuda_pipeline_room(const struct cuda_pipeline *pipeline, enum priority priority);
void cuda_pipeline_issue(struct cuda_pipeline *pipeline, const struct device_work *work,
                         uint32_t n);
int cuda_pipeline_poll(struct cuda_pipeline *pipeline, struct device_completion *ret_completions,
                       uint32_t max, struct failure *ret_failure);
void cuda_pipeline_wait(struct cuda_pipeline *pipeline, int doorbell_fd);
