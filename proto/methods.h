/*
 * The methods of the protocol: the table that guard, daemon and client share.
 *
 * X(NAME, wire name, fewest params, most params, index of the payload parameter or -1)
 *
 * The payload parameter is an array of Data and always the last: when its first byte arrives,
 * everything needed to judge it is known.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define METHOD_LIST(X)                                                                             \
    X(HELLO, "hello", 0, 1, -1)                                                                    \
    X(PING, "ping", 0, 0, -1)                                                                      \
    X(OP_LIST, "op.list", 0, 1, -1)                                                                \
    X(RUN, "run", 1, 4, 3)                                                                         \
    X(JOB_OPEN, "job.open", 1, 3, -1)                                                              \
    X(JOB_PUSH, "job.push", 2, 4, 3)                                                               \
    X(JOB_CLOSE, "job.close", 1, 1, -1)                                                            \
    X(JOB_CANCEL, "job.cancel", 1, 1, -1)                                                          \
    X(JOB_LIST, "job.list", 0, 1, -1)                                                              \
    X(CONST_PUT, "const.put", 2, 2, 1)                                                             \
    X(CONST_DROP, "const.drop", 1, 1, -1)                                                          \
    X(RING_OPEN, "ring.open", 1, 2, -1)                                                            \
    X(RING_CLOSE, "ring.close", 1, 1, -1)                                                          \
    X(STATS, "stats", 0, 0, -1)                                                                    \
    X(DEVICE_LIST, "device.list", 0, 0, -1)                                                        \
    X(EVENTS_SUBSCRIBE, "events.subscribe", 1, 1, -1)

enum method {
#define X(name, wire, least, most, payload) METHOD_##name,
    METHOD_LIST(X)
#undef X
        METHOD_COUNT
};

/* Notifications that the server sends. */
#define NOTIFY_JOB_RESULT  "job.result"
#define NOTIFY_JOB_DONE    "job.done"
#define NOTIFY_RING_CLOSED "ring.closed"
#define NOTIFY_EVENT       "event"

struct method_row {
    const char *name;
    uint8_t n_params_least;
    uint8_t n_params_most;
    int8_t payload; /* index of the payload parameter, or -1 */
};

/* The row of a method; method < METHOD_COUNT. */
const struct method_row *method_row(enum method method);

/* The method called by these bytes (not terminated), or METHOD_COUNT. */
enum method method_find(const char *name, size_t size);
