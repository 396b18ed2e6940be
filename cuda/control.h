/*
 * Control: the worker's conversation with the front end over the control socket, from HELLO to its
 * end.  See proto/worker_abi.h.
 *
 * Threads: runs on, and is, the control thread.
 */
#pragma once

#include <stdbool.h>

/*
 * Open the device (NULL: the first there is), announce it, and serve until the front end says STOP
 * or closes the socket. Returns true then.  False: the worker cannot go on; the front end has been
 * told why (FATAL).
 */
bool control_run(int socket_fd, const char *device);
