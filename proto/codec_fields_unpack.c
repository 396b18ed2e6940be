/*
 * Codec fields, reading: the one loop that reads a message by its table.
 *
 * It takes two steps.  First every key is matched with its field: unknown and repeated keys
 * end it there.  Then the fields are read in the order of the table, whatever the order on the
 * wire, so that a custom reader may rely on the fields that stand before its own.
 */
#include "proto/codec_fields.h"

#include "proto/util.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#define QUOTE_SIZE 48 /* bytes of a client's string that an error repeats, at most */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are stored by their low bytes");

/* ---- small things -------------------------------------------------------------------------- */

static bool is_printable(unsigned char c)
{
    return c >= 0x20 && c < 0x7f;
}

void fields_copy_text(const msgpack_object_str *str, char *ret_text, size_t size)
{
    size_t length = MIN((size_t)str->size, size - 1);

    for (size_t i = 0; i < length; i++) {
        ret_text[i] = is_printable((unsigned char)str->ptr[i]) ? str->ptr[i] : '?';
    }
    ret_text[length] = '\0';
}

bool fields_is_text(const msgpack_object_str *str, const char *text)
{
    return str->size == strlen(text) && memcmp(str->ptr, text, str->size) == 0;
}

static const char *type_name(const msgpack_object *value)
{
    switch (value->type) {
    case MSGPACK_OBJECT_NIL:
        return "nil";
    case MSGPACK_OBJECT_BOOLEAN:
        return "a bool";
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        return "an integer";
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return "a float";
    case MSGPACK_OBJECT_STR:
        return "a string";
    case MSGPACK_OBJECT_ARRAY:
        return "an array";
    case MSGPACK_OBJECT_MAP:
        return "a map";
    case MSGPACK_OBJECT_BIN:
        return "bin";
    default:
        return "ext";
    }
}

static void store(void *whole, const struct field *field, uint64_t value)
{
    memcpy((uint8_t *)whole + field->offset, &value, field->size);
}

/* "urgent, normal, bulk", as much of it as fits. */
static void list_words(const char *const *words, uint32_t n_words, char *ret_text, size_t size)
{
    size_t length = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < n_words && length < size; i++) {
        length += (size_t)snprintf(ret_text + length, size - length, "%s%s", i == 0 ? "" : ", ",
                                   words[i]);
    }
}

/* ---- reading one value: a failure says what is wrong, its field is named by unpack_fields() -- */

static int wrong_type(const char *wanted, const msgpack_object *value, struct failure *ret_failure)
{
    return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "must be %s, not %s", wanted,
                type_name(value));
}

static int unpack_bool(const struct field *field, const msgpack_object *value, void *whole,
                       struct failure *ret_failure)
{
    if (value->type != MSGPACK_OBJECT_BOOLEAN) {
        return wrong_type("true or false", value, ret_failure);
    }
    store(whole, field, value->via.boolean != (field->type == FIELD_NOT));
    return 0;
}

static int unpack_unsigned(const struct field *field, const msgpack_object *value, void *whole,
                           struct failure *ret_failure)
{
    uint64_t most = field->max != 0 ? field->max : field->size == 4 ? UINT32_MAX : UINT64_MAX;

    if (value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        return fail(ret_failure, STATUS_RANGE, NULL, "%" PRId64 " is less than %" PRIu64,
                    value->via.i64, field->min);
    }
    if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return wrong_type("an integer", value, ret_failure);
    }
    if (value->via.u64 < field->min || value->via.u64 > most) {
        bool is_less = value->via.u64 < field->min;

        return fail(ret_failure, STATUS_RANGE, NULL, "%" PRIu64 " is %s than %" PRIu64,
                    value->via.u64, is_less ? "less" : "more", is_less ? field->min : most);
    }
    store(whole, field, value->via.u64);
    return 0;
}

static int unpack_signed(const struct field *field, const msgpack_object *value, void *whole,
                         struct failure *ret_failure)
{
    int64_t most = field->size == 4 ? INT32_MAX : INT64_MAX;

