/*
 * Json: MessagePack as JSON text.
 *
 * Threads: pure functions.
 */
#pragma once

#include <msgpack.h>

/*
 * The object, malloc()ed, on one line; NULL: out of memory.  Whatever JSON has no word for (bin,
 * ext, NaN) is null; a key that is no string is left out with its value.
 */
char *json_text(const msgpack_object *object);
