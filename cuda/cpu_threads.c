/*
 * The computing threads of the CPU backend.
 *
 * Work goes: issue() -> fifo of its priority -> a thread's table -> finished ring -> poll().  All
 * but the counts of what is in flight, which are the data thread's own, is under one lock, held for
 * copying and never while op code runs.
 *
 * A table is what one thread runs at once: normally one work.  Map chunks that are narrower than
 * the op's min_parallel, or soon done, are taken together, as long as they follow each other in the
 * queue and have the same op, parameters and constants, until they are neither: sixteen 4 KiB
 * blocks of sixteen pushes fill the lanes of one sha256 call, and to wake a thread and read its
 * clocks takes longer than to copy 1 KiB.  Any other stays for another thread.
 *
 * What is soon done the data thread does itself, as part of issue(): to hand it over and to be told
 * would take longer, and urgent work need not wait for a thread that is busy with bulk.
 *
 * What is after other work that has not finished lets the others of its queue pass: it goes to its
 * end each time that it would be next.  It cannot be in one table with that other.
 *
 * How long something takes is told by the last table of the same op and parameters.
 *
 * States of a thread: idle (waits on has_work), busy (runs a table), ended (is_closing was seen).
 *
 * Threads: n_threads computing ones, the data thread, and the one that creates and destroys.
 */
#include "cuda/cpu_threads.h"

#include "cuda/cpu_guard.h"
#include "cuda/device_rows.h"
#include "proto/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

/* Works in flight of each priority, at least: full tables for a few threads.  Not tuned. */
#define DEPTH_LEAST 64u
#define TABLE_SIZE  32u /* works, and ... */
#define TABLE_ROWS  64u /* ... rows of all of them */

/* A table that is expected to take less than this is soon done: about what a wake-up costs. */
#define TABLE_NS 5000u

#define PACES 16u /* remembered; a power of two, more than there are ops in use at a time */

struct fifo {
    struct device_work *works; /* a ring of depth places */
    uint32_t head;
    uint32_t n;
};

struct finished {
    struct device_completion completion;
    enum priority priority;
};

struct table {
    struct device_work works[TABLE_SIZE];
    uint32_t n;
    uint32_t n_rows; /* of them all */
    uint64_t n_records;
    uint64_t n_bytes; /* as bytes_of() counts them */
    uint32_t lost;    /* set of those that met memory that is no more */
};
_Static_assert(TABLE_SIZE <= 32, "a work is a bit of a uint32_t");
_Static_assert(TABLE_ROWS >= WORK_ROWS, "any work fits");

/* How fast the last table of an op went: what to expect of the next that is like it. */
struct pace {
    uint32_t op;
    uint8_t params[LIMIT_PARAM_BYTES];
    uint64_t ns_per_kib;
};

struct cpu_threads {
    uint32_t depth;
    uint32_t n_in_flight[PRIORITY_COUNT]; /* the data thread's: issued and not polled */
    int completion_fd;

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t has_work;
    struct fifo fifos[PRIORITY_COUNT];
    /* By cookie: that of what was issued, plus 1; or 0.  Who is after a work that has ended may
     * come when its place is another's already. */
    uint64_t unfinished[PRIORITY_COUNT][WORK_ENTRIES];
    struct finished *finished; /* a ring of PRIORITY_COUNT * depth places: never full */
    uint32_t finished_head;
    uint32_t n_finished;
    bool is_rung;             /* completion_fd */
    struct pace paces[PACES]; /* by op, modulo PACES */
    uint32_t n_idle;
    bool is_closing;

    uint32_t n_threads;
    pthread_t threads[];
};

/* ---- running a table ----------------------------------------------------------------------- */

static void run_map(const struct table *table)
{
    struct op_chunk chunks[TABLE_ROWS];
    uint32_t n = 0;

    for (uint32_t i = 0; i < table->n; i++) {
        const struct op_chunk first = device_row(&table->works[i], 0);

        device_rows(&table->works[i], &first, &chunks[n]);
        n += device_n_rows(&table->works[i]);
    }
    table->works[0].code->map(table->works[0].params, chunks, n);
}

static void run_leaves(const struct table *table)
{
    const struct device_work *work = &table->works[0];
    const struct op_chunk chunk = device_row(work, 0);

    work->code->leaves(work->params, &chunk);
}

static void run_merge(const struct table *table)
{
    const struct device_work *work = &table->works[0];

    work->code->merge(work->params, work->in[0].base, work->in[1].base, work->n_records,
                      work->out[0].base);
}

static void run_finish(const struct table *table)
{
    const struct device_work *work = &table->works[0];
    const struct op_chunk chunk = device_row(work, 0);

    work->code->finish(work->params, work->in[0].base, chunk.out);
}

