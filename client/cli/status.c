/*
 * gpupipe-cli status: which daemon this is, on what it runs, what waits, and its counters.
 *
 * Threads: one.
 */
#include "client/cli/device.h"
#include "client/cli/progress.h"
#include "client/cli/queues.h"
#include "client/cli/table.h"
#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_SIZE 24

struct overview {
    struct search search;
    struct msg_stats stats;
    struct msg_device *devices;
    uint32_t n_devices;
};

/* Of those tried, the last one answered. */
static uint32_t chosen(const struct overview *overview)
{
    return overview->search.n_tried - 1;
}

static int fetch(struct cli *cli, struct overview *ret_overview)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    int rc = cli_connect(cli, &gpupipe);

    if (rc != CLI_OK) {
        return rc;
    }
    ret_overview->search = *call_search(gpupipe);
    if (call_stats(gpupipe, &ret_overview->stats) < 0 ||
        call_device_list(gpupipe, &ret_overview->devices, &ret_overview->n_devices) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return CLI_OK;
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static json_t *counters_to_json(const struct msg_stats *stats)
{
    json_t *json = json_object();

#define X(field, doc) json_object_set_new(json, #field, json_integer((json_int_t)stats->field));
    STATS_LIST(X)
#undef X
    return json;
}

static json_t *overview_to_json(const struct overview *overview)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "socket",
                     overview->search.tried[chosen(overview)].path, "socket_from",
                     overview->search.tried[chosen(overview)].why, "version",
                     overview->stats.version, "backend", overview->stats.backend, "reason",
                     overview->stats.reason, "devices",
                     device_to_json(overview->devices, overview->n_devices), "queues",
                     queues_to_json(&overview->stats), "stats", counters_to_json(&overview->stats));
}

/* ---- for people ---------------------------------------------------------------------------- */

static int print_counters(const struct msg_stats *stats)
{
    static const struct table_column columns[] = {
        {"COUNTER"}, {"VALUE", .is_number = true}, {"MEANING", .is_long = true}};
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));
    char number[NUMBER_SIZE];

#define X(field, doc)                                                                              \
    snprintf(number, sizeof(number), "%" PRIu64, stats->field);                                    \
    table_add(table, (const char *const[]){#field, number, doc}, ARRAY_SIZE(columns));
    STATS_LIST(X)
#undef X
    return table_print(table);
}

static int print_overview(const struct overview *overview)
{
    char uptime[PROGRESS_TEXT_SIZE];
    int rc;

    printf("socket   %s (%s)\n", overview->search.tried[chosen(overview)].path,
           overview->search.tried[chosen(overview)].why);
    printf("version  %s, up %s\n", overview->stats.version,
           progress_time(overview->stats.uptime_ns, uptime));
    printf("backend  %s: %s\n\n", overview->stats.backend, overview->stats.reason);
    rc = device_print(overview->devices, overview->n_devices);
    if (rc == CLI_OK) {
        putchar('\n');
        rc = queues_print(&overview->stats);
    }
    if (rc == CLI_OK) {
        putchar('\n');
        rc = print_counters(&overview->stats);
    }
    return rc;
}

int command_status(struct cli *cli, int argc, char **argv)
{
    struct overview overview = {0};
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = fetch(cli, &overview);
    if (rc == CLI_OK) {
        rc = cli->is_json ? cli_print_json(overview_to_json(&overview)) : print_overview(&overview);
    }
    free(overview.devices);
    return rc;
}
