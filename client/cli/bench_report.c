/*
 * What a benchmark found, on stdout.
 *
 * Threads: one.
 */
#include "client/cli/bench_report.h"

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- figures ------------------------------------------------------------------------------- */

static struct bench_spread spread_of(const struct histogram *histogram)
{
    return (struct bench_spread){
        .least = histogram->n == 0 ? 0 : histogram->least,
        .p50 = histogram_value_at(histogram, 0.5),
        .p90 = histogram_value_at(histogram, 0.9),
        .p99 = histogram_value_at(histogram, 0.99),
        .p999 = histogram_value_at(histogram, 0.999),
        .p9999 = histogram_value_at(histogram, 0.9999),
        .greatest = histogram->greatest,
        .mean = histogram_mean(histogram),
    };
}

void bench_report_add(struct bench_report *report, uint64_t size)
{
    const struct load_result *last = report->last;

    if (last->latency.n == 0 || report->n_points == BENCH_POINTS_MOST) {
        return;
    }
    report->points[report->n_points++] = (struct bench_point){
        .size = size,
        .window = last->window,
        .is_behind = last->is_behind,
        .n_pushes = last->latency.n,
        .in_size = last->in_size,
        .out_size = last->out_size,
        .timed_ns = last->timed_ns,
        .latency = spread_of(&last->latency),
        .delay = spread_of(&last->delay),
    };
}

/* A second; bytes become GB/s. */
static double rate(const struct bench_point *point, uint64_t n)
{
    return point->timed_ns == 0 ? 0 : (double)n * 1e9 / (double)point->timed_ns;
}

/* About: arrivals that were due and not sent. */
static uint64_t n_unsent(const struct bench_report *report, const struct bench_point *point)
{
    const struct load_plan *plan = &report->args->plan;
    double n_due = plan->rate * (double)plan->duration_ns / 1e9;

    return point->is_behind && n_due > (double)point->n_pushes ? (uint64_t)n_due - point->n_pushes
                                                               : 0;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_head(const struct bench_report *report)
{
    const struct load_plan *plan = &report->args->plan;
    const struct gpupipe_value *value = &plan->op.value;
    char size[PROGRESS_TEXT_SIZE];

    fputs(plan->op.name, stdout);
    if (value->name != NULL) {
        printf(" %s=%.10g", value->name, value->kind == GPUPIPE_INT ? (double)value->i : value->f);
    }
    printf(", %s, by %s", report->last->path, report->last->device);
    if (plan->size > 0) {
        printf(", pushes of %s", progress_size(plan->size, size));
    }
    if (plan->rate > 0) {
        printf(", %.10g a second (%s), at most %u in flight", plan->rate,
               arrivals_names[plan->kind], report->last->window);
    } else if (plan->window > 0) {
        printf(", %u in flight", plan->window);
    }
    puts("; every byte was checked");
}

static void add_row(struct libscols_table *table, const struct bench_point *point)
{
    char size[PROGRESS_TEXT_SIZE], window[16], pushes[24], per_second[24], in[24], out[24];
    char times[6][PROGRESS_TEXT_SIZE];
    const struct bench_spread *latency = &point->latency;
    const char *const texts[] = {
        progress_size(point->size, size),
        window,
        pushes,
        per_second,
        in,
        out,
        progress_time(latency->p50, times[0]),
        progress_time(latency->p90, times[1]),
        progress_time(latency->p99, times[2]),
        progress_time(latency->p999, times[3]),
        progress_time(latency->p9999, times[4]),
        progress_time(latency->greatest, times[5]),
    };

    snprintf(window, sizeof(window), "%u", point->window);
    snprintf(pushes, sizeof(pushes), "%" PRIu64, point->n_pushes);
    snprintf(per_second, sizeof(per_second), "%.*f", rate(point, point->n_pushes) < 100 ? 1 : 0,
             rate(point, point->n_pushes));
    snprintf(in, sizeof(in), "%.3f", rate(point, point->in_size) / 1e9);
    snprintf(out, sizeof(out), "%.3f", rate(point, point->out_size) / 1e9);
    table_add(table, texts, ARRAY_SIZE(texts));
}

static void print_delay(const struct bench_point *point)
{
    char p50[PROGRESS_TEXT_SIZE], p99[PROGRESS_TEXT_SIZE], greatest[PROGRESS_TEXT_SIZE];

    printf("of that, sent late by: p50 %s, p99 %s, max %s\n", progress_time(point->delay.p50, p50),
           progress_time(point->delay.p99, p99), progress_time(point->delay.greatest, greatest));
}

static int print_text(const struct bench_report *report)
{
    static const struct table_column columns[] = {
        {"PUSH", .is_number = true},    {"IN FLIGHT", .is_number = true},
        {"PUSHES", .is_number = true},  {"PUSHES/S", .is_number = true},
        {"GB/S IN", .is_number = true}, {"GB/S OUT", .is_number = true},
        {"P50", .is_number = true},     {"P90", .is_number = true},
        {"P99", .is_number = true},     {"P99.9", .is_number = true},
        {"P99.99", .is_number = true},  {"MAX", .is_number = true},
    };
    struct libscols_table *table;
    int rc;

    if (report->n_points == 0) {
        return CLI_OK;
    }
    table = table_create(columns, ARRAY_SIZE(columns));
    print_head(report);
    for (uint32_t i = 0; i < report->n_points; i++) {
        add_row(table, &report->points[i]);
    }
    rc = table_print(table);
    if (rc == CLI_OK && report->args->plan.rate > 0) {
        print_delay(&report->points[0]);
        rc = cli_flush();
    }
    return rc;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *spread_to_json(const struct bench_spread *spread)
{
    return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "min", (json_int_t)spread->least,
                     "mean", spread->mean, "p50", (json_int_t)spread->p50, "p90",
                     (json_int_t)spread->p90, "p99", (json_int_t)spread->p99, "p99.9",
                     (json_int_t)spread->p999, "p99.99", (json_int_t)spread->p9999, "max",
                     (json_int_t)spread->greatest);
}

static json_t *point_to_json(const struct bench_report *report, const struct bench_point *point)
{
    bool is_open_loop = report->args->plan.rate > 0;
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "size", (json_int_t)point->size,
        "in_flight", (json_int_t)point->window, "pushes", (json_int_t)point->n_pushes, "bytes_in",
        (json_int_t)point->in_size, "bytes_out", (json_int_t)point->out_size, "timed_ns",
        (json_int_t)point->timed_ns, "pushes_per_second", rate(point, point->n_pushes),
        "gb_per_second_in", rate(point, point->in_size) / 1e9, "gb_per_second_out",
        rate(point, point->out_size) / 1e9, "latency_ns", spread_to_json(&point->latency));

    if (json != NULL && is_open_loop) {
        json_object_set_new(json, "sent_late_ns", spread_to_json(&point->delay));
        json_object_set_new(json, "unsent", json_integer((json_int_t)n_unsent(report, point)));
    }
    return json;
}

