/*
 * The shared queues: what each side may rely on, what a hostile worker can do (nothing), the wrap
 * of the indices, and both sides at once with real doorbells, as threads and as processes.
 */
#include "proto/queue.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BATCH 32

static struct work_entry random_entry(void)
{
    struct work_entry entry;

    random_bytes(&entry, sizeof(entry));
    return entry;
}

/* Something that depends on every word of an entry. */
static uint64_t fingerprint(const struct work_entry *entry)
{
    uint64_t words[sizeof(*entry) / sizeof(uint64_t)], sum = 1;

    memcpy(words, entry, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return sum;
}

static void destroy(void *queue)
{
    queue_destroy(queue);
}

static void make_pair(uint32_t first_index, struct queue **ret_front, struct queue **ret_worker)
{
    CHECK_EQ(queue_create_at(7, first_index, ret_front), 0);
    check_at_end(destroy, *ret_front);
    CHECK_EQ(queue_attach(queue_fd(*ret_front), ret_worker), 0);
    check_at_end(destroy, *ret_worker);
}

static uint32_t put_random(struct queue *front, enum priority priority)
{
    const struct work_entry entry = random_entry();
    uint32_t index;

    CHECK_EQ(queue_work_put(front, priority, &entry, &index), 0);
    return index;
}

static void announce(struct queue *worker, uint32_t queue, uint32_t first, uint32_t count)
{
    const struct done_entry done = {.queue = queue, .first = first, .count = count};

    CHECK_EQ(queue_done_put(worker, &done), 0);
    queue_done_publish(worker);
}

static void test_an_entry_there_and_back(void)
{
    struct queue *front, *worker;
    struct work_entry entry, taken[BATCH], read;
    struct work_result result = {.status = STATUS_RANGE,
                                 .out_size = {11, 12},
                                 .issue_ns = 13,
                                 .start_ns = 14,
                                 .end_ns = 15,
                                 .device_ns = 16,
                                 .compute_ns = 17,
                                 .in_ns = 18,
                                 .out_ns = 19};
    struct work_result got;
    struct done_entry done[BATCH];
    uint32_t index, indices[BATCH];

    make_pair(0, &front, &worker);
    entry = random_entry();
    CHECK_EQ(queue_work_put(front, PRIORITY_NORMAL, &entry, &index), 0);
    CHECK_EQ(queue_work_take(worker, PRIORITY_NORMAL, taken, indices, BATCH), 0);
    CHECK(!queue_work_publish(front, PRIORITY_NORMAL));
    CHECK_EQ(queue_work_take(worker, PRIORITY_URGENT, taken, indices, BATCH), 0);
    CHECK_EQ(queue_work_take(worker, PRIORITY_NORMAL, taken, indices, 0), 0);
    queue_work_read(front, PRIORITY_NORMAL, index, &read, &got);
    CHECK_EQ(got.state, RESULT_EMPTY);

    CHECK_EQ(queue_work_take(worker, PRIORITY_NORMAL, taken, indices, BATCH), 1);
    CHECK_MEM(&taken[0], &entry, sizeof(entry));
    CHECK_EQ(indices[0], index);
    queue_work_read(front, PRIORITY_NORMAL, index, &read, &got);
    CHECK_EQ(got.state, RESULT_TAKEN);
    queue_result_issued(worker, PRIORITY_NORMAL, index, 99);
    queue_work_read(front, PRIORITY_NORMAL, index, &read, &got);
    CHECK_EQ(got.state, RESULT_ISSUED);
    CHECK_EQ(got.issue_ns, 99);

    queue_result_done(worker, PRIORITY_NORMAL, index, &result);
    CHECK_EQ(queue_done_take(front, done, BATCH), 0);
    announce(worker, PRIORITY_NORMAL, index, 1);
    CHECK_EQ(queue_done_take(front, done, BATCH), 1);
    CHECK_EQ(done[0].queue, PRIORITY_NORMAL);
    CHECK_EQ(done[0].first, index);
    CHECK_EQ(done[0].count, 1);
    queue_work_read(front, PRIORITY_NORMAL, index, &read, &got);
    result.state = RESULT_DONE;
    CHECK_MEM(&got, &result, sizeof(result));
    CHECK_MEM(&read, &entry, sizeof(entry));

    CHECK_EQ(queue_work_in_flight(front, PRIORITY_NORMAL), 1);
    CHECK(queue_work_is_held(front, PRIORITY_NORMAL, index));
    queue_work_release(front, PRIORITY_NORMAL, index);
    CHECK(!queue_work_is_held(front, PRIORITY_NORMAL, index));
    CHECK_EQ(queue_work_in_flight(front, PRIORITY_NORMAL), 0);
}

/* A place is taken until its own entry is released, however many others are free. */
/* Each entry has rows of its own, as many as it was given; also where indices wrap. */
static void test_rows(void)
{
    static struct work_row rows[WORK_ENTRIES][WORK_ROWS];
    struct queue *front, *worker;
    struct work_entry taken[BATCH];
    uint32_t indices[BATCH], n_seen = 0;
    int n;

    make_pair(UINT32_MAX - 3, &front, &worker);
    random_bytes(rows, sizeof(rows));
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        const struct work_entry entry = {.n_records = 1 + (uint32_t)random_below(WORK_ROWS)};
        uint32_t index;

        CHECK_EQ(queue_work_put(front, PRIORITY_NORMAL, &entry, &index), 0);
        queue_rows_put(front, PRIORITY_NORMAL, index, rows[i], entry.n_records);
    }
    queue_work_publish(front, PRIORITY_NORMAL);
    while ((n = queue_work_take(worker, PRIORITY_NORMAL, taken, indices, BATCH)) > 0) {
        for (int i = 0; i < n; i++, n_seen++) {
            struct work_row read[WORK_ROWS];

            queue_rows_read(worker, PRIORITY_NORMAL, indices[i], read, taken[i].n_records);
            CHECK_MEM(read, rows[n_seen], taken[i].n_records * sizeof(*read));
        }
    }
    CHECK_EQ(n_seen, WORK_ENTRIES);
}

