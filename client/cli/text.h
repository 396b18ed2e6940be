/*
 * Text: records as lines, for --format text.
 *
 * A record of bytes (u8 with dimensions: a digest) is one word of hexadecimal; any other record is
 * its numbers, separated by spaces.  Floats have the digits that bring back the same bits (%.9g and
 * %.17g); a complex number is written as re+imi.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/output.h"
#include "proto/manifest.h"

#include <stddef.h>
#include <stdint.h>

#define TEXT_ELEMENT_MAX 64 /* bytes of one element as text, at most */

/* The element at bytes, unterminated; returns its length. */
size_t text_element(enum dtype dtype, bool is_hex, const uint8_t *bytes,
                    char ret_text[TEXT_ELEMENT_MAX]);

/* Write size bytes, whole records of record_size each, as lines. */
int text_write(struct output *output, const struct manifest_array *array, uint32_t record_size,
               const uint8_t *bytes, uint64_t size);
