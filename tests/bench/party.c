/*
 * Party: orders go through a socket of packets, and one byte comes back when each is done; answers
 * lie in memory that both have.  See party.h.
 */
#include "tests/bench/party.h"

#include "proto/shm.h"
#include "proto/util.h"
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SHARED_SIZE (div_round_up(sizeof(struct party_answer), 4096) * 4096)

/* ---- the parent ----------------------------------------------------------------------------- */

/* Returns the child's end of the socket; *ret_answer_fd is of the shared memory. */
static int create(struct party *party, int *ret_answer_fd)
{
    void *memory;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        bench_fail("socketpair: %s", strerror(errno));
    }
    *ret_answer_fd = shm_create("answer", SHARED_SIZE);
    if (*ret_answer_fd < 0 || shm_map(*ret_answer_fd, SHARED_SIZE, &memory) < 0) {
        bench_fail("no shared memory for an answer");
    }
    party->answer = memory;
    party->fd = fds[0];
    return fds[1];
}

void party_fork(struct party *party,
                void (*serve)(int fd, struct party_answer *, const void *shape), const void *shape)
{
    int answer_fd, fd = create(party, &answer_fd);

    party->pid = bench_fork();
    if (party->pid == 0) {
        close(party->fd);
        serve(fd, party->answer, shape);
        _exit(EXIT_FAILURE);
    }
    close(fd);
    close(answer_fd);
}

static _Noreturn void become(const char *program, const char *what, const char *argument, int fd,
                             int answer_fd)
{
    char path[PATH_MAX + 32], fd_text[16], answer_text[16];

    bench_find(program, path, sizeof(path));
    snprintf(fd_text, sizeof(fd_text), "%d", fd);
    snprintf(answer_text, sizeof(answer_text), "%d", answer_fd);
    fcntl(fd, F_SETFD, 0);
    fcntl(answer_fd, F_SETFD, 0);
    execl(path, program, what, argument, fd_text, answer_text, NULL);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

void party_exec(struct party *party, const char *program, const char *what, const char *argument)
{
    int answer_fd, fd = create(party, &answer_fd);

    party->pid = bench_fork();
    if (party->pid == 0) {
        become(program, what, argument, fd, answer_fd);
    }
    close(fd);
    close(answer_fd);
}

void party_stop(struct party *party)
{
    if (party->pid == 0) {
        return;
    }
    close(party->fd);
    bench_end(party->pid);
    shm_unmap(party->answer, SHARED_SIZE);
    party->pid = 0;
}

void party_tell(const struct party *party, const struct party_order *order)
{
    if (send(party->fd, order, sizeof(*order), MSG_NOSIGNAL) != sizeof(*order)) {
        bench_fail("a party to the measurement is gone");
    }
}

bool party_try_wait(const struct party *party, int timeout_ms)
{
    struct pollfd waiting = {.fd = party->fd, .events = POLLIN};
    char byte;

    return poll(&waiting, 1, timeout_ms) == 1 && recv(party->fd, &byte, 1, 0) == 1;
}

void party_wait(const struct party *party)
{
    if (!party_try_wait(party, -1)) {
        bench_fail("a party to the measurement ended early");
    }
}

void party_tell_all(const struct party *parties, uint32_t n, const struct party_order *order)
{
    for (uint32_t i = 0; i < n; i++) {
        party_tell(&parties[i], order);
    }
}

uint64_t party_wait_all(const struct party *parties, uint32_t n)
{
    uint64_t n_bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        party_wait(&parties[i]);
        n_bytes += parties[i].answer->n_bytes;
    }
    return n_bytes;
}

/* ---- the party ------------------------------------------------------------------------------ */

int party_join(const char *fd, const char *answer_fd, struct party_answer **ret_answer)
{
    void *memory;

    if (shm_map(atoi(answer_fd), SHARED_SIZE, &memory) < 0) {
        bench_fail("no party without its parent");
    }
    *ret_answer = memory;
    return atoi(fd);
}

void party_serve(int fd, struct party_answer *answer, const struct party_side *side)
{
    struct party_order order;

    while (send(fd, "", 1, MSG_NOSIGNAL) == 1 &&
           recv(fd, &order, sizeof(order), 0) == sizeof(order)) {
        if (order.is_run) {
            *answer = (struct party_answer){0};
            side->run(side->state, &order, answer);
        } else {
            side->prepare(side->state, &order);
        }
    }
    _exit(EXIT_SUCCESS);
}
