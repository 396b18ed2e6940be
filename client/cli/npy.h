/*
 * Npy: the header of NumPy's .npy files, which says what the bytes behind it are.
 *
 * Versions 1 and 2 are read, version 1 is written.  Elements are those of the ops, little-endian
 * and in C order; what is not is refused with what to do about it.
 *
 * Functions that can fail return 0 or a negative status; the failure's sentence starts with "it",
 * the file, whose name is the caller's to tell.
 *
 * Threads: pure functions, but for npy_read().
 */
#pragma once

#include "proto/manifest.h"
#include "proto/status.h"

#include <stddef.h>
#include <stdint.h>

#define NPY_DIMS        32  /* of an array, at most, as in numpy */
#define NPY_HEADER_SIZE 192 /* of what is written, whatever the dimensions are */

struct npy {
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t dims[NPY_DIMS];
};

/* The dictionary in a header, of size bytes. */
int npy_parse(const char *text, size_t size, struct npy *ret_npy, struct failure *ret_failure);
/* Read a header from a file or pipe, and nothing behind it.  May block. */
int npy_read(int fd, struct npy *ret_npy, struct failure *ret_failure);

/* Bytes of all elements: npy_parse() and npy_read() have made sure that they can be counted. */
uint64_t npy_size(const struct npy *npy);

/*
 * How many records there are in the array: its last dimensions must be those of `record`, the ones
 * before count records.  Several in a row may stand for their product: an image of (height, width,
 * 3) has records of [height, 3 * width].
 */
int npy_count(const struct npy *npy, const struct npy *record, uint64_t *ret_n_records,
              struct failure *ret_failure);

/* The header of n_records of these records. */
void npy_header(const struct npy *record, uint64_t n_records, uint8_t ret_header[NPY_HEADER_SIZE]);
