/*
 * Spawner: the small process that starts workers.
 *
 * It is forked before the front end starts threads or confines itself, and starts each worker by
 * clone(CLONE_PARENT) and exec: the front end is the workers' parent, so that it can wait for them
 * and its death ends them, while confinement of the front end does not reach them.
 * Workers get a clean environment: nothing but PATH and what --worker-env names.
 *
 * The spawner leads a session of its own, so that a terminal's Ctrl-C reaches the front end only,
 * which ends its workers in good order.  It ends when the front end closes its socket.
 *
 * Thread: the front end's loop; the calls block for the time of one fork.
 */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawner;

/*
 * Fork it.  environment: n_environment strings NAME=VALUE for the workers.  Worker programs are
 * looked for beside the daemon's own file.
 */
int spawner_create(const char *const *environment, uint32_t n_environment,
                   struct spawner **ret_spawner, struct failure *ret_failure);
void spawner_destroy(struct spawner *spawner);

/* It was killed: no worker can be started any more. */
bool spawner_is_gone(const struct spawner *spawner);

/*
 * Start gpupipe-worker-<backend>, for this device ("": the first it finds), with control_fd as its
 * descriptor 3.  control_fd stays the caller's.  Returns the worker's pidfd and its pid in
 * *ret_pid.  NO_DEVICE: there is no such program; BUSY: not now, see channel_send_packet();
 * INTERNAL: the system refused.
 */
int spawner_start(struct spawner *spawner, const char *backend, const char *device, int control_fd,
                  pid_t *ret_pid, struct failure *ret_failure);
