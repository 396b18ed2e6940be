/*
 * Status names and the one function that fills a failure.
 */
#include "proto/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[STATUS_COUNT] = {[STATUS_OK] = "OK",
#define X(name, doc) [STATUS_##name] = #name,
                                                STATUS_LIST(X)
#undef X
};

const char *status_name(enum status status)
{
    return (unsigned)status < STATUS_COUNT ? names[status] : names[STATUS_INTERNAL];
}

enum status status_from_name(const char *name)
{
    for (enum status status = STATUS_OK; status < STATUS_COUNT; status++) {
        if (strcmp(names[status], name) == 0) {
            return status;
        }
    }
    return STATUS_INTERNAL;
}

int fail(struct failure *ret_failure, enum status status, const char *field, const char *format,
         ...)
{
    va_list args;

    memset(ret_failure, 0, sizeof(*ret_failure));
    ret_failure->status = status;
    if (field != NULL) {
        snprintf(ret_failure->field, sizeof(ret_failure->field), "%s", field);
    }
    va_start(args, format);
    vsnprintf(ret_failure->message, sizeof(ret_failure->message), format, args);
    va_end(args);
    for (char *at = ret_failure->message; *at != '\0'; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
    return -(int)status;
}

int failure_add_limit(struct failure *failure, const char *limit, uint64_t used, uint64_t max)
{
    snprintf(failure->limit, sizeof(failure->limit), "%s", limit);
    failure->used = used;
    failure->max = max;
    return -(int)failure->status;
}
