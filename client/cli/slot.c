/*
 * The buffers of one push, and how they are filled.
 *
 * Every input gives as many records to a push as fit into it, a pipe in as many reads as it takes.
 * Where one input is varying, its ends come first: they tell how many of its elements belong to
 * the push.  If those are more than a push may hold, the push is cut after the last record that
 * fits, and what was read of the others beyond it is put back.  In the file an end counts from the
 * file's start, in a push from the push's.
 *
 * Threads: one.
 */
#include "client/cli/slot.h"

#include "client/cli/cli.h"
#include "proto/util.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of all slots together, as long as two of them fit: half of what the program may use. */
#define MEMORY_MAX (48u << 20)
/* Three keep the socket, the device and this program busy at the same time. */
#define SLOTS_MAX  8u
#define SLOT_ALIGN 4096u

/* ---- memory -------------------------------------------------------------------------------- */

static size_t in_room(const struct slots *slots, uint32_t input)
{
    uint64_t size = slots->inputs[input].is_varying
                        ? slots->shape->max_push
                        : slots->push_records * slots->shape->in_size[input];

    return div_round_up(size, SLOT_ALIGN) * SLOT_ALIGN;
}

/* A reduction's outputs do not come with its pushes. */
static uint32_t n_outputs(const struct slots *slots)
{
    return slots->op->kind == OP_MAP ? slots->op->n_out : 0;
}

static size_t out_room(const struct slots *slots, uint32_t output)
{
    return div_round_up(slots->push_records * slots->shape->out_size[output], SLOT_ALIGN) *
           SLOT_ALIGN;
}

static uint64_t slot_size(const struct slots *slots)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        size += in_room(slots, i);
    }
    for (uint32_t i = 0; i < n_outputs(slots); i++) {
        size += out_room(slots, i);
    }
    return size;
}

/* How many slots there are to be. */
static uint32_t n_wanted(const struct slots *slots, uint32_t window)
{
    uint64_t n_fitting = MAX(MEMORY_MAX / slot_size(slots), 2u);
    /* One more than the window, so that it is filled while the others are under way. */
    uint32_t n = MIN(window + 1, SLOTS_MAX);

    return (uint32_t)MIN(n, n_fitting);
}

uint64_t slots_size(const struct slots *slots, uint32_t window)
{
    return n_wanted(slots, window) * slot_size(slots);
}

static void *take_room(const struct slots *slots, size_t size)
{
    return slots->ring == NULL ? aligned_alloc(SLOT_ALIGN, size)
                               : gpupipe_ring_alloc(slots->ring, size);
}

static bool create_slot(const struct slots *slots, struct slot *slot)
{
    bool has_all = true;

    slot->is_free = true;
    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        slot->in[i] = take_room(slots, in_room(slots, i));
        has_all &= slot->in[i] != NULL;
    }
    for (uint32_t i = 0; i < n_outputs(slots); i++) {
        slot->out[i] = take_room(slots, out_room(slots, i));
        has_all &= slot->out[i] != NULL;
    }
    return has_all;
}

int slots_create(struct slots *slots, uint32_t window)
{
    uint32_t n = n_wanted(slots, window);
    bool has_all;

    slots->all = calloc(n, sizeof(slots->all[0]));
    has_all = slots->all != NULL;
    while (has_all && slots->n < n) {
        has_all = create_slot(slots, &slots->all[slots->n++]);
    }
    if (!has_all && slots->all != NULL && slots->ring != NULL) {
        /* It was made to fit: the daemon has closed it, or is gone. */
        return cli_failure(gpupipe_last_error(slots->gpupipe));
    }
    if (!has_all) {
        cli_error("out of memory: a push has %" PRIu64 " bytes; --chunk makes it smaller",
                  slot_size(slots));
        return CLI_FAILED;
    }
    return CLI_OK;
}

static void free_slot(struct slot *slot)
{
    for (uint32_t i = 0; i < LIMIT_IN; i++) {
        free(slot->in[i]);
    }
    for (uint32_t i = 0; i < LIMIT_OUT; i++) {
        free(slot->out[i]);
    }
}

void slots_finish(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->n && slots->ring == NULL; i++) {
        free_slot(&slots->all[i]);
    }
    free(STEAL(slots->all));
    slots->n = 0;
}

struct slot *slots_take(struct slots *slots)
{
    struct slot *slot = slots->all;

    while (slot < slots->all + slots->n && !slot->is_free) {
        slot++;
    }
    if (slot == slots->all + slots->n) {
        return NULL;
    }
    slot->is_free = false;
    slot->is_cut = manifest_varying(slots->op) == 0;
    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        slot->filled[i] = 0;
        slot->wanted[i] =
            slots->inputs[i].is_varying ? 0 : slots->push_records * slots->shape->in_size[i];
    }
    return slot;
}

bool slots_are_free(const struct slots *slots, const struct slot *but)
{
    for (uint32_t i = 0; i < slots->n; i++) {
        if (!slots->all[i].is_free && &slots->all[i] != but) {
            return false;
        }
    }
    return true;
}

/* ---- the varying input --------------------------------------------------------------------- */

