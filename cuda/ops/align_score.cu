/*
 * align_score: the score of the best local alignment of two sequences of bytes with affine gaps
 * (Smith and Waterman, Gotoh), as many pairs side by side as there are lanes.
 *
 * Over the cells (i, j), 0 <= i < lengths[0], 0 <= j < lengths[1], and, where band is not 0,
 * |i - j| <= band:
 *
 *     E(i, j) = max(E(i, j - 1) - gap_extend, H(i, j - 1) - gap_open)
 *     F(i, j) = max(F(i - 1, j) - gap_extend, H(i - 1, j) - gap_open)
 *     H(i, j) = max(0, H(i - 1, j - 1) + (a[i] == b[j] ? match : -mismatch), E(i, j), F(i, j))
 *
 * H is 0 and E, F are -infinity in cells that are not there.  The score is the largest H, or 0: a
 * gap of n costs gap_open + (n - 1) * gap_extend, and bytes match if they are the same.
 *
 * Lanes differ in length: what lies behind a sequence's end is a code that equals none, and no cell
 * beyond an end can exceed the best before it, because penalties are not negative.  Since no H is
 * below 0, an E or F of 0 or less is as good as -infinity; so a cell outside the band does no harm
 * once its H is 0: its E and F lead further outside or are at most 0 themselves.
 *
 * Rows are taken ALIGN_ROWS at a time, whose E and H stay in registers while the columns pass; of
 * the row above lie H and F in memory.  Every number fits 16 bits by the bounds of the parameters.
 */
#include "cuda/lane.h"
#include "cuda/op.h"

#define ALIGN_LENGTH  512  /* of a sequence, at most */
#define ALIGN_MATCH   63   /* at most: 512 of them fit 16 bits */
#define ALIGN_PENALTY 8000 /* at most: -2 of them fit 16 bits */
#define ALIGN_END_A   256
#define ALIGN_END_B   257

#ifdef __CUDACC__
#define ALIGN_ROWS 8
typedef uint8_t align_byte;
typedef int16_t align_cell; /* half the memory of a lane_i16 */
#else
#define ALIGN_ROWS 4 /* as many as 16 registers of AVX2 hold */
typedef lane_i16 align_byte;
typedef lane_i16 align_cell;
#endif

struct align_score_params {
    uint32_t length; /* bytes of a record */
    uint32_t match, mismatch, gap_open, gap_extend;
    uint32_t band; /* 0: none */
};

struct align_pair {
    const uint8_t *a, *b;
    uint32_t n_a, n_b;
};

/* As they are added. */
struct align_costs {
    lane_i16 bonus, mismatch, gap_open, gap_extend; /* bonus: of a match over a mismatch */
};

/* What lies along b: row_h is H of the row above the stripe, row_f F of its first row. */
struct align_columns {
    align_byte b[ALIGN_LENGTH]; /* one lane alone has no ALIGN_END_B */
    align_cell row_h[ALIGN_LENGTH], row_f[ALIGN_LENGTH];
};

/* Rows i .. on their way through the columns: h of the last column, e of the next. */
struct align_stripe {
    uint32_t i;
    lane_i16 a[ALIGN_ROWS], h[ALIGN_ROWS], e[ALIGN_ROWS];
    lane_i16 corner; /* H(i - 1) of the last column */
    lane_i16 best;
};

