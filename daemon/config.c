/*
 * Config: getopt_long and the checks of each value.
 */
#include "daemon/config.h"

#include "daemon/awake.h"
#include "proto/util.h"

#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>

#define POOL_DEFAULT      ((size_t)256 << 20)
#define POOL_LEAST        ((size_t)64 << 20) /* four segments: less cannot hold the largest run */
#define RING_POOL_DEFAULT ((size_t)1 << 30)  /* a dozen clients with rings of the default size */
#define POOL_MOST         ((size_t)1 << 40)  /* 65,536 segments: the 16 bits of a work_ref */

void config_print_help(void)
{
    printf(
        "Usage: gpupiped [OPTION]...\n"
        "Copy, compute and copy back for many programs at once, over a Unix socket.\n\n"
        "  --socket PATH           listen here (default: the service manager's socket, else\n"
        "                          $XDG_RUNTIME_DIR/gpupiped/rpc.sock, as root\n"
        "                          /run/gpupiped/rpc.sock)\n"
        "  --backend auto|cuda|cpu what computes (default auto: a GPU where its worker is\n"
        "                          installed)\n"
        "  --devices LIST          only these GPUs (0,1): indices as nvidia-smi shows them, or\n"
        "                          UUIDs (default: all that CUDA_VISIBLE_DEVICES shows workers,\n"
        "                          if --worker-env sets it, else all there are)\n"
        "  --pinned-pool SIZE      memory for clients' data: bytes, or with K, M, G\n"
        "                          (default 256M, at least 64M)\n"
        "  --ring-pool SIZE        memory for rings, which clients share: at most this (default\n"
        "                          1G; 64M of it from the start; 0: no rings)\n"
        "  --awake-cpus N          CPUs that may be kept busy for 20 ms after urgent work came\n"
        "                          through a ring, one for the daemon and one for each worker\n"
        "                          (default: all we may use but two; 0: none)\n"
        "  --awake-group GROUP     whose urgent work may do that (default: everybody's)\n"
        "  --worker-env NAME=VALUE pass a variable to workers (repeatable); nothing else is\n"
        "  --log-level LEVEL       error, warning, info or debug (default info)\n"
        "  --version               print the version\n"
        "  --help                  print this\n\n"
        "SIGTERM stops it: no new work, what is in flight finishes within 10 s.\n");
}

static bool read_size(const char *text, size_t *ret_size)
{
    static const char units[] = "KMG";
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;

    if (end == text || *text == '-' || (*end != '\0' && (unit == NULL || end[1] != '\0')) ||
        value > POOL_MOST >> shift) {
        return false;
    }
    *ret_size = (size_t)value << shift;
    return true;
}

static int add_worker_env(struct config *config, const char *text, struct failure *ret_failure)
{
    const char *equals = strchr(text, '=');

    if (equals == NULL || equals == text) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "worker-env",
                    "--worker-env takes NAME=VALUE, not \"%s\"", text);
    }
    config->worker_env[config->n_worker_env++] = text;
    return 0;
}

static int read_awake_cpus(const char *text, int *ret_cpus, struct failure *ret_failure)
{
    char *end;
    unsigned long cpus = strtoul(text, &end, 10);

    if (end == text || *text == '-' || *end != '\0' || cpus > AWAKE_CPUS_MOST) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "awake-cpus",
                    "--awake-cpus takes a number of CPUs, 0 to %d, not \"%s\"", AWAKE_CPUS_MOST,
                    text);
    }
    *ret_cpus = (int)cpus;
    return 0;
}

static int read_group(const char *name, gid_t *ret_group, struct failure *ret_failure)
{
    const struct group *group = getgrnam(name);

    if (group == NULL) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "awake-group",
                    "--awake-group: there is no group \"%s\"; groupadd makes one", name);
    }
    *ret_group = group->gr_gid;
    return 0;
}

static int apply(struct config *config, int option, const char *value, struct failure *ret_failure)
{
    switch (option) {
    case 's':
        config->socket_path = value;
        return 0;
    case 'b':
        if (strcmp(value, "auto") != 0 && strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "backend",
                        "--backend is auto, cuda or cpu, not \"%s\"", value);
        }
        config->backend = value;
        return 0;
    case 'd':
        config->devices = value;
        return 0;
    case 'p':
        if (!read_size(value, &config->pool_size) || config->pool_size < POOL_LEAST) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "pinned-pool",
                        "--pinned-pool takes bytes or a number with K, M or G, 64M to 48G, not "
                        "\"%s\"",
                        value);
        }
        return 0;
    case 'r':
        if (!read_size(value, &config->ring_pool_size)) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "ring-pool",
                        "--ring-pool takes bytes or a number with K, M or G, up to 1024G, not "
                        "\"%s\"",
                        value);
        }
        return 0;
    case 'a':
        return read_awake_cpus(value, &config->awake_cpus, ret_failure);
    case 'g':
        return read_group(value, &config->awake_group, ret_failure);
    case 'e':
        return add_worker_env(config, value, ret_failure);
    case 'l':
        if (!log_level_from_name(value, &config->log_level)) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "log-level",
                        "--log-level is error, warning, info or debug, not \"%s\"", value);
        }
        return 0;
    case 'h':
        config->wants_help = true;
        return 0;
    case 'V':
        config->wants_version = true;
        return 0;
    default:
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "see gpupiped --help");
    }
}

int config_read(struct config *ret_config, int argc, char **argv, struct failure *ret_failure)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"backend", required_argument, NULL, 'b'},
        {"devices", required_argument, NULL, 'd'},
        {"pinned-pool", required_argument, NULL, 'p'},
        {"ring-pool", required_argument, NULL, 'r'},
        {"awake-cpus", required_argument, NULL, 'a'},
        {"awake-group", required_argument, NULL, 'g'},
        {"worker-env", required_argument, NULL, 'e'},
        {"log-level", required_argument, NULL, 'l'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;

    *ret_config = (struct config){
        .backend = "auto",
        .pool_size = POOL_DEFAULT,
        .ring_pool_size = RING_POOL_DEFAULT,
        .awake_cpus = AWAKE_CPUS_AUTO,
        .awake_group = AWAKE_ANYBODY,
        .log_level = LOG_LEVEL_INFO,
    };
    ret_config->worker_env = calloc((size_t)argc, sizeof(char *));
    if (ret_config->worker_env == NULL) {
        return fail(ret_failure, STATUS_NO_MEMORY, NULL, "out of memory");
    }
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        int r = apply(ret_config, option, optarg, ret_failure);
        if (r < 0) {
            return r;
        }
    }
    if (optind < argc) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "\"%s\" is no option", argv[optind]);
    }
    return 0;
}

void config_finish(struct config *config)
{
    free(config->worker_env);
}