static void (*const run_kinds[])(const struct table *table) = {
    [WORK_MAP] = run_map,
    [WORK_LEAVES] = run_leaves,
    [WORK_MERGE] = run_merge,
    [WORK_FINISH] = run_finish,
};

static void run_kind(const void *arg)
{
    const struct table *table = arg;

    run_kinds[table->works[0].kind](table);
}

/* The set of those whose memory is no more, each by itself: others are to get their results. */
static uint32_t find_lost(const struct table *table)
{
    struct table one = {.n = 1};
    uint32_t lost = 0;

    for (uint32_t i = 0; i < table->n; i++) {
        one.works[0] = table->works[i];
        lost |= cpu_guard_run(run_kind, &one) ? 0 : UINT32_C(1) << i;
    }
    return lost;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns what the works of the table have in common, with the times of one row. */
static struct work_result run_table(struct table *table)
{
    struct work_result common = {.status = STATUS_OK};
    uint64_t cpu_ns = thread_cpu_ns();

    common.start_ns = now_ns();
    table->lost = cpu_guard_run(run_kind, table) ? 0 : find_lost(table);
    common.end_ns = now_ns();
    common.device_ns = (thread_cpu_ns() - cpu_ns) / table->n_rows;
    common.compute_ns = (common.end_ns - common.start_ns) / table->n_rows;
    return common;
}

/* ---- the queues, under the lock ------------------------------------------------------------ */

static uint64_t *unfinished(struct cpu_threads *threads, enum priority priority, uint64_t cookie)
{
    return &threads->unfinished[priority][cookie % WORK_ENTRIES];
}

static bool has_to_wait(struct cpu_threads *threads, const struct device_work *work)
{
    return work->is_after && *unfinished(threads, work->priority, work->after) == work->after + 1;
}

/* The work that is next, or NULL.  What has to wait for other work lets all others pass. */
static const struct device_work *peek(struct cpu_threads *threads, enum priority priority)
{
    struct fifo *fifo = &threads->fifos[priority];

    for (uint32_t i = 0; i < fifo->n; i++) {
        const struct device_work *first = &fifo->works[fifo->head];

        if (!has_to_wait(threads, first)) {
            return first;
        }
        if (fifo->n < threads->depth) { /* else its place is that behind all others */
            fifo->works[(fifo->head + fifo->n) % threads->depth] = *first;
        }
        fifo->head = (fifo->head + 1) % threads->depth;
    }
    return NULL;
}

/* What a work's time is in proportion to: its first input and its varying one. */
static uint64_t bytes_of(const struct device_work *work)
{
    return work->in[0].size + work->varying_size;
}

static void move_to_table(struct cpu_threads *threads, enum priority priority, struct table *table)
{
    struct fifo *fifo = &threads->fifos[priority];

    table->n_rows += device_n_rows(&fifo->works[fifo->head]);
    table->n_records += fifo->works[fifo->head].n_records;
    table->n_bytes += bytes_of(&fifo->works[fifo->head]);
    table->works[table->n++] = fifo->works[fifo->head];
    fifo->head = (fifo->head + 1) % threads->depth;
    fifo->n--;
}

static void note_pace(struct cpu_threads *threads, const struct table *table, uint64_t took_ns)
{
    struct pace *pace = &threads->paces[table->works[0].op % PACES];

    pace->op = table->works[0].op;
    memcpy(pace->params, table->works[0].params, sizeof(pace->params));
    pace->ns_per_kib = took_ns * 1024 / MAX(table->n_bytes, UINT64_C(1));
    pace->ns_per_kib = MIN(pace->ns_per_kib, (uint64_t)UINT32_MAX); /* times a size it fits */
}

static bool is_same_op(const struct device_work *work, uint32_t op, const uint8_t *params)
{
    return work->op == op && memcmp(work->params, params, sizeof(work->params)) == 0;
}

/* Is so much of this work's op expected to be soon done? */
static bool is_quick(const struct cpu_threads *threads, const struct device_work *work,
                     uint64_t n_bytes)
{
    const struct pace *pace = &threads->paces[work->op % PACES];

    return work->kind == WORK_MAP && pace->ns_per_kib > 0 &&
           is_same_op(work, pace->op, pace->params) && n_bytes * pace->ns_per_kib / 1024 < TABLE_NS;
}

/* Is so much of this work's op too little for one call? */
static bool is_little(const struct cpu_threads *threads, const struct device_work *work,
                      uint64_t n_records, uint64_t n_bytes)
{
    return n_records < work->code->manifest->min_parallel || is_quick(threads, work, n_bytes);
}

/* Does the next work of the queue (NULL: none) go into this table as well? */
static bool joins(const struct cpu_threads *threads, const struct table *table,
                  const struct device_work *next)
{
    const struct device_work *first = &table->works[0];

    return next != NULL && table->n < TABLE_SIZE &&
           table->n_rows + device_n_rows(next) <= TABLE_ROWS && first->kind == WORK_MAP &&
           next->kind == WORK_MAP && is_same_op(next, first->op, first->params) &&
           memcmp(next->const_ids, first->const_ids, sizeof(next->const_ids)) == 0 &&
           is_little(threads, first, table->n_records, table->n_bytes) &&
           is_little(threads, next, next->n_records, bytes_of(next));
}

/* The priority of the work that is next, or PRIORITY_COUNT: there is none. */
static enum priority next_priority(struct cpu_threads *threads)
{
    enum priority priority = PRIORITY_URGENT;

    while (priority < PRIORITY_COUNT && peek(threads, priority) == NULL) {
        priority++;
    }
    return priority;
}

/* False: there is no work. */
static bool fill_table(struct cpu_threads *threads, struct table *ret_table)
{
    const enum priority priority = next_priority(threads);

    if (priority == PRIORITY_COUNT) {
        return false;
    }
    ret_table->n = 0;
    ret_table->n_rows = 0;
    ret_table->n_records = 0;
    ret_table->n_bytes = 0;
    do {
        move_to_table(threads, priority, ret_table);
    } while (joins(threads, ret_table, peek(threads, priority)));
    return true;
}

static void finish_one(struct cpu_threads *threads, const struct device_work *work,
                       const struct work_result *common, bool is_lost)
{
    uint32_t n_places = PRIORITY_COUNT * threads->depth;
    struct finished *finished =
        &threads->finished[(threads->finished_head + threads->n_finished++) % n_places];

    *unfinished(threads, work->priority, work->cookie) = 0;
    finished->priority = work->priority;
    finished->completion.cookie = work->cookie;
    finished->completion.result = *common;
    finished->completion.result.issue_ns = work->issue_ns;
    finished->completion.result.device_ns *= device_n_rows(work);
    finished->completion.result.compute_ns *= device_n_rows(work);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        finished->completion.result.out_size[i] = (uint32_t)work->out[i].size;
    }
    if (is_lost) {
        finished->completion.result.status = STATUS_RING;
        snprintf(finished->completion.error.text, sizeof(finished->completion.error.text),
                 "memory of the ring was freed, and there are no huge pages left to replace it");
    }
}

