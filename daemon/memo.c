/*
 * Memo: words, and what they came to.
 */
#include "daemon/memo.h"

#include "proto/util.h"

#include <string.h>

bool memo_has(const struct memo *memo, const struct words *words)
{
    return memo->prepared != NULL && memo->size == words->size &&
           memcmp(memo->bytes, words->bytes, words->size) == 0;
}

void memo_keep(struct memo *memo, const struct words *words, struct prepared *prepared,
               uint32_t n_data)
{
    memo_drop(memo);
    if (words->size > MEMO_SIZE || prepared->op->n_consts > 0) {
        return;
    }
    memo->prepared = prepared_ref(prepared);
    memo->n_data = n_data;
    memo->size = (uint32_t)words->size;
    memcpy(memo->bytes, words->bytes, words->size);
}

void memo_drop(struct memo *memo)
{
    prepared_unref(STEAL(memo->prepared));
}
