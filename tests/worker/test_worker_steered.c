/*
 * What a worker makes of order, bad entries and much work at once, with ops that a test can see and
 * steer (tests/fake_ops.h): what must not depend on time is steered by their gates.  They run on a
 * CPU; the parts that all backends share are what is tested here.
 */
#include "proto/channel.h"
#include "proto/shm.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/fake_device.h"
#include "tests/fake_ops.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#define FAKE         "GPUPIPE_FAKE_WORKER"
#define FAKE_DEVICE  "GPUPIPE_FAKE_DEVICE"
#define SEGMENT_SIZE (1u << 20)

static struct front front; /* of the running test */

/* ---- priorities ---------------------------------------------------------------------------- */

#define GATES_OFFSET 0
#define IN_OFFSET    65536
#define OUT_OFFSET   131072

static uint32_t state_of(enum priority priority, uint32_t index)
{
    struct work_entry entry;
    struct work_result result;

    queue_work_read(front.queue, priority, index, &entry, &result);
    return result.state;
}

static void open_gate(uint32_t *memory, uint32_t i)
{
    __atomic_store_n(&memory[i], 1, __ATOMIC_RELEASE);
}

/* A fake worker whose threads all wait in gates; job 0 is gate, job 1 affine.  The memory. */
static uint32_t *start_with_closed_gates(void)
{
    uint32_t *memory, index = 0;

    front_start_ready(&front, FAKE, 0);
    front_set_job(&front, 0, FAKE_GATE, NULL, 0);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    memset(memory, 0, IN_OFFSET);
    for (uint32_t i = 0; i < front.caps.n_threads; i++) {
        index =
            front_submit(&front, PRIORITY_URGENT,
                         (struct work_entry){.n_records = 1,
                                             .ref = {WORK_REF(0, i * 4),
                                                     WORK_REF(0, GATES_OFFSET + 32768 + i * 4)}});
    }
    while (state_of(PRIORITY_URGENT, index) < RESULT_ISSUED) {
        usleep(100);
    }
    return memory;
}

static struct work_entry affine_entry(uint32_t i)
{
    return (struct work_entry){
        .job_slot = 1,
        .n_records = 1,
        .ref = {WORK_REF(0, IN_OFFSET + i * 4), WORK_REF(0, OUT_OFFSET + i * 4)}};
}

/*
 * More bulk than the device takes, then normal, then urgent, all before the one thread goes on: it
 * does urgent, normal, bulk.  What the device had no room for had stayed in the queue.
 */
static void test_urgent_overtakes(void)
{
    enum { N_BULK = 200, N_NORMAL = 5, N_URGENT = 5, N_ALL = N_BULK + N_NORMAL + N_URGENT };
    static struct front_answer answers[N_ALL + 1];
    uint32_t *memory = start_with_closed_gates();
    uint32_t last_urgent = 0, n_left = 0;

    for (uint32_t i = 0; i < N_ALL; i++) {
        enum priority priority = i < N_BULK              ? PRIORITY_BULK
                                 : i < N_BULK + N_NORMAL ? PRIORITY_NORMAL
                                                         : PRIORITY_URGENT;
        memory[IN_OFFSET / 4 + i] = (uint32_t)random_u64();
        last_urgent = front_submit(&front, priority, affine_entry(i));
    }
    while (state_of(PRIORITY_URGENT, last_urgent) < RESULT_ISSUED) {
        usleep(100);
    }
    for (uint32_t i = 0; i < N_BULK; i++) {
        n_left += state_of(PRIORITY_BULK, i) == RESULT_EMPTY;
    }
    CHECK_GT(n_left, 0);
    open_gate(memory, 0);
    front_await(&front, answers, N_ALL + 1);
    for (uint32_t i = 0; i < N_ALL; i++) {
        enum priority expected = i < N_URGENT              ? PRIORITY_URGENT
                                 : i < N_URGENT + N_NORMAL ? PRIORITY_NORMAL
                                                           : PRIORITY_BULK;
        uint64_t at = (WORK_REF_OFFSET(answers[i + 1].entry.ref[0]) - IN_OFFSET) / 4;

        CHECK_EQ(answers[i + 1].result.status, STATUS_OK);
        CHECK_EQ(answers[i + 1].priority, expected);
        CHECK_EQ(memory[OUT_OFFSET / 4 + at], memory[IN_OFFSET / 4 + at] * 3);
    }
}