    if (value->type != MSGPACK_OBJECT_NEGATIVE_INTEGER &&
        value->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
        return wrong_type("an integer", value, ret_failure);
    }
    if (value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? value->via.u64 > (uint64_t)most
                                                       : value->via.i64 < -most - 1) {
        return fail(ret_failure, STATUS_RANGE, NULL, "does not fit into %" PRIu32 " bits",
                    field->size * 8);
    }
    store(whole, field, value->via.u64);
    return 0;
}

static int unpack_float(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    double number;

    switch (value->type) {
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        number = value->via.f64;
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        number = (double)value->via.u64;
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        number = (double)value->via.i64;
        break;
    default:
        return wrong_type("a number", value, ret_failure);
    }
    memcpy((uint8_t *)whole + field->offset, &number, sizeof(number));
    return 0;
}

static int unpack_name(const struct field *field, const msgpack_object *value, void *whole,
                       struct failure *ret_failure)
{
    const msgpack_object_str *str = &value->via.str;

    if (value->type != MSGPACK_OBJECT_STR) {
        return wrong_type("a string", value, ret_failure);
    }
    if (str->size >= field->size) {
        return fail(ret_failure, STATUS_RANGE, NULL, "%" PRIu32 " bytes are more than %" PRIu32,
                    str->size, field->size - 1);
    }
    for (uint32_t i = 0; i < str->size; i++) {
        if (!is_printable((unsigned char)str->ptr[i])) {
            return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                        "byte %" PRIu32 " is not printable ASCII", i);
        }
    }
    fields_copy_text(str, (char *)whole + field->offset, field->size);
    return 0;
}

static int unpack_text(const struct field *field, const msgpack_object *value, void *whole,
                       struct failure *ret_failure)
{
    if (value->type != MSGPACK_OBJECT_STR) {
        return wrong_type("a string", value, ret_failure);
    }
    fields_copy_text(&value->via.str, (char *)whole + field->offset, field->size);
    return 0;
}

static int unpack_word(const struct field *field, const msgpack_object *value, void *whole,
                       struct failure *ret_failure)
{
    char quote[QUOTE_SIZE], words[128];

    if (value->type != MSGPACK_OBJECT_STR) {
        return wrong_type("a string", value, ret_failure);
    }
    for (uint32_t i = 0; i < field->n_words; i++) {
        if (fields_is_text(&value->via.str, field->words[i])) {
            store(whole, field, i);
            return 0;
        }
    }
    fields_copy_text(&value->via.str, quote, sizeof(quote));
    list_words(field->words, field->n_words, words, sizeof(words));
    return fail(ret_failure, STATUS_RANGE, NULL, "\"%s\" is none of %s", quote, words);
}

static int unpack_list(const struct field *field, const msgpack_object *value, void *whole,
                       struct failure *ret_failure)
{
    const msgpack_object_array *array = &value->via.array;

    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type("an array", value, ret_failure);
    }
    if (array->size > field->max) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "%" PRIu32 " elements are more than %" PRIu64, array->size, field->max);
    }
    for (uint32_t i = 0; i < array->size; i++) {
        uint8_t *element = (uint8_t *)whole + field->offset + (size_t)i * field->size;
        int r = fields_unpack_value(field->item, &array->ptr[i], element, ret_failure);

        if (r < 0) {
            return r;
        }
    }
    memcpy((uint8_t *)whole + field->count, &array->size, sizeof(array->size));
    return 0;
}

static int unpack_payloads(const struct field *field, const msgpack_object *value, void *whole,
                           struct failure *ret_failure)
{
    const msgpack_object_array *array = &value->via.array;

    if (value->type != MSGPACK_OBJECT_ARRAY) {
        return wrong_type("an array", value, ret_failure);
    }
    if (array->size > field->max) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "%" PRIu32 " arrays are more than %" PRIu64, array->size, field->max);
    }
    for (uint32_t i = 0; i < array->size; i++) {
        if (array->ptr[i].type == MSGPACK_OBJECT_ARRAY) {
            return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                        "a Ref among bytes; only job.push takes Refs, and then all data are some");
        }
        if (array->ptr[i].type != MSGPACK_OBJECT_NIL) {
            return wrong_type("payloads (bin)", &array->ptr[i], ret_failure);
        }
    }
    store(whole, field, array->size);
    return 0;
}

