/*
 * gpupipe-cli exec: a private daemon for a command, as inside a batch system's allocation.
 *
 * Threads: one.
 */
#include "client/cli/args.h"
#include "client/cli/cli.h"
#include "client/cli/private.h"
#include "proto/util.h"

#include <errno.h>
#include <string.h>

/* As shells and env(1) have it. */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

enum exec_option { OPTION_BACKEND = OPTION_FIRST, OPTION_DEVICES };

static int take_option(struct cli *cli, int option, char **argv, struct private_options *options)
{
    static const char *const backends[] = {"auto", "cuda", "cpu"};

    switch (option) {
    case OPTION_BACKEND:
        if (args_choice(optarg, backends, ARRAY_SIZE(backends)) == ARRAY_SIZE(backends)) {
            return cli_usage("--backend %s: may be auto, cuda, cpu", optarg);
        }
        options->backend = optarg;
        return CLI_OK;
    case OPTION_DEVICES:
        options->devices = optarg;
        return CLI_OK;
    default:
        return cli_option(cli, option, argv);
    }
}

static int execute(void *arg)
{
    char **argv = arg;
    int error;

    execvp(argv[0], argv);
    error = errno;
    cli_error("cannot run %s: %s", argv[0], strerror(error));
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

int command_exec(struct cli *cli, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"backend", required_argument, NULL, OPTION_BACKEND},
        {"devices", required_argument, NULL, OPTION_DEVICES},
        CLI_LONG_OPTIONS,
        {0},
    };
    struct private_options options = {.backend = "auto"};
    int rc = CLI_OK, option;

    optind = 0;
    /* '+': the command's options are its own. */
    while (rc == CLI_OK &&
           (option = getopt_long(argc, argv, "+" CLI_SHORT_OPTIONS, long_options, NULL)) != -1) {
        rc = take_option(cli, option, argv, &options);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (cli->socket_path != NULL) {
        return cli_usage("exec starts a daemon, and --socket names another");
    }
    if (optind == argc) {
        return cli_usage("exec: a command is missing");
    }
    return private_run(&options, execute, argv + optind);
}
