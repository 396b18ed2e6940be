/*
 * Party: a process that takes part in a measurement.  It is told to prepare, then from when to when
 * all of them measure, and answers with what it did in that time.
 *
 * Times are CLOCK_MONOTONIC's, which all processes share.
 *
 * Threads: its caller's on either side.
 */
#pragma once

#include "client/cli/histogram.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A party begins when it is told and ends so long after to_ns: all of them are at it in between. */
#define PARTY_WARM_NS  UINT64_C(200000000)
#define PARTY_AFTER_NS UINT64_C(30000000)

struct party_order {
    bool is_run;      /* else it prepares */
    uint32_t what;    /* the party's own list says */
    uint32_t size;    /* of a job, bytes */
    double rate;      /* a second; 0: as fast as it goes */
    uint64_t from_ns; /* of a run: what is done, or due, in [from_ns, to_ns) counts */
    uint64_t to_ns;
};

struct party_answer {
    uint64_t n_bytes;
    uint64_t n_refused;         /* pushes */
    uint64_t n_as_normal;       /* of urgent ones, the user having had his share */
    struct histogram histogram; /* of latencies, ns */
};

struct party {
    pid_t pid; /* 0: there is none */
    int fd;
    struct party_answer *answer; /* of the last run */
};

/* What a party does with an order. */
struct party_side {
    void (*prepare)(void *state, const struct party_order *order);
    void (*run)(void *state, const struct party_order *order, struct party_answer *answer);
    void *state;
};

/* ---- the parent ----------------------------------------------------------------------------- */

/* serve() is called in the child: it sets itself up and calls party_serve(). */
void party_fork(struct party *party,
                void (*serve)(int fd, struct party_answer *, const void *shape), const void *shape);
/* A program of this build, whose last two arguments are for party_join(). */
void party_exec(struct party *party, const char *program, const char *what, const char *argument);
void party_stop(struct party *party);

void party_tell(const struct party *party, const struct party_order *order);
/* Until it has done what it was told, or is set up; the program ends where it fails. */
void party_wait(const struct party *party);
void party_tell_all(const struct party *parties, uint32_t n, const struct party_order *order);
/* Returns the bytes of all of them. */
uint64_t party_wait_all(const struct party *parties, uint32_t n);
/* False: it is gone, or took longer. */
bool party_try_wait(const struct party *party, int timeout_ms);

/* ---- the party ------------------------------------------------------------------------------ */

/* What party_exec() has given. */
int party_join(const char *fd, const char *answer_fd, struct party_answer **ret_answer);
/* "I am set up", then orders until the parent is gone. */
_Noreturn void party_serve(int fd, struct party_answer *answer, const struct party_side *side);
