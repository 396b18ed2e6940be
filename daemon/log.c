/*
 * Log: one line to the journal (when standard error is the journal's) or to standard error.
 */
#include "daemon/log.h"

#include "proto/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-journal.h>

static const struct {
    const char *name;
    int priority; /* syslog's */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

static enum log_level most = LOG_LEVEL_INFO;

bool log_level_from_name(const char *name, enum log_level *ret_level)
{
    for (unsigned i = 0; i < ARRAY_SIZE(levels); i++) {
        if (strcmp(levels[i].name, name) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_set_level(enum log_level level)
{
    most = level;
}

void log_message(enum log_level level, const char *format, ...)
{
    char text[512];
    va_list args;

    if (level > most) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (getenv("JOURNAL_STREAM") != NULL) {
        sd_journal_print(levels[level].priority, "%s", text);
    } else {
        fprintf(stderr, "gpupiped: %s: %s\n", levels[level].name, text);
    }
}
