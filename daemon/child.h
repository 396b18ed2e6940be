/*
 * Child: a process of ours, by its pidfd.
 *
 * Whoever traces a child (a debugger, a leak checker) learns of its exit first, and until it has
 * let go the child is not ours to reap, though its pidfd is readable.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The pidfd of a child that nobody has reaped, which makes its pid its own; or -errno, and then it
 * is killed and reaped.
 */
int child_open(pid_t pid);

/* SIGKILL. */
void child_kill(int pid_fd);

/*
 * If it has exited and nobody traces it: reap it, and say in ret_words how it ended, for people.
 * Does not wait.
 */
bool child_has_ended(int pid_fd, char *ret_words, size_t size);

/* Wait until it has exited, at most so long; false: it has not. */
bool child_await_exit(int pid_fd, int patience_ms);

/* It was killed or has exited: wait until it is gone, with a limit, and reap it. */
void child_reap(int pid_fd);
