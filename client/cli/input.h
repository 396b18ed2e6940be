/*
 * Input: a file, device, pipe or terminal that records are read from.
 *
 * Errors: see cli.h; each names the file.  Threads: one.
 */
#pragma once

#include "client/cli/npy.h"
#include "proto/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct input {
    const char *name; /* the op's */
    const char *path; /* as given; "standard input" for "-" */
    int fd;
    bool may_block; /* not a file: poll() before each read */
    bool has_size;
    uint64_t size;     /* bytes from where reading starts, if has_size */
    uint64_t position; /* bytes read */
    bool is_at_end;
    bool is_npy;     /* size bytes, which a header promised, whatever follows */
    bool is_varying; /* its records have no size of their own */
    uint8_t *put_back;
    size_t n_put_back;
};

/*
 * path "-" is standard input.  With a record, the file is a .npy of such records, and what is read
 * from it begins behind its header.
 */
int input_open(const char *name, const char *path, const struct npy *record,
               struct input *ret_input);
void input_close(struct input *input);

/*
 * Read until the buffer holds size bytes, or the input's end.  An input that may block is read once
 * only: call it when poll() says so.  *filled counts what the buffer holds.
 */
int input_fill(struct input *input, uint8_t *buffer, size_t size, size_t *filled);

/* Have the next input_fill() begin with these bytes, which the last one read. */
int input_put_back(struct input *input, const uint8_t *bytes, size_t size);

/*
 * Before anything is sent, judge the sizes that are known: whole records (unless tail says what to
 * do with a part), and as many in each input.  What a varying input has, its ends must tell.
 */
int input_check(const struct input *inputs, uint32_t n_inputs, const uint32_t *record_sizes,
                enum tail tail);

/* Report what only reading could tell: numbers of records that differ, part of a record. */
int input_report_mismatch(const struct input *inputs, uint32_t n_inputs,
                          const uint32_t *record_sizes);
int input_report_part(const struct input *input, uint32_t record_size);
