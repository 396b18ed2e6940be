/*
 * The data thread: one loop of feed (queues -> device), answer (device -> queues) and sleep.
 *
 * Feeding is urgent first, and looks at urgent again after each batch of anything else.  It takes
 * no more of a priority than the device has room for: what stays in the queue can still be
 * overtaken. An entry that cannot be run is answered with its status and goes no further.  The rows
 * of a table are copied once, and the copy stays until the entry is answered.
 *
 * Answering writes each result slot, then announces runs of consecutive indices in one done entry.
 *
 * Sleeping is in the device's wait(), on the doorbell and the device's completions, after the sleep
 * protocol of queue.c has found nothing new.  Entries left for want of room do not count as new:
 * the completion that makes the room wakes us.  For WORK_AWAKE_NS after an entry that asks for it
 * (WORK_AWAKE) there is no sleep: the thread looks again and again.  Without work it hears the
 * bells of clients (bells.h), and looks likewise for what one announces, until one has rung for
 * nothing.
 *
 * The thread ends when its doorbell does: the front end is gone, or pump_stop() has shut it down.
 *
 * Threads: the data thread alone, but for start and stop.
 */
#include "cuda/pump.h"

#include "proto/channel.h"
#include "proto/util.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define BATCH 32u
/* A batch ends with the table that has this row: urgent work waits for it, about 10 us. */
#define BATCH_ROWS 256u
/* While awake, turns with nothing to do between two looks at the clock: one takes as long as all
 * else in such a turn. */
#define CLOCK_TURNS 16u

struct pump {
    struct pump_parts parts;
    struct done_entry done; /* done and not announced yet: a run of one queue; count 0: none */
    struct work_entry entries[BATCH];
    uint32_t indices[BATCH];
    struct device_work works[BATCH];
    struct device_completion completions[BATCH];
    uint32_t n_in_flight;    /* works that the device has */
    uint64_t awake_until_ns; /* 0: it may sleep */
    uint32_t n_turns;        /* with nothing to do, while awake */
    bool hears_bells;        /* while the device has nothing */
    bool has_worked;         /* since it last slept without work */
    bool was_rung;           /* awake because of a bell */
    /* Rows of tables, by entry, that are at the device where it has some. */
    struct work_row rows[PRIORITY_COUNT][WORK_ENTRIES][WORK_ROWS];
    bool has_rows[PRIORITY_COUNT][WORK_ENTRIES];
    pthread_t thread;
};

/* A cookie is the entry's queue and index. */
static uint64_t cookie_of(enum priority priority, uint32_t index)
{
    return (uint64_t)priority << 32 | index;
}

static void stop_for(struct pump *pump, const char *what)
{
    struct failure failure;

    fail(&failure, STATUS_PROTO, NULL, "the front end broke the %s", what);
    pump->parts.on_fatal(pump->parts.arg, &failure);
}

/* ---- answer -------------------------------------------------------------------------------- */

static void put_done(struct pump *pump)
{
    if (pump->done.count > 0 && queue_done_put(pump->parts.queue, &pump->done) < 0) {
        stop_for(pump, "done queue");
    }
    pump->done.count = 0;
}

static void publish_done(struct pump *pump)
{
    put_done(pump);
    if (queue_done_publish(pump->parts.queue)) {
        channel_ring(pump->parts.doorbell_fd);
    }
}

/* error says why, if the result is not OK. */
static void answer(struct pump *pump, enum priority priority, uint32_t index,
                   const struct work_result *result, const char *error)
{
    struct done_entry *done = &pump->done;

    pump->has_rows[priority][index % WORK_ENTRIES] = false;
    if (result->status != STATUS_OK) {
        queue_result_error(pump->parts.queue, priority, index, error);
    }
    queue_result_done(pump->parts.queue, priority, index, result);
    if (done->queue != priority || done->first + done->count != index) {
        put_done(pump);
    }
    if (done->count == 0) {
        *done = (struct done_entry){.queue = priority, .first = index};
    }
    done->count++;
}

