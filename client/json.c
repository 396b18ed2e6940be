/*
 * MessagePack as JSON text.  The guard has bounded the depth of what arrives, and so the recursion.
 *
 * Threads: pure functions.
 */
#include "client/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_MIN 15
#define DIGITS_MAX 17 /* always bring back the same double */

static void write_value(FILE *out, const msgpack_object *object);

/* Bytes from 0x80 on are taken for UTF-8, as they come. */
static void write_string(FILE *out, const msgpack_object_str *str)
{
    fputc('"', out);
    for (uint32_t i = 0; i < str->size; i++) {
        unsigned char c = (unsigned char)str->ptr[i];

        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < ' ') {
            fprintf(out, "\\u%04x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

/* The fewest digits that bring back the same number. */
static void write_float(FILE *out, double number)
{
    char text[40];

    if (!isfinite(number)) {
        fputs("null", out);
        return;
    }
    for (int digits = DIGITS_MIN; digits <= DIGITS_MAX; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (strtod(text, NULL) == number) {
            break;
        }
    }
    /* A program's locale may have another decimal point. */
    for (const char *at = text; *at != '\0'; at++) {
        fputc(*at == ',' ? '.' : *at, out);
    }
}

static void write_array(FILE *out, const msgpack_object_array *array)
{
    fputc('[', out);
    for (uint32_t i = 0; i < array->size; i++) {
        fputs(i == 0 ? "" : ", ", out);
        write_value(out, &array->ptr[i]);
    }
    fputc(']', out);
}

static void write_map(FILE *out, const msgpack_object_map *map)
{
    bool is_first = true;

    fputc('{', out);
    for (uint32_t i = 0; i < map->size; i++) {
        if (map->ptr[i].key.type == MSGPACK_OBJECT_STR) {
            fputs(is_first ? "" : ", ", out);
            write_string(out, &map->ptr[i].key.via.str);
            fputs(": ", out);
            write_value(out, &map->ptr[i].val);
            is_first = false;
        }
    }
    fputc('}', out);
}

static void write_value(FILE *out, const msgpack_object *object)
{
    switch (object->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        fputs(object->via.boolean ? "true" : "false", out);
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        fprintf(out, "%" PRIu64, object->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        fprintf(out, "%" PRId64, object->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        write_float(out, object->via.f64);
        break;
    case MSGPACK_OBJECT_STR:
        write_string(out, &object->via.str);
        break;
    case MSGPACK_OBJECT_ARRAY:
        write_array(out, &object->via.array);
        break;
    case MSGPACK_OBJECT_MAP:
        write_map(out, &object->via.map);
        break;
    default:
        fputs("null", out);
    }
}

char *json_text(const msgpack_object *object)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool has_failed;

    if (out == NULL) {
        return NULL;
    }
    write_value(out, object);
    has_failed = ferror(out);
    has_failed |= fclose(out) != 0;
    if (has_failed) {
        free(text);
        return NULL;
    }
    return text;
}
