/*
 * From a work entry to checked work.  The entry and the job block are copies or are copied here
 * once; every array's size is computed from the op's manifest and looked up in the segment table,
 * so that what comes out can be run without a further check.
 *
 * A row of kinds[] says for each kind of entry which ops it fits, and how its refs become arrays.
 */
#include "cuda/resolve.h"

#include "proto/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct resolver {
    const struct work_entry *entry;
    const struct work_row *rows;
    struct segments *segments;
    struct device_work *work;
    struct failure *failure; /* filled before an error is returned */
    const struct manifest_op *op;
    const struct job_const *consts;
    uint32_t n_refs; /* taken so far */
};

/* Where an array of a work comes from: a ref of the entry, or a constant of this name. */
struct source {
    const char *constant; /* NULL: ref */
    uint32_t ref;
};

/* A name costs more than all the checks: it is made when one of them fails. */
static int refuse_array(const struct resolver *resolver, const struct source *source,
                        const struct device_array *array, uint32_t alignment)
{
    char name[16];

    snprintf(name, sizeof(name), "ref %u", source->ref);
    const char *words = source->constant != NULL ? source->constant : name;

    if (array->size > UINT32_MAX) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "%s: %" PRIu64 " bytes are too many",
                    words, array->size);
    }
    if (array->base == NULL) {
        return fail(resolver->failure, STATUS_RANGE, NULL,
                    "%s: segment %u has no %" PRIu64 " bytes at offset %" PRIu64, words,
                    array->segment, array->size, array->offset);
    }
    return fail(resolver->failure, STATUS_RANGE, NULL,
                "%s: offset %" PRIu64 " is no multiple of its elements' %u bytes", words,
                array->offset, alignment);
}

/* What ref names, as an array of size bytes, its elements alignment bytes each. */
static int find_array(const struct resolver *resolver, struct source source, work_ref ref,
                      uint64_t size, uint32_t alignment, struct device_array *ret_array)
{
    struct device_array array = {
        .size = size, .segment = WORK_REF_SEGMENT(ref), .offset = WORK_REF_OFFSET(ref)};

    array.base = segments_find(resolver->segments, array.segment, array.offset, size);
    if (size > UINT32_MAX || array.base == NULL || array.offset % alignment != 0) {
        return refuse_array(resolver, &source, &array, alignment);
    }
    *ret_array = array;
    return 0;
}

/* The array of the entry's next ref. */
static int take_array(struct resolver *resolver, uint64_t size, uint32_t alignment,
                      struct device_array *ret_array)
{
    uint32_t at = resolver->n_refs;

    if (at == ARRAY_SIZE(resolver->entry->ref)) {
        return fail(resolver->failure, STATUS_INTERNAL, NULL, "it has more arrays than refs");
    }
    resolver->n_refs++;
    return find_array(resolver, (struct source){.ref = at}, resolver->entry->ref[at], size,
                      alignment, ret_array);
}

/* Bytes of one record of the array, under the parameters of the job. */
static int find_record_size(const struct resolver *resolver, const struct manifest_array *array,
                            uint32_t *ret_size)
{
    if (manifest_record_size(resolver->op, array, resolver->work->params, ret_size,
                             resolver->failure) < 0) {
        resolver->failure->status = STATUS_RANGE;
        return -STATUS_RANGE;
    }
    return 0;
}

/* n records of the op's array, the last of them tail_size bytes if that is not 0. */
static int take_records(struct resolver *resolver, const struct manifest_array *array,
                        uint32_t n_records, uint32_t tail_size, struct device_array *ret_array)
{
    uint64_t size;
    uint32_t record_size;
    int error = find_record_size(resolver, array, &record_size);

    if (error < 0) {
        return error;
    }
    if (tail_size >= record_size) {
        return fail(resolver->failure, STATUS_RANGE, NULL,
                    "a tail of %u bytes is no part of a record of %u", tail_size, record_size);
    }
    size = (uint64_t)n_records * record_size;
    if (tail_size > 0) {
        size -= record_size - tail_size;
    }
    return take_array(resolver, size, dtype_size(array->dtype), ret_array);
}

