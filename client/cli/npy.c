/*
 * The header of a .npy file: six bytes of magic, a version, a length, and a Python dictionary of
 * three keys, as in {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
 *
 * A header is somebody's file: it is taken apart by a cursor that never passes its end.
 *
 * Threads: pure functions, but for npy_read().
 */
#include "client/cli/npy.h"

#include "proto/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC      "\x93NUMPY"
#define MAGIC_SIZE 6
#define V1_SIZE    10 /* magic, version and a length of two bytes */
#define V2_SIZE    12 /* the same with four */

#define TEXT_MAX          65536 /* of a dictionary: more than any of three keys needs */
#define SIZE_MAX_OF_ARRAY (UINT64_C(1) << 53)

struct cursor {
    const char *at;
    const char *end;
};

enum key { KEY_DESCR, KEY_ORDER, KEY_SHAPE, KEY_COUNT };

static const char *const key_names[KEY_COUNT] = {"descr", "fortran_order", "shape"};

/* ---- words --------------------------------------------------------------------------------- */

static void skip_spaces(struct cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\r\n", *cursor->at) != NULL &&
           *cursor->at != '\0') {
        cursor->at++;
    }
}

/* Is this character next?  Then it is passed. */
static bool take_char(struct cursor *cursor, char c)
{
    skip_spaces(cursor);
    if (cursor->at == cursor->end || *cursor->at != c) {
        return false;
    }
    cursor->at++;
    return true;
}

static bool take_word(struct cursor *cursor, const char *word)
{
    size_t size = strlen(word);

    skip_spaces(cursor);
    if ((size_t)(cursor->end - cursor->at) < size || memcmp(cursor->at, word, size) != 0) {
        return false;
    }
    cursor->at += size;
    return true;
}

/* A string without escapes, of less than size bytes. */
static bool take_string(struct cursor *cursor, char *ret_text, size_t size)
{
    char quote = take_char(cursor, '\'') ? '\'' : '"';
    const char *close;

    if (quote == '"' && !take_char(cursor, '"')) {
        return false;
    }
    close = memchr(cursor->at, quote, (size_t)(cursor->end - cursor->at));
    if (close == NULL || (size_t)(close - cursor->at) >= size) {
        return false;
    }
    memcpy(ret_text, cursor->at, (size_t)(close - cursor->at));
    ret_text[close - cursor->at] = '\0';
    cursor->at = close + 1;
    return true;
}

static bool take_number(struct cursor *cursor, uint64_t *ret_number)
{
    const char *start;
    uint64_t number = 0;

    skip_spaces(cursor);
    start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        number = number * 10 + (uint64_t)(*cursor->at++ - '0');
        if (number > SIZE_MAX_OF_ARRAY) {
            return false;
        }
    }
    *ret_number = number;
    return cursor->at > start;
}

/* ---- the three values ---------------------------------------------------------------------- */

static int refuse(struct failure *ret_failure)
{
    return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                "it is no .npy file of version 1 or 2 as numpy.save() writes it");
}

/* "f4" is f32: a letter of ours, and a number of bytes. */
static enum dtype find_dtype(const char *type)
{
    enum dtype dtype = 0;
    char name[8];

    while (dtype < DTYPE_COUNT) {
        snprintf(name, sizeof(name), "%c%u", dtype_name(dtype)[0], dtype_size(dtype));
        if (strcmp(name, type) == 0) {
            break;
        }
        dtype++;
    }
    return dtype;
}

static int take_descr(struct cursor *cursor, struct npy *npy, struct failure *ret_failure)
{
    char descr[16];

    if (!take_string(cursor, descr, sizeof(descr))) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "it holds no plain numbers; save each field as an array of its own");
    }
    npy->dtype = find_dtype(descr[0] == '\0' ? descr : descr + 1);
    if (npy->dtype == DTYPE_COUNT) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "it holds elements '%s', which no op takes; numpy's astype() converts them",
                    descr);
    }
    if (descr[0] == '>') {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "it is big-endian; save it as little-endian: a.astype('<%s')", descr + 1);
    }
    return descr[0] == '<' || (descr[0] == '|' && dtype_size(npy->dtype) == 1)
               ? 0
               : refuse(ret_failure);
}

