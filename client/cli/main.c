/*
 * gpupipe-cli: the command line of gpupiped.  Finds the subcommand in the table and runs it.
 *
 * Threads: one.
 */
#include "client/cli/cli.h"

#include "proto/util.h"

#include <stdio.h>
#include <string.h>

/* run NULL: known by name, in a version to come. */
struct command {
    const char *name; /* one word or two */
    int (*run)(struct cli *cli, int argc, char **argv);
    const char *usage; /* behind the name */
    const char *help;
};

static const struct command commands[] = {
    {"run", command_run, "OP [-p NAME=VALUE]... [-i [NAME=]FILE]... [-o [NAME=]FILE]...",
     "Run an op over files; '-' is standard input or output.\n"
     "\n"
     "  -p NAME=VALUE          a parameter of the op\n"
     "  -i [NAME=]FILE         an input; by name, or in the op's order\n"
     "  -k [NAME=]FILE         a constant, likewise: one record for the whole run\n"
     "  -o [NAME=]FILE         an output, likewise\n"
     "  -f                     overwrite files that exist, write binary to a terminal\n"
     "      --priority P       urgent, normal (the default) or bulk\n"
     "      --deadline TIME    give up after this time, as 5ms or 1.5s\n"
     "      --admit            ... and at once if it would surely be too late\n"
     "      --after TOKEN      when this job has ended; 'job list' shows tokens\n"
     "      --require KIND     any (the default), gpu or cpu\n"
     "      --device ID        this device only\n"
     "      --chunk SIZE       bytes of the largest array of each push, 64K to 16M\n"
     "      --tail WHAT        a last record that is short: error (the default), zero or short\n"
     "      --format FORMAT    raw, npy, hex or text (the default: npy for files called .npy,\n"
     "                         raw for others); hex and text are for outputs\n"
     "      --timing           tell where the time went, on standard error or in --json\n"
     "      --inline           send the bytes through the socket, even if there is a ring\n"
     "      --no-wait          fail with 75 instead of waiting for room\n"
     "      --private          by a daemon of its own, gone afterwards"},
    {"exec", command_exec, "[--backend B] [--devices IDS] -- COMMAND...",
     "Run a command with a private daemon, gone afterwards.\n"
     "\n"
     "      --backend B        auto (the default), cuda or cpu\n"
     "      --devices IDS      only these GPUs, as 0,1 or UUIDs"},
    {"op list", command_op_list, "", "List the daemon's ops."},
    {"op show", command_op_show, "OP", "Show an op's inputs, outputs and parameters."},
    {"job list", command_job_list, "[--all]", "List the jobs that are open, of all connections."},
    {"job cancel", command_job_cancel, "ID...", "Cancel jobs."},
    {"device list", command_device_list, "", "List what the daemon computes on."},
    {"call", command_call, "METHOD [JSON] [-o FILE]... [-f]",
     "Call any method of the protocol, and print its result as JSON.\n"
     "\n"
     "JSON is the array of its parameters; anything else is the only one.  In it\n"
     "{\"@file\": \"PATH\"} stands for a file's bytes, {\"@base64\": \"...\"} for those.\n"
     "\n"
     "  -o FILE                write the result's bytes there instead of as base64; the\n"
     "                         first -o takes the first of them, and so on\n"
     "  -f                     overwrite files that exist"},
    {"bench", command_bench, "throughput|latency|chunks|streams [OP] [options]",
     "Measure what the daemon does here, and check every byte of it.\n"
     "\n"
     "throughput: bytes a second; latency: small pushes, one at a time; chunks: over the\n"
     "sizes of pushes; streams: over how many are in flight.  OP is copy (the default),\n"
     "saxpy or iterate.\n"
     "\n"
     "      --rate R           R pushes a second, whatever becomes of them: latency counts\n"
     "                         from when each is due\n"
     "      --concurrency N    N pushes in flight: 4 (latency: 1) if nothing is said\n"
     "      --distribution D   of --rate: constant (the default) or poisson\n"
     "      --duration D       of each measurement: 5s, of each step of a sweep 1s\n"
     "      --warmup D         before it: 500ms, 200ms; 0 is none\n"
     "      --size SIZE        bytes of each array of a push, up to 16M: 4M (latency: 4K,\n"
     "                         streams: 1M)\n"
     "      --format FORMAT    text, json or hgrm, the percentile log of HdrHistogram\n"
     "      --svg FILE         draw it: percentiles, or the sweep\n"
     "  -f                     overwrite that file\n"
     "  -p NAME=VALUE          a of saxpy, n of iterate\n"
     "      --inline           through the socket instead of a ring\n"
     "      --priority P       urgent, normal (the default) or bulk\n"
     "      --require KIND     any (the default), gpu or cpu\n"
     "      --device ID        this device only"},
    {"status", command_status, "", "Show the daemon, its devices and its counters."},
    {"ping", command_ping, "", "Ask the daemon for a sign of life, and tell how long it took."},
    {"version", command_version, "", "Print the version."},
    {"check", NULL, "", NULL},
    {"device drain", NULL, "", NULL},
    {"device resume", NULL, "", NULL},
    {"doctor", NULL, "", NULL},
    {"monitor", NULL, "", NULL},
    {"op build", NULL, "", NULL},
    {"op lift", NULL, "", NULL},
    {"op load", NULL, "", NULL},
    {"op new", NULL, "", NULL},
    {"op test", NULL, "", NULL},
    {"op unload", NULL, "", NULL},
    {"top", NULL, "", NULL},
    {"usage", NULL, "", NULL},
};

