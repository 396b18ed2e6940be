/*
 * CUDA paces: how long the device takes for a byte of an op with these parameters, as far as
 * launches have shown.  A small cache: what it has forgotten is measured again.
 *
 * Thread: the data thread.
 */
#pragma once

#include "cuda/device.h"

#define CUDA_PACES 64u

struct cuda_paces {
    struct {
        uint64_t key;
        double ns_per_byte; /* 0: unknown */
    } all[CUDA_PACES];
};

/* How long so many bytes will take, at least 1 ns; 0: nobody knows. */
uint64_t cuda_paces_expect(const struct cuda_paces *paces, const struct device_work *work,
                           uint64_t bytes);
void cuda_paces_note(struct cuda_paces *paces, const struct device_work *work, uint64_t bytes,
                     uint64_t device_ns);
