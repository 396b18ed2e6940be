/*
 * How records stand in files.
 *
 * Threads: pure functions, but for the messages on stderr (see cli.h).
 */
#include "client/cli/format.h"

#include "client/cli/cli.h"
#include "proto/util.h"

#include <inttypes.h>
#include <string.h>

const char *const format_names[FORMAT_COUNT] = {"raw", "npy", "hex", "text"};

enum format format_of(enum format asked, const char *path, bool is_output)
{
    size_t size = strlen(path);
    bool is_npy = size > 4 && strcmp(path + size - 4, ".npy") == 0;

    if (asked != FORMAT_COUNT && (is_output || !format_is_text(asked))) {
        return asked;
    }
    return is_npy ? FORMAT_NPY : FORMAT_RAW;
}

bool format_is_text(enum format format)
{
    return format == FORMAT_HEX || format == FORMAT_TEXT;
}

/* ---- the shape of a record ----------------------------------------------------------------- */

static const struct manifest_param *find_param(const struct manifest_op *op, const char *name)
{
    uint32_t i = 0;

    while (i + 1 < op->n_params && strcmp(op->params[i].name, name) != 0) {
        i++;
    }
    return &op->params[i]; /* the manifest names only parameters that it has */
}

/* The value that holds for an integer parameter; 0: none can be told. */
static int64_t value_of(const struct manifest_op *op, const char *name, const struct value *values,
                        uint32_t n_values)
{
    const struct manifest_param *param = find_param(op, name);
    int64_t least = param->n_at_least > 0 ? 1 : 0;

    for (uint32_t i = 0; i < n_values; i++) {
        if (strcmp(values[i].name, name) == 0) {
            return values[i].kind == VALUE_INT ? values[i].i : 0;
        }
    }
    for (uint32_t i = 0; i < param->n_at_least; i++) {
        /* Factors have none themselves, so this goes one level down. */
        if (__builtin_mul_overflow(least, value_of(op, param->at_least[i], values, n_values),
                                   &least)) {
            return 0;
        }
    }
    return param->is_required ? 0 : MAX(param->i_default, least);
}

const char *format_find_record(const struct manifest_op *op, const struct manifest_array *array,
                               const struct value *values, uint32_t n_values,
                               struct npy *ret_record)
{
    struct npy record = {.dtype = array->dtype};

    for (uint32_t i = 0; i < array->n_dims; i++) {
        const struct manifest_dim *dim = &array->dims[i];
        int64_t size = dim->fixed;

        if (strcmp(dim->param, MANIFEST_VARYING) == 0) {
            continue;
        }
        if (size == 0) {
            size = value_of(op, dim->param, values, n_values);
        }
        if (size < 1 || size > LIMIT_RECORD) {
            return dim->param;
        }
        record.dims[record.n_dims++] = (uint64_t)size;
    }
    *ret_record = record;
    return NULL;
}

int format_record(const struct manifest_op *op, const struct manifest_array *array,
                  const struct value *values, uint32_t n_values, struct npy *ret_record)
{
    const char *lacking = format_find_record(op, array, values, n_values, ret_record);

    if (lacking != NULL) {
        cli_error("%s: its shape needs parameter %s, an integer: -p %s=VALUE", array->name, lacking,
                  lacking);
        return CLI_FAILED;
    }
    return CLI_OK;
}
