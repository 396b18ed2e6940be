/*
 * Reader: from the bytes of a stream socket to messages and payloads.
 *
 * Two buffers.  `input` holds what one recvmsg() brought and nothing has looked at yet; it is empty
 * whenever more is received.  `head` holds the message under way without its payload bytes,
 * contiguous, as the guard wants it.  Bytes go from input to head in small steps; those that turn
 * out to lie behind a payload's header or a message's end are handed back to input by moving an
 * offset.  So nothing is ever shifted, and no sequence of messages costs more than a few copies of
 * each byte.
 *
 * States:
 *     HEAD      -> ASKING    the guard met a payload
 *               -> DRAINING  the guard met a payload where none belongs
 *               -> STOPPED   out of step, a descriptor, or on_message() said so
 *     ASKING    -> FILLING   on_payload() gave a sink
 *               -> DRAINING  on_payload() or reader_drain_payload() refused it
 *               (stays while on_payload() has no room)
 *     FILLING   -> DRAINING  reader_drain_payload()
 *               -> HEAD      its last byte is in the sink
 *     DRAINING  -> HEAD      its last byte is gone
 *
 * Descriptors of one read are `fresh` until it is known whether they belong to the message under
 * way: when that ends with the read's last byte, or when more is received first.  Then they are
 * among its `own`, and `complete` with it, for whoever takes them.
 *
 * Threads: whoever owns the socket.
 */
#include "proto/reader.h"

#include "proto/channel.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_SIZE 65536u /* what a read of heads, or of a drained payload, brings at most */

/* Bytes that go to the head between two looks of the guard.  Few, because those behind a payload's
 * header or a message's end are copied again. */
#define HEAD_STEP 512u

/* The guard lets no head past LIMIT_HEAD; behind it there is room for one step or all the nils. */
#define HEAD_SIZE (LIMIT_HEAD + LIMIT_ELEMENTS)
_Static_assert(HEAD_STEP <= LIMIT_ELEMENTS, "a step fits behind the head");

#define MSGPACK_NIL 0xc0

enum reader_state { STATE_HEAD, STATE_ASKING, STATE_FILLING, STATE_DRAINING, STATE_STOPPED };

struct fds {
    uint32_t n;
    int fds[CHANNEL_FDS_MAX];
};

struct reader {
    const struct reader_callbacks *callbacks;
    void *owner;
    enum reader_state state;
    struct guard guard;
    uint64_t n_received;
    struct fds complete; /* of the last whole message that had some, not taken yet */
    struct fds own;      /* of the message under way */
    struct fds fresh;    /* of the message that the last byte received belongs to */

    /* The payload under way. */
    uint64_t payload_left;
    struct reader_sink sink;
    uint32_t piece;    /* of the sink, that is filled next */
    size_t piece_used; /* bytes of it that are filled */

    size_t head_size; /* valid bytes */
    size_t input_start;
    size_t input_end;
    uint8_t head[HEAD_SIZE];
    uint8_t input[INPUT_SIZE];
};

/* Between the steps: go on with what is in the input.  The others are enum reader_outcome. */
#define GO_ON (-1)

int reader_create(struct reader **ret_reader, enum guard_role role,
                  const struct reader_callbacks *callbacks, void *owner)
{
    struct reader *reader = malloc(sizeof(*reader));

    if (reader == NULL) {
        return -ENOMEM;
    }
    /* The buffers stay untouched, hence without memory, until bytes come. */
    memset(reader, 0, offsetof(struct reader, head));
    reader->callbacks = callbacks;
    reader->owner = owner;
    guard_reset(&reader->guard, role);
    *ret_reader = reader;
    return 0;
}

static void close_fds(struct fds *fds)
{
    while (fds->n > 0) {
        close(fds->fds[--fds->n]);
    }
}

void reader_destroy(struct reader *reader)
{
    if (reader == NULL) {
        return;
    }
    close_fds(&reader->complete);
    close_fds(&reader->own);
    close_fds(&reader->fresh);
    free(reader);
}

/* The fresh descriptors are the message's under way. */
static void own_fresh(struct reader *reader)
{
    struct fds *own = &reader->own, *fresh = &reader->fresh;

    for (uint32_t i = 0; i < fresh->n; i++) {
        if (own->n < CHANNEL_FDS_MAX) {
            own->fds[own->n++] = fresh->fds[i];
        } else {
            close(fresh->fds[i]);
        }
    }
    fresh->n = 0;
}

/* The message under way is at its end, and what lies in the input is behind it. */
static void complete_fds(struct reader *reader)
{
    if (reader->input_start == reader->input_end) {
        own_fresh(reader);
    }
    if (reader->own.n > 0) {
        close_fds(&reader->complete);
        reader->complete = reader->own;
        reader->own.n = 0;
    }
}

