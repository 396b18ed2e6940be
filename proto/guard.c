/*
 * Guard: the incremental walk.
 *
 * MessagePack is read token by token: a scalar with its value, a string with its body, or the mere
 * header of a container or payload.  A token is consumed whole or not at all, so guard.pos always
 * lies between two tokens and nothing but the level counters is carried from call to call.  Each
 * check needs no more bytes than the one before it has seen, and none depends on how many bytes
 * happen to be there: cutting a message differently never changes what becomes of it.
 *
 * A level is an open container.  The value that is being walked is element index[depth - 1] of the
 * innermost one; left[] counts it until it is finished.
 *
 * Threads: pure functions over the struct.
 */
#include "proto/guard.h"

#include "proto/util.h"

#include <string.h>

enum token_kind {
    TOKEN_BAD, /* never used, or an extension */
    TOKEN_SCALAR,
    TOKEN_UINT,
    TOKEN_INT,
    TOKEN_STR,
    TOKEN_BIN,
    TOKEN_ARRAY,
    TOKEN_MAP,
};

struct token {
    enum token_kind kind;
    uint32_t header_size;
    /* The number in the header: an integer's value (two's complement), the bytes of a str or bin,
     * the elements of a container. */
    uint64_t n;
};

/* The tokens 0xc0 to 0xdf: what they are, and the bytes of the number behind the first byte. */
static const struct {
    uint8_t kind;
    uint8_t number_size;
} tokens[32] = {
    [0x00] = {TOKEN_SCALAR, 0}, /* nil */
    [0x02] = {TOKEN_SCALAR, 0}, /* false */
    [0x03] = {TOKEN_SCALAR, 0}, /* true */
    [0x04] = {TOKEN_BIN, 1},    [0x05] = {TOKEN_BIN, 2},   [0x06] = {TOKEN_BIN, 4},
    [0x0a] = {TOKEN_SCALAR, 4}, /* float */
    [0x0b] = {TOKEN_SCALAR, 8}, [0x0c] = {TOKEN_UINT, 1},  [0x0d] = {TOKEN_UINT, 2},
    [0x0e] = {TOKEN_UINT, 4},   [0x0f] = {TOKEN_UINT, 8},  [0x10] = {TOKEN_INT, 1},
    [0x11] = {TOKEN_INT, 2},    [0x12] = {TOKEN_INT, 4},   [0x13] = {TOKEN_INT, 8},
    [0x19] = {TOKEN_STR, 1},    [0x1a] = {TOKEN_STR, 2},   [0x1b] = {TOKEN_STR, 4},
    [0x1c] = {TOKEN_ARRAY, 2},  [0x1d] = {TOKEN_ARRAY, 4}, [0x1e] = {TOKEN_MAP, 2},
    [0x1f] = {TOKEN_MAP, 4},
};

/* What the first byte alone tells; n is final for the tokens whose header ends there. */
static struct token token_start(uint8_t first)
{
    if (first < 0x80) {
        return (struct token){TOKEN_UINT, 1, first};
    }
    if (first < 0x90) {
        return (struct token){TOKEN_MAP, 1, first & 0x0fu};
    }
    if (first < 0xa0) {
        return (struct token){TOKEN_ARRAY, 1, first & 0x0fu};
    }
    if (first < 0xc0) {
        return (struct token){TOKEN_STR, 1, first & 0x1fu};
    }
    if (first >= 0xe0) {
        return (struct token){TOKEN_INT, 1, (uint64_t)(int8_t)first};
    }
    return (struct token){(enum token_kind)tokens[first - 0xc0].kind,
                          1u + tokens[first - 0xc0].number_size, 0};
}

/* Read the number behind the first byte, once the whole header is there. */
static void token_read_number(struct token *token, const uint8_t *header)
{
    uint64_t n = 0;

    if (token->header_size == 1) {
        return;
    }
    for (uint32_t i = 1; i < token->header_size; i++) {
        n = n << 8 | header[i];
    }
    if (token->kind == TOKEN_INT) {
        uint32_t unused_bits = 64 - 8 * (token->header_size - 1);

        n = (uint64_t)((int64_t)(n << unused_bits) >> unused_bits);
    }
    token->n = n;
}

void guard_reset(struct guard *guard, enum guard_role role)
{
    memset(guard, 0, sizeof(*guard));
    guard->role = role;
    guard->type = -1;
    guard->method = METHOD_COUNT;
}

