/*
 * gpupiped: reads its options, forks the spawner, and runs the front end.
 */
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/spawner.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#define EXIT_USAGE 2

static int run(const struct config *config)
{
    static struct server server; /* large, and there is one */
    struct spawner *spawner;
    struct failure failure;

    log_init(config->log_level);
    for (unsigned i = 0; i < config->n_worker_env; i++) {
        log_info("workers get %s", config->worker_env[i]);
    }
    if (spawner_create(config->worker_env, config->n_worker_env, &spawner, &failure) < 0) {
        log_error("%s", failure.message);
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    /* Strangers' bytes are in here: no core dump, no ptrace by the same user. */
    prctl(PR_SET_DUMPABLE, 0);
    int exit_code = server_run(&server, config, spawner);
    spawner_destroy(spawner);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct config config;
    struct failure failure;
    int exit_code = 0;

    if (config_read(&config, argc, argv, &failure) < 0) {
        fprintf(stderr, "gpupiped: %s\n", failure.message);
        exit_code = EXIT_USAGE;
    } else if (config.wants_help) {
        config_print_help();
    } else if (config.wants_version) {
        printf("gpupiped %s\n", GPUPIPE_VERSION);
    } else {
        exit_code = run(&config);
    }
    config_finish(&config);
    return exit_code;
}