static void add_settings(const struct bench_report *report, json_t *json)
{
    const struct load_plan *plan = &report->args->plan;
    const struct gpupipe_value *value = &plan->op.value;

    if (value->name != NULL) {
        json_object_set_new(json, value->name,
                            value->kind == GPUPIPE_INT ? json_integer(value->i)
                                                       : json_real(value->f));
    }
    if (plan->rate > 0) {
        json_object_set_new(json, "rate", json_real(plan->rate));
        json_object_set_new(json, "distribution", json_string(arrivals_names[plan->kind]));
    }
}

static int print_json(const struct bench_report *report)
{
    const struct load_plan *plan = &report->args->plan;
    const struct load_result *last = report->last;
    json_t *settings = json_pack(
        "{s:s, s:s, s:I, s:I}", "op", plan->op.name, "priority", bench_priorities[plan->priority],
        "duration_ns", (json_int_t)plan->duration_ns, "warmup_ns", (json_int_t)plan->warmup_ns);
    json_t *points = json_array();

    add_settings(report, settings);
    for (uint32_t i = 0; i < report->n_points; i++) {
        json_array_append_new(points, point_to_json(report, &report->points[i]));
    }
    return cli_print_json(json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:b, s:o}", "benchmark", bench_names[report->args->kind],
        "settings", settings, "backend", last->backend, "device", last->device, "path", last->path,
        "interrupted", (int)report->is_interrupted, "results", points));
}

/* ---- the percentile log -------------------------------------------------------------------- */

/* As HdrHistogram writes it, and as what reads that expects it; in microseconds. */
static int print_hgrm(const struct bench_report *report)
{
    const struct histogram *latency = &report->last->latency;
    double part = 0;
    uint64_t value = histogram_value_at(latency, part);

    printf("%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    while (histogram_count_to(latency, value) < latency->n) {
        printf("%12.3f %2.12f %10" PRIu64 " %14.2f\n", (double)value / 1e3, part,
               histogram_count_to(latency, value), 1 / (1 - part));
        part = histogram_next_part(part);
        value = histogram_value_at(latency, part);
    }
    if (latency->n > 0) {
        printf("%12.3f %2.12f %10" PRIu64 " %14s\n", (double)latency->greatest / 1e3, 1.0,
               latency->n, "inf");
    }
    printf("#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", histogram_mean(latency) / 1e3,
           histogram_deviation(latency) / 1e3);
    printf("#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n", (double)latency->greatest / 1e3,
           latency->n);
    printf("#[Buckets = %12u, SubBuckets     = %12u]\n", HISTOGRAM_VALUE_BITS - HISTOGRAM_SUB_BITS,
           2u << HISTOGRAM_SUB_BITS);
    return cli_flush();
}

/* ---- all of it ----------------------------------------------------------------------------- */

int bench_report_print(const struct bench_report *report)
{
    static int (*const prints[BENCH_FORMAT_COUNT])(const struct bench_report *report) = {
        [BENCH_TEXT] = print_text,
        [BENCH_JSON] = print_json,
        [BENCH_HGRM] = print_hgrm,
    };
    const struct bench_point *point = &report->points[0];

    if (report->n_points == 0) {
        cli_error("interrupted before anything was measured");
    }
    if (report->n_points > 0 && point->is_behind) {
        cli_error("%.10g pushes a second are more than could be done: given up after twice the "
                  "duration, with about %" PRIu64 " not sent",
                  report->args->plan.rate, n_unsent(report, point));
    }
    return prints[report->args->format](report);
}
