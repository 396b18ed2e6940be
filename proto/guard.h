/*
 * Guard: walks the bytes of one MessagePack-RPC message as they arrive, before anything decodes or
 * allocates for them.
 *
 * It counts levels, values and bytes against limits.h (msgpack-c has no limits of its own: five
 * bytes declaring a huge array make it reserve gigabytes), rejects what is not an array of three or
 * four with a message type in front, and stops at a payload's header so that the payload's bytes
 * can be received straight into their final place.
 *
 * What is a payload: on the server, an element (bin or str) of the array that is the method's
 * payload parameter; on the client, every bin.  A bin anywhere else on the server makes the guard
 * report GUARD_STRAY: it is refused at its header, and its bytes are drained.
 *
 * The caller keeps the message's head (everything but payload bytes) contiguous, LIMIT_HEAD bytes
 * at most.  At a payload it replaces the payload's header by one nil (0xc0) at guard.pos, has the
 * payload's bytes received elsewhere, and calls guard_walk() again with the head as it then is.
 *
 * Owner and thread: a plain value, owned by whoever reads the socket.
 */
#pragma once

#include "proto/limits.h"
#include "proto/methods.h"
#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum guard_role { GUARD_SERVER, GUARD_CLIENT };

enum guard_event {
    GUARD_MORE = 1, /* the head ends within a token or between two: append bytes, call again */
    GUARD_PAYLOAD,  /* guard.payload_* describe it; guard.pos is its header's first byte */
    GUARD_STRAY,    /* likewise, but no payload belongs there */
    GUARD_MESSAGE,  /* complete; guard.pos is the first byte after the message */
};

struct guard {
    enum guard_role role;
    size_t pos;          /* bytes of the head walked so far */
    uint64_t frame_size; /* bytes of the whole message so far, payloads included */
    uint32_t n_elements; /* values declared so far */
    uint32_t depth;
    uint32_t left[LIMIT_DEPTH];  /* values still missing on each open level */
    uint32_t index[LIMIT_DEPTH]; /* values already finished on each open level */
    bool is_map[LIMIT_DEPTH];    /* else the level is an array */

    /* Known once walked past; what the server needs to answer an error in step. */
    int type; /* 0 request, 1 response, 2 notification; -1 = not yet */
    bool has_msgid;
    uint32_t msgid;
    size_t msgid_end;   /* the first byte behind it */
    enum method method; /* METHOD_COUNT = not yet, or unknown */

    /* Valid after GUARD_PAYLOAD and GUARD_STRAY. */
    uint32_t payload_index; /* 0, 1, ... within this message, strays included */
    uint32_t header_size;   /* bytes of the payload's header */
    uint64_t payload_size;  /* bytes of the payload itself */
};

/* Ready for the next message. */
void guard_reset(struct guard *guard, enum guard_role role);

/*
 * Walk on through head[guard->pos .. size).  Returns an enum guard_event, or a negative status with
 * *ret_failure filled: PROTO (not the protocol, over DEPTH or ELEMENTS) or TOO_BIG (over HEAD,
 * FRAME or STRING).  After an error the stream is out of step and the connection must close.
 */
int guard_walk(struct guard *guard, const uint8_t *head, size_t size, struct failure *ret_failure);

/*
 * Tell the guard that the payload header at guard->pos was replaced by one nil.  The bytes of the
 * payload are counted as part of the frame already.
 */
void guard_payload_taken(struct guard *guard);

/*
 * How many nils complete the head at guard->pos into a whole MessagePack value, the payload under
 * way included: what lets a handler decode the part of a message that precedes its payload.
 */
uint32_t guard_missing(const struct guard *guard);
