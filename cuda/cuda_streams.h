/*
 * CUDA streams: a pool of streams for each priority, on the whole device and, where it can be
 * parted, on the part that is that priority's (cuda_parts.h).  A launch leases the stream with the
 * fewest launches in flight, so that nothing waits behind other work while a stream of its priority
 * is idle (taking turns would hand urgent work a busy one).
 *
 * Threads: create and destroy on the control thread, all else on the data thread.
 */
#pragma once

#include "cuda/cuda_parts.h"
#include "cuda/cuda_slots.h"

/* Of each priority.  One reaches half of the link, two nine tenths; more than three gain nothing
 * there, but let narrow kernels run side by side. */
#define CUDA_STREAMS     4u
#define CUDA_STREAMS_MAX CUDA_SLOTS

/* A stream does what it is given in order, so only its oldest launch need be asked. */
struct cuda_stream {
    cudaStream_t handle;
    struct cuda_slot *oldest; /* in flight; NULL: the stream is idle */
    struct cuda_slot *newest;
    uint32_t n_slots;
};

/*
 * Large work that is short has its copies on two more streams of its priority, one for each engine:
 * an engine that goes on in the stream it is in loses less time between two copies than one that is
 * to find the next stream.  Four chunks of 8 MiB in flight moved 0.967 of what copies alone do, and
 * 0.953 where each was on one stream (one H200).
 */
struct cuda_streams {
    uint32_t n; /* of each priority and part */
    uint32_t n_places;
    struct cuda_parts *parts;                                     /* NULL: there are none */
    struct cuda_stream all[PRIORITY_COUNT][2 * CUDA_STREAMS_MAX]; /* the whole device's first */
    cudaStream_t in[PRIORITY_COUNT], out[PRIORITY_COUNT];         /* urgent work has none */
};

/* n of each priority, 1 to CUDA_STREAMS_MAX, and as many on parts. */
int cuda_streams_create(uint32_t n, struct cuda_streams **ret_streams,
                        struct cuda_trouble *ret_trouble);
/* NULL is fine. */
void cuda_streams_destroy(struct cuda_streams *streams);

/* The idlest stream of a priority; is_parted: on its part, if there are parts. */
struct cuda_stream *cuda_streams_pick(struct cuda_streams *streams, enum priority priority,
                                      bool is_parted);
/* Is this stream of that priority one that cuda_streams_pick() could return? */
bool cuda_streams_fits(const struct cuda_streams *streams, enum priority priority, bool is_parted,
                       const struct cuda_stream *stream);
/* The slot that has the work with this cookie in flight, and its stream, of this priority; NULL:
 * none, it has ended. */
const struct cuda_slot *cuda_streams_find(struct cuda_streams *streams, enum priority priority,
                                          uint64_t cookie, struct cuda_stream **ret_stream);
/* This slot's launch has been issued to the stream. */
void cuda_stream_push(struct cuda_stream *stream, struct cuda_slot *slot);
/* The oldest launch has been dealt with. */
void cuda_stream_pop(struct cuda_stream *stream);
