/*
 * Search: finds the daemon's socket.
 *
 * Threads: plain functions; they read the environment.
 */
#pragma once

#include "proto/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SEARCH_PATH_SIZE  256
#define SEARCH_CANDIDATES 2

/* Where a daemon was looked for, and what came of it. */
struct search {
    uint32_t n_tried; /* the last one tried is the one in use, if any is */
    bool has_found;   /* somebody listened on that one, now or earlier */
    struct {
        char path[SEARCH_PATH_SIZE];
        const char *why; /* "--socket", "GPUPIPE_SOCKET", ... */
        struct failure failure;
    } tried[SEARCH_CANDIDATES];
};

/*
 * Connect to socket_path; if NULL, to $GPUPIPE_SOCKET; if that is not set, to the user's own
 * daemon, else to the system's.  Returns the descriptor or a negative status; *ret_search is filled
 * in any case.
 */
int search_connect(const char *socket_path, struct search *ret_search, struct failure *ret_failure);
/*
 * The same again, whatever the environment is now: where it was connected, if it ever was, else
 * wherever it has tried.
 */
int search_again(struct search *search, struct failure *ret_failure);
