/*
 * Bench options: a benchmark's command line, as a table of its options.  Each takes a value and has
 * its place to go; --help comes with them.  What is wrong on the command line ends the program with
 * a message and exit code 2.
 */
#pragma once

#include "proto/worker_abi.h"

#include <stddef.h>
#include <stdint.h>

struct bench_option {
    const char *name;
    const char *value; /* its name in --help */
    const char *help;
    const char *otherwise; /* the value where none is given; NULL leaves the place as it is */
    uint64_t least, most;  /* of a number: decimal, or with K, M or G */

    /* One place of these three. */
    const char **text;
    uint32_t *count;
    size_t *size; /* in bytes, cut down to whole `least` */
};

/* operands NULL: there are none.  Returns the index of the first in argv. */
int bench_options_read(int argc, char **argv, const struct bench_option *options, size_t n,
                       const char *operands, const char *summary);

/* Of --priority. */
enum priority bench_options_priority(const char *text);

/* Ends the program; for what a table does not know. */
_Noreturn void bench_options_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
