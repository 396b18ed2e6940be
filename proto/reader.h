/*
 * Reader: turns the bytes of a stream socket into messages, and payload bytes into sinks.
 *
 * Shared by the daemon's sessions and the client library.  It owns the head buffer and the guard.
 * Payload bytes that came along with a head are copied once; all further ones are received by
 * recvmsg() straight into the sink, with a buffer behind it, so that one call ends a payload and
 * starts the next message.
 *
 * No callback may destroy the reader or call reader_read() or reader_resume().
 *
 * Any descriptor that arrives on the server's side ends the connection (see channel.h).  On the
 * client's they belong to the message that holds the last byte of the recvmsg() that brought them:
 * whole messages may lie before it in the same read, but a writer sends nothing of another message
 * together with descriptors, and Linux ends a read where they were sent.
 *
 * Owner and thread: whoever owns the socket; no locks.
 */
#pragma once

#include "proto/guard.h"

#include <sys/uio.h>

#define READER_SINK_PIECES 64

/* Where the bytes of one payload go, in order.  The pieces stay the callback's property. */
struct reader_sink {
    uint32_t n_pieces;
    struct iovec pieces[READER_SINK_PIECES];
};

struct reader_callbacks {
    /*
     * A payload's header has arrived.  prefix is the message up to there, completed with nils: it
     * decodes.  Returns 0 with a sink of exactly guard->payload_size bytes (it comes without
     * pieces: right for an empty payload), -EAGAIN (no room yet: reading stops, also for the end of
     * file, until reader_resume()), or another negative value (its bytes are drained).
     */
    int (*on_payload)(void *owner, const struct guard *guard, const uint8_t *prefix, size_t size,
                      struct reader_sink *ret_sink);
    /*
     * A payload's header has arrived where none belongs (GUARD_SERVER only).  Its bytes are drained
     * and it stands as nil in the message, which is to be answered with INVALID_PARAM.
     */
    void (*on_stray)(void *owner, const struct guard *guard);
    /*
     * A message is complete; each payload in it stands as nil.  A negative return ends reading, a
     * positive one pauses it, though more messages may be here already: reader_read() goes on.
     */
    int (*on_message)(void *owner, const struct guard *guard, const uint8_t *head, size_t size);
    /* The stream is out of step: answer if guard->has_msgid, then close. */
    void (*on_broken)(void *owner, const struct guard *guard, const struct failure *failure);
    /* GUARD_SERVER only, may be left out: to be called instead of channel_receive(). */
    ssize_t (*receive)(void *owner, int fd, const struct iovec *iov, size_t n_iov,
                       bool *ret_had_fds);
};

enum reader_outcome {
    READER_IDLE = 0, /* the socket has no more bytes */
    READER_BUDGET,   /* the budget is used up: there may be more */
    READER_BLOCKED,  /* on_payload had no room; reader_resume() goes on */
    READER_PAUSED,   /* on_message wants no more for now */
    READER_EOF,      /* the peer is gone, between two messages or within one */
    READER_STOPPED,  /* a callback ended it, or the stream broke */
};

struct reader;

int reader_create(struct reader **ret_reader, enum guard_role role,
                  const struct reader_callbacks *callbacks, void *owner);
void reader_destroy(struct reader *reader);

/* Receive and handle up to about budget bytes from fd.  An enum reader_outcome or -errno. */
int reader_read(struct reader *reader, int fd, size_t budget);

/*
 * Room may have come: ask on_payload again and go on with the bytes already here.  An enum
 * reader_outcome (READER_IDLE: go on reading the socket) or -errno.
 */
int reader_resume(struct reader *reader);

/*
 * The payload under way is no longer wanted: drain the rest of it.  May be called from a callback,
 * and for a payload that on_payload had no room for (reader_resume() then goes on).
 */
void reader_drain_payload(struct reader *reader);

/*
 * For GUARD_CLIENT: n descriptors, in their order, of the message at hand, or of the last before it
 * that had some: the caller's from here on.  False: it has not that many (left); none is taken.  It
 * has fewer than were sent where this process may not have so many, and never more than
 * CHANNEL_FDS_MAX.  Those never taken are closed when the next message with some is complete.
 */
bool reader_take_fds(struct reader *reader, int *ret_fds, uint32_t n);

/* Is a message under way (some of its bytes are here and others are not)? */
bool reader_is_within(const struct reader *reader);

/* Bytes of the payload under way that are not in its sink yet; 0: none is under way. */
uint64_t reader_payload_left(const struct reader *reader);

/* Bytes received since creation: what a minimum rate is measured on. */
uint64_t reader_received(const struct reader *reader);
