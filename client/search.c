/*
 * Finding the daemon's socket: the candidates in their order, until one is connected.
 *
 * Threads: plain functions.
 */
#include "client/search.h"

#include "proto/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_SOCKET "/run/gpupiped/rpc.sock"
#define USER_SOCKET   "gpupiped/rpc.sock"

static void add_candidate(struct search *search, const char *why, const char *folder,
                          const char *path)
{
    uint32_t i = search->n_tried++;

    search->tried[i].why = why;
    /* A path that is cut here is far beyond what channel_connect() accepts. */
    snprintf(search->tried[i].path, sizeof(search->tried[i].path), "%s%s%s", folder,
             folder[0] == '\0' ? "" : "/", path);
}

/* Fills in paths and whys; returns how many there are, and leaves n_tried at 0. */
static uint32_t list_candidates(const char *socket_path, struct search *search)
{
    const char *from_environment = getenv("GPUPIPE_SOCKET");
    const char *runtime_dir = getenv("XDG_RUNTIME_DIR");
    uint32_t n_candidates;

    memset(search, 0, sizeof(*search));
    if (socket_path != NULL) {
        add_candidate(search, "--socket", "", socket_path);
    } else if (from_environment != NULL && from_environment[0] != '\0') {
        add_candidate(search, "GPUPIPE_SOCKET", "", from_environment);
    } else {
        if (runtime_dir != NULL && runtime_dir[0] == '/') {
            add_candidate(search, "the user's own, in XDG_RUNTIME_DIR", runtime_dir, USER_SOCKET);
        }
        add_candidate(search, "the system's", "", SYSTEM_SOCKET);
    }
    n_candidates = search->n_tried;
    search->n_tried = 0;
    return n_candidates;
}

/* The candidates from this one on, until one is connected. */
static int try_from(struct search *search, uint32_t first, uint32_t n_candidates,
                    struct failure *ret_failure)
{
    int fd = -1;

    search->n_tried = first;
    while (fd < 0 && search->n_tried < n_candidates) {
        uint32_t i = search->n_tried++;

        fd = channel_connect(search->tried[i].path, &search->tried[i].failure);
    }
    if (fd < 0) {
        *ret_failure = search->tried[search->n_tried - 1].failure;
        return fd;
    }
    search->has_found = true;
    return fd;
}

int search_connect(const char *socket_path, struct search *ret_search, struct failure *ret_failure)
{
    return try_from(ret_search, 0, list_candidates(socket_path, ret_search), ret_failure);
}

int search_again(struct search *search, struct failure *ret_failure)
{
    uint32_t n_candidates = search->n_tried;

    /* Not another daemon behind the program's back. */
    return try_from(search, search->has_found ? n_candidates - 1 : 0, n_candidates, ret_failure);
}
