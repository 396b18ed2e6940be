/*
 * CPU threads: the part of the CPU backend that computes.  A fixed number of threads take work from
 * one first-in-first-out queue per priority, highest first, and hand back completions.
 *
 * Threads: create and destroy from one thread; room, issue, poll from one data thread.
 */
#pragma once

#include "cuda/device.h"

struct cpu_threads;

/* 0 or -errno. */
int cpu_threads_create(uint32_t n_threads, struct cpu_threads **ret_threads);
/* Waits for what has begun, drops what has not.  NULL is fine. */
void cpu_threads_destroy(struct cpu_threads *threads);

uint32_t cpu_threads_room(const struct cpu_threads *threads, enum priority priority);
/* What takes a few microseconds is computed here and now, some of it at a time. */
void cpu_threads_issue(struct cpu_threads *threads, const struct device_work *work, uint32_t n);
uint32_t cpu_threads_poll(struct cpu_threads *threads, struct device_completion *ret_completions,
                          uint32_t max);
/* Has poll() something now? */
bool cpu_threads_has_finished(struct cpu_threads *threads);
/* Becomes readable when a computing thread has finished something, until poll() has returned all.
 */
int cpu_threads_fd(const struct cpu_threads *threads);
