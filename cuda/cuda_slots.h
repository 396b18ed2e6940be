/*
 * CUDA slots: the fixed places that work takes on the device.  A slot is device memory for the
 * arrays of one launch, a header beside them (parameters and table of chunks) that is filled here
 * and copied there, and the event that says that all of it is done.
 *
 * Device memory: CUDA_SLOTS_ALL slots of CUDA_SLOT_SIZE, 520 MiB, allocated once.
 *
 * Threads: create and destroy on the control thread, all else on the data thread.
 */
#pragma once

#include "cuda/cuda_check.h"
#include "cuda/device.h"

struct cuda_const;

#define CUDA_SLOTS      8u /* of urgent and of normal work each.  Not tuned */
#define CUDA_BULK_SLOTS 4u /* fill the link; what more there is would be in urgent work's way */
#define CUDA_SLOTS_ALL  (2 * CUDA_SLOTS + CUDA_BULK_SLOTS)
#define CUDA_SLOT_SIZE  (26u << 20) /* three arrays of a full chunk, and narrow ones beside */
#define CUDA_TABLE      32u         /* works of one launch */

/* Lies at the start of a slot's memory; only its used part is copied. */
struct cuda_header {
    _Alignas(16) uint8_t params[LIMIT_PARAM_BYTES];
    struct op_chunk table[CUDA_TABLE]; /* the device's pointers */
};

/* Where arrays begin: the header's end, aligned as all of them are. */
#define CUDA_ALIGNMENT   256u
#define CUDA_HEADER_SIZE 4096u
_Static_assert(sizeof(struct cuda_header) <= CUDA_HEADER_SIZE, "the header has a page");

/* Where in a launch a slot's timing events stand: stage i lasts from event i to event i + 1. */
enum cuda_stage { CUDA_COPY_IN, CUDA_COMPUTE, CUDA_COPY_OUT, CUDA_STAGES };

struct cuda_slot {
    struct cuda_slot *next; /* of the free ones; else the one issued behind it to its stream */
    struct cuda_header *header;
    struct cuda_header on_device; /* the first on_device_size bytes of the header there */
    size_t on_device_size;        /* 0: nobody knows */
    char *memory;                 /* on the device: header, then arrays */
    void *large;       /* from the device's pool, for arrays that do not fit; else NULL */
    cudaEvent_t event; /* behind the last operation of this launch */
    cudaEvent_t stages[CUDA_STAGES + 1]; /* recorded only if is_timed */
    bool is_timed;
    uint32_t n_works;
    uint32_t n_answered;
    uint64_t n_records;
    uint64_t used;             /* bytes of memory that arrays take, from CUDA_HEADER_SIZE on */
    struct work_result common; /* what the results of all works have in common */
    struct work_error error;   /* and why their status is not OK */
    struct cuda_const *consts[LIMIT_CONSTS]; /* that this launch holds; NULL: none */
    struct device_work works[CUDA_TABLE];
};

struct cuda_slots {
    struct cuda_slot *free[PRIORITY_COUNT];
    struct cuda_slot all[CUDA_SLOTS_ALL];
    struct cuda_header *headers; /* pinned, one for each slot */
};

/* NO_MEMORY says how much was wanted and is free. */
int cuda_slots_create(struct cuda_slots **ret_slots, struct cuda_trouble *ret_trouble);
/* Nothing may be in flight.  NULL is fine. */
void cuda_slots_destroy(struct cuda_slots *slots);

/* An empty slot, or NULL: all are in flight. */
struct cuda_slot *cuda_slots_take(struct cuda_slots *slots, enum priority priority);
void cuda_slots_put(struct cuda_slots *slots, enum priority priority, struct cuda_slot *slot);
