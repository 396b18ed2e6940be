/*
 * The queues between front end and worker.
 *
 * The memfd, one per worker generation; each line is 64 bytes, so that no two indices share one:
 *
 *     header                   magic, version, generation, first index, size    set once, by create
 *     front end's sleep line   is_sleeping
 *     worker's sleep line      is_sleeping
 *     for each priority:
 *         tail line                      the front end writes, the worker reads
 *         WORK_ENTRIES work entries      the front end writes, the worker reads
 *         WORK_ENTRIES result slots      the worker writes, the front end reads
 *         WORK_ENTRIES errors            the worker writes, the front end reads
 *     done queue:
 *         tail line                      the worker writes, the front end reads
 *         head line                      the front end writes, the worker reads
 *         DONE_ENTRIES done entries      the worker writes, the front end reads
 *
 * Work queues have no shared head: a place is free again when the front end has released it, which
 * only the front end knows.  How far each side has read, which places are held and what was put
 * there is private to that side's `struct queue`; nothing read from the memfd is used for it, so a
 * worker that writes anywhere at any time can make the front end see QUEUE_BROKEN or a wrong
 * result, never a wrong address, a wrong tag or a second answer.
 *
 * Ordering.  Contents travel by release and acquire: an entry's words are stored, then the tail
 * with release order; the reader loads the tail with acquire order, then the words.  A result slot
 * is one message of its own: words 1 to 7, then word 0, which holds state and status, with release
 * order; what explains a failure is stored before that and loaded after it.  All words are loaded
 * and stored as relaxed atomics: whoever looks at a slot before it is done races by design, and a
 * hostile writer races always; each word is loaded exactly once.
 *
 * Lines.  Who looks again and again for news writes nothing, and asks for what it will read next
 * together with the tail; the worker looks at the done queue's head only where it may be full.
 * Each line that has to come from another core by itself takes 50 to 200 ns.
 *
 * Sleeping: see shared_words.h.
 *
 * Threads: one on each side; see queue.h.
 */
#include "proto/queue.h"

#include "proto/shared_words.h"
#include "proto/shm.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define QUEUE_MAGIC   0x51505047u /* "GPPQ" */
#define QUEUE_VERSION 3u

struct header {
    uint32_t magic;
    uint32_t version;
    uint32_t generation;
    uint32_t first_index; /* of every queue */
    uint64_t size;        /* of struct layout */
    uint8_t zero[SHARED_LINE_SIZE - 24];
};

struct work_queue {
    struct shared_line tail;
    struct work_entry entries[WORK_ENTRIES];
    struct work_result results[WORK_ENTRIES];
    struct work_error errors[WORK_ENTRIES];
    struct work_row rows[WORK_ENTRIES][WORK_ROWS];
};

struct done_queue {
    struct shared_line tail;
    struct shared_line head;
    struct done_entry entries[DONE_ENTRIES];
};

struct layout {
    struct header header;
    struct shared_line front_end_sleep;
    struct shared_line worker_sleep;
    struct work_queue work[PRIORITY_COUNT];
    struct done_queue done;
};
_Static_assert(sizeof(struct header) == SHARED_LINE_SIZE, "the header is one line");
_Static_assert(sizeof(struct done_entry) == 16, "four done entries are one cache line");
_Static_assert(sizeof(struct layout) % SHARED_LINE_SIZE == 0, "nothing but lines");
_Static_assert((WORK_ENTRIES & (WORK_ENTRIES - 1)) == 0 && (DONE_ENTRIES & (DONE_ENTRIES - 1)) == 0,
               "free-running indices wrap at 2^32, a multiple of the entries");
_Static_assert(DONE_ENTRIES >= PRIORITY_COUNT * WORK_ENTRIES, "the done queue is never full");

enum place { PLACE_FREE, PLACE_HELD, PLACE_DONE };

/* What the front end knows of a work queue and does not let the worker tell it. */
struct producer {
    uint32_t tail;      /* the next index to place */
    uint32_t published; /* the tail that the worker sees */
    uint32_t n_held;
    uint8_t places[WORK_ENTRIES]; /* enum place */
    struct work_entry entries[WORK_ENTRIES];
};

/* What the worker knows of it. */
struct consumer {
    uint32_t head; /* the next index to take */
    uint32_t seen; /* the tail as it was at the last look */
};

struct queue {
    struct layout *shared;
    size_t map_size;
    int fd;             /* the creator's; -1 in a worker */
    uint32_t done_tail; /* worker: next to write */
    uint32_t done_head; /* front end: next to read; worker: the head that it saw last */
    union {
        struct producer producer[PRIORITY_COUNT];
        struct consumer consumer[PRIORITY_COUNT];
    };
};

