/*
 * Push: cutting records into pieces and leasing their memory.
 */
#include "daemon/push.h"

#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static bool is_partials(const struct push_shape *shape, uint32_t array)
{
    return shape->leaf != 0 && array >= shape->n_in;
}

uint64_t push_array_size(const struct push_shape *shape, uint32_t array, uint64_t n_records)
{
    if (shape->varying != 0 && array == shape->varying) {
        return n_records > 0 ? shape->varying_size : 0;
    }
    uint64_t n = is_partials(shape, array) ? div_round_up(n_records, shape->leaf) : n_records;

    return n * shape->record_size[array];
}

/* Bytes that the pool lends for one piece. */
static uint64_t piece_pool_size(const struct push_shape *shape, uint64_t n_records)
{
    uint64_t total = 0;

    for (uint32_t array = 0; array < shape->n_arrays; array++) {
        total += pool_rounded(push_array_size(shape, array, n_records));
    }
    return total;
}

/* Records that fit size bytes of the largest array; whole leaves; at least one of either. */
static uint32_t records_within(const struct push_shape *shape, uint64_t size)
{
    uint64_t n = MAX(size / shape->largest, UINT64_C(1));

    if (shape->leaf != 0) {
        n = MAX(n / shape->leaf, UINT64_C(1)) * shape->leaf;
    }
    return (uint32_t)MIN(n, (uint64_t)UINT32_MAX);
}

int push_plan(const struct push_shape *shape, uint64_t n_records, uint32_t *ret_piece_records,
              uint64_t *ret_pool_size, struct failure *ret_failure)
{
    uint32_t n_pieces_max = shape->varying != 0 ? 1 : PUSH_PIECES_MAX;
    uint32_t records = records_within(shape, LIMIT_PUSH_DEFAULT);

    if (div_round_up(n_records, records) > n_pieces_max) {
        records = records_within(shape, LIMIT_PUSH);
    }
    if (div_round_up(n_records, records) > n_pieces_max) {
        return fail(ret_failure, STATUS_TOO_BIG, "data",
                    "%llu records are too many for one run; use a job",
                    (unsigned long long)n_records);
    }
    uint64_t n_whole = n_records / records;
    uint64_t rest = n_records % records;
    *ret_piece_records = records;
    *ret_pool_size =
        n_whole * piece_pool_size(shape, records) + (rest > 0 ? piece_pool_size(shape, rest) : 0);
    return 0;
}

int push_lease(struct push *push, const struct push_shape *shape, struct pool *pool,
               uint64_t n_records, uint32_t piece_records)
{
    uint32_t n_pieces = (uint32_t)div_round_up(n_records, piece_records);

    push->blocks = calloc(n_pieces * (size_t)shape->n_arrays + 1, sizeof(struct block));
    if (push->blocks == NULL) {
        return -ENOMEM;
    }
    push->n_pieces = n_pieces;
    push->piece_records = piece_records;
    push->n_records = n_records;
    for (uint32_t piece = 0; piece < n_pieces; piece++) {
        for (uint32_t array = 0; array < shape->n_arrays; array++) {
            uint64_t size = push_array_size(shape, array, push_piece_records(push, piece));

            if (pool_lease(pool, size, &push->blocks[piece * shape->n_arrays + array]) < 0) {
                push_release(push, shape, pool);
                return -ENOMEM;
            }
        }
    }
    return 0;
}

void push_release(struct push *push, const struct push_shape *shape, struct pool *pool)
{
    for (uint32_t i = 0; push->blocks != NULL && i < push->n_pieces * shape->n_arrays; i++) {
        pool_release(pool, &push->blocks[i]);
    }
    free(STEAL(push->blocks));
    push->n_pieces = 0;
    free(STEAL(push->failure));
}

void push_note_failure(struct push *push, const struct failure *failure)
{
    if (push->failure == NULL) {
        push->failure = malloc(sizeof(*push->failure));
        if (push->failure != NULL) {
            *push->failure = *failure;
        }
    }
}

uint64_t push_piece_records(const struct push *push, uint32_t piece)
{
    uint64_t first = (uint64_t)piece * push->piece_records;

    return MIN(push->n_records - first, (uint64_t)push->piece_records);
}

const struct block *push_block(const struct push *push, const struct push_shape *shape,
                               uint32_t piece, uint32_t array)
{
    assert(piece < push->n_pieces && array < shape->n_arrays);
    return &push->blocks[piece * shape->n_arrays + array];
}

void push_sink(const struct push *push, const struct push_shape *shape, uint32_t array,
               uint64_t size, struct reader_sink *ret_sink)
{
    uint64_t piece_size = push_array_size(shape, array, push->piece_records);

    ret_sink->n_pieces = 0;
    for (uint32_t piece = 0; size > 0; piece++) {
        uint64_t here = MIN(size, piece_size);

        ret_sink->pieces[ret_sink->n_pieces++] = (struct iovec){
            .iov_base = push_block(push, shape, piece, array)->base,
            .iov_len = here,
        };
        size -= here;
    }
}

void push_pad(const struct push *push, const struct push_shape *shape, uint64_t size)
{
    uint32_t last = push->n_pieces - 1;
    uint64_t before = (uint64_t)last * push->piece_records * shape->record_size[0];
    uint64_t whole = push_piece_records(push, last) * shape->record_size[0];

    memset(push_block(push, shape, last, 0)->base + (size - before), 0, whole - (size - before));
}

uint64_t push_queue_ns(uint64_t start_ns, uint64_t accepted_ns)
{
    return start_ns - MIN(start_ns, accepted_ns);
}

void push_timing(const struct push *push, struct msg_timing *ret_timing)
{
    *ret_timing = (struct msg_timing){
        .in_ns = push->in_ns,
        .compute_ns = push->compute_ns,
        .out_ns = push->out_ns,
        .queue_ns = push_queue_ns(push->start_ns, push->accepted_ns),
    };
}

/* What a failed chunk wrote is nothing to count on, and one that was lost may be any. */
uint64_t push_n_done(const struct push *push, const struct push_shape *shape)
{
    return push->failure != NULL || shape->leaf != 0 ? 0 : push->n_released;
}

bool push_is_computed(const struct push *push, const struct push_shape *shape)
{
    uint32_t n_used = (uint32_t)div_round_up(push->n_records, push->piece_records);

    return push->n_released == push->n_records && push->n_chunks == 0 &&
           (shape->leaf == 0 || push->n_merged == n_used);
}