static void test_places_are_reused_in_order(void)
{
    struct queue *front, *worker;
    struct work_entry entry, read;
    struct work_result result;
    uint32_t first, index;

    make_pair(0, &front, &worker);
    first = put_random(front, PRIORITY_BULK);
    for (uint32_t i = 1; i < WORK_ENTRIES; i++) {
        CHECK_EQ(put_random(front, PRIORITY_BULK), first + i);
    }
    entry = random_entry();
    index = 12345;
    CHECK_EQ(queue_work_put(front, PRIORITY_BULK, &entry, &index), -EAGAIN);
    queue_work_release(front, PRIORITY_BULK, first + 1);
    queue_work_release(front, PRIORITY_BULK, first + 100);
    CHECK_EQ(queue_work_put(front, PRIORITY_BULK, &entry, &index), -EAGAIN);
    CHECK_EQ(index, 12345);
    CHECK_EQ(queue_work_in_flight(front, PRIORITY_BULK), WORK_ENTRIES - 2);
    queue_work_release(front, PRIORITY_BULK, first);
    CHECK_EQ(put_random(front, PRIORITY_BULK), first + WORK_ENTRIES);
    CHECK_EQ(put_random(front, PRIORITY_BULK), first + WORK_ENTRIES + 1);
    CHECK_EQ(queue_work_put(front, PRIORITY_BULK, &entry, &index), -EAGAIN);
    CHECK(!queue_work_is_held(front, PRIORITY_BULK, first));
    CHECK(!queue_work_is_held(front, PRIORITY_BULK, first + 100));
    CHECK(queue_work_is_held(front, PRIORITY_BULK, first + 99));
    CHECK(queue_work_is_held(front, PRIORITY_BULK, first + WORK_ENTRIES));
    CHECK(!queue_work_is_held(front, PRIORITY_BULK, first + WORK_ENTRIES + 2));
    queue_work_read(front, PRIORITY_BULK, first + WORK_ENTRIES, &read, &result);
    CHECK_EQ(result.state, RESULT_EMPTY);
}

