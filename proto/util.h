/*
 * The few helpers that every folder uses: cleanup attributes and integer arithmetic.
 *
 * Threads: macros and pure functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(array)               (sizeof(array) / sizeof((array)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* `_cleanup_(close_fd) int fd = open(...)`: runs when the variable leaves its scope. */
#define _cleanup_(function) __attribute__((cleanup(function)))

/* *fd is -1 afterwards, so a second call does nothing. */
static inline void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static inline void free_pointer(void *pointer)
{
    free(*(void **)pointer);
}

/* Take a descriptor out of a _cleanup_ variable. */
static inline int steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Take a pointer out of a _cleanup_ variable. */
#define STEAL(pointer)                                                                             \
    ({                                                                                             \
        __typeof__(pointer) taken_ = (pointer);                                                    \
        (pointer) = NULL;                                                                          \
        taken_;                                                                                    \
    })

/* The C library's evaluate an argument twice. */
#undef MIN
#undef MAX
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) a_ = (a);                                                                    \
        __typeof__(b) b_ = (b);                                                                    \
        a_ < b_ ? a_ : b_;                                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) a_ = (a);                                                                    \
        __typeof__(b) b_ = (b);                                                                    \
        a_ > b_ ? a_ : b_;                                                                         \
    })

static inline uint64_t div_round_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Between two looks at a word that another CPU will write: leaves its line, and this core's other
 * thread, in peace for a moment. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
