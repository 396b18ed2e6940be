/*
 * What the subcommands share: global options, errors and exit codes, the connection, stdout.
 *
 * Threads: one.
 */
#include "client/cli/cli.h"

#include "proto/util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 0))) static void print_error(const char *format, va_list args)
{
    fputs("gpupipe-cli: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void cli_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_error(format, args);
    va_end(args);
}

int cli_usage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_error(format, args);
    va_end(args);
    fputs("Try 'gpupipe-cli --help'.\n", stderr);
    return CLI_USAGE;
}

int cli_failure(const struct gpupipe_error *error)
{
    if (error->status == GPUPIPE_ERROR_LOST) {
        cli_error("%s", error->message);
        return CLI_UNREACHABLE;
    }
    cli_error("%s: %s", error->name, error->message);
    switch (error->status) {
    case GPUPIPE_ERROR_BUSY:
    case GPUPIPE_ERROR_QUOTA:
        return CLI_BUSY;
    case GPUPIPE_ERROR_DEADLINE:
        return CLI_DEADLINE;
    default:
        return CLI_FAILED;
    }
}

/* ---- options ------------------------------------------------------------------------------- */

static int unknown_option(char **argv)
{
    if (optopt > 0 && optopt < OPTION_SOCKET) {
        return cli_usage("unknown option -%c", optopt);
    }
    return cli_usage("unknown or ambiguous option %s", argv[optind - 1]);
}

int cli_option(struct cli *cli, int option, char **argv)
{
    switch (option) {
    case OPTION_SOCKET:
        cli->socket_path = optarg;
        return CLI_OK;
    case OPTION_JSON:
        cli->is_json = true;
        return CLI_OK;
    case 'q':
        cli->is_quiet = true;
        return CLI_OK;
    case OPTION_HELP:
    case 'h':
        cli->wants_help = true;
        return CLI_OK;
    case OPTION_LATER:
        return cli_usage("%s: not in this version", argv[optind - 1]);
    case ':':
        return cli_usage("option %s needs a value", argv[optind - 1]);
    default:
        return unknown_option(argv);
    }
}

int cli_operands(struct cli *cli, int argc, char **argv, const struct option *options, int least,
                 int most)
{
    static const struct option global_options[] = {CLI_LONG_OPTIONS, {0}};
    int option;

    optind = 0;
    while ((option = getopt_long(argc, argv, CLI_SHORT_OPTIONS,
                                 options == NULL ? global_options : options, NULL)) != -1) {
        /* 0: a flag that getopt_long() has set. */
        int rc = option == 0 ? CLI_OK : cli_option(cli, option, argv);

        if (rc != CLI_OK) {
            return rc;
        }
    }
    if (cli->wants_help) {
        return CLI_OK;
    }
    if (argc - optind < least) {
        return cli_usage("%s: an argument is missing", argv[0]);
    }
    if (argc - optind > most) {
        return cli_usage("%s: unexpected argument '%s'", argv[0], argv[optind + most]);
    }
    return CLI_OK;
}

/* ---- the daemon and stdout ----------------------------------------------------------------- */

static int report_search(const struct search *search, const struct gpupipe_error *error)
{
    for (uint32_t i = 0; i < search->n_tried; i++) {
        if (search->tried[i].failure.status != STATUS_OK) {
            cli_error("no daemon (%s): %s", search->tried[i].why, search->tried[i].failure.message);
        } else {
            cli_error("the daemon at %s (%s) refused: %s: %s", search->tried[i].path,
                      search->tried[i].why, error->name, error->message);
        }
    }
    /* RANGE: no socket could have a path like that. */
    return error->status == GPUPIPE_ERROR_VERSION || error->status == GPUPIPE_ERROR_RANGE
               ? CLI_CONFIG
               : CLI_UNREACHABLE;
}

int cli_connect(const struct cli *cli, struct gpupipe **ret_gpupipe)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;

    if (gpupipe_open(&gpupipe, cli->socket_path, "gpupipe-cli") < 0) {
        if (gpupipe == NULL) {
            return cli_failure(gpupipe_last_error(NULL));
        }
        return report_search(call_search(gpupipe), gpupipe_last_error(gpupipe));
    }
    *ret_gpupipe = STEAL(gpupipe);
    return CLI_OK;
}

void cli_close(struct gpupipe **gpupipe)
{
    gpupipe_close(*gpupipe);
}

int cli_flush(void)
{
    if (fflush(stdout) == EOF || ferror(stdout)) {
        cli_error("cannot write to standard output: %s", strerror(errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_print_json(json_t *json)
{
    if (json == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    json_dumpf(json, stdout, JSON_REAL_PRECISION(17));
    json_decref(json);
    fputc('\n', stdout);
    return cli_flush();
}