/* The in-flight table must not say DONE of an entry because its place's last one was. */
static void test_a_reused_place_forgets_its_result(void)
{
    struct queue *front, *worker;
    struct work_entry entry;
    struct work_result result;
    uint32_t indices[WORK_ENTRIES];
    struct work_entry taken[WORK_ENTRIES];

    make_pair(0, &front, &worker);
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        put_random(front, PRIORITY_URGENT);
    }
    queue_work_publish(front, PRIORITY_URGENT);
    CHECK_EQ(queue_work_take(worker, PRIORITY_URGENT, taken, indices, WORK_ENTRIES), WORK_ENTRIES);
    queue_result_done(worker, PRIORITY_URGENT, 0, &(struct work_result){.status = STATUS_OK});
    queue_work_release(front, PRIORITY_URGENT, 0);
    CHECK_EQ(put_random(front, PRIORITY_URGENT), WORK_ENTRIES);
    queue_work_read(front, PRIORITY_URGENT, WORK_ENTRIES, &entry, &result);
    CHECK_EQ(result.state, RESULT_EMPTY);
}

/*
 * Each place has an error of its own.  It is cut where it is too long, and what does not write it
 * leaves it alone: neither a good result nor the next entry there.
 */
static void test_errors(void)
{
    struct queue *front, *worker;
    struct work_entry taken[WORK_ENTRIES];
    struct work_error error;
    uint32_t indices[WORK_ENTRIES];
    char text[2 * sizeof(error.text)];

    make_pair(UINT32_MAX - 5, &front, &worker);
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        put_random(front, PRIORITY_NORMAL);
    }
    queue_work_publish(front, PRIORITY_NORMAL);
    CHECK_EQ(queue_work_take(worker, PRIORITY_NORMAL, taken, indices, WORK_ENTRIES), WORK_ENTRIES);
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        snprintf(text, sizeof(text), "entry %u went wrong", indices[i]);
        queue_result_error(worker, PRIORITY_NORMAL, indices[i], text);
        queue_result_done(worker, PRIORITY_NORMAL, indices[i],
                          &(struct work_result){.status = STATUS_RANGE});
    }
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        snprintf(text, sizeof(text), "entry %u went wrong", indices[i]);
        queue_error_read(front, PRIORITY_NORMAL, indices[i], &error);
        CHECK_STR(error.text, text);
        queue_error_read(front, PRIORITY_URGENT, indices[i], &error);
        CHECK_STR(error.text, "");
    }
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    queue_result_error(worker, PRIORITY_NORMAL, indices[0], text);
    queue_error_read(front, PRIORITY_NORMAL, indices[0], &error);
    text[sizeof(error.text) - 1] = '\0';
    CHECK_STR(error.text, text);
    queue_work_release(front, PRIORITY_NORMAL, indices[0]);
    put_random(front, PRIORITY_NORMAL);
    queue_result_done(worker, PRIORITY_NORMAL, indices[0], &(struct work_result){.status = 0});
    queue_error_read(front, PRIORITY_NORMAL, indices[0], &error);
    CHECK_STR(error.text, text);
    queue_result_error(worker, PRIORITY_NORMAL, indices[0], "short");
    queue_error_read(front, PRIORITY_NORMAL, indices[0], &error);
    CHECK_STR(error.text, "short");
}

/* Push n entries through all priorities, in batches, starting at first_index. */
static void pass_through(uint32_t first_index, uint32_t n)
{
    struct queue *front, *worker;
    struct work_entry entries[BATCH], taken[BATCH], read;
    struct work_result result = {0};
    struct done_entry done[BATCH];
    uint32_t indices[BATCH];

    make_pair(first_index, &front, &worker);
    for (uint32_t at = 0; at < n; at += BATCH) {
        enum priority priority = (at / BATCH) % PRIORITY_COUNT;

        for (uint32_t i = 0; i < BATCH; i++) {
            entries[i] = random_entry();
            CHECK_EQ(queue_work_put(front, priority, &entries[i], &indices[i]), 0);
        }
        queue_work_publish(front, priority);
        CHECK_EQ(queue_work_take(worker, priority, taken, indices, BATCH), BATCH);
        CHECK_MEM(taken, entries, sizeof(entries));
        for (uint32_t i = 0; i < BATCH; i++) {
            result.compute_ns = fingerprint(&taken[i]);
            queue_result_done(worker, priority, indices[i], &result);
        }
        announce(worker, priority, indices[0], BATCH);
        CHECK_EQ(queue_done_take(front, done, BATCH), 1);
        for (uint32_t i = 0; i < done[0].count; i++) {
            queue_work_read(front, priority, done[0].first + i, &read, &result);
            CHECK_EQ(result.compute_ns, fingerprint(&entries[i]));
            queue_work_release(front, priority, done[0].first + i);
        }
    }
}

