/* Bench ops: what a benchmark holds results against, and that nothing wrong gets past it. */
#include "client/cli/bench_ops.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/unit/quietly.h"

#define SIZE 40000 /* several tiles, and a part of one */

static const char *const names[] = {"copy", "saxpy", "iterate"};

struct push {
    struct bench_op op;
    uint64_t seed;
    uint8_t *in[GPUPIPE_IN_MAX];
    uint8_t *out;
};

static void prepare(struct push *push, const char *name, uint64_t size)
{
    CHECK_EQ(bench_op_find(name, &push->op), CLI_OK);
    push->seed = random_u64();
    for (uint32_t i = 0; i < push->op.n_in; i++) {
        push->in[i] = random_new(size);
    }
    push->out = random_new(size);
    bench_op_prepare(&push->op, push->seed, size, push->in, push->out);
}

/* One value after the other, as the op's description has it. */
static float compute(const struct push *push, uint64_t i)
{
    const float *x = (const float *)push->in[0], *y = (const float *)push->in[1];
    volatile float v = x[i]; /* each step rounded, whatever the compiler may do */

    if (push->op.n_in == 2) {
        v = (float)push->op.value.f * v;
        return v + y[i];
    }
    for (int64_t turn = 0; turn < push->op.value.i; turn++) {
        v = v * 0.5f;
        v = v + 1.0f;
    }
    return x[i] + v;
}

static void finish(struct push *push, uint64_t size)
{
    if (!push->op.is_float) {
        memcpy(push->out, push->in[0], size);
        return;
    }
    for (uint64_t i = 0; i < size / sizeof(float); i++) {
        ((float *)push->out)[i] = compute(push, i);
    }
}

static void check_right(struct push *push, uint64_t size)
{
    finish(push, size);
    CHECK_EQ(bench_op_check(&push->op, push->seed, size, push->out), size);
}

static void test_right_results_pass(void)
{
    static const char *const settings[] = {"n=0", "n=1", "n=63", "n=64", "n=65", "n=1000"};
    static const uint64_t sizes[] = {1, 7, 63, 64, 65, 16383, 16384, 16385};
    struct push push;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        prepare(&push, names[i], SIZE);
        check_right(&push, SIZE);
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        prepare(&push, "iterate", SIZE);
        CHECK_EQ(bench_op_set(&push.op, settings[i]), CLI_OK);
        check_right(&push, SIZE);
    }
    prepare(&push, "saxpy", SIZE);
    CHECK_EQ(bench_op_set(&push.op, "a=-1.7e-3"), CLI_OK);
    check_right(&push, SIZE);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        prepare(&push, "copy", sizes[i]);
        check_right(&push, sizes[i]);
    }
}

static void test_any_wrong_byte_is_found(void)
{
    struct push push;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        prepare(&push, names[i], SIZE);
        finish(&push, SIZE);
        for (uint64_t at = 0; at < SIZE; at += 1 + random_below(100)) {
            uint8_t bit = (uint8_t)(1 << random_below(8));

            push.out[at] ^= bit;
            CHECK_EQ(bench_op_check(&push.op, push.seed, SIZE, push.out), at);
            push.out[at] ^= bit;
        }
        push.out[SIZE - 1] ^= 0x80;
        CHECK_EQ(bench_op_check(&push.op, push.seed, SIZE, push.out), SIZE - 1);
    }
}

/* A byte that the daemon does not write is a wrong one, each of them. */
static void test_outputs_are_poisoned(void)
{
    struct push push;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint8_t *poisoned = random_new(SIZE);

        prepare(&push, names[i], SIZE);
        memcpy(poisoned, push.out, SIZE);
        finish(&push, SIZE);
        for (uint64_t at = 0; at < SIZE; at++) {
            CHECK_NE(poisoned[at], push.out[at]);
        }
    }
}

static void test_input_is_fresh(void)
{
    struct push first, second;

    prepare(&first, "saxpy", SIZE);
    prepare(&second, "saxpy", SIZE);
    CHECK(memcmp(first.in[0], second.in[0], SIZE) != 0);
    CHECK(memcmp(first.in[0], first.in[1], SIZE) != 0);
    /* Results of another push are wrong. */
    finish(&second, SIZE);
    CHECK_LT(bench_op_check(&first.op, first.seed, SIZE, second.out), 16);
    /* What the daemon makes of the input afterwards changes nothing. */
    finish(&first, SIZE);
    memset(first.in[0], 0, SIZE);
    CHECK_EQ(bench_op_check(&first.op, first.seed, SIZE, first.out), SIZE);
}

/* Floats of all kinds that do not overflow: otherwise saxpy would show little. */
static void test_floats_are_finite_and_various(void)
{
    uint32_t n_exponents[256] = {0}, n_kinds = 0, n_negative = 0;
    struct push push;

    prepare(&push, "saxpy", SIZE);
    for (uint32_t i = 0; i < SIZE / 4; i++) {
        uint32_t bits = ((const uint32_t *)push.in[0])[i];

        n_exponents[bits >> 23 & 255]++;
        n_negative += bits >> 31;
    }
    for (uint32_t i = 0; i < 256; i++) {
        n_kinds += n_exponents[i] > 0;
    }
    CHECK_EQ(n_exponents[255], 0);
    CHECK_EQ(n_kinds, 64);
    CHECK(n_negative > SIZE / 10 && n_negative < SIZE / 4 - SIZE / 10);
}

static void test_mistakes(void)
{
    static const char *const wrong[] = {"n",     "n=",       "=1",    "m=1",   "n=x", "n=-1",
                                        "n=1.5", "n=100001", "n=nan", "n=inf", "n=1 "};
    struct bench_op op;

    CHECK_EQ(QUIETLY(bench_op_find("sha256", &op)), CLI_USAGE);
    CHECK_HAS(said, "copy, saxpy, iterate");
    CHECK_EQ(bench_op_find("iterate", &op), CLI_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_EQ(QUIETLY(bench_op_set(&op, wrong[i])), CLI_USAGE);
    }
    CHECK_EQ(op.value.i, 1000);
    CHECK_EQ(bench_op_find("copy", &op), CLI_OK);
    CHECK_EQ(QUIETLY(bench_op_set(&op, "size=4")), CLI_USAGE);
}

CHECK_MAIN(CHECK_TEST(test_right_results_pass), CHECK_TEST(test_any_wrong_byte_is_found),
           CHECK_TEST(test_outputs_are_poisoned), CHECK_TEST(test_input_is_fresh),
           CHECK_TEST(test_floats_are_finite_and_various), CHECK_TEST(test_mistakes))
