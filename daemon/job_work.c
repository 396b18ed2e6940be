/*
 * Job work: what a job has for the device next, as work entries, and what comes back.
 *
 * In order of preference: a MERGE or FINISH (they free a push), then the next chunk of the oldest
 * push.  A chunk lies within one piece, and starts a leaf for a reduce op; a table is one chunk.
 *
 * What is after other work and may follow it goes to the same worker as the same priority, or else
 * nowhere for now: it is as well to wait for the other's answer.
 */
#include "daemon/job.h"

#include "daemon/ring_link.h"
#include "daemon/server.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ENDING_CHUNKS 2u

struct chunk {
    struct job *job;
    struct push *push; /* NULL for FINISH */
    enum work_kind kind;
    uint32_t n_records;
    struct scheduler_charge charge;
    bool is_following;
};

/* At a device at once, of all jobs: two less than the fewest slots that a device has of a kind
 * (cuda_slots.h), so that those who wait and the one that they wait for never have them all. */
#define FOLLOWING_MOST 2u

/* ---- following ------------------------------------------------------------------------------ */

static struct device *device_of(const struct chunk *chunk)
{
    return &chunk->job->server->devices.all[chunk->charge.place.device];
}

/* Is one chunk at a device all that is left of it? */
static bool has_last_chunk_out(struct job *job)
{
    if (job->state != JOB_CLOSED || job->n_chunks != 1 || job->newest == NULL) {
        return false;
    }
    return job->prepared->shape.leaf != 0 ? job->newest->kind == WORK_FINISH
                                          : push_lists_to_release(&job->lists) == NULL;
}

/* Of a job that is held: the chunk that it may follow, or NULL. */
static const struct chunk *followed(const struct job *job)
{
    struct after_node *node = after_only(&job->after);
    struct job *other = node != NULL ? CONTAINER_OF(node, struct job, after) : NULL;

    if (other == NULL || !has_last_chunk_out(other) ||
        device_of(other->newest)->n_following >= FOLLOWING_MOST ||
        (job->prepared->devices & SCHEDULER_DEVICE(other->newest->charge.place.device)) == 0) {
        return NULL;
    }
    return other->newest;
}

uint32_t job_next_devices(const struct job *job)
{
    const struct chunk *other = job_is_held(job) ? followed(job) : NULL;

    return other != NULL ? SCHEDULER_DEVICE(other->charge.place.device) : job->prepared->devices;
}

static void queue_waiter(struct after_node *waiter)
{
    job_queue(CONTAINER_OF(waiter, struct job, after));
}

void job_let_follow(struct job *job)
{
    if (job->after.waiters != NULL && has_last_chunk_out(job)) {
        after_tell(&job->after, queue_waiter);
    }
}

/* ---- what is next --------------------------------------------------------------------------- */

/* The oldest push that has records to release. */
static struct push *next_push(struct job *job)
{
    struct push *push = push_lists_to_release(&job->lists);

    return push != NULL && push->seq < job->stop_seq ? push : NULL;
}

/* The push whose next piece can be folded: all leaves of it and of those before it are done. */
static struct push *merge_push(const struct job *job)
{
    struct push *push = push_lists_find(&job->lists, job->merge_seq);

    return push != NULL && push->seq < job->stop_seq && push->n_released == push->n_records &&
                   push->n_chunks == 0 && push->n_records > 0
               ? push
               : NULL;
}

static bool wants_finish(const struct job *job)
{
    return job->state == JOB_CLOSED && job->merge_seq == job->n_pushed && !job->is_finished;
}

/* Is it cut anyway, and nothing known to come behind it? */
static bool ends_with(const struct job *job, const struct push *push)
{
    return push->n_records > job->prepared->chunk_most && push->seq + 1 == job->n_pushed;
}

static uint64_t next_chunk_records(const struct job *job, const struct push *push)
{
    const struct prepared *prepared = job->prepared;
    uint64_t left = push->n_records - push->n_released, n;

    if (push->n_rows > 1) {
        return left;
    }
    left = MIN(left, push->piece_records - push->n_released % push->piece_records);
    if (left <= prepared->chunk_least) {
        return left;
    }
    n = prepared_ramp(prepared, prepared_chunk_records(prepared),
                      scheduler_in_flight(&job->server->scheduler, prepared->priority),
                      ends_with(job, push) ? left : UINT64_MAX);
    return MIN(left, n);
}

/* Bytes of the largest array of this push's next n records. */
static uint64_t chunk_size(const struct job *job, const struct push *push, uint64_t n_records)
{
    uint64_t size = n_records * job->prepared->shape.largest;

    return job->prepared->shape.varying != 0 ? MAX(size, (uint64_t)push->varying_size) : size;
}

