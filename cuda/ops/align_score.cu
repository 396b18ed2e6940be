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
 * Rows are taken ALIGN_ROWS at a time, a stripe, whose E and H stay in registers while the columns
 * pass; a column carries H and F of the row above.  On a CPU the columns lie in memory.  On a GPU
 * each member of a part of a team has a stripe and hands its columns to the next: at step t stripe
 * s takes column t - s, whose H and F the stripe above made a step ago.  Every number fits 16 bits
 * by the bounds of the parameters.
 */
#include "cuda/lane.h"
#include "cuda/op.h"

#define ALIGN_LENGTH  512  /* of a sequence, at most */
#define ALIGN_MATCH   63   /* at most: 512 of them fit 16 bits */
#define ALIGN_PENALTY 8000 /* at most: -2 of them fit 16 bits */
#define ALIGN_END_A   256
#define ALIGN_END_B   257
#define ALIGN_TEAM    32 /* of a GPU, at most for one pair */

#ifdef __CUDACC__
#define ALIGN_ROWS (ALIGN_LENGTH / ALIGN_TEAM)
#else
#define ALIGN_ROWS 4 /* as many as 16 registers of AVX2 hold */
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

/* b's letter, H of the row above the stripe, and F of its first row. */
struct align_column {
    lane_i16 b, h, f;
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

/* The stripe in front of its first column, at which corner is the caller's. */
GP_INLINE void align_enter(const struct align_pair *pairs, struct align_stripe *stripe)
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
}

/* Column j, which is then the one of the stripe below; band matters only if is_edge. */
GP_INLINE void align_column(const struct align_costs *costs, struct align_column *column,
                            struct align_stripe *stripe, uint32_t j, uint32_t band, bool is_edge)
{
    const uint32_t below = stripe->i + band - j; /* the lower edge of the band */
    const lane_i16 b = column->b;
    lane_i16 diagonal = stripe->corner, f = column->f;

    stripe->corner = column->h;
    GP_UNROLL
    for (uint32_t r = 0; r < ALIGN_ROWS; r++) {
        const lane_i16 score = lane_if_same_16(stripe->a[r], b, costs->bonus) + costs->mismatch;
        lane_i16 h = lane_add_max_16(diagonal, score, stripe->e[r]), opened;

        h = lane_max_16(lane_max_16(h, f), lane_all_16(0));
        if (is_edge && below + r > 2 * band) {
            h = lane_all_16(0);
        }
        stripe->best = lane_max_16(stripe->best, h);
        diagonal = stripe->h[r];
        stripe->h[r] = h;
        opened = h + costs->gap_open;
        stripe->e[r] = lane_add_max_16(stripe->e[r], costs->gap_extend, opened);
        f = lane_add_max_16(f, costs->gap_extend, opened);
    }
    column->h = stripe->h[ALIGN_ROWS - 1];
    column->f = f;
}

#ifdef __CUDACC__

/*
 * Members of a part, a power of two.  Each has every part-th stripe, so either there is one for
 * each, or, in a band, a member is done with a stripe when the next begins: it goes through
 * 2 * band + ALIGN_ROWS columns, and one before them for the corner, and begins ALIGN_ROWS + 1
 * steps after the stripe above.
 */
GP_INLINE uint32_t align_part(const struct align_score_params *params)
{
    const uint32_t n_steps = 2 * params->band + ALIGN_ROWS + 1;
    uint32_t part = 1;

    while (part * ALIGN_ROWS < params->length &&
           (params->band == 0 || part * (ALIGN_ROWS + 1) < n_steps)) {
        part *= 2;
    }
    return part;
}

GP_INLINE uint32_t align_teams(const struct align_score_params *params, uint32_t n_records)
{
    const uint32_t n_parts = GP_TEAM / align_part(params);

    return n_records / n_parts + (n_records % n_parts > 0);
}

/* Until the last stripe is through its last column. */
GP_INLINE uint32_t align_steps(const struct align_pair *pair, uint32_t band)
{
    const uint32_t stripe = pair->n_a > 0 ? (pair->n_a - 1) / ALIGN_ROWS : 0;

    return stripe + align_least(pair->n_b, (stripe + 1) * ALIGN_ROWS + band);
}

/* Step t, which begins with what the other members of the part made of the step before. */
GP_INLINE void align_step(const struct align_costs *costs, const struct align_pair *pair,
                          uint32_t part, uint32_t band, uint32_t t, bool is_banded,
                          struct align_column *column, struct align_stripe *stripe)
{
    const int h = gp_team_before(column->h, part), f = gp_team_before(column->f, part);
    const uint32_t next = stripe->i + part * ALIGN_ROWS;
    uint32_t j;
    bool has_above;

