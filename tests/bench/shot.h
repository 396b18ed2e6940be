/*
 * Shot: a small job of `copy`, done and waited for, by rivals of the daemon in this process.
 *
 * Job i has the bytes [i * size, (i + 1) * size) of the memory.  What goes wrong ends the program.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHOT_UNIT       4096u /* sizes are multiples of it */
#define SHOT_RIVALS_MAX 4u

struct shot_memory {
    uint8_t *in;
    uint8_t *out;
    size_t size;
    uint32_t n; /* jobs that it holds */
};

struct shot_rival {
    const char *name;
    void (*run)(void *state, uint32_t i);
    void *state;
};

/* The op's code called, as the CPU backend does: one of them.  Each returns how many there are. */
uint32_t shot_open_cpu(const struct shot_memory *memory, struct shot_rival *ret_rivals);
/*
 * Copy-in, kernel, copy-out and an event on one stream of the highest priority, first with calls,
 * then as a graph; then a mapped kernel.  The first call of CUDA in this process.
 */
uint32_t shot_open_cuda(const struct shot_memory *memory, struct shot_rival *ret_rivals);
void shot_close_cuda(void);