/* ---- help ---------------------------------------------------------------------------------- */

static int print_help(void)
{
    puts("Usage: gpupipe-cli [--socket PATH] [--json] [-q] COMMAND ...\n"
         "\n"
         "Commands:");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (commands[i].run != NULL) {
            printf("  %-12s %.*s\n", commands[i].name, (int)strcspn(commands[i].help, "\n"),
                   commands[i].help);
        }
    }
    puts("\n"
         "Options:\n"
         "      --socket PATH  the daemon's socket (default: $GPUPIPE_SOCKET, the user's own\n"
         "                     daemon, the system's)\n"
         "      --json         one JSON object on standard output\n"
         "  -q, --quiet        no progress bar\n"
         "  -h, --help         this, or with a command, its help\n"
         "\n"
         "Exit status: 0, 1 the job failed, 2 usage, 69 no daemon, 75 busy (--no-wait),\n"
         "78 configuration, 124 deadline passed, 130 interrupted.");
    return cli_flush();
}

static int print_command_help(const struct command *command)
{
    printf("Usage: gpupipe-cli %s%s%s\n\n%s\n", command->name, command->usage[0] == '\0' ? "" : " ",
           command->usage, command->help);
    return cli_flush();
}

/* ---- dispatch ------------------------------------------------------------------------------ */

/* Does the command's name begin with this word?  *ret_n_words is how many the name has. */
static bool starts_with(const struct command *command, const char *word, int *ret_n_words)
{
    size_t size = strcspn(command->name, " ");

    *ret_n_words = command->name[size] == ' ' ? 2 : 1;
    return strlen(word) == size && memcmp(command->name, word, size) == 0;
}

static const struct command *find(int argc, char **argv, int *ret_n_words)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        int n_words;

        if (starts_with(&commands[i], argv[0], &n_words) &&
            (n_words == 1 ||
             (argc > 1 && strcmp(strchr(commands[i].name, ' ') + 1, argv[1]) == 0))) {
            *ret_n_words = n_words;
            return &commands[i];
        }
    }
    return NULL;
}

static int report_unknown(int argc, char **argv)
{
    int n_words;

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (starts_with(&commands[i], argv[0], &n_words) && argc > 1) {
            return cli_usage("unknown command '%s %s'", argv[0], argv[1]);
        }
        if (starts_with(&commands[i], argv[0], &n_words)) {
            return cli_usage("%s: what of it? As in '%s'", argv[0], commands[i].name);
        }
    }
    return cli_usage("unknown command '%s'", argv[0]);
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    int n_words, rc;
    const struct command *command = find(argc, argv, &n_words);

    if (command == NULL) {
        return report_unknown(argc, argv);
    }
    if (command->run == NULL) {
        return cli_usage("%s: not in this version", command->name);
    }
    rc = cli->wants_help ? CLI_OK : command->run(cli, argc - n_words + 1, argv + n_words - 1);
    return rc == CLI_OK && cli->wants_help ? print_command_help(command) : rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {CLI_LONG_OPTIONS, {0}};
    struct cli cli = {0};
    int option, rc;

    /* '+': stop at the first operand, the command, whose options are its own. */
    while ((option = getopt_long(argc, argv, "+" CLI_SHORT_OPTIONS, options, NULL)) != -1) {
        rc = cli_option(&cli, option, argv);
        if (rc != CLI_OK) {
            return rc;
        }
    }
    if (optind < argc) {
        return run_command(&cli, argc - optind, argv + optind);
    }
    return cli.wants_help ? print_help() : cli_usage("a command is missing");
}
