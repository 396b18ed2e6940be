/*
 * Device rows: see device_rows.h.
 */
#include "cuda/device_rows.h"

static void *place(const struct device_array *array, uint32_t at)
{
    return array->base != NULL ? (char *)array->base + (uint64_t)at * WORK_ALIGN : NULL;
}

struct op_chunk device_row(const struct device_work *work, uint32_t i)
{
    static const struct work_row self; /* what is no table begins where its arrays do */
    const struct work_row *row = work->rows != NULL ? &work->rows[i] : &self;
    struct op_chunk chunk = {.n_records = work->rows != NULL ? row->n_records : work->n_records,
                             .tail_size = work->tail_size,
                             .varying_size = work->varying_size};

    for (uint32_t k = 0; k < LIMIT_IN; k++) {
        chunk.in[k] = place(&work->in[k], row->in[k]);
    }
    for (uint32_t k = 0; k < LIMIT_OUT; k++) {
        chunk.out[k] = place(&work->out[k], row->out[k]);
    }
    for (uint32_t k = 0; k < LIMIT_CONSTS; k++) {
        chunk.consts[k] = work->consts[k].base;
    }
    return chunk;
}

void device_rows(const struct device_work *work, const struct op_chunk *first,
                 struct op_chunk *chunks)
{
    const struct op_chunk like = *first; /* nothing that is written here is it */
    const uint32_t n = device_n_rows(work);

    chunks[0] = like;
    for (uint32_t i = 1; i < n; i++) {
        chunks[i] = like;
        chunks[i].n_records = work->rows[i].n_records;
    }
    for (uint32_t k = 0; k < LIMIT_IN; k++) {
        for (uint32_t i = 1; i < n && like.in[k] != NULL; i++) {
            chunks[i].in[k] = place(&work->in[k], work->rows[i].in[k]);
        }
    }
    for (uint32_t k = 0; k < LIMIT_OUT; k++) {
        for (uint32_t i = 1; i < n && like.out[k] != NULL; i++) {
            chunks[i].out[k] = place(&work->out[k], work->rows[i].out[k]);
        }
    }
}
