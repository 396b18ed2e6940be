/*
 * The errors of the protocol, and the one way to report them.
 *
 * Whatever the world got wrong (a client, a file, a worker) becomes a `struct failure`: a status,
 * the field it is about, and a sentence that says what to do.  Functions that can meet such errors
 * take `struct failure *ret_failure` last and return 0 or a negative enum status.  Plain -errno is
 * for system calls.  No message names a path of the machine, a pointer or another client's data.
 *
 * Threads: pure functions, no state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* X(name, what it means): the wire name is the enum's name. */
#define STATUS_LIST(X)                                                                             \
    X(PROTO, "the bytes are not MessagePack-RPC, or break a limit; the connection closes")         \
    X(VERSION, "client and daemon have no version in common")                                      \
    X(UNKNOWN_METHOD, "no such method")                                                            \
    X(UNKNOWN_OP, "no such op on this daemon")                                                     \
    X(INVALID_PARAM, "a parameter or option is unknown, missing or of the wrong type")             \
    X(RANGE, "a value is outside what it may be")                                                  \
    X(TOO_BIG, "larger than a limit that does not move")                                           \
    X(NO_CREDIT, "more pushes than the window holds; wait for job.result")                         \
    X(SEQ, "pushes are numbered from 0 without gaps")                                              \
    X(BUSY, "no room now; try again later")                                                        \
    X(QUOTA, "the user's share is used up")                                                        \
    X(DENIED, "not allowed for this user")                                                         \
    X(NOT_YOURS, "belongs to another connection")                                                  \
    X(NOT_FOUND, "no such job, device or object")                                                  \
    X(NO_DEVICE, "no device can do this")                                                          \
    X(NO_MEMORY, "the device is out of memory")                                                    \
    X(DEADLINE, "the deadline passed first")                                                       \
    X(CANCELLED, "cancelled")                                                                      \
    X(KERNEL_FAULT, "the op's kernel faulted")                                                     \
    X(KERNEL_TIMEOUT, "the op's kernel ran over its time limit")                                   \
    X(RETRY_UNSAFE, "lost with its worker and not repeatable")                                     \
    X(DEVICE_LOST, "lost with its worker or device")                                               \
    X(QUARANTINED, "this op killed its worker twice for this user")                                \
    X(RING, "the ring's contents broke its rules, or its memory is no more")                       \
    X(INTERNAL, "a defect of the daemon")

enum status {
    STATUS_OK = 0,
#define X(name, doc) STATUS_##name,
    STATUS_LIST(X)
#undef X
        STATUS_COUNT
};

struct failure {
    enum status status;
    uint32_t retry_ms; /* when it makes sense to try again; 0 = unknown */
    char field[48];    /* the parameter, option or key it is about; "" = none */
    char message[208];
    char limit[32];        /* the limit that is the reason, by its wire name; "" = none ... */
    uint64_t used;         /* ... what was used up, or asked for, in the limit's unit ... */
    uint64_t max;          /* ... and what there may be here and now */
    uint64_t predicted_ns; /* why it is not let in: it would take so long */
    uint64_t n_done;       /* records that were done all the same */
};

/* "RANGE" for STATUS_RANGE; "OK" for 0; "INTERNAL" for anything unknown. */
const char *status_name(enum status status);

/* The status called NAME, or STATUS_INTERNAL where this version knows no such name. */
enum status status_from_name(const char *name);

/*
 * Fill *ret_failure (field may be NULL) and return -status.  The message is made printable ASCII:
 * it goes to terminals and logs, and may quote what a client sent.
 */
__attribute__((format(printf, 4, 5))) int fail(struct failure *ret_failure, enum status status,
                                               const char *field, const char *format, ...);

/* Add the limit that is the reason, by its name in limits.h, or "pool" or "ring_pool", all that
 * this daemon has.  Returns the failure's -status. */
int failure_add_limit(struct failure *failure, const char *limit, uint64_t used, uint64_t max);
