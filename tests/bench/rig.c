/*
 * Rig: the daemon's part, as little of it as there can be.  See rig.h.
 */
#include "tests/bench/rig.h"

#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <limits.h>

#define EXIT_SKIPPED 77

enum { SEGMENT_IN, SEGMENT_OUT };

void rig_leave(enum check_end end)
{
    if (end == CHECK_END_SKIPPED) {
        printf("skipped: %s\n", check_skip_reason);
        exit(EXIT_SKIPPED);
    }
    exit(EXIT_FAILURE);
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint8_t *create_segment(const char *name, size_t size, int *ret_fd)
{
    void *base;
    int fd = shm_create(name, size);

    if (fd < 0 || shm_map(fd, size, &base) < 0) {
        bench_fail("no shared memory of %zu bytes", size);
    }
    *ret_fd = fd;
    return base;
}

void rig_memory_create(size_t size, struct rig_memory *ret_memory)
{
    ret_memory->size = size;
    ret_memory->in = create_segment("in", size, &ret_memory->in_fd);
    ret_memory->out = create_segment("out", size, &ret_memory->out_fd);
}

void rig_memory_destroy(struct rig_memory *memory)
{
    shm_unmap(memory->in, memory->size);
    shm_unmap(memory->out, memory->size);
    close(memory->in_fd);
    close(memory->out_fd);
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void set_streams(uint32_t n_streams)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", n_streams);
    if (n_streams == 0) {
        unsetenv("GPUPIPE_STREAMS");
    } else {
        setenv("GPUPIPE_STREAMS", text, 1);
    }
}

void rig_start(const struct rig_memory *memory, uint32_t n_streams, struct rig *ret_rig)
{
    char program[PATH_MAX];

    bench_find("cuda/gpupipe-worker-cuda", program, sizeof(program));
    setenv("GPUPIPE_WORKER", program, 0);
    set_streams(n_streams);
    ret_rig->n_jobs = 0;
    front_start_ready(&ret_rig->front, "GPUPIPE_WORKER", 0);
    front_lend_segment(&ret_rig->front, SEGMENT_IN, memory->in_fd, memory->size);
    front_lend_segment(&ret_rig->front, SEGMENT_OUT, memory->out_fd, memory->size);
}

void rig_stop(struct rig *rig)
{
    front_finish(&rig->front);
}

uint32_t rig_open(struct rig *rig, const struct subject *subject)
{
    struct value value = {.i = subject->value};
    uint8_t params[LIMIT_PARAM_BYTES];
    uint32_t op = front_op(&rig->front, subject->op);
    uint32_t job = rig->n_jobs++;
    struct failure failure;

    snprintf(value.name, sizeof(value.name), "%s", subject->param);
    CHECK_EQ(manifest_pack(&rig->front.ops[op], &value, 1, params, &failure), 0);
    front_set_job(&rig->front, job, op, params, sizeof(params));
    rig->record_sizes[job] = subject->record_size;
    return job;
}

/* ---- work ----------------------------------------------------------------------------------- */

uint32_t rig_submit(struct rig *rig, enum priority priority, uint32_t job, size_t at, size_t size)
{
    const struct work_entry entry = {
        .job_slot = job,
        .n_records = (uint32_t)(size / rig->record_sizes[job]),
        .ref = {WORK_REF(SEGMENT_IN, at), WORK_REF(SEGMENT_OUT, at)},
    };

    return front_submit(&rig->front, priority, entry);
}

void rig_take(struct rig *rig, uint32_t n[PRIORITY_COUNT])
{
    struct done_entry done;
    int n_done = queue_done_take(rig->front.queue, &done, 1);

    CHECK_GE(n_done, 0);
    for (uint32_t i = 0; n_done > 0 && i < done.count; i++) {
        struct work_entry entry;
        struct work_result result;

        queue_work_read(rig->front.queue, done.queue, done.first + i, &entry, &result);
        CHECK_EQ(result.status, STATUS_OK);
        queue_work_release(rig->front.queue, done.queue, done.first + i);
        n[done.queue]++;
    }
}

double rig_run(struct rig *rig, uint32_t job, size_t size, size_t chunk_size, uint32_t depth)
{
    uint32_t n_chunks = (uint32_t)(size / chunk_size), n_submitted = 0, n[PRIORITY_COUNT] = {0};
    uint64_t start_ns = now_ns();

    while (n[PRIORITY_BULK] < n_chunks) {
        while (n_submitted < n_chunks && n_submitted - n[PRIORITY_BULK] < depth) {
            rig_submit(rig, PRIORITY_BULK, job, n_submitted++ * chunk_size, chunk_size);
        }
        rig_take(rig, n);
    }
    return (double)(now_ns() - start_ns) * 1e-9;
}
