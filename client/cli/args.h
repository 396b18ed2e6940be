/*
 * Args: the values that stand on a command line.
 *
 * Threads: pure functions, but for the messages on stderr (see cli.h).
 */
#pragma once

#include "proto/manifest.h"

#include <stdbool.h>
#include <stdint.h>

/* "4096", "64K", "4MiB", "1G": powers of 1024, at least 1.  False: no size. */
bool args_size(const char *text, uint64_t *ret_size);

/* "5ms", "1.5s", "250us", "10ns", "2m", "1h", more than 0; a unit is needed.  False: no duration.
 */
bool args_duration(const char *text, uint64_t *ret_ns);

/* The index of text in names, or n_names. */
uint32_t args_choice(const char *text, const char *const *names, uint32_t n_names);
/* The same for the value of an option ("--format"), with a message that has the names. */
int args_choose(const char *option, const char *text, const char *const *names, uint32_t n_names,
                uint32_t *ret_choice);

/*
 * "name=value" of -p.  Integers (decimal or 0x, or with a size's suffix) and floats are told by
 * their looks, unless the op has a choice of that name; the daemon judges the rest.
 */
int args_value(const char *text, const struct manifest_op *op, struct value *ret_value);

/*
 * Give each of the op's arrays its file: "NAME=FILE" where NAME is one of the arrays' names, else
 * the whole text is a file for the first array that still has none.  `option` ("-i") and `kind`
 * ("input") are for messages.  Arrays without a file keep what ret_paths held.
 */
int args_bind(const char *const *texts, uint32_t n_texts, const struct manifest_array *arrays,
              uint32_t n_arrays, const char *option, const char *kind, const char **ret_paths);