static void finish_table(struct cpu_threads *threads, const struct table *table,
                         const struct work_result *common)
{
    note_pace(threads, table, common->end_ns - common->start_ns);
    for (uint32_t i = 0; i < table->n; i++) {
        finish_one(threads, &table->works[i], common, (table->lost >> i & 1) != 0);
    }
}

static void ring(struct cpu_threads *threads)
{
    if (!threads->is_rung && eventfd_write(threads->completion_fd, 1) < 0) {
        abort(); /* its counter is 0 */
    }
    threads->is_rung = true;
}

/* Whoever takes a table sees whether it leaves one for another thread. */
static void wake_another(struct cpu_threads *threads)
{
    const struct fifo *fifos = threads->fifos;
    uint32_t n = fifos[PRIORITY_URGENT].n + fifos[PRIORITY_NORMAL].n + fifos[PRIORITY_BULK].n;

    if (n > 0 && threads->n_idle > 0) {
        pthread_cond_signal(&threads->has_work);
    }
}

static void *compute(void *arg)
{
    struct cpu_threads *threads = arg;
    struct work_result common;
    struct table table;

    pthread_mutex_lock(&threads->lock);
    while (!threads->is_closing) {
        if (fill_table(threads, &table)) {
            wake_another(threads);
            pthread_mutex_unlock(&threads->lock);
            common = run_table(&table);
            pthread_mutex_lock(&threads->lock);
            finish_table(threads, &table, &common);
            ring(threads);
        } else {
            threads->n_idle++;
            pthread_cond_wait(&threads->has_work, &threads->lock);
            threads->n_idle--;
        }
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int allocate_rings(struct cpu_threads *threads)
{
    for (unsigned i = 0; i < PRIORITY_COUNT; i++) {
        threads->fifos[i].works = calloc(threads->depth, sizeof(struct device_work));
        if (threads->fifos[i].works == NULL) {
            return -ENOMEM;
        }
    }
    threads->finished = calloc(PRIORITY_COUNT * threads->depth, sizeof(*threads->finished));
    if (threads->finished == NULL) {
        return -ENOMEM;
    }
    threads->completion_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return threads->completion_fd < 0 ? -errno : 0;
}

static int start_one(struct cpu_threads *threads)
{
    pthread_t *thread = &threads->threads[threads->n_threads];
    char name[16]; /* the kernel's limit */
    int error = pthread_create(thread, NULL, compute, threads);

    if (error == 0) {
        snprintf(name, sizeof(name), "compute-%u", (uint16_t)threads->n_threads);
        pthread_setname_np(*thread, name);
        threads->n_threads++;
    }
    return -error;
}

int cpu_threads_create(uint32_t n_threads, struct cpu_threads **ret_threads)
{
    struct cpu_threads *threads = calloc(1, sizeof(*threads) + n_threads * sizeof(pthread_t));
    int error;

    if (threads == NULL) {
        return -ENOMEM;
    }
    cpu_guard_start();
    threads->depth = MAX(2 * n_threads, DEPTH_LEAST);
    threads->completion_fd = -1;
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->has_work, NULL);
    error = allocate_rings(threads);
    while (error == 0 && threads->n_threads < n_threads) {
        error = start_one(threads);
    }
    if (error < 0) {
        cpu_threads_destroy(threads);
        return error;
    }
    *ret_threads = threads;
    return 0;
}

void cpu_threads_destroy(struct cpu_threads *threads)
{
    if (threads == NULL) {
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->is_closing = true;
    pthread_cond_broadcast(&threads->has_work);
    pthread_mutex_unlock(&threads->lock);
    for (uint32_t i = 0; i < threads->n_threads; i++) {
        pthread_join(threads->threads[i], NULL);
    }
    for (unsigned i = 0; i < PRIORITY_COUNT; i++) {
        free(threads->fifos[i].works);
    }
    free(threads->finished);
    close_fd(&threads->completion_fd);
    pthread_cond_destroy(&threads->has_work);
    pthread_mutex_destroy(&threads->lock);
    free(threads);
}

/* ---- the data thread ----------------------------------------------------------------------- */

uint32_t cpu_threads_room(const struct cpu_threads *threads, enum priority priority)
{
    return threads->depth - threads->n_in_flight[priority];
}

/* One table, if it is soon done. */
static void run_quick(struct cpu_threads *threads)
{
    const enum priority priority = next_priority(threads);
    const struct device_work *next = priority < PRIORITY_COUNT ? peek(threads, priority) : NULL;
    struct work_result common;
    struct table table;

    if (next == NULL || !is_quick(threads, next, bytes_of(next))) {
        return;
    }
    fill_table(threads, &table);
    pthread_mutex_unlock(&threads->lock);
    common = run_table(&table);
    pthread_mutex_lock(&threads->lock);
    finish_table(threads, &table, &common);
}

void cpu_threads_issue(struct cpu_threads *threads, const struct device_work *work, uint32_t n)
{
    pthread_mutex_lock(&threads->lock);
    for (uint32_t i = 0; i < n; i++) {
        struct fifo *fifo = &threads->fifos[work[i].priority];

        fifo->works[(fifo->head + fifo->n++) % threads->depth] = work[i];
        threads->n_in_flight[work[i].priority]++;
        *unfinished(threads, work[i].priority, work[i].cookie) = work[i].cookie + 1;
    }
    run_quick(threads);
    wake_another(threads);
    pthread_mutex_unlock(&threads->lock);
}

uint32_t cpu_threads_poll(struct cpu_threads *threads, struct device_completion *ret_completions,
                          uint32_t max)
{
    uint32_t n_places = PRIORITY_COUNT * threads->depth;
    eventfd_t counter;
    uint32_t n = 0;

    pthread_mutex_lock(&threads->lock);
    while (n < max && threads->n_finished > 0) {
        const struct finished *finished = &threads->finished[threads->finished_head];

        ret_completions[n++] = finished->completion;
        threads->n_in_flight[finished->priority]--;
        threads->finished_head = (threads->finished_head + 1) % n_places;
        threads->n_finished--;
    }
    if (threads->is_rung && threads->n_finished == 0) {
        threads->is_rung = false;
        if (eventfd_read(threads->completion_fd, &counter) < 0) {
            abort(); /* nobody else reads it */
        }
    }
    pthread_mutex_unlock(&threads->lock);
    return n;
}

bool cpu_threads_has_finished(struct cpu_threads *threads)
{
    bool has_finished;

    pthread_mutex_lock(&threads->lock);
    has_finished = threads->n_finished > 0;
    pthread_mutex_unlock(&threads->lock);
    return has_finished;
}

int cpu_threads_fd(const struct cpu_threads *threads)
{
    return threads->completion_fd;
}