static void test_indices_wrap(void)
{
    pass_through(0, 3000);
    pass_through(UINT32_MAX - 500, 6000);
    pass_through(UINT32_MAX, 3000);
    pass_through(UINT32_C(1) << 31, 3000);
}

/* One more than fits is refused, also across the wrap. */
static void test_full_across_the_wrap(void)
{
    struct queue *front, *worker;
    struct work_entry entry, taken[WORK_ENTRIES];
    struct done_entry done[2];
    uint32_t index, indices[WORK_ENTRIES];

    make_pair(UINT32_MAX - 9, &front, &worker);
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        put_random(front, PRIORITY_NORMAL);
    }
    entry = random_entry();
    CHECK_EQ(queue_work_put(front, PRIORITY_NORMAL, &entry, &index), -EAGAIN);
    queue_work_publish(front, PRIORITY_NORMAL);
    CHECK_EQ(queue_work_take(worker, PRIORITY_NORMAL, taken, indices, WORK_ENTRIES), WORK_ENTRIES);
    CHECK_EQ(indices[0], UINT32_MAX - 9);
    CHECK_EQ(indices[10], 0);
    announce(worker, PRIORITY_NORMAL, UINT32_MAX - 9, WORK_ENTRIES);
    CHECK_EQ(queue_done_take(front, done, 2), 1);
    CHECK_EQ(queue_work_in_flight(front, PRIORITY_NORMAL), WORK_ENTRIES);
}

static void test_sleep_and_ring(void)
{
    struct queue *front, *worker;
    struct work_entry taken[BATCH];
    struct done_entry done[BATCH];
    uint32_t indices[BATCH];

    make_pair(0, &front, &worker);
    put_random(front, PRIORITY_BULK);
    CHECK(!queue_work_publish(front, PRIORITY_BULK)); /* nobody sleeps */
    CHECK(!queue_work_sleep(worker));                 /* something is there */
    CHECK_EQ(queue_work_take(worker, PRIORITY_BULK, taken, indices, 0), 0);
    CHECK(queue_work_sleep(worker)); /* seen, and left for later */
    put_random(front, PRIORITY_URGENT);
    CHECK(queue_work_publish(front, PRIORITY_URGENT));
    CHECK(!queue_work_publish(front, PRIORITY_URGENT)); /* nothing new */
    put_random(front, PRIORITY_NORMAL);
    CHECK(!queue_work_publish(front, PRIORITY_NORMAL)); /* one sleep costs one ring */
    queue_work_awake(worker);
    CHECK_EQ(queue_work_take(worker, PRIORITY_BULK, taken, indices, BATCH), 1);

    CHECK(queue_done_sleep(front));
    announce(worker, PRIORITY_BULK, indices[0], 1);
    CHECK(!queue_done_sleep(front));
    CHECK_EQ(queue_done_take(front, done, BATCH), 1);
    CHECK(queue_done_sleep(front));
    queue_done_awake(front);
    CHECK(!queue_done_publish(worker));
}

/* Four entries: 0 released, 1 and 2 in flight, 3 not published. */
static void make_four(struct queue **ret_front, struct queue **ret_worker)
{
    make_pair(0, ret_front, ret_worker);
    for (uint32_t i = 0; i < 3; i++) {
        put_random(*ret_front, PRIORITY_NORMAL);
    }
    queue_work_publish(*ret_front, PRIORITY_NORMAL);
    queue_work_release(*ret_front, PRIORITY_NORMAL, 0);
    put_random(*ret_front, PRIORITY_NORMAL);
}