    if (is_banded && next < pair->n_a && t + band + 1 == next + next / ALIGN_ROWS) {
        stripe->i = next;
        align_enter(pair, stripe);
    }
    j = t - stripe->i / ALIGN_ROWS;
    has_above = stripe->i > 0 && j < stripe->i + band;
    column->b = j < pair->n_b ? pair->b[j] : ALIGN_END_B;
    column->h = has_above ? h : 0;
    column->f = has_above ? f : 0;
    align_column(costs, column, stripe, j, band, is_banded);
}

/*
 * A member begins with columns before 0, which match nothing, and goes on beyond its last one: as
 * behind a sequence's end, that does no harm.
 */
GP_MAP_TEAM(align_score, align_teams(params, chunk->n_records))
{
    const struct align_costs costs = align_costs(params);
    const uint32_t band = params->band > 0 ? params->band : ALIGN_LENGTH;
    const uint32_t part = align_part(params), member = gp_member() % part;
    const struct op_record record = {chunk, (uint32_t)i * (GP_TEAM / part) + gp_member() / part};
    struct align_pair pair = {NULL, NULL, 0, 0};
    struct align_column column = {0, 0, 0};
    struct align_stripe stripe;
    uint32_t n_steps, best;

    if (record.i < chunk->n_records) {
        align_open(params, &record, &pair);
    }
    stripe.i = member * ALIGN_ROWS;
    stripe.corner = stripe.best = 0;
    align_enter(&pair, &stripe);
    n_steps = gp_team_max(align_steps(&pair, band), GP_TEAM);
    GP_ROLLED
    for (uint32_t t = 0; t < n_steps; t++) {
        if (params->band > 0) {
            align_step(&costs, &pair, part, band, t, true, &column, &stripe);
        } else {
            align_step(&costs, &pair, part, band, t, false, &column, &stripe);
        }
    }
    best = gp_team_max(stripe.best, part);
    if (member == 0 && record.i < chunk->n_records) {
        GP_OUT(0, int32_t)[record.i] = best;
    }
}

#else

/* Columns in front of the first row. */
GP_INLINE void align_start(const struct align_pair *pairs, uint32_t n_columns,
                           struct align_column *ret_columns)
{
    for (uint32_t j = 0; j < n_columns; j++) {
        lane_i16 b = lane_all_16(ALIGN_END_B);

        for (uint32_t lane = 0; lane < GP_LANES_16; lane++) {
            if (j < pairs[lane].n_b) {
                lane_set_16(&b, lane, pairs[lane].b[j]);
            }
        }
        ret_columns[j].b = b;
        ret_columns[j].h = lane_all_16(0);
        ret_columns[j].f = lane_all_16(0);
    }
}

/* Those columns of the stripe that the band touches. */
GP_INLINE void align_pass(const struct align_costs *costs, const struct align_pair *pairs,
                          uint32_t n_columns, uint32_t band, struct align_column *columns,
                          struct align_stripe *stripe)
{
    const uint32_t i = stripe->i, last = i + ALIGN_ROWS - 1;
    const uint32_t first = i > band ? i - band : 0;
    const uint32_t end = align_least(n_columns, last + band + 1);
    const uint32_t inner = last > band ? last - band : 0; /* from here on no row is below it, */
    const uint32_t inner_end = i + band + 1;              /* and up to here none above */

    align_enter(pairs, stripe);
    stripe->corner = first > 0 ? columns[first - 1].h : lane_all_16(0);
    for (uint32_t j = first; j < end; j++) {
        if (j >= inner && j < inner_end) {
            align_column(costs, &columns[j], stripe, j, band, false);
        } else {
            align_column(costs, &columns[j], stripe, j, band, true);
        }
    }
}

GP_MAP_LANES(align_score, GP_LANES_16)
{
    const struct align_costs costs = align_costs(params);
    const uint32_t band = params->band > 0 ? params->band : ALIGN_LENGTH;
    struct align_pair pairs[GP_LANES_16];
    struct align_column columns[ALIGN_LENGTH];
    struct align_stripe stripe;
    uint32_t n_rows = 0, n_columns = 0;

    for (uint32_t lane = 0; lane < GP_LANES_16; lane++) {
        align_open(params, &records[lane], &pairs[lane]);
        n_rows = pairs[lane].n_a > n_rows ? pairs[lane].n_a : n_rows;
        n_columns = pairs[lane].n_b > n_columns ? pairs[lane].n_b : n_columns;
    }
    align_start(pairs, n_columns, columns);
    stripe.best = lane_all_16(0);
    for (stripe.i = 0; stripe.i < n_rows; stripe.i += ALIGN_ROWS) {
        align_pass(&costs, pairs, n_columns, band, columns, &stripe);
    }
    for (uint32_t lane = 0; lane < n_records; lane++) {
        const struct op_chunk *chunk = records[lane].chunk;

        GP_OUT(0, int32_t)[records[lane].i] = lane_get_16(stripe.best, lane);
    }
}

#endif

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

GP_CODE(align_score, .map = align_score_map, .n_members = ALIGN_TEAM);

#endif
