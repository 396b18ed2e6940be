/*
 * The command line of gpupipe-cli run.
 *
 * Threads: one.
 */
#include "client/cli/run_args.h"

#include "client/cli/args.h"

#include <stdio.h>
#include <string.h>

enum run_option {
    OPTION_ADMIT = OPTION_FIRST,
    OPTION_AFTER,
    OPTION_CHUNK,
    OPTION_DEADLINE,
    OPTION_DEVICE,
    OPTION_FORMAT,
    OPTION_INLINE,
    OPTION_NO_WAIT,
    OPTION_PRIORITY,
    OPTION_PRIVATE,
    OPTION_REQUIRE,
    OPTION_TAIL,
    OPTION_TIMING,
};

static int add(const char **list, uint32_t *n_list, uint32_t n_most, const char *option)
{
    if (*n_list == n_most) {
        return cli_usage("%s %s: no op takes more than %u", option, optarg, n_most);
    }
    list[(*n_list)++] = optarg;
    return CLI_OK;
}

static int take_after(struct run_args *args)
{
    struct msg_after *after = &args->options.after[args->options.n_after];

    if (args->options.n_after == LIMIT_AFTER) {
        return cli_usage("--after %s: a run waits for at most %d jobs", optarg, LIMIT_AFTER);
    }
    if (strlen(optarg) != MSG_TOKEN_SIZE - 1) {
        return cli_usage("--after %s: that is no token; 'gpupipe-cli job list' shows them", optarg);
    }
    memcpy(after->token, optarg, MSG_TOKEN_SIZE);
    args->options.n_after++;
    return CLI_OK;
}

static int take_chunk(struct run_args *args)
{
    if (!args_size(optarg, &args->options.max_push) || args->options.max_push > LIMIT_PUSH ||
        args->options.max_push < LIMIT_PUSH_LEAST) {
        return cli_usage("--chunk %s: expected a size from 64K to 16M, as 65536 or 4M", optarg);
    }
    return CLI_OK;
}

static int take_device(struct run_args *args)
{
    if (strlen(optarg) >= sizeof(args->options.device)) {
        return cli_usage("--device %s: no device has a name that long", optarg);
    }
    snprintf(args->options.device, sizeof(args->options.device), "%s", optarg);
    return CLI_OK;
}

static int take_deadline(struct run_args *args)
{
    if (!args_duration(optarg, &args->options.deadline_ns)) {
        return cli_usage("--deadline %s: expected a time with its unit, as 5ms or 1.5s", optarg);
    }
    return CLI_OK;
}

static int take_choice(int option, struct run_args *args)
{
    uint32_t choice = 0;
    int rc;

    switch (option) {
    case OPTION_FORMAT:
        rc = args_choose("--format", optarg, format_names, FORMAT_COUNT, &choice);
        args->format = choice;
        return rc;
    case OPTION_PRIORITY:
        rc = args_choose("--priority", optarg, priority_names, PRIORITY_COUNT, &choice);
        args->options.priority = choice;
        return rc;
    case OPTION_REQUIRE:
        rc = args_choose("--require", optarg, require_names, REQUIRE_COUNT, &choice);
        args->options.require = choice;
        return rc;
    default:
        rc = args_choose("--tail", optarg, tail_names, TAIL_COUNT, &choice);
        args->options.tail = choice;
        return rc;
    }
}

static int take_option(struct cli *cli, int option, char **argv, struct run_args *args)
{
    switch (option) {
    case 'f':
        args->is_forced = true;
        return CLI_OK;
    case 'i':
        return add(args->inputs, &args->n_inputs, LIMIT_IN, "-i");
    case 'k':
        return add(args->consts, &args->n_consts, LIMIT_CONSTS, "-k");
    case 'o':
        return add(args->outputs, &args->n_outputs, LIMIT_OUT, "-o");
    case 'p':
        return add(args->params, &args->n_params, LIMIT_PARAMS, "-p");
    case OPTION_ADMIT:
        args->options.is_admitted = true;
        return CLI_OK;
    case OPTION_AFTER:
        return take_after(args);
    case OPTION_CHUNK:
        return take_chunk(args);
    case OPTION_DEADLINE:
        return take_deadline(args);
    case OPTION_DEVICE:
        return take_device(args);
    case OPTION_INLINE:
        args->is_inline = true;
        return CLI_OK;
    case OPTION_NO_WAIT:
        args->is_impatient = true;
        return CLI_OK;
    case OPTION_PRIVATE:
        args->is_private = true;
        return CLI_OK;
    case OPTION_FORMAT:
    case OPTION_PRIORITY:
    case OPTION_REQUIRE:
    case OPTION_TAIL:
        return take_choice(option, args);
    case OPTION_TIMING:
        args->options.wants_timing = true;
        return CLI_OK;
    default:
        return cli_option(cli, option, argv);
    }
}

int run_args_parse(struct cli *cli, int argc, char **argv, struct run_args *args)
{
    static const struct option options[] = {
        {"admit", no_argument, NULL, OPTION_ADMIT},
        {"after", required_argument, NULL, OPTION_AFTER},
        {"chunk", required_argument, NULL, OPTION_CHUNK},
        {"deadline", required_argument, NULL, OPTION_DEADLINE},
        {"device", required_argument, NULL, OPTION_DEVICE},
        {"format", required_argument, NULL, OPTION_FORMAT},
        {"inline", no_argument, NULL, OPTION_INLINE},
        {"no-wait", no_argument, NULL, OPTION_NO_WAIT},
        {"priority", required_argument, NULL, OPTION_PRIORITY},
        {"private", no_argument, NULL, OPTION_PRIVATE},
        {"require", required_argument, NULL, OPTION_REQUIRE},
        {"tail", required_argument, NULL, OPTION_TAIL},
        {"then", no_argument, NULL, OPTION_LATER},
        {"timing", no_argument, NULL, OPTION_TIMING},
        CLI_LONG_OPTIONS,
        {0},
    };
    int rc = CLI_OK, option;

    *args = (struct run_args){.options.priority = PRIORITY_NORMAL, .format = FORMAT_COUNT};
    optind = 0;
    while (rc == CLI_OK &&
           (option = getopt_long(argc, argv, CLI_SHORT_OPTIONS "fi:o:p:k:", options, NULL)) != -1) {
        rc = take_option(cli, option, argv, args);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    if (optind == argc) {
        return cli_usage("run: an op is missing; 'gpupipe-cli op list' shows them");
    }
    if (optind + 1 < argc) {
        return cli_usage("run: unexpected argument '%s'; files are given with -i and -o",
                         argv[optind + 1]);
    }
    if (args->options.is_admitted && args->options.deadline_ns == 0) {
        return cli_usage("--admit needs a --deadline, which decides what is let in");
    }
    if (args->is_private && cli->socket_path != NULL) {
        return cli_usage("--private starts a daemon, and --socket names another");
    }
    if (args->is_private && args->options.n_after > 0) {
        return cli_usage("--private starts a daemon, and --after names a job of another");
    }
    args->op = argv[optind];
    return CLI_OK;
}
