/*
 * Config: the daemon's command line.
 *
 * Thread: read once at start.
 */
#pragma once

#include "daemon/log.h"
#include "proto/status.h"

#include <stddef.h>
#include <sys/types.h>

struct config {
    const char *socket_path; /* NULL: the default, or what the service manager passed */
    const char *backend;     /* "auto", "cpu" or "cuda" */
    const char *devices;     /* NULL: whichever there are */
    size_t pool_size;        /* bytes */
    size_t ring_pool_size;   /* bytes, at most; 0: no rings */
    int awake_cpus;          /* that may be kept busy for urgent work; AWAKE_CPUS_AUTO */
    gid_t awake_group;       /* whose urgent work may do so; AWAKE_ANYBODY */
    enum log_level log_level;
    const char **worker_env; /* NAME=VALUE */
    unsigned n_worker_env;
    bool wants_help;
    bool wants_version;
};

/* argv's strings are referred to.  INVALID_PARAM names the option. */
int config_read(struct config *ret_config, int argc, char **argv, struct failure *ret_failure);
void config_finish(struct config *config);
void config_print_help(void);
