/*
 * Writer: the messages waiting to leave through a stream socket, in order.
 *
 * A message is a small head that the writer owns, interleaved with payload pieces that stay their
 * owner's (pinned segments) until on_sent.  Shared by the daemon's sessions and the client library.
 *
 * Owner and thread: whoever owns the socket; no locks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct writer;
struct writer_message;

int writer_create(struct writer **ret_writer);
/* Have send() called instead of channel_send(). */
void writer_send_by(struct writer *writer,
                    ssize_t (*send)(void *arg, int fd, const struct iovec *iov, size_t n_iov),
                    void *arg);
/* Calls on_sent of everything still waiting, with is_sent = false. */
void writer_destroy(struct writer *writer);

/*
 * Start a message.  on_sent (may be NULL) is called exactly once: when the message's last byte has
 * been handed to the kernel, or when the writer is destroyed before that.  It may append messages.
 */
int writer_begin(struct writer_message **ret_message, void (*on_sent)(void *arg, bool is_sent),
                 void *arg);
/* Append a copy of these bytes. */
int writer_add_copy(struct writer_message *message, const void *bytes, size_t size);
/* Append these bytes by reference; they must stay untouched until on_sent. */
int writer_add_ref(struct writer_message *message, const void *bytes, size_t size);
/*
 * Have descriptors (at most CHANNEL_FDS_MAX, once) go with the message's first byte; copies are
 * kept until then.  No byte of another message is sent together with them: they are those of the
 * message that the last byte of the recvmsg() that brings them belongs to.  0 or -errno.
 */
int writer_add_fds(struct writer_message *message, const int *fds, uint32_t n_fds);
/* Give up a message that was begun and not queued; on_sent is not called. */
void writer_abandon(struct writer_message *message);
/* Queue it; the writer owns it from here. */
void writer_queue(struct writer *writer, struct writer_message *message);

/*
 * Send up to about budget bytes, fewer of many small pieces.  Returns 1 when all has left, 0 when
 * something waits (socket full or budget used up), or -errno (-EPIPE: the peer is gone;
 * -ETOOMANYREFS: something waits for others to take their descriptors, which poll() does not tell:
 * try again later).  Never raises SIGPIPE.
 */
int writer_send(struct writer *writer, int fd, size_t budget);

bool writer_is_empty(const struct writer *writer);
/* Bytes sent since creation. */
uint64_t writer_sent(const struct writer *writer);
/* What the waiting messages take of our memory: all but what they refer to. */
size_t writer_memory(const struct writer *writer);
