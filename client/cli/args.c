/*
 * The values that stand on a command line.
 *
 * Threads: pure functions.
 */
#include "client/cli/args.h"

#include "client/cli/cli.h"
#include "proto/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- sizes, durations, words --------------------------------------------------------------- */

/* The power of 1024 that this suffix means, or -1. */
static int suffix_power(const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *letter;

    if (suffix[0] == '\0' || strcmp(suffix, "B") == 0) {
        return 0;
    }
    letter = strchr(letters, suffix[0] == 'k' ? 'K' : suffix[0]);
    if (letter == NULL || (suffix[1] != '\0' && strcmp(suffix + 1, "iB") != 0)) {
        return -1;
    }
    return (int)(letter - letters) + 1;
}

bool args_size(const char *text, uint64_t *ret_size)
{
    unsigned long long number;
    char *end;
    int power;

    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    number = strtoull(text, &end, 10);
    power = suffix_power(end);
    if (errno != 0 || power < 0 || number == 0 || number > UINT64_MAX >> (10 * power)) {
        return false;
    }
    *ret_size = (uint64_t)number << (10 * power);
    return true;
}

bool args_duration(const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    double number;
    char *end;

    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    number = strtod(text, &end);
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        double ns = number * units[i].ns;

        /* 2^53 ns are 104 days: what a double and the wire hold exactly. */
        if (strcmp(end, units[i].name) == 0 && ns >= 1 && ns <= 9007199254740992.0) {
            *ret_ns = (uint64_t)(ns + 0.5);
            return true;
        }
    }
    return false;
}

uint32_t args_choice(const char *text, const char *const *names, uint32_t n_names)
{
    uint32_t i = 0;

    while (i < n_names && strcmp(text, names[i]) != 0) {
        i++;
    }
    return i;
}

int args_choose(const char *option, const char *text, const char *const *names, uint32_t n_names,
                uint32_t *ret_choice)
{
    uint32_t choice = args_choice(text, names, n_names);
    char all[128] = "";

    if (choice < n_names) {
        *ret_choice = choice;
        return CLI_OK;
    }
    for (uint32_t i = 0; i < n_names; i++) {
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i == 0 ? "" : ", ",
                 names[i]);
    }
    return cli_usage("%s %s: may be %s", option, text, all);
}

/* ---- parameters ---------------------------------------------------------------------------- */

static bool is_choice(const struct manifest_op *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_params; i++) {
        if (strcmp(op->params[i].name, name) == 0) {
            return op->params[i].type == PARAM_CHOICE;
        }
    }
    return false;
}

static bool read_integer(const char *text, int64_t *ret_integer)
{
    bool is_hex = strncmp(text, "0x", 2) == 0;
    uint64_t size;
    long long integer;
    char *end;

    errno = 0;
    integer = strtoll(text, &end, is_hex ? 16 : 10);
    if (end != text && *end == '\0' && errno == 0) {
        *ret_integer = integer;
        return true;
    }
    if (args_size(text, &size) && size <= INT64_MAX) {
        *ret_integer = (int64_t)size;
        return true;
    }
    return false;
}

static bool read_float(const char *text, double *ret_float)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end != '\0') {
        return false;
    }
    *ret_float = number;
    return true;
}

int args_value(const char *text, const struct manifest_op *op, struct value *ret_value)
{
    const char *equals = strchr(text, '=');
    struct value value = {0};

    if (equals == NULL || equals == text) {
        return cli_usage("-p %s: expected NAME=VALUE", text);
    }
    if ((size_t)(equals - text) >= sizeof(value.name)) {
        return cli_usage("-p %s: no parameter has a name that long", text);
    }
    memcpy(value.name, text, (size_t)(equals - text));
    if (!is_choice(op, value.name) && read_integer(equals + 1, &value.i)) {
        value.kind = VALUE_INT;
    } else if (!is_choice(op, value.name) && read_float(equals + 1, &value.f)) {
        value.kind = VALUE_FLOAT;
    } else if (strlen(equals + 1) < sizeof(value.s)) {
        value.kind = VALUE_STRING;
        snprintf(value.s, sizeof(value.s), "%s", equals + 1);
    } else {
        return cli_usage("-p %s: no parameter takes a word that long", text);
    }
    *ret_value = value;
    return CLI_OK;
}

/* ---- files --------------------------------------------------------------------------------- */

/* The array that text names, with the file's part in *ret_path; or n_arrays: it names none. */
static uint32_t named_array(const char *text, const struct manifest_array *arrays,
                            uint32_t n_arrays, const char **ret_path)
{
    const char *equals = strchr(text, '=');

    for (uint32_t i = 0; equals != NULL && i < n_arrays; i++) {
        size_t name_size = strlen(arrays[i].name);

        if (name_size == (size_t)(equals - text) && memcmp(arrays[i].name, text, name_size) == 0) {
            *ret_path = equals + 1;
            return i;
        }
    }
    return n_arrays;
}

static int bind_named(const char *text, const struct manifest_array *arrays, uint32_t n_arrays,
                      const char *option, const char *kind, const char **ret_paths)
{
    const char *path;
    uint32_t array = named_array(text, arrays, n_arrays, &path);

    if (array < n_arrays && ret_paths[array] != NULL) {
        return cli_usage("%s %s: %s %s is given twice", option, text, kind, arrays[array].name);
    }
    if (array < n_arrays) {
        ret_paths[array] = path;
    }
    return CLI_OK;
}

int args_bind(const char *const *texts, uint32_t n_texts, const struct manifest_array *arrays,
              uint32_t n_arrays, const char *option, const char *kind, const char **ret_paths)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < n_texts; i++) {
        int rc = bind_named(texts[i], arrays, n_arrays, option, kind, ret_paths);

        if (rc != CLI_OK) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        const char *path;

        if (named_array(texts[i], arrays, n_arrays, &path) < n_arrays) {
            continue;
        }
        while (next < n_arrays && ret_paths[next] != NULL) {
            next++;
        }
        if (next == n_arrays) {
            return cli_usage("%s %s: one file too many: the op has %u %s%s", option, texts[i],
                             n_arrays, kind, n_arrays == 1 ? "" : "s");
        }
        ret_paths[next] = texts[i];
    }
    return CLI_OK;
}
