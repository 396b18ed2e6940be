/*
 * Log: one line to the journal (when standard error is the journal's) or to standard error.
 */
#include "daemon/log.h"

#include "proto/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The place in this file would be the same for all messages. */
#define SD_JOURNAL_SUPPRESS_LOCATION
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
static bool is_to_journal;

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

/* JOURNAL_STREAM names the stream; a terminal's shell or a test inherits it with another one. */
static bool has_journal_stream(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat stat;

    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &stat) == 0 && stat.st_dev == device && stat.st_ino == inode;
}

void log_init(enum log_level level)
{
    most = level;
    is_to_journal = has_journal_stream();
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
    if (is_to_journal) {
        sd_journal_print(levels[level].priority, "%s", text);
    } else {
        fprintf(stderr, "gpupiped: %s: %s\n", levels[level].name, text);
    }
}
