/*
 * Device: the daemon's devices as a table and as JSON, for device list and status.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/cli.h"

/* An array; NULL: out of memory, which cli_print_json() reports. */
json_t *device_to_json(const struct msg_device *devices, uint32_t n_devices);
int device_print(const struct msg_device *devices, uint32_t n_devices);
