/*
 * Svg: curves over a common axis, as a picture that shows in light and dark.
 *
 * Panels stand one below the other, each with an axis of its own that begins at 0.  Where there are
 * few points, each is marked with its value.  Texts may be any: what XML has a meaning for is
 * written so that it has none, and of other than printable ASCII nothing is.
 *
 * Threads: pure functions.
 */
#pragma once

#include <stdint.h>

#define SVG_PANELS_MAX 2
#define SVG_TICK_SIZE  24

struct svg_tick {
    double at;
    char text[SVG_TICK_SIZE];
};

struct svg_panel {
    const char *label;    /* what is shown, with its unit */
    const double *values; /* of each point: finite, 0 or more */
};

struct svg_chart {
    const char *title, *subtitle;
    const char *x_label;
    uint32_t n_points;
    const double *at; /* places of the points on the x axis, going up */
    uint32_t n_ticks;
    const struct svg_tick *ticks; /* of the x axis, by the same places */
    uint32_t n_panels;
    struct svg_panel panels[SVG_PANELS_MAX];
};

/* The picture's text, for the caller to free(); NULL: out of memory. */
char *svg_draw(const struct svg_chart *chart);
