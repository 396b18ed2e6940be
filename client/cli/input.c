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

static int open_file(struct input *input)
{
    struct stat status;

    if (input->fd < 0 || fstat(input->fd, &status) < 0) {
        cli_error("cannot open %s: %s", input->path, strerror(errno));
        return CLI_FAILED;
    }
    if (S_ISDIR(status.st_mode)) {
        cli_error("%s is a folder", input->path);
        return CLI_FAILED;
    }
    input->may_block = !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode);
    if (!input->may_block) {
        learn_size(input, &status);
        (void)posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    return CLI_OK;
}

static int report_short(const struct input *input, uint64_t size)
{
    cli_error("%s: %s ends after %" PRIu64 " of the %" PRIu64 " bytes that its header tells",
              input->name, input->path, size, input->size);
    return CLI_FAILED;
}

static int read_header(struct input *input, const struct npy *record)
{
    struct input rest = *input;
    struct stat status;
    struct npy npy;
    struct failure failure;
    uint64_t n_records;

    if (npy_read(input->fd, &npy, &failure) < 0 ||
        npy_count(&npy, record, &n_records, &failure) < 0) {
        cli_error("%s: %s: %s; --format raw takes it as it is, header and all", input->name,
                  input->path, failure.message);
        return CLI_FAILED;
    }
    input->is_npy = true;
    input->has_size = true;
    input->size = npy_size(&npy);
    input->is_at_end = input->size == 0;
    if (!input->may_block && fstat(input->fd, &status) == 0) {
        learn_size(&rest, &status);
        if (rest.size < input->size) {
            return report_short(input, rest.size);
        }
    }
    return CLI_OK;
}

int input_open(const char *name, const char *path, const struct npy *record,
               struct input *ret_input)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct input input = {.name = name, .path = is_stdin ? "standard input" : path};
    int rc;

    input.fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    rc = open_file(&input);
    if (rc == CLI_OK && record != NULL) {
        rc = read_header(&input, record);
    }
    if (rc != CLI_OK) {
        input_close(&input);
        return rc;
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
    free(STEAL(input->put_back));
}

/* ---- reading ------------------------------------------------------------------------------- */

int input_put_back(struct input *input, const uint8_t *bytes, size_t size)
{
    uint8_t *joined = malloc(size + input->n_put_back + 1);

    if (joined == NULL) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    memcpy(joined, bytes, size);
    if (input->n_put_back > 0) {
        memcpy(joined + size, input->put_back, input->n_put_back);
    }
    free(input->put_back);
    input->put_back = joined;
    input->n_put_back += size;
    input->position -= size;
    input->is_at_end &= size == 0;
    return CLI_OK;
}

static size_t take_back(struct input *input, uint8_t *buffer, size_t size)
{
    size_t n = MIN(size, input->n_put_back);

    memcpy(buffer, input->put_back, n);
    memmove(input->put_back, input->put_back + n, input->n_put_back - n);
    input->n_put_back -= n;
    return n;
}

/* As read(). */
static ssize_t read_some(struct input *input, uint8_t *buffer, size_t size)
{
    if (input->n_put_back > 0) {
        return (ssize_t)take_back(input, buffer, size);
    }
    return read(input->fd, buffer, input->is_npy ? MIN(size, input->size - input->position) : size);
}

int input_fill(struct input *input, uint8_t *buffer, size_t size, size_t *filled)
{
    while (*filled < size && !input->is_at_end) {
        ssize_t n = read_some(input, buffer + *filled, size - *filled);

        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            return CLI_OK;
        }
        if (n < 0) {
            cli_error("cannot read %s: %s", input->path, strerror(errno));
            return CLI_FAILED;
        }
        if (n == 0 && input->is_npy) {
            return report_short(input, input->position);
        }
        input->position += (uint64_t)n;
        input->is_at_end = n == 0 || (input->is_npy && input->position == input->size);
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

        if (inputs[i].is_varying) {
            continue;
        }
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

        if (!inputs[i].has_size || inputs[i].is_varying) {
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
