/*
 * Messages for the codec's tests: written as text (wire_text.h), or packed by the codec and printed
 * by msgpack-c's own printer, which the codec does not use.
 *
 * What is parsed lives until the test ends.
 */
#pragma once

#include "proto/codec.h"
#include "tests/check.h"
#include "tests/unit/wire_text.h"

__attribute__((unused)) static struct failure failure;
static msgpack_sbuffer buffer;
static msgpack_packer packer;

/* A whole message in bytes that live until the test ends, parsed. */
struct parsed {
    struct wire_text wire;
    struct rpc_message message;
};

static inline void free_parsed(void *arg)
{
    struct parsed *parsed = arg;

    rpc_finish(&parsed->message);
    free(parsed);
}

static inline const struct rpc_message *parse_text(const char *text)
{
    struct parsed *parsed = calloc(1, sizeof(*parsed));
    int r;

    wire_from(&parsed->wire, text);
    r = rpc_parse(parsed->wire.bytes, parsed->wire.size, &parsed->message, &failure);
    if (r < 0) {
        free(parsed);
        CHECK_FAIL("%s: %s", text, failure.message);
    }
    check_at_end(free_parsed, parsed);
    return &parsed->message;
}

/* The params of a notification of no method: no count stands in the way. */
static inline const msgpack_object_array *params_from(const char *text)
{
    char whole[2048];

    snprintf(whole, sizeof(whole), "[2, 'test', %s]", text);
    return &parse_text(whole)->params;
}

static inline const msgpack_object *result_from(const char *text)
{
    char whole[2048];

    snprintf(whole, sizeof(whole), "[1, 1, nil, %s]", text);
    return &parse_text(whole)->result;
}

static inline void destroy_buffer(void *arg)
{
    msgpack_sbuffer_destroy(arg);
}

static inline void start_packing(void)
{
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    check_at_end(destroy_buffer, &buffer);
}

static inline const struct rpc_message *parse_packed(void)
{
    struct parsed *parsed = calloc(1, sizeof(*parsed));
    int r = rpc_parse((const uint8_t *)buffer.data, buffer.size, &parsed->message, &failure);

    if (r < 0) {
        free(parsed);
        CHECK_FAIL("%s", failure.message);
    }
    check_at_end(free_parsed, parsed);
    return &parsed->message;
}

static inline void check_printed(const char *wanted)
{
    static char text[8192];
    msgpack_unpacked unpacked;

    msgpack_unpacked_init(&unpacked);
    CHECK_EQ(msgpack_unpack_next(&unpacked, buffer.data, buffer.size, NULL),
             MSGPACK_UNPACK_SUCCESS);
    msgpack_object_print_buffer(text, sizeof(text), unpacked.data);
    msgpack_unpacked_destroy(&unpacked);
    CHECK_STR(text, wanted);
    msgpack_sbuffer_clear(&buffer);
}
