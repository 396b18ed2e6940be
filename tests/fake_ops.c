/*
 * The fake ops.  Most need no CUDA form, so each is a manifest and plain functions.
 */
#include "tests/fake_ops.h"

#include "proto/util.h"

#include <string.h>
#include <time.h>

static void affine_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct fake_params *fake = params;

    for (uint32_t k = 0; k < n_chunks; k++) {
        const uint32_t *in = chunks[k].in[0];
        uint32_t *out = chunks[k].out[0];

        for (uint32_t i = 0; i < chunks[k].n_records; i++) {
            out[i] = 3 * in[i] + fake->add;
        }
    }
}

static void gate_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    const struct timespec pause = {.tv_nsec = 100000};

    (void)params, (void)n_chunks;
    for (uint32_t i = 0; i < chunks[0].n_records; i++) {
        const uint32_t *in = (const uint32_t *)chunks[0].in[0] + i;

        while (__atomic_load_n(in, __ATOMIC_ACQUIRE) == 0) {
            nanosleep(&pause, NULL);
        }
        ((uint32_t *)chunks[0].out[0])[i] = *in;
    }
}

static void width_map(const void *params, const struct op_chunk *chunks, uint32_t n_chunks)
{
    (void)params;
    for (uint32_t k = 0; k < n_chunks; k++) {
        uint32_t *out = chunks[k].out[0];

        for (uint32_t i = 0; i < chunks[k].n_records; i++) {
            bool is_tail = i + 1 == chunks[k].n_records && chunks[k].tail_size > 0;
            out[i] = n_chunks | (is_tail ? chunks[k].tail_size : FAKE_BLOCK) << 16;
        }
    }
}

static void chain_leaves(const void *params, const struct op_chunk *chunk)
{
    const uint32_t *in = chunk->in[0];
    struct fake_partial *out = chunk->out[0];

    (void)params;
    for (uint32_t i = 0; i < chunk->n_records; i++) {
        if (i % FAKE_LEAF == 0) {
            out[i / FAKE_LEAF] = (struct fake_partial){.n_leaves = 1};
        }
        out[i / FAKE_LEAF].sum = out[i / FAKE_LEAF].sum * 7 + in[i];
    }
}

static void chain_merge(const void *params, const void *fold, const void *partials, uint32_t n,
                        void *ret_fold)
{
    struct fake_partial so_far = {0};
    const struct fake_partial *partial = partials;

    (void)params;
    if (fold != NULL) {
        memcpy(&so_far, fold, sizeof(so_far));
    }
    for (uint32_t i = 0; i < n; i++) {
        so_far.sum = so_far.sum * 31 + partial[i].sum;
        so_far.n_leaves += partial[i].n_leaves;
    }
    memcpy(ret_fold, &so_far, sizeof(so_far));
}

static void chain_finish(const void *params, const void *fold, void *const out[LIMIT_OUT])
{
    const struct fake_partial *partial = fold;
    uint64_t result = partial->sum ^ partial->n_leaves << 56;

    (void)params;
    memcpy(out[0], &result, sizeof(result));
}

uint64_t fake_chain(const uint32_t *records, uint32_t n_records)
{
    uint64_t sum = 0, n_leaves = 0;

    for (uint32_t at = 0; at < n_records; at += FAKE_LEAF) {
        uint64_t leaf = 0;

        for (uint32_t i = at; i < MIN(at + FAKE_LEAF, n_records); i++) {
            leaf = leaf * 7 + records[i];
        }
        sum = sum * 31 + leaf;
        n_leaves++;
    }
    return sum ^ n_leaves << 56;
}

#define U32_ARRAY(array_name)                                                                      \
    {                                                                                              \
        .name = (array_name), .dtype = DTYPE_U32                                                   \
    }
#define ADD_PARAM                                                                                  \
    {                                                                                              \
        .name = "add", .type = PARAM_U32, .i_max = UINT32_MAX                                      \
    }

static const struct manifest_op manifests[] = {
    [FAKE_AFFINE] = {.abi = MANIFEST_ABI,
                     .kind = OP_MAP,
                     .name = "affine",
                     .doc = "3 x + add",
                     .n_in = 1,
                     .n_out = 1,
                     .n_params = 1,
                     .params_size = sizeof(struct fake_params),
                     .in = {U32_ARRAY("x")},
                     .out = {U32_ARRAY("y")},
                     .params = {ADD_PARAM},
                     .min_parallel = 1},
    [FAKE_GATE] = {.abi = MANIFEST_ABI,
                   .kind = OP_MAP,
                   .name = "gate",
                   .doc = "waits until its input is not 0",
                   .n_in = 1,
                   .n_out = 1,
                   .in = {U32_ARRAY("x")},
                   .out = {U32_ARRAY("y")},
                   .min_parallel = 1},
    [FAKE_WIDTH] =
        {.abi = MANIFEST_ABI,
         .kind = OP_MAP,
         .name = "width",
         .doc = "how many chunks ran at once",
         .n_in = 1,
         .n_out = 1,
         .n_params = 1,
         .params_size = sizeof(struct fake_params),
         .in = {{.name = "x", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.fixed = FAKE_BLOCK}}}},
         .out = {U32_ARRAY("y")},
         .params = {ADD_PARAM},
         .tails = TAIL_BIT(TAIL_SHORT),
         .min_parallel = FAKE_PARALLEL},
    [FAKE_CHAIN] = {.abi = MANIFEST_ABI,
                    .kind = OP_REDUCE,
                    .name = "chain",
                    .doc = "a fold that depends on the order",
                    .n_in = 1,
                    .n_out = 1,
                    .in = {U32_ARRAY("x")},
                    .out = {{.name = "y", .dtype = DTYPE_U64}},
                    .min_parallel = 1,
                    .leaf = FAKE_LEAF,
                    .partial_size = sizeof(struct fake_partial)},
};

static const struct op_code affine = {.manifest = &manifests[FAKE_AFFINE], .map = affine_map};
static const struct op_code gate = {.manifest = &manifests[FAKE_GATE], .map = gate_map};
static const struct op_code width = {.manifest = &manifests[FAKE_WIDTH], .map = width_map};
static const struct op_code chain = {.manifest = &manifests[FAKE_CHAIN],
                                     .leaves = chain_leaves,
                                     .merge = chain_merge,
                                     .finish = chain_finish};

extern const struct op_code op_palette, op_spans;

const struct op_code *const op_codes[] = {
    [FAKE_AFFINE] = &affine, [FAKE_GATE] = &gate,          [FAKE_WIDTH] = &width,
    [FAKE_CHAIN] = &chain,   [FAKE_PALETTE] = &op_palette, [FAKE_SPANS] = &op_spans,
};
const uint32_t n_op_codes = FAKE_COUNT;
