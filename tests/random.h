/*
 * Random: fresh test data in every run.  The seed is printed once, so that a failure can be
 * repeated with GPUPIPE_TEST_SEED=N in the environment.
 *
 * Threads: the thread that runs the tests; random_next() any, with a state of its own.
 */
#pragma once

#include "tests/check.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

__attribute__((weak)) uint64_t random_state; /* 0 = not seeded yet */

/* The next 64 bits (splitmix64). */
static inline uint64_t random_u64(void)
{
    uint64_t mixed;

    if (random_state == 0) {
        const char *seed = getenv("GPUPIPE_TEST_SEED");

        if (seed != NULL) {
            random_state = strtoull(seed, NULL, 0);
        } else if (getrandom(&random_state, sizeof(random_state), 0) < 0) {
            abort();
        }
        random_state |= 1;
        printf("# GPUPIPE_TEST_SEED=%" PRIu64 "\n", random_state);
    }
    mixed = random_state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* 0 .. below - 1 */
static inline uint64_t random_below(uint64_t below)
{
    return random_u64() % below;
}

/* For other threads and processes (xorshift): the state starts as random_u64() | 1. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void random_bytes(void *bytes, size_t size)
{
    uint8_t *at = bytes;
    uint64_t word;

    for (; size >= sizeof(word); size -= sizeof(word), at += sizeof(word)) {
        word = random_u64();
        memcpy(at, &word, sizeof(word));
    }
    word = random_u64();
    memcpy(at, &word, size);
}

/* Finite floats of mixed sizes and both signs. */
static inline void random_floats(float *floats, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)(int32_t)random_u64() / (float)(1u << random_below(31));
    }
}

/* Random bytes and floats of their own, freed at the test's end. */
static inline void *random_new(size_t size)
{
    void *bytes = malloc(size + 1);

    check_at_end(free, bytes);
    random_bytes(bytes, size);
    return bytes;
}

static inline float *random_new_floats(size_t n)
{
    float *floats = random_new(n * sizeof(float));

    random_floats(floats, n);
    return floats;
}
