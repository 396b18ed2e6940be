/*
 * Shared words: how this project reads and writes memory that another process may write to at any
 * time.  Used by queue.c and ring.c, and between two threads by the daemon's aside.c.
 *
 * Each word is loaded, or stored, exactly once and whole; what a reader has is a copy.  Contents
 * travel by release and acquire of an index next to them.
 *
 * The sleep line, the same on both sides: a sleeper stores its flag, then loads the index that
 * tells of news; a publisher stores the index, then loads the flag.  Were either pair to be
 * reordered (a store may pass a later load of another address, on x86 too), both could see the old
 * value: news that nobody is woken for.  All four are therefore sequentially consistent: in their
 * one total order, whichever store comes second is followed by a load that sees the first.  The
 * publisher clears the flag, so that one sleep costs one ring; it rings after clearing, so a flag
 * set again in between costs a spurious wake at most.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHARED_LINE_SIZE 64

/* A word with a cache line of its own. */
struct shared_line {
    uint32_t value;
    uint8_t zero[SHARED_LINE_SIZE - 4];
};
_Static_assert(sizeof(struct shared_line) == SHARED_LINE_SIZE, "a line is a line");

static inline uint32_t shared_load(const uint32_t *shared, int order)
{
    return __atomic_load_n(shared, order);
}

static inline void shared_store(uint32_t *shared, uint32_t value, int order)
{
    __atomic_store_n(shared, value, order);
}

/* Structs of whole 8-byte words at 8-byte addresses, word by word, relaxed.  gcc does not unroll a
 * loop around atomics by itself, and most are a line long. */
static inline void shared_load_words(void *private, const void *shared, size_t size)
{
    uint64_t word;

#pragma GCC unroll 8
    for (size_t at = 0; at < size; at += sizeof(word)) {
        word = __atomic_load_n((const uint64_t *)((const char *)shared + at), __ATOMIC_RELAXED);
        memcpy((char *)private + at, &word, sizeof(word));
    }
}

static inline void shared_store_words(void *shared, const void *private, size_t size)
{
    uint64_t word;

#pragma GCC unroll 8
    for (size_t at = 0; at < size; at += sizeof(word)) {
        memcpy(&word, (const char *)private + at, sizeof(word));
        __atomic_store_n((uint64_t *)((char *)shared + at), word, __ATOMIC_RELAXED);
    }
}

/*
 * Where news will lie of which an index tells that is looked at next: its line comes at the same
 * time as the index's, not after it.  A hint; it reads nothing.
 */
static inline void shared_expect(const void *shared)
{
    __builtin_prefetch(shared);
}

/* Likewise of what is written next, which the other side has read: its line comes to be written. */
static inline void shared_expect_write(void *shared)
{
#ifdef __x86_64__ /* gcc has no such instruction for the oldest of them, where this does nothing   \
                   */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)shared));
#else
    __builtin_prefetch(shared, 1);
#endif
}

/* The publisher's half of the sleep protocol: make index visible; true: the other side sleeps. */
static inline bool shared_publish(struct shared_line *index, uint32_t value,
                                  struct shared_line *sleep)
{
    shared_store(&index->value, value, __ATOMIC_SEQ_CST);
    if (shared_load(&sleep->value, __ATOMIC_SEQ_CST) == 0) {
        return false;
    }
    shared_store(&sleep->value, 0, __ATOMIC_RELAXED);
    return true;
}

/* The sleeper's: true: index has no news beyond seen, sleep; false: look again. */
static inline bool shared_sleep(struct shared_line *sleep, const struct shared_line *index,
                                uint32_t seen)
{
    shared_store(&sleep->value, 1, __ATOMIC_SEQ_CST);
    if (shared_load(&index->value, __ATOMIC_SEQ_CST) == seen) {
        return true;
    }
    shared_store(&sleep->value, 0, __ATOMIC_RELAXED);
    return false;
}

static inline void shared_awake(struct shared_line *sleep)
{
    shared_store(&sleep->value, 0, __ATOMIC_RELAXED);
}
