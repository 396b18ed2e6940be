/*
 * The slots' memory: all that the device and the host will ever need for work in flight, but for
 * arrays larger than a slot.
 */
#include "cuda/cuda_slots.h"

#include "proto/util.h"

#include <inttypes.h>
#include <string.h>

static int allocate_slot(struct cuda_slot *slot, struct cuda_trouble *ret_trouble)
{
    cudaEvent_t *const events[] = {&slot->event, &slot->brought, &slot->computed};
    void *memory = NULL;
    int error = 0;

    for (uint32_t i = 0; i < ARRAY_SIZE(events) && error == 0; i++) {
        error =
            CUDA_CHECK(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming), ret_trouble);
    }
    for (uint32_t i = 0; i < ARRAY_SIZE(slot->stages) && error == 0; i++) {
        error = CUDA_CHECK(cudaEventCreate(&slot->stages[i]), ret_trouble);
    }
    if (error == 0) {
        error = CUDA_CHECK(cudaMalloc(&memory, slot->size), ret_trouble);
        slot->memory = memory;
    }
    return error;
}

/* A refusal of the device is of no use without the sizes. */
static int explain_no_memory(int error, struct cuda_trouble *trouble)
{
    size_t n_free = 0, n_all = 0;

    if (error != -STATUS_NO_MEMORY || cudaMemGetInfo(&n_free, &n_all) != cudaSuccess) {
        return error;
    }
    return cuda_trouble(
        trouble, STATUS_NO_MEMORY,
        "the worker wants %u MiB of device memory for its slots; %zu of %zu MiB are free",
        ((CUDA_SLOTS + CUDA_NORMAL_SLOTS) * CUDA_SMALL_SIZE +
         2 * CUDA_LARGE_SLOTS * CUDA_LARGE_SIZE) >>
            20,
        n_free >> 20, n_all >> 20);
}

/* What all slots share. */
static int allocate_shared(struct cuda_slots *slots, struct cuda_trouble *ret_trouble)
{
    const size_t n_ended_size = ARRAY_SIZE(slots->all) * sizeof(*slots->n_ended);
    void *host = NULL, *n_ended = NULL;
    int error =
        CUDA_CHECK(cudaHostAlloc(&host, sizeof(*slots->host), cudaHostAllocMapped), ret_trouble);

    if (error < 0) {
        return error;
    }
    slots->host = host;
    memset(host, 0, sizeof(*slots->host));
    error = CUDA_CHECK(cudaMalloc(&n_ended, n_ended_size), ret_trouble);
    if (error < 0) {
        return error;
    }
    slots->n_ended = n_ended;
    error = CUDA_CHECK(cudaMemset(n_ended, 0, n_ended_size), ret_trouble);
    /* Streams that do not wait for the default one do not wait for this. */
    return error == 0 ? CUDA_CHECK(cudaDeviceSynchronize(), ret_trouble) : error;
}

/* The kinds follow each other. */
static enum cuda_kind kind_at(uint32_t i)
{
    static const uint32_t n_slots[CUDA_KINDS] = {
        [CUDA_URGENT] = CUDA_SLOTS,
        [CUDA_NORMAL] = CUDA_NORMAL_SLOTS,
        [CUDA_LARGE] = CUDA_LARGE_SLOTS,
        [CUDA_BULK] = CUDA_LARGE_SLOTS,
    };
    enum cuda_kind kind = CUDA_URGENT;

    for (; i >= n_slots[kind]; kind++) {
        i -= n_slots[kind];
    }
    return kind;
}

static int allocate(struct cuda_slots *slots, struct cuda_trouble *ret_trouble)
{
    int error = allocate_shared(slots, ret_trouble);

    for (uint32_t i = 0; i < ARRAY_SIZE(slots->all) && error == 0; i++) {
        struct cuda_slot *slot = &slots->all[i];

        slot->window = &slots->host->windows[i];
        slot->ended = &slots->host->ended[i].number;
        slot->n_ended = &slots->n_ended[i];
        slot->kind = kind_at(i);
        slot->size = slot->kind < CUDA_LARGE ? CUDA_SMALL_SIZE : CUDA_LARGE_SIZE;
        error = allocate_slot(slot, ret_trouble);
    }
    return explain_no_memory(error, ret_trouble);
}

int cuda_slots_create(struct cuda_slots **ret_slots, struct cuda_trouble *ret_trouble)
{
    struct cuda_slots *slots = calloc(1, sizeof(*slots));
    int error;

    if (slots == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the table of slots");
    }
    error = allocate(slots, ret_trouble);
    if (error < 0) {
        cuda_slots_destroy(slots);
        return error;
    }
    for (uint32_t i = 0; i < ARRAY_SIZE(slots->all); i++) {
        cuda_slots_put(slots, &slots->all[i]);
    }
    *ret_slots = slots;
    return 0;
}

static void destroy_event(cudaEvent_t event)
{
    if (event != NULL) {
        cudaEventDestroy(event);
    }
}

static void free_slot(struct cuda_slot *slot)
{
    destroy_event(slot->event);
    destroy_event(slot->brought);
    destroy_event(slot->computed);
    for (uint32_t i = 0; i < ARRAY_SIZE(slot->stages); i++) {
        destroy_event(slot->stages[i]);
    }
    cudaFree(slot->memory);
}

void cuda_slots_destroy(struct cuda_slots *slots)
{
    if (slots == NULL) {
        return;
    }
    for (uint32_t i = 0; i < ARRAY_SIZE(slots->all); i++) {
        free_slot(&slots->all[i]);
    }
    cudaFreeHost(slots->host);
    cudaFree(slots->n_ended);
    free(slots);
}

/* By size alone, whoever moves the bytes: what is small fits a small slot. */
static enum cuda_kind kind_of(enum priority priority, uint64_t bytes)
{
    if (priority == PRIORITY_BULK) {
        return CUDA_BULK;
    }
    if (bytes > (priority == PRIORITY_URGENT ? CUDA_SMALL_SIZE : CUDA_SMALL)) {
        return CUDA_LARGE;
    }
    return priority == PRIORITY_URGENT ? CUDA_URGENT : CUDA_NORMAL;
}

struct cuda_slot *cuda_slots_take(struct cuda_slots *slots, enum priority priority, uint64_t bytes)
{
    struct cuda_slot **free = &slots->free[kind_of(priority, bytes)];
    struct cuda_slot *slot;

    if (*free == NULL && priority == PRIORITY_URGENT) {
        free = &slots->free[CUDA_URGENT]; /* it does not wait for normal work */
    }
    slot = *free;

    if (slot != NULL) {
        *free = slot->next;
        slot->next = NULL;
        slot->large = NULL;
        slot->behind = NULL;
        slot->n_works = 0;
        slot->n_rows = 0;
        slot->n_in = slot->n_out = 0;
        slot->n_answered = 0;
        slot->is_timed = false;
        slot->is_long = false;
        slot->tells_end = false;
        slot->step = CUDA_STEP_BEGIN;
        slot->n_copied = 0;
        slot->number++;
        slot->ask_ns = 0;
        memset(slot->consts, 0, sizeof(slot->consts));
        slot->n_records = 0;
        slot->used = 0;
        memset(&slot->common, 0, sizeof(slot->common));
    }
    return slot;
}

void cuda_slots_put(struct cuda_slots *slots, struct cuda_slot *slot)
{
    slot->next = slots->free[slot->kind];
    slots->free[slot->kind] = slot;
}
