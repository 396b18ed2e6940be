/*
 * Front end: plays the daemon to one real worker.  Starts the program with its control socket, does
 * the greeting, lends it segments, publishes entries and collects answers.  Every step checks; what
 * does not come within FRONT_PATIENCE_MS fails the test, and the worker is killed at its end.
 */
#pragma once

#include "proto/queue.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <sys/types.h>

#define FRONT_PATIENCE_MS 60000
#define FRONT_SEGMENTS    8
#define FRONT_JOBS        64
#define FRONT_OPS         16

/* An answered entry, in the order of answers. */
struct front_answer {
    enum priority priority;
    uint32_t index;
    struct work_entry entry;
    struct work_result result;
};

struct front {
    pid_t pid;
    int control_fd;
    int doorbell_fd;
    int jobs_fd;
    struct queue *queue;
    struct job_block *jobs;
    struct worker_caps caps;
    struct manifest_op ops[FRONT_OPS];
    struct work_error error; /* of the last answer that was not OK */
    struct {
        void *base;
        size_t size;
    } segments[FRONT_SEGMENTS];
};

/* exec the program, as a child of the caller, with fd as its control socket. */
pid_t front_spawn(const char *program, int fd);

/* Is a worker's first message HELLO?  Skips the test where it is the news that no device is there.
 */
void front_need_hello(const struct control_message *message);

/*
 * Start the program named by an environment variable; receive HELLO and MANIFESTs.  Skips the test
 * where the program finds no device.
 */
void front_start(struct front *ret_front, const char *variable);
/* And QUEUES, up to READY.  first_index is that of all queues. */
void front_start_ready(struct front *ret_front, const char *variable, uint32_t first_index);

void front_send(struct front *front, const struct control_message *message, const int *fds,
                uint32_t n_fds);
/* The next message, which is of this type. */
void front_expect(struct front *front, enum control_type type, struct control_message *ret_message);
/*
 * Kill the worker and let go of everything.  Every test's end does this; a test that starts a
 * second worker in the same front does it in between.
 */
void front_finish(struct front *front);
/* End of file, and then the exit status. */
void front_expect_exit(struct front *front, int status);

/* PING, and wait for its PONG. */
void front_ping(struct front *front);

/* Make a segment, lend it, and wait for its OK.  Filled with 0xa5. */
void *front_add_segment(struct front *front, uint32_t id, size_t size);
/* The same with a memfd that is there already, as it is filled. */
void *front_lend_segment(struct front *front, uint32_t id, int fd, size_t size);
/* Ask for a segment that the worker cannot have: it refuses, and says these words. */
void front_expect_refusal(struct front *front, uint32_t id, int fd, size_t size, const char *words);
void front_drop_segment(struct front *front, uint32_t id);
/* Index of an op by its name. */
uint32_t front_op(const struct front *front, const char *name);
/* Write a slot of the job block; params may be NULL. */
void front_set_job(struct front *front, uint32_t slot, uint32_t op, const void *params,
                   size_t params_size);

/* Place and publish one entry; returns its index. */
uint32_t front_submit(struct front *front, enum priority priority, struct work_entry entry);
/* Likewise with n rows. */
uint32_t front_submit_table(struct front *front, enum priority priority, struct work_entry entry,
                            const struct work_row *rows, uint32_t n);
/* Wait for n more answers, check that their times are in order, and release their places. */
void front_await(struct front *front, struct front_answer *ret_answers, uint32_t n);
/* Submit one entry and wait for its answer, the only one outstanding. */
struct work_result front_run(struct front *front, enum priority priority, struct work_entry entry);