static void test_impossible_announcements(void)
{
    static const struct done_entry wrong[] = {
        {.queue = PRIORITY_NORMAL, .first = 0, .count = 1},
        {.queue = PRIORITY_NORMAL, .first = 0, .count = 2},
        {.queue = PRIORITY_NORMAL, .first = 2, .count = 2},
        {.queue = PRIORITY_NORMAL, .first = 3, .count = 1},
        {.queue = PRIORITY_NORMAL, .first = 4, .count = 1},
        {.queue = PRIORITY_NORMAL, .first = 1, .count = 0},
        {.queue = PRIORITY_NORMAL, .first = 1, .count = WORK_ENTRIES},
        {.queue = PRIORITY_NORMAL, .first = 1, .count = UINT32_MAX},
        {.queue = PRIORITY_NORMAL, .first = 1 + WORK_ENTRIES, .count = 1},
        {.queue = PRIORITY_NORMAL, .first = 1 - WORK_ENTRIES, .count = 1},
        {.queue = PRIORITY_NORMAL, .first = UINT32_MAX, .count = 1},
        {.queue = PRIORITY_URGENT, .first = 1, .count = 1},
        {.queue = PRIORITY_COUNT, .first = 1, .count = 1},
        {.queue = UINT32_MAX, .first = 1, .count = 1},
    };
    struct queue *front, *worker;
    struct done_entry done[BATCH];

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        printf("# announcement %zu\n", i);
        make_four(&front, &worker);
        announce(worker, PRIORITY_NORMAL, 2, 1);
        announce(worker, wrong[i].queue, wrong[i].first, wrong[i].count);
        CHECK_EQ(queue_done_take(front, done, BATCH), 1);
        CHECK_EQ(done[0].first, 2);
        CHECK_EQ(queue_done_take(front, done, BATCH), QUEUE_BROKEN);
        CHECK_EQ(queue_done_take(front, done, BATCH), QUEUE_BROKEN);
    }
}

static void test_an_entry_is_announced_once(void)
{
    struct queue *front, *worker;
    struct done_entry done[BATCH];

    make_four(&front, &worker);
    announce(worker, PRIORITY_NORMAL, 1, 2);
    announce(worker, PRIORITY_NORMAL, 2, 1);
    CHECK_EQ(queue_done_take(front, done, BATCH), 1);
    CHECK_EQ(queue_done_take(front, done, BATCH), QUEUE_BROKEN);
}

static void test_attach_refuses_what_is_no_queue(void)
{
    struct queue *front, *worker = NULL;
    struct stat stat;
    uint32_t *words;
    void *base;
    int fd;

    CHECK_EQ(queue_create(1, &front), 0);
    check_at_end(destroy, front);
    CHECK_EQ(fstat(queue_fd(front), &stat), 0);
    CHECK_EQ(shm_map(queue_fd(front), (size_t)stat.st_size, &base), 0);
    words = base;
    for (unsigned i = 0; i < 2; i++) { /* magic, version */
        words[i] ^= 1;
        CHECK_EQ(queue_attach(queue_fd(front), &worker), -EINVAL);
        words[i] ^= 1;
    }
    CHECK_EQ(queue_attach(queue_fd(front), &worker), 0);
    queue_destroy(STEAL(worker));
    shm_unmap(base, (size_t)stat.st_size);

    fd = shm_create("wrong-size", 4096);
    CHECK_GE(fd, 0);
    CHECK_EQ(queue_attach(fd, &worker), -EINVAL);
    close(fd);
    fd = memfd_create("unsealed", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, stat.st_size), 0);
    CHECK_EQ(queue_attach(fd, &worker), -EINVAL);
    close(fd);
    CHECK_LT(queue_attach(-1, &worker), 0);
    CHECK(worker == NULL);
}

/*
 * Random bytes over the shared part, again and again: the front end's answers stay within their
 * bounds, its copies of what it put stay what they were, errors end within their area, nothing is
 * announced twice.
 */
static void test_a_hostile_worker(void)
{
    struct queue *front, *worker;
    struct work_entry put[WORK_ENTRIES], read;
    struct work_result result;
    struct work_error error;
    struct done_entry done[BATCH];
    struct stat stat;
    uint32_t index;
    bool was_broken = false;
    void *base;

    make_pair(UINT32_MAX - 3, &front, &worker);
    CHECK_EQ(fstat(queue_fd(front), &stat), 0);
    CHECK_EQ(shm_map(queue_fd(front), (size_t)stat.st_size, &base), 0);
    for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
        put[i] = random_entry();
        CHECK_EQ(queue_work_put(front, PRIORITY_BULK, &put[i], &index), 0);
        CHECK_EQ(index, UINT32_MAX - 3 + i);
    }
    queue_work_publish(front, PRIORITY_BULK);
    for (int round = 0; round < 50; round++) {
        uint64_t *words = base;
        int n;

        for (size_t i = 8; i < (size_t)stat.st_size / sizeof(*words); i++) {
            words[i] = random_u64() >> (random_u64() % 64);
        }
        n = queue_done_take(front, done, BATCH);
        CHECK(n == QUEUE_BROKEN || (n >= 0 && n <= BATCH));
        was_broken |= n == QUEUE_BROKEN;
        for (uint32_t i = 0; i < WORK_ENTRIES; i++) {
            queue_work_read(front, PRIORITY_BULK, UINT32_MAX - 3 + i, &read, &result);
            CHECK_MEM(&read, &put[i], sizeof(read));
            memset(&error, 0xa5, sizeof(error));
            queue_error_read(front, PRIORITY_BULK, UINT32_MAX - 3 + i, &error);
            CHECK_LT(strnlen(error.text, sizeof(error.text)), sizeof(error.text));
        }
        queue_done_sleep(front);
        queue_work_publish(front, PRIORITY_BULK);
        CHECK_EQ(queue_work_in_flight(front, PRIORITY_BULK), WORK_ENTRIES);
    }
    CHECK(was_broken);
    shm_unmap(base, (size_t)stat.st_size);
}

