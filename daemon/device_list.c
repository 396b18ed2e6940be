/*
 * Device list: the shape of names, no more.
 */
#include "daemon/device_list.h"

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

static bool has_name(const struct device_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcasecmp(list->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int add_name(struct device_list *list, const char *name, size_t length,
                    struct failure *ret_failure)
{
    if (length >= WORKER_DEVICE_SIZE || !is_name(name, length)) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "devices",
                    "--devices takes indices (0,1) or UUIDs (GPU-...) as nvidia-smi -L shows them, "
                    "not \"%.*s\"",
                    (int)length, name);
    }
    if (list->n == LIMIT_DEVICES) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "devices",
                    "--devices names more than %d devices", LIMIT_DEVICES);
    }
    snprintf(list->names[list->n], WORKER_DEVICE_SIZE, "%.*s", (int)length, name);
    if (has_name(list, list->names[list->n])) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "devices", "--devices names \"%s\" twice",
                    list->names[list->n]);
    }
    list->n++;
    return 0;
}

int device_list_read(const char *text, struct device_list *ret_list, struct failure *ret_failure)
{
    struct device_list list = {0};

    for (;;) {
        size_t length = strcspn(text, ",");
        int r = add_name(&list, text, length, ret_failure);

        if (r < 0) {
            return r;
        }
        if (text[length] == '\0') {
            *ret_list = list;
            return 0;
        }
        text += length + 1;
    }
}
