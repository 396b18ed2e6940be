/*
 * Every number a client can run into, in one place.  PROTOCOL.md prints this list, `hello` returns
 * it, and a test holds the three together.
 *
 * X(name, wire name, value, unit, reason)
 */
#pragma once

#include <stdint.h>

#define LIMIT_LIST(X)                                                                              \
    X(HEAD, "head", 65536, "bytes", "a message without its payload bytes; kept in one buffer")     \
    X(FRAME, "frame", 67174400, "bytes",                                                           \
      "a whole message: four arrays of the largest push, and the head")                            \
    X(ELEMENTS, "elements", 4096, "values", "msgpack-c spends 24 bytes on each decoded value")     \
    X(DEPTH, "depth", 16, "levels", "msgpack-c itself fails past 32, with a misleading error")     \
    X(STRING, "string", 1024, "bytes", "a string that is no payload: names and messages")          \
    X(DEVICES, "devices", 32, "devices", "bits of a set; twice what one machine is sold with")     \
    X(SESSIONS, "sessions", 512, "connections",                                                    \
      "descriptors of the front end, all users together")                                          \
    X(USER_SESSIONS, "user_sessions", 384, "connections",                                          \
      "of one user: three quarters, so that others get in")                                        \
    X(USER_JOBS, "user_jobs", 768, "jobs", "of one user, runs included: likewise")                 \
    X(USER_POOL, "user_pool", 75, "percent",                                                       \
      "of the pool for one user, with what arrives and what nobody reads: likewise")               \
    X(QUEUE, "queue", 16384, "pushes",                                                             \
      "unanswered ones of one priority, all users together: 256 of the widest windows")            \
    X(USER_QUEUE, "user_queue", 75, "percent", "of the queue for one user: three quarters")        \
    X(JOBS, "jobs", 64, "jobs", "open jobs of one connection")                                     \
    X(AFTER, "after", 16, "jobs", "that one job waits for: each costs whoever ends it a step")     \
    X(JOBS_REMEMBERED, "jobs_remembered", 256, "jobs",                                             \
      "that have ended, of one user: later ones may still be after them")                          \
    X(JOB_SLOTS, "job_slots", 1024, "jobs",                                                        \
      "the job-block memfd that workers read parameters from")                                     \
    X(WINDOW, "window", 64, "pushes", "unanswered pushes of one job")                              \
    X(WINDOW_DEFAULT, "window_default", 4, "pushes", "fills the link with 4 MiB pushes")           \
    X(PUSH, "max_push", 16777216, "bytes",                                                         \
      "one array of one push: a chunk never crosses a segment")                                    \
    X(PUSH_DEFAULT, "max_push_default", 4194304, "bytes",                                          \
      "0.98 of the rate of 8 MiB, and urgent work waits half as long for it")                      \
    X(PUSH_LEAST, "max_push_least", 65536, "bytes", "below it a push costs more than its work")    \
    X(RECORD, "record", 16777216, "bytes", "one record of one array lies in one segment")          \
    X(IN, "in", 4, "arrays", "inputs of an op: the fields of a ring descriptor")                   \
    X(OUT, "out", 2, "arrays", "outputs of an op: the fields of a ring descriptor")                \
    X(CONSTS, "consts", 2, "arrays", "constants of an op: what its slot of the job block names")   \
    X(CONST_SIZE, "const_size", 16777216, "bytes", "one constant lies in one segment")             \
    X(CONSTS_HELD, "consts_held", 16, "constants",                                                 \
      "of one connection: they take room from everybody's pushes")                                 \
    X(PARAMS, "params", 16, "parameters", "of an op")                                              \
    X(PARAM_BYTES, "param_bytes", 192, "bytes", "packed parameters: one slot of the job block")    \
    X(SEGMENTS, "segments", 65536, "segments", "of payloads and rings: the 16 bits of a work_ref") \
    X(RINGS, "rings", 16, "rings", "of one connection: each costs the daemon three descriptors")   \
    X(USER_RINGS, "user_rings", 75, "percent",                                                     \
      "of the ring pool for one user, so that others get some")                                    \
    X(RING_SIZE, "ring_size", 1073741824, "bytes",                                                 \
      "data of one ring: 64 arrays of the largest push")                                           \
    X(RING_SIZE_LEAST, "ring_size_least", 1048576, "bytes",                                        \
      "a smaller ring is rounded up: registering costs by the call")                               \
    X(RING_SIZE_DEFAULT, "ring_size_default", 67108864, "bytes",                                   \
      "what is kept ready: in and out of two default windows, 4 MiB pushes")                       \
    X(JOBS_LISTED, "jobs_listed", 192, "jobs", "one job.list: it stays within head and elements")  \
    X(USERS_LISTED, "users_listed", 64, "users", "one answer of stats: likewise")                  \
    X(DEADLINE, "deadline_ms", 604800000, "ms",                                                    \
      "a week: what is further off is a mistake in the unit")                                      \
    X(UNREAD, "unread", 262144, "bytes",                                                           \
      "answers that wait, outputs aside; then the connection is not read, and loses events")       \
    X(HALF_MESSAGE, "half_message_ms", 10000, "ms",                                                \
      "without the end of a message or half_message_least of it, then disconnected")               \
    X(HALF_MESSAGE_LEAST, "half_message_least", 65536, "bytes",                                    \
      "a trickle must not hold the memory of a payload")                                           \
    X(SLOW_READER, "slow_reader_ms", 30000, "ms",                                                  \
      "answers waiting and not read, then disconnected")                                           \
    X(DRAIN, "drain_ms", 10000, "ms", "after SIGTERM: what is in flight may finish")

enum limit {
#define X(name, wire, value, unit, reason) LIMIT_##name = (value),
    LIMIT_LIST(X)
#undef X
};
