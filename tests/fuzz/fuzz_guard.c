/*
 * Fuzz target: the guard, in both roles.
 *
 * The input is a stream of messages.  It is walked as a reader would, first whole, then byte by
 * byte, then cut at places that the input itself decides; all three must tell the same story.
 */
#include "proto/guard.h"
#include "proto/util.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum cut { CUT_NOWHERE, CUT_EVERYWHERE, CUT_SOMEWHERE };

struct walk {
    const uint8_t *bytes;
    size_t size;
    size_t at; /* the next byte to append to the head */
    enum cut cut;
    uint64_t random;

    struct guard guard;
    uint8_t *head;
    size_t head_size;

    uint64_t story; /* a hash of all that the guard said */
};

/* FNV-1a over the eight bytes of value. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ (value >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static size_t next_piece(struct walk *walk)
{
    size_t left = walk->size - walk->at;

    if (walk->cut == CUT_NOWHERE) {
        return left;
    }
    if (walk->cut == CUT_EVERYWHERE) {
        return MIN(left, (size_t)1);
    }
    walk->random = mix(walk->random, walk->at);
    return MIN(left, (size_t)(1 + (walk->random >> 40) % 40));
}

static void tell(struct walk *walk, int event)
{
    const struct guard *guard = &walk->guard;

    MUST(guard->pos <= walk->head_size);
    MUST(guard->depth <= LIMIT_DEPTH);
    MUST(guard->n_elements <= LIMIT_ELEMENTS);
    MUST(guard->frame_size <= LIMIT_FRAME);
    MUST(event < 0 || guard->pos <= LIMIT_HEAD);
    walk->story = mix(walk->story, (uint64_t)event);
    walk->story = mix(walk->story, guard->pos);
    walk->story = mix(walk->story, guard->frame_size);
    walk->story = mix(walk->story, (uint64_t)guard->type);
    walk->story = mix(walk->story, guard->has_msgid ? guard->msgid : UINT64_MAX);
    walk->story = mix(walk->story, guard->method);
}

static void take_payload(struct walk *walk, int event)
{
    struct guard *guard = &walk->guard;

    MUST(guard->role == GUARD_SERVER || event == GUARD_PAYLOAD);
    MUST(guard_missing(guard) >= 1 && guard_missing(guard) <= LIMIT_ELEMENTS);
    walk->story = mix(walk->story, guard->payload_size);
    walk->story = mix(walk->story, guard->header_size);
    walk->story = mix(walk->story, guard->payload_index);
    walk->story = mix(walk->story, guard_missing(guard));
    walk->at -= walk->head_size - guard->pos - guard->header_size;
    walk->at += MIN(guard->payload_size, walk->size - walk->at);
    walk->head_size = guard->pos;
    walk->head[walk->head_size++] = 0xc0;
    guard_payload_taken(guard);
}

static void next_message(struct walk *walk)
{
    enum guard_role role = walk->guard.role;

    walk->at -= walk->head_size - walk->guard.pos;
    walk->head_size = 0;
    guard_reset(&walk->guard, role);
}

static void append(struct walk *walk)
{
    size_t n = next_piece(walk);

    memcpy(walk->head + walk->head_size, walk->bytes + walk->at, n);
    walk->head_size += n;
    walk->at += n;
}

static uint64_t walk_stream(struct walk *walk, enum guard_role role)
{
    int event = GUARD_MORE;

    guard_reset(&walk->guard, role);
    while (event > 0 && (event != GUARD_MORE || walk->at < walk->size)) {
        size_t pos = walk->guard.pos;
        struct failure failure;

        if (event == GUARD_MORE) {
            append(walk);
        }
        event = guard_walk(&walk->guard, walk->head, walk->head_size, &failure);
        MUST(walk->guard.pos >= pos);
        MUST(event > 0 || (int)failure.status == -event);
        if (event != GUARD_MORE) {
            tell(walk, event);
        }
        if (event == GUARD_PAYLOAD || event == GUARD_STRAY) {
            take_payload(walk, event);
        } else if (event == GUARD_MESSAGE) {
            next_message(walk);
            event = GUARD_MORE;
        }
    }
    return walk->story;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *head = malloc(size + 1);

    MUST(head != NULL);
    for (enum guard_role role = GUARD_SERVER; role <= GUARD_CLIENT; role++) {
        uint64_t stories[3];

        for (enum cut cut = CUT_NOWHERE; cut <= CUT_SOMEWHERE; cut++) {
            struct walk walk = {.bytes = bytes, .size = size, .cut = cut, .head = head};

            walk.random = size > 0 ? mix(size, bytes[size / 2]) : 0;
            stories[cut] = walk_stream(&walk, role);
        }
        MUST(stories[CUT_EVERYWHERE] == stories[CUT_NOWHERE]);
        MUST(stories[CUT_SOMEWHERE] == stories[CUT_NOWHERE]);
    }
    free(head);
    return 0;
}
