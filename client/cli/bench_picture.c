/*
 * What a benchmark found, as a picture: of a sweep the rate and the latency over what was swept,
 * else the latency over its percentiles, which are spread so that each further nine takes the same
 * room.
 *
 * Threads: one.
 */
#include "client/cli/bench_report.h"
#include "client/cli/progress.h"
#include "client/cli/svg.h"
#include "proto/util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Five points on the way to each half of what is left, to the last of 2^64 values. */
#define CURVE_POINTS_MOST 330u

/* A chart and all that it points to. */
struct picture {
    struct svg_chart chart;
    char title[128], subtitle[128], label[32];
    double at[CURVE_POINTS_MOST], first[CURVE_POINTS_MOST], second[CURVE_POINTS_MOST];
    struct svg_tick ticks[16];
};

/* The unit in which this much is a number for people. */
static double time_unit(uint64_t time_ns, const char **ret_name)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    size_t unit = 0;

    while (unit + 1 < ARRAY_SIZE(units) && (double)time_ns >= 1000 * units[unit].ns) {
        unit++;
    }
    *ret_name = units[unit].name;
    return units[unit].ns;
}

static void set_texts(const struct bench_report *report, struct picture *picture)
{
    const struct load_plan *plan = &report->args->plan;
    char size[PROGRESS_TEXT_SIZE];
    char *subtitle = picture->subtitle;
    size_t room = sizeof(picture->subtitle);

    snprintf(picture->title, sizeof(picture->title), "%s of %s, %s, by %s",
             bench_names[report->args->kind], plan->op.name, report->last->path,
             report->last->device);
    if (report->args->kind == BENCH_CHUNKS) {
        snprintf(subtitle, room, "%u pushes in flight", plan->window);
    } else if (report->args->kind == BENCH_STREAMS) {
        snprintf(subtitle, room, "pushes of %s", progress_size(plan->size, size));
    } else if (plan->rate > 0) {
        snprintf(subtitle, room, "pushes of %s, %.10g a second (%s)",
                 progress_size(plan->size, size), plan->rate, arrivals_names[plan->kind]);
    } else {
        snprintf(subtitle, room, "pushes of %s, %u in flight", progress_size(plan->size, size),
                 plan->window);
    }
    picture->chart.title = picture->title;
    picture->chart.subtitle = subtitle;
}

static void add_tick(struct picture *picture, double at, const char *text)
{
    struct svg_tick *tick = &picture->ticks[picture->chart.n_ticks];

    if (picture->chart.n_ticks < ARRAY_SIZE(picture->ticks)) {
        tick->at = at;
        snprintf(tick->text, sizeof(tick->text), "%s", text);
        picture->chart.n_ticks++;
    }
}

static void draw_sweep(const struct bench_report *report, struct picture *picture)
{
    bool is_chunks = report->args->kind == BENCH_CHUNKS;
    uint64_t most_ns = 0;
    const char *unit_name;
    double unit;

    for (uint32_t i = 0; i < report->n_points; i++) {
        most_ns = MAX(most_ns, report->points[i].latency.p99);
    }
    unit = time_unit(most_ns, &unit_name);
    for (uint32_t i = 0; i < report->n_points; i++) {
        const struct bench_point *point = &report->points[i];
        char text[PROGRESS_TEXT_SIZE];

        picture->at[i] = i;
        picture->first[i] =
            (double)(point->in_size + point->out_size) / (double)MAX(point->timed_ns, 1u);
        picture->second[i] = (double)point->latency.p99 / unit;
        snprintf(text, sizeof(text), "%u", point->window);
        add_tick(picture, i, is_chunks ? progress_size(point->size, text) : text);
    }
    snprintf(picture->label, sizeof(picture->label), "latency p99, %s", unit_name);
    picture->chart.x_label =
        is_chunks ? "bytes of each array of a push" : "pushes in flight at once";
    picture->chart.n_points = report->n_points;
    picture->chart.n_panels = 2;
    picture->chart.panels[0] = (struct svg_panel){"GB/s, in and out together", picture->first};
    picture->chart.panels[1] = (struct svg_panel){picture->label, picture->second};
}

static void draw_curve(const struct bench_report *report, struct picture *picture)
{
    static const struct svg_tick nines[] = {{0, "0"},        {0.30103, "50 %"}, {1, "90 %"},
                                            {2, "99 %"},     {3, "99.9 %"},     {4, "99.99 %"},
                                            {5, "99.999 %"}, {6, "99.9999 %"}};
    const struct histogram *latency = &report->last->latency;
    const char *unit_name;
    double unit = time_unit(latency->greatest, &unit_name), part = 0;
    uint64_t value = 0;
    uint32_t n = 0;

    while (n < CURVE_POINTS_MOST && histogram_count_to(latency, value) < latency->n) {
        value = histogram_value_at(latency, part);
        picture->at[n] = -log10(1 - part);
        picture->first[n++] = (double)value / unit;
        part = histogram_next_part(part);
    }
    for (size_t i = 0; i < ARRAY_SIZE(nines) && n > 0 && nines[i].at <= picture->at[n - 1]; i++) {
        add_tick(picture, nines[i].at, nines[i].text);
    }
    snprintf(picture->label, sizeof(picture->label), "latency, %s", unit_name);
    picture->chart.x_label = "percentile";
    picture->chart.n_points = n;
    picture->chart.n_panels = 1;
    picture->chart.panels[0] = (struct svg_panel){picture->label, picture->first};
}

int bench_report_draw(const struct bench_report *report, struct output *output)
{
    _cleanup_(free_pointer) struct picture *picture = calloc(1, sizeof(*picture));
    _cleanup_(free_pointer) char *text = NULL;
    bool is_sweep = report->args->kind == BENCH_CHUNKS || report->args->kind == BENCH_STREAMS;

    if (picture != NULL) {
        picture->chart.at = picture->at;
        picture->chart.ticks = picture->ticks;
        set_texts(report, picture);
        (is_sweep ? draw_sweep : draw_curve)(report, picture);
        text = svg_draw(&picture->chart);
    }
    if (text == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    return output_write(output, text, strlen(text));
}
