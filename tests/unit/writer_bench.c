/*
 * Writer bench: a writer over a socketpair, and what its callbacks said.
 */
#include "tests/unit/writer_bench.h"

#include "proto/util.h"
#include "tests/check.h"

#include <sys/socket.h>

struct writer *writer;
int sockets[2];
unsigned n_sent[WRITER_MESSAGES_MAX];
unsigned n_lost[WRITER_MESSAGES_MAX];
unsigned last_sent;

static void close_all(void *arg)
{
    (void)arg;
    writer_destroy(writer);
    close_fd(&sockets[0]);
    close_fd(&sockets[1]);
}

void writer_open(void)
{
    memset(n_sent, 0, sizeof(n_sent));
    memset(n_lost, 0, sizeof(n_lost));
    last_sent = WRITER_MESSAGES_MAX;
    CHECK_EQ(writer_create(&writer), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    check_at_end(close_all, NULL);
}

void *writer_number(unsigned n)
{
    return (void *)(uintptr_t)n;
}

void writer_count(void *arg, bool is_sent)
{
    unsigned n = (unsigned)(uintptr_t)arg;

    (is_sent ? n_sent : n_lost)[n]++;
    last_sent = n;
}

struct writer_message *writer_message(unsigned n)
{
    struct writer_message *message = NULL;

    CHECK_EQ(writer_begin(&message, writer_count, writer_number(n)), 0);
    return message;
}