static bool is_complete(const struct guard *guard)
{
    return guard->depth == 0 && guard->n_elements > 0;
}

/* The value at hand is finished, and with it each container that it was the last element of. */
static void finish_value(struct guard *guard)
{
    while (guard->depth > 0) {
        uint32_t level = guard->depth - 1;

        guard->index[level]++;
        if (--guard->left[level] > 0) {
            return;
        }
        guard->depth--;
    }
}

static void consume(struct guard *guard, uint64_t size)
{
    guard->pos += size;
    guard->frame_size += size;
}

static int open_container(struct guard *guard, const struct token *token,
                          struct failure *ret_failure)
{
    uint64_t n = token->kind == TOKEN_MAP ? 2 * token->n : token->n;

    if (guard->depth == LIMIT_DEPTH) {
        fail(ret_failure, STATUS_PROTO, NULL, "values are nested deeper than %d levels",
             LIMIT_DEPTH);
        return failure_add_limit(ret_failure, "depth", LIMIT_DEPTH + 1, LIMIT_DEPTH);
    }
    if (n > LIMIT_ELEMENTS - guard->n_elements) {
        fail(ret_failure, STATUS_PROTO, NULL, "a message declares more than %d values",
             LIMIT_ELEMENTS);
        return failure_add_limit(ret_failure, "elements", guard->n_elements + n, LIMIT_ELEMENTS);
    }
    consume(guard, token->header_size);
    guard->n_elements += (uint32_t)n;
    if (n == 0) {
        finish_value(guard);
        return 0;
    }
    guard->is_map[guard->depth] = token->kind == TOKEN_MAP;
    guard->left[guard->depth] = (uint32_t)n;
    guard->index[guard->depth] = 0;
    guard->depth++;
    return 0;
}

static int check_type(struct guard *guard, const struct token *token, struct failure *ret_failure)
{
    bool is_int = token->kind == TOKEN_UINT || token->kind == TOKEN_INT;

    if (!is_int || token->n > 2 || (token->n == 2) != (guard->left[0] == 3)) {
        return fail(ret_failure, STATUS_PROTO, NULL,
                    "a message starts with its type: 0 or 1 in an array of 4, 2 in an array of 3");
    }
    guard->type = (int)token->n;
    return 0;
}

static int check_msgid(struct guard *guard, const struct token *token, struct failure *ret_failure)
{
    bool is_int = token->kind == TOKEN_UINT || token->kind == TOKEN_INT;

    if (!is_int || token->n > UINT32_MAX) {
        return fail(ret_failure, STATUS_PROTO, "msgid", "msgid is no unsigned 32-bit integer");
    }
    guard->msgid = (uint32_t)token->n;
    guard->has_msgid = true;
    guard->msgid_end = guard->pos + token->header_size;
    return 0;
}

/* Which element of the message is the method's name; a response has none. */
static bool is_at_method(const struct guard *guard)
{
    return guard->depth == 1 && ((guard->type == 0 && guard->index[0] == 2) ||
                                 (guard->type == 2 && guard->index[0] == 1));
}

/* Hold the token to its place in the envelope. */
static int check_envelope(struct guard *guard, const struct token *token,
                          struct failure *ret_failure)
{
    if (guard->depth > 1) {
        return 0;
    }
    if (guard->depth == 0) {
        if (token->kind != TOKEN_ARRAY || (token->n != 3 && token->n != 4)) {
            return fail(ret_failure, STATUS_PROTO, NULL, "a message is an array of 3 or 4 values");
        }
        return 0;
    }
    if (guard->index[0] == 0) {
        return check_type(guard, token, ret_failure);
    }
    if (guard->index[0] == 1 && guard->type != 2) {
        return check_msgid(guard, token, ret_failure);
    }
    if (is_at_method(guard) && token->kind != TOKEN_STR) {
        return fail(ret_failure, STATUS_PROTO, "method", "the method's name is no string");
    }
    return 0;
}

/*
 * Is the value at hand an element of the array that is the method's payload parameter?  Where a
 * method is known, nothing but its params is still open on level 0.
 */
static bool is_at_payload(const struct guard *guard)
{
    return guard->method != METHOD_COUNT && guard->depth == 3 && !guard->is_map[1] &&
           !guard->is_map[2] && (int)guard->index[1] == method_row(guard->method)->payload;
}

