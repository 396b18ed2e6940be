/*
 * Devices: the shape of names, no more.
 */
#include "daemon/devices.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define INDEX_LENGTH_MAX 4u

/* Behind "GPU-" or "MIG-".  Early MIG names have the GPU's within, and numbers behind a slash. */
#define UUID_CHARACTERS "0123456789abcdefABCDEF-/GPU"

static bool is_name(const char *name, size_t length)
{
    bool is_uuid = strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;

    if (is_uuid) {
        return length > 4 && 4 + strspn(name + 4, UUID_CHARACTERS) == length;
    }
    return length > 0 && length <= INDEX_LENGTH_MAX && strspn(name, "0123456789") == length;
}

int devices_first(const char *list, char *ret_device, size_t size, struct failure *ret_failure)
{
    size_t first_length = strcspn(list, ",");
    const char *name = list;

    for (;;) {
        size_t length = strcspn(name, ",");

        if (length >= size || !is_name(name, length)) {
            return fail(ret_failure, STATUS_INVALID_PARAM, "devices",
                        "--devices takes indices (0,1) or UUIDs (GPU-...) as nvidia-smi -L shows "
                        "them, not \"%.*s\"",
                        (int)length, name);
        }
        if (name[length] == '\0') {
            break;
        }
        name += length + 1;
    }
    snprintf(ret_device, size, "%.*s", (int)first_length, list);
    return 0;
}
