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
    void *memory = NULL;
    int error =
        CUDA_CHECK(cudaEventCreateWithFlags(&slot->event, cudaEventDisableTiming), ret_trouble);

    for (uint32_t i = 0; i < ARRAY_SIZE(slot->stages) && error == 0; i++) {
        error = CUDA_CHECK(cudaEventCreate(&slot->stages[i]), ret_trouble);
    }
    if (error == 0) {
        error = CUDA_CHECK(cudaMalloc(&memory, CUDA_SLOT_SIZE), ret_trouble);
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
    return cuda_trouble(trouble, STATUS_NO_MEMORY,
                        "the worker wants %u MiB of device memory for its slots; %zu of %zu MiB "
                        "are free",
                        CUDA_SLOTS_ALL * (CUDA_SLOT_SIZE >> 20), n_free >> 20, n_all >> 20);
}

static int allocate(struct cuda_slots *slots, struct cuda_trouble *ret_trouble)
{
    void *headers = NULL;
    int error = CUDA_CHECK(cudaHostAlloc(&headers, ARRAY_SIZE(slots->all) * sizeof(*slots->headers),
                                         cudaHostAllocDefault),
                           ret_trouble);

    slots->headers = headers;
    for (uint32_t i = 0; i < ARRAY_SIZE(slots->all) && error == 0; i++) {
        slots->all[i].header = &slots->headers[i];
        error = allocate_slot(&slots->all[i], ret_trouble);
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
        cuda_slots_put(slots, i / CUDA_SLOTS, &slots->all[i]);
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
    cudaFreeHost(slots->headers);
    free(slots);
}

struct cuda_slot *cuda_slots_take(struct cuda_slots *slots, enum priority priority)
{
    struct cuda_slot *slot = slots->free[priority];

    if (slot != NULL) {
        slots->free[priority] = slot->next;
        slot->next = NULL;
        slot->large = NULL;
        slot->n_works = 0;
        slot->n_answered = 0;
        slot->is_timed = false;
        memset(slot->consts, 0, sizeof(slot->consts));
        slot->n_records = 0;
        slot->used = 0;
        memset(&slot->common, 0, sizeof(slot->common));
    }
    return slot;
}

void cuda_slots_put(struct cuda_slots *slots, enum priority priority, struct cuda_slot *slot)
{
    slot->next = slots->free[priority];
    slots->free[priority] = slot;
}