static void set_next(struct flow *flow, uint64_t size, uint64_t link_size, uint64_t n_records)
{
    flow->next_size = size;
    flow->next_link_size = link_size;
    flow->next_records = (uint32_t)n_records;
}

/* Tell the scheduler of the push's next records; returns their number. */
static uint64_t set_next_records(struct job *job, const struct push *push)
{
    uint64_t n = next_chunk_records(job, push);

    set_next(&job->flow, chunk_size(job, push, n),
             n * job->prepared->shape.link_size + push->varying_size, n);
    return n;
}

bool job_has_work(struct job *job)
{
    const struct push_shape *shape = &job->prepared->shape;

    if (job_is_held(job) && followed(job) == NULL) {
        return false;
    }
    if (shape->leaf != 0 && !job->is_merging && (merge_push(job) != NULL || wants_finish(job))) {
        set_next(&job->flow, MANIFEST_PARTIAL_SIZE, 0, 0);
        return true;
    }
    struct push *push = next_push(job);
    if (push == NULL) {
        return false;
    }
    set_next_records(job, push);
    return true;
}

/* ---- entries -------------------------------------------------------------------------------- */

static work_ref ref_of(const struct block *block, uint64_t offset)
{
    return WORK_REF(block->segment, block->offset + offset);
}

/* What begins so many bytes behind the start of an array's piece. */
static work_ref array_ref(struct push *push, const struct push_shape *shape, uint32_t piece,
                          uint32_t array, uint64_t offset)
{
    if (push->ring != NULL && (shape->leaf == 0 || array < shape->n_in)) {
        struct work_row *work = push_lists_work(&push->job->lists, push, 0);

        return WORK_REF(push->ring->segment,
                        (uint64_t)*push_place(work, shape, array) * WORK_ALIGN + offset);
    }
    return ref_of(push_block(push, shape, piece, array), offset);
}

static work_ref fold_ref(const struct job *job, uint32_t place)
{
    return ref_of(&job->fold, (uint64_t)place * MANIFEST_PARTIAL_SIZE);
}

/* Does nothing that the worker could have together with it come behind the push's next n records?
 */
static bool is_alone(const struct job *job, const struct push *push, uint64_t n)
{
    return push->next == NULL && push->n_released + n == push->n_records &&
           scheduler_is_alone(&job->server->scheduler, &job->flow);
}

/* Hand an entry to the device's worker; the chunk is freed if it takes none. */
static int submit(struct job *job, const struct scheduler_place *place, struct work_entry *entry,
                  const struct work_row *rows, struct push *push)
{
    struct device *device = &job->server->devices.all[place->device];
    const struct chunk *other = job_is_held(job) ? followed(job) : NULL;
    struct chunk *chunk = malloc(sizeof(*chunk));

    if (chunk == NULL) {
        return -EAGAIN;
    }
    *chunk = (struct chunk){
        .job = job,
        .push = push,
        .kind = entry->kind,
        .n_records = rows != NULL ? (uint32_t)push->n_records : entry->n_records,
        .is_following = other != NULL,
    };
    entry->job_slot = job->prepared->slot;
    int r = worker_link_submit(device->link, place->priority, entry, rows, chunk, other);
    if (r < 0) {
        free(chunk);
        return -EAGAIN;
    }
    if (push != NULL && is_alone(job, push, chunk->n_records)) {
        worker_link_publish(device->link); /* the books can wait */
    }
    device->n_following += chunk->is_following;
    job->n_chunks++;
    job->newest = chunk;
    if (push != NULL) {
        push->n_chunks++;
        push->devices |= SCHEDULER_DEVICE(place->device);
        push->ran_as = MAX(push->ran_as, place->priority);
    }
    job->server->stats.chunks_in_flight++;
    scheduler_issued(&job->server->scheduler, &job->flow, place, &chunk->charge);
    return 0;
}

static void note_issued(struct job *job, const struct scheduler_place *place, struct push *push,
                        uint64_t n_records)
{
    push->n_released += n_records;
    job->n_queued -= n_records;
    if (push->is_described) {
        ring_link_let_hear(push->ring, job->server->devices.all[place->device].link,
                           push->keeps_awake);
    }
}

static uint16_t flags_of(const struct job *job, const struct push *push)
{
    return (uint16_t)((job->prepared->wants_timing ? WORK_TIMED : 0) |
                      (push->keeps_awake ? WORK_AWAKE : 0));
}

