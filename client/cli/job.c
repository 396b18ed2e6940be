/*
 * gpupipe-cli job list, job cancel.
 *
 * Threads: one.
 */
#include "client/cli/table.h"
#include "proto/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBER_SIZE 24

/* ---- job list ------------------------------------------------------------------------------ */

static json_t *entry_to_json(const struct msg_job_entry *entry)
{
    return json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "job", (json_int_t)entry->job,
                     "op", entry->op, "state", job_state_names[entry->state], "priority",
                     priority_names[entry->priority], "pushed", (json_int_t)entry->pushed, "done",
                     (json_int_t)entry->done, "held", (json_int_t)entry->held, "token",
                     entry->token);
}

static int print_json(const struct msg_job_entry *entries, uint32_t n_entries)
{
    json_t *jobs = json_array();

    for (uint32_t i = 0; i < n_entries; i++) {
        json_array_append_new(jobs, entry_to_json(&entries[i]));
    }
    return cli_print_json(json_pack("{s:o}", "jobs", jobs));
}

static int print_table(const struct msg_job_entry *entries, uint32_t n_entries)
{
    static const struct table_column columns[] = {
        {"JOB", .is_number = true},
        {"OP"},
        {"STATE"},
        {"PRIORITY"},
        {"PUSHED", .is_number = true},
        {"DONE", .is_number = true},
        {"HELD", .is_number = true},
        {"TOKEN"},
    };
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));

    for (uint32_t i = 0; i < n_entries; i++) {
        char job[NUMBER_SIZE], pushed[NUMBER_SIZE], done[NUMBER_SIZE], held[NUMBER_SIZE];
        const char *const texts[] = {
            job,
            entries[i].op,
            job_state_names[entries[i].state],
            priority_names[entries[i].priority],
            pushed,
            done,
            held,
            entries[i].token,
        };

        snprintf(job, sizeof(job), "%" PRIu64, entries[i].job);
        snprintf(pushed, sizeof(pushed), "%" PRIu64, entries[i].pushed);
        snprintf(done, sizeof(done), "%" PRIu64, entries[i].done);
        snprintf(held, sizeof(held), "%" PRIu32, entries[i].held);
        table_add(table, texts, ARRAY_SIZE(texts));
    }
    return table_print(table);
}

int command_job_list(struct cli *cli, int argc, char **argv)
{
    /* This connection itself has no jobs to show, so --all changes nothing before there are rights
     * that tell one user's jobs from another's. */
    int is_all = 1;
    const struct option options[] = {{"all", no_argument, &is_all, 1}, CLI_LONG_OPTIONS, {0}};
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    _cleanup_(free_pointer) struct msg_job_entry *entries = NULL;
    uint32_t n_entries = 0;
    int rc = cli_operands(cli, argc, argv, options, 0, 0);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = cli_connect(cli, &gpupipe);
    if (rc != CLI_OK) {
        return rc;
    }
    if (call_job_list(gpupipe, is_all, &entries, &n_entries) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return cli->is_json ? print_json(entries, n_entries) : print_table(entries, n_entries);
}

/* ---- job cancel ---------------------------------------------------------------------------- */

static int parse_id(const char *text, uint64_t *ret_id)
{
    unsigned long long id;
    char *end;

    errno = 0;
    id = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return cli_usage("job cancel: '%s' is no job's number", text);
    }
    *ret_id = id;
    return CLI_OK;
}

static int cancel_one(struct gpupipe *gpupipe, uint64_t id)
{
    enum job_state state;

    if (call_job_cancel(gpupipe, id, &state) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return CLI_OK;
}

int command_job_cancel(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    int rc = cli_operands(cli, argc, argv, NULL, 1, argc);
    uint64_t id = 0;

    /* All numbers are judged before any job is touched. */
    for (int i = optind; i < argc && rc == CLI_OK && !cli->wants_help; i++) {
        rc = parse_id(argv[i], &id);
    }
    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = cli_connect(cli, &gpupipe);
    if (rc != CLI_OK) {
        return rc;
    }
    for (int i = optind; i < argc; i++) {
        int rc_one = parse_id(argv[i], &id);

        rc_one = rc_one == CLI_OK ? cancel_one(gpupipe, id) : rc_one;
        rc = rc == CLI_OK ? rc_one : rc;
    }
    return rc;
}
