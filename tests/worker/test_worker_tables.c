/*
 * Tables: entries of several rows, on a worker of either backend.  What the rows write is compared
 * with what lies where they read; rows that a front end should never write harm nobody.
 *
 * GPUPIPE_WORKER is the program.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/worker/front_end.h"

#include <string.h>

#define SEGMENT_SIZE (4u << 20)
#define N_PLACES     (SEGMENT_SIZE / 2 / WORK_ALIGN) /* of inputs, and behind them of outputs */
#define RECORD_SIZE  3u
#define LAST         (SEGMENT_SIZE / WORK_ALIGN - 1) /* the segment's last place */

enum { SLOT_COPY, SLOT_SUM, SLOT_MINHASH };

static struct front front; /* of the running test */
static uint8_t *memory;
static uint8_t expected[SEGMENT_SIZE];

static void start(void)
{
    static const uint32_t copy_params[] = {RECORD_SIZE}, minhash_params[] = {5, 128, 1};

    front_start_ready(&front, "GPUPIPE_WORKER", 0);
    front_set_job(&front, SLOT_COPY, front_op(&front, "copy"), copy_params, sizeof(copy_params));
    front_set_job(&front, SLOT_SUM, front_op(&front, "sum"), NULL, 0);
    front_set_job(&front, SLOT_MINHASH, front_op(&front, "minhash"), minhash_params,
                  sizeof(minhash_params));
    memory = front_add_segment(&front, 0, SEGMENT_SIZE);
    random_bytes(memory, SEGMENT_SIZE);
    memcpy(expected, memory, SEGMENT_SIZE);
}

/* From anywhere, to a place of its own: *place, which moves on. */
static struct work_row random_row(uint32_t *place)
{
    const uint32_t n_records = 1 + (uint32_t)random_below(600), size = n_records * RECORD_SIZE;
    const struct work_row row = {
        .n_records = n_records,
        .in = {(uint32_t)random_below(N_PLACES - size / WORK_ALIGN)},
        .out = {N_PLACES + *place},
    };

    memcpy(&expected[(size_t)row.out[0] * WORK_ALIGN], &expected[(size_t)row.in[0] * WORK_ALIGN],
           size);
    *place += size / WORK_ALIGN + 1 + (uint32_t)random_below(3);
    return row;
}

/* Returns the bytes that it is to write. */
static uint32_t submit_random(enum priority priority, uint32_t *place)
{
    const uint32_t n_rows = 1 + (uint32_t)random_below(WORK_ROWS);
    struct work_row rows[WORK_ROWS];
    uint32_t size = 0;

    for (uint32_t i = 0; i < n_rows; i++) {
        rows[i] = random_row(place);
        size += rows[i].n_records * RECORD_SIZE;
    }
    if (random_below(4) > 0) {
        front_submit_table(&front, priority,
                           (struct work_entry){.n_records = n_rows, .kind = WORK_TABLE}, rows,
                           n_rows);
        return size;
    }
    for (uint32_t i = 1; i < n_rows; i++) { /* only the first one, as no table */
        memcpy(&expected[(size_t)rows[i].out[0] * WORK_ALIGN],
               &memory[(size_t)rows[i].out[0] * WORK_ALIGN], rows[i].n_records * RECORD_SIZE);
    }
    front_submit(&front, priority,
                 (struct work_entry){.n_records = rows[0].n_records,
                                     .ref = {WORK_REF(0, (uint64_t)rows[0].in[0] * WORK_ALIGN),
                                             WORK_REF(0, (uint64_t)rows[0].out[0] * WORK_ALIGN)}});
    return rows[0].n_records * RECORD_SIZE;
}

/* Among entries without rows, more than the device takes at once; nothing else is written. */
static void test_many_tables(void)
{
    enum { N = 60, ROUNDS = 20 };
    static struct front_answer answers[N];

    start();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t place = 0;
        uint64_t n_bytes = 0, n_written = 0;

        for (uint32_t i = 0; i < N && place + WORK_ROWS * (WORK_ROWS + 1) < N_PLACES; i++) {
            n_bytes += submit_random((enum priority)random_below(PRIORITY_COUNT), &place);
            if (i + 1 == N || place + WORK_ROWS * (WORK_ROWS + 1) >= N_PLACES) {
                front_await(&front, answers, i + 1);
                for (uint32_t k = 0; k <= i; k++) {
                    CHECK_EQ(answers[k].result.status, STATUS_OK);
                    n_written += answers[k].result.out_size[0];
                }
            }
        }
        CHECK_EQ(n_written, n_bytes);
        CHECK_MEM(memory, expected, SEGMENT_SIZE);
    }
}

