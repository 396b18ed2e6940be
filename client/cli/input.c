/*
 * Where records come from.
 *
 * A size counts as known where the kernel promises one: files that are not empty (those in /proc
 * claim to be) and block devices.  It serves the progress bar and early errors only: reading goes
 * on to the end of file whatever was promised.
 *
 * Threads: one.
 */
#include "client/cli/input.h"

#include "client/cli/cli.h"
#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static void learn_size(struct input *input, const struct stat *status)
{
    off_t start = lseek(input->fd, 0, SEEK_CUR);
    off_t end = status->st_size;

    if (start < 0) {
        return;
    }
    if (S_ISBLK(status->st_mode)) {
        end = lseek(input->fd, 0, SEEK_END);
        lseek(input->fd, start, SEEK_SET);
    }
    input->has_size = end > 0;
    input->size = end > start ? (uint64_t)(end - start) : 0;
}

int input_open(const char *name, const char *path, struct input *ret_input)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct input input = {.name = name, .path = is_stdin ? "standard input" : path};
    struct stat status;

    input.fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (input.fd < 0 || fstat(input.fd, &status) < 0) {
        cli_error("cannot open %s: %s", input.path, strerror(errno));
        input_close(&input);
        return CLI_FAILED;
    }
    if (S_ISDIR(status.st_mode)) {
        cli_error("%s is a folder", input.path);
        input_close(&input);
        return CLI_FAILED;
    }
    input.may_block = !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode);
    if (!input.may_block) {
        learn_size(&input, &status);
        (void)posix_fadvise(input.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    *ret_input = input;
    return CLI_OK;
}

void input_close(struct input *input)
{
    if (input->fd > STDIN_FILENO) {
        close(input->fd);
    }
    input->fd = -1;
}

int input_fill(struct input *input, uint8_t *buffer, size_t size, size_t *filled)
{
    while (*filled < size && !input->is_at_end) {
        ssize_t n = read(input->fd, buffer + *filled, size - *filled);

        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            return CLI_OK;
        }
        if (n < 0) {
            cli_error("cannot read %s: %s", input->path, strerror(errno));
            return CLI_FAILED;
        }
        input->is_at_end = n == 0;
        input->position += (uint64_t)n;
        *filled += (size_t)n;
        if (input->may_block) {
            break;
        }
    }
    return CLI_OK;
}

/* ---- sizes that do not fit ----------------------------------------------------------------- */

/* What is known of the input's length: what was read, once all was, else what was promised. */
static uint64_t known_size(const struct input *input)
{
    return input->has_size && !input->is_at_end ? input->size : input->position;
}

int input_report_part(const struct input *input, uint32_t record_size)
{
    cli_error("input %s: %s has %" PRIu64 " bytes, not a multiple of the record's %u; "
              "--tail zero pads the last record, --tail short passes it to an op that takes one",
              input->name, input->path, known_size(input), record_size);
    return CLI_FAILED;
}

int input_report_mismatch(const struct input *inputs, uint32_t n_inputs,
                          const uint32_t *record_sizes)
{
    cli_error("the inputs must have the same number of records:");
    for (uint32_t i = 0; i < n_inputs; i++) {
        bool is_whole = inputs[i].has_size || inputs[i].is_at_end;

        cli_error("  input %s: %s has %s%" PRIu64 " bytes, %" PRIu64 " records of %u",
                  inputs[i].name, inputs[i].path, is_whole ? "" : "at least ",
                  known_size(&inputs[i]), div_round_up(known_size(&inputs[i]), record_sizes[i]),
                  record_sizes[i]);
    }
    return CLI_FAILED;
}

int input_check(const struct input *inputs, uint32_t n_inputs, const uint32_t *record_sizes,
                enum tail tail)
{
    uint64_t n_records = 0;
    bool has_records = false;

    for (uint32_t i = 0; i < n_inputs; i++) {
        uint64_t n_mine = div_round_up(inputs[i].size, record_sizes[i]);

        if (!inputs[i].has_size) {
            continue;
        }
        if (tail == TAIL_ERROR && inputs[i].size % record_sizes[i] != 0) {
            return input_report_part(&inputs[i], record_sizes[i]);
        }
        if (has_records && n_mine != n_records) {
            return input_report_mismatch(inputs, n_inputs, record_sizes);
        }
        n_records = n_mine;
        has_records = true;
    }
    return CLI_OK;
}
