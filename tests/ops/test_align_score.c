/*
 * align_score, against the definition by gaps of every length (Waterman, Smith and Beyer: a cube of
 * steps where the op takes a square), and against parasail.  Every width of vector is tested.
 */
#include "cuda/registry.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/ops/buffer.h"
#include "tests/ops/lanes.h"

#ifdef HAVE_PARASAIL
#include <parasail.h>
#endif

#define LENGTH_MAX 512

extern const struct op_code op_align_score;

/* As packed for the op. */
struct costs {
    uint32_t length, match, mismatch, gap_open, gap_extend, band;
};

/* ---- references ----------------------------------------------------------------------------- */

/* best[i][j]: of all alignments that end with the first i and j bytes. */
static int best[LENGTH_MAX + 1][LENGTH_MAX + 1];

static bool is_cell(const struct costs *costs, int i, int j)
{
    return i > 0 && j > 0 && (costs->band == 0 || abs(i - j) <= (int)costs->band);
}

/* The best alignment that ends at i, j with a gap in the direction (di, dj). */
static int best_gap(const struct costs *costs, int i, int j, int di, int dj)
{
    int most = 0;

    for (int n = 1; is_cell(costs, i - n * di, j - n * dj); n++) {
        const int cost = (int)costs->gap_open + (n - 1) * (int)costs->gap_extend;

        most = MAX(most, best[i - n * di][j - n * dj] - cost);
    }
    return most;
}

static int best_end(const struct costs *costs, int i, int j, bool is_match)
{
    const int pair = best[i - 1][j - 1] + (is_match ? (int)costs->match : -(int)costs->mismatch);
    const int gap_in_a = best_gap(costs, i, j, 0, 1), gap_in_b = best_gap(costs, i, j, 1, 0);
    const int most = MAX(gap_in_a, gap_in_b);

    return MAX(most, pair);
}

static int score_by_definition(const struct costs *costs, const uint8_t *a, int n_a,
                               const uint8_t *b, int n_b)
{
    int most = 0;

    memset(best, 0, sizeof(best));
    for (int i = 1; i <= n_a; i++) {
        for (int j = 1; j <= n_b; j++) {
            if (is_cell(costs, i, j)) {
                best[i][j] = best_end(costs, i, j, a[i - 1] == b[j - 1]);
                most = MAX(most, best[i][j]);
            }
        }
    }
    return most;
}

#ifdef HAVE_PARASAIL
static int score_by_parasail(const struct costs *costs, const uint8_t *a, int n_a, const uint8_t *b,
                             int n_b)
{
    parasail_matrix_t *matrix;
    parasail_result_t *result;
    int score;

    if (n_a == 0 || n_b == 0) {
        return 0; /* which it does not take */
    }
    matrix = parasail_matrix_create("ACGT", (int)costs->match, -(int)costs->mismatch);
    result = parasail_sw_striped_32((const char *)a, n_a, (const char *)b, n_b,
                                    (int)costs->gap_open, (int)costs->gap_extend, matrix);
    score = parasail_result_get_score(result);
    parasail_result_free(result);
    parasail_matrix_free(matrix);
    return score;
}
#endif

/* ---- data ----------------------------------------------------------------------------------- */

static void random_letters(uint8_t *letters, uint32_t n, const char *alphabet)
{
    for (uint32_t i = 0; i < n; i++) {
        letters[i] = (uint8_t)alphabet[random_below((uint32_t)strlen(alphabet))];
    }
}

/* A copy with a change in every 8th place or so: another letter, one more, one less. */
static void mutate(uint8_t *copy, const uint8_t *letters, uint32_t n)
{
    uint32_t from = random_below(4);

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t what = random_below(24);

        copy[i] = what == 0 ? 'A' : letters[from % n];
        from += what == 1 ? 0 : what == 2 ? 2 + random_below(5) : 1;
    }
}

/* Whole, none, one, any, or more than there is. */
static uint32_t random_length(uint32_t length)
{
    const uint32_t more[] = {length + 1, UINT32_MAX, UINT32_C(1) << 31};

    switch (random_below(6)) {
    case 0:
        return random_below(2);
    case 1:
        return random_below(length + 1);
    case 2:
        return more[random_below(ARRAY_SIZE(more))];
    default:
        return length;
    }
}

/* Pairs of all kinds: alike, the same, of nothing in common, of one letter, of any bytes. */
static void fill_pairs(const struct op_chunk *chunk, uint32_t length, bool has_any_bytes)
{
    for (uint32_t i = 0; i < chunk->n_records; i++) {
        uint8_t *a = (uint8_t *)chunk->in[0] + (size_t)i * length;
        uint8_t *b = (uint8_t *)chunk->in[1] + (size_t)i * length;
        uint32_t *lengths = (uint32_t *)chunk->in[2] + (size_t)i * 2;
        const uint32_t kind = has_any_bytes ? random_below(8) : 1 + random_below(7);

        if (kind > 0) {
            random_letters(a, length, kind == 1 ? "A" : "ACGT");
            random_letters(b, length, kind == 1 ? "A" : "ACGT");
        }
        if (kind == 2) {
            memcpy(b, a, length);
        } else if (kind > 3) {
            mutate(b, a, length);
        }
        lengths[0] = random_length(length);
        lengths[1] = random_length(length);
    }
}

static struct costs random_costs(uint32_t length)
{
    const uint32_t bands[] = {0, 1, 2, 3, 4, 7, 8, 9, length, 1 + random_below(LENGTH_MAX)};
    const bool is_large = random_below(8) == 0;