/* As many bytes as the entry says. */
static int take_varying(struct resolver *resolver, const struct manifest_array *array,
                        struct device_array *ret_array)
{
    uint64_t size = resolver->entry->varying_size;

    if (size % dtype_size(array->dtype) != 0) {
        return fail(resolver->failure, STATUS_RANGE, NULL,
                    "a varying array of %" PRIu64 " bytes is no multiple of its elements' %u", size,
                    dtype_size(array->dtype));
    }
    return take_array(resolver, size, dtype_size(array->dtype), ret_array);
}

static int take_input(struct resolver *resolver, uint32_t i, struct device_array *ret_array)
{
    const struct work_entry *entry = resolver->entry;
    const struct manifest_array *array = &resolver->op->in[i];

    if (i > 0 && i == manifest_varying(resolver->op)) {
        return take_varying(resolver, array, ret_array);
    }
    return take_records(resolver, array, entry->n_records, i == 0 ? entry->tail_size : 0,
                        ret_array);
}

static int take_consts(struct resolver *resolver)
{
    int error = 0;

    for (uint32_t i = 0; i < resolver->op->n_consts && error == 0; i++) {
        const struct manifest_array *array = &resolver->op->consts[i];
        uint32_t size;

        if (resolver->consts[i].id == 0) {
            return fail(resolver->failure, STATUS_INTERNAL, NULL, "its job has no constant %s",
                        array->name);
        }
        resolver->work->const_ids[i] = resolver->consts[i].id;
        error = find_record_size(resolver, array, &size);
        if (error == 0) {
            error = find_array(resolver, (struct source){.constant = array->name},
                               resolver->consts[i].ref, size, dtype_size(array->dtype),
                               &resolver->work->consts[i]);
        }
    }
    return error;
}

static int take_inputs(struct resolver *resolver)
{
    const struct work_entry *entry = resolver->entry;
    int error = 0;

    if (entry->n_records == 0) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "it has no records");
    }
    if (entry->tail_size > 0 && (resolver->op->tails & TAIL_BIT(TAIL_SHORT)) == 0) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "op %s takes no tail",
                    resolver->op->name);
    }
    for (uint32_t i = 0; i < resolver->op->n_in && error == 0; i++) {
        error = take_input(resolver, i, &resolver->work->in[i]);
    }
    return error == 0 ? take_consts(resolver) : error;
}

static int take_outputs(struct resolver *resolver, uint32_t n_records)
{
    int error = 0;

    for (uint32_t i = 0; i < resolver->op->n_out && error == 0; i++) {
        error =
            take_records(resolver, &resolver->op->out[i], n_records, 0, &resolver->work->out[i]);
    }
    return error;
}

static int take_partials(struct resolver *resolver, uint64_t n, struct device_array *ret_array)
{
    return take_array(resolver, n * resolver->op->partial_size, sizeof(uint64_t), ret_array);
}

static int resolve_map(struct resolver *resolver)
{
    int error = take_inputs(resolver);

    return error == 0 ? take_outputs(resolver, resolver->entry->n_records) : error;
}

/* Add the rows' part of one array, which begins where at[i * stride] says for row i. */
static int take_column(struct resolver *resolver, const struct manifest_array *array,
                       const uint32_t *at, struct device_array *ret_array)
{
    const uint32_t stride = sizeof(struct work_row) / sizeof(*at);
    uint64_t segment_size, total = 0;
    uint32_t record_size;
    int error = find_record_size(resolver, array, &record_size);

    if (error < 0) {
        return error;
    }
    ret_array->segment = WORK_REF_SEGMENT(resolver->entry->ref[0]);
    ret_array->base = segments_whole(resolver->segments, ret_array->segment, &segment_size);
    if (ret_array->base == NULL) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "there is no segment %u",
                    ret_array->segment);
    }
    for (uint32_t i = 0; i < resolver->work->n_rows; i++) {
        uint64_t size = (uint64_t)resolver->rows[i].n_records * record_size;
        uint64_t offset = (uint64_t)at[i * stride] * WORK_ALIGN;

        if (offset > segment_size || size > segment_size - offset) {
            return fail(resolver->failure, STATUS_RANGE, NULL,
                        "row %u, %s: segment %u has no %" PRIu64 " bytes at offset %" PRIu64, i,
                        array->name, ret_array->segment, size, offset);
        }
        total += size;
    }
    ret_array->size = total;
    return ret_array->size <= UINT32_MAX ? 0
                                         : fail(resolver->failure, STATUS_RANGE, NULL,
                                                "%s: %" PRIu64 " bytes of all rows are too many",
                                                array->name, ret_array->size);
}