static size_t input_left(const struct reader *reader)
{
    return reader->input_end - reader->input_start;
}

static int stop(struct reader *reader)
{
    reader->state = STATE_STOPPED;
    return READER_STOPPED;
}

static int break_off(struct reader *reader, const struct failure *failure)
{
    reader->state = STATE_STOPPED;
    reader->callbacks->on_broken(reader->owner, &reader->guard, failure);
    return READER_STOPPED;
}

/* Hand back to the input what the head holds behind its first size bytes. */
static void cut_head(struct reader *reader, size_t size)
{
    reader->input_start -= reader->head_size - size;
    reader->head_size = size;
}

static int deliver_message(struct reader *reader)
{
    enum guard_role role = reader->guard.role;
    int r;

    cut_head(reader, reader->guard.pos);
    complete_fds(reader);
    r = reader->callbacks->on_message(reader->owner, &reader->guard, reader->head,
                                      reader->head_size);
    if (r < 0) {
        return stop(reader);
    }
    guard_reset(&reader->guard, role);
    reader->head_size = 0;
    return r > 0 ? READER_PAUSED : GO_ON;
}

static void begin_payload(struct reader *reader, enum reader_state state)
{
    cut_head(reader, reader->guard.pos + reader->guard.header_size);
    reader->head_size = reader->guard.pos;
    reader->payload_left = reader->guard.payload_size;
    reader->state = state;
}

static int walk_head(struct reader *reader)
{
    size_t n = MIN(input_left(reader), (size_t)HEAD_STEP);
    struct failure failure;
    int event;

    memcpy(reader->head + reader->head_size, reader->input + reader->input_start, n);
    reader->head_size += n;
    reader->input_start += n;
    event = guard_walk(&reader->guard, reader->head, reader->head_size, &failure);
    switch (event) {
    case GUARD_MORE:
        return input_left(reader) > 0 ? GO_ON : READER_IDLE;
    case GUARD_MESSAGE:
        return deliver_message(reader);
    case GUARD_PAYLOAD:
        begin_payload(reader, STATE_ASKING);
        return GO_ON;
    case GUARD_STRAY:
        begin_payload(reader, STATE_DRAINING);
        reader->callbacks->on_stray(reader->owner, &reader->guard);
        return GO_ON;
    default:
        return break_off(reader, &failure);
    }
}

static uint64_t sink_size(const struct reader_sink *sink)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < sink->n_pieces; i++) {
        size += sink->pieces[i].iov_len;
    }
    return size;
}

static int ask(struct reader *reader)
{
    uint32_t n_nils = guard_missing(&reader->guard);
    int r;

    memset(reader->head + reader->head_size, MSGPACK_NIL, n_nils);
    reader->sink.n_pieces = 0;
    r = reader->callbacks->on_payload(reader->owner, &reader->guard, reader->head,
                                      reader->head_size + n_nils, &reader->sink);
    if (reader->state != STATE_ASKING) {
        return GO_ON; /* the callback called reader_drain_payload() */
    }
    if (r == -EAGAIN) {
        return READER_BLOCKED;
    }
    if (r < 0) {
        reader->state = STATE_DRAINING;
        return GO_ON;
    }
    assert(reader->sink.n_pieces <= READER_SINK_PIECES);
    assert(sink_size(&reader->sink) == reader->payload_left);
    reader->piece = 0;
    reader->piece_used = 0;
    reader->state = STATE_FILLING;
    return GO_ON;
}

/* Size more bytes of the payload are where they belong. */
static void advance_payload(struct reader *reader, size_t size)
{
    reader->payload_left -= size;
    while (reader->state == STATE_FILLING && size > 0) {
        size_t n = MIN(size, reader->sink.pieces[reader->piece].iov_len - reader->piece_used);

        reader->piece_used += n;
        size -= n;
        if (reader->piece_used == reader->sink.pieces[reader->piece].iov_len) {
            reader->piece++;
            reader->piece_used = 0;
        }
    }
}

/* The free places of the sink, at most room bytes of them. */
static size_t sink_places(const struct reader *reader, size_t room,
                          struct iovec ret_iov[READER_SINK_PIECES])
{
    size_t used = reader->piece_used;
    size_t n = 0;

    for (uint32_t i = reader->piece; i < reader->sink.n_pieces && room > 0; i++) {
        const struct iovec *piece = &reader->sink.pieces[i];
        size_t size = MIN(piece->iov_len - used, room);

        ret_iov[n++] = (struct iovec){(uint8_t *)piece->iov_base + used, size};
        room -= size;
        used = 0;
    }
    return n;
}

static void copy_to_sink(struct reader *reader, size_t size)
{
    struct iovec places[READER_SINK_PIECES];
    size_t n_places = sink_places(reader, size, places);
    const uint8_t *from = reader->input + reader->input_start;

    for (size_t i = 0; i < n_places; i++) {
        memcpy(places[i].iov_base, from, places[i].iov_len);
        from += places[i].iov_len;
    }
}

