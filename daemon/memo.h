/*
 * Memo: a connection's last run, to have the next one of the same words without reading them.
 *
 * A client that sends many small runs mostly sends the same but for msgid and payload.  What the
 * daemon made of the words stands for them as long as it would make the same of them again: so
 * nothing is kept that has constants, a deadline or others to wait for, and memos are dropped when
 * a device's state changes.
 *
 * A memo keeps a slot of the job block; where slots run out, memos give way (prepared.c).
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/prepared.h"

#define MEMO_SIZE 256 /* bytes of words: longer ones are rare.  Not tuned. */

/* The bytes of a message from behind its msgid up to its first payload. */
struct words {
    const uint8_t *bytes;
    size_t size;
};

struct memo {
    struct prepared *prepared; /* NULL: nothing is remembered */
    uint32_t n_data;           /* elements of the payload array */
    uint32_t size;
    uint8_t bytes[MEMO_SIZE];
};

bool memo_has(const struct memo *memo, const struct words *words);
/* Remember this instead, if it may be. */
void memo_keep(struct memo *memo, const struct words *words, struct prepared *prepared,
               uint32_t n_data);
void memo_drop(struct memo *memo);
