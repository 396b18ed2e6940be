/*
 * Pack: the text is read once, from left to right.  A container's header is written when its values
 * have been counted, by moving them up behind it.
 */
#include "tests/pack.h"

#include "tests/check.h"

#include <ctype.h>
#include <math.h>

struct text {
    const char *at;
    va_list args;
    msgpack_sbuffer *buffer;
    msgpack_packer packer;
};

static void pack_value(struct text *text);

static char next(struct text *text)
{
    while (isspace((unsigned char)*text->at) || *text->at == ',') {
        text->at++;
    }
    return *text->at;
}

static bool take(struct text *text, const char *word)
{
    size_t size = strlen(word);

    if (strncmp(text->at, word, size) != 0) {
        return false;
    }
    text->at += size;
    return true;
}

static void pack_filler(struct text *text, char end, bool is_str)
{
    char *after;
    size_t size = strtoull(text->at + 1, &after, 10);
    uint8_t *bytes;

    CHECK_EQ(*after, end);
    text->at = after + 1;
    bytes = malloc(size + 1);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i % 251 + 1);
    }
    if (is_str) {
        msgpack_pack_str_with_body(&text->packer, bytes, size);
    } else {
        msgpack_pack_bin_with_body(&text->packer, bytes, size);
    }
    free(bytes);
}

static void pack_number(struct text *text)
{
    size_t length = strcspn(text->at, ",]} \n:");
    char *after;

    if (memchr(text->at, '.', length) != NULL || memchr(text->at, 'e', length) != NULL) {
        msgpack_pack_double(&text->packer, strtod(text->at, &after));
    } else if (*text->at == '-') {
        msgpack_pack_int64(&text->packer, strtoll(text->at, &after, 10));
    } else {
        msgpack_pack_uint64(&text->packer, strtoull(text->at, &after, 10));
    }
    if (after != text->at + length) {
        CHECK_FAIL("pack: no value: %s", text->at);
    }
    text->at = after;
}

static void pack_argument(struct text *text)
{
    const void *bytes;
    size_t size;

    if (take(text, "%s")) {
        bytes = va_arg(text->args, const char *);
        msgpack_pack_str_with_body(&text->packer, bytes, strlen(bytes));
    } else if (take(text, "%d")) {
        msgpack_pack_int(&text->packer, va_arg(text->args, int));
    } else if (take(text, "%lu")) {
        msgpack_pack_uint64(&text->packer, va_arg(text->args, uint64_t));
    } else if (take(text, "%f")) {
        msgpack_pack_double(&text->packer, va_arg(text->args, double));
    } else if (take(text, "%b")) {
        bytes = va_arg(text->args, const void *);
        size = va_arg(text->args, size_t);
        msgpack_pack_bin_with_body(&text->packer, bytes, size);
    } else if (take(text, "%t")) {
        bytes = va_arg(text->args, const void *);
        size = va_arg(text->args, size_t);
        msgpack_pack_str_with_body(&text->packer, bytes, size);
    } else {
        CHECK_FAIL("pack: no such argument: %s", text->at);
    }
}

static void pack_word(struct text *text)
{
    size_t length = 0;

    if (take(text, "nil")) {
        msgpack_pack_nil(&text->packer);
    } else if (take(text, "true")) {
        msgpack_pack_true(&text->packer);
    } else if (take(text, "false")) {
        msgpack_pack_false(&text->packer);
    } else if (take(text, "nan")) {
        msgpack_pack_double(&text->packer, (double)NAN);
    } else if (take(text, "inf")) {
        msgpack_pack_double(&text->packer, (double)INFINITY);
    } else if (take(text, "-inf")) {
        msgpack_pack_double(&text->packer, (double)-INFINITY);
    } else if (take(text, "ext")) {
        msgpack_pack_ext_with_body(&text->packer, "?", 1, 5);
    } else if (*text->at == '\'') {
        length = strcspn(text->at + 1, "'");
        msgpack_pack_str_with_body(&text->packer, text->at + 1, length);
        text->at += length + 2;
    } else {
        pack_number(text);
    }
}

static void pack_key(struct text *text)
{
    size_t length = 0;

    while (isalnum((unsigned char)text->at[length]) || text->at[length] == '_') {
        length++;
    }
    if (length > 0 && text->at[length] == ':' && !isdigit((unsigned char)*text->at)) {
        msgpack_pack_str_with_body(&text->packer, text->at, length);
        text->at += length;
    } else {
        pack_value(text);
    }
    CHECK_EQ(next(text), ':');
    text->at++;
}

static void pack_container(struct text *text, bool is_map, char end)
{
    size_t start = text->buffer->size, header_size, values_size;
    char header[8];
    size_t n = 0;

    text->at++;
    for (; next(text) != end; n++) {
        if (is_map) {
            pack_key(text);
        }
        pack_value(text);
    }
    text->at++;
    values_size = text->buffer->size - start;
    if (is_map) {
        msgpack_pack_map(&text->packer, n);
    } else {
        msgpack_pack_array(&text->packer, n);
    }
    header_size = text->buffer->size - start - values_size;
    memcpy(header, text->buffer->data + start + values_size, header_size);
    memmove(text->buffer->data + start + header_size, text->buffer->data + start, values_size);
    memcpy(text->buffer->data + start, header, header_size);
}

static void pack_value(struct text *text)
{
    switch (next(text)) {
    case '[':
        pack_container(text, false, ']');
        break;
    case '{':
        pack_container(text, true, '}');
        break;
    case '<':
        pack_filler(text, '>', false);
        break;
    case '"':
        pack_filler(text, '"', true);
        break;
    case '%':
        pack_argument(text);
        break;
    default:
        pack_word(text);
    }
}

void pack_text(msgpack_sbuffer *buffer, const char *format, va_list args)
{
    struct text text = {.at = format, .buffer = buffer};

    va_copy(text.args, args);
    msgpack_packer_init(&text.packer, buffer, msgpack_sbuffer_write);
    while (next(&text) != '\0') {
        pack_value(&text);
    }
    va_end(text.args);
}

void pack_notification(msgpack_sbuffer *buffer, const char *method, const char *params,
                       va_list args)
{
    msgpack_packer packer;

    msgpack_packer_init(&packer, buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 3);
    msgpack_pack_int(&packer, 2);
    msgpack_pack_str_with_body(&packer, method, strlen(method));
    pack_text(buffer, params, args);
}

void pack_request(msgpack_sbuffer *buffer, uint32_t msgid, const char *method, const char *params,
                  va_list args)
{
    msgpack_packer packer;

    msgpack_packer_init(&packer, buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 4);
    msgpack_pack_int(&packer, 0);
    msgpack_pack_uint32(&packer, msgid);
    msgpack_pack_str_with_body(&packer, method, strlen(method));
    pack_text(buffer, params, args);
}
