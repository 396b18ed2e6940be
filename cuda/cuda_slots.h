/*
 * CUDA slots: the fixed places that work takes on the device.  A slot is device memory for the
 * arrays of one launch, what its kernels read and write in the host's memory, and the event that
 * says that all of it is done, or the number that a kernel leaves there.
 *
 * Device memory: 12 slots of 2 MiB and 8 of 26, 232 MiB, allocated once.
 *
 * Threads: create and destroy on the control thread, all else on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device.h"

struct cuda_const;

/* Slots of a kind are alike; each kind has its own, so that nothing waits for what is in its way.
 */
enum cuda_kind {
    CUDA_URGENT, /* urgent work that fits a small slot */
    CUDA_NORMAL, /* small normal work */
    CUDA_LARGE,  /* what is larger of either, and of narrow works many together */
    CUDA_BULK,   /* all of bulk work */
    CUDA_KINDS,
};

#define CUDA_SLOTS 8u /* urgent ones.  Not tuned */
/* As many as there are streams: what waits for one gathers, and becomes a larger launch. */
#define CUDA_NORMAL_SLOTS 4u
#define CUDA_LARGE_SLOTS  4u /* fill the link; more of bulk would be in urgent work's way */
#define CUDA_SLOTS_ALL    (CUDA_SLOTS + CUDA_NORMAL_SLOTS + 2 * CUDA_LARGE_SLOTS)
#define CUDA_SMALL_SIZE   (2u << 20)  /* of a small slot */
#define CUDA_LARGE_SIZE   (26u << 20) /* three arrays of a full chunk, and narrow ones beside */
#define CUDA_WORKS        32u         /* of one launch ... */
/* ... and their rows: a launch costs the worker as much as 70 of them, 4 us.  Eight clients
 * together, millions of jobs of 1 KiB a second (one H200, medians of 4): 22 with 256, 24 with 512,
 * 23.4 with half the slots, which loses least where others have the machine. */
#define CUDA_TABLE 512u
_Static_assert(CUDA_TABLE >= WORK_ROWS, "any work fits a launch");

#define CUDA_ALIGNMENT 256u /* of arrays on the device */

/*
 * Bytes of all arrays of a work up to which it is small: half of it in, half of it out.  Whether
 * kernels move all that is small, or less, is measured at start (cuda_calibrate.h).  More than this
 * they never do: on an H200 they are faster than the engines up to 4 MiB, but move less when the
 * link is full.
 */
#define CUDA_SMALL (512u << 10)

/*
 * How a launch reaches the arrays of its works.  Copy engines serve in order of arrival, whatever
 * the stream's priority: small work is moved without them.
 */
enum cuda_way {
    CUDA_COPIED, /* the copy engines bring them to the device, and back */
    CUDA_STAGED, /* kernels do: for ops that read a byte more than once, or one after the other */
    CUDA_MAPPED, /* the kernel works in the host's memory */
};

/* A part of the host's memory that the device sees: what one slot's kernels read there. */
struct cuda_window {
    _Alignas(64) struct op_chunk table[CUDA_TABLE];
    /* What the engines, or kernels in their place, move: one array each, in[0] to out[0]. */
    struct op_chunk moved_in[CUDA_TABLE * LIMIT_IN];
    struct op_chunk moved_out[CUDA_TABLE * LIMIT_OUT];
};

/* The number of the last launch of a slot that has told its end: a line each, all in one page,
 * apart from the tables, so that a device has one place to find.  Not measured. */
struct cuda_ended {
    _Alignas(64) uint32_t number;
};

/* Where in a launch a slot's timing events stand: stage i lasts from event i to event i + 1. */
enum cuda_stage { CUDA_COPY_IN, CUDA_COMPUTE, CUDA_COPY_OUT, CUDA_STAGES };

/* What is issued of a launch next. */
enum cuda_step {
    CUDA_STEP_BEGIN, /* what it needs beside its arrays */
    CUDA_STEP_IN,
    CUDA_STEP_BROUGHT, /* the kernel waits for the arrays */
    CUDA_STEP_COMPUTE,
    CUDA_STEP_COMPUTED, /* and they for it */
    CUDA_STEP_OUT,
    CUDA_STEP_END,
};

struct cuda_slot {
    enum cuda_kind kind;
    struct cuda_slot *next; /* of the free ones; else the one issued behind it to its stream */
    struct cuda_window *window;
    uint32_t *ended;      /* in the host's memory as well: see struct cuda_ended */
    char *memory;         /* on the device */
    uint64_t size;        /* of it */
    uint32_t *n_ended;    /* on the device: see launch.h */
    void *large;          /* from the device's pool, for arrays that do not fit; else NULL */
    cudaEvent_t event;    /* behind the last operation of this launch, unless it tells its end */
    cudaStream_t behind;  /* where what it is after is, if that is another stream; else NULL */
    cudaStream_t in, out; /* where its arrays go; most launches have one stream for all */
    cudaEvent_t brought, computed;       /* behind the arrays, and the kernel, where these differ */
    cudaEvent_t stages[CUDA_STAGES + 1]; /* recorded only if is_timed */
    enum cuda_way way;
    enum cuda_step step;
    uint32_t n_in, n_out; /* arrays that are moved */
    uint32_t n_copied;    /* of this step's, that are behind us */
    uint64_t largest;     /* bytes of the largest array of a row */
    bool is_long;         /* its kernel fills the device for long */
    bool is_timed;
    bool tells_end;  /* the last kernel writes `number` to *ended */
    uint32_t number; /* of this launch */
    uint32_t n_works;
    uint32_t n_rows; /* of them all */
    uint32_t n_answered;
    uint64_t ask_ns; /* when CUDA is to be asked about it next */
    uint64_t n_records;
    uint64_t used;                           /* bytes of memory that arrays take */
    struct work_result common;               /* of all works; the times are those of one row */
    struct work_error error;                 /* and why their status is not OK */
    struct cuda_const *consts[LIMIT_CONSTS]; /* that this launch holds; NULL: none */
    struct device_work works[CUDA_WORKS];
};

/* Pinned. */
struct cuda_host {
    struct cuda_ended ended[CUDA_SLOTS_ALL];
    struct cuda_window windows[CUDA_SLOTS_ALL];
};

struct cuda_slots {
    struct cuda_slot *free[CUDA_KINDS];
    struct cuda_slot all[CUDA_SLOTS_ALL];
    struct cuda_host *host;
    uint32_t *n_ended; /* on the device, one for each slot */
};

/* NO_MEMORY says how much was wanted and is free. */
int cuda_slots_create(struct cuda_slots **ret_slots, struct cuda_trouble *ret_trouble);
/* Nothing may be in flight.  NULL is fine. */
void cuda_slots_destroy(struct cuda_slots *slots);

/*
 * An empty slot with its next number, for a launch that begins with a work of so many bytes; NULL:
 * all of its kind are in flight, and of urgent work all that is for it.  What does not fit the slot
 * is the caller's affair.
 */
struct cuda_slot *cuda_slots_take(struct cuda_slots *slots, enum priority priority, uint64_t bytes);
void cuda_slots_put(struct cuda_slots *slots, struct cuda_slot *slot);