static int issue_table(struct job *job, const struct scheduler_place *place, struct push *push)
{
    struct work_row rows[WORK_ROWS];
    struct work_entry entry = {.n_records = push->n_rows,
                               .kind = WORK_TABLE,
                               .flags = flags_of(job, push),
                               .ref = {WORK_REF(push->ring->segment, 0)}};

    for (uint32_t i = 0; i < push->n_rows; i++) {
        rows[i] = *push_lists_work(&job->lists, push, i);
    }
    uint64_t n = set_next_records(job, push);
    int r = submit(job, place, &entry, rows, push);
    if (r == 0) {
        note_issued(job, place, push, n);
    }
    return r;
}

static int issue_records(struct job *job, const struct scheduler_place *place, struct push *push)
{
    const struct push_shape *shape = &job->prepared->shape;
    uint32_t piece = (uint32_t)(push->n_released / push->piece_records);
    uint64_t first = push->n_released % push->piece_records; /* within the piece */
    uint64_t n = set_next_records(job, push); /* what is known may have changed since */
    struct work_entry entry = {
        .n_records = (uint32_t)n,
        .kind = shape->leaf != 0 ? WORK_LEAVES : WORK_MAP,
        .flags = flags_of(job, push),
    };

    for (uint32_t array = 0; array < shape->n_arrays; array++) {
        entry.ref[array] =
            array_ref(push, shape, piece, array, push_array_size(shape, array, first));
    }
    if (push->n_released + n == push->n_records) {
        entry.tail_size = push->tail_size;
    }
    if (shape->varying != 0) {
        entry.varying_size = push->varying_size;
    }
    int r = submit(job, place, &entry, NULL, push);
    if (r == 0) {
        note_issued(job, place, push, n);
    }
    return r;
}

static int issue_merge(struct job *job, const struct scheduler_place *place, struct push *push)
{
    const struct push_shape *shape = &job->prepared->shape;
    uint64_t n_records = push_piece_records(push, push->n_merged);
    struct work_entry entry = {
        .kind = WORK_MERGE,
        .n_records = (uint32_t)div_round_up(n_records, shape->leaf),
        .ref = {job->has_fold ? fold_ref(job, job->fold_at) : WORK_REF_NONE,
                ref_of(push_block(push, shape, push->n_merged, shape->n_in), 0),
                fold_ref(job, 1 - job->fold_at)},
    };
    int r = submit(job, place, &entry, NULL, push);

    job->is_merging = r == 0;
    return r;
}

/* An input of no records has an empty fold, which the worker makes of no partials. */
static int issue_empty_fold(struct job *job, const struct scheduler_place *place)
{
    struct work_entry entry = {
        .kind = WORK_MERGE,
        .ref = {WORK_REF_NONE, fold_ref(job, job->fold_at), fold_ref(job, 1 - job->fold_at)},
    };
    int r = submit(job, place, &entry, NULL, NULL);

    job->is_merging = r == 0;
    return r;
}

static int issue_finish(struct job *job, const struct scheduler_place *place)
{
    struct work_entry entry = {
        .kind = WORK_FINISH, .n_records = 1, .ref = {fold_ref(job, job->fold_at)}};

    if (!job->has_fold) {
        return issue_empty_fold(job, place);
    }
    for (uint32_t i = 0; i < job->prepared->op->n_out; i++) {
        entry.ref[1 + i] = ref_of(&job->out[i], 0);
    }
    int r = submit(job, place, &entry, NULL, NULL);
    job->is_merging = r == 0;
    return r;
}

int job_issue(struct job *job, const struct scheduler_place *place)
{
    int r;

    if (!job_has_work(job)) { /* it had: of what it is after something has become since */
        job_unqueue(job);
        return 0;
    }
    bool may_fold = job->prepared->shape.leaf != 0 && !job->is_merging;
    struct push *push = may_fold ? merge_push(job) : NULL;

    if (push != NULL) {
        r = issue_merge(job, place, push);
    } else if (may_fold && wants_finish(job)) {
        r = issue_finish(job, place);
    } else {
        push = next_push(job);
        r = push->n_rows > 1 ? issue_table(job, place, push) : issue_records(job, place, push);
    }
    if (r == 0) {
        job_queue(job);
    } else if (job_is_held(job)) {
        job_unqueue(job);
        return 0;
    }
    return r;
}

/* ---- what comes back ------------------------------------------------------------------------ */

static void note_merged(struct job *job, struct push *push)
{
    job->has_fold = true;
    job->fold_at = 1 - job->fold_at;
    if (push == NULL) {
        return;
    }
    push->n_merged++;
    if (push_is_computed(push, &job->prepared->shape)) {
        job->merge_seq++;
    }
}

