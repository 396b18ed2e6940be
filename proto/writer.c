/*
 * Writer: the messages waiting to leave through a stream socket.
 *
 * A message is a list of iovecs, own bytes and referenced pieces mixed.  Own bytes lie in one
 * growing buffer, so while a message is being built its own pieces have no address yet (NULL);
 * writer_queue() fills the addresses in.  From then on the list shrinks from the front as its bytes
 * leave.
 *
 * A message with descriptors begins a sendmsg() of its own, and no other message is in it: only so
 * can a reader tell whose they are.  The first byte takes them all along; what is left of the
 * message then is like any other.
 *
 * Threads: whoever owns the socket.
 */
#include "proto/writer.h"

#include "proto/channel.h"
#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define WRITER_IOV_MAX 64 /* pieces of one sendmsg(); not tuned */

/* Of a budget each piece takes at least so much: to send a small message and to be done with it
 * takes as long as this many bytes. */
#define PIECE_COST 256u

/* What most messages need no more of: it is part of them. */
#define OWN_FIRST_SIZE 128
#define IOV_FIRST      4

#define MALLOC_OVERHEAD 16 /* glibc: a header of 8 bytes, and sizes are rounded up to 16 */

struct writer_message {
    struct writer_message *next;
    void (*on_sent)(void *arg, bool is_sent);
    void *arg;

    uint8_t *own; /* the bytes that were copied */
    size_t own_size;
    size_t own_capacity;

    int *fds; /* to go with the first byte; NULL: none, as nearly always */
    uint32_t n_fds;

    struct iovec *iov;
    size_t n_iov;
    size_t iov_capacity;
    size_t first;  /* the iovec that leaves next */
    uint64_t left; /* bytes that have not left yet */

    uint8_t own_first[OWN_FIRST_SIZE];
    struct iovec iov_first[IOV_FIRST];
};

struct writer {
    struct writer_message *first;
    struct writer_message **end; /* where the next message is linked */
    uint64_t waiting;
    uint64_t sent;
    size_t memory;
    ssize_t (*send)(void *arg, int fd, const struct iovec *iov, size_t n_iov); /* NULL: ours */
    void *send_arg;
};

int writer_create(struct writer **ret_writer)
{
    struct writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->end = &writer->first;
    *ret_writer = writer;
    return 0;
}

/* Constant once the message is queued; with what malloc adds to each block. */
static size_t memory_of(const struct writer_message *message)
{
    size_t size = sizeof(*message) + MALLOC_OVERHEAD;

    if (message->own != message->own_first) {
        size += message->own_capacity + MALLOC_OVERHEAD;
    }
    if (message->iov != message->iov_first) {
        size += message->iov_capacity * sizeof(message->iov[0]) + MALLOC_OVERHEAD;
    }
    return size;
}

static struct writer_message *remove_first(struct writer *writer)
{
    struct writer_message *message = writer->first;

    writer->memory -= memory_of(message);
    writer->first = message->next;
    if (writer->first == NULL) {
        writer->end = &writer->first;
    }
    message->next = NULL;
    return message;
}

static void drop_fds(struct writer_message *message)
{
    while (message->n_fds > 0) {
        close(message->fds[--message->n_fds]);
    }
    free(STEAL(message->fds));
}

static void free_message(struct writer_message *message)
{
    drop_fds(message);
    if (message->own != message->own_first) {
        free(message->own);
    }
    if (message->iov != message->iov_first) {
        free(message->iov);
    }
    free(message);
}

static void end_message(struct writer_message *message, bool is_sent)
{
    if (message->on_sent != NULL) {
        message->on_sent(message->arg, is_sent);
    }
    free_message(message);
}

void writer_destroy(struct writer *writer)
{
    if (writer == NULL) {
        return;
    }
    while (writer->first != NULL) {
        end_message(remove_first(writer), false);
    }
    free(writer);
}

void writer_send_by(struct writer *writer,
                    ssize_t (*send)(void *arg, int fd, const struct iovec *iov, size_t n_iov),
                    void *arg)
{
    writer->send = send;
    writer->send_arg = arg;
}

int writer_begin(struct writer_message **ret_message, void (*on_sent)(void *arg, bool is_sent),
                 void *arg)
{
    struct writer_message *message = calloc(1, sizeof(*message));

    if (message == NULL) {
        return -ENOMEM;
    }
    message->on_sent = on_sent;
    message->arg = arg;
    message->own = message->own_first;
    message->own_capacity = OWN_FIRST_SIZE;
    message->iov = message->iov_first;
    message->iov_capacity = IOV_FIRST;
    *ret_message = message;
    return 0;
}

/* Room for n more elements in a growing array, whose first place is not to be freed. */
static int reserve(void **array, const void *first, size_t *capacity, size_t used, size_t n,
                   size_t element_size)
{
    size_t wanted = *capacity;
    void *grown;

    if (*capacity - used >= n) {
        return 0;
    }
    while (wanted - used < n) {
        wanted *= 2;
    }
    grown = realloc(*array != first ? *array : NULL, wanted * element_size);
    if (grown == NULL) {
        return -ENOMEM;
    }
    if (*array == first) {
        memcpy(grown, first, used * element_size);
    }
    *array = grown;
    *capacity = wanted;
    return 0;
}

static int add_piece(struct writer_message *message, const void *base, size_t size)
{
    int r = reserve((void **)&message->iov, message->iov_first, &message->iov_capacity,
                    message->n_iov, 1, sizeof(*message->iov));

    if (r < 0) {
        return r;
    }
    message->iov[message->n_iov++] = (struct iovec){.iov_base = (void *)base, .iov_len = size};
    message->left += size;
    return 0;
}

