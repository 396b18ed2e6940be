/*
 * Device: the contract of a backend, as a const struct of functions.  A worker program links
 * exactly one backend, which defines device_backend.
 *
 * Life: probe() in a process of its own or before open(); one open() per process; then two threads.
 * The *control thread* opens, adds and drops segments, and closes, all of which may take long.  The
 * *data thread* alone calls room, issue, poll and wait, between open and close; none of these but
 * wait blocks, compiles, or registers memory (issue may compute for microseconds).  Whatever
 * further threads a backend has are its own.
 *
 * Ownership: a segment's mapping belongs to the worker and stays from segment_add until after
 * segment_drop.  Segments come and go at any time between open and close, while the data thread
 * issues work that names others; no work names one before segment_add has returned 0, and the front
 * end drops it only when nothing issued names it.  issue() copies the works; arrays and rows stay
 * untouched by others until the work's completion has been polled.
 *
 * Order: work of a higher priority is begun before work of a lower one that has not begun; within a
 * priority work begins in order of issue, and may complete in any.  Work that is after other work
 * does not begin before that has ended, well or not, and until then keeps nobody waiting.
 *
 * Not guaranteed: that inputs hold still (a client may rewrite its memory at any time), and that
 * work which depends on other work and does not name it was issued after the completion of that
 * other, or that it ended well.  The first is for op code to survive, the rest for the front end to
 * see to.
 */
#pragma once

#include "cuda/registry.h"
#include "proto/status.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device; /* the open device; each backend has its own */

/* An array of some work: where a CPU sees it, and where a device finds it in registered memory. */
struct device_array {
    void *base; /* NULL: not there (the fold of a first MERGE) */
    uint64_t size;
    uint32_t segment;
    uint64_t offset;
};

/*
 * One unit of work, resolved and checked: every array lies in a segment and is large enough.
 *     MAP      in, out as the op has them       LEAVES   in as the op has them; out[0] = partials
 *     MERGE    in[0] = fold so far or none, in[1] = n_records partials; out[0] = new fold
 *     FINISH   in[0] = fold; out as the op has them
 * What came as a TABLE is a MAP with rows: of an array, base is where its segment begins, size the
 * sum of all rows.  device_rows.h says what a row comes to.
 * MAP and LEAVES have the job's constants as well, which do not change while a job names them.
 */
struct device_work {
    uint64_t cookie; /* comes back in the completion; of a priority's in flight no two are the same
                      * modulo WORK_ENTRIES */
    uint64_t after;  /* is_after: the cookie of work of this priority that was issued before */
    uint64_t issue_ns;
    const struct op_code *code;
    uint32_t op; /* its index in op_codes[] */
    enum work_kind kind;
    enum priority priority;
    bool is_after;
    bool is_timed;      /* WORK_TIMED: the result tells how long each stage took */
    uint32_t n_records; /* of all rows */
    uint32_t tail_size;
    uint32_t varying_size;       /* bytes of the varying input */
    const struct work_row *rows; /* NULL: it is no table.  There until its completion was polled */
    uint32_t n_rows;
    struct device_array in[LIMIT_IN];
    struct device_array out[LIMIT_OUT];
    struct device_array consts[LIMIT_CONSTS];
    uint64_t const_ids[LIMIT_CONSTS]; /* 0: none; the same id means the same bytes, for ever */
    _Alignas(16) uint8_t params[LIMIT_PARAM_BYTES];
};

struct device_completion {
    uint64_t cookie;
    struct work_result result; /* all but its state */
    struct work_error error;   /* why its status is not OK; else anything */
};

struct device_backend {
    /*
     * Before all else: the device to drive, an index among those that the process may see or a
     * UUID.  NULL: the first.
     */
    int (*select)(const char *device, struct failure *ret_failure);
    /* What is there and how to feed it; n_ops is left to the caller.  NO_DEVICE: nothing is. */
    int (*probe)(struct worker_caps *ret_caps, struct failure *ret_failure);
    int (*open)(struct device **ret_device, struct failure *ret_failure);
    /* Waits for what has begun, drops what has not.  NULL is fine. */
    void (*close)(struct device *device);

    /*
     * Control thread: make size bytes at base usable by issue(), as segment id.  Where that fails
     * the device is as it was, without the segment, and the worker goes on; that the device itself
     * is lost, poll() tells.
     */
    int (*segment_add)(struct device *device, uint32_t id, void *base, size_t size,
                       struct failure *ret_failure);
    void (*segment_drop)(struct device *device, uint32_t id);

    /* Data thread: how much more work of this priority issue() takes now.  Only poll() adds. */
    uint32_t (*room)(const struct device *device, enum priority priority);
    /* n works of one priority, n <= room.  Whatever goes wrong is in a completion. */
    void (*issue)(struct device *device, const struct device_work *work, uint32_t n);
    /* Up to max completions: their number, or a negative status when the device is lost. */
    int (*poll)(struct device *device, struct device_completion *ret_completions, uint32_t max,
                struct failure *ret_failure);
    /*
     * Sleep until doorbell_fd, whatever it is, polls readable or poll() has something new, or wake
     * up for no reason.  How a backend waits is its own affair: a descriptor, or naps while
     * something is in flight.
     */
    void (*wait)(struct device *device, int doorbell_fd);
};

extern const struct device_backend device_backend;
