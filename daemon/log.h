/*
 * Log: the daemon's messages, once each, where an error is handled.
 *
 * Under systemd they go to the journal with their fields, else to standard error.  What clients can
 * cause at will is logged at debug level and counted in `stats`: a client cannot flood the log.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* "error", "warning", "info" or "debug" into *ret_level; false for anything else. */
bool log_level_from_name(const char *name, enum log_level *ret_level);
/* Once, before the first message: the level, and where to. */
void log_init(enum log_level level);

__attribute__((format(printf, 2, 3))) void log_message(enum log_level level, const char *format,
                                                       ...);

#define log_error(...)   log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)