/* Is every one of the worker's threads asleep, several times in a row? */
static bool all_sleep(void)
{
    for (int i = 0; i < 10; i++) {
        char command[128];

        snprintf(command, sizeof(command), "grep -qs '^State:.[RD]' /proc/%d/task/*/status",
                 front.pid);
        if (system(command) == 0) {
            return false;
        }
        usleep(1000);
    }
    return true;
}

/* Neither idleness nor bulk that has no room keeps a thread busy; if one spun, this would not end.
 */
static void test_waiting_is_sleeping(void)
{
    static struct front_answer answers[201];
    uint32_t *memory = start_with_closed_gates();

    while (!all_sleep()) {
        continue;
    }
    for (uint32_t i = 0; i < 200; i++) {
        front_submit(&front, PRIORITY_BULK, affine_entry(i));
    }
    while (!all_sleep()) {
        continue;
    }
    open_gate(memory, 0);
    front_await(&front, answers, 201);
}

/* One affine entry; true: the worker slept before. */
static bool run_affine(uint32_t *memory, uint16_t flags, struct work_result *ret_result)
{
    struct work_entry entry = affine_entry(0);
    struct front_answer answer;
    uint32_t index;
    bool has_slept;

    memory[IN_OFFSET / 4] = (uint32_t)random_u64();
    entry.flags = flags;
    CHECK_EQ(queue_work_put(front.queue, PRIORITY_URGENT, &entry, &index), 0);
    has_slept = queue_work_publish(front.queue, PRIORITY_URGENT);
    if (has_slept) {
        channel_ring(front.doorbell_fd);
    }
    front_await(&front, &answer, 1);
    CHECK_EQ(answer.result.status, STATUS_OK);
    CHECK_EQ(memory[OUT_OFFSET / 4], memory[IN_OFFSET / 4] * 3);
    *ret_result = answer.result;
    return has_slept;
}

/* Who looks again and again wants no doorbell before its time is over. */
static void test_an_entry_keeps_it_awake(void)
{
    struct work_result asking, result;
    uint32_t *memory;

    front_start_ready(&front, FAKE, 0);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    for (uint32_t i = 0; i < 3; i++) {
        run_affine(memory, WORK_AWAKE, &asking);
        while (!run_affine(memory, 0, &result)) {
            continue;
        }
        CHECK_GE(result.issue_ns, asking.issue_ns + WORK_AWAKE_NS);
        while (!all_sleep()) {
            continue;
        }
    }
}

static void test_ping_while_all_threads_compute(void)
{
    start_with_closed_gates();
    front_ping(&front);
    front_ping(&front);
}

static void test_many_small_entries(void)
{
    enum { N_ENTRIES = 100000, N_PLACES = 200 };
    static struct front_answer answers[N_PLACES];
    uint32_t *memory, n_done = 0;

    front_start_ready(&front, FAKE, UINT32_MAX - 1000);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    while (n_done < N_ENTRIES) {
        for (uint32_t i = 0; i < N_PLACES; i++) {
            memory[IN_OFFSET / 4 + i] = (uint32_t)random_u64();
            memory[OUT_OFFSET / 4 + i] = 0xa5a5a5a5u;
            front_submit(&front, random_u64() % PRIORITY_COUNT, affine_entry(i));
        }
        if (random_u64() % 16 == 0) {
            front_ping(&front);
        }
        front_await(&front, answers, N_PLACES);
        for (uint32_t i = 0; i < N_PLACES; i++) {
            CHECK_EQ(memory[OUT_OFFSET / 4 + i], memory[IN_OFFSET / 4 + i] * 3);
        }
        n_done += N_PLACES;
    }
}

/* ---- entries that are wrong ---------------------------------------------------------------- */

#define SLOT_NO_OP      7 /* a job whose op does not exist */
#define SLOT_WIDTH      2
#define SLOT_CHAIN      3
#define SLOT_SPANS      4
#define SLOT_PALETTE    5 /* its constants lie where the inputs do */
#define SLOT_NO_CONST   6 /* it has one of two */
#define SLOT_LATE_CONST 8
#define LAST            (SEGMENT_SIZE - 4)

