/*
 * gpupipe-cli device list: what the daemon computes on.
 *
 * Threads: one.
 */
#include "client/cli/device.h"

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "proto/util.h"

static json_t *entry_to_json(const struct msg_device *device)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I}", "device", device->device, "name",
                     device->name, "uuid", device->uuid, "state", device->state, "backend",
                     device->backend, "reason", device->reason, "numa", device->numa, "memory",
                     (json_int_t)device->memory);
}

json_t *device_to_json(const struct msg_device *devices, uint32_t n_devices)
{
    json_t *json = json_array();

    for (uint32_t i = 0; i < n_devices; i++) {
        json_array_append_new(json, entry_to_json(&devices[i]));
    }
    return json;
}

int device_print(const struct msg_device *devices, uint32_t n_devices)
{
    static const struct table_column columns[] = {
        {"DEVICE"}, {"BACKEND"},
        {"STATE"},  {"MEMORY", .is_number = true},
        {"NAME"},   {"REASON", .is_long = true},
    };
    struct libscols_table *table = table_create(columns, ARRAY_SIZE(columns));

    for (uint32_t i = 0; i < n_devices; i++) {
        const struct msg_device *device = &devices[i];
        char memory[PROGRESS_TEXT_SIZE];
        const char *const texts[] = {
            device->device, device->backend, device->state, progress_size(device->memory, memory),
            device->name,   device->reason,
        };

        table_add(table, texts, ARRAY_SIZE(texts));
    }
    return table_print(table);
}

int command_device_list(struct cli *cli, int argc, char **argv)
{
    _cleanup_(cli_close) struct gpupipe *gpupipe = NULL;
    _cleanup_(free_pointer) struct msg_device *devices = NULL;
    uint32_t n_devices = 0;
    int rc = cli_operands(cli, argc, argv, NULL, 0, 0);

    if (rc != CLI_OK || cli->wants_help) {
        return rc;
    }
    rc = cli_connect(cli, &gpupipe);
    if (rc != CLI_OK) {
        return rc;
    }
    if (call_device_list(gpupipe, &devices, &n_devices) < 0) {
        return cli_failure(gpupipe_last_error(gpupipe));
    }
    return cli->is_json
               ? cli_print_json(json_pack("{s:o}", "devices", device_to_json(devices, n_devices)))
               : device_print(devices, n_devices);
}