static void note_times(struct push *push, const struct work_result *result)
{
    if (push->start_ns == 0 || result->start_ns < push->start_ns) {
        push->start_ns = result->start_ns;
    }
    push->in_ns += result->in_ns;
    push->compute_ns += result->compute_ns;
    push->out_ns += result->out_ns;
}

static void note_failure(struct job *job, struct push *push, const struct failure *failure)
{
    if (push == NULL) {
        job_fail(job, failure, job->n_answered);
        return;
    }
    push_note_failure(push, failure);
    job_fail(job, failure, push->seq);
}

/* The device has let go of the chunk. */
static void take_back(const struct chunk *chunk)
{
    struct job *job = chunk->job;

    job->n_chunks--;
    job->newest = job->newest == chunk ? NULL : job->newest;
    device_of(chunk)->n_following -= chunk->is_following;
    if (chunk->push != NULL) {
        chunk->push->n_chunks--;
    }
    if (chunk->kind == WORK_MERGE || chunk->kind == WORK_FINISH) {
        job->is_merging = false;
    }
    job->server->stats.chunks_in_flight--;
}

/* Answer its push, then take it, which took so much of the device, off the scheduler's books. */
static void retire(struct chunk *chunk, uint64_t device_ns)
{
    struct job *job = chunk->job;

    job_answer(job, job->state < JOB_DONE ? chunk->push : NULL);
    scheduler_done(&job->server->scheduler, &chunk->charge, device_ns);
    free(chunk);
    job_conclude(job);
}

static void describe_failure(const struct chunk *chunk, const struct work_result *result,
                             const char *error, struct failure *ret_failure)
{
    enum status status = result->status > 0 && result->status < STATUS_COUNT
                             ? (enum status)result->status
                             : STATUS_INTERNAL;

    fail(ret_failure, status, NULL, "op %s on device %s: %s", chunk->job->prepared->op->name,
         device_of(chunk)->name,
         error[0] != '\0' ? error : "its worker does not say what went wrong");
}

/* What an op has not written is what somebody else left there: it never leaves. */
static bool is_whole(const struct chunk *chunk, const struct work_result *result,
                     struct failure *ret_failure)
{
    const struct prepared *prepared = chunk->job->prepared;
    bool is_map = chunk->kind == WORK_MAP || chunk->kind == WORK_TABLE;

    for (uint32_t i = 0; is_map && i < prepared->op->n_out; i++) {
        uint64_t size =
            push_array_size(&prepared->shape, prepared->shape.n_in + i, chunk->n_records);

        if (result->out_size[i] != size) {
            fail(ret_failure, STATUS_INTERNAL, NULL,
                 "op %s on device %s: output %s has %u bytes of %llu", prepared->op->name,
                 device_of(chunk)->name, prepared->op->out[i].name, result->out_size[i],
                 (unsigned long long)size);
            return false;
        }
    }
    return true;
}

/* Its client waits for a large push's last chunks, which are all that the devices have. */
static bool is_ending(const struct job *job, const struct push *push)
{
    uint64_t n_in_flight = job->server->stats.chunks_in_flight;

    return push != NULL && push->is_described && push->n_released == push->n_records &&
           push->n_records > job->prepared->chunk_most && n_in_flight > 0 &&
           n_in_flight <= ENDING_CHUNKS && ring_link_may_keep_awake(push->ring);
}

void job_chunk_done(struct chunk *chunk, const struct work_result *result, const char *error)
{
    bool is_good = result->state == RESULT_DONE && result->status == STATUS_OK;
    struct push *push = chunk->push;
    struct job *job = chunk->job;
    struct failure failure;

    take_back(chunk);
    job->server->stats.chunks_total++;
    if (is_ending(job, push)) {
        awake_want(&job->server->awake, AWAKE_END_NS);
    }
    if (!is_good) {
        describe_failure(chunk, result, error, &failure);
        note_failure(job, push, &failure);
    } else if (!is_whole(chunk, result, &failure)) {
        note_failure(job, push, &failure);
    } else if (chunk->kind == WORK_MERGE) {
        note_merged(job, push);
    } else if (chunk->kind == WORK_FINISH) {
        job->is_finished = true;
    } else {
        note_times(push, result);
    }
    retire(chunk, is_good ? result->device_ns : 0);
}

void job_chunk_lost(struct chunk *chunk, const char *reason)
{
    struct job *job = chunk->job;
    struct failure failure;

    take_back(chunk);
    job->server->stats.chunks_lost++;
    fail(&failure, STATUS_DEVICE_LOST, NULL,
         "op %s was lost with the worker of device %s, and may be sent again: %s",
         job->prepared->op->name, device_of(chunk)->name, reason);
    note_failure(job, chunk->push, &failure);
    retire(chunk, 0);
}
