/*
 * Direct: the rival.  The best pipeline that one process can be given by hand: chunk after chunk,
 * copy-in, kernel and copy-out on a stream of their own, and the next chunk as soon as an event
 * says that the chunk before it in the same place is done.  Same memory, same kernels as the
 * worker; no queue, no second process, no table that is copied along.
 *
 * The context spins where it waits.  Whatever CUDA refuses ends the program.
 *
 * Thread: its caller's.
 */
#pragma once

#include "tests/bench/subject.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECT_DEPTH_MAX 16u

struct direct; /* the context, the memory it has registered, and the kernels */
struct direct_plan;

/* The first call of CUDA in this process. */
void direct_open(uint8_t *in, uint8_t *out, size_t size, struct direct **ret_direct);
void direct_close(struct direct *direct);

enum direct_wait {
    DIRECT_EVENTS,      /* a chunk waits for the event of the one before it in its place */
    DIRECT_GRAPHS,      /* the same, and each chunk's three operations are one captured graph */
    DIRECT_SYNCHRONISE, /* every chunk is waited for before the next is issued */
};

struct direct_shape {
    const struct subject *subject;
    size_t chunk_size; /* whole chunks make up the memory */
    size_t first;      /* where chunk 0 begins in it */
    uint32_t depth;    /* at most DIRECT_DEPTH_MAX */
    enum direct_wait wait;
    bool is_urgent; /* streams of the highest priority there is */
};

/* Everything that can be done beforehand. */
void direct_plan_create(const struct direct *direct, const struct direct_shape *shape,
                        struct direct_plan **ret_plan);
/* NULL is fine. */
void direct_plan_destroy(struct direct_plan *plan);
/* All of the memory once; returns the seconds. */
double direct_run(struct direct_plan *plan);
/* Its first n_chunks over and over, until `until_ns`.  Returns how many were done in
 * [from_ns, to_ns); *ret_n: in all. */
uint64_t direct_run_until(struct direct_plan *plan, uint32_t n_chunks, uint64_t from_ns,
                          uint64_t to_ns, uint64_t until_ns, uint64_t *ret_n);
/* One chunk of it, with nothing else in flight, until it is done. */
void direct_step(struct direct_plan *plan, uint32_t chunk);

/* Any of them in flight: a chunk in its place, chunk % depth, which must be free. */
void direct_send(const struct direct_plan *plan, uint32_t chunk);
bool direct_is_done(const struct direct_plan *plan, uint32_t chunk);
