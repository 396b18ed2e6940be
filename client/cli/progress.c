/*
 * Sizes and times for people, and the bar on stderr.
 *
 * Threads: one.
 */
#include "client/cli/progress.h"

#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH       24
#define REDRAW_AFTER_NS 100000000u

const char *progress_size(uint64_t size, char ret_text[PROGRESS_TEXT_SIZE])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double number = (double)size / 1024;
    size_t unit = 0;

    if (size < 1024) {
        snprintf(ret_text, PROGRESS_TEXT_SIZE, "%" PRIu64 " B", size);
        return ret_text;
    }
    /* 1023.95 would be printed as 1024.0. */
    while (number >= 1023.95 && unit + 1 < ARRAY_SIZE(units)) {
        number /= 1024;
        unit++;
    }
    snprintf(ret_text, PROGRESS_TEXT_SIZE, "%.1f %s", number, units[unit]);
    return ret_text;
}

const char *progress_time(uint64_t time_ns, char ret_text[PROGRESS_TEXT_SIZE])
{
    if (time_ns < 1000) {
        snprintf(ret_text, PROGRESS_TEXT_SIZE, "%" PRIu64 " ns", time_ns);
    } else if (time_ns < 1000000) {
        snprintf(ret_text, PROGRESS_TEXT_SIZE, "%.1f us", (double)time_ns / 1e3);
    } else if (time_ns < 1000000000) {
        snprintf(ret_text, PROGRESS_TEXT_SIZE, "%.1f ms", (double)time_ns / 1e6);
    } else {
        snprintf(ret_text, PROGRESS_TEXT_SIZE, "%.1f s", (double)time_ns / 1e9);
    }
    return ret_text;
}

static void format_known(uint64_t n_bytes, uint64_t total, double rate, char *line)
{
    char bar[BAR_WIDTH + 1], done_text[PROGRESS_TEXT_SIZE], total_text[PROGRESS_TEXT_SIZE];
    char rate_text[PROGRESS_TEXT_SIZE];
    double part = (double)n_bytes / (double)total;
    size_t n_filled = (size_t)(part * BAR_WIDTH);
    uint64_t left = rate > 0 ? (uint64_t)((double)(total - n_bytes) / rate) : 0;

    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', n_filled);
    bar[BAR_WIDTH] = '\0';
    snprintf(line, PROGRESS_LINE_SIZE,
             "[%s] %3d %%  %s of %s  %s/s  %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", bar,
             (int)(part * 100), progress_size(n_bytes, done_text), progress_size(total, total_text),
             progress_size((uint64_t)rate, rate_text), left / 3600, left / 60 % 60, left % 60);
}

void progress_format(uint64_t n_bytes, uint64_t total, uint64_t elapsed_ns,
                     char ret_line[PROGRESS_LINE_SIZE])
{
    double rate = elapsed_ns == 0 ? 0 : (double)n_bytes * 1e9 / (double)elapsed_ns;
    char done_text[PROGRESS_TEXT_SIZE], rate_text[PROGRESS_TEXT_SIZE];

    /* A file may grow while it is read: then its total says nothing. */
    if (total == 0 || n_bytes > total) {
        snprintf(ret_line, PROGRESS_LINE_SIZE, "%s  %s/s", progress_size(n_bytes, done_text),
                 progress_size((uint64_t)rate, rate_text));
        return;
    }
    format_known(n_bytes, total, rate, ret_line);
}

void progress_init(struct progress *progress, bool is_shown, uint64_t total)
{
    *progress = (struct progress){.is_shown = is_shown, .total = total, .start_ns = now_ns()};
}

void progress_update(struct progress *progress, uint64_t n_bytes)
{
    char line[PROGRESS_LINE_SIZE];
    uint64_t now = now_ns();

    if (!progress->is_shown ||
        now - MAX(progress->drawn_ns, progress->start_ns) < REDRAW_AFTER_NS) {
        return;
    }
    progress->drawn_ns = now;
    progress_format(n_bytes, progress->total, now - progress->start_ns, line);
    fprintf(stderr, "\r%s\033[K", line);
}

void progress_finish(struct progress *progress)
{
    if (progress->drawn_ns != 0) {
        fputs("\r\033[K", stderr);
        progress->drawn_ns = 0;
    }
}
