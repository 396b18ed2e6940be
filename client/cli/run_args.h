/*
 * Run args: the command line of gpupipe-cli run, not yet held against the op.
 *
 * Errors: see cli.h.  Threads: one.
 */
#pragma once

#include "client/cli/cli.h"
#include "client/cli/format.h"

struct run_args {
    const char *op;
    struct msg_options options; /* but for the constants */
    enum format format;         /* FORMAT_COUNT: as the files' names say */
    bool is_forced;
    bool is_impatient;
    bool is_inline;
    bool is_private;
    uint32_t n_params, n_inputs, n_consts, n_outputs;
    const char *params[LIMIT_PARAMS];
    const char *inputs[LIMIT_IN];
    const char *consts[LIMIT_CONSTS];
    const char *outputs[LIMIT_OUT];
};

/* With cli->wants_help set, nothing is checked. */
int run_args_parse(struct cli *cli, int argc, char **argv, struct run_args *ret_args);
