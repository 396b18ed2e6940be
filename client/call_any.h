/*
 * Call any: a method by its name, with parameters as the caller has packed them.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"

#include <msgpack.h>

/*
 * params is a packed array.  `take` gets the result, payloads in their places as bin; it is gone
 * when take returns, and may be changed.  Blocks; notifications that come meanwhile are ignored.
 * Returns 0 or a negative enum gpupipe_status, with the details in gpupipe_last_error().
 */
int call_any(struct gpupipe *gpupipe, const char *method, const msgpack_sbuffer *params,
             void (*take)(msgpack_object *result, void *arg), void *arg);