/* Returns how many were answered. */
static uint32_t answer_completions(struct pump *pump)
{
    struct failure failure;
    int n = device_backend.poll(pump->parts.device, pump->completions, BATCH, &failure);

    if (n < 0) {
        pump->parts.on_fatal(pump->parts.arg, &failure);
        return 0;
    }
    pump->n_in_flight -= (uint32_t)n;
    for (int i = 0; i < n; i++) {
        const struct device_completion *completion = &pump->completions[i];

        answer(pump, (enum priority)(completion->cookie >> 32), (uint32_t)completion->cookie,
               &completion->result, completion->error.text);
    }
    if (n > 0) {
        publish_done(pump);
    }
    return (uint32_t)n;
}

/* ---- feed ---------------------------------------------------------------------------------- */

/* Whatever a bell has announced is here; more is likely only where the entry says so. */
static void note_entry(struct pump *pump, const struct work_entry *entry, uint64_t issue_ns)
{
    if ((entry->flags & WORK_AWAKE) != 0) {
        pump->awake_until_ns = issue_ns + WORK_AWAKE_NS;
    } else if (pump->was_rung) {
        pump->awake_until_ns = 0;
    }
    pump->has_worked = true;
    pump->hears_bells = true;
    pump->was_rung = false;
}

/* Afterwards: the front end looks at the line, and to have it back takes longer than most of what
 * issue() does. */
static void note_issued(struct pump *pump, enum priority priority, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        queue_result_issued(pump->parts.queue, priority, (uint32_t)pump->works[i].cookie,
                            pump->works[i].issue_ns);
    }
}

/* A copy of its rows, if it is a table; else NULL. */
static const struct work_row *copy_rows(struct pump *pump, enum priority priority, uint32_t index,
                                        const struct work_entry *entry)
{
    struct work_row *rows = pump->rows[priority][index % WORK_ENTRIES];
    bool *has_rows = &pump->has_rows[priority][index % WORK_ENTRIES];

    if (entry->kind != WORK_TABLE) {
        return NULL;
    }
    if (*has_rows) { /* a device reads them */
        stop_for(pump, "work queues");
    }
    *has_rows = true;
    queue_rows_read(pump->parts.queue, priority, index, rows, MIN(entry->n_records, WORK_ROWS));
    return rows;
}

/* Resolve n entries of one priority, answer those that cannot be run, issue the others. */
static void issue_entries(struct pump *pump, enum priority priority, uint32_t n)
{
    uint64_t issue_ns = now_ns();
    uint32_t n_good = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct device_work *work = &pump->works[n_good];
        struct failure failure;
        const struct work_row *rows =
            copy_rows(pump, priority, pump->indices[i], &pump->entries[i]);
        int error = resolve_entry(&pump->entries[i], pump->indices[i], rows, &pump->parts.jobs,
                                  pump->parts.segments, work, &failure);

        note_entry(pump, &pump->entries[i], issue_ns);
        if (error == 0) {
            work->cookie = cookie_of(priority, pump->indices[i]);
            work->after = cookie_of(priority, pump->entries[i].after);
            work->issue_ns = issue_ns;
            work->priority = priority;
            n_good++;
        } else {
            const struct work_result result = {.status = (int32_t)failure.status,
                                               .issue_ns = issue_ns,
                                               .start_ns = issue_ns,
                                               .end_ns = issue_ns};
            answer(pump, priority, pump->indices[i], &result, failure.message);
        }
    }
    pump->n_in_flight += n_good;
    if (n_good > 0) {
        device_backend.issue(pump->parts.device, pump->works, n_good);
        note_issued(pump, priority, n_good);
    }
    if (n_good < n) {
        publish_done(pump);
    }
}

