/*
 * Push: one piece of a client's input, its memory and its way through the device.
 *
 *     FREE        no input
 *     FILLING     its payloads are being received
 *     ACCEPTED    its chunks are waiting, running or done
 *     ANSWERED    its answer is leaving: the output's memory is read by the writer
 *     FREE        the last byte of the answer has left
 *
 * Memory: the records are cut into *pieces*, each contiguous in one block per array, so that no
 * chunk crosses a segment.  A job's pushes are leased whole when the job opens and have one piece;
 * a run leases pieces for the records it has.  Arrays are the op's inputs and then its outputs; a
 * reduce op has one array of partials instead of outputs, one per started leaf.  A varying input
 * has as much room as its push may have of it, and what has one is never cut.
 *
 * A push that lies in a ring is one piece, whose row says where; only partials have a block.
 * Several descriptors may be one push, a *table*, as long as no device has any of it: each is a row
 * of it.  Such a job has a row for each place of its window, so that rows are its credit.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/pool.h"
#include "proto/message.h"
#include "proto/reader.h"
#include "proto/worker_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define PUSH_ARRAYS     (LIMIT_IN + LIMIT_OUT)
#define PUSH_PIECES_MAX READER_SINK_PIECES

struct job;
struct ring_link;

enum push_state { PUSH_FREE, PUSH_FILLING, PUSH_ACCEPTED, PUSH_ANSWERED };

/* What the answer to one descriptor, or to the Refs of a push, needs; its places in the ring are a
 * work_row, apart from it: there are many, and each is read at another time. */
struct push_row {
    uint64_t tag;         /* the descriptor's */
    uint64_t accepted_ns; /* if the job wants timing */
    uint32_t n_records;   /* as its work_row has them */
};

/* The shape of an op's arrays under its parameters: what cutting and leasing needs. */
struct push_shape {
    uint32_t n_in;
    uint32_t n_arrays;
    uint32_t record_size[PUSH_ARRAYS]; /* bytes of one record, of a partial for partials */
    uint32_t leaf;                     /* reduce: records behind one partial, else 0 */
    uint32_t largest;                  /* bytes: the largest record_size of a record's arrays */
    uint64_t link_size; /* bytes of a record's inputs or of its outputs, whichever are more */
    uint32_t varying;   /* the varying input, of elements of record_size; 0: none, see manifest.h */
    uint32_t ends;      /* the input with its ends */
    uint64_t varying_size; /* bytes of it in a push, at most */
};

struct push {
    /* Together, since there are many pushes: what each look at them needs. */
    struct job *job;
    struct push *next, *previous; /* in the list of its state: push_lists.h */
    uint64_t seq;
    uint64_t n_records;
    uint64_t n_released;   /* records handed to devices so far */
    enum push_state state; /* set by push_lists_move() */
    uint32_t n_chunks;     /* at devices now */
    bool is_late;          /* its own deadline passed: no more chunks, and the answer is DEADLINE */
    bool is_described;     /* it came as a descriptor, so its answer goes to its ring */
    bool keeps_awake;      /* who works on it does not sleep for a while: see awake.h */

    struct ring_link *ring;     /* where its data lie, until it is answered; NULL: in the pool */
    uint32_t n_rows;            /* 1, but for a table */
    bool has_rows;              /* its data lie in a ring */
    uint8_t rows[LIMIT_WINDOW]; /* which of the job's: push_lists_row(); by number, since to follow
                                 * a chain of them took as long as all else in a loop over them */

    struct block *blocks;   /* [piece * n_arrays + array] */
    uint32_t tail_size;     /* bytes of a short last record, else 0 */
    uint32_t varying_size;  /* bytes of the varying input, if there is one */
    uint32_t piece_records; /* records of every piece but the last */
    uint32_t n_pieces;

    uint64_t deadline_at_ns; /* its own, CLOCK_MONOTONIC; 0: none */

    uint32_t devices;        /* set of those that had some */
    enum priority ran_as;    /* the lowest that any of them ran as */
    uint32_t n_merged;       /* reduce: pieces whose partials are folded */
    struct failure *failure; /* why it failed, if it did; its own */

    uint64_t arrived_ns;  /* to the millisecond */
    uint64_t accepted_ns; /* if the job wants timing */
    uint64_t start_ns;    /* the first chunk began; 0 = none has */
    uint64_t in_ns;       /* sums over its chunks, if the job wants timing */
    uint64_t compute_ns;
    uint64_t out_ns;
};

/* Bytes that n_records records of this array take; of a varying one, what they take at most. */
uint64_t push_array_size(const struct push_shape *shape, uint32_t array, uint64_t n_records);

/*
 * Cut n_records records into pieces of about PUSH_DEFAULT bytes (records fit one segment), and
 * count what the pool would lend for them.  TOO_BIG if they cannot be had in PUSH_PIECES_MAX
 * pieces.
 */
int push_plan(const struct push_shape *shape, uint64_t n_records, uint32_t *ret_piece_records,
              uint64_t *ret_pool_size, struct failure *ret_failure);

/*
 * Lease memory for pieces of piece_records, the last one shorter, n_records in all.  0, or -ENOMEM
 * with nothing leased.
 */
int push_lease(struct push *push, const struct push_shape *shape, struct pool *pool,
               uint64_t n_records, uint32_t piece_records);
void push_release(struct push *push, const struct push_shape *shape, struct pool *pool);

/* Where the n_records records of input `array` are received (size bytes of them). */
void push_sink(const struct push *push, const struct push_shape *shape, uint32_t array,
               uint64_t size, struct reader_sink *ret_sink);

/* Zero the rest of the last record of input 0, of which `size` bytes were received. */
void push_pad(const struct push *push, const struct push_shape *shape, uint64_t size);

/* Records that are done, from the first on (of a table all or none), now that it is answered with
 * an error. */
uint64_t push_n_done(const struct push *push, const struct push_shape *shape);

/* Why it failed, the first time; without memory for that it is answered as those behind it. */
void push_note_failure(struct push *push, const struct failure *failure);

/* Records of one piece, and the piece that a record lies in. */
uint64_t push_piece_records(const struct push *push, uint32_t piece);
const struct block *push_block(const struct push *push, const struct push_shape *shape,
                               uint32_t piece, uint32_t array);

/* How long what was accepted then waited for its first chunk to begin; 0: none has. */
uint64_t push_queue_ns(uint64_t start_ns, uint64_t accepted_ns);
/* Where an array begins that lies in a ring, in units of WORK_ALIGN. */
static inline uint32_t *push_place(struct work_row *row, const struct push_shape *shape,
                                   uint32_t array)
{
    return array < shape->n_in ? &row->in[array] : &row->out[array - shape->n_in];
}

/* Where its time went, when it is done. */
void push_timing(const struct push *push, struct msg_timing *ret_timing);

/* Has the device nothing left to do for it (its partials folded, too)? */
bool push_is_computed(const struct push *push, const struct push_shape *shape);