/* ---- reading a table ----------------------------------------------------------------------- */

static int unpack_fields(const struct field_table *table, const msgpack_object *const *values,
                         void *whole, struct failure *ret_failure);

static int find_field(const struct field_table *table, const msgpack_object_str *key)
{
    for (uint32_t i = 0; i < table->n_fields; i++) {
        if (fields_is_text(key, table->fields[i].key)) {
            return (int)i;
        }
    }
    return -1;
}

static int unknown_key(const struct field_table *table, const msgpack_object_str *key,
                       struct failure *ret_failure)
{
    char quote[QUOTE_SIZE], known[160];
    const char *words[FIELDS_MAX];
    uint32_t n_words = 0;

    for (uint32_t i = 0; i < table->n_fields; i++) {
        words[n_words++] = table->fields[i].key;
    }
    if (n_words == 0) {
        words[n_words++] = "none";
    }
    list_words(words, n_words, known, sizeof(known));
    fields_copy_text(key, quote, sizeof(quote));
    return fail(ret_failure, STATUS_INVALID_PARAM, quote, "no %s \"%s\"; there is %s", table->what,
                quote, known);
}

/* Match the pairs of a map with the table's fields. */
static int match_keys(const struct field_table *table, const msgpack_object_map *map,
                      const msgpack_object **ret_values, struct failure *ret_failure)
{
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object *key = &map->ptr[i].key;
        int found = key->type == MSGPACK_OBJECT_STR ? find_field(table, &key->via.str) : -1;

        if (found >= 0 && ret_values[found] != NULL) {
            return fail(ret_failure, STATUS_INVALID_PARAM, table->fields[found].key,
                        "%s \"%s\" stands there twice", table->what, table->fields[found].key);
        }
        if (found >= 0) {
            ret_values[found] = &map->ptr[i].val;
        } else if (table->is_strict && key->type != MSGPACK_OBJECT_STR) {
            return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "an %s has %s as its key",
                        table->what, type_name(key));
        } else if (table->is_strict) {
            return unknown_key(table, &key->via.str, ret_failure);
        }
    }
    return 0;
}

static int unpack_map(const struct field_table *table, const msgpack_object_map *map, void *whole,
                      struct failure *ret_failure)
{
    const msgpack_object *values[FIELDS_MAX] = {NULL};
    int r = match_keys(table, map, values, ret_failure);

    return r < 0 ? r : unpack_fields(table, values, whole, ret_failure);
}

bool fields_as_map(const msgpack_object *object, msgpack_object_map *ret_map)
{
    if (object->type == MSGPACK_OBJECT_MAP) {
        *ret_map = object->via.map;
        return true;
    }
    *ret_map = (msgpack_object_map){0};
    return object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size == 0;
}

static int unpack_nested(const struct field *field, const msgpack_object *value, void *whole,
                         struct failure *ret_failure)
{
    msgpack_object_map map;

    if (!fields_as_map(value, &map)) {
        return wrong_type("a map", value, ret_failure);
    }
    return unpack_map(field->table, &map, (uint8_t *)whole + field->offset, ret_failure);
}

int fields_unpack_value(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure)
{
    static int (*const unpackers[])(const struct field *field, const msgpack_object *value,
                                    void *whole, struct failure *ret_failure) = {
        [FIELD_BOOL] = unpack_bool,         [FIELD_NOT] = unpack_bool,
        [FIELD_UNSIGNED] = unpack_unsigned, [FIELD_SIGNED] = unpack_signed,
        [FIELD_FLOAT] = unpack_float,       [FIELD_NAME] = unpack_name,
        [FIELD_TEXT] = unpack_text,         [FIELD_WORD] = unpack_word,
        [FIELD_MAP] = unpack_nested,        [FIELD_LIST] = unpack_list,
        [FIELD_PAYLOADS] = unpack_payloads,
    };

    return field->type == FIELD_CUSTOM ? field->unpack(field, value, whole, ret_failure)
                                       : unpackers[field->type](field, value, whole, ret_failure);
}