/* Up to max entries of this priority, and look what there is even if that is 0; their number. */
static uint32_t take_entries(struct pump *pump, enum priority priority, uint32_t max)
{
    uint32_t n = 0, n_rows = 0;
    int n_taken;

    do {
        n_taken = queue_work_take(pump->parts.queue, priority, &pump->entries[n], &pump->indices[n],
                                  MIN(max - n, 1u));
        if (n_taken < 0) {
            stop_for(pump, "work queues");
        } else if (n_taken > 0) {
            if (pump->entries[n].kind == WORK_TABLE) {
                queue_rows_expect(pump->parts.queue, priority, pump->indices[n],
                                  MIN(pump->entries[n].n_records, WORK_ROWS));
            }
            n_rows += pump->entries[n++].kind == WORK_TABLE ? WORK_ROWS : 1;
        }
    } while (n_taken > 0 && n < max && n_rows < BATCH_ROWS);
    return n;
}

/* Returns how many entries of this priority were taken. */
static uint32_t feed_priority(struct pump *pump, enum priority priority)
{
    uint32_t room = device_backend.room(pump->parts.device, priority);
    uint32_t n = take_entries(pump, priority, MIN(room, BATCH));

    if (n > 0) {
        issue_entries(pump, priority, n);
    }
    return n;
}

static uint32_t feed(struct pump *pump)
{
    uint32_t n_fed = 0;
    enum priority priority = PRIORITY_URGENT;

    while (priority < PRIORITY_COUNT) {
        uint32_t n = feed_priority(pump, priority);

        n_fed += n;
        priority = n > 0 ? PRIORITY_URGENT : priority + 1;
    }
    return n_fed;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static bool is_awake(struct pump *pump)
{
    if (pump->awake_until_ns == 0) {
        return false;
    }
    if (++pump->n_turns % CLOCK_TURNS != 0 || now_ns() < pump->awake_until_ns) {
        return true;
    }
    pump->awake_until_ns = 0;
    if (pump->was_rung) {
        pump->hears_bells = pump->was_rung = false;
    }
    return false;
}

/* Until there may be something to do. */
static void sleep_until_woken(struct pump *pump, bool *is_closed)
{
    const struct pump_parts *parts = &pump->parts;
    bool hears = pump->hears_bells && pump->n_in_flight == 0;

    if (hears && pump->has_worked) {
        bells_rang(parts->bells); /* until now, which is no news */
        pump->has_worked = false;
    }
    if (queue_work_sleep(parts->queue)) {
        device_backend.wait(parts->device, hears ? bells_fd(parts->bells) : parts->doorbell_fd);
    }
    queue_work_awake(parts->queue);
    channel_drain(parts->doorbell_fd, is_closed);
    if (hears && bells_rang(parts->bells)) {
        pump->awake_until_ns = now_ns() + WORK_BELL_NS;
        pump->was_rung = true;
    }
}

static void *run(void *arg)
{
    struct pump *pump = arg;
    bool is_closed = false;

    while (!is_closed) {
        uint32_t n_moved = feed(pump);

        n_moved += answer_completions(pump);
        if (n_moved == 0 && is_awake(pump)) {
            cpu_relax();
        } else if (n_moved == 0) {
            sleep_until_woken(pump, &is_closed);
        }
    }
    return NULL;
}

int pump_start(const struct pump_parts *parts, struct pump **ret_pump)
{
    struct pump *pump = calloc(1, sizeof(*pump));
    int error;

    if (pump == NULL) {
        return -ENOMEM;
    }
    pump->parts = *parts;
    error = pthread_create(&pump->thread, NULL, run, pump);
    if (error != 0) {
        free(pump);
        return -error;
    }
    pthread_setname_np(pump->thread, "data");
    *ret_pump = pump;
    return 0;
}

void pump_stop(struct pump *pump)
{
    if (pump == NULL) {
        return;
    }
    shutdown(pump->parts.doorbell_fd, SHUT_RDWR);
    pthread_join(pump->thread, NULL);
    free(pump);
}
