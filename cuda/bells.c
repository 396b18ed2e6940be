/*
 * Bells: a set of epoll, whose descriptor can be waited for as a doorbell can.
 *
 * The worker's own is level-triggered: it is drained.  The clients' are edge-triggered: nobody
 * drains them here, and one that stays full must not keep the thread from sleeping.
 */
#include "cuda/bells.h"

#include "proto/util.h"
#include "proto/worker_abi.h"

#include <errno.h>
#include <sys/epoll.h>

struct bells {
    int epoll_fd;
    int fds[WORKER_BELLS]; /* -1: none */
};

int bells_create(int doorbell_fd, struct bells **ret_bells)
{
    struct epoll_event own = {.events = EPOLLIN, .data.u32 = WORKER_BELLS};
    struct bells *bells = malloc(sizeof(*bells));

    if (bells == NULL) {
        return -ENOMEM;
    }
    for (uint32_t id = 0; id < WORKER_BELLS; id++) {
        bells->fds[id] = -1;
    }
    bells->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bells->epoll_fd < 0 || epoll_ctl(bells->epoll_fd, EPOLL_CTL_ADD, doorbell_fd, &own) < 0) {
        int error = errno;

        bells_destroy(bells);
        return -error;
    }
    *ret_bells = bells;
    return 0;
}

void bells_destroy(struct bells *bells)
{
    if (bells == NULL) {
        return;
    }
    for (uint32_t id = 0; id < WORKER_BELLS; id++) {
        bells_drop(bells, id);
    }
    close_fd(&bells->epoll_fd);
    free(bells);
}

int bells_add(struct bells *bells, uint32_t id, int fd)
{
    struct epoll_event bell = {.events = EPOLLIN | EPOLLET, .data.u32 = id};

    if (id >= WORKER_BELLS) {
        return -ERANGE;
    }
    if (bells->fds[id] >= 0) {
        return -EEXIST;
    }
    bells->fds[id] = fd;
    epoll_ctl(bells->epoll_fd, EPOLL_CTL_ADD, fd, &bell);
    return 0;
}

int bells_drop(struct bells *bells, uint32_t id)
{
    if (id >= WORKER_BELLS || bells->fds[id] < 0) {
        return -ENOENT;
    }
    /* To close it is not enough: the front end has it open as well. */
    epoll_ctl(bells->epoll_fd, EPOLL_CTL_DEL, bells->fds[id], NULL);
    close_fd(&bells->fds[id]);
    return 0;
}

int bells_fd(const struct bells *bells)
{
    return bells->epoll_fd;
}

bool bells_rang(struct bells *bells)
{
    struct epoll_event events[WORKER_BELLS + 1];
    int n = epoll_wait(bells->epoll_fd, events, ARRAY_SIZE(events), 0);
    bool has_rung = false;

    for (int i = 0; i < n; i++) {
        has_rung |= events[i].data.u32 < WORKER_BELLS;
    }
    return has_rung;
}
