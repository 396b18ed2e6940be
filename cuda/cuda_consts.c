/*
 * The table of copies.
 *
 *     empty      no memory
 *     uploading  copied on one stream; every other stream is told to wait for the event behind that
 *     there      the event was seen done, and nobody waits any more
 *
 * A copy that no launch holds may be freed: what used it has been seen done.  The table has a place
 * for every constant of every launch in flight, so one is always to be had.
 */
#include "cuda/cuda_consts.h"

#include "cuda/cuda_slots.h"
#include "proto/util.h"

#define N_PLACES (CUDA_SLOTS_ALL * LIMIT_CONSTS + 16)

struct cuda_const {
    uint64_t id;
    void *memory; /* on the device, from its pool; NULL: empty */
    uint64_t size;
    uint32_t n_launches; /* that hold it */
    uint64_t last_turn;  /* when it was taken last */
    bool is_there;
    cudaEvent_t uploaded;
};

struct cuda_consts {
    uint64_t turn;
    uint64_t n_bytes; /* of all copies */
    struct cuda_const all[N_PLACES];
};

int cuda_consts_create(struct cuda_consts **ret_consts, struct cuda_trouble *ret_trouble)
{
    struct cuda_consts *consts = calloc(1, sizeof(*consts));
    int error = 0;

    if (consts == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the table of constants");
    }
    for (uint32_t i = 0; i < N_PLACES && error == 0; i++) {
        error =
            CUDA_CHECK(cudaEventCreateWithFlags(&consts->all[i].uploaded, cudaEventDisableTiming),
                       ret_trouble);
    }
    if (error < 0) {
        cuda_consts_destroy(consts);
        return error;
    }
    *ret_consts = consts;
    return 0;
}

void cuda_consts_destroy(struct cuda_consts *consts)
{
    if (consts == NULL) {
        return;
    }
    for (uint32_t i = 0; i < N_PLACES; i++) {
        if (consts->all[i].memory != NULL) {
            cudaFree(consts->all[i].memory);
        }
        if (consts->all[i].uploaded != NULL) {
            cudaEventDestroy(consts->all[i].uploaded);
        }
    }
    free(consts);
}

static struct cuda_const *find(struct cuda_consts *consts, uint64_t id)
{
    for (uint32_t i = 0; i < N_PLACES; i++) {
        if (consts->all[i].memory != NULL && consts->all[i].id == id) {
            return &consts->all[i];
        }
    }
    return NULL;
}

/* ---- uploading ------------------------------------------------------------------------------ */

static int free_copy(struct cuda_consts *consts, struct cuda_const *constant, cudaStream_t stream,
                     struct cuda_trouble *ret_trouble)
{
    consts->n_bytes -= constant->size;
    return CUDA_CHECK(cudaFreeAsync(STEAL(constant->memory), stream), ret_trouble);
}

static struct cuda_const *find_empty(struct cuda_consts *consts)
{
    for (uint32_t i = 0; i < N_PLACES; i++) {
        if (consts->all[i].memory == NULL) {
            return &consts->all[i];
        }
    }
    return NULL;
}

/* Of the copies that no launch holds the one that was taken longest ago; NULL: there is none. */
static struct cuda_const *find_oldest(struct cuda_consts *consts)
{
    struct cuda_const *oldest = NULL;

    for (uint32_t i = 0; i < N_PLACES; i++) {
        struct cuda_const *constant = &consts->all[i];

        if (constant->memory != NULL && constant->n_launches == 0 &&
            (oldest == NULL || constant->last_turn < oldest->last_turn)) {
            oldest = constant;
        }
    }
    return oldest;
}

/* A place, and room for size bytes, at the cost of copies that nobody holds. */
static int make_room(struct cuda_consts *consts, uint64_t size, cudaStream_t stream,
                     struct cuda_const **ret_const, struct cuda_trouble *ret_trouble)
{
    struct cuda_const *place, *oldest;

    while ((place = find_empty(consts)) == NULL || consts->n_bytes + size > CUDA_CONST_BYTES) {
        int error = 0;

        oldest = find_oldest(consts);
        if (oldest == NULL) {
            break; /* all are held: then there is a place, and the bound gives way */
        }
        error = free_copy(consts, oldest, stream, ret_trouble);
        if (error < 0) {
            return error;
        }
    }
    *ret_const = place;
    return 0;
}

static int upload(struct cuda_consts *consts, struct cuda_const *constant,
                  const struct device_array *array, cudaStream_t stream,
                  struct cuda_trouble *ret_trouble)
{
    void *memory = NULL;
    struct cuda_trouble second;
    int error = CUDA_CHECK(cudaMallocAsync(&memory, array->size, stream), ret_trouble);

    if (error < 0) {
        return cuda_explain_memory(error, array->size, ret_trouble);
    }
    constant->memory = memory;
    constant->size = array->size;
    constant->is_there = false;
    consts->n_bytes += array->size;
    error = CUDA_CHECK(
        cudaMemcpyAsync(memory, array->base, array->size, cudaMemcpyHostToDevice, stream),
        ret_trouble);
    if (error == 0) {
        error = CUDA_CHECK(cudaEventRecord(constant->uploaded, stream), ret_trouble);
    }
    if (error < 0) {
        free_copy(consts, constant, stream, &second); /* the first trouble is the one to tell of */
    }
    return error;
}

/* Let the stream wait for an upload that may still run on another. */
static int await(struct cuda_const *constant, cudaStream_t stream, struct cuda_trouble *ret_trouble)
{
    cudaError_t state = constant->is_there ? cudaSuccess : cudaEventQuery(constant->uploaded);

    if (state == cudaErrorNotReady) {
        return CUDA_CHECK(cudaStreamWaitEvent(stream, constant->uploaded, 0), ret_trouble);
    }
    constant->is_there = state == cudaSuccess;
    return cuda_check(state, "cudaEventQuery", __FILE__, __LINE__, ret_trouble);
}

int cuda_consts_take(struct cuda_consts *consts, uint64_t id, const struct device_array *array,
                     cudaStream_t stream, struct cuda_const **ret_const,
                     struct cuda_trouble *ret_trouble)
{
    struct cuda_const *constant = find(consts, id);
    int error = 0;

    if (constant != NULL) {
        error = await(constant, stream, ret_trouble);
    } else {
        error = make_room(consts, array->size, stream, &constant, ret_trouble);
        if (error == 0) {
            constant->id = id;
            error = upload(consts, constant, array, stream, ret_trouble);
        }
    }
    if (error == 0) {
        constant->last_turn = ++consts->turn;
        constant->n_launches++;
        *ret_const = constant;
    }
    return error;
}

void cuda_const_give(struct cuda_const *constant)
{
    if (constant != NULL) {
        constant->n_launches--;
    }
}

const void *cuda_const_memory(const struct cuda_const *constant)
{
    return constant != NULL ? constant->memory : NULL;
}
