/*
 * Errors as gpupipe.h shows them, and the structs of a program that may be older or newer than
 * this.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_error.h"

#include "client/gpupipe_connection.h"
#include "proto/util.h"

#include <string.h>

#define STRUCT_SIZE_MAX 4096 /* far beyond what any may grow to: memory that was not cleared */

#define X(name, doc)                                                                               \
    _Static_assert(GPUPIPE_ERROR_##name == -(int)STATUS_##name, "gpupipe.h keeps to the wire's");
STATUS_LIST(X)
#undef X

static const struct {
    int status;
    const char *name;
    const char *doc;
} rows[] = {
    {GPUPIPE_OK, "OK", "success"},
#define X(name, doc) {GPUPIPE_ERROR_##name, #name, (doc)},
    STATUS_LIST(X)
#undef X
        {GPUPIPE_ERROR_LOST, "LOST", "there is no connection, or no longer"},
    {GPUPIPE_ERROR_MISUSE, "MISUSE", "the call broke a rule of gpupipe.h"},
    {GPUPIPE_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY", "out of memory or descriptors"},
};

/* What a status is called, or what it means. */
static const char *text_of(int status, bool is_doc)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].status == status) {
            return is_doc ? rows[i].doc : rows[i].name;
        }
    }
    return is_doc ? "an error that this version of the library does not know" : "UNKNOWN";
}

const char *gpupipe_strerror(int status)
{
    return text_of(status, true);
}

int error_set(struct error *ret, const struct failure *failure)
{
    ret->failure = *failure;
    ret->shown = (struct gpupipe_error){
        .status = -(int)failure->status,
        .name = text_of(-(int)failure->status, false),
        .message = ret->failure.message,
        .field = ret->failure.field,
        .retry_ms = failure->retry_ms,
        .predicted_ns = failure->predicted_ns,
    };
    return ret->shown.status;
}

int error_record(struct gpupipe *gpupipe, int rc, const struct failure *failure)
{
    return rc < 0 ? error_set(&gpupipe->error, failure) : rc;
}

const struct gpupipe_error *gpupipe_last_error(const struct gpupipe *gpupipe)
{
    static const struct gpupipe_error none = {GPUPIPE_OK, "OK", "", "", 0};
    static const struct gpupipe_error out_of_memory = {GPUPIPE_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY",
                                                       "out of memory", "", 0};

    if (gpupipe == NULL) {
        return &out_of_memory;
    }
    return gpupipe->error.shown.status == GPUPIPE_OK ? &none : &gpupipe->error.shown;
}

/* ---- structs that grow --------------------------------------------------------------------- */

int error_check_size(size_t theirs_size, size_t least_size, struct failure *ret_failure)
{
    if (theirs_size < least_size || theirs_size > STRUCT_SIZE_MAX) {
        return fail(ret_failure, STATUS_MISUSE, "size",
                    "a struct's size is not set; GPUPIPE_INIT() does that");
    }
    return 0;
}

int error_take_struct(void *ours, const void *theirs, size_t theirs_size, size_t ours_size,
                      size_t least_size, struct failure *ret_failure)
{
    const unsigned char *bytes = theirs;
    int rc = error_check_size(theirs_size, least_size, ret_failure);

    for (size_t i = ours_size; i < theirs_size && rc == 0; i++) {
        if (bytes[i] != 0) {
            rc = fail(ret_failure, STATUS_MISUSE, "size",
                      "a struct has members in use that this version does not know");
        }
    }
    if (rc == 0) {
        memset(ours, 0, ours_size);
        memcpy(ours, theirs, MIN(theirs_size, ours_size));
    }
    return rc;
}

void error_give_struct(void *theirs, const void *ours, size_t theirs_size, size_t ours_size)
{
    memset(theirs, 0, theirs_size);
    memcpy(theirs, ours, ours_size);
    memcpy(theirs, &theirs_size, sizeof(theirs_size));
}
