/*
 * The method table, and the way from a name on the wire to its row.
 */
#include "proto/methods.h"

#include "proto/util.h"

#include <string.h>

static const struct method_row rows[METHOD_COUNT] = {
#define X(name, wire, least, most, payload) [METHOD_##name] = {wire, least, most, payload},
    METHOD_LIST(X)
#undef X
};

const struct method_row *method_row(enum method method)
{
    return &rows[method];
}

enum method method_find(const char *name, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strlen(rows[i].name) == size && memcmp(rows[i].name, name, size) == 0) {
            return (enum method)i;
        }
    }
    return METHOD_COUNT;
}