GP_INLINE uint32_t align_least(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

GP_INLINE void align_open(const struct align_score_params *params, const struct op_record *record,
                          struct align_pair *ret_pair)
{
    const struct op_chunk *chunk = record->chunk;
    const uint32_t *lengths = GP_IN(2, uint32_t) + (size_t)record->i * 2;

    ret_pair->a = GP_IN(0, uint8_t) + (size_t)record->i * params->length;
    ret_pair->b = GP_IN(1, uint8_t) + (size_t)record->i * params->length;
    ret_pair->n_a = align_least(GP_LOAD(lengths[0]), params->length);
    ret_pair->n_b = align_least(GP_LOAD(lengths[1]), params->length);
}

GP_INLINE struct align_costs align_costs(const struct align_score_params *params)
{
    return (struct align_costs){
        lane_all_16((int16_t)(params->match + params->mismatch)),
        lane_all_16((int16_t)(0 - params->mismatch)),
        lane_all_16((int16_t)(0 - params->gap_open)),
        lane_all_16((int16_t)(0 - params->gap_extend)),
    };
}

GP_INLINE void align_start(const struct align_pair *pairs, uint32_t n_columns,
                           struct align_columns *ret_columns)
{
    for (uint32_t j = 0; j < n_columns; j++) {
        lane_i16 b = lane_all_16(ALIGN_END_B);

        for (uint32_t lane = 0; lane < GP_LANES_16; lane++) {
            if (j < pairs[lane].n_b) {
                lane_set_16(&b, lane, pairs[lane].b[j]);
            }
        }
        ret_columns->b[j] = b;
        ret_columns->row_h[j] = lane_all_16(0);
        ret_columns->row_f[j] = lane_all_16(0);
    }
}

/* The stripe in front of its first column. */
GP_INLINE void align_enter(const struct align_pair *pairs, const struct align_columns *columns,
                           uint32_t first, struct align_stripe *stripe)
{
    GP_UNROLL
    for (uint32_t r = 0; r < ALIGN_ROWS; r++) {
        lane_i16 a = lane_all_16(ALIGN_END_A);

        for (uint32_t lane = 0; lane < GP_LANES_16; lane++) {
            if (stripe->i + r < pairs[lane].n_a) {
                lane_set_16(&a, lane, pairs[lane].a[stripe->i + r]);
            }
        }
        stripe->a[r] = a;
        stripe->h[r] = lane_all_16(0);
        stripe->e[r] = lane_all_16(0);
    }
    stripe->corner = first > 0 ? columns->row_h[first - 1] : lane_all_16(0);
}

/* Column j; band matters only if is_edge. */
GP_INLINE void align_column(const struct align_costs *costs, struct align_columns *columns,
                            struct align_stripe *stripe, uint32_t j, uint32_t band, bool is_edge)
{
    const lane_i16 b = columns->b[j];
    lane_i16 diagonal = stripe->corner, f = columns->row_f[j];

    stripe->corner = columns->row_h[j];
    GP_UNROLL
    for (uint32_t r = 0; r < ALIGN_ROWS; r++) {
        const uint32_t i = stripe->i + r;
        const lane_i16 score = lane_if_same_16(stripe->a[r], b, costs->bonus) + costs->mismatch;
        lane_i16 h = lane_add_max_16(diagonal, score, stripe->e[r]), opened;

        h = lane_max_16(lane_max_16(h, f), lane_all_16(0));
        if (is_edge && (i > j + band || j > i + band)) {
            h = lane_all_16(0);
        }
        stripe->best = lane_max_16(stripe->best, h);
        diagonal = stripe->h[r];
        stripe->h[r] = h;
        opened = h + costs->gap_open;
        stripe->e[r] = lane_add_max_16(stripe->e[r], costs->gap_extend, opened);
        f = lane_add_max_16(f, costs->gap_extend, opened);
    }
    columns->row_h[j] = stripe->h[ALIGN_ROWS - 1];
    columns->row_f[j] = f;
}

/* Those columns of the stripe that the band touches. */
GP_INLINE void align_pass(const struct align_costs *costs, const struct align_pair *pairs,
                          uint32_t n_columns, uint32_t band, struct align_columns *columns,
                          struct align_stripe *stripe)
{
    const uint32_t i = stripe->i, last = i + ALIGN_ROWS - 1;
    const uint32_t first = i > band ? i - band : 0;
    const uint32_t end = align_least(n_columns, last + band + 1);
    const uint32_t inner = last > band ? last - band : 0; /* from here on no row is below it, */
    const uint32_t inner_end = i + band + 1;              /* and up to here none above */

    align_enter(pairs, columns, first, stripe);
    for (uint32_t j = first; j < end; j++) {
        if (j >= inner && j < inner_end) {
            align_column(costs, columns, stripe, j, band, false);
        } else {
            align_column(costs, columns, stripe, j, band, true);
        }
    }
}

GP_MAP_LANES(align_score, GP_LANES_16)
{
    const struct align_costs costs = align_costs(params);
    const uint32_t band = params->band > 0 ? params->band : ALIGN_LENGTH;
    struct align_pair pairs[GP_LANES_16];
    struct align_columns columns;
    struct align_stripe stripe;
    uint32_t n_rows = 0, n_columns = 0;

    for (uint32_t lane = 0; lane < GP_LANES_16; lane++) {
        align_open(params, &records[lane], &pairs[lane]);
        n_rows = pairs[lane].n_a > n_rows ? pairs[lane].n_a : n_rows;
        n_columns = pairs[lane].n_b > n_columns ? pairs[lane].n_b : n_columns;
    }
    align_start(pairs, n_columns, &columns);
    stripe.best = lane_all_16(0);
    for (stripe.i = 0; stripe.i < n_rows; stripe.i += ALIGN_ROWS) {
        align_pass(&costs, pairs, n_columns, band, &columns, &stripe);
    }
    for (uint32_t lane = 0; lane < n_records; lane++) {
        const struct op_chunk *chunk = records[lane].chunk;

        GP_OUT(0, int32_t)[records[lane].i] = lane_get_16(stripe.best, lane);
    }
}

#ifdef GP_HOST

#define ALIGN_PENALTY_PARAM(member, otherwise)                                                     \
    {                                                                                              \
        .name = #member, .type = PARAM_U32, .offset = offsetof(struct align_score_params, member), \
        .i_default = (otherwise), .i_min = 0, .i_max = ALIGN_PENALTY                               \
    }

static const struct manifest_op align_score_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_MAP,
    .name = "align_score",
    .doc = "score of the best local alignment of a and b (Smith-Waterman) in the band |i - j| <= "
           "band; a gap of n costs gap_open + (n - 1) * gap_extend; lengths: true ones",
    .n_in = 3,
    .n_out = 1,
    .n_params = 6,
    .params_size = sizeof(struct align_score_params),
    .in = {{.name = "a", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "length"}}},
           {.name = "b", .dtype = DTYPE_U8, .n_dims = 1, .dims = {{.param = "length"}}},
           {.name = "lengths", .dtype = DTYPE_U32, .n_dims = 1, .dims = {{.fixed = 2}}}},
    .out = {{.name = "score", .dtype = DTYPE_I32}},
    .params = {{.name = "length",
                .type = PARAM_U32,
                .offset = offsetof(struct align_score_params, length),
                .i_default = 256,
                .i_min = 1,
                .i_max = ALIGN_LENGTH},
               {.name = "match",
                .type = PARAM_U32,
                .offset = offsetof(struct align_score_params, match),
                .i_default = 2,
                .i_min = 0,
                .i_max = ALIGN_MATCH},
               ALIGN_PENALTY_PARAM(mismatch, 4),
               ALIGN_PENALTY_PARAM(gap_open, 6),
               ALIGN_PENALTY_PARAM(gap_extend, 1),
               {.name = "band",
                .type = PARAM_U32,
                .offset = offsetof(struct align_score_params, band),
                .i_default = 0,
                .i_min = 0,
                .i_max = ALIGN_LENGTH}},
    .min_parallel = 32, /* the widest lanes of a CPU; a GPU wants thousands */
};

GP_CODE(align_score, .map = align_score_map);

#endif
