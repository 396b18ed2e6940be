/*
 * Wire text: MessagePack written down readably, so that tests show what is on the wire.
 *
 *     "[0, 7, 'run', ['saxpy', {'a': 2.5}, nil, [<4>]]]"
 *
 * Numbers (a point makes a float), 'strings', nil, true, false, arrays, maps, <n> = n bytes of bin,
 * ~ = an ext of one byte.  It makes its own bytes: it is no test of msgpack-c against itself.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct wire_text {
    const char *next;
    uint8_t bytes[8192];
    size_t size;
};

static inline void wire_byte(struct wire_text *wire, unsigned byte)
{
    if (wire->size == sizeof(wire->bytes)) {
        abort();
    }
    wire->bytes[wire->size++] = (uint8_t)byte;
}

static inline void wire_big_endian(struct wire_text *wire, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = n_bytes; i > 0; i--) {
        wire_byte(wire, (unsigned)(value >> (8 * (i - 1))) & 0xff);
    }
}

static inline void wire_number(struct wire_text *wire)
{
    size_t length = strspn(wire->next, "+-.0123456789einfa");
    const char *start = wire->next;
    double number = strtod(start, NULL);
    uint64_t bits;

    wire->next += length;
    if (strcspn(start, ".n") < length) {
        memcpy(&bits, &number, sizeof(bits));
        wire_byte(wire, 0xcb);
        wire_big_endian(wire, bits, 8);
    } else if (start[0] == '-') {
        wire_byte(wire, 0xd3);
        wire_big_endian(wire, (uint64_t)strtoll(start, NULL, 10), 8);
    } else if (number < 128) {
        wire_byte(wire, (unsigned)number);
    } else {
        wire_byte(wire, 0xcf);
        wire_big_endian(wire, strtoull(start, NULL, 10), 8);
    }
}

static inline void wire_value(struct wire_text *wire);

static inline void wire_skip(struct wire_text *wire)
{
    wire->next += strspn(wire->next, " ,:\n");
}

/* Its length is known at the end: it stands in 16 bits that are filled in then. */
static inline void wire_container(struct wire_text *wire, unsigned tag, char end,
                                  unsigned per_count)
{
    size_t at = wire->size;
    unsigned n_values = 0;

    wire_byte(wire, tag);
    wire_big_endian(wire, 0, 2);
    wire->next++;
    for (wire_skip(wire); *wire->next != end; wire_skip(wire)) {
        wire_value(wire);
        n_values++;
    }
    wire->next++;
    wire->bytes[at + 1] = (uint8_t)(n_values / per_count >> 8);
    wire->bytes[at + 2] = (uint8_t)(n_values / per_count);
}

static inline void wire_string(struct wire_text *wire)
{
    const char *start = ++wire->next;
    size_t length = strcspn(start, "'");

    wire_byte(wire, 0xda);
    wire_big_endian(wire, length, 2);
    for (size_t i = 0; i < length; i++) {
        wire_byte(wire, (unsigned char)start[i]);
    }
    wire->next += length + 1;
}

static inline void wire_bin(struct wire_text *wire)
{
    char *end;
    unsigned long size = strtoul(wire->next + 1, &end, 10);

    wire_byte(wire, 0xc5);
    wire_big_endian(wire, size, 2);
    for (unsigned long i = 0; i < size; i++) {
        wire_byte(wire, 'x');
    }
    wire->next = end + 1;
}

static inline void wire_word(struct wire_text *wire, const char *word, unsigned byte)
{
    if (strncmp(wire->next, word, strlen(word)) != 0) {
        abort();
    }
    wire_byte(wire, byte);
    wire->next += strlen(word);
}

static inline void wire_value(struct wire_text *wire)
{
    switch (*wire->next) {
    case '[':
        wire_container(wire, 0xdc, ']', 1);
        return;
    case '{':
        wire_container(wire, 0xde, '}', 2);
        return;
    case '\'':
        wire_string(wire);
        return;
    case '<':
        wire_bin(wire);
        return;
    case '~':
        wire_word(wire, "~", 0xd4);
        wire_big_endian(wire, 0x1234, 2);
        return;
    case 't':
        wire_word(wire, "true", 0xc3);
        return;
    case 'f':
        wire_word(wire, "false", 0xc2);
        return;
    case 'n':
        if (strncmp(wire->next, "nan", 3) == 0) {
            wire_number(wire);
        } else {
            wire_word(wire, "nil", 0xc0);
        }
        return;
    default:
        wire_number(wire);
    }
}

/* Fill *ret_wire with the bytes of text. */
static inline void wire_from(struct wire_text *ret_wire, const char *text)
{
    ret_wire->next = text;
    ret_wire->size = 0;
    wire_value(ret_wire);
}