/* Word 0 of a result slot, which says what the rest is worth. */
static void store_state(struct work_result *slot, enum result_state state, enum status status)
{
    const struct work_result head = {.state = state, .status = (int32_t)status};
    uint64_t word;

    memcpy(&word, &head, sizeof(word));
    __atomic_store_n((uint64_t *)slot, word, __ATOMIC_RELEASE);
}

static size_t layout_size_in_pages(void)
{
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE);

    return div_round_up(sizeof(struct layout), page_size) * page_size;
}

int queue_create_at(uint32_t generation, uint32_t first_index, struct queue **ret_queue)
{
    _cleanup_(free_pointer) struct queue *queue = calloc(1, sizeof(*queue));
    _cleanup_(close_fd) int fd = -1;
    void *base;
    int error;

    if (queue == NULL) {
        return -ENOMEM;
    }
    queue->map_size = layout_size_in_pages();
    fd = shm_create("gpupipe-queues", queue->map_size);
    if (fd < 0) {
        return fd;
    }
    error = shm_map(fd, queue->map_size, &base);
    if (error < 0) {
        return error;
    }
    queue->shared = base;
    queue->shared->header = (struct header){.magic = QUEUE_MAGIC,
                                            .version = QUEUE_VERSION,
                                            .generation = generation,
                                            .first_index = first_index,
                                            .size = sizeof(struct layout)};
    for (unsigned i = 0; i < PRIORITY_COUNT; i++) {
        queue->shared->work[i].tail.value = first_index;
        queue->producer[i].tail = queue->producer[i].published = first_index;
    }
    queue->shared->done.tail.value = queue->shared->done.head.value = first_index;
    queue->done_head = first_index;
    queue->fd = steal_fd(&fd);
    *ret_queue = STEAL(queue);
    return 0;
}

int queue_create(uint32_t generation, struct queue **ret_queue)
{
    return queue_create_at(generation, 0, ret_queue);
}

static bool header_is_right(const struct header *header)
{
    return header->magic == QUEUE_MAGIC && header->version == QUEUE_VERSION &&
           header->size == sizeof(struct layout);
}

int queue_attach(int fd, struct queue **ret_queue)
{
    _cleanup_(free_pointer) struct queue *queue = calloc(1, sizeof(*queue));
    struct header header;
    struct stat stat;
    void *base;
    int error;

    if (queue == NULL) {
        return -ENOMEM;
    }
    queue->map_size = layout_size_in_pages();
    if (fstat(fd, &stat) < 0) {
        return -errno;
    }
    if ((uint64_t)stat.st_size != queue->map_size) {
        return -EINVAL;
    }
    error = shm_map(fd, queue->map_size, &base);
    if (error < 0) {
        return error;
    }
    queue->shared = base;
    shared_load_words(&header, &queue->shared->header, sizeof(header));
    if (!header_is_right(&header)) {
        shm_unmap(base, queue->map_size);
        return -EINVAL;
    }
    for (unsigned i = 0; i < PRIORITY_COUNT; i++) {
        queue->consumer[i].head = queue->consumer[i].seen = header.first_index;
    }
    queue->done_tail = queue->done_head = header.first_index;
    queue->fd = -1;
    *ret_queue = STEAL(queue);
    return 0;
}

void queue_destroy(struct queue *queue)
{
    if (queue == NULL) {
        return;
    }
    shm_unmap(queue->shared, queue->map_size);
    close_fd(&queue->fd);
    free(queue);
}

int queue_fd(const struct queue *queue)
{
    return queue->fd;
}

/* ---- front end ----------------------------------------------------------------------------- */

int queue_work_put(struct queue *queue, enum priority priority, const struct work_entry *entry,
                   uint32_t *ret_index)
{
    struct producer *producer = &queue->producer[priority];
    struct work_queue *work = &queue->shared->work[priority];
    uint32_t index = producer->tail;
    uint32_t place = index % WORK_ENTRIES;

    if (producer->places[place] != PLACE_FREE) {
        return -EAGAIN;
    }
    producer->places[place] = PLACE_HELD;
    producer->entries[place] = *entry;
    producer->n_held++;
    producer->tail++;
    shared_store_words(&work->entries[place], entry, sizeof(*entry));
    /* The slot still says how the previous entry here ended; nobody is writing to it now. */
    store_state(&work->results[place], RESULT_EMPTY, STATUS_OK);
    *ret_index = index;
    return 0;
}

uint32_t queue_work_next(const struct queue *queue, enum priority priority)
{
    return queue->producer[priority].tail;
}

