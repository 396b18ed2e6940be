/*
 * What a caller asks for, as the wire has it: the op with its parameters, and how it is to be done.
 *
 * Threads: the one that owns the connection.
 */
#include "client/gpupipe_job.h"
#include "proto/util.h"

#include <stdio.h>
#include <string.h>

static const enum priority priorities[] = {
    [GPUPIPE_NORMAL] = PRIORITY_NORMAL,
    [GPUPIPE_URGENT] = PRIORITY_URGENT,
    [GPUPIPE_BULK] = PRIORITY_BULK,
};

_Static_assert((int)GPUPIPE_ANY == (int)REQUIRE_ANY && (int)GPUPIPE_GPU == (int)REQUIRE_GPU &&
                   (int)GPUPIPE_CPU == (int)REQUIRE_CPU,
               "as on the wire");
_Static_assert((int)GPUPIPE_TAIL_ERROR == (int)TAIL_ERROR &&
                   (int)GPUPIPE_TAIL_ZERO == (int)TAIL_ZERO &&
                   (int)GPUPIPE_TAIL_SHORT == (int)TAIL_SHORT,
               "as on the wire");
_Static_assert((int)GPUPIPE_INT == (int)VALUE_INT && (int)GPUPIPE_FLOAT == (int)VALUE_FLOAT &&
                   (int)GPUPIPE_STRING == (int)VALUE_STRING,
               "as in the codec");

/* Copy a name that must fit. */
static bool take_name(char *ret_name, size_t size, const char *name)
{
    return (size_t)snprintf(ret_name, size, "%s", name == NULL ? "" : name) < size;
}

static int take_value(const struct gpupipe_value *value, struct value *ret_value,
                      struct failure *ret_failure)
{
    *ret_value = (struct value){.kind = (enum value_kind)value->kind, .i = value->i, .f = value->f};
    if (!take_name(ret_value->name, sizeof(ret_value->name), value->name)) {
        return fail(ret_failure, STATUS_INVALID_PARAM, NULL, "no parameter has a name that long");
    }
    if ((unsigned)value->kind > GPUPIPE_STRING) {
        return fail(ret_failure, STATUS_MISUSE, ret_value->name, "parameter \"%s\" is of no kind",
                    ret_value->name);
    }
    if (value->kind == GPUPIPE_STRING && !take_name(ret_value->s, sizeof(ret_value->s), value->s)) {
        return fail(ret_failure, STATUS_RANGE, ret_value->name,
                    "parameter \"%s\" is longer than any of its choices", ret_value->name);
    }
    return 0;
}

int job_take_op(const char *op, const struct gpupipe_value *values, uint32_t n_values,
                struct msg_op *ret_op, struct failure *ret_failure)
{
    int rc = 0;

    memset(ret_op, 0, sizeof(*ret_op));
    if (!take_name(ret_op->name, sizeof(ret_op->name), op)) {
        return fail(ret_failure, STATUS_UNKNOWN_OP, "op", "no op has a name that long");
    }
    if (n_values > LIMIT_PARAMS) {
        return fail(ret_failure, STATUS_INVALID_PARAM, "params", "%u parameters are more than %d",
                    n_values, LIMIT_PARAMS);
    }
    for (uint32_t i = 0; i < n_values && rc == 0; i++) {
        rc = take_value(&values[i], &ret_op->values[i], ret_failure);
    }
    ret_op->n_values = n_values;
    return rc;
}

static int take_after(const struct gpupipe_job_opts *opts, struct msg_options *ret_options,
                      struct failure *ret_failure)
{
    if (opts->n_after > LIMIT_AFTER) {
        return fail(ret_failure, STATUS_RANGE, "after", "%u jobs to wait for are more than %d",
                    opts->n_after, LIMIT_AFTER);
    }
    for (uint32_t i = 0; i < opts->n_after; i++) {
        struct msg_after *after = &ret_options->after[i];

        if (opts->after[i] == NULL || opts->after[i][0] == '\0') {
            return fail(ret_failure, STATUS_MISUSE, "after", "a token is missing");
        }
        if (!take_name(after->token, sizeof(after->token), opts->after[i])) {
            return fail(ret_failure, STATUS_NOT_FOUND, "after", "no job has a token that long");
        }
    }
    ret_options->n_after = opts->n_after;
    return 0;
}

#define OPTS_LEAST offsetof(struct gpupipe_job_opts, ring) /* the first version's */

int job_take_options(const struct gpupipe_job_opts *opts, struct msg_options *ret_options,
                     struct job_route *ret_route, struct failure *ret_failure)
{
    struct gpupipe_job_opts mine = {.size = sizeof(mine)};
    int rc = 0;

    if (opts != NULL) {
        rc = error_take_struct(&mine, opts, opts->size, sizeof(mine), OPTS_LEAST, ret_failure);
    }
    if (rc < 0) {
        return rc;
    }
    if ((unsigned)mine.priority > GPUPIPE_BULK || (unsigned)mine.require > GPUPIPE_CPU ||
        (unsigned)mine.tail > GPUPIPE_TAIL_SHORT) {
        return fail(ret_failure, STATUS_MISUSE, NULL, "an option is none of its enum's values");
    }
    *ret_options = (struct msg_options){
        .priority = priorities[mine.priority],
        .deadline_ns = mine.deadline_ns,
        .require = (enum require)mine.require,
        .tail = (enum tail)mine.tail,
        .wants_timing = mine.wants_timing != 0,
        .window = mine.window,
        .max_push = mine.max_push,
        .is_unordered = mine.is_unordered != 0,
        .is_admitted = mine.admit != 0,
        .total_size = mine.total_size,
    };
    if (mine.n_consts > LIMIT_CONSTS) {
        return fail(ret_failure, STATUS_RANGE, "consts", "%u constants: no op has more than %d",
                    mine.n_consts, LIMIT_CONSTS);
    }
    for (uint32_t i = 0; i < mine.n_consts; i++) {
        ret_options->consts[i] = mine.consts[i];
    }
    ret_options->n_consts = mine.n_consts;
    if (!take_name(ret_options->device, sizeof(ret_options->device), mine.device)) {
        return fail(ret_failure, STATUS_NO_DEVICE, "device", "no device has a name that long");
    }
    *ret_route = (struct job_route){.ring = mine.ring, .is_ring_forbidden = mine.no_ring != 0};
    return take_after(&mine, ret_options, ret_failure);
}
