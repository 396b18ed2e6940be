/*
 * Devices: the list that --devices takes, written as CUDA_VISIBLE_DEVICES is: indices as nvidia-smi
 * shows them, or UUIDs of GPUs or of their MIG slices, with commas between.  Whether there is such
 * a device the worker tells.
 *
 * Thread: read once at start.
 */
#pragma once

#include "proto/status.h"

#include <stddef.h>

/* The first name of the list.  INVALID_PARAM: a name in it cannot be a device's. */
int devices_first(const char *list, char *ret_device, size_t size, struct failure *ret_failure);
