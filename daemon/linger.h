/*
 * Linger: calls in which the kernel may drop descriptors that a stranger has sent and we never
 * took. Who drops the last reference to a file waits until it is closed, and of a TCP socket its
 * sender says how long that takes.
 *
 * From Linux 6.16 on none arrive (channel_refuse_fds()), and nothing here is needed.  Before that a
 * signal ends the wait after LINGER_NS, for all that one call drops.  Files of FUSE need none of
 * it: only who had them in its table waits for them.
 *
 * Threads: each that starts it, for itself: the front end's loop, and its aside.
 */
#pragma once

#include <stdbool.h>

#define LINGER_NS 1000000 /* far more than a call takes that drops nothing */

/* From now on, in this thread, the two below do something.  0 or -errno. */
int linger_start(void);
bool linger_is_on(void);
void linger_stop(void);

/* Around such calls: recvmsg() and close() of sockets that others have sent to. */
void linger_begin(void);
void linger_end(void);
