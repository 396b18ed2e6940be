/*
 * After: what the stories of jobs after jobs share.  Jobs copy blocks of BLOCK bytes, and a push
 * has SIZE bytes; what is not said of other jobs is of the same connection.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "tests/check.h"
#include "tests/harness.h"
#include "tests/random.h"
#include "tests/ring_client.h"

enum { MIB = 1 << 20, BLOCK = RING_CLIENT_BLOCK, SIZE = 64 * BLOCK };

/* Options of a job that leaves room for many: two pushes of SIZE. */
#define SMALL "window: 2, max_push: 262144"

static inline int64_t stat_of(struct wire *wire, const char *name)
{
    return wire_number(wire_call(wire, "stats", "[]"), name);
}

static inline uint64_t open_job(struct wire *wire, const char *options)
{
    char text[512];

    snprintf(text, sizeof(text), "['copy', {size: 4096}, {" SMALL "%s}]", options);
    return (uint64_t)wire_number(wire_call(wire, "job.open", text), "job");
}

/* After another of the same connection. */
static inline uint64_t open_after(struct wire *wire, uint64_t other)
{
    char options[64];

    snprintf(options, sizeof(options), ", after: [%" PRIu64 "]", other);
    return open_job(wire, options);
}

static inline const char *open_with_token(struct wire *wire, uint64_t *ret_job)
{
    const msgpack_object *opened =
        wire_call(wire, "job.open", "['copy', {size: 4096}, {" SMALL "}]");

    *ret_job = (uint64_t)wire_number(opened, "job");
    return wire_text(opened, "token");
}

static inline void push(struct wire *wire, uint64_t job, uint64_t seq, const void *data)
{
    wire_call(wire, "job.push", "[%lu, %lu, {}, [%b]]", job, seq, data, (size_t)SIZE);
}

static inline void check_done(struct wire *wire, uint64_t job, const char *state)
{
    const msgpack_object *done = wire_notification(wire, "job.done");

    CHECK_EQ(wire_number(done, "0"), job);
    CHECK_STR(wire_text(done, "1.state"), state);
}

static inline void check_result(struct wire *wire, uint64_t job, uint64_t seq, const void *data)
{
    const msgpack_object *result = wire_notification(wire, "job.result");
    size_t size;
    const void *out;

    CHECK_EQ(wire_number(result, "0"), job);
    CHECK_EQ(wire_number(result, "1"), seq);
    out = wire_bytes(result, "2.out.0", &size);
    CHECK_EQ(size, SIZE);
    CHECK_MEM(out, data, SIZE);
}

/* An error that says that it comes from this other job, and in words why. */
static inline void check_not_begun(const msgpack_object *error, uint64_t other, const char *why)
{
    struct wire_error got = wire_error(error);
    char text[64];

    CHECK_STR(got.name, "CANCELLED");
    snprintf(text, sizeof(text), "job %" PRIu64 ", which this one is after, ", other);
    CHECK_HAS(got.message, text);
    CHECK_HAS(got.message, why);
}

/* The job has failed, its pushes as well, and each says why. */
static inline void check_failed(struct wire *wire, uint64_t job, uint64_t n_pushes, uint64_t other,
                                const char *why)
{
    for (uint64_t i = 0; i < n_pushes; i++) {
        const msgpack_object *result = wire_notification(wire, "job.result");

        CHECK_EQ(wire_number(result, "0"), job);
        check_not_begun(wire_find(result, "2.error"), other, why);
    }
    const msgpack_object *done = wire_notification(wire, "job.done");
    CHECK_EQ(wire_number(done, "0"), job);
    CHECK_STR(wire_text(done, "1.state"), "failed");
    check_not_begun(wire_find(done, "1.error"), other, why);
}

static inline int64_t held(struct wire *wire, uint64_t job)
{
    const msgpack_object *list = wire_call(wire, "job.list", "[{all: true}]");

    for (unsigned i = 0; i < wire_count(list, ""); i++) {
        char path[32];

        snprintf(path, sizeof(path), "%u.job", i);
        if (wire_number(list, path) == (int64_t)job) {
            snprintf(path, sizeof(path), "%u.held", i);
            return wire_number(list, path);
        }
    }
    CHECK_FAIL("job %" PRIu64 " is not listed", job);
}