static const struct bad_entry {
    const char *what;
    enum status status;
    struct work_entry entry;
    const char *words; /* of the error */
} bad_entries[] = {
    {"no such job slot",
     STATUS_INTERNAL,
     {.job_slot = FRONT_JOBS, .n_records = 1},
     "no job slot 64"},
    {"job slot far off",
     STATUS_INTERNAL,
     {.job_slot = UINT32_MAX, .n_records = 1},
     "no job slot 4294967295"},
    {"no such op", STATUS_INTERNAL, {.job_slot = SLOT_NO_OP, .n_records = 1}, "no op 6"},
    {"no such kind", STATUS_INTERNAL, {.job_slot = 1, .n_records = 1, .kind = 5}, "no kind 5"},
    {"kind far off",
     STATUS_INTERNAL,
     {.job_slot = 1, .n_records = 1, .kind = UINT16_MAX},
     "no kind 65535"},
    {"flags", STATUS_INTERNAL, {.job_slot = 1, .n_records = 1, .flags = 8}, "flags 0x8"},
    {"flags far off",
     STATUS_INTERNAL,
     {.job_slot = 1, .n_records = 1, .flags = UINT16_MAX},
     "flags 0xfff8"},
    {"leaves of a map op",
     STATUS_INTERNAL,
     {.job_slot = 1, .n_records = 1, .kind = WORK_LEAVES},
     "affine is of no kind for LEAVES"},
    {"merge of a map op",
     STATUS_INTERNAL,
     {.job_slot = 1, .n_records = 1, .kind = WORK_MERGE},
     "affine is of no kind for MERGE"},
    {"map of a reduce op",
     STATUS_INTERNAL,
     {.job_slot = SLOT_CHAIN, .n_records = 1},
     "chain is of no kind for MAP"},
    {"no records", STATUS_RANGE, {.job_slot = 1, .ref = {0, 4096}}, "no records"},
    {"no such segment",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {WORK_REF(1, 0), 64}},
     "ref 0: segment 1 has no 4 bytes at offset 0"},
    {"no input",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {WORK_REF_NONE, 64}},
     "ref 0: segment 65535 has no 4 bytes"},
    {"no output",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {0, WORK_REF_NONE}},
     "ref 1: segment 65535"},
    {"input ends one record late",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 2, .ref = {LAST, 0}},
     "ref 0: segment 0 has no 8 bytes at offset 1048572"},
    {"output ends one record late",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 2, .ref = {0, LAST}},
     "ref 1: segment 0 has no 8 bytes at offset 1048572"},
    {"input begins at the end",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {1 << 20, 0}},
     "at offset 1048576"},
    {"input far off",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {(1ull << 48) - 4, 0}},
     "at offset 281474976710652"},
    {"all records there can be",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = UINT32_MAX, .ref = {0, 4096}},
     "17179869180 bytes are too many"},
    {"input not aligned",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {2, 4096}},
     "ref 0: offset 2 is"},
    {"output not aligned",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {0, 4098}},
     "ref 1: offset 4098 is"},
    {"tail of an op without",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {0, 4096}, .tail_size = 1},
     "affine takes no tail"},
    {"tail as long as a record",
     STATUS_RANGE,
     {.job_slot = SLOT_WIDTH, .n_records = 1, .ref = {0, 4096}, .tail_size = FAKE_BLOCK},
     "a tail of 16 bytes"},
    {"tail far off",
     STATUS_RANGE,
     {.job_slot = SLOT_WIDTH, .n_records = 1, .ref = {0, 4096}, .tail_size = UINT32_MAX},
     "a tail of 4294967295 bytes"},
    {"partials end late",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN,
      .n_records = FAKE_LEAF + 1,
      .kind = WORK_LEAVES,
      .ref = {0, SEGMENT_SIZE - sizeof(struct fake_partial)}},
     "ref 1: segment 0 has no 32 bytes"},
    {"partials not aligned",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .n_records = 1, .kind = WORK_LEAVES, .ref = {0, 4100}},
     "ref 1: offset 4100 is"},
    {"merge onto its own fold",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .n_records = 1, .kind = WORK_MERGE, .ref = {64, 0, 72}},
     "onto itself"},
    {"merge of partials that are not there",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN,
      .n_records = 1,
      .kind = WORK_MERGE,
      .ref = {WORK_REF_NONE, WORK_REF_NONE, 64}},
     "ref 1: segment 65535"},
    {"merge into nowhere",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .kind = WORK_MERGE, .ref = {WORK_REF_NONE, 0, WORK_REF_NONE}},
     "ref 2: segment 65535"},
    {"merge with a tail",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN,
      .n_records = 1,
      .kind = WORK_MERGE,
      .ref = {0, 64, 128},
      .tail_size = 1},
     "MERGE has no tail"},
    {"finish of two folds",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .n_records = 2, .kind = WORK_FINISH, .ref = {0, 64}},
     "finishes 2 folds"},
    {"finish of no fold",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .n_records = 1, .kind = WORK_FINISH, .ref = {WORK_REF_NONE, 64}},
     "ref 0: segment 65535"},
    {"varying bytes without a varying input",
     STATUS_RANGE,
     {.job_slot = 1, .n_records = 1, .ref = {0, 4096}, .varying_size = 4},
     "affine has no varying input"},
    {"varying bytes of a merge",
     STATUS_RANGE,
     {.job_slot = SLOT_CHAIN, .kind = WORK_MERGE, .ref = {0, 0, 64}, .varying_size = 4},
     "chain has no varying input"},
    {"half an element",
     STATUS_RANGE,
     {.job_slot = SLOT_SPANS, .n_records = 1, .ref = {0, 64, 4096}, .varying_size = 5},
     "a varying array of 5 bytes is no multiple of its elements' 2"},
    {"varying input ends late",
     STATUS_RANGE,
     {.job_slot = SLOT_SPANS, .n_records = 1, .ref = {0, LAST, 4096}, .varying_size = 6},
     "ref 1: segment 0 has no 6 bytes at offset 1048572"},
    {"varying input far too long",
     STATUS_RANGE,
     {.job_slot = SLOT_SPANS, .n_records = 1, .ref = {0, 64, 4096}, .varying_size = UINT32_MAX - 1},
     "ref 1: segment 0 has no 4294967294 bytes at offset 64"},
    {"a constant that is not there",
     STATUS_INTERNAL,
     {.job_slot = SLOT_NO_CONST, .n_records = 1, .ref = {0, 4096}},
     "its job has no constant start"},
    {"a constant ends late",
     STATUS_RANGE,
     {.job_slot = SLOT_LATE_CONST, .n_records = 1, .ref = {0, 4096}},
     "start: segment 0 has no 8 bytes at offset 1048572"},
};

