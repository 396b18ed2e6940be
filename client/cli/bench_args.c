/*
 * The command line of gpupipe-cli bench.
 *
 * Threads: one.
 */
#include "client/cli/bench_args.h"

#include "client/cli/args.h"
#include "proto/limits.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

enum bench_option {
    OPTION_CONCURRENCY = OPTION_FIRST,
    OPTION_DEVICE,
    OPTION_DISTRIBUTION,
    OPTION_DURATION,
    OPTION_FORMAT,
    OPTION_INLINE,
    OPTION_PRIORITY,
    OPTION_RATE,
    OPTION_REQUIRE,
    OPTION_SIZE,
    OPTION_SVG,
    OPTION_WARMUP,
};

#define MS UINT64_C(1000000)

const char *const bench_names[BENCH_COUNT] = {
    [BENCH_THROUGHPUT] = "throughput",
    [BENCH_LATENCY] = "latency",
    [BENCH_CHUNKS] = "chunks",
    [BENCH_STREAMS] = "streams",
};

const char *const bench_priorities[3] = {
    [GPUPIPE_NORMAL] = "normal",
    [GPUPIPE_URGENT] = "urgent",
    [GPUPIPE_BULK] = "bulk",
};

/* What holds if nothing is said.  size or window 0: it is swept, and cannot be said. */
static const struct {
    uint64_t size;
    uint32_t window;
    uint64_t duration_ns, warmup_ns; /* of each point */
} defaults[BENCH_COUNT] = {
    [BENCH_THROUGHPUT] = {LIMIT_PUSH_DEFAULT, LIMIT_WINDOW_DEFAULT, 5000 * MS, 500 * MS},
    [BENCH_LATENCY] = {4096, 1, 5000 * MS, 500 * MS},
    [BENCH_CHUNKS] = {0, LIMIT_WINDOW_DEFAULT, 1000 * MS, 200 * MS},
    /* So small that the memory holds several of the largest window. */
    [BENCH_STREAMS] = {1 << 20, 0, 1000 * MS, 200 * MS},
};

/* As given; 0 or NULL: not given. */
struct given {
    const char *params[2]; /* one too many, for the error */
    uint32_t n_params;
    uint64_t size, concurrency;
    double rate;
    bool has_distribution, has_warmup, has_format;
};

/* ---- values -------------------------------------------------------------------------------- */

static int take_size(struct given *given)
{
    if (!args_size(optarg, &given->size) || given->size > LIMIT_PUSH) {
        return cli_usage("--size %s: expected a size up to 16M, as 4096 or 64K", optarg);
    }
    return CLI_OK;
}

static int take_concurrency(struct given *given)
{
    char *end;

    given->concurrency = strtoul(optarg, &end, 10);
    if (optarg[0] < '0' || optarg[0] > '9' || *end != '\0' || given->concurrency == 0 ||
        given->concurrency > LIMIT_WINDOW) {
        return cli_usage("--concurrency %s: expected pushes in flight, 1 to %d", optarg,
                         LIMIT_WINDOW);
    }
    return CLI_OK;
}

static int take_rate(struct given *given)
{
    char *end;

    given->rate = strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !(given->rate >= 1e-3 && given->rate <= BENCH_RATE_MOST)) {
        return cli_usage("--rate %s: expected pushes a second, 0.001 to %.0f", optarg,
                         BENCH_RATE_MOST);
    }
    return CLI_OK;
}

static int take_duration(const char *option, uint64_t *ret_ns)
{
    if (!args_duration(optarg, ret_ns) || *ret_ns > BENCH_DURATION_MOST_NS) {
        return cli_usage("%s %s: expected a time with its unit up to 1h, as 500ms or 5s", option,
                         optarg);
    }
    return CLI_OK;
}

static int take_warmup(struct bench_args *args, struct given *given)
{
    given->has_warmup = true;
    args->plan.warmup_ns = 0;
    return strcmp(optarg, "0") == 0 ? CLI_OK : take_duration("--warmup", &args->plan.warmup_ns);
}

static int take_param(struct given *given)
{
    if (given->n_params == ARRAY_SIZE(given->params)) {
        return cli_usage("-p %s: no op that can be benchmarked takes more than one", optarg);
    }
    given->params[given->n_params++] = optarg;
    return CLI_OK;
}

static int take_choice(int option, struct bench_args *args, struct given *given)
{
    static const char *const formats[] = {"text", "json", "hgrm"};
    static const char *const requires[] = {"any", "gpu", "cpu"}; /* as in gpupipe.h */
    uint32_t choice = 0;
    int rc;

    switch (option) {
    case OPTION_DISTRIBUTION:
        rc = args_choose("--distribution", optarg, arrivals_names, ARRIVALS_COUNT, &choice);
        args->plan.kind = choice;
        given->has_distribution = true;
        return rc;
    case OPTION_FORMAT:
        rc = args_choose("--format", optarg, formats, BENCH_FORMAT_COUNT, &choice);
        args->format = choice;
        given->has_format = true;
        return rc;
    case OPTION_PRIORITY:
        rc = args_choose("--priority", optarg, bench_priorities, ARRAY_SIZE(bench_priorities),
                         &choice);
        args->plan.priority = choice;
        return rc;
    default:
        rc = args_choose("--require", optarg, requires, ARRAY_SIZE(requires), &choice);
        args->plan.require = choice;
        return rc;
    }
}

