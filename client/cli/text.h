/*
 * Text: records as lines, for --format hex and text.
 *
 * In hex, and in text where it has bytes (u8 with dimensions: a digest), a record is one word of
 * hexadecimal; in text any other record is its numbers, separated by spaces.  Floats have the
 * digits that bring back the same bits (%.9g and %.17g); a complex number is written as re+imi.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/format.h"
#include "client/cli/output.h"
#include "proto/manifest.h"

#include <stddef.h>
#include <stdint.h>

#define TEXT_ELEMENT_MAX 64 /* bytes of one element as text, at most */

/* The element at bytes, unterminated; returns its length. */
size_t text_element(enum dtype dtype, bool is_hex, const uint8_t *bytes,
                    char ret_text[TEXT_ELEMENT_MAX]);

/* Write size bytes, whole records of record_size each, as lines of FORMAT_HEX or FORMAT_TEXT. */
int text_write(struct output *output, const struct manifest_array *array, enum format format,
               uint32_t record_size, const uint8_t *bytes, uint64_t size);
