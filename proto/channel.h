/*
 * Channel: Unix sockets, as this project uses them.  Bytes with or without descriptors, always
 * CLOEXEC, never SIGPIPE, addresses checked for length.
 *
 * Threads: plain functions over descriptors.
 */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define CHANNEL_FDS_MAX 8

/*
 * recvmsg(MSG_DONTWAIT).  Descriptors that a peer sent along never enter this process's table (the
 * kernel drops them); *ret_had_fds tells that there were any.  Returns bytes, 0 at end of file, or
 * -errno.
 */
ssize_t channel_receive(int fd, const struct iovec *iov, size_t n_iov, bool *ret_had_fds);

/*
 * The same, but descriptors are taken: up to max of them, in *ret_n_fds; further ones are closed.
 * It is fewer than were sent where this process may not have so many.
 *
 * What Linux does on a stream: they come with the first byte of the sendmsg that carried them.
 * Bytes of earlier sends without descriptors may lie before that byte in the same recvmsg, and
 * nothing tells how many.  But no recvmsg goes on behind that sendmsg's bytes: so its *last* byte
 * is always one that was sent together with the descriptors, and two sends' never mix.
 */
ssize_t channel_receive_fds(int fd, const struct iovec *iov, size_t n_iov, int *ret_fds,
                            uint32_t max, uint32_t *ret_n_fds);

/*
 * From now on, and of a listener for each connection that is made to it, the kernel refuses to send
 * descriptors here: whoever drops the last reference to one waits until it is closed, however long
 * its sender has made that.  0, or -errno: not before Linux 6.16.
 */
int channel_refuse_fds(int fd);

/* sendmsg(MSG_NOSIGNAL | MSG_DONTWAIT).  Returns bytes or -errno. */
ssize_t channel_send(int fd, const struct iovec *iov, size_t n_iov);
/*
 * The same with descriptors (at most CHANNEL_FDS_MAX) on the first byte.  They have left if any
 * byte has.  -ETOOMANYREFS: the kernel holds as many as it lets us have on their way, until their
 * receivers take some; poll() does not tell when.
 */
ssize_t channel_send_fds(int fd, const struct iovec *iov, size_t n_iov, const int *fds,
                         uint32_t n_fds);

/*
 * One packet with descriptors over a SOCK_SEQPACKET socket (front end, spawner, worker).  Blocking
 * as the socket is.
 *
 * channel_send_packet returns 0, or -errno with nothing sent.  -EAGAIN, on a blocking socket too:
 * not now, because it is full, or because this user has more descriptors on the way to somebody who
 * does not receive them than this process may have open; no poll tells when that has passed.
 *
 * channel_receive_packet returns the packet's size (0: end of file), stores at most *n_fds
 * descriptors in fds (further ones are closed) and their number in *n_fds; -EMSGSIZE if the packet
 * was longer than size.
 */
int channel_send_packet(int fd, const void *bytes, size_t size, const int *fds, uint32_t n_fds);
ssize_t channel_receive_packet(int fd, void *bytes, size_t size, int *fds, uint32_t *n_fds);

/* A connected SOCK_SEQPACKET pair, CLOEXEC, non-blocking if asked for.  0 or -errno. */
int channel_pair(bool is_nonblocking, int ret_fds[2]);

/* Rings that are drained at once: more than a socket buffer holds, so that a peer that keeps
 * ringing cannot keep us there. */
#define CHANNEL_DRAIN_MAX 1024

/*
 * A doorbell is one end of such a non-blocking pair.  Ring: a full socket means the other side is
 * awake already.  Drain: take everything that is there; true if anything was, false at EAGAIN; end
 * of file is reported through *ret_is_closed (may be NULL).  Drain some: at most so many rings.
 */
void channel_ring(int fd);
bool channel_drain(int fd, bool *ret_is_closed);
bool channel_drain_some(int fd, uint32_t max, bool *ret_is_closed);

/*
 * Connect to, or listen on, a Unix stream socket at path, non-blocking from then on.  Paths over
 * 107 bytes are refused (the kernel would cut them silently).  A listener takes a lock beside the
 * socket (path + ".lock"), removes a stale socket file, and never one that something listens on.
 * Returns the descriptor (and the lock's in *ret_lock_fd), or a negative status with *ret_failure.
 */
int channel_connect(const char *path, struct failure *ret_failure);
int channel_listen(const char *path, mode_t mode, int *ret_lock_fd, struct failure *ret_failure);
