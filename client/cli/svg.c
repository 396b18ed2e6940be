/*
 * Curves as a picture.
 *
 * Threads: pure functions.
 */
#include "client/cli/svg.h"

#include "proto/util.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

/* In the picture's units, which are about pixels. */
#define WIDTH        720.0
#define LEFT         80.0
#define RIGHT        24.0
#define INSET        24.0 /* of the first and the last point: their texts have room there */
#define HEAD         64.0
#define PANEL        200.0
#define PANEL_GAP    44.0
#define FOOT         56.0
#define MARKED_MOST  20u /* points whose values have room beside each other */
#define STEPS_WANTED 5

static const char style[] =
    "<style>\n"
    "  text { font: 12px sans-serif; fill: #333 }\n"
    "  .title { font-size: 16px }\n"
    "  .ground { fill: #fff }\n"
    "  .grid { stroke: #ddd }\n"
    "  .axis { stroke: #777 }\n"
    "  .curve { fill: none; stroke-width: 2 }\n"
    "  .p0 .curve { stroke: #0b62a8 } .p0 .point { fill: #0b62a8 }\n"
    "  .p1 .curve { stroke: #b34700 } .p1 .point { fill: #b34700 }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    text { fill: #ddd } .ground { fill: #181818 } .grid { stroke: #3a3a3a }\n"
    "    .axis { stroke: #999 }\n"
    "    .p0 .curve { stroke: #6db5f2 } .p0 .point { fill: #6db5f2 }\n"
    "    .p1 .curve { stroke: #f2a35e } .p1 .point { fill: #f2a35e }\n"
    "  }\n"
    "</style>\n";

/* ---- text ---------------------------------------------------------------------------------- */

static void put_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        default:
            if (*text >= ' ' && *text <= '~') {
                fputc(*text, file);
            }
        }
    }
}

/* `rest` are further attributes. */
static void put_text(FILE *file, double x, double y, const char *rest, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, rest);
    put_escaped(file, text);
    fputs("</text>\n", file);
}

static void put_line(FILE *file, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(file, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
            x1, y1, x2, y2);
}

/* ---- places -------------------------------------------------------------------------------- */

struct scale {
    double from, to;  /* values */
    double low, high; /* where they are in the picture */
};

static double place(const struct scale *scale, double value)
{
    double range = scale->to - scale->from;

    /* A single point has its place in the middle. */
    return range <= 0 ? (scale->low + scale->high) / 2
                      : scale->low + (value - scale->from) / range * (scale->high - scale->low);
}

static struct scale x_scale(const struct svg_chart *chart)
{
    uint32_t last = chart->n_points == 0 ? 0 : chart->n_points - 1;

    return (struct scale){
        .from = chart->n_points == 0 ? 0 : chart->at[0],
        .to = chart->n_points == 0 ? 0 : chart->at[last],
        .low = LEFT + INSET,
        .high = WIDTH - RIGHT - INSET,
    };
}

/* 1, 2 or 5 times a power of ten, so that there are about STEPS_WANTED of them. */
static double nice_step(double greatest)
{
    double least = greatest / STEPS_WANTED;
    double power = pow(10, floor(log10(least)));

    if (least <= power) {
        return power;
    }
    return least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

static double greatest_of(const struct svg_panel *panel, uint32_t n_points)
{
    double greatest = 0;

    for (uint32_t i = 0; i < n_points; i++) {
        greatest = MAX(greatest, panel->values[i]);
    }
    return greatest > 0 ? greatest : 1;
}

/* ---- a panel ------------------------------------------------------------------------------- */

static void put_grid(FILE *file, const struct scale *y, double step)
{
    char text[SVG_TICK_SIZE];

    for (uint32_t i = 0; i * step <= y->to * (1 + 1e-9); i++) {
        double at = place(y, i * step);

        put_line(file, i == 0 ? "axis" : "grid", LEFT, at, WIDTH - RIGHT, at);
        snprintf(text, sizeof(text), "%.6g", i * step);
        put_text(file, LEFT - 8, at + 4, "text-anchor=\"end\"", text);
    }
}

static void put_curve(FILE *file, const struct svg_chart *chart, const struct svg_panel *panel,
                      const struct scale *x, const struct scale *y)
{
    fputs("<polyline class=\"curve\" points=\"", file);
    for (uint32_t i = 0; i < chart->n_points; i++) {
        fprintf(file, "%s%.1f,%.1f", i == 0 ? "" : " ", place(x, chart->at[i]),
                place(y, panel->values[i]));
    }
    fputs("\"/>\n", file);
}

static void put_marks(FILE *file, const struct svg_chart *chart, const struct svg_panel *panel,
                      const struct scale *x, const struct scale *y)
{
    char text[SVG_TICK_SIZE];

    for (uint32_t i = 0; i < chart->n_points && chart->n_points <= MARKED_MOST; i++) {
        double at_x = place(x, chart->at[i]), at_y = place(y, panel->values[i]);

        fprintf(file, "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", at_x, at_y);
        snprintf(text, sizeof(text), "%.3g", panel->values[i]);
        put_text(file, at_x, at_y - 9, "text-anchor=\"middle\"", text);
    }
}

static void put_panel(FILE *file, const struct svg_chart *chart, uint32_t index)
{
    const struct svg_panel *panel = &chart->panels[index];
    double greatest = greatest_of(panel, chart->n_points), step = nice_step(greatest);
    double top = HEAD + PANEL_GAP / 2 + index * (PANEL + PANEL_GAP);
    const struct scale x = x_scale(chart);
    const struct scale y = {.to = step * ceil(greatest / step), .low = top + PANEL, .high = top};

    fprintf(file, "<g class=\"p%u\">\n", index);
    put_grid(file, &y, step);
    put_text(file, LEFT, top - 10, "", panel->label);
    put_curve(file, chart, panel, &x, &y);
    put_marks(file, chart, panel, &x, &y);
    fputs("</g>\n", file);
}

static void put_x_axis(FILE *file, const struct svg_chart *chart, double height)
{
    const struct scale x = x_scale(chart);

    for (uint32_t i = 0; i < chart->n_ticks; i++) {
        double at = place(&x, chart->ticks[i].at);

        put_line(file, "axis", at, height - FOOT, at, height - FOOT + 5);
        put_text(file, at, height - FOOT + 20, "text-anchor=\"middle\"", chart->ticks[i].text);
    }
    put_text(file, (LEFT + WIDTH - RIGHT) / 2, height - 14, "text-anchor=\"middle\"",
             chart->x_label);
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void put_chart(FILE *file, const struct svg_chart *chart)
{
    double height = HEAD + PANEL_GAP / 2 + chart->n_panels * (PANEL + PANEL_GAP) - PANEL_GAP + FOOT;

    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\">\n<title>",
            WIDTH, height, WIDTH, height);
    put_escaped(file, chart->title);
    fprintf(file, "</title>\n%s<rect class=\"ground\" width=\"%.0f\" height=\"%.0f\"/>\n", style,
            WIDTH, height);
    put_text(file, LEFT, 28, "class=\"title\"", chart->title);
    put_text(file, LEFT, 48, "", chart->subtitle);
    for (uint32_t i = 0; i < chart->n_panels; i++) {
        put_panel(file, chart, i);
    }
    put_x_axis(file, chart, height);
    fputs("</svg>\n", file);
}

char *svg_draw(const struct svg_chart *chart)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    bool is_whole;

    if (file == NULL) {
        return NULL;
    }
    put_chart(file, chart);
    is_whole = !ferror(file);
    if (fclose(file) == EOF || !is_whole) {
        free(text);
        return NULL;
    }
    return text;
}
