/*
 * sum: f32 values to one f64, the same bits however the input was cut and whoever added it.
 *
 * Within a leaf of 16384 values each of 256 lanes adds 64 of them in f64; lanes, then leaves, are
 * added in double-double.  The first value of a lane meets a zero, so a value takes part in at most
 * 63 rounded additions; everything after that loses less than 2^-100 of the operands an addition,
 * and the result is rounded once:
 *     |result - exact| <= 65 * 2^-53 * (|x0| + |x1| + ..)   for up to 2^60 values.
 * A plain loop of n additions in f64 has n - 1 in place of 65.  f64 cannot overflow here.
 *
 * Infinities and NaN as IEEE 754 has them: +inf and -inf, or any NaN, give NaN.  No values give 0,
 * and so does any number of -0.
 */
#include "cuda/op.h"

#define SUM_LEAF  16384
#define SUM_LANES 256

struct sum_params; /* none */

struct sum_lane {
    double sum;
};

/* hi + lo, hi being that sum rounded; lo is 0 where hi is not finite. */
struct sum_partial {
    double hi, lo;
};

GP_INLINE void sum_step(const struct sum_params *params, struct sum_lane *lane,
                        const struct op_chunk *chunk, size_t i)
{
    (void)params;
    lane->sum += (double)GP_IN(0, float)[i];
}

GP_INLINE struct sum_partial sum_close(const struct sum_lane *lane)
{
    struct sum_partial partial = {lane->sum, 0};

    return partial;
}

/* a + b = hi + lo exactly, whichever is larger (Knuth's TwoSum). */
GP_INLINE struct sum_partial sum_two(double a, double b)
{
    const double hi = a + b;
    const double b_part = hi - a;
    const double a_part = hi - b_part;
    struct sum_partial exact = {hi, (a - a_part) + (b - b_part)};

    return exact;
}

GP_INLINE struct sum_partial sum_add(struct sum_partial a, struct sum_partial b)
{
    const struct sum_partial rough = sum_two(a.hi, b.hi);
    struct sum_partial not_finite = {rough.hi, 0};

    /* Past this the differences in sum_two() would make every infinity a NaN. */
    if (!(rough.hi - rough.hi == 0)) {
        return not_finite;
    }
    /* The second is no quick TwoSum: after cancellation the low parts may be the larger ones. */
    return sum_two(rough.hi, rough.lo + (a.lo + b.lo));
}

GP_INLINE void sum_write(const struct sum_params *params, const struct sum_partial *fold,
                         void *const *out)
{
    (void)params;
    *(double *)out[0] = fold->hi;
}

GP_REDUCE(sum, SUM_LEAF, SUM_LANES)

#ifdef GP_HOST

static const struct manifest_op sum_manifest = {
    .abi = MANIFEST_ABI,
    .kind = OP_REDUCE,
    .name = "sum",
    .doc = "the sum of all values; error at most 65 * 2^-53 * the sum of their magnitudes",
    .n_in = 1,
    .n_out = 1,
    .in = {{.name = "in", .dtype = DTYPE_F32}},
    .out = {{.name = "out", .dtype = DTYPE_F64}},
    .min_parallel = 1,
    .leaf = SUM_LEAF,
    .partial_size = sizeof(struct sum_partial),
};

GP_CODE(sum, .leaves = sum_leaves, .merge = sum_merge, .finish = sum_finish, .n_lanes = SUM_LANES,
        .is_streaming = true);

#endif
