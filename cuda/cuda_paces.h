/*
 * CUDA paces: how long the device takes for a byte of an op with these parameters, as far as
 * launches have shown.  A small cache: what it has forgotten is measured again.
 *
 * Thread: the data thread.
 */
#pragma once

#include "cuda/device.h"

#include <stdbool.h>

#define CUDA_PACES 64u

struct cuda_paces {
    struct {
        uint64_t key;
        double ns_per_byte; /* 0: unknown */
    } all[CUDA_PACES];
};

/* Will so many bytes take longer than limit_ns?  No, as long as nobody knows. */
bool cuda_paces_exceeds(const struct cuda_paces *paces, const struct device_work *work,
                        uint64_t bytes, uint64_t limit_ns);
void cuda_paces_note(struct cuda_paces *paces, const struct device_work *work, uint64_t bytes,
                     uint64_t device_ns);
