/* Space: what is taken never overlaps, and all of it comes back, in whatever order. */
#include "client/space.h"
#include "tests/check.h"
#include "tests/random.h"

#include <errno.h>

#define MIB ((uint64_t)1 << 20)

static void destroy(void *space)
{
    space_destroy(space);
}

static struct space *make(uint64_t size)
{
    struct space *space;

    CHECK_EQ(space_create(size, &space), 0);
    check_at_end(destroy, space);
    return space;
}

/* Three pushes of 10 MiB in and 10 MiB out: in powers of two they would take 96 MiB. */
static void test_sizes_are_not_rounded_to_powers_of_two(void)
{
    struct space *space = make(64 * MIB);
    uint64_t offset;

    for (int i = 0; i < 6; i++) {
        CHECK_EQ(space_take(space, 10 * MIB, &offset), 0);
    }
    CHECK_EQ(space_largest(space), 4 * MIB);
    CHECK_EQ(space_take(space, 4 * MIB + 1, &offset), -ENOSPC);
    CHECK_EQ(space_take(space, 4 * MIB, &offset), 0);
    CHECK_EQ(space_take(space, 1, &offset), -ENOSPC);
}

static void test_sizes_at_the_edges(void)
{
    struct space *space = make(MIB);
    uint64_t offset = 1, second = 1;

    CHECK_EQ(space_take(space, UINT64_MAX, &offset), -ENOSPC);
    CHECK_EQ(space_take(space, MIB + 1, &offset), -ENOSPC);
    CHECK_EQ(space_take(space, MIB, &offset), 0);
    CHECK_EQ(offset, 0);
    CHECK_EQ(space_left_at(space, 0), MIB);
    CHECK_EQ(space_left_at(space, MIB - 1), 1);
    CHECK_EQ(space_left_at(space, MIB), 0);
    CHECK(space_give(space, 0));
    CHECK_EQ(space_take(space, 0, &offset), 0);
    CHECK_EQ(space_take(space, 65, &second), 0);
    CHECK_EQ(offset, 0);
    CHECK_EQ(second, 64);
    CHECK_EQ(space_left_at(space, 64 + 100), 28);
    CHECK_EQ(space_left_at(space, 64 + 128), 0);
}

static void test_only_what_was_taken_is_given_back(void)
{
    struct space *space = make(MIB);
    uint64_t offset;

    CHECK(!space_give(space, 0));
    CHECK_EQ(space_take(space, 1000, &offset), 0);
    CHECK(!space_give(space, offset + 64));
    CHECK(!space_give(space, MIB));
    CHECK(!space_give(space, UINT64_MAX));
    CHECK(space_give(space, offset));
    CHECK(!space_give(space, offset));
}

/* Against a map of which 64 bytes are whose. */
static void test_pieces_never_overlap(void)
{
    enum { N_PIECES = 100, N_STEPS = 20000, N_LINES = 16384 };
    static uint8_t owner[N_LINES];
    struct space *space = make((uint64_t)N_LINES * 64);
    uint64_t offsets[N_PIECES], sizes[N_PIECES] = {0};

    memset(owner, 0, sizeof(owner));
    for (int step = 0; step < N_STEPS; step++) {
        uint32_t i = (uint32_t)random_below(N_PIECES);
        uint64_t size = 1 + random_below((uint64_t)1 << random_below(19));

        if (sizes[i] == 0 && space_take(space, size, &offsets[i]) == 0) {
            sizes[i] = size;
            CHECK_EQ(offsets[i] % 64, 0);
            for (uint64_t k = offsets[i] / 64; k <= (offsets[i] + size - 1) / 64; k++) {
                CHECK_EQ(owner[k], 0);
                owner[k] = (uint8_t)(i + 1);
            }
        } else if (sizes[i] == 0) {
            CHECK_LT(space_largest(space), size);
        } else {
            for (uint64_t k = offsets[i] / 64; k <= (offsets[i] + sizes[i] - 1) / 64; k++) {
                CHECK_EQ(owner[k], i + 1);
                owner[k] = 0;
            }
            CHECK(space_give(space, offsets[i]));
            sizes[i] = 0;
        }
    }
    for (int i = 0; i < N_PIECES; i++) {
        CHECK_EQ(sizes[i] != 0, sizes[i] != 0 && space_give(space, offsets[i]));
    }
    CHECK_EQ(space_largest(space), (uint64_t)N_LINES * 64);
}

CHECK_MAIN(CHECK_TEST(test_sizes_are_not_rounded_to_powers_of_two),
           CHECK_TEST(test_sizes_at_the_edges), CHECK_TEST(test_only_what_was_taken_is_given_back),
           CHECK_TEST(test_pieces_never_overlap))