static int take_order(struct cursor *cursor, struct failure *ret_failure)
{
    if (take_word(cursor, "True")) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "it is in Fortran order; save it in C order: numpy.ascontiguousarray(a)");
    }
    return take_word(cursor, "False") ? 0 : refuse(ret_failure);
}

static int take_shape(struct cursor *cursor, struct npy *npy, struct failure *ret_failure)
{
    npy->n_dims = 0;
    if (!take_char(cursor, '(')) {
        return refuse(ret_failure);
    }
    while (!take_char(cursor, ')')) {
        if (npy->n_dims == NPY_DIMS || !take_number(cursor, &npy->dims[npy->n_dims])) {
            return refuse(ret_failure);
        }
        npy->n_dims++;
        if (!take_char(cursor, ',')) {
            return take_char(cursor, ')') ? 0 : refuse(ret_failure);
        }
    }
    return 0;
}

static int take_value(struct cursor *cursor, enum key key, struct npy *npy,
                      struct failure *ret_failure)
{
    switch (key) {
    case KEY_DESCR:
        return take_descr(cursor, npy, ret_failure);
    case KEY_ORDER:
        return take_order(cursor, ret_failure);
    default:
        return take_shape(cursor, npy, ret_failure);
    }
}

/* KEY_COUNT: it is none of them. */
static enum key take_key(struct cursor *cursor)
{
    char name[16];
    enum key key = 0;

    if (!take_string(cursor, name, sizeof(name)) || !take_char(cursor, ':')) {
        return KEY_COUNT;
    }
    while (key < KEY_COUNT && strcmp(name, key_names[key]) != 0) {
        key++;
    }
    return key;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* False: it is more than any file has. */
static bool count_bytes(const struct npy *npy, uint64_t *ret_size)
{
    uint64_t size = dtype_size(npy->dtype);
    bool is_empty = false;

    for (uint32_t i = 0; i < npy->n_dims; i++) {
        is_empty |= npy->dims[i] == 0;
        if (__builtin_mul_overflow(size, MAX(npy->dims[i], 1u), &size) ||
            size > SIZE_MAX_OF_ARRAY) {
            return false;
        }
    }
    *ret_size = is_empty ? 0 : size;
    return true;
}

uint64_t npy_size(const struct npy *npy)
{
    uint64_t size = 0;

    (void)count_bytes(npy, &size);
    return size;
}

int npy_parse(const char *text, size_t size, struct npy *ret_npy, struct failure *ret_failure)
{
    struct cursor cursor = {.at = text, .end = text + size};
    struct npy npy = {0};
    unsigned seen = 0;
    uint64_t n_bytes;

    if (!take_char(&cursor, '{')) {
        return refuse(ret_failure);
    }
    while (!take_char(&cursor, '}')) {
        enum key key = take_key(&cursor);
        int rc = key == KEY_COUNT || (seen & 1u << key) != 0
                     ? refuse(ret_failure)
                     : take_value(&cursor, key, &npy, ret_failure);

        if (rc < 0) {
            return rc;
        }
        seen |= 1u << key;
        if (!take_char(&cursor, ',') && (cursor.at == cursor.end || *cursor.at != '}')) {
            return refuse(ret_failure);
        }
    }
    skip_spaces(&cursor);
    if (seen != (1u << KEY_COUNT) - 1 || cursor.at != cursor.end || !count_bytes(&npy, &n_bytes)) {
        return refuse(ret_failure);
    }
    *ret_npy = npy;
    return 0;
}

/* 0, or -errno, or -ENODATA where the file ends first. */
static int read_all(int fd, void *buffer, size_t size)
{
    size_t n_read = 0;

    while (n_read < size) {
        ssize_t n = read(fd, (char *)buffer + n_read, size - n_read);

        if (n == 0) {
            return -ENODATA;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        n_read += n < 0 ? 0 : (size_t)n;
    }
    return 0;
}

/* The length that follows magic and version, which *ret_size is. */
static int read_start(int fd, uint32_t *ret_size)
{
    uint8_t start[V2_SIZE] = {0};
    int rc = read_all(fd, start, V1_SIZE);

    if (rc < 0) {
        return rc;
    }
    if (memcmp(start, MAGIC, MAGIC_SIZE) != 0 || start[6] < 1 || start[6] > 2) {
        return -ENODATA;
    }
    if (start[6] == 2) {
        rc = read_all(fd, start + V1_SIZE, V2_SIZE - V1_SIZE);
    }
    *ret_size =
        start[8] | (uint32_t)start[9] << 8 | (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
    return rc == 0 && *ret_size > TEXT_MAX ? -ENODATA : rc;
}

int npy_read(int fd, struct npy *ret_npy, struct failure *ret_failure)
{
    _cleanup_(free_pointer) char *text = NULL;
    uint32_t size = 0;
    int rc = read_start(fd, &size);

    if (rc == 0) {
        text = malloc(size + 1);
        rc = text == NULL ? -ENOMEM : read_all(fd, text, size);
    }
    if (rc == -ENODATA) {
        return refuse(ret_failure);
    }
    if (rc < 0) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "it cannot be read: %s",
                    strerror(-rc));
    }
    return npy_parse(text, size, ret_npy, ret_failure);
}

/* ---- comparing ----------------------------------------------------------------------------- */

static const char *describe(const struct npy *npy, const char *first, char *ret_text, size_t size)
{
    size_t used = (size_t)snprintf(ret_text, size, "%s[%s", dtype_name(npy->dtype), first);

    for (uint32_t i = 0; i < npy->n_dims && used < size; i++) {
        bool is_first = i == 0 && first[0] == '\0';

        used += (size_t)snprintf(ret_text + used, size - used, "%s%" PRIu64, is_first ? "" : ", ",
                                 npy->dims[i]);
    }
    if (used < size) {
        snprintf(ret_text + used, size - used, "]");
    }
    return ret_text;
}

/* Does a dimension of a record end here?  Dimensions of the array that make it up are passed. */
static bool take_dim(const struct npy *npy, uint64_t wanted, uint32_t *n_left)
{
    uint64_t size = 1;

    if (wanted == 1) {
        /* It may be left out. */
        *n_left -= *n_left > 0 && npy->dims[*n_left - 1] == 1;
        return true;
    }
    while (size<wanted && * n_left> 0) {
        size *= npy->dims[--*n_left];
    }
    return size == wanted;
}

int npy_count(const struct npy *npy, const struct npy *record, uint64_t *ret_n_records,
              struct failure *ret_failure)
{
    uint32_t n_left = npy->n_dims;
    bool is_same = npy->dtype == record->dtype;
    uint64_t n_records = 1;
    char mine[80], theirs[80];