/* A tail beyond what the done queue holds is nonsense, whatever the entries say. */
static void test_a_done_tail_out_of_reach(void)
{
    /* Three lines, then the work queues, each a line, its entries, results, errors and rows. */
    const size_t done_tail =
        3 * 64 + PRIORITY_COUNT * (64 + WORK_ENTRIES * (128 + 192 + WORK_ROWS * 32));
    struct queue *front, *worker;
    struct done_entry done[BATCH];
    struct stat stat;
    uint32_t *tail;
    void *base;

    make_four(&front, &worker);
    announce(worker, PRIORITY_NORMAL, 1, 1);
    CHECK_EQ(fstat(queue_fd(front), &stat), 0);
    CHECK_EQ(shm_map(queue_fd(front), (size_t)stat.st_size, &base), 0);
    tail = (uint32_t *)((char *)base + done_tail);
    CHECK_EQ(*tail, 1);
    *tail = DONE_ENTRIES + 1;
    CHECK_EQ(queue_done_take(front, done, BATCH), QUEUE_BROKEN);
    *tail = UINT32_MAX;
    CHECK_EQ(queue_done_take(front, done, BATCH), QUEUE_BROKEN);
    *tail = 1;
    CHECK_EQ(queue_done_take(front, done, BATCH), 1);
    shm_unmap(base, (size_t)stat.st_size);
}

/* And the reverse: a tail that no front end writes. */
static void test_a_broken_front_end(void)
{
    struct queue *front, *worker;
    struct work_entry taken[BATCH];
    struct done_entry done = {.queue = PRIORITY_BULK, .count = 1};
    uint32_t indices[BATCH];
    struct stat stat;
    uint8_t *bytes;
    void *base;

    make_pair(0, &front, &worker);
    CHECK_EQ(fstat(queue_fd(front), &stat), 0);
    CHECK_EQ(shm_map(queue_fd(front), (size_t)stat.st_size, &base), 0);
    bytes = base;
    memset(bytes + 64, 0xa5, (size_t)stat.st_size - 64);
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        CHECK_EQ(queue_work_take(worker, priority, taken, indices, BATCH), QUEUE_BROKEN);
    }
    for (uint32_t i = 0; i < DONE_ENTRIES; i++) { /* as many have room, whatever is said since */
        CHECK_EQ(queue_done_put(worker, &done), 0);
    }
    CHECK_EQ(queue_done_put(worker, &done), -EAGAIN);
    shm_unmap(base, (size_t)stat.st_size);
}

CHECK_MAIN(CHECK_TEST(test_an_entry_there_and_back), CHECK_TEST(test_rows),
           CHECK_TEST(test_places_are_reused_in_order),
           CHECK_TEST(test_a_reused_place_forgets_its_result), CHECK_TEST(test_errors),
           CHECK_TEST(test_indices_wrap), CHECK_TEST(test_full_across_the_wrap),
           CHECK_TEST(test_sleep_and_ring), CHECK_TEST(test_impossible_announcements),
           CHECK_TEST(test_an_entry_is_announced_once),
           CHECK_TEST(test_attach_refuses_what_is_no_queue), CHECK_TEST(test_a_hostile_worker),
           CHECK_TEST(test_a_done_tail_out_of_reach), CHECK_TEST(test_a_broken_front_end))
