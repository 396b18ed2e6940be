/*
 * Queues: what waits at the daemon and what is under way, as `status` shows it.
 *
 * Threads: one.
 */
#pragma once

#include "client/cli/cli.h"
#include "proto/message.h"

#include <jansson.h>

/* {priorities: [...], devices: [...], users: [...]} */
json_t *queues_to_json(const struct msg_stats *stats);
/* One table.  An exit code. */
int queues_print(const struct msg_stats *stats);