/* What a field holds when nothing was said. */
static int unpack_missing(const struct field_table *table, const struct field *field, void *whole,
                          struct failure *ret_failure)
{
    const msgpack_object_map empty = {0};

    if (field->flags & FIELD_REQUIRED) {
        return fail(ret_failure, STATUS_INVALID_PARAM, field->key, "%s \"%s\" is missing",
                    table->what, field->key);
    }
    if (field->type == FIELD_MAP) {
        return unpack_map(field->table, &empty, (uint8_t *)whole + field->offset, ret_failure);
    }
    if (field->fallback != 0) {
        store(whole, field, field->fallback);
    }
    return 0;
}

/* Put the field's name in front, unless the failure has one already from further inside. */
static int name_failure(const struct field_table *table, const struct field *field,
                        struct failure *failure)
{
    struct failure inner = *failure;

    if (inner.field[0] != '\0') {
        return -(int)inner.status;
    }
    return fail(failure, inner.status, field->key, "%s \"%s\": %s", table->what, field->key,
                inner.message);
}

/* Read the fields in the table's order; values[i] is what stands there for fields[i], or NULL. */
static int unpack_fields(const struct field_table *table, const msgpack_object *const *values,
                         void *whole, struct failure *ret_failure)
{
    for (uint32_t i = 0; i < table->n_fields; i++) {
        const struct field *field = &table->fields[i];
        bool is_missing = values[i] == NULL || values[i]->type == MSGPACK_OBJECT_NIL;
        int r;

        if (is_missing) {
            r = unpack_missing(table, field, whole, ret_failure);
        } else {
            r = fields_unpack_value(field, values[i], whole, ret_failure);
        }
        if (r < 0) {
            return name_failure(table, field, ret_failure);
        }
        if (!is_missing && field->has != 0) {
            *((uint8_t *)whole + field->has) = true;
        }
    }
    return 0;
}

int fields_unpack_map(const struct field_table *table, const msgpack_object *map, void *ret_struct,
                      struct failure *ret_failure)
{
    alignas(max_align_t) uint8_t whole[FIELDS_STRUCT_SIZE];
    int r;

    if (map->type != MSGPACK_OBJECT_MAP) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "%s, not a map", type_name(map));
    }
    memset(whole, 0, table->size);
    r = unpack_map(table, &map->via.map, whole, ret_failure);
    if (r == 0) {
        memcpy(ret_struct, whole, table->size);
    }
    return r;
}

int fields_unpack_params(const struct field_table *table, const msgpack_object_array *params,
                         void *ret_struct, struct failure *ret_failure)
{
    alignas(max_align_t) uint8_t whole[FIELDS_STRUCT_SIZE];
    const msgpack_object *values[FIELDS_MAX] = {NULL};
    int r;

    if (table->is_strict && params->size > table->n_fields) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL,
                    "%" PRIu32 " %ss are more than %" PRIu32, params->size, table->what,
                    table->n_fields);
    }
    for (uint32_t i = 0; i < MIN(params->size, table->n_fields); i++) {
        values[i] = &params->ptr[i];
    }
    memset(whole, 0, table->size);
    r = unpack_fields(table, values, whole, ret_failure);
    if (r == 0) {
        memcpy(ret_struct, whole, table->size);
    }
    return r;
}

int fields_unpack_array(const struct field_table *table, const msgpack_object *array,
                        void **ret_structs, uint32_t *ret_n_structs, struct failure *ret_failure)
{
    _cleanup_(free_pointer) uint8_t *structs = NULL;
    uint32_t n_structs;

    if (array->type != MSGPACK_OBJECT_ARRAY) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "%s, not an array", type_name(array));
    }
    n_structs = array->via.array.size;
    structs = n_structs == 0 ? NULL : calloc(n_structs, table->size);
    if (n_structs != 0 && structs == NULL) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "out of memory");
    }
    for (uint32_t i = 0; i < n_structs; i++) {
        int r = fields_unpack_map(table, &array->via.array.ptr[i],
                                  structs + (size_t)i * table->size, ret_failure);

        if (r < 0) {
            return r;
        }
    }
    *ret_structs = STEAL(structs);
    *ret_n_structs = n_structs;
    return 0;
}
