/*
 * The pools of streams: highest, middle and lowest priority of what the device has.  The legacy
 * default stream waits for every other one and is never used; non-blocking streams do not wait for
 * it either.
 */
#include "cuda/cuda_streams.h"

#include "proto/util.h"

/* CUDA counts downwards: `greatest` is the smaller number. */
static int priority_of(enum priority priority, int least, int greatest)
{
    const int levels[] = {
        [PRIORITY_URGENT] = greatest,
        [PRIORITY_NORMAL] = (least + greatest) / 2,
        [PRIORITY_BULK] = least,
    };

    return levels[priority];
}

static enum cuda_part part_of(enum priority priority, bool is_parted)
{
    if (!is_parted) {
        return CUDA_WHOLE;
    }
    return priority == PRIORITY_URGENT ? CUDA_FEW : CUDA_OTHERS;
}

static int create_all(struct cuda_streams *streams, struct cuda_trouble *ret_trouble)
{
    int least = 0, greatest = 0;
    int error = CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), ret_trouble);

    for (uint32_t i = 0; i < PRIORITY_COUNT * streams->n_places && error == 0; i++) {
        enum priority priority = i / streams->n_places;
        uint32_t place = i % streams->n_places;

        error = cuda_parts_stream(streams->parts, part_of(priority, place >= streams->n),
                                  priority_of(priority, least, greatest),
                                  &streams->all[priority][place].handle, ret_trouble);
    }
    for (enum priority priority = PRIORITY_NORMAL; priority < PRIORITY_COUNT && error == 0;
         priority++) {
        const int level = priority_of(priority, least, greatest);

        error = cuda_parts_stream(streams->parts, CUDA_WHOLE, level, &streams->in[priority],
                                  ret_trouble);
        if (error == 0) {
            error = cuda_parts_stream(streams->parts, CUDA_WHOLE, level, &streams->out[priority],
                                      ret_trouble);
        }
    }
    return error;
}

int cuda_streams_create(uint32_t n, struct cuda_streams **ret_streams,
                        struct cuda_trouble *ret_trouble)
{
    struct cuda_streams *streams = calloc(1, sizeof(*streams));
    int error;

    if (streams == NULL) {
        return cuda_trouble(ret_trouble, STATUS_NO_MEMORY, "no memory for the table of streams");
    }
    streams->n = n;
    error = cuda_parts_create(&streams->parts, ret_trouble);
    if (error == 0) {
        streams->n_places = streams->parts != NULL ? 2 * n : n;
        error = create_all(streams, ret_trouble);
    }
    if (error < 0) {
        cuda_streams_destroy(streams);
        return error;
    }
    *ret_streams = streams;
    return 0;
}

static void destroy_stream(cudaStream_t stream)
{
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
}

void cuda_streams_destroy(struct cuda_streams *streams)
{
    if (streams == NULL) {
        return;
    }
    for (uint32_t i = 0; i < PRIORITY_COUNT * streams->n_places; i++) {
        destroy_stream(streams->all[i / streams->n_places][i % streams->n_places].handle);
    }
    for (enum priority priority = PRIORITY_NORMAL; priority < PRIORITY_COUNT; priority++) {
        destroy_stream(streams->in[priority]);
        destroy_stream(streams->out[priority]);
    }
    cuda_parts_destroy(streams->parts);
    free(streams);
}

/* The place of the first of them. */
static uint32_t first_place(const struct cuda_streams *streams, bool is_parted)
{
    return is_parted && streams->parts != NULL ? streams->n : 0;
}

struct cuda_stream *cuda_streams_pick(struct cuda_streams *streams, enum priority priority,
                                      bool is_parted)
{
    struct cuda_stream *some = &streams->all[priority][first_place(streams, is_parted)];
    struct cuda_stream *best = some;

    for (uint32_t i = 1; i < streams->n; i++) {
        if (some[i].n_slots < best->n_slots) {
            best = &some[i];
        }
    }
    return best;
}

bool cuda_streams_fits(const struct cuda_streams *streams, enum priority priority, bool is_parted,
                       const struct cuda_stream *stream)
{
    const uint32_t first = first_place(streams, is_parted);

    return stream >= &streams->all[priority][first] &&
           stream < &streams->all[priority][first + streams->n];
}

static const struct cuda_slot *slot_with(const struct cuda_stream *stream, uint64_t cookie)
{
    for (const struct cuda_slot *slot = stream->oldest; slot != NULL; slot = slot->next) {
        for (uint32_t i = slot->n_answered; i < slot->n_works; i++) {
            if (slot->works[i].cookie == cookie) {
                return slot;
            }
        }
    }
    return NULL;
}

const struct cuda_slot *cuda_streams_find(struct cuda_streams *streams, enum priority priority,
                                          uint64_t cookie, struct cuda_stream **ret_stream)
{
    const struct cuda_slot *slot = NULL;

    for (uint32_t i = 0; i < streams->n_places && slot == NULL; i++) {
        *ret_stream = &streams->all[priority][i];
        slot = slot_with(*ret_stream, cookie);
    }
    return slot;
}

void cuda_stream_push(struct cuda_stream *stream, struct cuda_slot *slot)
{
    slot->next = NULL;
    if (stream->oldest == NULL) {
        stream->oldest = slot;
    } else {
        stream->newest->next = slot;
    }
    stream->newest = slot;
    stream->n_slots++;
}

void cuda_stream_pop(struct cuda_stream *stream)
{
    stream->oldest = stream->oldest->next;
    stream->n_slots--;
}