    for (uint32_t i = record->n_dims; i > 0 && is_same; i--) {
        is_same = take_dim(npy, record->dims[i - 1], &n_left);
    }
    if (!is_same) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "it is %s, where the op takes %s: numpy's astype() and reshape() convert it",
                    describe(npy, "", mine, sizeof(mine)),
                    describe(record, "n", theirs, sizeof(theirs)));
    }
    for (uint32_t i = 0; i < n_left; i++) {
        n_records *= npy->dims[i];
    }
    *ret_n_records = n_records;
    return 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

void npy_header(const struct npy *record, uint64_t n_records, uint8_t ret_header[NPY_HEADER_SIZE])
{
    const uint16_t text_size = NPY_HEADER_SIZE - V1_SIZE;
    uint32_t size = dtype_size(record->dtype);
    char *text = (char *)ret_header + V1_SIZE;
    int used;

    memcpy(ret_header, MAGIC "\x01\x00", MAGIC_SIZE + 2);
    ret_header[8] = text_size & 0xff;
    ret_header[9] = text_size >> 8;
    memset(text, ' ', text_size);
    used = snprintf(text, text_size,
                    "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (%" PRIu64 ",",
                    size == 1 ? '|' : '<', dtype_name(record->dtype)[0], size, n_records);
    for (uint32_t i = 0; i < record->n_dims; i++) {
        used += snprintf(text + used, text_size - (size_t)used, " %" PRIu64 ",", record->dims[i]);
    }
    used += snprintf(text + used, text_size - (size_t)used, "), }");
    text[used] = ' ';
    text[text_size - 1] = '\n';
}