void queue_rows_put(struct queue *queue, enum priority priority, uint32_t index,
                    const struct work_row *rows, uint32_t n)
{
    struct work_row *places = queue->shared->work[priority].rows[index % WORK_ENTRIES];

    assert(queue->producer[priority].tail - index <= WORK_ENTRIES && n <= WORK_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        shared_store_words(&places[i], &rows[i], sizeof(rows[i]));
    }
}

bool queue_work_publish(struct queue *queue, enum priority priority)
{
    struct producer *producer = &queue->producer[priority];

    if (producer->published == producer->tail) {
        return false;
    }
    producer->published = producer->tail;
    return shared_publish(&queue->shared->work[priority].tail, producer->tail,
                          &queue->shared->worker_sleep);
}

void queue_work_read(const struct queue *queue, enum priority priority, uint32_t index,
                     struct work_entry *ret_entry, struct work_result *ret_result)
{
    const uint64_t *slot =
        (const void *)&queue->shared->work[priority].results[index % WORK_ENTRIES];
    uint64_t head = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

    memcpy(ret_result, &head, sizeof(head));
    shared_load_words((uint64_t *)ret_result + 1, slot + 1, sizeof(*ret_result) - sizeof(head));
    *ret_entry = queue->producer[priority].entries[index % WORK_ENTRIES];
}

void queue_error_read(const struct queue *queue, enum priority priority, uint32_t index,
                      struct work_error *ret_error)
{
    shared_load_words(ret_error, &queue->shared->work[priority].errors[index % WORK_ENTRIES],
                      sizeof(*ret_error));
    ret_error->text[sizeof(ret_error->text) - 1] = '\0';
}

bool queue_work_is_held(const struct queue *queue, enum priority priority, uint32_t index)
{
    const struct producer *producer = &queue->producer[priority];

    /* Of the indices that share a place, the one among the last WORK_ENTRIES placed. */
    return producer->tail - index - 1 < WORK_ENTRIES &&
           producer->places[index % WORK_ENTRIES] != PLACE_FREE;
}

void queue_work_release(struct queue *queue, enum priority priority, uint32_t index)
{
    struct producer *producer = &queue->producer[priority];

    assert(queue_work_is_held(queue, priority, index));
    producer->places[index % WORK_ENTRIES] = PLACE_FREE;
    producer->n_held--;
}

uint32_t queue_work_in_flight(const struct queue *queue, enum priority priority)
{
    return queue->producer[priority].n_held;
}

/* Are all entries of this range published, held, and not yet announced? */
static bool range_is_in_flight(const struct queue *queue, const struct done_entry *done)
{
    const struct producer *producer;

    if (done->queue >= PRIORITY_COUNT || done->count == 0 || done->count > WORK_ENTRIES) {
        return false;
    }
    producer = &queue->producer[done->queue];
    for (uint32_t i = 0; i < done->count; i++) {
        uint32_t index = done->first + i;

        if (producer->published - index - 1 >= WORK_ENTRIES ||
            producer->places[index % WORK_ENTRIES] != PLACE_HELD) {
            return false;
        }
    }
    return true;
}

/* The result that is most likely next and somebody waits for: of the oldest urgent entry. */
static void expect_result(const struct queue *queue)
{
    const struct producer *urgent = &queue->producer[PRIORITY_URGENT];

    shared_expect(&queue->shared->work[PRIORITY_URGENT]
                       .results[(urgent->tail - urgent->n_held) % WORK_ENTRIES]);
}

int queue_done_take(struct queue *queue, struct done_entry *ret_entries, uint32_t max)
{
    struct done_queue *done = &queue->shared->done;

    shared_expect(&done->entries[queue->done_head % DONE_ENTRIES]);
    expect_result(queue);
    uint32_t n_ready = shared_load(&done->tail.value, __ATOMIC_ACQUIRE) - queue->done_head;
    uint32_t n = 0;
    bool is_broken = n_ready > DONE_ENTRIES;

    while (!is_broken && n < MIN(n_ready, max)) {
        struct done_entry entry;

        shared_load_words(&entry, &done->entries[queue->done_head % DONE_ENTRIES], sizeof(entry));
        is_broken = !range_is_in_flight(queue, &entry);
        if (!is_broken) {
            for (uint32_t i = 0; i < entry.count; i++) {
                uint32_t place = (entry.first + i) % WORK_ENTRIES;
                queue->producer[entry.queue].places[place] = PLACE_DONE;
            }
            ret_entries[n++] = entry;
            queue->done_head++;
        }
    }
    if (n > 0) { /* who looks again and again leaves the line where it is */
        shared_store(&done->head.value, queue->done_head, __ATOMIC_RELEASE);
    }
    /* What came before the nonsense was right and is handed over; the next call meets it again. */
    return is_broken && n == 0 ? QUEUE_BROKEN : (int)n;
}

