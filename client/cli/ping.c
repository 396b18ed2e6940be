/*
 * gpupipe-cli ping: is the daemon there, and how long does it take to say so?
 *
 * Threads: one.
 */
#include "client/cli/cli.h"
#include "client/cli/progress.h"
#include "proto/util.h"

#include <stdio.h>

int command_ping(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    char text[PROGRESS_TEXT_SIZE];
    uint64_t start_ns, took_ns;
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = cli_connect(cli, &gpupipe);
    if (rc != CLI_OK) {
        return rc;
    }
    start_ns = now_ns();
    if (call_ping(gpupipe) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    took_ns = now_ns() - start_ns;
    if (cli->is_json) {
        return cli_print_json(json_pack("{s:f}", "seconds", (double)took_ns / 1e9));
    }
    if (!cli->is_quiet) {
        printf("answered in %s\n", progress_time(took_ns, text));
    }
    return cli_flush();
}