/* n_records says how many rows there are. */
static int count_rows(struct resolver *resolver)
{
    struct device_work *work = resolver->work;
    uint64_t n_records = 0;

    if (work->n_records == 0 || work->n_records > WORK_ROWS) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "it has %u rows, not 1 to %u",
                    work->n_records, WORK_ROWS);
    }
    work->n_rows = work->n_records;
    for (uint32_t i = 0; i < work->n_rows; i++) {
        if (resolver->rows[i].n_records == 0) {
            return fail(resolver->failure, STATUS_RANGE, NULL, "row %u has no records", i);
        }
        n_records += resolver->rows[i].n_records;
    }
    work->n_records = (uint32_t)MIN(n_records, (uint64_t)UINT32_MAX);
    return work->n_records == n_records
               ? 0
               : fail(resolver->failure, STATUS_RANGE, NULL, "its rows have too many records");
}

static int resolve_table(struct resolver *resolver)
{
    struct device_work *work = resolver->work;
    const struct work_row *rows = resolver->rows;
    int error = count_rows(resolver);

    if (error == 0 &&
        (manifest_varying(resolver->op) != 0 || WORK_REF_OFFSET(resolver->entry->ref[0]) != 0)) {
        error = fail(resolver->failure, STATUS_RANGE, NULL,
                     "a table has no varying input, and the whole of a segment");
    }
    for (uint32_t i = 0; i < resolver->op->n_in && error == 0; i++) {
        error = take_column(resolver, &resolver->op->in[i], &rows->in[i], &work->in[i]);
    }
    for (uint32_t i = 0; i < resolver->op->n_out && error == 0; i++) {
        error = take_column(resolver, &resolver->op->out[i], &rows->out[i], &work->out[i]);
    }
    work->kind = WORK_MAP;
    work->rows = rows;
    return error == 0 ? take_consts(resolver) : error;
}

static int resolve_leaves(struct resolver *resolver)
{
    uint64_t n_leaves = div_round_up(resolver->entry->n_records, resolver->op->leaf);
    int error = take_inputs(resolver);

    return error == 0 ? take_partials(resolver, n_leaves, &resolver->work->out[0]) : error;
}

static bool overlap(const struct device_array *a, const struct device_array *b)
{
    const char *a_base = a->base, *b_base = b->base;

    return a_base < b_base + b->size && b_base < a_base + a->size;
}

static int resolve_merge(struct resolver *resolver)
{
    struct device_work *work = resolver->work;
    const work_ref *ref = resolver->entry->ref;
    int error = 0;

    if (ref[0] == WORK_REF_NONE) {
        resolver->n_refs = 1;
    } else {
        error = take_partials(resolver, 1, &work->in[0]);
    }
    if (error == 0 && resolver->entry->n_records == 0) {
        resolver->n_refs = 2;
    } else if (error == 0) {
        error = take_partials(resolver, resolver->entry->n_records, &work->in[1]);
    }
    if (error == 0) {
        error = take_partials(resolver, 1, &work->out[0]);
    }
    if (error == 0 && work->in[0].base != NULL && overlap(&work->in[0], &work->out[0])) {
        /* One that was lost half way could not be repeated. */
        error = fail(resolver->failure, STATUS_RANGE, NULL, "it merges a fold onto itself");
    }
    return error;
}

