/*
 * Rig: a worker without a daemon, fed as the daemon feeds it, over memory that any number of
 * workers share with this program: one segment of inputs, one of outputs.
 *
 * The program is $GPUPIPE_WORKER, else the CUDA worker of this build.  What goes wrong in
 * tests/worker/front_end.h jumps; main() says RIG_GUARD() first, and the program ends.
 *
 * Threads: one, which spins while work is in flight: what is measured is the worker.
 */
#pragma once

#include "tests/bench/subject.h"
#include "tests/check.h"
#include "tests/worker/front_end.h"

struct rig_memory {
    int in_fd;
    int out_fd;
    uint8_t *in;
    uint8_t *out;
    size_t size;
};

struct rig {
    struct front front;
    uint32_t record_sizes[FRONT_JOBS];
    uint32_t n_jobs;
};

#define RIG_GUARD()                                                                                \
    do {                                                                                           \
        enum check_end rig_end = setjmp(check_jump);                                               \
        if (rig_end != CHECK_END_PASSED) {                                                         \
            rig_leave(rig_end);                                                                    \
        }                                                                                          \
    } while (0)

/* Says why and exits: 77 without a device, else 1. */
_Noreturn void rig_leave(enum check_end end);

/* Two segments of size bytes. */
void rig_memory_create(size_t size, struct rig_memory *ret_memory);
void rig_memory_destroy(struct rig_memory *memory);

/* n_streams 0: the worker's own number. */
void rig_start(const struct rig_memory *memory, uint32_t n_streams, struct rig *ret_rig);
void rig_stop(struct rig *rig);

/* A job of this op; returns its slot. */
uint32_t rig_open(struct rig *rig, const struct subject *subject);

/* The bytes [at, at + size) of the inputs into the same of the outputs; returns its index, which
 * queue_work_is_held() until rig_take() has seen it answered. */
uint32_t rig_submit(struct rig *rig, enum priority priority, uint32_t job, size_t at, size_t size);
/* Does not sleep; adds what was answered to n. */
void rig_take(struct rig *rig, uint32_t n[PRIORITY_COUNT]);

/* Bulk: the first size bytes in chunks, depth of them in flight.  Returns the seconds. */
double rig_run(struct rig *rig, uint32_t job, size_t size, size_t chunk_size, uint32_t depth);
