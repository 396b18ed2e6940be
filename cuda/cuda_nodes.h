/*
 * CUDA nodes: a look at the device nodes, for when the driver has refused.  It says "no device"
 * whether there is none, its node is missing, or we may not open it.
 *
 * Threads: a plain function.
 */
#pragma once

#include "proto/status.h"

/*
 * NO_DEVICE: a node that the driver needs is missing from this folder (/dev), or cannot be opened;
 * the message says which and what helps.  0: the nodes are not what is wrong.
 */
int cuda_nodes_check(const char *folder, struct failure *ret_failure);
