/* Svg: pictures are well-formed whatever their texts are, and points are where they belong. */
#include "client/cli/svg.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#include <math.h>

#define PARSER "/usr/bin/python3"

static char *draw(const struct svg_chart *chart)
{
    char *text = svg_draw(chart);

    CHECK(text != NULL);
    check_at_end(free, text);
    return text;
}

/* By a parser that is not ours. */
static void check_well_formed(const char *text)
{
    FILE *parser;

    if (access(PARSER, X_OK) < 0) {
        CHECK_SKIP("%s is not there to parse XML", PARSER);
    }
    parser = popen(PARSER " -c 'import sys, xml.dom.minidom as m; m.parse(sys.stdin.buffer)'", "w");
    CHECK(parser != NULL);
    fputs(text, parser);
    CHECK_EQ(pclose(parser), 0);
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;

    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}

static void test_texts_cannot_break_it(void)
{
    static const double at[] = {0, 1}, values[] = {1, 2};
    struct svg_tick tick = {0, "<tick> & \"'"};
    const struct svg_chart chart = {
        .title = "</title><script>&amp;]]>",
        .subtitle = "bell \a, escape \033[31m, half a letter \303",
        .x_label = "<!-- x",
        .n_points = 2,
        .at = at,
        .n_ticks = 1,
        .ticks = &tick,
        .n_panels = 1,
        .panels = {{"a < b & c > d", values}},
    };
    const char *text = draw(&chart);

    check_well_formed(text);
    CHECK_EQ(count(text, "<script"), 0);
    CHECK_HAS(text, "a &lt; b &amp; c &gt; d");
    CHECK_HAS(text, "bell , escape [31m, half a letter <");
}

/* The points of a panel's curve, as the picture has them. */
static void read_curve(const char *text, uint32_t panel, uint32_t n, double *ret_x, double *ret_y)
{
    for (uint32_t i = 0; i <= panel; i++) {
        text = strstr(text, "<polyline");
        CHECK(text != NULL);
        text++;
    }
    text = strstr(text, "points=\"") + strlen("points=\"");
    for (uint32_t i = 0; i < n; i++) {
        int used = 0;

        CHECK_EQ(sscanf(text, "%lf,%lf%n", &ret_x[i], &ret_y[i], &used), 2);
        text += used + 1;
    }
    CHECK_EQ(text[-1], '"');
}

static double largest(const double *values, uint32_t n)
{
    double most = 0;

    for (uint32_t i = 0; i < n; i++) {
        most = MAX(most, values[i]);
    }
    return most;
}

/* Equal steps in, equal steps out; a value's height is in proportion to it. */
static void check_proportions(const double *x, const double *y, const double *values, uint32_t n)
{
    uint32_t top = 0;
    double base, greatest = largest(values, n);

    while (values[top] < greatest) {
        top++;
    }
    /* values[0] is 0 */
    base = y[0];
    for (uint32_t i = 0; i < n; i++) {
        CHECK(fabs(x[i] - x[0] - (x[n - 1] - x[0]) * i / (n - 1)) < 0.2);
        CHECK(fabs(base - y[i] - (base - y[top]) * values[i] / greatest) < 0.2);
    }
    CHECK(base - y[top] > 80); /* at least two fifths of a panel */
    CHECK(x[0] > 0 && x[n - 1] < 720);
}

static void test_points_are_where_they_belong(void)
{
    double at[9], values[2][9] = {{0}}, x[9], y[9];
    struct svg_tick ticks[9];
    struct svg_chart chart = {.title = "t",
                              .subtitle = "s",
                              .x_label = "x",
                              .n_points = 9,
                              .at = at,
                              .n_ticks = 9,
                              .ticks = ticks,
                              .n_panels = 2,
                              .panels = {{"first", values[0]}, {"second", values[1]}}};
    const char *text;

    for (uint32_t i = 0; i < 9; i++) {
        at[i] = 3 + i * 0.5;
        ticks[i] = (struct svg_tick){.at = at[i]};
        snprintf(ticks[i].text, sizeof(ticks[i].text), "tick%u", i);
        values[0][i] = i == 0 ? 0 : (double)random_below(1000000) / 1e9 + 1e-9;
        values[1][i] = i == 0 ? 0 : (double)random_u64() + 1;
    }
    text = draw(&chart);
    check_well_formed(text);
    for (uint32_t panel = 0; panel < 2; panel++) {
        read_curve(text, panel, 9, x, y);
        check_proportions(x, y, values[panel], 9);
    }
    CHECK_EQ(count(text, "<circle"), 18);
    CHECK_EQ(count(text, ">tick"), 9);
    CHECK_HAS(text, "prefers-color-scheme: dark");
    CHECK_EQ(count(text, "font"), count(text, "sans-serif") + 1); /* and the title's size */
}

static void test_few_points_or_none(void)
{
    static const double one = 5, zero;
    struct svg_chart chart = {.title = "t",
                              .subtitle = "s",
                              .x_label = "x",
                              .at = &one,
                              .n_panels = 1,
                              .panels = {{"nothing", &zero}}};
    const char *text = draw(&chart);

    check_well_formed(text);
    CHECK_EQ(count(text, "nan") + count(text, "inf"), 0);
    chart.n_points = 1;
    text = draw(&chart);
    check_well_formed(text);
    CHECK_EQ(count(text, "nan") + count(text, "inf"), 0);
    CHECK_EQ(count(text, "<circle"), 1);
}

CHECK_MAIN(CHECK_TEST(test_texts_cannot_break_it), CHECK_TEST(test_points_are_where_they_belong),
           CHECK_TEST(test_few_points_or_none))
