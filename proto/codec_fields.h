/*
 * Codec fields: one description of a message serves for reading and for writing it.
 *
 * A message is a table of fields; a field says where a value stands (a key of a map, or a place in
 * an array of parameters), what it may be, and where it lives in the struct.  Private to the codec
 * and rpc.c.
 *
 * Threads: pure functions over constant tables.
 */
#pragma once

#include "proto/status.h"
#include "proto/util.h"

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_BOOL,     /* into an integer of `size` bytes */
    FIELD_NOT,      /* the same, inverted */
    FIELD_UNSIGNED, /* `size` 4 or 8, within min..max */
    FIELD_SIGNED,   /* `size` 4 or 8 */
    FIELD_FLOAT,    /* double; integers are accepted */
    FIELD_NAME,     /* char[size]: refused if too long or not printable ASCII */
    FIELD_TEXT,     /* char[size], for people: made to fit and printable */
    FIELD_WORD,     /* one of `words`, as its index, into an integer of `size` bytes */
    FIELD_MAP,      /* nested: a map of `table` */
    FIELD_LIST,     /* array of `item`, `size` bytes apart, at most `max`; length at `count` */
    FIELD_PAYLOADS, /* array of nils, at most `max`: only its length is kept */
    FIELD_CUSTOM,   /* what `unpack` and `pack` make of it */
};

enum field_flags {
    FIELD_REQUIRED = 1, /* unpack: missing or nil is an error */
    FIELD_SPARSE = 2,   /* pack: left out where the value is the fallback */
    FIELD_BY_HAND = 4,  /* pack: left to the caller, see n_more of fields_pack_map() */
};

struct field {
    const char *key;
    enum field_type type;
    uint32_t offset; /* in the struct */
    uint32_t size;
    uint32_t flags;
    uint32_t has;      /* offset of a bool that says "present"; 0 = none */
    uint32_t count;    /* FIELD_LIST: offset of a uint32_t */
    uint32_t fallback; /* the number in the struct when the field is missing */
    uint32_t n_words;
    uint64_t min, max;
    const char *const *words;
    const struct field_table *table;
    const struct field *item;
    int (*unpack)(const struct field *field, const msgpack_object *value, void *whole,
                  struct failure *ret_failure);
    void (*pack)(msgpack_packer *packer, const struct field *field, const void *whole);
    bool (*is_there)(const void *whole); /* pack: write it at all? */
};

struct field_table {
    const char *what; /* what errors call a field: "option", "parameter", "key" */
    bool is_strict;   /* refuse unknown keys (requests), or ignore them (results) */
    uint32_t n_fields;
    uint32_t size; /* of the struct */
    const struct field *fields;
};

#define FIELDS_MAX         48    /* fields of a table */
#define FIELDS_STRUCT_SIZE 12288 /* bytes of a struct */

/* Where a member lives: `FIELD_AT(struct msg_hello, program)`. */
#define FIELD_AT(type, member)                                                                     \
    .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)

/* The same for a FIELD_LIST: its elements, its room and its length. */
#define FIELD_EACH(type, member, n_member)                                                         \
    .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member[0]),                   \
    .max = ARRAY_SIZE(((type *)NULL)->member), .count = offsetof(type, n_member)

#define FIELD_WORDS(names) .words = (names), .n_words = ARRAY_SIZE(names)

/* 0, or no compilation. */
#define FIELDS_CHECK(condition) (0 * sizeof(char[(condition) ? 1 : -1]))

/* `static const struct field_table x = FIELD_TABLE("option", true, struct msg_x, x_fields);` */
#define FIELD_TABLE(what_, is_strict_, type, fields_)                                              \
    {                                                                                              \
        .what = (what_), .is_strict = (is_strict_), .fields = (fields_),                           \
        .n_fields = ARRAY_SIZE(fields_) + FIELDS_CHECK(ARRAY_SIZE(fields_) <= FIELDS_MAX),         \
        .size = sizeof(type) + FIELDS_CHECK(sizeof(type) <= FIELDS_STRUCT_SIZE)                    \
    }

/*
 * The object as a map.  An empty array is an empty map: languages with one type for both (Lua, PHP)
 * cannot say which they mean.
 */
bool fields_as_map(const msgpack_object *object, msgpack_object_map *ret_map);

/* 0 or a negative status; *ret_struct is untouched on failure. */
int fields_unpack_map(const struct field_table *table, const msgpack_object *map, void *ret_struct,
                      struct failure *ret_failure);
/* The same for parameters that stand in the table's order; later ones may be missing or nil. */
int fields_unpack_params(const struct field_table *table, const msgpack_object_array *params,
                         void *ret_struct, struct failure *ret_failure);
/* An array of maps of any length into structs; *ret_structs is malloc()ed, NULL where empty. */
int fields_unpack_array(const struct field_table *table, const msgpack_object *array,
                        void **ret_structs, uint32_t *ret_n_structs, struct failure *ret_failure);
/* One value, for an unpack function that knows only part of its field beforehand. */
int fields_unpack_value(const struct field *field, const msgpack_object *value, void *whole,
                        struct failure *ret_failure);

/* A map of the table's fields; its header counts n_more pairs that the caller packs behind them. */
void fields_pack_map(msgpack_packer *packer, const struct field_table *table, const void *whole,
                     uint32_t n_more);
/* All fields in order, without an array header: the envelope has it. */
void fields_pack_params(msgpack_packer *packer, const struct field_table *table, const void *whole);
void fields_pack_value(msgpack_packer *packer, const struct field *field, const void *whole);
void fields_pack_string(msgpack_packer *packer, const char *text);

/* Copy a str into text of size bytes: cut to fit, with '?' for all but printable ASCII. */
void fields_copy_text(const msgpack_object_str *str, char *ret_text, size_t size);
/* Does the str equal this text? */
bool fields_is_text(const msgpack_object_str *str, const char *text);
