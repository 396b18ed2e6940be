/*
 * Progress: sizes and times for people, and the bar on stderr.
 *
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_TEXT_SIZE 24
#define PROGRESS_LINE_SIZE 128

/* "17 B", "4.0 KiB", "1.2 GiB". */
const char *progress_size(uint64_t size, char ret_text[PROGRESS_TEXT_SIZE]);
/* "850 ns", "12.5 us", "3.0 ms", "4.2 s". */
const char *progress_time(uint64_t time_ns, char ret_text[PROGRESS_TEXT_SIZE]);

/* The bar's line after n_bytes of total (0: unknown) in elapsed_ns. */
void progress_format(uint64_t n_bytes, uint64_t total, uint64_t elapsed_ns,
                     char ret_line[PROGRESS_LINE_SIZE]);

struct progress {
    bool is_shown;
    uint64_t total;
    uint64_t start_ns;
    uint64_t drawn_ns;
};

/* total 0: unknown. */
void progress_init(struct progress *progress, bool is_shown, uint64_t total);
void progress_update(struct progress *progress, uint64_t n_bytes);
/* Clear the line, so that what follows on stderr stands alone. */
void progress_finish(struct progress *progress);