static int report_ends(const struct slots *slots, const char *what)
{
    const struct input *ends = &slots->inputs[manifest_ends(slots->op)];
    const struct input *varying = &slots->inputs[manifest_varying(slots->op)];

    cli_error("input %s: %s does not fit input %s: %s %s", ends->name, ends->path, varying->name,
              varying->path, what);
    return CLI_FAILED;
}

/*
 * Count the records whose elements fit into a push, with their ends as the push wants them and the
 * number of elements up to the last of them.
 */
static int cut_ends(struct slots *slots, uint8_t *ends, uint64_t n_ends, uint64_t *ret_n_records,
                    uint64_t *ret_n_elements)
{
    uint64_t n_most = slots->shape->max_push / slots->shape->in_size[manifest_varying(slots->op)];
    uint64_t n_elements = 0, n_records = 0;

    for (; n_records < n_ends; n_records++) {
        uint32_t end, end_here;

        memcpy(&end, ends + n_records * sizeof(end), sizeof(end));
        if (end < slots->first_element + n_elements) {
            return report_ends(slots, "an end is before the one before it");
        }
        if (end - slots->first_element > n_most) {
            break;
        }
        n_elements = end - slots->first_element;
        end_here = (uint32_t)n_elements;
        memcpy(ends + n_records * sizeof(end), &end_here, sizeof(end_here));
    }
    if (n_records == 0 && n_ends > 0) {
        return report_ends(slots, "a record is larger than a push; --chunk makes that larger");
    }
    slots->first_element += n_elements;
    *ret_n_records = n_records;
    *ret_n_elements = n_elements;
    return CLI_OK;
}

/* Everything but the varying input is here. */
static int cut(struct slots *slots, struct slot *slot)
{
    uint32_t varying = manifest_varying(slots->op), ends = manifest_ends(slots->op);
    uint64_t n_records = 0, n_elements = 0;
    int rc = cut_ends(slots, slot->in[ends], slot->filled[ends] / sizeof(uint32_t), &n_records,
                      &n_elements);

    for (uint32_t i = 0; i < slots->op->n_in && rc == CLI_OK; i++) {
        uint32_t record_size = slots->shape->in_size[i];
        size_t kept = n_records * record_size;

        /* Less than a record more is a tail, to be judged as one. */
        if (i != varying && slot->filled[i] >= kept + record_size) {
            rc = input_put_back(&slots->inputs[i], slot->in[i] + kept, slot->filled[i] - kept);
            slot->filled[i] = slot->wanted[i] = kept;
        }
    }
    /* Behind the last end one byte would be too many: ask for it. */
    slot->wanted[varying] = n_records == 0 ? 1 : n_elements * slots->shape->in_size[varying];
    slot->is_cut = true;
    return rc;
}

/* ---- filling ------------------------------------------------------------------------------- */

bool slot_lacks(const struct slots *slots, const struct slot *slot, uint32_t input)
{
    return !slots->inputs[input].is_at_end && slot->filled[input] < slot->wanted[input];
}

static bool lacks_any(const struct slots *slots, const struct slot *slot)
{
    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        if (slot_lacks(slots, slot, i)) {
            return true;
        }
    }
    return false;
}

bool slot_is_ready(const struct slots *slots, const struct slot *slot)
{
    return slot->is_cut && !lacks_any(slots, slot);
}

static int fill(struct slots *slots, struct slot *slot, uint32_t readable)
{
    int rc = CLI_OK;

    for (uint32_t i = 0; i < slots->op->n_in && rc == CLI_OK; i++) {
        struct input *input = &slots->inputs[i];
        bool may_read = !input->may_block || input->n_put_back > 0 || (readable & 1u << i) != 0;

        if (may_read && slot_lacks(slots, slot, i)) {
            rc = input_fill(input, slot->in[i], slot->wanted[i], &slot->filled[i]);
        }
    }
    return rc;
}

int slot_fill(struct slots *slots, struct slot *slot, uint32_t readable)
{
    int rc = fill(slots, slot, readable);

    if (rc == CLI_OK && !slot->is_cut && !lacks_any(slots, slot)) {
        rc = cut(slots, slot);
        if (rc == CLI_OK) {
            rc = fill(slots, slot, 0);
        }
    }
    return rc;
}

int slot_count(const struct slots *slots, struct slot *slot)
{
    const uint32_t *record_sizes = slots->shape->in_size;
    uint64_t n_records = div_round_up(slot->filled[0], record_sizes[0]);

    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        if (slots->inputs[i].is_varying) {
            continue;
        }
        if (slots->tail == TAIL_ERROR && slot->filled[i] % record_sizes[i] != 0) {
            return input_report_part(&slots->inputs[i], record_sizes[i]);
        }
        if (div_round_up(slot->filled[i], record_sizes[i]) != n_records) {
            return input_report_mismatch(slots->inputs, slots->op->n_in, record_sizes);
        }
    }
    for (uint32_t i = 0; i < slots->op->n_in; i++) {
        if (slots->inputs[i].is_varying &&
            (n_records == 0 ? slot->filled[i] > 0 : slot->filled[i] < slot->wanted[i])) {
            return report_ends(slots, n_records == 0 ? "goes on behind the last end"
                                                     : "ends before the last end");
        }
    }
    slot->n_records = n_records;
    return CLI_OK;
}
