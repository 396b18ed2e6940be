/*
 * Paces: one place for each value of a hash of op, kind and parameters.
 */
#include "cuda/cuda_paces.h"

#include <stddef.h>
#include <string.h>

#define NEW_WEIGHT 0.25 /* of the newest launch in the average; not tuned */
/* What a launch takes whatever its bytes: 512 KiB of `copy` would look as slow as 2 MiB of it. */
#define FIXED_NS 30000u

/* FNV-1a, 64 bits, by words: it is asked for each launch. */
static uint64_t key_of(const struct device_work *work)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325), word;

    for (size_t i = 0; i < sizeof(work->params); i += sizeof(word)) {
        memcpy(&word, &work->params[i], sizeof(word));
        key = (key ^ word) * UINT64_C(0x100000001b3);
    }
    key = (key ^ work->op) * UINT64_C(0x100000001b3);
    return (key ^ work->kind) * UINT64_C(0x100000001b3);
}

/* Its low bits are those of the words' low bits alone. */
static uint32_t place_of(uint64_t key)
{
    return (uint32_t)(key >> 32) % CUDA_PACES;
}

uint64_t cuda_paces_expect(const struct cuda_paces *paces, const struct device_work *work,
                           uint64_t bytes)
{
    uint64_t key = key_of(work);

    return paces->all[place_of(key)].key == key
               ? 1 + (uint64_t)(paces->all[place_of(key)].ns_per_byte * (double)bytes)
               : 0;
}

void cuda_paces_note(struct cuda_paces *paces, const struct device_work *work, uint64_t bytes,
                     uint64_t device_ns)
{
    uint64_t key = key_of(work);
    double pace = (double)(device_ns > FIXED_NS ? device_ns - FIXED_NS : 0) / (double)bytes;

    if (paces->all[place_of(key)].key == key) {
        double *known = &paces->all[place_of(key)].ns_per_byte;

        *known += NEW_WEIGHT * (pace - *known);
    } else {
        paces->all[place_of(key)].key = key;
        paces->all[place_of(key)].ns_per_byte = pace;
    }
}
