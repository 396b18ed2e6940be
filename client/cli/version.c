/*
 * gpupipe-cli version: ours; the daemon's is in status.
 *
 * Threads: one.
 */
#include "client/cli/cli.h"

#include <stdio.h>

int command_version(struct cli *cli, int argc, char **argv)
{
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (cli->is_json) {
        return cli_print_json(
            json_pack("{s:s, s:i}", "version", GPUPIPE_VERSION, "api_level", API_LEVEL));
    }
    printf("gpupipe-cli %s (protocol level %d)\n", GPUPIPE_VERSION, API_LEVEL);
    return cli_flush();
}
