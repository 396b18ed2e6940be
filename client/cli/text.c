/*
 * Records as lines.
 *
 * Threads: one.
 */
#include "client/cli/text.h"

#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Text goes out in pieces of about this size. */
#define PIECE_SIZE 32768u

/* Values of the wire are little-endian and need not be aligned. */
#define LOAD(type, bytes)                                                                          \
    ({                                                                                             \
        type value_;                                                                               \
        memcpy(&value_, (bytes), sizeof(value_));                                                  \
        value_;                                                                                    \
    })

static int print_element(enum dtype dtype, const uint8_t *bytes, char *text)
{
    switch (dtype) {
    case DTYPE_U8:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRIu8, LOAD(uint8_t, bytes));
    case DTYPE_I8:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRId8, LOAD(int8_t, bytes));
    case DTYPE_U16:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRIu16, LOAD(uint16_t, bytes));
    case DTYPE_I16:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRId16, LOAD(int16_t, bytes));
    case DTYPE_U32:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRIu32, LOAD(uint32_t, bytes));
    case DTYPE_I32:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRId32, LOAD(int32_t, bytes));
    case DTYPE_U64:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRIu64, LOAD(uint64_t, bytes));
    case DTYPE_I64:
        return snprintf(text, TEXT_ELEMENT_MAX, "%" PRId64, LOAD(int64_t, bytes));
    case DTYPE_F32:
        return snprintf(text, TEXT_ELEMENT_MAX, "%.9g", (double)LOAD(float, bytes));
    case DTYPE_F64:
        return snprintf(text, TEXT_ELEMENT_MAX, "%.17g", LOAD(double, bytes));
    case DTYPE_C64:
        return snprintf(text, TEXT_ELEMENT_MAX, "%.9g%+.9gi", (double)LOAD(float, bytes),
                        (double)LOAD(float, bytes + sizeof(float)));
    default:
        return 0;
    }
}

size_t text_element(enum dtype dtype, bool is_hex, const uint8_t *bytes,
                    char ret_text[TEXT_ELEMENT_MAX])
{
    static const char digits[] = "0123456789abcdef";

    if (is_hex) {
        ret_text[0] = digits[*bytes >> 4];
        ret_text[1] = digits[*bytes & 15];
        return 2;
    }
    return (size_t)print_element(dtype, bytes, ret_text);
}

int text_write(struct output *output, const struct manifest_array *array, enum format format,
               uint32_t record_size, const uint8_t *bytes, uint64_t size)
{
    bool is_hex = format == FORMAT_HEX || (array->dtype == DTYPE_U8 && array->n_dims > 0);
    uint32_t element_size = is_hex ? 1 : dtype_size(array->dtype);
    char piece[PIECE_SIZE + TEXT_ELEMENT_MAX + 1];
    size_t n_piece = 0;
    int rc = CLI_OK;

    for (uint64_t offset = 0; offset < size && rc == CLI_OK; offset += element_size) {
        bool is_last = (offset + element_size) % record_size == 0;

        n_piece += text_element(array->dtype, is_hex, bytes + offset, piece + n_piece);
        if (is_last || !is_hex) {
            piece[n_piece++] = is_last ? '\n' : ' ';
        }
        if (n_piece >= PIECE_SIZE) {
            rc = output_write(output, piece, n_piece);
            n_piece = 0;
        }
    }
    return rc == CLI_OK ? output_write(output, piece, n_piece) : rc;
}