static int resolve_finish(struct resolver *resolver)
{
    int error = 0;

    if (resolver->entry->n_records != 1) {
        return fail(resolver->failure, STATUS_RANGE, NULL, "it finishes %u folds, not 1",
                    resolver->entry->n_records);
    }
    error = take_partials(resolver, 1, &resolver->work->in[0]);
    return error == 0 ? take_outputs(resolver, 1) : error;
}

static const struct kind {
    const char *name;
    enum op_kind op_kind;
    bool has_tail;
    int (*resolve)(struct resolver *resolver);
} kinds[] = {
    [WORK_MAP] = {"MAP", OP_MAP, true, resolve_map},
    [WORK_LEAVES] = {"LEAVES", OP_REDUCE, true, resolve_leaves},
    [WORK_MERGE] = {"MERGE", OP_REDUCE, false, resolve_merge},
    [WORK_FINISH] = {"FINISH", OP_REDUCE, false, resolve_finish},
    [WORK_TABLE] = {"TABLE", OP_MAP, false, resolve_table},
};

/* An entry that was after itself, or after a later one, would never begin. */
static int check_after(const struct work_entry *entry, uint32_t index, struct failure *ret_failure)
{
    const bool is_after = (entry->flags & WORK_AFTER) != 0;

    if (is_after ? index - entry->after - 1 < WORK_ENTRIES : entry->after == 0) {
        return 0;
    }
    return fail(ret_failure, STATUS_INTERNAL, NULL, "entry %u cannot be after %u%s", index,
                entry->after, is_after ? "" : " without its flag");
}

/* Nothing that the entry names may be looked up before. */
static int check_names(const struct work_entry *entry, uint32_t index, const struct job_table *jobs,
                       struct failure *ret_failure)
{
    if (entry->job_slot >= jobs->n_blocks) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "there is no job slot %u", entry->job_slot);
    }
    if (entry->kind >= ARRAY_SIZE(kinds)) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "there is no kind %u", entry->kind);
    }
    if ((entry->flags & ~WORK_FLAGS) != 0) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "there are no flags %#x",
                    entry->flags & ~WORK_FLAGS);
    }
    return check_after(entry, index, ret_failure);
}

int resolve_entry(const struct work_entry *entry, uint32_t index, const struct work_row *rows,
                  const struct job_table *jobs, struct segments *segments,
                  struct device_work *ret_work, struct failure *ret_failure)
{
    struct resolver resolver = {.entry = entry,
                                .rows = rows,
                                .segments = segments,
                                .work = ret_work,
                                .failure = ret_failure};
    int error = check_names(entry, index, jobs, ret_failure);
    const struct kind *kind;
    struct job_block block;

    if (error < 0) {
        return error;
    }
    memcpy(&block, &jobs->blocks[entry->job_slot], sizeof(block));
    if (block.op >= n_op_codes) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "there is no op %u", block.op);
    }
    memset(ret_work, 0, sizeof(*ret_work));
    ret_work->code = op_codes[block.op];
    ret_work->op = block.op;
    ret_work->kind = entry->kind;
    ret_work->is_after = (entry->flags & WORK_AFTER) != 0;
    ret_work->is_timed = (entry->flags & WORK_TIMED) != 0;
    ret_work->n_records = entry->n_records;
    ret_work->tail_size = entry->tail_size;
    ret_work->varying_size = entry->varying_size;
    memcpy(ret_work->params, block.params, sizeof(ret_work->params));
    resolver.op = ret_work->code->manifest;
    resolver.consts = block.consts;
    kind = &kinds[entry->kind];
    if (resolver.op->kind != kind->op_kind) {
        return fail(ret_failure, STATUS_INTERNAL, NULL, "op %s is of no kind for %s",
                    resolver.op->name, kind->name);
    }
    if (entry->tail_size > 0 && !kind->has_tail) {
        return fail(ret_failure, STATUS_RANGE, NULL, "a %s has no tail", kind->name);
    }
    if (entry->varying_size > 0 && manifest_varying(resolver.op) == 0) {
        return fail(ret_failure, STATUS_RANGE, NULL, "op %s has no varying input",
                    resolver.op->name);
    }
    return kind->resolve(&resolver);
}