/* Does the guard stop at this token, and why?  0: no, its value belongs to the head. */
static int stop_reason(const struct guard *guard, const struct token *token)
{
    if (guard->role == GUARD_CLIENT) {
        return token->kind == TOKEN_BIN ? GUARD_PAYLOAD : 0;
    }
    if (token->kind != TOKEN_BIN && token->kind != TOKEN_STR) {
        return 0;
    }
    if (is_at_payload(guard)) {
        return GUARD_PAYLOAD;
    }
    return token->kind == TOKEN_BIN ? GUARD_STRAY : 0;
}

static int stop_at_payload(struct guard *guard, const struct token *token, int event,
                           struct failure *ret_failure)
{
    uint64_t frame_size = guard->frame_size + token->header_size + token->n;

    if (frame_size > LIMIT_FRAME) {
        fail(ret_failure, STATUS_TOO_BIG, NULL, "a message is longer than %d bytes", LIMIT_FRAME);
        return failure_add_limit(ret_failure, "frame", frame_size, LIMIT_FRAME);
    }
    guard->frame_size = frame_size;
    guard->header_size = token->header_size;
    guard->payload_size = token->n;
    return event;
}

static int check_head(const struct guard *guard, uint64_t token_size, struct failure *ret_failure)
{
    if (guard->pos + token_size > LIMIT_HEAD) {
        fail(ret_failure, STATUS_TOO_BIG, NULL,
             "a message is longer than %d bytes without its payloads", LIMIT_HEAD);
        return failure_add_limit(ret_failure, "head", guard->pos + token_size, LIMIT_HEAD);
    }
    return 0;
}

/* Consume a scalar, or a string with its body.  0, GUARD_MORE or a failure. */
static int walk_value(struct guard *guard, const struct token *token, const uint8_t *head,
                      size_t size, struct failure *ret_failure)
{
    uint64_t body_size = token->kind == TOKEN_STR ? token->n : 0;
    int r;

    if (body_size > LIMIT_STRING) {
        fail(ret_failure, STATUS_TOO_BIG, NULL, "a string is longer than %d bytes", LIMIT_STRING);
        return failure_add_limit(ret_failure, "string", body_size, LIMIT_STRING);
    }
    r = check_head(guard, token->header_size + body_size, ret_failure);
    if (r < 0) {
        return r;
    }
    if (size - guard->pos < token->header_size + body_size) {
        return GUARD_MORE;
    }
    if (is_at_method(guard)) {
        guard->method =
            method_find((const char *)head + guard->pos + token->header_size, body_size);
    }
    consume(guard, token->header_size + body_size);
    finish_value(guard);
    return 0;
}

/* Walk over one token.  0: go on; else what guard_walk() returns. */
static int walk_token(struct guard *guard, const uint8_t *head, size_t size,
                      struct failure *ret_failure)
{
    struct token token = token_start(head[guard->pos]);
    int r;

    if (token.kind == TOKEN_BAD) {
        return fail(ret_failure, STATUS_PROTO, NULL, "byte 0x%02x starts no value here",
                    head[guard->pos]);
    }
    r = check_head(guard, token.header_size, ret_failure);
    if (r < 0) {
        return r;
    }
    if (size - guard->pos < token.header_size) {
        return GUARD_MORE;
    }
    token_read_number(&token, head + guard->pos);
    r = check_envelope(guard, &token, ret_failure);
    if (r < 0) {
        return r;
    }
    r = stop_reason(guard, &token);
    if (r > 0) {
        return stop_at_payload(guard, &token, r, ret_failure);
    }
    if (token.kind == TOKEN_ARRAY || token.kind == TOKEN_MAP) {
        return open_container(guard, &token, ret_failure);
    }
    return walk_value(guard, &token, head, size, ret_failure);
}

int guard_walk(struct guard *guard, const uint8_t *head, size_t size, struct failure *ret_failure)
{
    int r = 0;

    while (r == 0) {
        if (is_complete(guard)) {
            return GUARD_MESSAGE;
        }
        r = guard->pos < size ? walk_token(guard, head, size, ret_failure) : GUARD_MORE;
    }
    return r;
}

void guard_payload_taken(struct guard *guard)
{
    guard->pos++;
    guard->payload_index++;
    finish_value(guard);
}

uint32_t guard_missing(const struct guard *guard)
{
    uint32_t n = 0;

    for (uint32_t level = 0; level < guard->depth; level++) {
        bool is_innermost = level + 1 == guard->depth;

        /* An element that is an open container itself is completed by its own elements. */
        n += guard->left[level] - (is_innermost ? 0 : 1);
    }
    return n;
}
