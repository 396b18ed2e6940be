/*
 * Where results go.
 *
 * Threads: one.
 */
#include "client/cli/output.h"

#include "client/cli/cli.h"
#include "client/cli/interrupt.h"
#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

bool output_is_stdout(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

static int refuse_overwrite(const char *path)
{
    cli_error("%s exists; -f overwrites it", path);
    return CLI_FAILED;
}

static int refuse_terminal(void)
{
    return cli_usage("no binary to a terminal: use -o FILE or --format text; -f does it anyway");
}

int output_check(const char *path, bool is_forced, bool is_binary)
{
    struct stat status;

    if (output_is_stdout(path)) {
        return is_binary && !is_forced && isatty(STDOUT_FILENO) ? refuse_terminal() : CLI_OK;
    }
    if (stat(path, &status) < 0) {
        return CLI_OK;
    }
    if (S_ISDIR(status.st_mode)) {
        cli_error("%s is a folder", path);
        return CLI_FAILED;
    }
    if (S_ISREG(status.st_mode) && !is_forced) {
        return refuse_overwrite(path);
    }
    return CLI_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* A fresh name beside target, for the caller to free(); NULL: out of memory. */
static char *temporary_name(const char *target)
{
    const char *slash = strrchr(target, '/');
    int folder_size = slash == NULL ? 0 : (int)(slash + 1 - target);
    uint32_t random = 0;
    char *name;

    (void)!getrandom(&random, sizeof(random), 0);
    /* A name may have 255 bytes. */
    if (asprintf(&name, "%.*s.%.200s.%08x", folder_size, target, target + folder_size, random) <
        0) {
        return NULL;
    }
    return name;
}

/* 0 or -errno. */
static int open_temporary(struct output *output)
{
    do {
        free(output->temporary);
        output->temporary = temporary_name(output->target);
        if (output->temporary == NULL) {
            return -ENOMEM;
        }
        output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (output->fd < 0 && errno == EEXIST);
    if (output->fd < 0) {
        int rc = -errno;

        free(STEAL(output->temporary));
        return rc;
    }
    return 0;
}

/* 0 or -errno.  old NULL: nothing stands there; a file that will be replaced leaves its mode. */
static int open_file(struct output *output, const char *path, const struct stat *old)
{
    int rc;

    output->target = old == NULL ? strdup(path) : realpath(path, NULL);
    if (output->target == NULL) {
        return -errno;
    }
    rc = open_temporary(output);
    if (rc == 0 && old != NULL) {
        (void)fchmod(output->fd, old->st_mode & 07777);
    }
    return rc;
}

int output_open(const char *path, bool is_forced, bool is_binary, struct output *ret_output)
{
    struct output output = {.path = path, .fd = -1, .may_overwrite = is_forced};
    struct stat status;
    bool has_old = stat(path, &status) == 0;
    int rc = 0;

    if (output_is_stdout(path)) {
        output.path = "standard output";
        output.fd = STDOUT_FILENO;
    } else if (has_old && !S_ISREG(status.st_mode)) {
        output.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        rc = output.fd < 0 ? -errno : 0;
    } else {
        rc = open_file(&output, path, has_old ? &status : NULL);
    }
    if (rc < 0) {
        output_abandon(&output);
        if (rc == -EINTR && interrupt_came()) {
            return CLI_INTERRUPTED;
        }
        cli_error("cannot create %s: %s", path, strerror(-rc));
        return CLI_FAILED;
    }
    /* Only now can it be told of any path. */
    if (is_binary && !is_forced && isatty(output.fd)) {
        output_abandon(&output);
        return refuse_terminal();
    }
    *ret_output = output;
    return CLI_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int report_error(const struct output *output, int error)
{
    cli_error("cannot write %s: %s", output->path, strerror(error));
    return CLI_FAILED;
}

int output_write(struct output *output, const void *bytes, size_t size)
{
    size_t n_done = 0;

    while (n_done < size) {
        ssize_t n = write(output->fd, (const char *)bytes + n_done, size - n_done);

        if (n < 0 && errno != EINTR) {
            return report_error(output, errno);
        }
        if (interrupt_came()) {
            return CLI_INTERRUPTED;
        }
        n_done += n < 0 ? 0 : (size_t)n;
    }
    output->n_written += size;
    return CLI_OK;
}

bool output_can_rewrite(const struct output *output)
{
    return output->temporary != NULL;
}

int output_rewrite(struct output *output, const void *bytes, size_t size)
{
    ssize_t n;

    do {
        n = pwrite(output->fd, bytes, size, 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)size) {
        return report_error(output, n < 0 ? errno : ENOSPC);
    }
    return CLI_OK;
}

/* ---- ending -------------------------------------------------------------------------------- */

/* 0 or -errno. */
static int give_name(const struct output *output)
{
    if (output->may_overwrite) {
        return rename(output->temporary, output->target) < 0 ? -errno : 0;
    }
    if (renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->target, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -errno;
    }
    /* This file system has no RENAME_NOREPLACE; link() does not replace either. */
    if (link(output->temporary, output->target) < 0) {
        return -errno;
    }
    return unlink(output->temporary) < 0 ? -errno : 0;
}

int output_commit(struct output *output)
{
    int rc;

    if (output->fd != STDOUT_FILENO && close(steal_fd(&output->fd)) < 0) {
        return report_error(output, errno);
    }
    if (output->temporary == NULL) {
        return CLI_OK;
    }
    rc = give_name(output);
    if (rc == -EEXIST) {
        return refuse_overwrite(output->path);
    }
    if (rc < 0) {
        return report_error(output, -rc);
    }
    free(STEAL(output->temporary));
    return CLI_OK;
}

void output_abandon(struct output *output)
{
    if (output->fd > STDOUT_FILENO) {
        close(output->fd);
    }
    output->fd = -1;
    if (output->temporary != NULL) {
        unlink(output->temporary);
    }
    free(STEAL(output->temporary));
    free(STEAL(output->target));
}
