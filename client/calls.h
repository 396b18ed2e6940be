/*
 * Calls: what gpupipe-cli needs of a connection beyond gpupipe.h, in the project's own structs.
 * Linked into it statically, and no part of the library that is installed.
 *
 * Functions that can fail return a negative enum gpupipe_status, and gpupipe_last_error() has the
 * details.  All of them block.  Lists are the caller's to free().
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"
#include "client/search.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

/* As gpupipe_open(), over a connected stream socket, which becomes the library's even on failure.
 */
int call_open_fd(struct gpupipe **ret_gpupipe, int fd, const char *program);
/* Where gpupipe_open() has looked, also where it failed. */
const struct search *call_search(const struct gpupipe *gpupipe);
const struct msg_hello_result *call_hello(const struct gpupipe *gpupipe);

int call_ping(struct gpupipe *gpupipe);
/* name NULL: all. */
int call_op_list(struct gpupipe *gpupipe, const char *name, struct manifest_op **ret_ops,
                 uint32_t *ret_n_ops);
int call_job_list(struct gpupipe *gpupipe, bool is_all, struct msg_job_entry **ret_entries,
                  uint32_t *ret_n_entries);
/* Any job of the user's, by its number. */
int call_job_cancel(struct gpupipe *gpupipe, uint64_t job, enum job_state *ret_state);
int call_stats(struct gpupipe *gpupipe, struct msg_stats *ret_stats);
int call_device_list(struct gpupipe *gpupipe, struct msg_device **ret_devices,
                     uint32_t *ret_n_devices);

/* As gpupipe_job_open() with opts.ring, and the job's numbers as the daemon granted them. */
int call_job_open(struct gpupipe_job **ret_job, struct gpupipe *gpupipe,
                  const struct msg_job_open *msg, struct gpupipe_ring *ring);
const struct msg_job_opened *call_job_shape(const struct gpupipe_job *job);
/* As gpupipe_push_records(), of a job with these numbers. */
uint64_t call_push_records(const struct msg_job_opened *shape);
