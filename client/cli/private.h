/*
 * Private: a daemon for one command, gone afterwards.
 *
 * The daemon listens in a fresh folder of ours with mode 0700.  It ends when the command has ended,
 * and when we die, whatever of: both get SIGTERM then.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include <stdint.h>

struct private_options {
    const char *backend;
    const char *devices; /* NULL: all there are */
    uint64_t pool_size;  /* what the command needs of it; 0: the daemon's default */
};

/*
 * Start a daemon and call command(arg) in a child process, with GPUPIPE_SOCKET set.  Returns its
 * exit code, or 128 + the signal that ended it.  Signals that we get go on to the child, as long as
 * it does not get them from the terminal itself.
 */
int private_run(const struct private_options *options, int (*command)(void *arg), void *arg);
