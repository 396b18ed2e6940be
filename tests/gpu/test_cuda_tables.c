/*
 * Works of several rows, which lie anywhere in their segment: each way of a launch finds them, they
 * share launches with other works, and have their share of the time.  Over a runtime of its own
 * (runtime.h), so no GPU is needed.
 */
#include "proto/util.h"
#include "tests/check.h"
#include "tests/gpu/pipeline.h"
#include "tests/gpu/runtime.h"
#include "tests/random.h"

#include <string.h>

extern const struct op_code op_copy, op_mix;

#define PLACES_MAX (WORK_ROWS * (LIMIT_IN + LIMIT_OUT))

/* A work whose arrays lie in one piece, and the same as a table. */
struct table {
    struct device_work whole, work;
    struct work_row rows[WORK_ROWS];
    uint8_t *segment;
    uint32_t places[PLACES_MAX]; /* that are free yet, in units of WORK_ALIGN */
    uint32_t n_places;
};

static void make_segment(struct table *table, uint32_t n_rows)
{
    const uint32_t n = n_rows * (LIMIT_IN + LIMIT_OUT);
    uint64_t largest = 0;

    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        largest = MAX(largest, table->whole.in[i].size);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        largest = MAX(largest, table->whole.out[i].size);
    }
    const uint32_t step = (uint32_t)(largest / WORK_ALIGN) + 1;
    table->segment = pipeline_array((uint64_t)n * step * WORK_ALIGN).base;
    for (table->n_places = 0; table->n_places < n; table->n_places++) {
        table->places[table->n_places] = table->n_places * step;
    }
}

static uint32_t take_place(struct table *table)
{
    uint32_t k = (uint32_t)random_below(table->n_places), place = table->places[k];

    table->places[k] = table->places[--table->n_places];
    return place;
}

/* A random number of the records that are left, so that each row after it has one. */
static uint32_t take_records(uint32_t *n_left, uint32_t n_rows_left)
{
    uint32_t n = n_rows_left == 1 ? *n_left : 1 + (uint32_t)random_below(*n_left - n_rows_left + 1);

    *n_left -= n;
    return n;
}

/* Bytes of a record of this array. */
static uint64_t record_size(const struct table *table, const struct device_array *array)
{
    return array->size / table->whole.n_records;
}

/* The array as a table has it; at: where this row's part is, stride: to the next row's. */
static struct device_array scatter(struct table *table, const struct device_array *array,
                                   uint32_t *at, bool is_input)
{
    struct device_array scattered = {.base = table->segment, .size = array->size};
    const char *next = array->base;

    if (array->base == NULL) {
        return *array;
    }
    for (uint32_t i = 0; i < table->work.n_rows; i++) {
        uint64_t size = record_size(table, array) * table->rows[i].n_records;
        uint32_t *place = &at[i * sizeof(table->rows[0]) / sizeof(*at)];

        *place = take_place(table);
        if (is_input) {
            memcpy(table->segment + (uint64_t)*place * WORK_ALIGN, next, size);
        }
        next += size;
    }
    return scattered;
}

static struct table *make_table(struct device_work whole, uint32_t n_rows)
{
    struct table *table = pipeline_array(sizeof(*table)).base;
    uint32_t n_left = whole.n_records;

    memset(table, 0, sizeof(*table));
    table->whole = table->work = whole;
    make_segment(table, n_rows);
    table->work.rows = table->rows;
    table->work.n_rows = n_rows;
    for (uint32_t i = 0; i < n_rows; i++) {
        table->rows[i].n_records = take_records(&n_left, n_rows - i);
    }
    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        table->work.in[i] = scatter(table, &whole.in[i], &table->rows[0].in[i], true);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        table->work.out[i] = scatter(table, &whole.out[i], &table->rows[0].out[i], false);
    }
    return table;
}

/* What the op makes of row i, whose records begin with number `first` of the whole. */
static void check_row(const struct table *table, uint32_t i, uint32_t first)
{
    const struct device_work *whole = &table->whole;
    struct op_chunk chunk = {.n_records = table->rows[i].n_records};

    for (uint32_t k = 0; k < LIMIT_IN; k++) {
        const char *base = whole->in[k].base;

        chunk.in[k] = base != NULL ? base + record_size(table, &whole->in[k]) * first : NULL;
    }
    for (uint32_t k = 0; k < LIMIT_OUT; k++) {
        chunk.out[k] = whole->out[k].base;
    }
    whole->code->map(whole->params, &chunk, 1);
    for (uint32_t k = 0; k < LIMIT_OUT; k++) {
        if (chunk.out[k] != NULL) {
            CHECK_MEM(table->segment + (uint64_t)table->rows[i].out[k] * WORK_ALIGN, chunk.out[k],
                      record_size(table, &whole->out[k]) * chunk.n_records);
        }
    }
}

