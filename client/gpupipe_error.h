/*
 * Errors at the border: inside the library they are a struct failure, as everywhere in the project;
 * the functions of gpupipe.h hand each to error_record(), where gpupipe_last_error() finds it.  And
 * the structs that cross that border, of programs that may be older or newer than the library.
 *
 * Threads: those of gpupipe.h.
 */
#pragma once

#include "client/gpupipe.h"
#include "proto/status.h"

/* The library's own statuses, in a struct failure. */
#define STATUS_LOST          ((enum status)(-GPUPIPE_ERROR_LOST))
#define STATUS_MISUSE        ((enum status)(-GPUPIPE_ERROR_MISUSE))
#define STATUS_OUT_OF_MEMORY ((enum status)(-GPUPIPE_ERROR_OUT_OF_MEMORY))

/* A failure, and how gpupipe.h shows it; not to be copied. */
struct error {
    struct failure failure;
    struct gpupipe_error shown;
};

/* Returns ret->shown's status, negative. */
int error_set(struct error *ret, const struct failure *failure);
/* The last step of a public function: rc, with the failure kept for the caller if it is negative.
 */
int error_record(struct gpupipe *gpupipe, int rc, const struct failure *failure);

/*
 * Structs that grow: the caller's has theirs_size bytes, ours ours_size, the first version's
 * least_size, and all start with their size.  check: MISUSE where it was not set.  take: into ours,
 * with zeros for what theirs is too old to have; MISUSE also where members are in use that this
 * version does not know.  give: into a checked one of theirs, with zeros for the rest.
 */
int error_check_size(size_t theirs_size, size_t least_size, struct failure *ret_failure);
int error_take_struct(void *ours, const void *theirs, size_t theirs_size, size_t ours_size,
                      size_t least_size, struct failure *ret_failure);
void error_give_struct(void *theirs, const void *ours, size_t theirs_size, size_t ours_size);