static const struct {
    uint32_t width, channels, pitch, n_colors;
} palette_params = {3, 1, 4, 2}; /* as palette.cu packs them */

/* A job of palette with these constants; id 0: none. */
static void set_palette(uint32_t slot, uint64_t colors_id, work_ref start)
{
    front_set_job(&front, slot, FAKE_PALETTE, &palette_params, sizeof(palette_params));
    front.jobs[slot].consts[0] = (struct job_const){.ref = WORK_REF(0, 64), .id = colors_id};
    front.jobs[slot].consts[1] =
        (struct job_const){.ref = start, .id = start == WORK_REF_NONE ? 0 : colors_id + 1};
}

/* Each is answered with its status, writes nothing, and the good one after it runs. */
static void test_bad_entries(void)
{
    static uint8_t before[SEGMENT_SIZE];
    uint32_t *memory;

    front_start_ready(&front, FAKE, 0);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    front_set_job(&front, SLOT_WIDTH, FAKE_WIDTH, NULL, 0);
    front_set_job(&front, SLOT_CHAIN, FAKE_CHAIN, NULL, 0);
    front_set_job(&front, SLOT_NO_OP, FAKE_COUNT, NULL, 0);
    front_set_job(&front, SLOT_SPANS, FAKE_SPANS, NULL, 0);
    set_palette(SLOT_NO_CONST, 1, WORK_REF_NONE);
    set_palette(SLOT_LATE_CONST, 3, LAST);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    for (uint32_t i = 0; i < ARRAY_SIZE(bad_entries); i++) {
        struct work_result result;

        printf("# %s\n", bad_entries[i].what);
        memcpy(before, memory, SEGMENT_SIZE);
        result = front_run(&front, i % PRIORITY_COUNT, bad_entries[i].entry);
        CHECK_EQ(result.status, bad_entries[i].status);
        CHECK_HAS(front.error.text, bad_entries[i].words);
        CHECK_MEM(memory, before, SEGMENT_SIZE);
        memory[IN_OFFSET / 4 + i] = 1000 + i;
        result = front_run(&front, i % PRIORITY_COUNT, affine_entry(i));
        CHECK_EQ(result.status, STATUS_OK);
        CHECK_EQ(memory[OUT_OFFSET / 4 + i], 3000 + 3 * i);
    }
}

