/*
 * Aside: a thread that makes a long system call in the place of another, which goes on with what is
 * urgent until the call has returned.
 *
 * Neither thread does anything else with what the call works on meanwhile: it is handed over, and
 * back, by release and acquire.  For ASIDE_SPIN_NS after a call the thread looks for the next one
 * without sleeping, because to be woken takes longer than most calls; it needs a CPU of its own.
 *
 * Threads: all functions belong to the one that has calls made.
 */
#pragma once

#include <stdint.h>

#define ASIDE_SPIN_NS 1000000 /* to wake it takes the caller 5 us.  Not tuned */

struct aside;

/* 0 or -errno. */
int aside_create(struct aside **ret_aside);
/* NULL is fine. */
void aside_destroy(struct aside *aside);

/* Have call(call_arg) made, and call meanwhile(arg) again and again until it has returned. */
void aside_run(struct aside *aside, void (*call)(void *call_arg), void *call_arg,
               void (*meanwhile)(void *arg), void *arg);
