/*
 * Client bench: a connection of the library's to a scripted server, a job on it, and pushes whose
 * outputs can be checked.  All of it is cleaned up at the test's end.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "client/gpupipe.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/fake_server.h"

#include <sys/types.h>

#define POISON   0xee
#define N_PUSHES 16

extern struct fake_script script;
extern pid_t server_pid;
extern struct gpupipe *gpupipe;
extern struct gpupipe_job *job;
extern struct gpupipe_ring *ring; /* where works lie, and the job that is opened; NULL: none */

struct work {
    struct gpupipe_desc desc;
    uint8_t *in, *out;
    bool is_back;
    int status;
    uint64_t n_records, out_size;
    bool is_in_ring;
    char message[256];
};

extern struct work works[N_PUSHES];

int connect_to_script(void);
/* The server must have been content with us. */
void check_server(void);
void open_job(void);
/* The same with a ring of 4 MiB, a job in it, and works there. */
void open_job_in_ring(uint64_t most_records);
int open_ring(void);
int open_job_with(const struct gpupipe_job_opts *opts);
bool is_readable(void);
/* The last error of the connection. */
void check_error(int rc, int status, const char *text);
void prepare_work(struct work *work, uint64_t n_records);
void prepare_works(uint64_t most_records);
/* 1: taken, 0: the window is full. */
int submit(struct work *work);
/* Everything that is back; returns how many, or why none can be. */
int reap(void);
bool is_over(struct gpupipe_outcome *ret_outcome);
/* Submit as the window allows, reap, end; until the job is over and everything is back. */
struct gpupipe_outcome run_job(void);
void check_output(const struct work *work);
void check_all_done(void);

/* For check_at_end(), where a test makes a connection or works of its own. */
void end_connection(void *arg);
void free_works(void *arg);

/* Connected, and with works to run; the first of them as one urgent call. */
void prepare_run(void);
extern bool is_ring_run; /* may go through a ring */
int run_work(struct gpupipe_completion *ret_completion);