/* The entry's `after` is so far before its own index.  Of the one that it names nothing is known
 * any more: it has ended. */
static void check_after(uint32_t back, uint16_t flags, enum status status)
{
    enum priority priority = random_below(PRIORITY_COUNT);
    struct work_entry entry = affine_entry(0);

    entry.flags = flags;
    entry.after = queue_work_next(front.queue, priority) - back;
    CHECK_EQ(front_run(&front, priority, entry).status, status);
    if (status != STATUS_OK) {
        CHECK_HAS(front.error.text, "cannot be after");
    }
}

/* Once it waited for what it named for ever, be it itself. */
static void test_an_entry_is_after_an_earlier_one(void)
{
    const uint32_t wrong[] = {0, WORK_ENTRIES + 1, UINT32_MAX, 1u << 31};

    front_start_ready(&front, FAKE, UINT32_MAX - 5);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    front_add_segment(&front, 0, SEGMENT_SIZE);
    for (uint32_t turn = 0; turn < 10; turn++) {
        for (uint32_t i = 0; i < ARRAY_SIZE(wrong); i++) {
            check_after(wrong[i], WORK_AFTER, STATUS_INTERNAL);
        }
        check_after(1 + (uint32_t)random_below(WORK_ENTRIES), WORK_AFTER, STATUS_OK);
        check_after(1, WORK_AFTER, STATUS_OK);
        check_after(WORK_ENTRIES, WORK_AFTER, STATUS_OK);
        check_after(WORK_ENTRIES, 0, STATUS_INTERNAL);
    }
}

/* The last bytes of a segment are as good as the first, and a short tail needs only its own. */
static void test_entries_that_just_fit(void)
{
    struct work_result result;
    uint32_t *memory;

    front_start_ready(&front, FAKE, 0);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    front_set_job(&front, SLOT_WIDTH, FAKE_WIDTH, NULL, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    memory[0] = 5;
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.job_slot = 1, .n_records = 1, .ref = {0, LAST}});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(memory[LAST / 4], 15);
    result = front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.job_slot = SLOT_WIDTH,
                                           .n_records = 2,
                                           .ref = {SEGMENT_SIZE - FAKE_BLOCK - 3, 0},
                                           .tail_size = 3});
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(memory[0] >> 16, FAKE_BLOCK);
    CHECK_EQ(memory[1] >> 16, 3);
}

/* The table, the start and rows of 4 bytes, 3 of which count. */
static void test_constants(void)
{
    uint8_t *memory;
    uint64_t sums[2];

    front_start_ready(&front, FAKE, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    set_palette(SLOT_PALETTE, 1, WORK_REF(0, 128));
    memcpy(memory, "\0\1\2!\1\1\3!", 8);
    memcpy(memory + 64, (uint32_t[]){5, 1000}, 8);
    memcpy(memory + 128, (uint64_t[]){7}, 8);
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){
                           .job_slot = SLOT_PALETTE, .n_records = 2, .ref = {0, WORK_REF(0, 4096)}})
                 .status,
             STATUS_OK);
    memcpy(sums, memory + 4096, sizeof(sums));
    CHECK_EQ(sums[0], ((7 * 3 + 5) * 3 + 1000) * 3 + 5);
    CHECK_EQ(sums[1], ((7 * 3 + 1000) * 3 + 1000) * 3 + 1000);
}

