/*
 * Pack: MessagePack values written as text, for tests that speak the protocol by hand.  It shares
 * no code with the codec that it checks.
 *
 *     ['saxpy', {a: 2.5, window: 3}, nil, true, -inf, nan, <4096>, "16", ext]
 *
 * Strings stand in single quotes, map keys may stand bare.  Numbers with . or e are doubles.  <N>
 * is a bin of N bytes that are not zero, "N" a str of N such bytes, ext an extension value.  Taken
 * from the arguments: %s text, %d int, %lu uint64_t, %f double, %b a bin and %t a str (each const
 * void *, size_t).
 *
 * Threads: pure functions.
 */
#pragma once

#include <msgpack.h>
#include <stdarg.h>

/* Append the values of this text (one, or several with commas between).  A mistake fails the test.
 */
void pack_text(msgpack_sbuffer *buffer, const char *format, va_list args);

/* Append a whole request [0, msgid, method, params]; params is the text of an array. */
void pack_request(msgpack_sbuffer *buffer, uint32_t msgid, const char *method, const char *params,
                  va_list args);
/* Likewise a notification [2, method, params]. */
void pack_notification(msgpack_sbuffer *buffer, const char *method, const char *params,
                       va_list args);