int writer_add_copy(struct writer_message *message, const void *bytes, size_t size)
{
    struct iovec *last = message->n_iov > 0 ? &message->iov[message->n_iov - 1] : NULL;
    int r;

    if (size == 0) {
        return 0;
    }
    r = reserve((void **)&message->own, message->own_first, &message->own_capacity,
                message->own_size, size, 1);
    if (r < 0) {
        return r;
    }
    if (last != NULL && last->iov_base == NULL) {
        last->iov_len += size;
        message->left += size;
    } else {
        r = add_piece(message, NULL, size);
        if (r < 0) {
            return r;
        }
    }
    memcpy(message->own + message->own_size, bytes, size);
    message->own_size += size;
    return 0;
}

int writer_add_ref(struct writer_message *message, const void *bytes, size_t size)
{
    return size == 0 ? 0 : add_piece(message, bytes, size);
}

int writer_add_fds(struct writer_message *message, const int *fds, uint32_t n_fds)
{
    message->fds = calloc(n_fds, sizeof(*message->fds));
    if (message->fds == NULL) {
        return -ENOMEM;
    }
    while (message->n_fds < n_fds) {
        int fd = fcntl(fds[message->n_fds], F_DUPFD_CLOEXEC, 0);

        if (fd < 0) {
            return -errno;
        }
        message->fds[message->n_fds++] = fd;
    }
    return 0;
}

void writer_abandon(struct writer_message *message)
{
    if (message != NULL) {
        free_message(message);
    }
}

void writer_queue(struct writer *writer, struct writer_message *message)
{
    uint8_t *own = message->own;

    for (size_t i = 0; i < message->n_iov; i++) {
        if (message->iov[i].iov_base == NULL) {
            message->iov[i].iov_base = own;
            own += message->iov[i].iov_len;
        }
    }
    writer->waiting += message->left;
    writer->memory += memory_of(message);
    *writer->end = message;
    writer->end = &message->next;
}

/* May this message leave in one sendmsg() with the first? */
static bool goes_with_first(const struct writer *writer, const struct writer_message *message)
{
    return message == writer->first || (message->n_fds == 0 && writer->first->n_fds == 0);
}

/* Collect what leaves next, at most budget bytes; across messages, so that many small ones cost
 * one system call. */
static size_t gather(const struct writer *writer, size_t budget, struct iovec iov[WRITER_IOV_MAX])
{
    size_t n = 0;

    for (const struct writer_message *m = writer->first; m != NULL && goes_with_first(writer, m);
         m = m->next) {
        for (size_t i = m->first; i < m->n_iov; i++) {
            if (n == WRITER_IOV_MAX || budget == 0) {
                return n;
            }
            iov[n] = m->iov[i];
            iov[n].iov_len = MIN(iov[n].iov_len, budget);
            budget -= iov[n].iov_len;
            n++;
        }
    }
    return n;
}

/* Take up to size bytes off the message's front; returns how many. */
static size_t advance(struct writer_message *message, size_t size)
{
    size_t taken = 0;

    while (message->left > 0 && taken < size) {
        struct iovec *piece = &message->iov[message->first];
        size_t n = MIN(piece->iov_len, size - taken);

        piece->iov_base = (uint8_t *)piece->iov_base + n;
        piece->iov_len -= n;
        message->left -= n;
        taken += n;
        if (piece->iov_len == 0) {
            message->first++;
        }
    }
    return taken;
}

/* Size bytes have left: account for all of them before any callback sees the writer. */
static void retire(struct writer *writer, size_t size)
{
    struct writer_message *done = NULL;
    struct writer_message **done_end = &done;

    writer->waiting -= size;
    writer->sent += size;
    while (writer->first != NULL) {
        size -= advance(writer->first, size);
        if (writer->first->left > 0) {
            break;
        }
        *done_end = remove_first(writer);
        done_end = &(*done_end)->next;
    }
    while (done != NULL) {
        struct writer_message *message = done;

        done = message->next;
        end_message(message, true);
    }
}

static ssize_t send_bytes(const struct writer *writer, int fd, const struct iovec *iov,
                          size_t n_iov)
{
    const struct writer_message *first = writer->first;

    return writer->send != NULL && first->n_fds == 0
               ? writer->send(writer->send_arg, fd, iov, n_iov)
               : channel_send_fds(fd, iov, n_iov, first->fds, first->n_fds);
}

int writer_send(struct writer *writer, int fd, size_t budget)
{
    while (writer->first != NULL) {
        struct writer_message *first = writer->first;
        struct iovec iov[WRITER_IOV_MAX];
        size_t n_iov, cost;
        ssize_t n;

        if (first->left == 0) { /* the next one's descriptors need a byte of their own message */
            retire(writer, 0);
            continue;
        }
        n_iov = gather(writer, budget, iov);
        if (n_iov == 0) {
            return 0;
        }
        n = send_bytes(writer, fd, iov, n_iov);
        if (n < 0) {
            return n == -EAGAIN ? 0 : (int)n;
        }
        drop_fds(first);
        cost = MAX((size_t)n, n_iov * PIECE_COST);
        budget -= MIN(budget, cost);
        retire(writer, (size_t)n);
    }
    return 1;
}

bool writer_is_empty(const struct writer *writer)
{
    return writer->first == NULL;
}

uint64_t writer_sent(const struct writer *writer)
{
    return writer->sent;
}

size_t writer_memory(const struct writer *writer)
{
    return writer->memory;
}