/* Ends that nobody has checked, as they may be in memory that a client can write to. */
static void test_ends_that_lie(void)
{
    const uint32_t ends[] = {2, 1, UINT32_MAX, 3, 0x80000000, 3};
    const uint32_t firsts[] = {0, 2, 1, 3, 3, 3}, lengths[] = {2, 0, 2, 0, 0, 0};
    uint16_t text[4];
    uint8_t *memory;

    front_start_ready(&front, FAKE, 0);
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    front_set_job(&front, SLOT_SPANS, FAKE_SPANS, NULL, 0);
    random_bytes(text, sizeof(text));
    memcpy(memory, ends, sizeof(ends));
    memcpy(memory + SEGMENT_SIZE - 6, text, 6); /* behind it is nothing */
    CHECK_EQ(front_run(&front, PRIORITY_NORMAL,
                       (struct work_entry){.job_slot = SLOT_SPANS,
                                           .n_records = ARRAY_SIZE(ends),
                                           .ref = {0, SEGMENT_SIZE - 6, 4096},
                                           .varying_size = 6})
                 .status,
             STATUS_OK);
    for (uint32_t i = 0; i < ARRAY_SIZE(ends); i++) {
        uint64_t expected = lengths[i], got;

        for (uint32_t k = 0; k < lengths[i]; k++) {
            expected = expected * 31 + text[firsts[i] + k];
        }
        memcpy(&got, memory + 4096 + i * sizeof(got), sizeof(got));
        CHECK_EQ(got, expected);
    }
}

static void test_a_dropped_segment_is_gone(void)
{
    struct work_result result;
    uint32_t *memory;

    front_start_ready(&front, FAKE, 0);
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    front_add_segment(&front, 0, SEGMENT_SIZE);
    front_drop_segment(&front, 0);
    result = front_run(&front, PRIORITY_NORMAL, affine_entry(0));
    CHECK_EQ(result.status, STATUS_RANGE);
    shm_unmap(front.segments[0].base, front.segments[0].size);
    memory = front_add_segment(&front, 0, 2 * SEGMENT_SIZE);
    memory[IN_OFFSET / 4] = 9;
    result = front_run(&front, PRIORITY_NORMAL, affine_entry(0));
    CHECK_EQ(result.status, STATUS_OK);
    CHECK_EQ(memory[OUT_OFFSET / 4], 27);
}

/* A device that cannot register it: what was mapped is unmapped, and the id is free again. */
static void test_a_segment_that_the_device_refuses(void)
{
    struct work_result result;
    char words[128];
    int fd = shm_create("segment", 2 * SEGMENT_SIZE);

    CHECK_GE(fd, 0);
    setenv("FAKE_SEGMENT_MOST", "1048576", 1);
    front_start_ready(&front, FAKE_DEVICE, 0);
    unsetenv("FAKE_SEGMENT_MOST");
    front_set_job(&front, 1, FAKE_AFFINE, NULL, 0);
    snprintf(words, sizeof(words), FAKE_REFUSAL, 0u);
    front_expect_refusal(&front, 0, fd, 2 * SEGMENT_SIZE, words);
    result = front_run(&front, PRIORITY_NORMAL, affine_entry(0));
    CHECK_EQ(result.status, STATUS_RANGE);
    front_lend_segment(&front, 0, fd, SEGMENT_SIZE);
    close(fd);
    result = front_run(&front, PRIORITY_NORMAL, affine_entry(0));
    CHECK_EQ(result.status, STATUS_OK);
}

CHECK_MAIN(CHECK_TEST(test_urgent_overtakes), CHECK_TEST(test_waiting_is_sleeping),
           CHECK_TEST(test_an_entry_keeps_it_awake),
           CHECK_TEST(test_ping_while_all_threads_compute), CHECK_TEST(test_many_small_entries),
           CHECK_TEST(test_bad_entries), CHECK_TEST(test_an_entry_is_after_an_earlier_one),
           CHECK_TEST(test_entries_that_just_fit), CHECK_TEST(test_constants),
           CHECK_TEST(test_ends_that_lie), CHECK_TEST(test_a_dropped_segment_is_gone),
           CHECK_TEST(test_a_segment_that_the_device_refuses))
