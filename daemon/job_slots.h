/*
 * Job slots: the memfd from which workers read op and parameters of a job (worker_abi.h).
 *
 * One for the daemon's life, given to each worker generation: a slot is written before an entry
 * that names it is published, and not reused while one is in flight.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/worker_abi.h"

struct job_slots;

int job_slots_create(struct job_slots **ret_slots); /* 0 or -errno */
void job_slots_destroy(struct job_slots *slots);
int job_slots_fd(const struct job_slots *slots);

/* Write a slot.  0 with its number, or -EAGAIN (LIMIT_JOB_SLOTS are taken). */
int job_slots_take(struct job_slots *slots, const struct job_block *block, uint32_t *ret_slot);
void job_slots_give(struct job_slots *slots, uint32_t slot);
