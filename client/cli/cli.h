/*
 * Cli: what every subcommand of gpupipe-cli shares.
 *
 * Functions that can fail say so on stderr themselves, once, as `gpupipe-cli: ...`, and return the
 * program's exit code; 0 is success.  Nothing but results goes to stdout.
 *
 * Threads: one.
 */
#pragma once

#include "client/calls.h"
#include "client/gpupipe.h"

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>

enum exit_code {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_UNREACHABLE = 69,
    CLI_BUSY = 75,
    CLI_CONFIG = 78,
    CLI_DEADLINE = 124,
    CLI_INTERRUPTED = 130,
};

/* The global options; they may stand before or behind the subcommand. */
struct cli {
    const char *socket_path; /* NULL: search */
    bool is_json;
    bool is_quiet;
    bool wants_help;
};

/* The subcommands.  argv[0] is the name. */
int command_bench(struct cli *cli, int argc, char **argv);
int command_call(struct cli *cli, int argc, char **argv);
int command_device_list(struct cli *cli, int argc, char **argv);
int command_exec(struct cli *cli, int argc, char **argv);
int command_job_cancel(struct cli *cli, int argc, char **argv);
int command_job_list(struct cli *cli, int argc, char **argv);
int command_op_list(struct cli *cli, int argc, char **argv);
int command_op_show(struct cli *cli, int argc, char **argv);
int command_ping(struct cli *cli, int argc, char **argv);
int command_run(struct cli *cli, int argc, char **argv);
int command_status(struct cli *cli, int argc, char **argv);
int command_version(struct cli *cli, int argc, char **argv);

/* ---- options: short letters below 256, long-only ones from OPTION_FIRST on ------------------ */

#define OPTION_SOCKET 256
#define OPTION_JSON   257
#define OPTION_HELP   258
#define OPTION_LATER  259 /* known by name, in a version to come */
#define OPTION_FIRST  260

#define CLI_SHORT_OPTIONS ":hq"
#define CLI_LONG_OPTIONS                                                                           \
    {"help", no_argument, NULL, OPTION_HELP}, {"json", no_argument, NULL, OPTION_JSON},            \
        {"quiet", no_argument, NULL, 'q'},                                                         \
    {                                                                                              \
        "socket", required_argument, NULL, OPTION_SOCKET                                           \
    }

/* Handle an option that is not the subcommand's own: a global one, or a mistake. */
int cli_option(struct cli *cli, int option, char **argv);
/*
 * For subcommands with no options of their own (`options` NULL) or long ones that set flags: parse,
 * and expect least..most operands, the first at optind.  With wants_help set, nothing is checked.
 */
int cli_operands(struct cli *cli, int argc, char **argv, const struct option *options, int least,
                 int most);

/* ---- errors -------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) void cli_error(const char *format, ...);
/* The same with a pointer to --help; returns CLI_USAGE. */
__attribute__((format(printf, 1, 2))) int cli_usage(const char *format, ...);
/* Report an error of the library; the exit code it deserves. */
int cli_failure(const struct gpupipe_error *error);

/* ---- the daemon and stdout ----------------------------------------------------------------- */

int cli_connect(const struct cli *cli, struct gpupipe **ret_gpupipe);
void cli_close(struct gpupipe **gpupipe); /* for _cleanup_ */

/* Print json, which it takes over, as one line; or flush stdout.  Both report write errors. */
int cli_print_json(json_t *json);
int cli_flush(void);
