/*
 * Base64: three bytes are four letters of six bits each.
 *
 * Threads: pure functions.
 */
#include "client/base64.h"

#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const uint8_t *bytes, size_t size, char *ret_text)
{
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (n > 2 ? bytes[i + 2] : 0);

        for (size_t k = 0; k < 4; k++) {
            *ret_text++ = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
        }
    }
}

/* The six bits of a letter, or 64. */
static uint32_t value_of(char letter)
{
    const char *at = letter == '\0' ? NULL : strchr(letters, letter);

    return at == NULL ? 64 : (uint32_t)(at - letters);
}

bool base64_decode(const char *text, size_t size, uint8_t *ret_bytes, size_t *ret_size)
{
    size_t n_padding = 0, n_bytes;

    if (size % 4 != 0) {
        return false;
    }
    while (n_padding < 2 && n_padding < size && text[size - 1 - n_padding] == '=') {
        n_padding++;
    }
    n_bytes = size / 4 * 3 - n_padding;
    for (size_t i = 0, at = 0; i < size; i += 4) {
        uint32_t bits = 0;

        for (size_t k = 0; k < 4; k++) {
            uint32_t value = i + k < size - n_padding ? value_of(text[i + k]) : 0;

            if (value == 64) {
                return false;
            }
            bits = bits << 6 | value;
        }
        for (size_t k = 0; k < 3; k++) {
            if (at < n_bytes) {
                ret_bytes[at++] = (uint8_t)(bits >> (16 - 8 * k));
            } else if ((bits >> (16 - 8 * k) & 0xff) != 0) {
                return false; /* bits that no byte has */
            }
        }
    }
    *ret_size = n_bytes;
    return true;
}
