/*
 * gpupipe-cli status: the queues, by priority, by device and by user.
 *
 * Threads: one.
 */
#include "client/cli/queues.h"

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- as JSON ------------------------------------------------------------------------------- */

static json_t *row_to_json(const char *key, json_t *name, const struct msg_load *load)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I}", key, name, "waiting",
                     (json_int_t)load->waiting, "waiting_size", (json_int_t)load->waiting_size,
                     "oldest_ns", (json_int_t)load->oldest_ns, "in_flight",
                     (json_int_t)load->in_flight, "in_flight_size",
                     (json_int_t)load->in_flight_size, "device_ns", (json_int_t)load->device_ns);
}

static void set(json_t *row, const char *key, int64_t value)
{
    json_object_set_new(row, key, json_integer((json_int_t)value));
}

json_t *queues_to_json(const struct msg_stats *stats)
{
    json_t *priorities = json_array(), *devices = json_array(), *users = json_array();

    for (uint32_t i = 0; i < stats->n_queues; i++) {
        const struct msg_queue *queue = &stats->queues[i];
        json_t *row =
            row_to_json("priority", json_string(priority_names[queue->priority]), &queue->load);

        set(row, "places", (int64_t)queue->places);
        json_array_append_new(priorities, row);
    }
    for (uint32_t i = 0; i < stats->n_devices; i++) {
        const struct msg_device_load *device = &stats->devices[i];

        json_array_append_new(devices,
                              row_to_json("device", json_string(device->device), &device->load));
    }
    for (uint32_t i = 0; i < stats->n_users; i++) {
        const struct msg_user *user = &stats->users[i];
        json_t *row = row_to_json("uid", json_integer((json_int_t)user->uid), &user->load);

        set(row, "places", (int64_t)user->places);
        set(row, "urgent_left_ns", user->urgent_left_ns);
        json_array_append_new(users, row);
    }
    return json_pack("{s:o, s:o, s:o}", "priorities", priorities, "devices", devices, "users",
                     users);
}

/* ---- for people ---------------------------------------------------------------------------- */

#define NUMBER_SIZE 24

static uint64_t device_time(const struct msg_stats *stats)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < stats->n_devices; i++) {
        total += stats->devices[i].load.device_ns;
    }
    return total;
}

/* places, urgent: "" where the row has none. */
static void add_row(struct libscols_table *table, const char *name, const struct msg_load *load,
                    uint64_t total_ns, const char *places, const char *urgent)
{
    char waiting[NUMBER_SIZE], in_flight[NUMBER_SIZE], share[NUMBER_SIZE];
    char waiting_size[PROGRESS_TEXT_SIZE], in_flight_size[PROGRESS_TEXT_SIZE];
    char oldest[PROGRESS_TEXT_SIZE], used[PROGRESS_TEXT_SIZE];

    snprintf(waiting, sizeof(waiting), "%" PRIu64, load->waiting);
    snprintf(in_flight, sizeof(in_flight), "%" PRIu64, load->in_flight);
    snprintf(share, sizeof(share), "%.1f %%",
             total_ns > 0 ? 100 * (double)load->device_ns / (double)total_ns : 0.0);
    const char *const texts[] = {
        name,
        waiting,
        progress_size(load->waiting_size, waiting_size),
        progress_time(load->oldest_ns, oldest),
        in_flight,
        progress_size(load->in_flight_size, in_flight_size),
        progress_time(load->device_ns, used),
        share,
        places,
        urgent,
    };

    table_add(table, texts, ARRAY_SIZE(texts));
}

static void add_queues(struct libscols_table *table, const struct msg_stats *stats)
{
    for (uint32_t i = 0; i < stats->n_queues; i++) {
        const struct msg_queue *queue = &stats->queues[i];
        char places[NUMBER_SIZE];

        snprintf(places, sizeof(places), "%" PRIu64, queue->places);
        add_row(table, priority_names[queue->priority], &queue->load, device_time(stats), places,
                "");
    }
}

static void add_devices(struct libscols_table *table, const struct msg_stats *stats)
{
    for (uint32_t i = 0; i < stats->n_devices; i++) {
        const struct msg_device_load *device = &stats->devices[i];

        add_row(table, device->device, &device->load, device_time(stats), "", "");
    }
}

static void add_users(struct libscols_table *table, const struct msg_stats *stats)
{
    for (uint32_t i = 0; i < stats->n_users; i++) {
        const struct msg_user *user = &stats->users[i];
        char name[NUMBER_SIZE + 4], places[NUMBER_SIZE], time[PROGRESS_TEXT_SIZE];
        uint64_t left_ns = user->urgent_left_ns > 0 ? (uint64_t)user->urgent_left_ns : 0;

        snprintf(name, sizeof(name), "uid %" PRIu64, user->uid);
        snprintf(places, sizeof(places), "%" PRIu64, user->places);
        add_row(table, name, &user->load, device_time(stats), places, progress_time(left_ns, time));
    }
}

int queues_print(const struct msg_stats *stats)
{
    static const struct table_column columns[] = {
        {"QUEUE"},
        {"WAITING", .is_number = true},
        {"BYTES", .is_number = true},
        {"OLDEST", .is_number = true},
        {"IN FLIGHT", .is_number = true},
        {"BYTES", .is_number = true},
        {"DEVICE TIME", .is_number = true},
        {"SHARE", .is_number = true},
        {"PLACES", .is_number = true},
        {"URGENT LEFT", .is_number = true},
    };
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));

    add_queues(table, stats);
    add_devices(table, stats);
    add_users(table, stats);
    return table_print(table);
}
