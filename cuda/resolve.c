/*
 * From a work entry to checked work.  The entry and the job block are copies or are copied here
 * once; every array's size is computed from the op's manifest and looked up in the segment table,
 * so that what comes out can be run without a further check.
 *
 * A row of kinds[] says for each kind of entry which ops it fits, and how its refs become arrays.
 */
#include "cuda/resolve.h"

#include "proto/util.h"

#include <string.h>

struct resolver {
    const struct work_entry *entry;
    struct segments *segments;
    struct device_work *work;
    const struct manifest_op *op;
    uint32_t n_refs; /* taken so far */
};

/* The entry's next ref as an array of size bytes, its elements alignment bytes each. */
static enum status take_array(struct resolver *resolver, uint64_t size, uint32_t alignment,
                              struct device_array *ret_array)
{
    struct device_array array = {.size = size};
    work_ref ref;

    if (resolver->n_refs == ARRAY_SIZE(resolver->entry->ref)) {
        return STATUS_INTERNAL;
    }
    ref = resolver->entry->ref[resolver->n_refs++];
    array.segment = WORK_REF_SEGMENT(ref);
    array.offset = WORK_REF_OFFSET(ref);
    array.base = segments_find(resolver->segments, array.segment, array.offset, size);
    if (array.base == NULL || array.offset % alignment != 0) {
        return STATUS_RANGE;
    }
    *ret_array = array;
    return STATUS_OK;
}

/* n records of the op's array, the last of them tail_size bytes if that is not 0. */
static enum status take_records(struct resolver *resolver, const struct manifest_array *array,
                                uint32_t n_records, uint32_t tail_size,
                                struct device_array *ret_array)
{
    struct failure failure;
    uint64_t size;
    uint32_t record_size;

    if (manifest_record_size(resolver->op, array, resolver->work->params, &record_size, &failure) <
        0) {
        return STATUS_RANGE;
    }
    if (tail_size >= record_size) {
        return STATUS_RANGE;
    }
    size = (uint64_t)n_records * record_size;
    if (tail_size > 0) {
        size -= record_size - tail_size;
    }
    return take_array(resolver, size, dtype_size(array->dtype), ret_array);
}

static enum status take_inputs(struct resolver *resolver)
{
    const struct work_entry *entry = resolver->entry;
    enum status status = STATUS_OK;

    if (entry->n_records == 0) {
        return STATUS_RANGE;
    }
    if (entry->tail_size > 0 && (resolver->op->tails & TAIL_BIT(TAIL_SHORT)) == 0) {
        return STATUS_RANGE;
    }
    for (uint32_t i = 0; i < resolver->op->n_in && status == STATUS_OK; i++) {
        status = take_records(resolver, &resolver->op->in[i], entry->n_records,
                              i == 0 ? entry->tail_size : 0, &resolver->work->in[i]);
    }
    return status;
}

static enum status take_outputs(struct resolver *resolver, uint32_t n_records)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < resolver->op->n_out && status == STATUS_OK; i++) {
        status =
            take_records(resolver, &resolver->op->out[i], n_records, 0, &resolver->work->out[i]);
    }
    return status;
}

static enum status take_partials(struct resolver *resolver, uint64_t n,
                                 struct device_array *ret_array)
{
    return take_array(resolver, n * resolver->op->partial_size, sizeof(uint64_t), ret_array);
}

static enum status resolve_map(struct resolver *resolver)
{
    enum status status = take_inputs(resolver);

    return status == STATUS_OK ? take_outputs(resolver, resolver->entry->n_records) : status;
}

static enum status resolve_leaves(struct resolver *resolver)
{
    uint64_t n_leaves = div_round_up(resolver->entry->n_records, resolver->op->leaf);
    enum status status = take_inputs(resolver);

    return status == STATUS_OK ? take_partials(resolver, n_leaves, &resolver->work->out[0])
                               : status;
}

static bool overlap(const struct device_array *a, const struct device_array *b)
{
    const char *a_base = a->base, *b_base = b->base;

    return a_base < b_base + b->size && b_base < a_base + a->size;
}

static enum status resolve_merge(struct resolver *resolver)
{
    struct device_work *work = resolver->work;
    const work_ref *ref = resolver->entry->ref;
    enum status status = STATUS_OK;

    if (ref[0] == WORK_REF_NONE) {
        resolver->n_refs = 1;
    } else {
        status = take_partials(resolver, 1, &work->in[0]);
    }
    if (status == STATUS_OK && resolver->entry->n_records == 0) {
        resolver->n_refs = 2;
    } else if (status == STATUS_OK) {
        status = take_partials(resolver, resolver->entry->n_records, &work->in[1]);
    }
    if (status == STATUS_OK) {
        status = take_partials(resolver, 1, &work->out[0]);
    }
    if (status == STATUS_OK && work->in[0].base != NULL && overlap(&work->in[0], &work->out[0])) {
        status = STATUS_RANGE; /* a fold that was lost half way could not be repeated */
    }
    return status;
}

static enum status resolve_finish(struct resolver *resolver)
{
    enum status status = resolver->entry->n_records == 1 ? STATUS_OK : STATUS_RANGE;

    if (status == STATUS_OK) {
        status = take_partials(resolver, 1, &resolver->work->in[0]);
    }
    return status == STATUS_OK ? take_outputs(resolver, 1) : status;
}

static const struct kind {
    enum op_kind op_kind;
    bool has_tail;
    enum status (*resolve)(struct resolver *resolver);
} kinds[] = {
    [WORK_MAP] = {OP_MAP, true, resolve_map},
    [WORK_LEAVES] = {OP_REDUCE, true, resolve_leaves},
    [WORK_MERGE] = {OP_REDUCE, false, resolve_merge},
    [WORK_FINISH] = {OP_REDUCE, false, resolve_finish},
};

enum status resolve_entry(const struct work_entry *entry, const struct job_table *jobs,
                          struct segments *segments, struct device_work *ret_work)
{
    struct resolver resolver = {.entry = entry, .segments = segments, .work = ret_work};
    struct job_block block;

    if (entry->job_slot >= jobs->n_blocks || entry->kind >= ARRAY_SIZE(kinds) ||
        entry->flags != 0) {
        return STATUS_INTERNAL;
    }
    memcpy(&block, &jobs->blocks[entry->job_slot], sizeof(block));
    if (block.op >= n_op_codes) {
        return STATUS_INTERNAL;
    }
    memset(ret_work, 0, sizeof(*ret_work));
    ret_work->code = op_codes[block.op];
    ret_work->op = block.op;
    ret_work->kind = entry->kind;
    ret_work->n_records = entry->n_records;
    ret_work->tail_size = entry->tail_size;
    memcpy(ret_work->params, block.params, sizeof(ret_work->params));
    resolver.op = ret_work->code->manifest;
    if (resolver.op->kind != kinds[entry->kind].op_kind) {
        return STATUS_INTERNAL;
    }
    if (entry->tail_size > 0 && !kinds[entry->kind].has_tail) {
        return STATUS_RANGE;
    }
    return kinds[entry->kind].resolve(&resolver);
}