/* Payload bytes that came with the head, or that are drained. */
static int take_payload(struct reader *reader)
{
    size_t n = MIN(input_left(reader), reader->payload_left);

    if (reader->state == STATE_FILLING) {
        copy_to_sink(reader, n);
    }
    advance_payload(reader, n);
    reader->input_start += n;
    if (reader->payload_left > 0) {
        return READER_IDLE;
    }
    reader->head[reader->head_size++] = MSGPACK_NIL;
    guard_payload_taken(&reader->guard);
    reader->state = STATE_HEAD;
    return GO_ON;
}

/* Go on until the input is used up (READER_IDLE), or a callback has no room or ends it. */
static int handle_input(struct reader *reader)
{
    int r = GO_ON;

    while (r == GO_ON) {
        switch (reader->state) {
        case STATE_HEAD:
            r = walk_head(reader);
            break;
        case STATE_ASKING:
            r = ask(reader);
            break;
        case STATE_FILLING:
        case STATE_DRAINING:
            r = take_payload(reader);
            break;
        case STATE_STOPPED:
            r = READER_STOPPED;
            break;
        }
    }
    return r;
}

static ssize_t receive_bytes(struct reader *reader, int fd, const struct iovec *iov, size_t n_iov,
                             bool *ret_had_fds)
{
    if (reader->callbacks->receive != NULL) {
        return reader->callbacks->receive(reader->owner, fd, iov, n_iov, ret_had_fds);
    }
    if (reader->guard.role == GUARD_SERVER) {
        return channel_receive(fd, iov, n_iov, ret_had_fds);
    }
    own_fresh(reader);
    *ret_had_fds = false;
    return channel_receive_fds(fd, iov, n_iov, reader->fresh.fds, CHANNEL_FDS_MAX,
                               &reader->fresh.n);
}

/* One recvmsg() of at most room bytes: to the sink first, to the input behind it. */
static ssize_t receive(struct reader *reader, int fd, size_t room, bool *ret_had_fds)
{
    struct iovec iov[READER_SINK_PIECES + 1];
    size_t n_iov = 0;
    size_t sink_room = 0;
    ssize_t n;

    if (reader->state == STATE_FILLING) {
        sink_room = MIN(reader->payload_left, room);
        n_iov = sink_places(reader, sink_room, iov);
    }
    if (room > sink_room) {
        iov[n_iov++] = (struct iovec){reader->input, MIN(room - sink_room, (size_t)INPUT_SIZE)};
    }
    n = receive_bytes(reader, fd, iov, n_iov, ret_had_fds);
    if (n > 0) {
        size_t n_in_sink = MIN((size_t)n, sink_room);

        advance_payload(reader, n_in_sink);
        reader->input_start = 0;
        reader->input_end = (size_t)n - n_in_sink;
        reader->n_received += (uint64_t)n;
    }
    return n;
}

int reader_read(struct reader *reader, int fd, size_t budget)
{
    int outcome = reader->state == STATE_ASKING ? READER_BLOCKED : handle_input(reader);

    while (outcome == READER_IDLE) {
        struct failure failure;
        bool had_fds;
        ssize_t n;

        if (budget == 0) {
            return READER_BUDGET;
        }
        n = receive(reader, fd, budget, &had_fds);
        if (n <= 0) {
            return n == -EAGAIN ? READER_IDLE : n == 0 ? READER_EOF : (int)n;
        }
        if (had_fds) {
            fail(&failure, STATUS_PROTO, NULL, "this socket takes no descriptors");
            return break_off(reader, &failure);
        }
        budget -= (size_t)n;
        outcome = handle_input(reader);
    }
    return outcome;
}

int reader_resume(struct reader *reader)
{
    return handle_input(reader);
}

void reader_drain_payload(struct reader *reader)
{
    if (reader->state == STATE_ASKING || reader->state == STATE_FILLING) {
        reader->state = STATE_DRAINING;
    }
}

bool reader_take_fds(struct reader *reader, int *ret_fds, uint32_t n)
{
    struct fds *complete = &reader->complete;

    if (complete->n < n) {
        return false;
    }
    memcpy(ret_fds, complete->fds, n * sizeof(int));
    complete->n -= n;
    memmove(complete->fds, complete->fds + n, complete->n * sizeof(int));
    return true;
}

bool reader_is_within(const struct reader *reader)
{
    return reader->state != STATE_STOPPED && (reader->state != STATE_HEAD || reader->head_size > 0);
}

uint64_t reader_payload_left(const struct reader *reader)
{
    return reader->state == STATE_HEAD || reader->state == STATE_STOPPED ? 0 : reader->payload_left;
}

uint64_t reader_received(const struct reader *reader)
{
    return reader->n_received;
}
