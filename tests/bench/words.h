/*
 * Words: what small jobs carry where even fresh random bytes would cost more than the job: random
 * words, each numbered job's with a random word of its own over them.  So every byte of a job
 * differs from that of any other job before it.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define WORDS_SIZE_MAX 4096u

struct words {
    uint64_t table[WORDS_SIZE_MAX / sizeof(uint64_t)];
    uint64_t seed;
};

/* Fresh ones. */
void words_fill(struct words *words);
/* A job's bytes; size is in whole words, 8 bytes each. */
void words_write(const struct words *words, uint64_t number, void *bytes, size_t size);
/* The program ends where a byte is wrong. */
void words_check(const struct words *words, uint64_t number, const char *what, const void *bytes,
                 size_t size);
