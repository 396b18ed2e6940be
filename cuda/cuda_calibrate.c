/*
 * Calibration: works like those of clients, one after the other, as nothing else is in flight.
 *
 * What is compared is what an idle device takes.  Beside other work engines are slower still, as
 * they serve in order of arrival: where both take the same, the kernel is the better way.  What is
 * staged has the same bound: the kernels that move it are those that are measured.
 */
#include "cuda/cuda_calibrate.h"

#include "cuda/cuda_slots.h"
#include "cuda/registry.h"
#include "proto/util.h"

#include <string.h>

/* The first are slow, whatever is warmed up before, and any may be held up by another program: the
 * best of each way counts.  Not tuned. */
#define N_RUNS 8u

/* Where the engines are faster even at this, kernels do not reach the host's memory well. */
#define LEAST (CUDA_SMALL / 8)

static struct device_work copy_work(uint32_t copy, void *memory, uint64_t bytes)
{
    const uint32_t record_size = 1; /* copy's parameter */
    const uint64_t half = bytes / 2;
    struct device_work work = {.code = op_codes[copy],
                               .op = copy,
                               .kind = WORK_MAP,
                               .priority =
                                   PRIORITY_NORMAL, /* urgent work would be likely after it */
                               .n_records = (uint32_t)half,
                               .in = {{.base = memory, .size = half}},
                               .out = {{.base = (char *)memory + half, .size = half}}};

    memcpy(work.params, &record_size, sizeof(record_size));
    return work;
}

/* *best_ns is lowered to what it takes. */
static int run(struct cuda_pipeline *pipeline, const struct device_work *work, uint64_t *best_ns,
               struct cuda_trouble *ret_trouble)
{
    struct device_work issued = *work;
    struct device_completion completion;
    struct failure failure;
    int n = 0;

    issued.issue_ns = now_ns();
    cuda_pipeline_issue(pipeline, &issued, 1);
    while (n == 0) {
        n = cuda_pipeline_poll(pipeline, &completion, 1, &failure);
    }
    if (n < 0) {
        return cuda_trouble(ret_trouble, failure.status, "%s", failure.message);
    }
    if (completion.result.status != STATUS_OK) {
        return cuda_trouble(ret_trouble, (enum status)completion.result.status, "%s",
                            completion.error.text);
    }
    *best_ns = MIN(*best_ns, completion.result.end_ns - completion.result.issue_ns);
    return 0;
}

int cuda_calibrate_time(struct cuda_pipeline *pipeline, uint32_t copy, void *memory, uint64_t bytes,
                        struct cuda_times *ret_times, struct cuda_trouble *ret_trouble)
{
    const struct device_work work = copy_work(copy, memory, bytes);
    struct cuda_times best = {UINT64_MAX, UINT64_MAX};
    int error = 0;

    /* In turns, so that a device that is slow for a while is so for both. */
    for (uint32_t i = 0; i < N_RUNS && error == 0; i++) {
        cuda_pipeline_set_small(pipeline, bytes);
        error = run(pipeline, &work, &best.kernel_ns, ret_trouble);
        cuda_pipeline_set_small(pipeline, 0);
        error = error == 0 ? run(pipeline, &work, &best.engines_ns, ret_trouble) : error;
    }
    if (error == 0) {
        *ret_times = best;
    }
    return error;
}

int cuda_calibrate(struct cuda_pipeline *pipeline, uint32_t copy, uint64_t *ret_small,
                   struct cuda_trouble *ret_trouble)
{
    struct cuda_times times = {1, 0};
    uint64_t small = 2 * CUDA_SMALL;
    void *memory = NULL;
    int error = CUDA_CHECK(cudaHostAlloc(&memory, CUDA_SMALL, cudaHostAllocMapped), ret_trouble);

    while (error == 0 && times.kernel_ns > times.engines_ns && small > LEAST) {
        small /= 2;
        error = cuda_calibrate_time(pipeline, copy, memory, small, &times, ret_trouble);
    }
    cudaFreeHost(memory);
    if (error == 0) {
        *ret_small = times.kernel_ns > times.engines_ns ? 0 : small;
    }
    return error;
}