    return (struct costs){
        .length = length,
        .match = is_large ? 63 : random_below(6),
        .mismatch = is_large ? 8000 : random_below(8),
        .gap_open = is_large ? random_below(8001) : random_below(10),
        .gap_extend = is_large ? random_below(8001) : random_below(4),
        .band = bands[random_below(ARRAY_SIZE(bands))],
    };
}

/* ---- tests ---------------------------------------------------------------------------------- */

typedef int score_function(const struct costs *costs, const uint8_t *a, int n_a, const uint8_t *b,
                           int n_b);

/* parasail knows letters alone. */
static void check_pairs(map_function *map, const struct costs *costs, uint32_t n_pairs,
                        score_function *score)
{
    const bool has_any_bytes = score == score_by_definition;
    const uint32_t in_sizes[] = {costs->length, costs->length, 2 * sizeof(uint32_t)};
    struct table table;

    table_create(&table, n_pairs, 5, in_sizes, ARRAY_SIZE(in_sizes), sizeof(int32_t));
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        fill_pairs(&table.chunks[c], costs->length, has_any_bytes);
    }
    map(costs, table.chunks, table.n_chunks);
    for (uint32_t c = 0; c < table.n_chunks; c++) {
        const struct op_chunk *chunk = &table.chunks[c];

        for (uint32_t i = 0; i < chunk->n_records; i++) {
            const uint32_t *lengths = (const uint32_t *)chunk->in[2] + (size_t)i * 2;
            const int want = score(costs, (const uint8_t *)chunk->in[0] + (size_t)i * costs->length,
                                   (int)MIN(lengths[0], costs->length),
                                   (const uint8_t *)chunk->in[1] + (size_t)i * costs->length,
                                   (int)MIN(lengths[1], costs->length));

            CHECK_EQ(((const int32_t *)chunk->out[0])[i], want);
        }
    }
    buffer_check_guards();
    buffer_free_all();
}

static void check_map(map_function *map)
{
    static const uint32_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33, 64};

    for (uint32_t round = 0; round < 12 * ARRAY_SIZE(lengths); round++) {
        const struct costs costs = random_costs(lengths[round % ARRAY_SIZE(lengths)]);

        check_pairs(map, &costs, random_below(70), score_by_definition);
    }
    for (uint32_t n = 0; n <= 66; n++) {
        const struct costs costs = random_costs(16);

        check_pairs(map, &costs, n, score_by_definition);
    }
}

LANES_TESTS(op_align_score, check_map)

/* The largest pair that there is, at the largest score and in a band. */
static void test_the_longest(void)
{
    const struct costs whole = {LENGTH_MAX, 63, 8000, 8000, 8000, 0};
    const struct costs banded = {LENGTH_MAX, 2, 4, 6, 1, 100};
    uint8_t *same = buffer_create(LENGTH_MAX);
    const uint32_t lengths[2] = {LENGTH_MAX, LENGTH_MAX};
    int32_t score = -1;
    const struct op_chunk chunk = {.in = {same, same, lengths}, .out = {&score}, .n_records = 1};

    random_fill(same, LENGTH_MAX);
    op_align_score.map(&whole, &chunk, 1);
    CHECK_EQ(score, 63 * LENGTH_MAX);
    check_pairs(op_align_score.map, &banded, 5, score_by_definition);
}

static void test_parasail(void)
{
#ifdef HAVE_PARASAIL
    for (uint32_t round = 0; round < 40; round++) {
        struct costs costs = {1 + random_below(LENGTH_MAX), 2, 3, 5, 2, 0};

        costs.gap_open += random_below(5);
        check_pairs(op_align_score.map, &costs, 30, score_by_parasail);
    }
#else
    CHECK_SKIP("this was built without parasail");
#endif
}

/* Worked out by hand. */
static void test_known_answers(void)
{
    static const struct {
        const char *a, *b;
        uint32_t band;
        int32_t score;
    } rows[] = {
        {"", "", 0, 0},
        {"A", "", 0, 0},
        {"A", "A", 0, 2},
        {"A", "C", 0, 0},
        {"ACGTACGT", "ACGTACGT", 0, 16},
        {"ACGTACGT", "ACGTTACGT", 0, 11},  /* 8 pairs, a gap of 1 */
        {"ACGTACGT", "ACGTTTACGT", 0, 10}, /* a gap of 2 */
        {"ACGTACGT", "ACGTTTACGT", 2, 10}, /* at the edge of the band */
        {"ACGTACGT", "ACGTTTACGT", 1, 8},  /* outside: half of it */
        {"CCCCACGT", "ACGT", 0, 8},
        {"CCCCACGT", "ACGT", 3, 2},            /* four aside; a pair of C and C is left */
        {"ACGTCCCACGT", "ACGTGGGACGT", 0, 10}, /* across three mismatches of 2 */
    };

    for (uint32_t k = 0; k < ARRAY_SIZE(rows); k++) {
        struct costs costs = {16, 2, 2, 5, 1, rows[k].band};
        uint8_t a[16], b[16];
        const uint32_t lengths[2] = {(uint32_t)strlen(rows[k].a), (uint32_t)strlen(rows[k].b)};
        int32_t score = -1;
        const struct op_chunk chunk = {.in = {a, b, lengths}, .out = {&score}, .n_records = 1};

        random_letters(a, sizeof(a), "ACGT");
        random_letters(b, sizeof(b), "ACGT");
        memcpy(a, rows[k].a, lengths[0]);
        memcpy(b, rows[k].b, lengths[1]);
        op_align_score.map(&costs, &chunk, 1);
        CHECK_EQ(score, rows[k].score);
    }
}

CHECK_MAIN(CHECK_TEST(test_known_answers), CHECK_TEST(test_4_lanes), CHECK_TEST(test_8_lanes),
           CHECK_TEST(test_16_lanes), CHECK_TEST(test_the_longest), CHECK_TEST(test_parasail))
