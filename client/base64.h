/*
 * Base64 (RFC 4648, with padding): bytes within JSON.
 *
 * Threads: pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters of this many bytes, without a NUL. */
#define BASE64_SIZE(n_bytes) (((n_bytes) + 2) / 3 * 4)

void base64_encode(const uint8_t *bytes, size_t size, char *ret_text);
/* ret_bytes has room for size / 4 * 3.  False: it is not what base64_encode() writes. */
bool base64_decode(const char *text, size_t size, uint8_t *ret_bytes, size_t *ret_size);