static void check_table(const struct table *table, const struct device_completion *completion)
{
    uint32_t first = 0;

    CHECK_EQ(completion->cookie, table->work.cookie);
    CHECK_EQ(completion->result.status, STATUS_OK);
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        CHECK_EQ(completion->result.out_size[i], table->whole.out[i].size);
    }
    for (uint32_t i = 0; i < table->work.n_rows; i++) {
        check_row(table, i, first);
        first += table->rows[i].n_records;
    }
}

static struct table *random_table(uint32_t n_rows)
{
    const uint32_t n_records = n_rows + (uint32_t)random_below(200);
    const enum priority priority = (enum priority)random_below(PRIORITY_COUNT);
    const struct mix_params params = {1 + (uint32_t)random_below(40), (uint32_t)random_u64()};
    struct device_work work =
        random_below(2) == 0
            ? pipeline_copy(priority, n_records, 1 + (uint32_t)random_below(100))
            : pipeline_mix(priority, n_records, params, (uint32_t)random_below(MIX_IN + 1));

    return make_table(work, n_rows);
}

static void run_table(const struct table *table)
{
    struct device_completion completion;
    struct device_work work = table->work;

    pipeline_issue(&work, 1);
    runtime_run();
    while (pipeline_poll(&completion, 1) ==
           0) { /* one step at a time where urgent work is likely */
        runtime.ns += 1000000;
        runtime_run();
    }
    check_table(table, &completion);
}

/* Mapped, staged and copied; of one row, of all, and of any number. */
static void test_rows_are_found(void)
{
    for (uint32_t sees_host = 0; sees_host < 2; sees_host++) {
        runtime_reset();
        runtime.sees_host = sees_host;
        pipeline_create();
        pipeline_step = 1000;
        for (uint32_t i = 0; i < 40; i++) {
            run_table(random_table(i == 0   ? 1
                                   : i == 1 ? WORK_ROWS
                                            : 1 + (uint32_t)random_below(WORK_ROWS)));
            runtime_forget();
        }
        cuda_pipeline_destroy(pipeline);
        pipeline = NULL;
    }
}

/* Tables and others of one op, as many as have a row left for them. */
static void test_rows_fill_a_launch(void)
{
    enum { N_TABLES = CUDA_TABLE / WORK_ROWS };
    struct device_work works[N_TABLES + 1];
    struct table *tables[N_TABLES];
    struct device_completion completions[N_TABLES + 1];

    pipeline_set_up();
    for (uint32_t i = 0; i < N_TABLES; i++) {
        const uint32_t n_rows = i == 0 ? WORK_ROWS - 1 : WORK_ROWS;

        tables[i] = make_table(
            pipeline_copy(PRIORITY_URGENT, n_rows + (uint32_t)random_below(200), 3), n_rows);
        works[i] = tables[i]->work;
    }
    works[N_TABLES] = pipeline_copy(PRIORITY_URGENT, 100, 3);
    pipeline_issue(works, N_TABLES + 1);
    runtime_run();
    CHECK_EQ(runtime_count(CALL_LAUNCH), 1);
    pipeline_check_launch(0, &op_copy, CUDA_TABLE, true);
    CHECK_EQ(pipeline_poll(completions, N_TABLES + 1), N_TABLES + 1);
    for (uint32_t i = 0; i < N_TABLES; i++) {
        check_table(tables[i], &completions[i]);
    }
    pipeline_check_good(&works[N_TABLES], &completions[N_TABLES]);

    runtime_forget();
    works[N_TABLES - 1] = make_table(pipeline_copy(PRIORITY_URGENT, WORK_ROWS, 3), WORK_ROWS)->work;
    works[0] = make_table(pipeline_copy(PRIORITY_URGENT, WORK_ROWS, 3), WORK_ROWS)->work;
    pipeline_issue(works, N_TABLES + 1);
    runtime_run();
    pipeline_check_launch(0, &op_copy, CUDA_TABLE, true);
    pipeline_check_launch(1, &op_copy, 1, true);
    CHECK_EQ(pipeline_poll(completions, N_TABLES + 1), N_TABLES + 1);
}

/* A launch's time goes to its works by their rows. */
static void test_time_by_rows(void)
{
    const uint32_t n_rows = 2 + (uint32_t)random_below(WORK_ROWS - 1);
    struct table *table = make_table(pipeline_copy(PRIORITY_URGENT, n_rows, 9), n_rows);
    struct device_work works[] = {table->work, pipeline_copy(PRIORITY_URGENT, 1, 9)};
    struct device_completion completions[2];

    pipeline_set_up();
    runtime.task_ns = 1000 * (n_rows + 1);
    pipeline_issue(works, 2);
    runtime_run();
    CHECK_EQ(pipeline_poll(completions, 2), 2);
    CHECK_EQ(completions[1].result.device_ns, 1000);
    CHECK_EQ(completions[0].result.device_ns, 1000 * n_rows);
}

CHECK_MAIN(CHECK_TEST(test_rows_are_found), CHECK_TEST(test_rows_fill_a_launch),
           CHECK_TEST(test_time_by_rows))
