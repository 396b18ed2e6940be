/*
 * Format: how records stand in files.
 *
 * Threads: pure functions.
 */
#pragma once

#include "client/cli/npy.h"
#include "proto/manifest.h"

#include <stdbool.h>
#include <stdint.h>

enum format {
    FORMAT_RAW,
    FORMAT_NPY,
    FORMAT_HEX,  /* outputs only: each record is a line */
    FORMAT_TEXT, /* likewise */
    FORMAT_COUNT
};

extern const char *const format_names[FORMAT_COUNT]; /* "raw", ... */

/* A file's format: the one that was asked for (FORMAT_COUNT: none) if the file can have it, else
 * what its name says. */
enum format format_of(enum format asked, const char *path, bool is_output);
/* May it be shown on a terminal? */
bool format_is_text(enum format format);

/*
 * One record of an array under these values of the op's parameters; of the varying input, one
 * element.  NULL, or the parameter that lacks a value for it.
 */
const char *format_find_record(const struct manifest_op *op, const struct manifest_array *array,
                               const struct value *values, uint32_t n_values,
                               struct npy *ret_record);
/* The same; what lacks is reported, and fails with the exit code (see cli.h). */
int format_record(const struct manifest_op *op, const struct manifest_array *array,
                  const struct value *values, uint32_t n_values, struct npy *ret_record);