/* The last bytes of a segment are as good as the first. */
static void test_rows_that_just_fit(void)
{
    const struct work_row rows[] = {{.n_records = 21, .in = {LAST}, .out = {0}},
                                    {.n_records = 21, .in = {1}, .out = {LAST - 1}}};
    struct front_answer answer;

    start();
    front_submit_table(&front, PRIORITY_NORMAL,
                       (struct work_entry){.n_records = 2, .kind = WORK_TABLE}, rows, 2);
    front_await(&front, &answer, 1);
    CHECK_EQ(answer.result.status, STATUS_OK);
    memcpy(expected, &expected[(size_t)LAST * WORK_ALIGN], 21 * RECORD_SIZE);
    memcpy(&expected[(size_t)(LAST - 1) * WORK_ALIGN], &expected[WORK_ALIGN], 21 * RECORD_SIZE);
    CHECK_MEM(memory, expected, SEGMENT_SIZE);
}

static const struct bad_table {
    const char *what;
    struct work_entry entry;
    struct work_row last; /* behind good ones; all zero: a good one as well */
    enum status status;
    const char *words;
} bad_tables[] = {
    {"no rows", {.n_records = 0}, {0}, STATUS_RANGE, "0 rows"},
    {"a row too many", {.n_records = WORK_ROWS + 1}, {0}, STATUS_RANGE, "65 rows"},
    {"all rows there can be", {.n_records = UINT32_MAX}, {0}, STATUS_RANGE, "4294967295 rows"},
    {"a row of no records",
     {.n_records = 2},
     {.in = {1}, .out = {N_PLACES}},
     STATUS_RANGE,
     "row 1 has no records"},
    {"an input ends late",
     {.n_records = 2},
     {.n_records = 22, .in = {LAST}, .out = {N_PLACES}},
     STATUS_RANGE,
     "row 1, in: segment 0 has no 66 bytes at offset 4194240"},
    {"an output ends late",
     {.n_records = 2},
     {.n_records = 22, .in = {0}, .out = {LAST}},
     STATUS_RANGE,
     "row 1, out: segment 0 has no 66 bytes at offset 4194240"},
    {"an input far off",
     {.n_records = 2},
     {.n_records = 1, .in = {UINT32_MAX}, .out = {N_PLACES}},
     STATUS_RANGE,
     "at offset 274877906880"},
    {"all records there can be",
     {.n_records = 2},
     {.n_records = UINT32_MAX, .in = {0}, .out = {N_PLACES}},
     STATUS_RANGE,
     "its rows have too many records"},
    {"nearly all of them",
     {.n_records = 2},
     {.n_records = UINT32_MAX - 10, .in = {0}, .out = {N_PLACES}},
     STATUS_RANGE,
     "row 1, in: segment 0 has no 12884901855 bytes"},
    {"a segment that is not there",
     {.n_records = 2, .ref = {WORK_REF(1, 0)}},
     {0},
     STATUS_RANGE,
     "there is no segment 1"},
    {"no segment at all",
     {.n_records = 2, .ref = {WORK_REF_NONE}},
     {0},
     STATUS_RANGE,
     "the whole of a segment"},
    {"part of a segment",
     {.n_records = 2, .ref = {WORK_REF(0, 64)}},
     {0},
     STATUS_RANGE,
     "the whole of a segment"},
    {"a tail", {.n_records = 2, .tail_size = 1}, {0}, STATUS_RANGE, "a TABLE has no tail"},
    {"varying bytes", {.n_records = 2, .varying_size = 4}, {0}, STATUS_RANGE, "no varying input"},
    {"a varying input",
     {.job_slot = SLOT_MINHASH, .n_records = 2},
     {0},
     STATUS_RANGE,
     "no varying input"},
    {"an op that reduces",
     {.job_slot = SLOT_SUM, .n_records = 2},
     {0},
     STATUS_INTERNAL,
     "op sum is of no kind for TABLE"},
};

/* Each is answered with its status, writes nothing, and the good one after it runs. */
static void test_bad_tables(void)
{
    start();
    for (uint32_t i = 0; i < ARRAY_SIZE(bad_tables); i++) {
        const struct bad_table *bad = &bad_tables[i];
        struct work_row rows[WORK_ROWS];
        struct work_entry entry = bad->entry;
        struct front_answer answer;
        uint32_t place = 0;

        printf("# %s\n", bad->what);
        for (uint32_t k = 0; k < WORK_ROWS; k++) {
            rows[k] = (struct work_row){.n_records = 10, .in = {k}, .out = {N_PLACES + k}};
        }
        rows[1] = bad->last.out[0] != 0 ? bad->last : rows[1];
        entry.kind = WORK_TABLE;
        front_submit_table(&front, i % PRIORITY_COUNT, entry, rows, WORK_ROWS);
        front_await(&front, &answer, 1);
        CHECK_EQ(answer.result.status, bad->status);
        CHECK_HAS(front.error.text, bad->words);
        CHECK_MEM(memory, expected, SEGMENT_SIZE);
        submit_random(i % PRIORITY_COUNT, &place);
        front_await(&front, &answer, 1);
        CHECK_EQ(answer.result.status, STATUS_OK);
        CHECK_MEM(memory, expected, SEGMENT_SIZE);
    }
}

CHECK_MAIN(CHECK_TEST(test_many_tables), CHECK_TEST(test_rows_that_just_fit),
           CHECK_TEST(test_bad_tables))
