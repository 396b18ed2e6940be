/*
 * Device list: what --devices takes, written as CUDA_VISIBLE_DEVICES is: indices, or UUIDs of GPUs
 * or of their MIG slices, with commas between.  Whether there is such a device its worker tells.
 *
 * Thread: read once at start.
 */
#pragma once

#include "proto/worker_abi.h"

struct device_list {
    uint32_t n;
    char names[LIMIT_DEVICES][WORKER_DEVICE_SIZE];
};

/* INVALID_PARAM: a name in it cannot be a device's or comes twice, or there are too many. */
int device_list_read(const char *text, struct device_list *ret_list, struct failure *ret_failure);