bool queue_done_sleep(struct queue *queue)
{
    return shared_sleep(&queue->shared->front_end_sleep, &queue->shared->done.tail,
                        queue->done_head);
}

void queue_done_awake(struct queue *queue)
{
    shared_awake(&queue->shared->front_end_sleep);
}

/* ---- worker -------------------------------------------------------------------------------- */

int queue_work_take(struct queue *queue, enum priority priority, struct work_entry *ret_entries,
                    uint32_t *ret_indices, uint32_t max)
{
    struct work_queue *work = &queue->shared->work[priority];
    struct consumer *consumer = &queue->consumer[priority];

    shared_expect(&work->entries[consumer->head % WORK_ENTRIES]);
    uint32_t tail = shared_load(&work->tail.value, __ATOMIC_ACQUIRE);
    uint32_t n = MIN(tail - consumer->head, max);

    if (tail - consumer->head > WORK_ENTRIES) {
        return QUEUE_BROKEN;
    }
    consumer->seen = tail;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = consumer->head++;

        shared_load_words(&ret_entries[i], &work->entries[index % WORK_ENTRIES],
                          sizeof(*ret_entries));
        store_state(&work->results[index % WORK_ENTRIES], RESULT_TAKEN, STATUS_OK);
        ret_indices[i] = index;
    }
    return (int)n;
}

void queue_rows_expect(const struct queue *queue, enum priority priority, uint32_t index,
                       uint32_t n)
{
    const struct work_row *rows = queue->shared->work[priority].rows[index % WORK_ENTRIES];

    for (uint32_t i = 0; i < n; i += SHARED_LINE_SIZE / sizeof(*rows)) {
        shared_expect(&rows[i]);
    }
}

void queue_rows_read(const struct queue *queue, enum priority priority, uint32_t index,
                     struct work_row *ret_rows, uint32_t n)
{
    assert(n <= WORK_ROWS);
    shared_load_words(ret_rows, queue->shared->work[priority].rows[index % WORK_ENTRIES],
                      n * sizeof(*ret_rows));
}

void queue_result_issued(struct queue *queue, enum priority priority, uint32_t index,
                         uint64_t issue_ns)
{
    struct work_result *slot = &queue->shared->work[priority].results[index % WORK_ENTRIES];

    __atomic_store_n(&slot->issue_ns, issue_ns, __ATOMIC_RELAXED);
    store_state(slot, RESULT_ISSUED, STATUS_OK);
}

void queue_result_error(struct queue *queue, enum priority priority, uint32_t index,
                        const char *text)
{
    struct work_error error = {0};

    snprintf(error.text, sizeof(error.text), "%s", text);
    shared_store_words(&queue->shared->work[priority].errors[index % WORK_ENTRIES], &error,
                       sizeof(error));
}

void queue_result_done(struct queue *queue, enum priority priority, uint32_t index,
                       const struct work_result *result)
{
    struct work_result *slot = &queue->shared->work[priority].results[index % WORK_ENTRIES];

    shared_store_words((uint64_t *)slot + 1, (const uint64_t *)result + 1,
                       sizeof(*result) - sizeof(uint64_t));
    store_state(slot, RESULT_DONE, (enum status)result->status);
}

int queue_done_put(struct queue *queue, const struct done_entry *entry)
{
    struct done_queue *done = &queue->shared->done;

    if (queue->done_tail - queue->done_head >= DONE_ENTRIES) {
        queue->done_head = shared_load(&done->head.value, __ATOMIC_ACQUIRE);
    }
    if (queue->done_tail - queue->done_head >= DONE_ENTRIES) {
        return -EAGAIN;
    }
    shared_store_words(&done->entries[queue->done_tail % DONE_ENTRIES], entry, sizeof(*entry));
    queue->done_tail++;
    return 0;
}

bool queue_done_publish(struct queue *queue)
{
    return shared_publish(&queue->shared->done.tail, queue->done_tail,
                          &queue->shared->front_end_sleep);
}

bool queue_work_sleep(struct queue *queue)
{
    bool has_none = true;

    for (unsigned i = 0; has_none && i < PRIORITY_COUNT; i++) {
        has_none = shared_sleep(&queue->shared->worker_sleep, &queue->shared->work[i].tail,
                                queue->consumer[i].seen);
    }
    return has_none;
}

void queue_work_awake(struct queue *queue)
{
    shared_awake(&queue->shared->worker_sleep);
}
