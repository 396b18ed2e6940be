/* How records are cut into pieces: no byte lost, none twice, whatever the op's record sizes are. */
#include "daemon/push.h"
#include "daemon/segments.h"
#include "proto/util.h"
#include "tests/check.h"
#include "tests/random.h"

#define MIB ((uint64_t)1 << 20)

static void destroy(void *pool)
{
    pool_destroy(pool);
}

static void destroy_segments(void *segments)
{
    segments_destroy(segments);
}

static struct pool *make_pool(void)
{
    struct segments *segments;
    struct pool *pool;
    struct failure failure;

    CHECK_EQ(segments_create(&segments), 0);
    check_at_end(destroy_segments, segments);
    CHECK_EQ(pool_create(256 * MIB, segments, &pool, &failure), 0);
    check_at_end(destroy, pool);
    return pool;
}

/* One input and one output of these sizes; leaf 0: a map op. */
static struct push_shape shape_of(uint32_t in, uint32_t out, uint32_t leaf)
{
    return (struct push_shape){
        .n_in = 1,
        .n_arrays = 2,
        .record_size = {in, out},
        .leaf = leaf,
        .largest = leaf != 0 ? in : MAX(in, out),
    };
}

static void check_cut(struct pool *pool, const struct push_shape *shape, uint64_t n_records)
{
    struct push push = {0};
    struct failure failure;
    struct reader_sink sink;
    uint32_t piece_records;
    uint64_t pool_size, seen = 0;

    CHECK_EQ(push_plan(shape, n_records, &piece_records, &pool_size, &failure), 0);
    CHECK_EQ(push_lease(&push, shape, pool, n_records, piece_records), 0);
    CHECK_EQ(pool_used(pool), pool_size);
    CHECK_LE(push.n_pieces, PUSH_PIECES_MAX);
    for (uint32_t piece = 0; piece < push.n_pieces; piece++) {
        uint64_t here = push_piece_records(&push, piece);

        CHECK_GT(here, 0);
        CHECK(shape->leaf == 0 || piece + 1 == push.n_pieces || here % shape->leaf == 0);
        for (uint32_t array = 0; array < shape->n_arrays; array++) {
            CHECK_GE(push_block(&push, shape, piece, array)->size,
                     push_array_size(shape, array, here));
        }
        seen += here;
    }
    CHECK_EQ(seen, n_records);
    push_sink(&push, shape, 0, n_records * shape->record_size[0], &sink);
    CHECK_EQ(sink.n_pieces, push.n_pieces);
    seen = 0;
    for (uint32_t i = 0; i < sink.n_pieces; i++) {
        seen += sink.pieces[i].iov_len;
    }
    CHECK_EQ(seen, n_records * shape->record_size[0]);
    push_release(&push, shape, pool);
    CHECK_EQ(pool_used(pool), 0);
}

static void test_cuts_of_many_shapes(void)
{
    static const struct {
        uint32_t in, out, leaf;
        uint64_t n_records;
    } cases[] = {
        {1, 1, 0, 0},
        {1, 1, 0, 1},
        {1, 1, 0, 4 * MIB},
        {1, 1, 0, 4 * MIB + 1},
        {4096, 32, 0, 16384},
        {3, 5, 0, 10 * MIB},
        {16 << 20, 32, 0, 3},
        {5000, 7, 0, 9999},
        {4, 16, 16384, 1},
        {4, 16, 16384, 16385},
        {4, 16, 16384, 16000000},
        {1, 1000, 0, 60000},
    };
    struct pool *pool = make_pool();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct push_shape shape = shape_of(cases[i].in, cases[i].out, cases[i].leaf);

        check_cut(pool, &shape, cases[i].n_records);
    }
}

static void test_random_cuts(void)
{
    struct pool *pool = make_pool();

    for (unsigned i = 0; i < 300; i++) {
        uint32_t leaf = random_below(3) == 0 ? 1 + (uint32_t)random_below(1000) : 0;
        struct push_shape shape = shape_of(1 + (uint32_t)random_below(10000),
                                           1 + (uint32_t)random_below(leaf ? 64 : 10000), leaf);

        check_cut(pool, &shape, random_below(32 * MIB / shape.largest));
    }
}

/* A varying input has the same room however many records there are, and all of them lie together.
 */
static void test_a_varying_input(void)
{
    enum { ROOM = 1 << 20 };
    struct push_shape shape = shape_of(4, 2, 0);
    struct pool *pool = make_pool();
    struct push push = {0};
    struct failure failure;
    struct reader_sink sink;
    uint32_t piece_records;
    uint64_t pool_size;

    shape.n_in = 2;
    shape.n_arrays = 3;
    shape.record_size[2] = 8;
    shape.largest = 8;
    shape.varying = 1;
    shape.varying_size = ROOM;
    CHECK_EQ(push_array_size(&shape, 1, 0), 0);
    CHECK_EQ(push_array_size(&shape, 1, 1), ROOM);
    CHECK_EQ(push_array_size(&shape, 1, 1000), ROOM);
    CHECK_EQ(push_plan(&shape, 2 * MIB, &piece_records, &pool_size, &failure), 0);
    CHECK_EQ(piece_records, 2 * MIB);
    CHECK_EQ(push_plan(&shape, 2 * MIB + 1, &piece_records, &pool_size, &failure), -STATUS_TOO_BIG);
    CHECK_EQ(push_plan(&shape, 3, &piece_records, &pool_size, &failure), 0);
    CHECK_EQ(push_lease(&push, &shape, pool, 3, piece_records), 0);
    CHECK_EQ(pool_used(pool), pool_size);
    CHECK_GE(push_block(&push, &shape, 0, 1)->size, ROOM);
    push_sink(&push, &shape, 1, ROOM, &sink);
    CHECK_EQ(sink.n_pieces, 1);
    CHECK_EQ(sink.pieces[0].iov_len, ROOM);
    push_sink(&push, &shape, 1, 0, &sink);
    CHECK_EQ(sink.n_pieces, 0);
    push_release(&push, &shape, pool);
    CHECK_EQ(pool_used(pool), 0);
}

static void test_too_many_pieces(void)
{
    struct push_shape shape = shape_of(1, 1 << 20, 0);
    struct failure failure;
    uint32_t piece_records;
    uint64_t pool_size;

    CHECK_EQ(push_plan(&shape, 64 * MIB, &piece_records, &pool_size, &failure), -STATUS_TOO_BIG);
    CHECK_HAS(failure.message, "use a job");
}

static void test_padding_reaches_the_record_end_and_no_further(void)
{
    struct push_shape shape = shape_of(4096, 32, 0);
    struct pool *pool = make_pool();
    struct push push = {0};
    uint64_t size = 5 * 4096 - 1000;

    CHECK_EQ(push_lease(&push, &shape, pool, 5, 5), 0);
    uint8_t *bytes = push_block(&push, &shape, 0, 0)->base;
    memset(bytes, 0xa5, push_block(&push, &shape, 0, 0)->size);
    push_pad(&push, &shape, size);
    for (uint64_t i = 0; i < 5 * 4096 + 4096; i++) {
        CHECK_EQ(bytes[i], i >= size && i < 5 * 4096 ? 0 : 0xa5);
    }
    push_release(&push, &shape, pool);
}

CHECK_MAIN(CHECK_TEST(test_cuts_of_many_shapes), CHECK_TEST(test_random_cuts),
           CHECK_TEST(test_a_varying_input), CHECK_TEST(test_too_many_pieces),
           CHECK_TEST(test_padding_reaches_the_record_end_and_no_further))