static int take_option(struct cli *cli, int option, char **argv, struct bench_args *args,
                       struct given *given)
{
    switch (option) {
    case 'f':
        args->is_forced = true;
        return CLI_OK;
    case 'p':
        return take_param(given);
    case OPTION_CONCURRENCY:
        return take_concurrency(given);
    case OPTION_DEVICE:
        args->plan.device = optarg;
        return CLI_OK;
    case OPTION_DURATION:
        return take_duration("--duration", &args->plan.duration_ns);
    case OPTION_INLINE:
        args->is_inline = true;
        return CLI_OK;
    case OPTION_RATE:
        return take_rate(given);
    case OPTION_SIZE:
        return take_size(given);
    case OPTION_SVG:
        args->svg_path = optarg;
        return CLI_OK;
    case OPTION_WARMUP:
        return take_warmup(args, given);
    case OPTION_DISTRIBUTION:
    case OPTION_FORMAT:
    case OPTION_PRIORITY:
    case OPTION_REQUIRE:
        return take_choice(option, args, given);
    default:
        return cli_option(cli, option, argv);
    }
}

/* ---- what goes together -------------------------------------------------------------------- */

static int take_operands(int argc, char **argv, struct bench_args *args)
{
    uint32_t kind = 0;
    int rc;

    if (optind == argc) {
        return cli_usage("bench: what of it? throughput, latency, chunks or streams");
    }
    rc = args_choose("bench", argv[optind], bench_names, BENCH_COUNT, &kind);
    if (rc != CLI_OK) {
        return rc;
    }
    if (optind + 2 < argc) {
        return cli_usage("bench: unexpected argument '%s'", argv[optind + 2]);
    }
    args->kind = kind;
    return bench_op_find(optind + 1 < argc ? argv[optind + 1] : "copy", &args->plan.op);
}

static int check_together(const struct cli *cli, const struct bench_args *args,
                          const struct given *given)
{
    const char *name = bench_names[args->kind];
    bool is_sweep = args->kind == BENCH_CHUNKS || args->kind == BENCH_STREAMS;

    if (given->rate > 0 && given->concurrency > 0) {
        return cli_usage("--rate sends when a push is due, --concurrency when one is back: give "
                         "one of them");
    }
    if (given->rate > 0 && is_sweep) {
        return cli_usage("--rate: %s finds out how much can be done; use throughput or latency",
                         name);
    }
    if (given->has_distribution && given->rate == 0) {
        return cli_usage("--distribution is of arrivals: give a --rate");
    }
    if (given->concurrency > 0 && defaults[args->kind].window == 0) {
        return cli_usage("--concurrency: %s goes through all of them", name);
    }
    if (given->size > 0 && defaults[args->kind].size == 0) {
        return cli_usage("--size: %s goes through all of them", name);
    }
    if (args->format == BENCH_HGRM && is_sweep) {
        return cli_usage("--format hgrm is one histogram: use throughput or latency");
    }
    if (cli->is_json && given->has_format && args->format != BENCH_JSON) {
        return cli_usage("--json and another --format");
    }
    return CLI_OK;
}

static int set_op(struct bench_args *args, const struct given *given)
{
    struct bench_op *op = &args->plan.op;

    for (uint32_t i = 0; i < given->n_params; i++) {
        int rc = bench_op_set(op, given->params[i]);

        if (rc != CLI_OK) {
            return rc;
        }
    }
    if (args->plan.size % op->element_size != 0) {
        return cli_usage("--size %llu: %s takes elements of %u bytes",
                         (unsigned long long)args->plan.size, op->name, op->element_size);
    }
    return CLI_OK;
}

static int settle(const struct cli *cli, struct bench_args *args, const struct given *given)
{
    struct load_plan *plan = &args->plan;
    int rc = check_together(cli, args, given);

    if (rc != CLI_OK) {
        return rc;
    }
    plan->size = given->size > 0 ? given->size : defaults[args->kind].size;
    plan->rate = given->rate;
    plan->window =
        given->concurrency > 0 ? (uint32_t)given->concurrency : defaults[args->kind].window;
    if (plan->duration_ns == 0) {
        plan->duration_ns = defaults[args->kind].duration_ns;
    }
    if (!given->has_warmup) {
        plan->warmup_ns = defaults[args->kind].warmup_ns;
    }
    args->format = cli->is_json ? BENCH_JSON : args->format;
    return set_op(args, given);
}

int bench_args_parse(struct cli *cli, int argc, char **argv, struct bench_args *args)
{
    static const struct option options[] = {
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {"device", required_argument, NULL, OPTION_DEVICE},
        {"distribution", required_argument, NULL, OPTION_DISTRIBUTION},
        {"duration", required_argument, NULL, OPTION_DURATION},
        {"format", required_argument, NULL, OPTION_FORMAT},
        {"inline", no_argument, NULL, OPTION_INLINE},
        {"priority", required_argument, NULL, OPTION_PRIORITY},
        {"rate", required_argument, NULL, OPTION_RATE},
        {"require", required_argument, NULL, OPTION_REQUIRE},
        {"size", required_argument, NULL, OPTION_SIZE},
        {"svg", required_argument, NULL, OPTION_SVG},
        {"warmup", required_argument, NULL, OPTION_WARMUP},
        CLI_LONG_OPTIONS,
        {0},
    };
    struct given given = {0};
    int rc = CLI_OK, option;

    *args = (struct bench_args){0};
    optind = 0;
    while (rc == CLI_OK &&
           (option = getopt_long(argc, argv, CLI_SHORT_OPTIONS "fp:", options, NULL)) != -1) {
        rc = take_option(cli, option, argv, args, &given);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = take_operands(argc, argv, args);
    return rc != CLI_OK ? rc : settle(cli, args, &given);
}
