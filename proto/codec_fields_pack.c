/*
 * Codec fields, writing: the one loop that writes a message by its table.
 */
#include "proto/codec_fields.h"

#include <string.h>

static uint64_t load(const void *whole, const struct field *field)
{
    uint64_t value = 0;

    memcpy(&value, (const uint8_t *)whole + field->offset, field->size);
    return value;
}

static uint32_t load_count(const void *whole, const struct field *field)
{
    uint32_t count;

    memcpy(&count, (const uint8_t *)whole + field->count, sizeof(count));
    return count;
}

void fields_pack_string(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str_with_body(packer, text, strlen(text));
}

static bool is_fallback(const struct field *field, const void *whole)
{
    switch (field->type) {
    case FIELD_NAME:
    case FIELD_TEXT:
        return ((const char *)whole)[field->offset] == '\0';
    case FIELD_LIST:
        return load_count(whole, field) == 0;
    default:
        return load(whole, field) == field->fallback;
    }
}

static bool is_written(const struct field *field, const void *whole)
{
    if (field->flags & FIELD_BY_HAND) {
        return false;
    }
    if (field->has != 0) {
        return ((const uint8_t *)whole)[field->has];
    }
    if (field->is_there != NULL) {
        return field->is_there(whole);
    }
    return !(field->flags & FIELD_SPARSE) || !is_fallback(field, whole);
}

static void pack_list(msgpack_packer *packer, const struct field *field, const void *whole)
{
    uint32_t count = load_count(whole, field);

    msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count; i++) {
        fields_pack_value(packer, field->item,
                          (const uint8_t *)whole + field->offset + (size_t)i * field->size);
    }
}

static void pack_bool(msgpack_packer *packer, bool is_true)
{
    if (is_true) {
        msgpack_pack_true(packer);
    } else {
        msgpack_pack_false(packer);
    }
}

void fields_pack_value(msgpack_packer *packer, const struct field *field, const void *whole)
{
    const uint8_t *at = (const uint8_t *)whole + field->offset;
    double number;

    switch (field->type) {
    case FIELD_BOOL:
    case FIELD_NOT:
        pack_bool(packer, (load(whole, field) != 0) != (field->type == FIELD_NOT));
        return;
    case FIELD_UNSIGNED:
        msgpack_pack_uint64(packer, load(whole, field));
        return;
    case FIELD_SIGNED:
        msgpack_pack_int64(packer, field->size == 4 ? (int32_t)load(whole, field)
                                                    : (int64_t)load(whole, field));
        return;
    case FIELD_FLOAT:
        memcpy(&number, at, sizeof(number));
        msgpack_pack_double(packer, number);
        return;
    case FIELD_NAME:
    case FIELD_TEXT:
        fields_pack_string(packer, (const char *)at);
        return;
    case FIELD_WORD:
        fields_pack_string(packer, field->words[load(whole, field)]);
        return;
    case FIELD_MAP:
        fields_pack_map(packer, field->table, at, 0);
        return;
    case FIELD_LIST:
        pack_list(packer, field, whole);
        return;
    case FIELD_PAYLOADS:
        msgpack_pack_array(packer, load(whole, field));
        return;
    case FIELD_CUSTOM:
        field->pack(packer, field, whole);
        return;
    }
}

void fields_pack_map(msgpack_packer *packer, const struct field_table *table, const void *whole,
                     uint32_t n_more)
{
    uint32_t n_written = 0;

    for (uint32_t i = 0; i < table->n_fields; i++) {
        n_written += is_written(&table->fields[i], whole);
    }
    msgpack_pack_map(packer, n_written + n_more);
    for (uint32_t i = 0; i < table->n_fields; i++) {
        if (is_written(&table->fields[i], whole)) {
            fields_pack_string(packer, table->fields[i].key);
            fields_pack_value(packer, &table->fields[i], whole);
        }
    }
}

void fields_pack_params(msgpack_packer *packer, const struct field_table *table, const void *whole)
{
    for (uint32_t i = 0; i < table->n_fields; i++) {
        fields_pack_value(packer, &table->fields[i], whole);
    }
}
