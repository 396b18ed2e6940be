/*
 * Words: see words.h.
 */
#include "tests/bench/words.h"

#include "tests/bench/bench.h"

/* splitmix64: the word of a job. */
static uint64_t word_of(const struct words *words, uint64_t number)
{
    uint64_t word = words->seed + number * UINT64_C(0x9e3779b97f4a7c15);

    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

void words_fill(struct words *words)
{
    bench_fill(words, sizeof(*words));
}

void words_write(const struct words *words, uint64_t number, void *bytes, size_t size)
{
    uint64_t *at = bytes, word = word_of(words, number);

    for (size_t i = 0; i < size / sizeof(*at); i++) {
        at[i] = words->table[i] ^ word;
    }
}

void words_check(const struct words *words, uint64_t number, const char *what, const void *bytes,
                 size_t size)
{
    const uint64_t *at = bytes;
    uint64_t word = word_of(words, number), wrong = 0;

    for (size_t i = 0; i < size / sizeof(*at); i++) {
        wrong |= at[i] ^ words->table[i] ^ word;
    }
    if (wrong != 0) {
        bench_fail("%s: wrong result of a job of %zu bytes", what, size);
    }
}
